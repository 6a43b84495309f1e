// The device as PyTorch sees it: runtime, storages, guard with streams and events, hooks, generator.
#include "bridge.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pthread.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>

namespace torch_pjrt {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

// ---- runtime --------------------------------------------------------------------------------------------------------

namespace {

std::atomic<pj_runtime *> g_runtime{nullptr};
const std::vector<pj_device *> *g_devices;  // of the runtime; set before it is, and leaked
std::atomic<bool> g_bad_fork{false};
thread_local DeviceIndex t_device = 0;

void after_fork() {
  if (pj_runtime *runtime = g_runtime.load()) {
    g_bad_fork = true;
    pj_runtime_after_fork(runtime);
  }
}

// Python is gone or going: its functions may no longer be called.
bool python_alive() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

void *block_begin() { return python_alive() && PyGILState_Check() ? PyEval_SaveThread() : nullptr; }

void block_end(void *token) {
  if (token) PyEval_RestoreThread(static_cast<PyThreadState *>(token));
}

bool interrupted() {
  if (!python_alive()) return false;
  PyGILState_STATE state = PyGILState_Ensure();
  // The exception stays set in this thread's state: check() throws it.
  bool stop = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return stop;
}

// The innermost Python frame that is neither PyTorch's nor ours.
void source_line(char *out_text, size_t size) {
  out_text[0] = 0;
  if (!python_alive()) return;
  pybind11::gil_scoped_acquire gil;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyThreadState *state = PyThreadState_Get();
  PyFrameObject *frame = PyThreadState_GetFrame(state);
  while (frame) {
    PyCodeObject *code = PyFrame_GetCode(frame);
    const char *file = PyUnicode_AsUTF8(code->co_filename);
    bool library = !file || strstr(file, "/torch/") || strstr(file, "/torch_pjrt/") || file[0] == '<';
    if (!library) snprintf(out_text, size, "%s:%d", file, PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject *back = library ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = back;
  }
  PyErr_Restore(type, value, traceback);
}

// For torch_pjrt.logs.
void told(const pj_span *span) {
  if (!python_alive()) return;
  pybind11::gil_scoped_acquire gil;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  try {
    pybind11::module_::import("torch_pjrt.logs")
        .attr("tell")(static_cast<int>(span->kind), span->text, span->line, span->reason,
                      static_cast<double>(span->end - span->begin) / 1e6, span->ops);
  } catch (pybind11::error_already_set &error) {
    error.discard_as_unraisable("torch_pjrt.logs");
  }
  PyErr_Restore(type, value, traceback);
}

}  // namespace

pj_runtime *runtime_if_started() { return g_runtime.load(std::memory_order_acquire); }

void set_runtime(pj_runtime *started) {
  pthread_atfork(nullptr, nullptr, after_fork);
  auto *devices = new std::vector<pj_device *>;
  for (int i = 0; i < pj_runtime_device_count(started); ++i) devices->push_back(pj_runtime_device(started, i));
  g_devices = devices;
  g_runtime.store(started, std::memory_order_release);
  profile(started);
}

bool in_bad_fork() { return g_bad_fork; }

pj_runtime *runtime() {
  if (pj_runtime *started = runtime_if_started()) {
    TORCH_CHECK(!g_bad_fork.load(std::memory_order_relaxed),
                "Cannot re-initialize tpu in forked subprocess. To use tpu with multiprocessing, you must use the "
                "'spawn' start method");
    return started;
  }
  {
    pybind11::gil_scoped_acquire gil;
    pybind11::module_::import("torch_pjrt._plugin").attr("start")();
  }
  return runtime_if_started();
}

bool repeats() { return at::globalContext().deterministicAlgorithms(); }

pj_hooks python_hooks() { return {block_begin, block_end, interrupted, source_line, told, repeats}; }

DeviceIndex device_count() {
  try {
    return static_cast<DeviceIndex>(pj_runtime_device_count(runtime()));
  } catch (...) {
    return 0;
  }
}

DeviceIndex current_device() { return t_device; }

void set_current_device(DeviceIndex index) {
  if (index < 0 || index == t_device) return;
  int count = pj_runtime_device_count(runtime());
  TORCH_CHECK(index < count, "tpu:", static_cast<int>(index), " does not exist: there are ", count, " devices");
  t_device = index;
}

pj_device *device_at(DeviceIndex index) {
  (void)runtime();  // starts it, or throws
  if (index == -1) index = t_device;
  // PyTorch keeps an index in 8 bits: "tpu:400" comes as -112.
  TORCH_CHECK(index >= 0 && static_cast<size_t>(index) < g_devices->size(), "tpu:", static_cast<int>(index),
              " does not exist: there are ", g_devices->size(), " devices");
  return (*g_devices)[static_cast<size_t>(index)];
}

void check(pj_status status) {
  if (C10_LIKELY(!status)) return;
  pj_code code = pj_status_code(status);
  std::string text = pj_status_text(status);
  pj_status_free(status);
  if (code == PJ_CANCELLED && python_alive()) {
    pybind11::gil_scoped_acquire gil;
    if (PyErr_Occurred()) {
      python_error error;
      error.persist();
      throw error;
    }
  }
  switch (code) {
    case PJ_OUT_OF_RANGE: TORCH_CHECK_INDEX(false, text);
    case PJ_TYPE_ERROR: TORCH_CHECK_TYPE(false, text);
    case PJ_VALUE_ERROR: TORCH_CHECK_VALUE(false, text);
    case PJ_UNIMPLEMENTED: TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case PJ_RESOURCE_EXHAUSTED: TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    default: TORCH_CHECK(false, text);
  }
}

// ---- dtypes ---------------------------------------------------------------------------------------------------------

namespace {

#define TORCH_PJRT_DTYPES(X)                                                                                          \
  X(Bool, PJ_PRED) X(Char, PJ_S8) X(Short, PJ_S16) X(Int, PJ_S32) X(Long, PJ_S64) X(Byte, PJ_U8) X(UInt16, PJ_U16)     \
  X(UInt32, PJ_U32) X(UInt64, PJ_U64) X(Half, PJ_F16) X(Float, PJ_F32) X(Double, PJ_F64) X(BFloat16, PJ_BF16)          \
  X(ComplexFloat, PJ_C64) X(ComplexDouble, PJ_C128) X(Float8_e5m2, PJ_F8E5M2) X(Float8_e4m3fn, PJ_F8E4M3FN)            \
  X(Float8_e5m2fnuz, PJ_F8E5M2FNUZ) X(Float8_e4m3fnuz, PJ_F8E4M3FNUZ)

constexpr size_t kTypes = static_cast<size_t>(c10::ScalarType::NumOptions);

constexpr std::array<pj_dtype, kTypes> kToPj = [] {
  std::array<pj_dtype, kTypes> table{};
#define X(torch, pj) table[static_cast<size_t>(c10::ScalarType::torch)] = pj;
  TORCH_PJRT_DTYPES(X)
#undef X
  return table;
}();

constexpr std::array<c10::ScalarType, PJ_DTYPE_COUNT> kToTorch = [] {
  std::array<c10::ScalarType, PJ_DTYPE_COUNT> table{};
  for (auto &type : table) type = c10::ScalarType::Undefined;
#define X(torch, pj) table[pj] = c10::ScalarType::torch;
  TORCH_PJRT_DTYPES(X)
#undef X
  return table;
}();

}  // namespace

pj_dtype to_pj(c10::ScalarType type) {
  auto index = static_cast<size_t>(type);
  pj_dtype dtype = index < kTypes ? kToPj[index] : PJ_INVALID;
  TORCH_CHECK_TYPE(dtype != PJ_INVALID, "the tpu device has no tensors of type ", type);
  return dtype;
}

c10::ScalarType to_torch(pj_dtype dtype) { return kToTorch[dtype]; }

void check_rank(int64_t rank) {
  TORCH_CHECK(rank <= PJ_MAX_RANK, "a tpu tensor has at most ", PJ_MAX_RANK, " dimensions, not ", rank);
}

// ---- storages and tensors -------------------------------------------------------------------------------------------

namespace {

// profile(profile_memory=True): storages as they come (1) and go (-1).
void tell_memory(pj_storage *storage, int64_t sign) {
  pj_device *device = pj_storage_device(storage);
  pj_device_memory memory;
  pj_device_memory_info(device, &memory);
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void *>(pj_storage_token(storage)),
                                   sign * static_cast<int64_t>(pj_storage_nbytes(storage)), memory.bytes.current,
                                   memory.bytes.current,
                                   Device(DeviceType::PrivateUse1, static_cast<DeviceIndex>(pj_device_index(device))));
}

void release_storage(void *context) {
  auto *storage = static_cast<pj_storage *>(context);
  // In a forked child the plugin's threads are gone: its objects may not even be freed.
  if (g_bad_fork.load(std::memory_order_relaxed)) return;
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) tell_memory(storage, -1);
  pj_storage_release(storage);
}

}  // namespace

c10::DataPtr data_ptr(pj_storage *storage, DeviceIndex device) {
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) tell_memory(storage, 1);
  return {reinterpret_cast<void *>(pj_storage_token(storage)), storage, release_storage,
          Device(DeviceType::PrivateUse1, device)};
}

c10::Storage wrap_storage(pj_storage *storage, DeviceIndex device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            pj_storage_nbytes(storage), data_ptr(storage, device),
                                                            allocator(), /*resizable=*/true));
}

at::Tensor make_tensor(pj_storage *storage, DeviceIndex device, c10::ScalarType type, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(wrap_storage(storage, device),
                                                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                         c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

pj_storage *storage_of(const c10::StorageImpl &impl, size_t *out_offset) {
  const c10::DataPtr &data = impl.data_ptr();
  *out_offset = 0;
  if (C10_LIKELY(data.get_deleter() == release_storage)) return static_cast<pj_storage *>(data.get_context());
  if (pj_storage *found =
          pj_storage_find(runtime(), reinterpret_cast<uint64_t>(data.get()), out_offset))
    return found;
  // Made by PyTorch itself, without our allocator: give it memory that reads as zeros.
  TORCH_CHECK(!data.get() && impl.device_type() == DeviceType::PrivateUse1,
              "this storage is not one of the tpu device's");
  DeviceIndex index = impl.device().index() < 0 ? current_device() : impl.device().index();
  pj_storage *fresh = pj_storage_create(device_at(index), impl.nbytes());
  const_cast<c10::StorageImpl &>(impl).set_data_ptr_noswap(data_ptr(fresh, index));
  return fresh;
}

bool covers_storage(const at::Tensor &tensor) {
  const auto *impl = tensor.unsafeGetTensorImpl();
  // A foreign StorageImpl over one of our addresses may be a part of the storage.
  return impl->storage_offset() == 0 && impl->is_non_overlapping_and_dense() &&
         impl->unsafe_storage().data_ptr().get_deleter() == release_storage &&
         static_cast<size_t>(impl->numel()) * impl->itemsize() == impl->unsafe_storage().nbytes();
}

unsigned math_bits(const at::Tensor &tensor) {
  auto keys = tensor.key_set();
  return (keys.has(c10::DispatchKey::Conjugate) ? unsigned{PJ_TENSOR_CONJ} : 0u) |
         (keys.has(c10::DispatchKey::Negative) ? unsigned{PJ_TENSOR_NEG} : 0u);
}

// ---- generator ------------------------------------------------------------------------------------------------------

namespace {

// Counter-based: number i of a call is a function of (seed, offset + i). The state is 16 bytes, as DTensor demands.
struct GeneratorImpl final : c10::GeneratorImpl {
  explicit GeneratorImpl(DeviceIndex device)
      : c10::GeneratorImpl(Device(DeviceType::PrivateUse1, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  static DeviceType device_type() { return DeviceType::PrivateUse1; }
  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::detail::empty_cpu({16}, c10::ScalarType::Byte);
    uint64_t words[2] = {seed_, offset_};
    memcpy(state.mutable_data_ptr(), words, sizeof words);
    return state.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl &state) override {
    at::detail::check_rng_state(state);
    TORCH_CHECK(state.numel() == 16, "a tpu generator's state has 16 bytes (seed, offset), not ", state.numel());
    uint64_t words[2];
    memcpy(words, state.data(), sizeof words);
    seed_ = words[0];
    offset_ = words[1];
  }
  uint64_t advance(uint64_t count) { return offset_.fetch_add(count); }

 private:
  GeneratorImpl *clone_impl() const override {
    auto *copy = new GeneratorImpl(device_.index());
    copy->seed_ = seed_.load();
    copy->offset_ = offset_.load();
    return copy;
  }
  std::atomic<uint64_t> seed_{c10::default_rng_seed_val};
  std::atomic<uint64_t> offset_{0};
};

GeneratorImpl *generator_or_default(const std::optional<at::Generator> &generator, DeviceIndex device) {
  return at::get_generator_or_default<GeneratorImpl>(generator, default_generator(device));
}

}  // namespace

const at::Generator &default_generator(DeviceIndex device) {
  static auto *mutex = new std::mutex;
  static auto *generators = new std::map<DeviceIndex, at::Generator>;  // nodes never move
  if (device < 0) device = current_device();
  std::lock_guard lock(*mutex);
  auto found = generators->find(device);
  if (found == generators->end()) found = generators->emplace(device, at::make_generator<GeneratorImpl>(device)).first;
  return found->second;
}

Seed read_seed(const std::optional<at::Generator> &generator, DeviceIndex device) {
  GeneratorImpl *impl = generator_or_default(generator, device);
  return {impl->current_seed(), impl->get_offset()};
}

void advance_seed(const std::optional<at::Generator> &generator, DeviceIndex device, uint64_t count) {
  generator_or_default(generator, device)->advance(count);
}

// ---- hooks ----------------------------------------------------------------------------------------------------------

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  const at::Generator &getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    if (device >= 0) device_at(device);  // throws where there is none
    return at::make_generator<GeneratorImpl>(device < 0 ? current_device() : device);
  }
  Device getDeviceFromPtr(void *data) const override {
    size_t offset;
    pj_storage *storage = pj_storage_find(runtime(), reinterpret_cast<uint64_t>(data), &offset);
    TORCH_CHECK(storage, "the address belongs to no tpu tensor");
    return Device(DeviceType::PrivateUse1, static_cast<DeviceIndex>(pj_device_index(pj_storage_device(storage))));
  }
  bool isPinnedPtr(const void *data) const override { return is_pinned(data); }
  c10::Allocator *getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  bool hasPrimaryContext(DeviceIndex) const override { return runtime_if_started() != nullptr; }
  void init() const override { runtime(); }
  DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(DeviceIndex device) const override { set_current_device(device); }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    DeviceIndex before = current_device();
    set_current_device(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t nbytes) const override {
    resize_storage(storage, nbytes);
  }
};

// ---- guard, streams, events -----------------------------------------------------------------------------------------

// Work on a device has one order. A stream is a name for it, an event is a point in it.
struct Event {
  pj_device *device;
  uint64_t point;
  std::chrono::steady_clock::time_point time;  // of completion, when the event is for timing
};

thread_local std::unordered_map<DeviceIndex, c10::StreamId> t_streams;
std::atomic<c10::StreamId> g_next_stream{1};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr DeviceType static_type = DeviceType::PrivateUse1;
  DeviceType type() const override { return static_type; }
  Device exchangeDevice(Device device) const override {
    Device before = getDevice();
    set_current_device(device.index());
    return before;
  }
  Device getDevice() const override { return Device(static_type, current_device()); }
  void setDevice(Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) t_device = device.index();
  }
  DeviceIndex deviceCount() const noexcept override { return device_count(); }

  Stream stream(Device device, c10::StreamId id) const {
    return Stream(Stream::UNSAFE, Device(static_type, device.index() < 0 ? current_device() : device.index()), id);
  }
  Stream getStream(Device device) const override {
    auto found = t_streams.find(device.index() < 0 ? current_device() : device.index());
    return stream(device, found == t_streams.end() ? 0 : found->second);
  }
  Stream getDefaultStream(Device device) const override { return stream(device, 0); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return stream(device, g_next_stream++); }
  Stream getNewStream(Device device, int) const override { return stream(device, g_next_stream++); }
  Stream exchangeStream(Stream next) const override {
    Stream before = getStream(next.device());
    t_streams[next.device_index()] = next.id();
    return before;
  }
  // The types of tensors that there are.
  c10::DeviceCapability getDeviceCapability(Device) const override {
    c10::DeviceCapability capability;
    uint64_t bits = 0;
#define X(_, name) \
  if (kToPj[static_cast<size_t>(c10::ScalarType::name)] != PJ_INVALID) bits |= uint64_t{1} << c10::kIndex_##name;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(X)
#undef X
    capability.capability_data.capability_bits = bits;
    return capability;
  }
  bool queryStream(const Stream &stream) const override {
    pj_device *device = device_at(stream.device_index());
    return pj_device_reached(device, pj_device_record(device));
  }
  void synchronizeStream(const Stream &stream) const override { synchronizeDevice(stream.device_index()); }
  void synchronizeDevice(DeviceIndex device) const override { check(pj_device_synchronize(device_at(device), true)); }
  void recordDataPtrOnStream(const c10::DataPtr &, const Stream &) const override {}

  void record(void **event, const Stream &stream, DeviceIndex device, c10::EventFlag flag) const override {
    TORCH_CHECK(device < 0 || device == stream.device_index(), "Event device index ", static_cast<int>(device),
                " does not match recording stream's device index ", static_cast<int>(stream.device_index()), ".");
    if (!*event) *event = new Event;
    auto *at = static_cast<Event *>(*event);
    at->device = device_at(stream.device_index());
    at->point = pj_device_record(at->device);
    // PJRT tells no time of completion, so an event for timing waits here and is exact.
    if (flag == c10::EventFlag::BACKEND_DEFAULT) {
      check(pj_device_wait(at->device, at->point));
      at->time = std::chrono::steady_clock::now();
    }
  }
  void block(void *event, const Stream &stream) const override {
    // On the event's own device all that follows comes after it anyway.
    auto *at = static_cast<Event *>(event);
    if (at && at->device != device_at(stream.device_index())) check(pj_device_wait(at->device, at->point));
  }
  bool queryEvent(void *event) const override {
    auto *at = static_cast<Event *>(event);
    return !at || pj_device_reached(at->device, at->point);
  }
  void synchronizeEvent(void *event) const override {
    auto *at = static_cast<Event *>(event);
    if (at) check(pj_device_wait(at->device, at->point));
  }
  double elapsedTime(void *from, void *to, DeviceIndex) const override {
    auto *a = static_cast<Event *>(from), *b = static_cast<Event *>(to);
    TORCH_CHECK(a && b, "both events must be recorded before the time between them can be told");
    TORCH_CHECK(a->device == b->device, "the events were recorded on two devices: there is no time between them");
    return std::chrono::duration<double, std::milli>(b->time - a->time).count();
  }
  void destroyEvent(void *event, DeviceIndex) const noexcept override { delete static_cast<Event *>(event); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Leaked, as PyTorch keeps the pointer for the life of the process.
[[maybe_unused]] const bool g_hooks = (at::RegisterPrivateUse1HooksInterface(new Hooks), true);

}  // namespace
}  // namespace torch_pjrt
