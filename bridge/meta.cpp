// What comes out of an op: asked of PyTorch's own meta kernel, once a key.
#include "kernel.h"

#include <set>

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

namespace torch_pjrt {

using at::Tensor;
using c10::IValue;
using c10::ScalarType;
using torch::jit::Stack;

namespace {

Tensor to_meta(const Tensor &tensor, bool empty) {
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
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
  if (PyErr_GivenExceptionMatches(type, PyExc_AttributeError)) return true;  // of None: an optional argument it forgot
  const char *name = reinterpret_cast<PyTypeObject *>(type)->tp_name;
  return strstr(name, "DataDependent") || strstr(name, "DynamicOutputShape") || strstr(name, "UnsupportedFakeTensor");
}

[[noreturn]] void rethrow_python(PyObject *type, PyObject *value) {
  // What PyTorch's Python kernels say so is a TORCH_CHECK in its C++ kernels.
  if (PyErr_GivenExceptionMatches(type, PyExc_AssertionError) || PyErr_GivenExceptionMatches(type, PyExc_ValueError) ||
      PyErr_GivenExceptionMatches(type, PyExc_ZeroDivisionError)) {
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

// Calls an op with meta tensors, whose kernel checks the arguments as PyTorch does. False: it does not exist or cannot
// tell.
bool ask(const c10::OperatorHandle &op, Stack *stack) {
  try {
    op.callBoxed(stack);
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

// Whether the target's type takes what the op computes: in-place and out= meta kernels of torch 2.13 seldom ask.
void check_cast(Run &run, const std::vector<IValue> &arguments) {
  WrittenTypes demand = written_types(run);
  if (demand == WrittenTypes::kAny) return;
  const Mutation *mutation = run.op.mutation;
  Stack stack;
  for (int i = 0; i < mutation->input_count; ++i)
    stack.push_back(mutation->inputs[i] < 0 ? IValue() : arguments[static_cast<size_t>(mutation->inputs[i])]);
  if (ask(find_op(run.op.twin_name())->handle, &stack)) check_written_types(run, arguments, stack, demand);
}

// Asks for this run. `arguments` become meta tensors (outputs are resized), `results` what is returned.
bool call_meta(Run &run, Stack *results, std::vector<IValue> *arguments) {
  at::RecordFunctionGuard no_profile(false);
  at::AutoDispatchBelowADInplaceOrView below;
  const auto &schema = run.op.handle.schema();
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    arguments->push_back(to_meta(run.argument(i), schema.arguments()[i].is_out()));
  *results = *arguments;
  // Of a resized out= argument PyTorch warns when the real one is resized.
  NoWarnings none;
  std::optional<c10::WarningUtils::WarningHandlerGuard> quiet;
  if (run.op.mutation && run.op.mutation->kind == Mutation::kOut) quiet.emplace(&none);
  if (!ask(run.op.handle, results)) return false;
  check_cast(run, *arguments);
  return true;
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

// The loss of one sample, which is no batch, is a number on CPU and CUDA; the meta kernels of torch 2.13 make it a vector.
void keep_number(Run &run, pj_tensor_spec *result) {
  bool all = run.op.name == "aten::multilabel_margin_loss_forward";
  if (!all && run.op.name != "aten::multi_margin_loss") return;
  if (run.argument(0).toTensor().dim() <= 1 && (all || run.argument(1).toTensor().dim() == 0)) result->rank = 0;
}

// What the results are: of a written argument its own type, so that the value needs no conversion to be stored.
std::vector<pj_tensor_spec> result_specs(Run &run, const Stack &results, const std::vector<IValue> &meta_arguments) {
  std::vector<pj_tensor_spec> specs;
  if (!run.mutates) {
    for (const IValue &result : results) add_specs(result, &specs);
    if (specs.empty()) return specs;
    if (run.op.name == "aten::convolution") keep_channels_last(run, &specs[0]);
    keep_number(run, &specs[0]);
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

// Gradients that output_mask does not ask for; some meta kernels describe them all the same.
void drop_unwanted(Run &run, Stack *results) {
  if (run.op.output_mask < 0 || run.mutates) return;
  auto mask = run.argument(static_cast<size_t>(run.op.output_mask)).toBoolList();
  for (size_t r = 0; r < std::min(mask.size(), results->size()); ++r)
    if (!mask[r]) (*results)[r] = Tensor();
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

}  // namespace

pj_tensor_spec spec_of(ScalarType type, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  check_rank(static_cast<int64_t>(sizes.size()));
  pj_tensor_spec spec{};
  spec.dtype = to_pj(type);
  spec.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), spec.sizes);
  std::copy(strides.begin(), strides.end(), spec.strides);
  return spec;
}

namespace {

// Whether each of the twin's results is written into an argument of the same type.
bool only_writes(const Run &run) {
  if (!run.mutates || run.op.mutation->kind != Mutation::kInPlace) return false;
  std::set<int> written;
  for (int w = 0; w < run.op.mutation->write_count; ++w) written.insert(run.op.mutation->writes[w].result);
  return written.size() == run.op.result_is_list.size();
}

}  // namespace

std::optional<Meta> run_meta(Run &run) {
  Stack results;
  std::vector<IValue> arguments;
  check_same_types(run);
  check_refusals(run);
  if (!call_meta(run, &results, &arguments)) {
    // Of an op that only writes into its arguments, these say what the results are.
    if (!only_writes(run)) return std::nullopt;
    results.clear();
  }
  drop_unwanted(run, &results);
  Meta meta{result_specs(run, results, arguments), nullptr};
  if (!run.mutates) meta.layout = make_layout(results);
  return meta;
}

}  // namespace torch_pjrt
