// Ops without a lowering, as PyTorch decomposes them: traced once a key by torch_pjrt.decompose, which calls back here for
// each op that has a lowering, and compiled as one program.
#include "decompose.h"

#include <ATen/ScalarOps.h>
#include <ATen/record_function.h>
#include <c10/util/strides.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>

namespace torch_pjrt {

using at::Tensor;
using c10::IValue;
namespace py = pybind11;

namespace {

const c10::StorageImpl *storage_key(const Tensor &tensor) { return tensor.storage().unsafeGetStorageImpl(); }

// Python numbers stand at the places of tensors, as dispatch modes give them.
IValue to_value(const py::handle &object, const c10::Argument &argument) {
  bool number = PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr()) || PyComplex_Check(object.ptr());
  if (!number || !argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor()))
    return torch::jit::toIValue(object, argument.type());
  Tensor wrapped = c10::scalar_to_tensor(torch::jit::toIValue(object, c10::NumberType::get()).toScalar());
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  return wrapped;
}

// Tensor arguments are fake tensors, known by their storage; numbers are constants of the program.
class NodeWriter final : public Writer {
 public:
  NodeWriter(const Op &op, pj_call *call, Builder &builder) : Writer(op, call), builder_(builder) {}
  std::vector<uint32_t> operands;

 private:
  void device_tensor(const Argument &argument, const Tensor &tensor) override {
    if (argument.shape_only) {
      pj_call_shape(call_, to_pj(tensor.scalar_type()), argument.dtype_only ? 0 : static_cast<int>(tensor.dim()), tensor.sizes().data());
      operands.push_back(0);
    } else {
      operands.push_back(builder_.write_tensor(call_, tensor));
    }
  }
  void number_written() override { operands.push_back(PJ_BUILDER_CONSTANT); }
  Builder &builder_;
};

}  // namespace

pj_tensor_spec dense_spec_of(const Tensor &tensor) {
  bool dense = tensor.is_non_overlapping_and_dense();
  c10::DimVector strides = dense ? c10::DimVector(tensor.strides()) : c10::contiguous_strides(tensor.sizes());
  return spec_of(tensor.scalar_type(), tensor.sizes(), strides);
}

Builder::Builder(const pj_call *call) { check(pj_builder_create(call, &builder_)); }
Builder::~Builder() { pj_builder_destroy(builder_); }

uint32_t Builder::write_tensor(pj_call *call, const Tensor &tensor) {
  auto found = values_.find(storage_key(tensor));
  TORCH_CHECK_NOT_IMPLEMENTED(found != values_.end(), "a tensor from outside of the traced op");
  if (found->second == kZeros) {  // an empty tensor that is read before it was written
    pj_tensor_spec spec{};
    spec.dtype = to_pj(tensor.scalar_type());
    spec.rank = 1;
    spec.sizes[0] = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
    spec.strides[0] = 1;
    Call zeros(pj_runtime_op(runtime(), "pj::zeros"));
    check(pj_builder_append(builder_, zeros, nullptr, 0, &spec, 1, &found->second));
  }
  pj_dtype base;
  int rank;
  int64_t dims[PJ_MAX_RANK];
  TORCH_CHECK(pj_builder_type(builder_, found->second, &base, &rank, dims), "the traced value is no tensor");
  pj_call_graph_tensor(call, base, rank, dims, to_pj(tensor.scalar_type()), static_cast<int>(tensor.dim()),
                       tensor.sizes().data(), tensor.strides().data(), tensor.storage_offset(), math_bits(tensor));
  return found->second;
}

void Builder::hold(const Tensor &tensor, uint32_t value) {
  held_.push_back(tensor.storage());
  values_[storage_key(tensor)] = value;
}

void Builder::input(const Tensor &fake, uint32_t operand) {
  hold(fake, operand);
  inputs_[storage_key(fake)] = operand;
}

bool Builder::changed(const Tensor &fake) const { return values_.at(storage_key(fake)) != inputs_.at(storage_key(fake)); }

void Builder::empty(const Tensor &fake) { hold(fake, kZeros); }

bool Builder::can_lower(const std::string &name) {
  Op *op = find_op(name);
  if (!op || !op->supported) return false;
  op->resolve();
  bool whole = !op->mutation || op->mutation->kind == Mutation::kInPlace;
  bool drawable = !(op->flags & PJ_OP_RANDOM) || drawn_.size() < draws_.size();
  return op->lowering && whole && drawable && !(op->flags & kDynamic);
}

// `source` becomes what the target's storage holds, where the target is.
void Builder::write(const Tensor &target, uint32_t source, const pj_tensor_spec &spec) {
  auto found = values_.find(storage_key(target));
  TORCH_CHECK_NOT_IMPLEMENTED(found != values_.end(), "a write outside of the traced op");
  if (covers_storage(target) && target.strides() == c10::IntArrayRef(spec.strides, static_cast<size_t>(spec.rank))) {
    found->second = source;
    return;
  }
  Call call(pj_runtime_op(runtime(), "pj::write"));
  call->writes_base = true;
  uint32_t operands[2] = {write_tensor(call, target), source};
  pj_dtype base;
  int rank;
  int64_t dims[PJ_MAX_RANK];
  pj_builder_type(builder_, source, &base, &rank, dims);
  pj_call_graph_tensor(call, base, rank, dims, spec.dtype, spec.rank, spec.sizes, spec.strides, 0, 0);
  pj_tensor_spec result{};
  result.dtype = spec.dtype;
  check(pj_builder_append(builder_, call, operands, 2, &result, 1, &found->second));
}

void Builder::node(const std::string &name, const py::list &arguments, const std::vector<Tensor> &results) {
  Op &op = *find_op(name);
  op.resolve();
  const auto &schema = op.handle.schema();
  Call call(op.twin);
  NodeWriter writer(op, call, *this);
  std::vector<IValue> values;
  for (size_t i = 0; i < schema.arguments().size(); ++i) values.push_back(to_value(arguments[i], schema.arguments()[i]));
  for (const Argument &argument : op.arguments) {
    if (argument.source >= 0) {
      writer.write(argument, values[static_cast<size_t>(argument.source)]);
    } else {
      pj_call_none(call);
    }
  }
  // Values of the program are dense; where a fake result is not, its storage is followed by no view of it.
  std::vector<Tensor> targets;
  if (op.mutation) {
    TORCH_CHECK_NOT_IMPLEMENTED(op.mutation->write_count == static_cast<int>(op.result_is_list.size()) &&
                                    op.result_is_list.size() == 1 && !op.result_is_list[0],
                                name, " writes more than one tensor");
    targets.push_back(values[static_cast<size_t>(op.mutation->writes[0].argument)].toTensor());
    pj_call_dtype(call, to_pj(targets[0].scalar_type()));
  }
  std::vector<pj_tensor_spec> specs;
  for (const Tensor &result : op.mutation ? targets : results) {
    TORCH_CHECK_NOT_IMPLEMENTED(op.mutation || result.is_non_overlapping_and_dense(), name, " gives a tensor with gaps");
    specs.push_back(dense_spec_of(result));
  }
  if (op.flags & PJ_OP_RANDOM) {
    uint32_t seed = draws_.at(drawn_.size());
    for (uint32_t number : {seed, seed + 1}) {
      pj_call_number_int(call, 0, PJ_S64, PJ_WEIGHT_PYTHON);
      writer.operands.push_back(number);
    }
    drawn_.push_back(largest_result(specs.data(), specs.size()));
  }
  uint32_t first = 0;
  check(pj_builder_append(builder_, call, writer.operands.data(), static_cast<uint32_t>(writer.operands.size()),
                          specs.data(), static_cast<uint32_t>(specs.size()), &first));
  if (op.mutation) {
    write(targets[0], first, specs[0]);
  } else {
    for (size_t i = 0; i < results.size(); ++i) hold(results[i], first + static_cast<uint32_t>(i));
  }
}

void Builder::finish(pj_device *device, const pj_call *call, const std::vector<Tensor> &outputs,
                     const std::vector<pj_tensor_spec> &specs) {
  std::vector<uint32_t> values;
  for (size_t i = 0; i < outputs.size(); ++i) {
    Call copy(pj_runtime_op(runtime(), "pj::copy"));
    uint32_t operand = write_tensor(copy, outputs[i]), result = 0;
    check(pj_builder_append(builder_, copy, &operand, 1, &specs[i], 1, &result));
    values.push_back(result);
  }
  pj_builder *taken = builder_;
  builder_ = nullptr;
  check(pj_plan_create_from(device, call, taken, values.data(), static_cast<uint32_t>(values.size())));
}

// ---- the trace of one call ------------------------------------------------------------------------------------------

namespace {

// The results that the trace gave, as the plan's: None and undefined ones are not in it.
std::vector<Tensor> flatten(const py::handle &outputs, Layout *layout) {
  std::vector<Tensor> tensors;
  auto add = [&](const py::handle &item) {
    if (THPVariable_Check(item.ptr())) {
      tensors.push_back(THPVariable_Unpack(item.ptr()));
      layout->push_back(std::nullopt);
    } else if (item.is_none()) {
      layout->push_back(IValue(Tensor()));
    } else {
      throw std::runtime_error("a result that is no tensor");
    }
  };
  if (py::isinstance<py::tuple>(outputs) || py::isinstance<py::list>(outputs)) {
    for (const auto &item : outputs) {
      if (py::isinstance<py::list>(item)) throw std::runtime_error("a list beside other results");
      add(item);
    }
  } else {
    add(outputs);
  }
  return tensors;
}

// In-place and out= calls: the results have the types of what they are written to.
void check_targets(Run &run, const std::vector<Tensor> &outputs, const std::vector<pj_tensor_spec> &specs) {
  if (outputs.size() != specs.size()) throw std::runtime_error("another number of results than PyTorch's meta kernel gives");
  for (size_t i = 0; i < specs.size(); ++i)
    if (outputs[i].sizes() != c10::IntArrayRef(specs[i].sizes, static_cast<size_t>(specs[i].rank)))
      throw std::runtime_error("other result sizes than PyTorch's meta kernel gives");
}

bool trace(Run &run, pj_call *call, const std::optional<Meta> &meta) {
  Builder builder(call);
  py::list arguments;
  for (const Argument &argument : run.op.arguments) {
    if (argument.source >= 0) {
      arguments.append(torch::jit::toPyObject(run.argument(static_cast<size_t>(argument.source))));
    } else {
      arguments.append(py::none());
    }
  }
  auto outputs = py::module_::import("torch_pjrt.decompose")
                     .attr("trace")(py::cast(&builder, py::return_value_policy::reference), run.op.twin_name(), arguments);
  Layout layout;
  std::vector<Tensor> results = flatten(outputs, &layout);
  std::vector<pj_tensor_spec> specs;
  if (run.mutates) {
    specs = meta->specs;
    check_targets(run, results, specs);
  } else {
    for (const Tensor &result : results) specs.push_back(dense_spec_of(result));
    bool plain = true;
    for (const auto &other : layout) plain &= !other;
    if (!plain) run.layout = std::make_shared<const Layout>(std::move(layout));
  }
  builder.finish(device_at(run.index), call, results, specs);
  return true;
}

}  // namespace

bool decompose(Run &run, pj_call *call, const std::optional<Meta> &meta) {
  if (run.op.random || (run.mutates && !meta)) return false;
  pj_call_fix_starts(call);
  std::string key(reinterpret_cast<const char *>(call->words), call->word_count * sizeof *call->words);
  if (run.op.is_hopeless(key)) return false;
  at::RecordFunctionGuard no_profile(false);
  py::gil_scoped_acquire gil;
  try {
    trace(run, call, meta);
    pj_runtime_count_decomposition(runtime());
    return true;
  } catch (py::error_already_set &error) {
    note_failure(run.op.name, error.what());
  } catch (const c10::Error &error) {
    note_failure(run.op.name, error.what_without_backtrace());
  } catch (const std::exception &error) {
    note_failure(run.op.name, error.what());
  }
  run.op.give_up(key);
  return false;
}

void note_failure(const std::string &op, const std::string &reason) {
  py::module_::import("torch_pjrt.decompose").attr("failures").attr("__setitem__")(op, reason);
}

}  // namespace torch_pjrt
