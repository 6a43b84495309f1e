// What a tensor is on this device: allocation, views, copies, storage surgery, reading values.
#include "bridge.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_embedding_bag_backward_native.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/all.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/new_empty_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace torch_pjrt {
namespace {

using at::IntArrayRef;
using at::Tensor;
using c10::DeviceIndex;
using c10::ScalarType;
using Dims = c10::SmallVector<int64_t, PJ_MAX_RANK>;

// A view of a storage of up to so many bytes is read by reading the storage: cheaper than compiling, for each view that is
// read, a program that makes it dense.
constexpr size_t kSmallStorage = 64 * 1024;

pj_device *core_device(const Tensor &tensor) { return device_at(tensor.device().index()); }

// Sizes of the dense array that holds a dense tensor: its dimensions from the slowest to the fastest in memory. Dimensions
// of size 1 have no place in memory; they keep theirs in the tensor's order, as far as strides of equal rank allow.
Dims memory_dims(IntArrayRef sizes, IntArrayRef strides) {
  Dims order(sizes.size()), dims(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  for (size_t i = 0; i < order.size(); ++i) dims[i] = sizes[order[i]];
  return dims;
}

// Strides that a dense tensor of these sizes has when it keeps the order of `strides` (as empty_like does).
Dims dense_strides(const Tensor &tensor) {
  if (tensor.is_non_overlapping_and_dense()) return {tensor.strides().begin(), tensor.strides().end()};
  auto inferred = at::infer_dense_strides(tensor.sizes(), tensor.strides());
  return {inferred.begin(), inferred.end()};
}

Dims format_strides(IntArrayRef sizes, c10::MemoryFormat format) {
  Dims strides(sizes.size());
  switch (format) {
    case c10::MemoryFormat::Contiguous: {
      int64_t step = 1;
      for (size_t i = sizes.size(); i-- > 0;) {
        strides[i] = step;
        step *= std::max<int64_t>(sizes[i], 1);
      }
      return strides;
    }
    case c10::MemoryFormat::ChannelsLast: {
      TORCH_CHECK(sizes.size() == 4, "required rank 4 tensor to use channels_last format");
      auto found = c10::get_channels_last_strides_2d(sizes);
      return {found.begin(), found.end()};
    }
    case c10::MemoryFormat::ChannelsLast3d: {
      TORCH_CHECK(sizes.size() == 5, "required rank 5 tensor to use channels_last_3d format");
      auto found = c10::get_channels_last_strides_3d(sizes);
      return {found.begin(), found.end()};
    }
    default: TORCH_CHECK(false, "unsupported memory format ", format);
  }
}

Dims format_strides(const Tensor &tensor, c10::MemoryFormat format) {
  if (format == c10::MemoryFormat::Preserve) return dense_strides(tensor);
  return format_strides(tensor.sizes(), format);
}

// A new tensor that shares the value of `source`, which must cover its storage. Values never change, so this is a copy.
Tensor share_value(const Tensor &source) {
  size_t offset;
  pj_storage *storage = storage_of(*source.storage().unsafeGetStorageImpl(), &offset);
  DeviceIndex index = source.device().index();
  pj_value *value = pj_storage_value(storage);
  pj_storage *copy = value ? pj_storage_create_with(device_at(index), value)
                           : pj_storage_create(device_at(index), source.storage().nbytes());
  return make_tensor(copy, index, source.scalar_type(), source.sizes(), source.strides());
}

bool same_layout(const Tensor &a, const Tensor &b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

// ---- allocation -----------------------------------------------------------------------------------------------------

DeviceIndex index_of(const std::optional<c10::Device> &device) {
  if (!device) return current_device();
  TORCH_CHECK(device->type() == c10::DeviceType::PrivateUse1, "expected a tpu device, not ", *device);
  return device->index() == -1 ? current_device() : device->index();
}

void check_options(const std::optional<c10::Layout> &layout, const std::optional<bool> &pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == c10::Layout::Strided, "the tpu device has only strided tensors, not ",
                              *layout);
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned");
}

Tensor allocate(IntArrayRef sizes, IntArrayRef strides, ScalarType type, DeviceIndex index) {
  check_rank(static_cast<int64_t>(sizes.size()));
  pj_dtype dtype = to_pj(type);
  size_t nbytes = at::detail::computeStorageNbytes(sizes, strides, pj_dtype_size(dtype));
  return make_tensor(pj_storage_create(device_at(index), nbytes), index, type, sizes, strides);
}

// torch.use_deterministic_algorithms: memory that nobody has written holds NaN, or the largest integer.
bool fills_new_memory() {
  return at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory();
}

Tensor filled(Tensor tensor) {
  return C10_UNLIKELY(fills_new_memory()) ? at::native::fill_empty_deterministic_(tensor) : tensor;
}

Tensor empty(IntArrayRef sizes, std::optional<ScalarType> type, std::optional<c10::Layout> layout,
             std::optional<c10::Device> device, std::optional<bool> pin_memory,
             std::optional<c10::MemoryFormat> format) {
  check_options(layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  auto strides = format_strides(sizes, format.value_or(c10::MemoryFormat::Contiguous));
  return filled(allocate(sizes, strides, type.value_or(c10::get_default_dtype_as_scalartype()), index_of(device)));
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, std::optional<ScalarType> type,
                     std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                     std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  TORCH_CHECK(sizes.size() == strides.size(), "dimensionality of sizes (", sizes.size(),
              ") must match dimensionality of strides (", strides.size(), ")");
  return filled(allocate(sizes, strides, type.value_or(c10::get_default_dtype_as_scalartype()), index_of(device)));
}

// Zeros without memory, as forward derivatives and undefined gradients are.
Tensor efficientzerotensor(IntArrayRef sizes, std::optional<ScalarType> type, std::optional<c10::Layout> layout,
                           std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  check_rank(static_cast<int64_t>(sizes.size()));
  at::native::ZeroTensorAllocator zeros(c10::Device(c10::DeviceType::PrivateUse1, index_of(device)));
  c10::DispatchKeySet keys({c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor});
  return at::detail::empty_generic(sizes, &zeros, keys, type.value_or(c10::get_default_dtype_as_scalartype()),
                                   std::nullopt);
}

// ---- host and device ------------------------------------------------------------------------------------------------

// The whole storage's bytes, whatever the type of its value is.
void read_bytes(const Tensor &tensor, void *data, size_t nbytes) {
  if (!nbytes) return;
  size_t offset;
  pj_storage *storage = storage_of(*tensor.storage().unsafeGetStorageImpl(), &offset);
  pj_value *value = pj_storage_value(storage);
  if (!value) {
    memset(data, 0, nbytes);
    return;
  }
  std::unique_ptr<pj_value, void (*)(pj_value *)> held(value, pj_value_release);
  TORCH_CHECK(pj_value_bytes(value) == nbytes, "the tensor has ", nbytes, " bytes, its storage ", pj_value_bytes(value));
  check(pj_value_to_host(core_device(tensor), value, data));
}

// A dense tensor with the values of a CPU tensor, in the order of its strides.
Tensor from_host(const Tensor &host, DeviceIndex index) {
  check_rank(host.dim());
  auto strides = dense_strides(host);
  Tensor dense = host;
  if (!host.is_non_overlapping_and_dense() || math_bits(host)) {
    dense = at::empty_strided(host.sizes(), strides, host.options());
    dense.copy_(host);
  }
  auto dims = memory_dims(dense.sizes(), strides);
  pj_device *device = device_at(index);
  pj_value *value = nullptr;
  check(pj_value_from_host(device, dense.const_data_ptr(), to_pj(dense.scalar_type()), static_cast<int>(dims.size()),
                           dims.data(), &value));
  return make_tensor(pj_storage_create_with(device, value), index, dense.scalar_type(), dense.sizes(), strides);
}

Tensor to_index(const Tensor &source, DeviceIndex index) {
  Tensor whole = covers_storage(source) && !math_bits(source)
                     ? source
                     : device_copy(source, source.scalar_type(), dense_strides(source));
  size_t offset;
  pj_value *value = pj_storage_value(storage_of(*whole.storage().unsafeGetStorageImpl(), &offset));
  if (!value) return allocate(whole.sizes(), whole.strides(), whole.scalar_type(), index);
  std::unique_ptr<pj_value, void (*)(pj_value *)> held(value, pj_value_release);
  pj_value *moved = nullptr;
  check(pj_value_to_device(core_device(whole), value, device_at(index), &moved));
  return make_tensor(pj_storage_create_with(device_at(index), moved), index, whole.scalar_type(), whole.sizes(),
                     whole.strides());
}

// ---- copies ---------------------------------------------------------------------------------------------------------

// `source` (of our device, sizes of target) into `target`.
void copy_on_device(const Tensor &target, const Tensor &source) {
  if (covers_storage(target) && covers_storage(source) && same_layout(target, source) &&
      math_bits(target) == math_bits(source)) {
    size_t offset;
    pj_storage *to = storage_of(*target.storage().unsafeGetStorageImpl(), &offset);
    pj_value *value = pj_storage_value(storage_of(*source.storage().unsafeGetStorageImpl(), &offset));
    Tensor zeros;
    if (!value) {
      zeros = at::zeros(source.sizes(), source.options());
      value = pj_storage_value(storage_of(*zeros.storage().unsafeGetStorageImpl(), &offset));
    }
    pj_storage_set(to, value);
    pj_value_release(value);
    return;
  }
  // A dense source of the right type is written as it is; anything else is first made so.
  bool ready = covers_storage(source) && !math_bits(source) && source.scalar_type() == target.scalar_type();
  if (ready) {
    size_t offset;
    pj_value *value = pj_storage_value(storage_of(*source.storage().unsafeGetStorageImpl(), &offset));
    std::unique_ptr<pj_value, void (*)(pj_value *)> held(value, [](pj_value *v) {
      if (v) pj_value_release(v);
    });
    if (value) {
      write_through(target, value, source.strides());
      return;
    }
  }
  auto strides = target.is_non_overlapping_and_dense() ? dense_strides(target)
                                                       : format_strides(target, c10::MemoryFormat::Contiguous);
  Tensor dense = device_copy(source, target.scalar_type(), strides);
  size_t offset;
  pj_value *value = pj_storage_value(storage_of(*dense.storage().unsafeGetStorageImpl(), &offset));
  std::unique_ptr<pj_value, void (*)(pj_value *)> held(value, pj_value_release);
  dense.reset();  // so that the value can be donated to the write
  write_through(target, value, strides);
}

Tensor &copy_(Tensor &self, const Tensor &source, bool) {
  if (self.is_same(source)) return self;
  at::assert_no_internal_overlap(self);
  auto expanded = at::expand_inplace(self, source, "copy_");
  if (self.numel() == 0) return self;
  if (!on_device(self)) {
    Tensor host = read_tensor(source);
    self.copy_(host);
  } else if (!on_device(source)) {
    // Of a source that is spread over the target only its own elements travel. Types are converted on the host, where
    // it costs no compile.
    const Tensor &host = source.numel() < self.numel() ? source : *expanded;
    Tensor moved = from_host(host.scalar_type() == self.scalar_type() ? host : host.to(self.scalar_type()),
                             self.device().index());
    copy_on_device(self, moved.expand(self.sizes()));
  } else if (self.device() != source.device()) {
    copy_on_device(self, to_index(source, self.device().index()).expand(self.sizes()));
  } else {
    copy_on_device(self, *expanded);
  }
  return self;
}

Tensor copy_from(const Tensor &self, const Tensor &target, bool non_blocking) {
  Tensor written = target;
  return copy_(written, self, non_blocking);
}

Tensor copy_from_and_resize(const Tensor &self, const Tensor &target) {
  at::native::resize_output(target, self.sizes());
  return copy_from(self, target, false);
}

Tensor clone_tensor(const Tensor &self, std::optional<c10::MemoryFormat> format) {
  auto strides = format_strides(self, format.value_or(c10::MemoryFormat::Preserve));
  if (covers_storage(self) && !math_bits(self) && self.strides() == IntArrayRef(strides)) return share_value(self);
  return device_copy(self, self.scalar_type(), strides);
}

Tensor to_copy(const Tensor &self, std::optional<ScalarType> type, std::optional<c10::Layout> layout,
               std::optional<c10::Device> device, std::optional<bool> pin_memory, bool non_blocking,
               std::optional<c10::MemoryFormat> format) {
  c10::Device to = device.value_or(self.device());
  ScalarType wanted = type.value_or(self.scalar_type());
  if (to.type() != c10::DeviceType::PrivateUse1) {
    TORCH_CHECK(!pin_memory || !*pin_memory || to.is_cpu(), "Only dense CPU tensors can be pinned");
    if (to.is_cpu()) {
      Tensor host = read_tensor(self);
      auto options = host.options().dtype(wanted).pinned_memory(pin_memory.value_or(false));
      auto strides = format_strides(self, format.value_or(c10::MemoryFormat::Preserve));
      if (host.scalar_type() == wanted && host.strides() == IntArrayRef(strides) && !pin_memory.value_or(false))
        return host;
      Tensor result = at::empty_strided(host.sizes(), strides, options);
      return result.copy_(host);
    }
    Tensor result = at::empty_strided(self.sizes(), format_strides(self, format.value_or(c10::MemoryFormat::Preserve)),
                                      self.options().dtype(wanted).device(to).pinned_memory(false));
    return to.is_meta() ? result : result.copy_(read_tensor(self), non_blocking);
  }
  check_options(layout, pin_memory);
  DeviceIndex index = index_of(to);
  if (!on_device(self)) {
    TORCH_CHECK_NOT_IMPLEMENTED(!self.is_meta(), "Cannot copy out of meta tensor; no data!");
    Tensor host = self.scalar_type() == wanted ? self : self.to(wanted);
    Tensor here = from_host(host, index);
    return clone_tensor(here, format);
  }
  Tensor here = self.device().index() == index ? self : to_index(self, index);
  if (wanted == here.scalar_type()) return clone_tensor(here, format);
  // A conversion to real drops the imaginary part, as on the CPU; the warning is given by the copy there.
  return device_copy(here, wanted, format_strides(here, format.value_or(c10::MemoryFormat::Preserve)));
}

// PyTorch's copy-on-write clone: sharing the value is just that.
Tensor lazy_clone(const Tensor &self) { return clone_tensor(self, c10::MemoryFormat::Preserve); }

// ---- storage surgery ------------------------------------------------------------------------------------------------

const Tensor &resize_(const Tensor &self, IntArrayRef sizes, std::optional<c10::MemoryFormat> format) {
  at::detail::check_size_nonnegative(sizes);
  auto *impl = self.unsafeGetTensorImpl();
  size_t before = self.storage().nbytes();
  if (impl->sizes() != sizes) {
    if (c10::multiply_integers(sizes) > 0) {  // before the sizes change: it may fail
      size_t needed = at::detail::computeStorageNbytesContiguous(sizes, self.itemsize(), impl->storage_offset());
      if (needed > self.storage().nbytes()) resize_storage(self.storage(), needed);
    }
    impl->set_sizes_contiguous(sizes);
  }
  if (format) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  if (C10_UNLIKELY(fills_new_memory())) at::native::fill_resize_deterministic_(self, static_cast<int64_t>(before));
  return self;
}

Tensor &set_storage(Tensor &self, c10::Storage source, int64_t offset, IntArrayRef sizes, IntArrayRef strides) {
  at::native::checkSetStorage(self, source, offset, sizes, strides);
  for (int64_t stride : strides) TORCH_CHECK(stride >= 0, "set_: negative strides are not supported, but found ", strides);
  auto *impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (strides.data()) {
    impl->set_sizes_and_strides(sizes, strides);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  if (self.numel() > 0) {
    size_t needed = at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(), offset);
    if (needed > self.storage().nbytes()) resize_storage(self.storage(), needed);
  }
  return self;
}

Tensor &set_source_storage(Tensor &self, c10::Storage source) {
  auto count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {count}, {});
}

Tensor &set_source_tensor(Tensor &self, const Tensor &source) {
  if (self.is_same(source)) return self;
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor &set_nothing(Tensor &self) {
  pj_storage *storage = pj_storage_create(core_device(self), 0);
  return set_storage(self, wrap_storage(storage, self.device().index()), 0, {0}, {});
}

bool is_set_to(const Tensor &self, const Tensor &source) {
  return self.storage().is_alias_of(source.storage()) && self.storage_offset() == source.storage_offset() &&
         self.sizes() == source.sizes() && self.strides() == source.strides();
}

void record_stream(Tensor &, c10::Stream) {}  // one order of work: memory cannot be reused too early

// ---- reading --------------------------------------------------------------------------------------------------------

c10::Scalar local_scalar_dense(const Tensor &self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  if (!covers_storage(self) || math_bits(self)) return at::_local_scalar_dense(read_tensor(self));
  alignas(16) char bytes[16];
  read_bytes(self, bytes, self.itemsize());
  switch (self.scalar_type()) {
#define SCALAR(T, name) \
  case ScalarType::name: return c10::load<T>(bytes);
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(SCALAR)
#undef SCALAR
    default: return at::_local_scalar_dense(at::from_blob(bytes, {}, self.options().device(c10::kCPU)));
  }
}

bool equal(const Tensor &self, const Tensor &other) {
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
              " and ", other.device());
  if (self.sizes() != other.sizes()) return false;
  return at::all(at::eq(self, other)).item<bool>();
}

// Lets `parameter.data = tensor` change the device, so that Module.to keeps the parameters, and with them tied weights
// and what an optimizer holds. PyTorch's own list of dense devices that may (TensorImpl.h) leaves out PrivateUse1.
bool has_compatible_shallow_copy_type(const Tensor &self, const Tensor &from) {
  auto dense = [](const Tensor &tensor) {
    return tensor.layout() == c10::Layout::Strided && (tensor.is_cpu() || on_device(tensor));
  };
  return self.key_set() == from.key_set() || (dense(self) && dense(from));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_efficientzerotensor", efficientzerotensor);
  m.impl("new_empty_strided", at::native::new_empty_strided_symint);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("copy_", copy_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("clone", clone_tensor);
  m.impl("_to_copy", to_copy);
  m.impl("_lazy_clone", lazy_clone);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage", set_source_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Tensor", set_source_tensor);
  m.impl("set_", set_nothing);
  m.impl("is_set_to", is_set_to);
  m.impl("record_stream", record_stream);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("equal", equal);
  m.impl("_embedding_bag_backward", at::native::_embedding_bag_backward_symint);  // chooses the sparse or the dense one
}

// The math-bit fallbacks would clone, which copies, which comes back here for ever. These kernels honour the bits.
void pass_on(torch::Library &m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { pass_on(m); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { pass_on(m); }
TORCH_LIBRARY_IMPL(aten, ZeroTensor, m) { pass_on(m); }

}  // namespace

Tensor read_tensor(const Tensor &tensor) {
  if (!on_device(tensor)) return tensor;
  if (covers_storage(tensor) && !math_bits(tensor)) {
    Tensor host = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
    read_bytes(tensor, host.mutable_data_ptr(), host.nbytes());
    return host;
  }
  size_t offset = 0, size = tensor.storage().nbytes();
  pj_storage *storage = tensor.numel() ? storage_of(*tensor.storage().unsafeGetStorageImpl(), &offset) : nullptr;
  // What reaches beyond the storage's end is refused by device_copy.
  if (storage && !offset && size <= kSmallStorage && size == pj_storage_nbytes(storage) && !math_bits(tensor) &&
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                       static_cast<size_t>(tensor.storage_offset())) <= size) {
    auto count = static_cast<int64_t>(tensor.storage().nbytes());
    Tensor bytes = at::empty({count}, tensor.options().dtype(c10::kByte).device(c10::kCPU));
    read_bytes(tensor, bytes.mutable_data_ptr(), static_cast<size_t>(count));
    Tensor view = at::empty({0}, tensor.options().device(c10::kCPU));
    view.set_(bytes.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
    return at::empty_strided(view.sizes(), dense_strides(tensor), view.options()).copy_(view);
  }
  Tensor dense = device_copy(tensor, tensor.scalar_type(), dense_strides(tensor));
  Tensor host = at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(c10::kCPU));
  read_bytes(dense, host.mutable_data_ptr(), host.nbytes());
  return host;
}

void resize_storage(const c10::Storage &storage, size_t nbytes) {
  size_t offset;
  pj_storage *held = storage_of(*storage.unsafeGetStorageImpl(), &offset);
  check(pj_storage_resize(held, nbytes));
  // A storage that had no bytes had no address.
  auto *impl = storage.unsafeGetStorageImpl();
  const c10::DataPtr &data = impl->data_ptr();
  auto *token = reinterpret_cast<void *>(pj_storage_token(held));
  if (data.get() != token) {
    c10::DataPtr old = impl->set_data_ptr(c10::DataPtr());
    auto deleter = old.get_deleter();
    c10::Device device = old.device();
    void *context = old.release_context();
    impl->set_data_ptr_noswap(c10::DataPtr(token, context, deleter, device));
  }
  impl->set_nbytes(nbytes);
}

}  // namespace torch_pjrt
