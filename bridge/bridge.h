// What the bridge's files share: the runtime, and the way between PyTorch's tensors and the core's storages.
//
// Lock rule: nothing here holds a lock while calling into PyTorch or Python (a thread that holds the GIL and wants the
// lock, and one that holds the lock and wants the GIL, would wait for ever).
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/dlpack.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "pj/run.h"

namespace torch_pjrt {

// ---- runtime (device.cpp) -------------------------------------------------------------------------------------------

// The process's runtime, started on first use by torch_pjrt._plugin.start(). Never destroyed: tensors may outlive
// every static object.
pj_runtime *runtime();
pj_runtime *runtime_if_started();
void set_runtime(pj_runtime *started);

// True in a child that was forked after the runtime had started: nothing of it may be used there.
bool in_bad_fork();

pj_device *device_at(c10::DeviceIndex index);  // negative: the current device
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::DeviceIndex device_count();  // starts the runtime; 0 when it cannot be started

pj_hooks python_hooks();  // GIL release, Ctrl-C, source lines

// Throws what the status says, as the exception type that PyTorch's CPU kernels use for it. Takes ownership.
void check(pj_status status);

// ---- generator (device.cpp) -----------------------------------------------------------------------------------------

struct Seed {
  uint64_t seed, offset;
};
// Gives the state of `generator` (undefined: the device's default one).
Seed read_seed(const std::optional<at::Generator> &generator, c10::DeviceIndex device);
// Moves its offset on by the count of numbers that were drawn.
void advance_seed(const std::optional<at::Generator> &generator, c10::DeviceIndex device, uint64_t count);
const at::Generator &default_generator(c10::DeviceIndex device);

// ---- allocators (memory.cpp) ----------------------------------------------------------------------------------------

c10::DeviceAllocator *allocator();
at::HostAllocator *pinned_allocator();      // host memory that is_pinned() knows
bool is_pinned(const void *pointer);

// ---- storages and tensors (device.cpp) ------------------------------------------------------------------------------

pj_dtype to_pj(c10::ScalarType type);      // TypeError for a type that the device does not have
c10::ScalarType to_torch(pj_dtype dtype);
void check_rank(int64_t rank);             // RuntimeError for more dimensions than PJ_MAX_RANK

// The core's storage behind a StorageImpl of ours; *out_offset is the byte offset of the StorageImpl's first byte in it
// (not 0 only for a foreign StorageImpl made over one of our addresses, as pickle does).
pj_storage *storage_of(const c10::StorageImpl &impl, size_t *out_offset);

c10::DataPtr data_ptr(pj_storage *storage, c10::DeviceIndex device);      // takes the storage over
c10::Storage wrap_storage(pj_storage *storage, c10::DeviceIndex device);  // takes the storage over
at::Tensor make_tensor(pj_storage *storage, c10::DeviceIndex device, c10::ScalarType type, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides);

// Whether the tensor is all of its storage, in some order, without gaps.
bool covers_storage(const at::Tensor &tensor);
unsigned math_bits(const at::Tensor &tensor);  // PJ_TENSOR_CONJ | PJ_TENSOR_NEG

inline bool on_device(const at::Tensor &tensor) { return tensor.device().type() == c10::DeviceType::PrivateUse1; }

// ---- calls (kernel.cpp) ---------------------------------------------------------------------------------------------

// A pj_call of this thread and a stack, whose memory stays: both are emptied when it goes out of scope. Calls nest,
// since a hook may run Python.
class Call {
 public:
  explicit Call(const pj_op *op = nullptr);
  ~Call();
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;
  pj_call *operator->() { return &frame_->call; }
  operator pj_call *() { return &frame_->call; }
  std::vector<c10::IValue> &stack() { return frame_->stack; }

  struct Frame {
    pj_call call;
    std::vector<c10::IValue> stack;
  };
  struct Frames;

 private:
  Frames &frames_;
  Frame *frame_;
};

void write_tensor(pj_call *call, const at::Tensor &tensor);  // appends a tensor of our device

// A fresh dense tensor of the given dtype and (dense) strides with the values of `source`: the builtin pj::copy.
at::Tensor device_copy(const at::Tensor &source, c10::ScalarType type, c10::IntArrayRef strides);

// Writes a dense `source` of our device, of the same sizes and dtype, through `target`.
void write_through(const at::Tensor &target, pj_value *source, c10::IntArrayRef source_strides);
// The same as a part of an op that pj_device_end_op ends.
void write_held(const at::Tensor &target, pj_value *source, const int64_t *source_strides);

void register_kernels();

// ---- fallback (kernel.cpp) ------------------------------------------------------------------------------------------

enum class FallbackMode { kSilent, kWarn, kError };
FallbackMode fallback_mode();
void set_fallback_mode(FallbackMode mode);
std::unordered_map<std::string, int64_t> fallback_counts();
void reset_fallback_counts();

// ---- profiler.cpp ---------------------------------------------------------------------------------------------------

void profile(pj_runtime *started);  // collects the runtime's spans if a profiler runs

// ---- dlpack.cpp -----------------------------------------------------------------------------------------------------

DLManagedTensorVersioned *to_host_dlpack(const at::Tensor &tensor);  // the caller owns it, as a consumer does

// ---- tensor.cpp -----------------------------------------------------------------------------------------------------

at::Tensor read_tensor(const at::Tensor &tensor);  // to a CPU tensor of the same sizes
void resize_storage(const c10::Storage &storage, size_t nbytes);

}  // namespace torch_pjrt
