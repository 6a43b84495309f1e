// What is known of an op from its schema and the mutation table, and the registration of all kernels.
#include "kernel.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <torch/library.h>

#include <set>

namespace torch_pjrt {

using c10::IValue;
using c10::TypeKind;
using torch::jit::Stack;

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

// Ops without the tag "pointwise" that yet take 0-d CPU tensors as numbers.
bool takes_cpu_numbers(const std::string &base) {
  static const auto *names = new std::set<std::string>{"fill", "fill_", "index_fill", "index_fill_", "masked_fill",
                                                       "masked_fill_", "lerp", "lerp_", "where", "floor_divide",
                                                       "floor_divide_", "rsub"};
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
  argument_count = schema.arguments().size();
  return_count = schema.returns().size();
  mutation = find_mutation(name);
  std::string base = schema.name().substr(schema.name().find("::") + 2);
  composite = handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
  number_rule = find_number_rule(name);
  overlap = find_overlap_rule(name);
  numbers = takes_cpu_numbers(base) || handle.hasTag(at::Tag::pointwise);
  indices = takes_indices(base);
  range = base == "arange" || base == "range";
  foreach = composite && base.rfind("_foreach_", 0) == 0;
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
    arguments.push_back({.kind = *kind, .source = static_cast<int16_t>(source), .number = true});
    const auto &usual = twin_schema->arguments()[i].default_value();
    if (*kind == Kind::kNumber && usual && (usual->isInt() || usual->isDouble())) arguments.back().usual = usual;
    if (source >= 0 && mutation && mutation->kind != Mutation::kHidden)
      for (int w = 0; w < mutation->write_count; ++w)
        if (mutation->writes[w].argument == source) arguments.back().number = false;
    if (*kind == Kind::kGenerator) generator = source;
    if (twin_schema->arguments()[i].name() == "output_mask") output_mask = source;
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
  std::lock_guard lock(mutex_);
  layouts_[plan] = std::move(layout);
  has_layouts_ = true;
}

bool Op::is_hopeless(const std::string &key) {
  std::lock_guard lock(mutex_);
  return hopeless_.count(key);
}

void Op::give_up(const std::string &key) {
  std::lock_guard lock(mutex_);
  hopeless_.insert(key);
}

std::shared_ptr<const Layout> Op::layout(const pj_plan *plan) {
  if (C10_LIKELY(!has_layouts_)) return nullptr;
  std::lock_guard lock(mutex_);
  auto found = layouts_.find(plan);
  return found == layouts_.end() ? nullptr : found->second;
}

void Op::ask_core() {
  pj_runtime *started = runtime();
  std::call_once(resolved_, [&] {
    twin = pj_runtime_op(started, twin_name_.c_str());
    lowering = pj_op_has_lowering(twin);
    flags = pj_op_flags(twin);
    uint32_t statics = pj_op_statics(twin), shapes = pj_op_shape_only(twin), specials = pj_op_specials(twin),
             lengths = pj_op_lengths(twin), dtypes = pj_op_dtype_only(twin);
    for (size_t i = 0; i < arguments.size() && i < 32; ++i) {
      arguments[i].constant = statics >> i & 1;
      arguments[i].special = specials >> i & 1;
      arguments[i].shape_only = shapes >> i & 1;
      arguments[i].dtype_only = dtypes >> i & 1;
      arguments[i].lengths = lengths >> i & 1;
      has_lengths |= arguments[i].lengths;
    }
    if (mutation && mutation->kind == Mutation::kHidden) {
      plain = pj_runtime_op(started, name.c_str());
      plain_lowering = pj_op_has_lowering(plain);
    }
    is_resolved_.store(true, std::memory_order_release);
  });
}

// ---- registration ---------------------------------------------------------------------------------------------------

namespace {

// Every op that was met, by name. Leaked: kernels may run until the process ends.
struct Ops {
  std::mutex mutex;
  std::unordered_map<c10::OperatorName, std::unique_ptr<Op>> by_name;
};

Op &op_of(const c10::OperatorHandle &handle) {
  static auto *ops = new Ops;
  std::lock_guard lock(ops->mutex);
  auto &op = ops->by_name[handle.operator_name()];
  if (!op) op = std::make_unique<Op>(handle);
  return *op;
}

class Kernel final : public c10::OperatorKernel {
 public:
  explicit Kernel(Op &op) : op_(op) {}
  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, Stack *stack) {
    Run run(op_, *stack);
    run_op(run);
  }

 private:
  Op &op_;
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
    Run run(op_of(handle), *stack);
    run_op(run);
  }
};

// Layouts and tensor kinds that the device does not have, or has for few ops only (torch_pjrt/_sparse.py). PyTorch's own
// sentence lists every backend there is.
#define TORCH_PJRT_WAY_OUT " tensors. Keep them on the CPU, or make them dense before they go to the device"
constexpr std::pair<c10::DispatchKey, const char *> kAbsent[] = {
    {c10::DispatchKey::SparsePrivateUse1, "kernel of it for sparse" TORCH_PJRT_WAY_OUT},
    {c10::DispatchKey::SparseCsrPrivateUse1, "compressed sparse" TORCH_PJRT_WAY_OUT},
    {c10::DispatchKey::QuantizedPrivateUse1, "quantized" TORCH_PJRT_WAY_OUT},
    {c10::DispatchKey::NestedTensorPrivateUse1, "strided nested tensors. Make them with layout=torch.jagged"},
};

class Absent final : public c10::OperatorKernel {
 public:
  explicit Absent(const char *kind) : kind_(kind) {}
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet, Stack *) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, handle.operator_name(), ": the tpu device has no ", kind_);
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

// Autograd asks this where an exception would end the process.
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) { m.impl("_nested_tensor_size", at::native::_nested_tensor_size); }

}  // namespace

Op *find_op(const std::string &name) {
  auto dot = name.find('.');
  auto handle = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  return handle ? &op_of(*handle) : nullptr;
}

void register_kernels() {
  auto &dispatcher = c10::Dispatcher::singleton();
  // Leaked: deregistering at exit would run after the dispatcher's own end.
  static auto *handles = new std::vector<c10::RegistrationHandleRAII>;
  for (const auto &name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    auto handle = dispatcher.findSchema(name);
    if (!handle || !wants_kernel(*handle)) continue;
    Op &op = op_of(*handle);
    auto typed = typed_kernel(handle->schema(), op);
    handles->push_back(dispatcher.registerImpl(
        name, c10::DispatchKey::PrivateUse1,
        typed ? std::move(typed->kernel) : c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(op)),
        typed ? std::optional(typed->signature) : std::nullopt, nullptr, "torch_pjrt"));
  }
  auto fall_back = [&](c10::DispatchKey key, auto kernel) {
    handles->push_back(
        dispatcher.registerFallback(key, c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)), "torch_pjrt"));
  };
  fall_back(c10::DispatchKey::PrivateUse1, std::make_unique<Fallback>());
  for (auto [key, kind] : kAbsent) fall_back(key, std::make_unique<Absent>(kind));
}

}  // namespace torch_pjrt
