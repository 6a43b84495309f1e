// One boxed kernel for every op: writes the call down, runs its plan, and wraps the results. On a new key it asks
// PyTorch's meta kernel what comes out, and makes the plan from the op's lowering; where there is none it takes PyTorch's
// own composite, PyTorch's decomposition, or the CPU, in that order.
#include "kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/nonzero.h>
#include <ATen/record_function.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <mutex>

namespace torch_pjrt {

using at::Tensor;
using c10::DeviceIndex;
using c10::IValue;
using c10::ScalarType;
using c10::TypeKind;
using torch::jit::Stack;

// ---- the call -------------------------------------------------------------------------------------------------------

namespace {

struct CallStack {
  std::vector<std::unique_ptr<pj_call>> calls;
  size_t depth = 0;
  ~CallStack() {
    if (!in_bad_fork())
      for (auto &call : calls) pj_call_destroy(call.get());
  }
};
thread_local CallStack t_calls;

}  // namespace

Call::Call(const pj_op *op) {
  if (t_calls.depth == t_calls.calls.size()) t_calls.calls.push_back(std::make_unique<pj_call>());
  call_ = t_calls.calls[t_calls.depth++].get();
  call_->op = op;
}

Call::~Call() {
  pj_call_clear(call_);
  --t_calls.depth;
}

void write_tensor(pj_call *call, const Tensor &tensor) {
  const auto *impl = tensor.unsafeGetTensorImpl();
  size_t bytes;
  pj_storage *storage = storage_of(*impl->unsafe_storage().unsafeGetStorageImpl(), &bytes);
  int64_t offset = impl->storage_offset();
  if (C10_UNLIKELY(bytes)) {
    TORCH_CHECK(bytes % impl->itemsize() == 0, "a storage that starts ", bytes, " bytes into another cannot be read as ",
                tensor.scalar_type());
    offset += static_cast<int64_t>(bytes / impl->itemsize());
  }
  TORCH_CHECK(impl->dim() <= PJ_MAX_RANK, "a tpu tensor has at most ", PJ_MAX_RANK, " dimensions, not ", impl->dim());
  pj_call_tensor(call, storage, to_pj(tensor.scalar_type()), static_cast<int>(impl->dim()), impl->sizes().data(),
                 impl->strides().data(), offset, math_bits(tensor));
}

void write_through(const Tensor &target, pj_value *source, c10::IntArrayRef source_strides) {
  const auto *impl = target.unsafeGetTensorImpl();
  size_t bytes;
  pj_storage *storage = storage_of(*impl->unsafe_storage().unsafeGetStorageImpl(), &bytes);
  check(pj_storage_write(storage, source, source_strides.data(), to_pj(target.scalar_type()),
                         static_cast<int>(impl->dim()), impl->sizes().data(), impl->strides().data(),
                         impl->storage_offset() + static_cast<int64_t>(bytes / impl->itemsize()), math_bits(target)));
  check(pj_device_end_op(pj_storage_device(storage)));
}

namespace {

pj_tensor_spec spec_of(ScalarType type, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  TORCH_CHECK(sizes.size() <= PJ_MAX_RANK, "a tpu tensor has at most ", PJ_MAX_RANK, " dimensions, not ", sizes.size());
  pj_tensor_spec spec{};
  spec.dtype = to_pj(type);
  spec.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), spec.sizes);
  std::copy(strides.begin(), strides.end(), spec.strides);
  return spec;
}

Tensor take_result(pj_call *call, const pj_plan *plan, size_t i, DeviceIndex index) {
  const pj_tensor_spec *spec = pj_plan_result(plan, i);
  pj_value *value = call->results[i];
  pj_value_retain(value);
  auto rank = static_cast<size_t>(spec->rank);
  return make_tensor(pj_storage_create_with(device_at(index), value), index, to_torch(spec->dtype),
                     {spec->sizes, rank}, {spec->strides, rank});
}

}  // namespace

Tensor device_copy(const Tensor &source, ScalarType type, c10::IntArrayRef strides) {
  static const pj_op *op = pj_runtime_op(runtime(), "pj::copy");
  DeviceIndex index = source.device().index();
  Call call(op);
  write_tensor(call, source);
  pj_call_dtype(call, to_pj(type));
  pj_call_ints(call, strides.data(), static_cast<uint32_t>(strides.size()));
  const pj_plan *plan = nullptr;
  check(pj_submit(device_at(index), call, &plan));
  if (!plan) {
    pj_tensor_spec spec = spec_of(type, source.sizes(), strides);
    check(pj_plan_create(device_at(index), call, &spec, 1));
    check(pj_submit(device_at(index), call, &plan));
  }
  return take_result(call, plan, 0, index);
}

// ---- what is known of an op -----------------------------------------------------------------------------------------

namespace {

const Mutation kMutations[] = {
#include "mutation_table.inc"
};

const Mutation *find_mutation(const std::string &name) {
  static const auto *table = [] {
    auto *map = new std::unordered_map<std::string_view, const Mutation *>;
    for (const Mutation &row : kMutations) map->emplace(row.overload, &row);
    return map;
  }();
  auto found = table->find(name);
  return found == table->end() ? nullptr : found->second;
}

c10::TypePtr without_optional(c10::TypePtr type) {
  auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

std::optional<Kind> kind_of(const c10::Argument &argument) {
  if (argument.name() == "pin_memory") return Kind::kPinMemory;
  auto type = without_optional(argument.type()), real = without_optional(argument.real_type());
  switch (real->kind()) {
    case TypeKind::ScalarTypeType: return Kind::kDtype;
    case TypeKind::LayoutType: return Kind::kLayout;
    case TypeKind::MemoryFormatType: return Kind::kInt;
    default: break;
  }
  switch (type->kind()) {
    case TypeKind::TensorType: return Kind::kTensor;
    case TypeKind::NumberType: return Kind::kNumber;
    case TypeKind::FloatType: return Kind::kNumber;
    case TypeKind::IntType:
    case TypeKind::SymIntType: return Kind::kInt;
    case TypeKind::BoolType: return Kind::kBool;
    case TypeKind::StringType: return Kind::kString;
    case TypeKind::DeviceObjType: return Kind::kDevice;
    case TypeKind::GeneratorType: return Kind::kGenerator;
    case TypeKind::ListType: break;
    default: return std::nullopt;
  }
  switch (without_optional(type->expectRef<c10::ListType>().getElementType())->kind()) {
    case TypeKind::TensorType: return Kind::kTensors;
    case TypeKind::NumberType: return Kind::kNumbers;
    case TypeKind::IntType:
    case TypeKind::SymIntType: return Kind::kInts;
    case TypeKind::FloatType: return Kind::kFloats;
    case TypeKind::BoolType: return Kind::kBools;
    default: return std::nullopt;
  }
}

// Ops that are no TensorIterator ones and yet take 0-d CPU tensors as numbers.
bool takes_cpu_numbers(const std::string &base) {
  static const auto *names = new std::set<std::string>{"fill", "fill_", "index_fill", "index_fill_", "masked_fill",
                                                       "masked_fill_", "lerp", "lerp_", "where"};
  return names->count(base) || base.rfind("_foreach_", 0) == 0 || base.rfind("_fused_", 0) == 0;
}

bool takes_indices(const std::string &base) {
  static const auto *names = new std::set<std::string>{"index", "_unsafe_index", "index_put", "index_put_",
                                                       "_index_put_impl", "_index_put_impl_", "_unsafe_index_put"};
  return names->count(base);
}

}  // namespace

Op::Op(const c10::OperatorHandle &handle) : handle(handle) {
  const auto &schema = handle.schema();
  name = c10::toString(handle.operator_name());
  mutation = find_mutation(name);
  std::string base = schema.name().substr(schema.name().find("::") + 2);
  composite = handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
  numbers = takes_cpu_numbers(base) || handle.hasTag(at::Tag::pointwise);
  indices = takes_indices(base);
  range = base == "arange" || base == "range";
  random = handle.hasTag(at::Tag::nondeterministic_seeded);
  for (const auto &argument : schema.arguments()) random |= kind_of(argument) == Kind::kGenerator;

  const c10::FunctionSchema *twin_schema = &schema;
  if (mutation && mutation->kind != Mutation::kNone && mutation->kind != Mutation::kMetadata) {
    std::string twin_name = mutation->twin;
    auto dot = twin_name.find('.');
    auto twin_handle = c10::Dispatcher::singleton().findSchema(
        {twin_name.substr(0, dot), dot == std::string::npos ? "" : twin_name.substr(dot + 1)});
    TORCH_INTERNAL_ASSERT(twin_handle, "mutation_table.inc names ", twin_name, ", which this torch does not have");
    twin_schema = &twin_handle->schema();
    twin_name_ = twin_name;
    numbers |= twin_handle->hasTag(at::Tag::pointwise);
  } else {
    twin_name_ = name;
  }
  bool mutates = schema.is_mutable();
  supported = !(mutates && (!mutation || mutation->kind == Mutation::kNone || mutation->kind == Mutation::kMetadata));
  for (size_t i = 0; i < twin_schema->arguments().size(); ++i) {
    auto kind = kind_of(twin_schema->arguments()[i]);
    if (!kind) {
      supported = false;
      break;
    }
    int source = twin_schema == &schema ? static_cast<int>(i) : mutation->inputs[i];
    arguments.push_back({*kind, static_cast<int16_t>(source), false, false, true});
    if (source >= 0 && mutation && mutation->kind != Mutation::kHidden)
      for (int w = 0; w < mutation->write_count; ++w)
        if (mutation->writes[w].argument == source) arguments.back().number = false;
    if (*kind == Kind::kGenerator) generator = source;
  }
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    if (kind_of(schema.arguments()[i]) == Kind::kDevice) device = static_cast<int>(i);
  bool any_tensor = false;
  for (const auto &result : twin_schema->returns()) {
    auto kind = result.type()->kind();
    bool list = kind == TypeKind::ListType &&
                result.type()->expectRef<c10::ListType>().getElementType()->kind() == TypeKind::TensorType;
    any_tensor |= kind == TypeKind::TensorType || list;
    result_is_list.push_back(list);
  }
  supported &= any_tensor || (mutation && mutation->write_count);
}

void Op::remember(const pj_plan *plan, std::shared_ptr<const Layout> layout) {
  std::lock_guard lock(layouts_mutex_);
  layouts_[plan] = std::move(layout);
  has_layouts_ = true;
}

std::shared_ptr<const Layout> Op::layout(const pj_plan *plan) {
  if (C10_LIKELY(!has_layouts_)) return nullptr;
  std::lock_guard lock(layouts_mutex_);
  auto found = layouts_.find(plan);
  return found == layouts_.end() ? nullptr : found->second;
}

void Op::resolve() {
  pj_runtime *started = runtime();
  std::call_once(resolved_, [&] {
    twin = pj_runtime_op(started, twin_name_.c_str());
    lowering = pj_op_has_lowering(twin);
    flags = pj_op_flags(twin);
    uint32_t statics = pj_op_statics(twin), shapes = pj_op_shape_only(twin);
    for (size_t i = 0; i < arguments.size() && i < 32; ++i) {
      arguments[i].constant = statics >> i & 1;
      arguments[i].shape_only = shapes >> i & 1;
    }
    if (mutation && mutation->kind == Mutation::kHidden) {
      plain = pj_runtime_op(started, name.c_str());
      plain_lowering = pj_op_has_lowering(plain);
    }
  });
}

// ---- writing a call down --------------------------------------------------------------------------------------------

namespace {

// What one run of an op needs beside the stack.
struct Run {
  Op &op;
  Stack &stack;
  size_t first;               // of the arguments on the stack
  bool mutates = false;       // results are written into arguments
  DeviceIndex index = -1;     // the one device of all tensors
  std::shared_ptr<const Layout> layout{};  // of a new plan

  IValue &argument(size_t i) { return stack[first + i]; }
};

[[noreturn]] void mixed_devices(const Run &run, const c10::Device &a, const c10::Device &b) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b,
              "! (when calling ", run.op.name, ")");
}

void write_number(pj_call *call, const c10::Scalar &value, pj_dtype own, int weight) {
  if (value.isFloatingPoint()) {
    pj_call_number_float(call, value.toDouble(), own, weight);
  } else if (value.isComplex()) {
    auto number = value.toComplexDouble();
    pj_call_number_complex(call, number.real(), number.imag(), own, weight);
  } else if (value.isBoolean()) {
    pj_call_number_bool(call, value.toBool(), own, weight);
  } else {
    pj_call_number_int(call, value.toLong(), own, weight);
  }
}

pj_dtype number_dtype(const c10::Scalar &value) {
  return value.isFloatingPoint() ? PJ_F64 : value.isComplex() ? PJ_C128 : value.isBoolean() ? PJ_PRED : PJ_S64;
}

void write_scalar(pj_call *call, const c10::Scalar &value, bool constant) {
  if (!constant || value.isComplex()) {
    write_number(call, value, number_dtype(value), PJ_WEIGHT_PYTHON);
  } else if (value.isFloatingPoint()) {
    pj_call_float(call, value.toDouble());
  } else if (value.isBoolean()) {
    pj_call_bool(call, value.toBool());
  } else {
    pj_call_int(call, value.toLong());
  }
}

// A 0-d CPU tensor, as a run-time number.
void write_cpu_number(pj_call *call, const Tensor &tensor) {
  bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  write_number(call, at::_local_scalar_dense(tensor), to_pj(tensor.scalar_type()),
               wrapped ? PJ_WEIGHT_PYTHON : PJ_WEIGHT_ZERO_DIM);
}

void write_tensor_argument(Run &run, pj_call *call, const Argument &argument, const Tensor &tensor) {
  if (!tensor.defined()) {
    pj_call_none(call);
    return;
  }
  c10::Device device = tensor.device();
  if (C10_UNLIKELY(device.type() != c10::DeviceType::PrivateUse1)) {
    if (device.is_cpu() && tensor.dim() == 0 && argument.number && run.op.numbers) {
      write_cpu_number(call, tensor);
      return;
    }
    mixed_devices(run, run.index < 0 ? c10::Device(c10::DeviceType::PrivateUse1, current_device())
                                     : c10::Device(c10::DeviceType::PrivateUse1, run.index), device);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::Layout::Strided, run.op.name,
                              ": the tpu device has only strided tensors, not ", tensor.layout());
  if (run.index < 0) {
    run.index = device.index();
  } else if (run.index != device.index()) {
    mixed_devices(run, c10::Device(c10::DeviceType::PrivateUse1, run.index), device);
  }
  if (argument.shape_only) {
    pj_call_shape(call, to_pj(tensor.scalar_type()), static_cast<int>(tensor.dim()), tensor.sizes().data());
  } else {
    write_tensor(call, tensor);
  }
}

template <typename T, typename Write>
void write_list(pj_call *call, const T &list, Write write) {
  c10::SmallVector<typename std::decay<decltype(list[0])>::type, 8> values(list.begin(), list.end());
  write(call, values.data(), static_cast<uint32_t>(values.size()));
}

void write_value(Run &run, pj_call *call, const Argument &argument, const IValue &value) {
  if (value.isNone()) {
    pj_call_none(call);
    return;
  }
  switch (argument.kind) {
    case Kind::kTensor: write_tensor_argument(run, call, argument, value.toTensor()); break;
    case Kind::kTensors: {
      if (value.isTensorList()) {
        auto list = value.toTensorList();
        pj_call_tensors(call, static_cast<uint32_t>(list.size()));
        for (const auto &element : list) {
          const Tensor tensor = element;
          write_tensor_argument(run, call, argument, tensor);
        }
      } else {
        auto list = value.toListRef();
        pj_call_tensors(call, static_cast<uint32_t>(list.size()));
        for (const IValue &element : list)
          write_tensor_argument(run, call, argument, element.isNone() ? Tensor() : element.toTensor());
      }
      break;
    }
    case Kind::kNumber: write_scalar(call, value.toScalar(), argument.constant); break;
    case Kind::kNumbers: {
      auto list = value.toListRef();
      pj_call_numbers(call, static_cast<uint32_t>(list.size()));
      for (const IValue &element : list) write_scalar(call, element.toScalar(), false);
      break;
    }
    case Kind::kInt: pj_call_int(call, value.toInt()); break;
    case Kind::kInts: {
      if (value.isInt()) {  // int[1] arguments take a bare int
        pj_call_int(call, value.toInt());
        break;
      }
      auto list = value.toDimVector();
      pj_call_ints(call, list.data(), static_cast<uint32_t>(list.size()));
      break;
    }
    case Kind::kFloats: {
      auto list = value.toDoubleVector();
      pj_call_floats(call, list.data(), static_cast<uint32_t>(list.size()));
      break;
    }
    case Kind::kBool: pj_call_bool(call, value.toBool()); break;
    case Kind::kBools: {
      auto list = value.toBoolList();
      c10::SmallVector<bool, 8> values(list.begin(), list.end());
      pj_call_bools(call, values.data(), static_cast<uint32_t>(values.size()));
      break;
    }
    case Kind::kString: {
      auto text = value.toStringView();
      pj_call_string(call, text.data(), text.size());
      break;
    }
    case Kind::kDtype: pj_call_dtype(call, to_pj(value.toScalarType())); break;
    case Kind::kLayout:
      TORCH_CHECK_NOT_IMPLEMENTED(value.toLayout() == c10::Layout::Strided, run.op.name,
                                  ": the tpu device has only strided tensors, not ", value.toLayout());
      pj_call_none(call);
      break;
    case Kind::kPinMemory:
      TORCH_CHECK(!value.toBool(), "Only dense CPU tensors can be pinned");
      pj_call_none(call);
      break;
    case Kind::kDevice:
    case Kind::kGenerator: pj_call_none(call); break;
  }
}

// Calls visit(tensor) for each tensor that the op writes: (argument index, tensor, result index).
template <typename Visit>
void for_each_write(Run &run, const std::vector<size_t> &group_first, Visit visit) {
  const Mutation *mutation = run.op.mutation;
  for (int w = 0; w < mutation->write_count; ++w) {
    const IValue &value = run.argument(static_cast<size_t>(mutation->writes[w].argument));
    size_t result = group_first[static_cast<size_t>(mutation->writes[w].result)];
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit(value.toTensor(), result);
    } else if (value.isTensorList()) {
      for (const Tensor &tensor : value.toTensorVector()) visit(tensor, result++);
    }
  }
}

// Index of the first result of each of the twin's returns, and the count of all at the end. Lists of a functional op are
// of equal length; what is written has the length of its argument.
std::vector<size_t> result_groups(Run &run, size_t total) {
  const Op &op = run.op;
  size_t lists = 0;
  for (bool list : op.result_is_list) lists += list;
  size_t length = lists ? (total - (op.result_is_list.size() - lists)) / lists : 0;
  std::vector<size_t> first{0};
  for (size_t r = 0; r < op.result_is_list.size(); ++r) {
    size_t count = op.result_is_list[r] ? length : 1;
    if (run.mutates)
      for (int w = 0; w < op.mutation->write_count; ++w) {
        if (op.mutation->writes[w].result != static_cast<int>(r)) continue;
        const IValue &target = run.argument(static_cast<size_t>(op.mutation->writes[w].argument));
        count = target.isTensorList() ? target.toTensorList().size() : target.isTensor() && target.toTensor().defined();
      }
    first.push_back(first.back() + count);
  }
  return first;
}

// ---- meta -----------------------------------------------------------------------------------------------------------

Tensor to_meta(const Tensor &tensor, bool empty) {
  if (!tensor.defined() || !on_device(tensor)) return tensor;
  Tensor meta = empty ? Tensor(at::detail::empty_strided_meta({0}, {1}, tensor.scalar_type()))
                      : Tensor(at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  if (tensor.is_conj()) meta._set_conj(true);
  if (tensor.is_neg()) meta._set_neg(true);
  return meta;
}

IValue to_meta(const IValue &value, bool empty) {
  if (value.isTensor()) return to_meta(value.toTensor(), empty);
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor &tensor : value.toTensorVector()) list.push_back(to_meta(tensor, empty));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const IValue &element : value.toListRef())
      list.push_back(element.isNone() ? std::nullopt : std::optional<Tensor>(to_meta(element.toTensor(), empty)));
    return list;
  }
  if (value.isDevice()) return c10::Device(c10::DeviceType::Meta);
  if (value.isGenerator()) return IValue();
  return value;
}

// Python errors that say "I cannot tell", not "this is wrong".
bool cannot_tell(PyObject *type) {
  if (PyErr_GivenExceptionMatches(type, PyExc_NotImplementedError)) return true;
  const char *name = reinterpret_cast<PyTypeObject *>(type)->tp_name;
  return strstr(name, "DataDependent") || strstr(name, "DynamicOutputShape") || strstr(name, "UnsupportedFakeTensor");
}

[[noreturn]] void rethrow_python(PyObject *type, PyObject *value) {
  // PyTorch's decompositions check with assert what its C++ kernels check with TORCH_CHECK.
  if (PyErr_GivenExceptionMatches(type, PyExc_AssertionError)) {
    std::string text = pybind11::str(value);
    PyErr_SetString(PyExc_RuntimeError, text.c_str());
  } else {
    Py_INCREF(type);
    Py_XINCREF(value);
    PyErr_Restore(type, value, nullptr);
  }
  python_error error;
  error.persist();
  throw error;
}

class NoWarnings : public c10::WarningHandler {
  void process(const c10::Warning &) override {}
};

// Runs the op's meta kernel, which checks the arguments as PyTorch does. Gives its stack of results and, in `arguments`,
// the meta arguments (outputs are resized). False: the kernel does not exist or cannot tell.
bool run_meta(Run &run, Stack *out_results, std::vector<IValue> *out_arguments) {
  at::RecordFunctionGuard no_profile(false);
  at::AutoDispatchBelowADInplaceOrView below;
  const auto &schema = run.op.handle.schema();
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    out_arguments->push_back(to_meta(run.argument(i), schema.arguments()[i].is_out()));
  *out_results = *out_arguments;
  // Of a resized out= argument PyTorch warns when the real one is resized.
  NoWarnings none;
  std::optional<c10::WarningUtils::WarningHandlerGuard> quiet;
  if (run.op.mutation && run.op.mutation->kind == Mutation::kOut) quiet.emplace(&none);
  try {
    run.op.handle.callBoxed(out_results);
    return true;
  } catch (const c10::NotImplementedError &) {
    return false;
  } catch (pybind11::error_already_set &error) {
    pybind11::gil_scoped_acquire gil;
    if (cannot_tell(error.type().ptr())) return false;
    rethrow_python(error.type().ptr(), error.value().ptr());
  } catch (python_error &error) {
    pybind11::gil_scoped_acquire gil;
    if (cannot_tell(error.type)) return false;
    rethrow_python(error.type, error.value);
  }
}

// Undefined tensors and numbers (the max_q of an attention) are no results of the program.
void add_specs(const IValue &value, std::vector<pj_tensor_spec> *specs) {
  if (value.isTensorList()) {
    for (const Tensor &tensor : value.toTensorVector()) add_specs(IValue(tensor), specs);
  } else if (value.isTensor() && value.toTensor().defined()) {
    const Tensor &tensor = value.toTensor();
    c10::DimVector strides(tensor.strides());
    if (!tensor.is_non_overlapping_and_dense()) {  // a result of our own is dense
      auto dense = at::infer_dense_strides(tensor.sizes(), tensor.strides());
      strides.assign(dense.begin(), dense.end());
    }
    specs->push_back(spec_of(tensor.scalar_type(), tensor.sizes(), strides));
  }
}

// A convolution of channels_last tensors is channels_last on CPU and CUDA; the meta kernel of torch 2.13 does not say so.
void keep_channels_last(Run &run, pj_tensor_spec *result) {
  for (size_t i = 0; i < 2; ++i) {  // input, weight
    auto format = run.argument(i).toTensor().suggest_memory_format();
    c10::IntArrayRef sizes(result->sizes, static_cast<size_t>(result->rank));
    if (format != c10::MemoryFormat::ChannelsLast && format != c10::MemoryFormat::ChannelsLast3d) continue;
    auto strides = result->rank == 4 ? c10::get_channels_last_strides_2d(sizes) : c10::get_channels_last_strides_3d(sizes);
    std::copy(strides.begin(), strides.end(), result->strides);
    return;
  }
}

// What the results are: of a written argument its own type, so that the value needs no conversion to be stored.
std::vector<pj_tensor_spec> result_specs(Run &run, const Stack &results, const std::vector<IValue> &meta_arguments) {
  std::vector<pj_tensor_spec> specs;
  if (!run.mutates) {
    for (const IValue &result : results) add_specs(result, &specs);
    if (run.op.name == "aten::convolution") keep_channels_last(run, &specs[0]);
    return specs;
  }
  const auto &returns = run.op.handle.schema().returns();
  size_t next_own = 0;
  for (size_t r = 0; r < run.op.result_is_list.size(); ++r) {
    int written = -1;
    for (int w = 0; w < run.op.mutation->write_count; ++w)
      if (run.op.mutation->writes[w].result == static_cast<int>(r)) written = run.op.mutation->writes[w].argument;
    if (written < 0) {
      while (next_own < returns.size() && returns[next_own].alias_info()) ++next_own;
      TORCH_INTERNAL_ASSERT(next_own < results.size(), run.op.name, ": result ", r, " of ", run.op.mutation->twin,
                            " is neither returned nor written");
      add_specs(results[next_own++], &specs);
      continue;
    }
    const IValue &target = meta_arguments[static_cast<size_t>(written)];
    add_specs(target, &specs);
  }
  // fill_, normal_ and such do not read their target, so its strides are no part of the key.
  bool strides_known = true;
  for (const Argument &argument : run.op.arguments)
    if (argument.source == run.op.mutation->writes[0].argument) strides_known = !argument.shape_only;
  if (!strides_known)
    for (pj_tensor_spec &spec : specs) {
      int64_t step = 1;
      for (int i = spec.rank - 1; i >= 0; --i) {
        spec.strides[i] = step;
        step *= std::max<int64_t>(spec.sizes[i], 1);
      }
    }
  return specs;
}

// What an op returned beside tensors in its first call with these arguments, or nullptr when it was tensors only.
std::shared_ptr<const Layout> make_layout(const Stack &results) {
  Layout layout;
  bool plain = true;
  for (const IValue &result : results) {
    bool tensor = result.isTensorList() || (result.isTensor() && result.toTensor().defined());
    layout.push_back(tensor ? std::nullopt : std::optional<IValue>(result.isNone() ? IValue(Tensor()) : result));
    plain &= tensor;
  }
  return plain ? nullptr : std::make_shared<const Layout>(std::move(layout));
}

// ---- results --------------------------------------------------------------------------------------------------------

void push_result(Run &run, pj_call *call, const pj_plan *plan, size_t r, const std::vector<size_t> &first) {
  if (run.op.result_is_list[r]) {
    c10::List<Tensor> list;
    for (size_t i = first[r]; i < first[r + 1]; ++i) list.push_back(take_result(call, plan, i, run.index));
    run.stack.emplace_back(std::move(list));
  } else {
    run.stack.emplace_back(take_result(call, plan, first[r], run.index));
  }
}

// Replaces the arguments on the stack by what the mutating overload returns: its written arguments, and own results.
void return_mutated(Run &run, pj_call *call, const pj_plan *plan, const std::vector<size_t> &first) {
  const Mutation *mutation = run.op.mutation;
  const auto &schema = run.op.handle.schema();
  std::vector<IValue> arguments(run.stack.begin() + static_cast<std::ptrdiff_t>(run.first), run.stack.end());
  run.stack.resize(run.first);
  size_t next_own = 0;
  auto is_written = [&](size_t r) {
    for (int w = 0; w < mutation->write_count; ++w)
      if (mutation->writes[w].result == static_cast<int>(r)) return true;
    return false;
  };
  for (const auto &result : schema.returns()) {
    if (const auto *alias = result.alias_info()) {
      for (size_t i = 0; i < arguments.size(); ++i) {
        const auto *other = schema.arguments()[i].alias_info();
        if (other && other->beforeSets() == alias->beforeSets()) {
          run.stack.push_back(arguments[i]);
          break;
        }
      }
    } else {
      while (is_written(next_own)) ++next_own;
      push_result(run, call, plan, next_own++, first);
    }
  }
}

void resize_out(const Tensor &out, const pj_tensor_spec *spec) {
  c10::IntArrayRef sizes(spec->sizes, static_cast<size_t>(spec->rank));
  if (at::native::resize_output(out, sizes))
    out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, {spec->strides, static_cast<size_t>(spec->rank)});
}

uint64_t largest_result(const pj_plan *plan) {
  uint64_t most = 0;
  for (size_t i = 0; i < pj_plan_result_count(plan); ++i) {
    const pj_tensor_spec *spec = pj_plan_result(plan, i);
    uint64_t count = 1;
    for (int d = 0; d < spec->rank; ++d) count *= static_cast<uint64_t>(spec->sizes[d]);
    most = std::max(most, count);
  }
  return most;
}

std::optional<at::Generator> generator_of(Run &run) {
  if (run.op.generator < 0) return std::nullopt;
  return run.argument(static_cast<size_t>(run.op.generator)).toOptional<at::Generator>();
}

// ---- indices --------------------------------------------------------------------------------------------------------

// x[mask] = number needs no positions, and so no wait for the device to count them.
bool try_masked_fill(Run &run) {
  if (run.op.name != "aten::index_put_" || run.argument(3).toBool()) return false;
  const Tensor self = run.argument(0).toTensor(), value = run.argument(2).toTensor();
  if (value.numel() != 1 || value.scalar_type() != self.scalar_type()) return false;
  Tensor mask;
  int64_t before = 0, position = 0;
  for (const IValue &element : run.argument(1).toListRef()) {
    Tensor index = element.isNone() ? Tensor() : element.toTensor();
    if (index.defined()) {
      if (mask.defined() || index.scalar_type() != ScalarType::Bool || index.dim() == 0) return false;
      mask = index;
      before = position;
    }
    ++position;
  }
  if (!mask.defined() || before + mask.dim() > self.dim()) return false;
  for (int64_t i = 0; i < mask.dim(); ++i)
    if (mask.size(i) != self.size(before + i)) return false;
  if (!on_device(mask)) mask = mask.to(self.device());
  for (int64_t i = before + mask.dim(); i < self.dim(); ++i) mask = mask.unsqueeze(-1);
  self.masked_fill_(mask, value.dim() ? value.reshape({}) : value);
  run.stack.resize(run.first);
  run.stack.emplace_back(self);
  return true;
}

// CPU indices come to the device; masks become positions.
void prepare_indices(Run &run) {
  const Tensor &self = run.argument(0).toTensor();
  TORCH_CHECK(on_device(self), "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and tpu! (when calling ", run.op.name, ")");
  bool change = false;
  for (const IValue &element : run.argument(1).toListRef()) {
    if (element.isNone() || !element.toTensor().defined()) continue;
    const Tensor &index = element.toTensor();
    change |= !on_device(index) || index.scalar_type() == ScalarType::Bool || index.scalar_type() == ScalarType::Byte;
  }
  if (!change) return;
  c10::List<std::optional<Tensor>> list;
  int64_t dim = 0, position = 0;
  for (const IValue &element : run.argument(1).toListRef()) {
    Tensor index = element.isNone() ? Tensor() : element.toTensor();
    if (!index.defined()) {
      list.push_back(std::nullopt);
      ++dim;
    } else if (index.scalar_type() == ScalarType::Bool || index.scalar_type() == ScalarType::Byte) {
      for (int64_t i = 0; i < index.dim(); ++i)
        TORCH_CHECK_INDEX(dim + i < self.dim() && index.size(i) == self.size(dim + i), "The shape of the mask ",
                          index.sizes(), " at index ", i, " does not match the shape of the indexed tensor ",
                          self.sizes(), " at index ", dim + i);
      Tensor positions = at::nonzero(index);
      for (int64_t i = 0; i < index.dim(); ++i)
        list.push_back((on_device(positions) ? positions : positions.to(self.device())).select(1, i));
      dim += index.dim();
    } else {
      list.push_back(on_device(index) ? index : index.to(self.device()));
      ++dim;
    }
    ++position;
  }
  run.argument(1) = std::move(list);
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

// Whether an op with an unannotated write (batch norm) writes in this call.
bool writes_hidden(Run &run) {
  const Mutation *mutation = run.op.mutation;
  if (!run.argument(static_cast<size_t>(mutation->condition)).toBool()) return false;
  for (int w = 0; w < mutation->write_count; ++w) {
    const IValue &target = run.argument(static_cast<size_t>(mutation->writes[w].argument));
    if (!target.isTensor() || !target.toTensor().defined()) return false;
  }
  return true;
}

// A device= argument that is not ours: zeros_like(x, device="cpu").
bool for_another_device(Run &run) {
  if (run.op.device < 0) return false;
  const IValue &device = run.argument(static_cast<size_t>(run.op.device));
  if (device.isNone()) return false;
  if (device.toDevice().type() != c10::DeviceType::PrivateUse1) return true;
  run.index = device.toDevice().index() == -1 ? current_device() : device.toDevice().index();
  return false;
}

void run_composite(Run &run) {
  run.op.handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, run.stack);
}

// An op that writes a few places of its first argument can do so in the storage's own value, at the cost of the places.
void prepare_base_write(Run &run, pj_call *call) {
  if (!(run.op.flags & PJ_OP_WRITES) || run.op.mutation->write_count != 1 || run.op.mutation->kind != Mutation::kInPlace ||
      run.op.mutation->writes[0].argument != 0)
    return;
  const Tensor &self = run.argument(0).toTensor();
  if (!on_device(self) || covers_storage(self) || math_bits(self) || !self.numel()) return;
  size_t bytes;
  pj_storage *storage = storage_of(*self.storage().unsafeGetStorageImpl(), &bytes);
  check(pj_storage_rebase(storage, to_pj(self.scalar_type()), static_cast<int>(self.dim()), self.sizes().data(),
                          self.strides().data(),
                          self.storage_offset() + static_cast<int64_t>(bytes / self.itemsize())));
  call->writes_base = true;
}

void write_call(Run &run, pj_call *call) {
  const Mutation *mutation = run.op.mutation;
  if (run.mutates) {
    call->hold = true;
    prepare_base_write(run, call);
  }
  IValue none;
  for (const Argument &argument : run.op.arguments) {
    if (argument.source >= 0) {
      write_value(run, call, argument, run.argument(static_cast<size_t>(argument.source)));
    } else if (argument.source == Mutation::kOutDtype) {
      pj_call_dtype(call, to_pj(run.argument(static_cast<size_t>(mutation->writes[0].argument)).toTensor().scalar_type()));
    } else {
      pj_call_none(call);
    }
  }
  if (run.mutates) {
    for (int w = 0; w < mutation->write_count; ++w) {
      const IValue &value = run.argument(static_cast<size_t>(mutation->writes[w].argument));
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      const Tensor &target = value.toTensor();
      if (!on_device(target) || (run.index >= 0 && target.device().index() != run.index))
        mixed_devices(run, target.device(), c10::Device(c10::DeviceType::PrivateUse1, run.index));
      run.index = target.device().index();
    }
  }
  if (run.index < 0) run.index = current_device();
}

// The length of a range is the one result size that depends on run-time numbers, so it is part of the key: computed in
// doubles and in integers, since PyTorch takes one or the other by the result's dtype.
void write_range_length(Run &run, pj_call *call) {
  double numbers[3] = {0, 0, 1};  // start, end, step
  size_t count = 0;
  for (const Argument &argument : run.op.arguments) count += argument.kind == Kind::kNumber;
  for (size_t i = 0; i < count; ++i) {  // arange(end), arange(start, end), arange(start, end, step)
    c10::Scalar value = run.argument(i).toScalar();
    numbers[count == 1 ? 1 : i] = value.isComplex() ? value.toComplexDouble().real() : value.toDouble();
  }
  pj_call_float(call, std::ceil((numbers[1] - numbers[0]) / numbers[2]));
  for (double &number : numbers) number = std::trunc(number);
  pj_call_float(call, std::ceil((numbers[1] - numbers[0]) / numbers[2]));
}

// After the schema's arguments: what a written argument's type is, since results take it, and, at the very end, seed and
// offset of a random op.
void write_extras(Run &run, pj_call *call) {
  if (run.op.range) write_range_length(run, call);
  if (run.mutates && !(run.op.flags & kDynamic))
    for (int w = 0; w < run.op.mutation->write_count; ++w) {
      const IValue &value = run.argument(static_cast<size_t>(run.op.mutation->writes[w].argument));
      if (value.isTensor() && value.toTensor().defined()) pj_call_dtype(call, to_pj(value.toTensor().scalar_type()));
    }
  if (run.op.flags & PJ_OP_RANDOM) {
    Seed seed = read_seed(generator_of(run), run.index);
    pj_call_number_int(call, static_cast<int64_t>(seed.seed), PJ_S64, PJ_WEIGHT_PYTHON);
    pj_call_number_int(call, static_cast<int64_t>(seed.offset), PJ_S64, PJ_WEIGHT_PYTHON);
  }
}

void store_results(Run &run, pj_call *call, const pj_plan *plan, const std::vector<size_t> &first) {
  pj_device *device = device_at(run.index);
  if (call->writes_base) {
    const Tensor &self = run.argument(0).toTensor();
    size_t bytes;
    pj_storage_set(storage_of(*self.storage().unsafeGetStorageImpl(), &bytes), call->results[0]);
  } else {
    for_each_write(run, first, [&](const Tensor &target, size_t result) {
      const pj_tensor_spec *spec = pj_plan_result(plan, result);
      if (run.op.mutation->kind == Mutation::kOut) resize_out(target, spec);
      size_t bytes;
      pj_storage *storage = storage_of(*target.storage().unsafeGetStorageImpl(), &bytes);
      check(pj_storage_write(storage, call->results[result], spec->strides, to_pj(target.scalar_type()),
                             static_cast<int>(target.dim()), target.sizes().data(), target.strides().data(),
                             target.storage_offset() + static_cast<int64_t>(bytes / target.itemsize()),
                             math_bits(target)));
    });
  }
  return_mutated(run, call, plan, first);
  pj_call_clear(call);  // the call's references would keep the old values from being donated
  check(pj_device_end_op(device));
}

// Makes the plan of a new key. False: the op ran some other way and its results are on the stack.
bool learn(Run &run, pj_call *call) {
  pj_device *device = device_at(run.index);
  if (run.op.flags & kDynamic) {
    check(pj_plan_create(device, call, nullptr, 0));
    return true;
  }
  bool lowered = run.op.lowering || (run.op.plain_lowering && !run.mutates);
  if (lowered) {
    Stack results;
    std::vector<IValue> meta_arguments;
    if (!run_meta(run, &results, &meta_arguments)) {
      run_on_cpu(run.op, &run.stack);
      return false;
    }
    auto specs = result_specs(run, results, meta_arguments);
    if (!run.mutates) run.layout = make_layout(results);
    pj_status status = pj_plan_create(device, call, specs.data(), specs.size());
    if (!status) return true;
    if (pj_status_code(status) != PJ_UNIMPLEMENTED) check(status);
    pj_status_free(status);
  }
  if (run.op.composite) {
    run_composite(run);
    return false;
  }
  run_on_cpu(run.op, &run.stack);
  return false;
}

}  // namespace

void run_op(Op &op, Stack *stack) {
  op.resolve();
  Run run{op, *stack, stack->size() - op.handle.schema().arguments().size()};
  run.mutates = op.mutation && (op.mutation->kind != Mutation::kHidden || writes_hidden(run));
  bool plain = op.mutation && !run.mutates;  // batch norm in eval
  if (C10_UNLIKELY(for_another_device(run) || ((!op.supported || !(op.lowering || op.plain_lowering)) && op.composite))) {
    TORCH_CHECK(op.composite, op.name, " on a tpu tensor cannot make a result on another device");
    run_composite(run);
    return;
  }
  if (!op.supported) {
    run_on_cpu(op, stack);
    return;
  }
  if (op.indices) {
    if (try_masked_fill(run)) return;
    prepare_indices(run);
  }
  Call call(plain ? op.plain : op.twin);
  write_call(run, call);
  write_extras(run, call);
  pj_device *device = device_at(run.index);
  if (op.flags & kDynamic) check(pj_call_resolve(device, call));
  const pj_plan *plan = nullptr;
  check(pj_submit(device, call, &plan));
  if (C10_UNLIKELY(!plan)) {
    if (!learn(run, call)) return;
    check(pj_submit(device, call, &plan));
    TORCH_INTERNAL_ASSERT(plan, op.name, ": the plan that was just made is not found");
    if (run.layout) op.remember(plan, run.layout);
  }
  if (op.flags & PJ_OP_RANDOM) advance_seed(generator_of(run), run.index, largest_result(plan));
  if (run.mutates) {
    store_results(run, call, plan, result_groups(run, 0));
    return;
  }
  stack->resize(run.first);
  if (auto layout = op.layout(plan)) {
    size_t next = 0;
    for (const auto &other : *layout)
      stack->push_back(other ? *other : IValue(take_result(call, plan, next++, run.index)));
    return;
  }
  auto first = result_groups(run, pj_plan_result_count(plan));
  size_t returns = op.handle.schema().returns().size();  // of a hidden mutation fewer than the twin's
  for (size_t r = 0; r < returns; ++r) push_result(run, call, plan, r, first);
}

// ---- registration ---------------------------------------------------------------------------------------------------

namespace {

class Kernel final : public c10::OperatorKernel {
 public:
  explicit Kernel(const c10::OperatorHandle &handle) : op_(handle) {}
  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, Stack *stack) { run_op(op_, stack); }

 private:
  Op op_;
};

bool returns_view(const c10::FunctionSchema &schema) {
  for (const auto &result : schema.returns())
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  return false;
}

// For ops of other libraries, and those that PyTorch registers after us.
class Fallback final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet, Stack *stack) {
    TORCH_CHECK_NOT_IMPLEMENTED(!returns_view(handle.schema()), handle.operator_name(),
                                " gives a view, and has no kernel for tpu tensors");
    run_op(find(handle), stack);
  }

 private:
  Op &find(const c10::OperatorHandle &handle) {
    std::lock_guard lock(mutex_);
    auto &op = ops_[handle.operator_name()];
    if (!op) op = std::make_unique<Op>(handle);
    return *op;
  }
  std::mutex mutex_;
  std::unordered_map<c10::OperatorName, std::unique_ptr<Op>> ops_;
};

// Layouts and tensor kinds that the device does not have. PyTorch's own sentence lists every backend there is.
constexpr std::pair<c10::DispatchKey, const char *> kAbsent[] = {
    {c10::DispatchKey::SparsePrivateUse1, "sparse"},
    {c10::DispatchKey::SparseCsrPrivateUse1, "sparse"},
    {c10::DispatchKey::QuantizedPrivateUse1, "quantized"},
    {c10::DispatchKey::NestedTensorPrivateUse1, "strided nested"},
};

class Absent final : public c10::OperatorKernel {
 public:
  explicit Absent(const char *kind) : kind_(kind) {}
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet, Stack *) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, handle.operator_name(), ": the tpu device has no ", kind_,
                                " tensors. Keep them on the CPU, or make them dense before they go to the device");
  }

 private:
  const char *kind_;
};

bool wants_kernel(const c10::OperatorHandle &handle) {
  using c10::DispatchKey;
  const auto &schema = handle.schema();
  if (handle.hasKernelForDispatchKey(DispatchKey::PrivateUse1)) return false;  // tensor.cpp
  if (handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) return false;
  if (returns_view(schema)) return false;
  const Mutation *mutation = find_mutation(c10::toString(handle.operator_name()));
  if (mutation) return mutation->kind != Mutation::kMetadata && mutation->kind != Mutation::kNone;
  return !schema.is_mutable();
}

}  // namespace

void register_kernels() {
  auto &dispatcher = c10::Dispatcher::singleton();
  // Leaked: deregistering at exit would run after the dispatcher's own end.
  static auto *handles = new std::vector<c10::RegistrationHandleRAII>;
  for (const auto &name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    auto handle = dispatcher.findSchema(name);
    if (!handle || !wants_kernel(*handle)) continue;
    handles->push_back(dispatcher.registerImpl(
        name, c10::DispatchKey::PrivateUse1, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(*handle)),
        std::nullopt, nullptr, "torch_pjrt"));
  }
  auto fall_back = [&](c10::DispatchKey key, auto kernel) {
    handles->push_back(dispatcher.registerFallback(key, c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)), "torch_pjrt"));
  };
  fall_back(c10::DispatchKey::PrivateUse1, std::make_unique<Fallback>());
  for (auto [key, kind] : kAbsent) fall_back(key, std::make_unique<Absent>(kind));
}

}  // namespace torch_pjrt
