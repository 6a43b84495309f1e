// Types that arguments must have in common, where PyTorch's CPU kernels ask and its meta kernels (torch 2.13) do not. Types are
// part of a call's key, so this is asked once a key.
#include "kernel.h"

namespace torch_pjrt {

using at::Tensor;
using c10::IValue;
using c10::ScalarType;
using torch::jit::Stack;

namespace {

// Two arguments of the functional op, by base name: aten/src/ATen/native/TensorAdvancedIndexing.cpp, LinearAlgebra.cpp.
const struct {
  const char *base;
  size_t a, b;
} kSame[] = {
    {"index_add", 0, 3}, {"index_copy", 0, 3},      {"index_reduce", 0, 3}, {"put", 0, 2},     {"index_put", 0, 2},
    {"addmm", 0, 2},     {"_index_put_impl", 0, 2}, {"addbmm", 0, 2},       {"baddbmm", 0, 2}, {"addmv", 0, 2},
};

// Overloads with out= that convert nothing: its type is the result's.
const char *const kExactOut[] = {
    "take.out",       "index_select.out", "sort.values",      "sort.values_stable", "aminmax.out",           "median.dim_values",
    "nanmedian.dim_values", "kthvalue.values",  "mode.values", "tril.out",           "triu.out",              "multinomial.out",
    "_softmax.out",   "_log_softmax.out", "histc.out",        "complex.out",        "searchsorted.Tensor_out", "bucketize.Tensor_out",
    "searchsorted.Scalar_out",
};

std::string base_name(const std::string &overload) {
  std::string op = overload.substr(overload.find("::") + 2), base = op.substr(0, op.find('.'));
  if (base.size() > 1 && base.back() == '_') base.pop_back();
  return base;
}

std::optional<ScalarType> type_of(Run &run, size_t i) {
  if (i >= run.op.arguments.size() || run.op.arguments[i].source < 0) return std::nullopt;
  const IValue &value = run.argument(static_cast<size_t>(run.op.arguments[i].source));
  if (!value.isTensor() || !value.toTensor().defined() || value.toTensor().unsafeGetTensorImpl()->is_wrapped_number())
    return std::nullopt;
  return value.toTensor().scalar_type();
}

bool is_exact_out(const std::string &name) {
  for (const char *exact : kExactOut)
    if (name.compare(name.find("::") + 2, std::string::npos, exact) == 0) return true;
  return false;
}

std::vector<Tensor> tensors(const IValue &value) {
  if (value.isTensorList()) return value.toTensorVector();
  if (value.isTensor() && value.toTensor().defined()) return {value.toTensor()};
  return {};
}

}  // namespace

void check_same_types(Run &run) {
  std::string base = base_name(run.op.name);
  for (const auto &same : kSame) {
    if (base != same.base) continue;
    auto a = type_of(run, same.a), b = type_of(run, same.b);
    const auto &schema = run.op.handle.schema();
    auto name = [&](size_t i) { return schema.arguments()[static_cast<size_t>(run.op.arguments[i].source)].name(); };
    TORCH_CHECK(!a || !b || *a == *b, run.op.name, ": ", name(same.a), " and ", name(same.b),
                " must have the same dtype, but got ", *a, " and ", *b);
  }
}

WrittenTypes written_types(const Run &run) {
  const Mutation *mutation = run.op.mutation;
  if (!run.mutates || mutation->kind == Mutation::kHidden) return WrittenTypes::kAny;
  if (mutation->kind == Mutation::kOut && is_exact_out(run.op.name)) return WrittenTypes::kExact;
  Op *twin = find_op(run.op.twin_name());
  bool casts = twin && (twin->handle.hasTag(at::Tag::pointwise) || run.op.name.rfind("aten::_foreach_", 0) == 0);
  return casts ? WrittenTypes::kCast : WrittenTypes::kAny;
}

void check_written_types(Run &run, const std::vector<IValue> &arguments, const Stack &results, WrittenTypes demand) {
  const Mutation *mutation = run.op.mutation;
  for (int w = 0; w < mutation->write_count; ++w) {
    auto targets = tensors(arguments[static_cast<size_t>(mutation->writes[w].argument)]);
    auto computed = tensors(results[static_cast<size_t>(mutation->writes[w].result)]);
    for (size_t i = 0; i < std::min(targets.size(), computed.size()); ++i) {
      ScalarType from = computed[i].scalar_type(), to = targets[i].scalar_type();
      if (demand == WrittenTypes::kExact)
        TORCH_CHECK(from == to, "Expected out tensor to have dtype ", from, ", but got ", to, " instead");
      TORCH_CHECK(c10::canCast(from, to), "result type ", from, " can't be cast to the desired output type ", to);
    }
  }
}

}  // namespace torch_pjrt
