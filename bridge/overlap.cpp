// Writes into memory that several elements, or an argument, share: taken or refused as PyTorch's CPU kernels do. Results are
// computed from values as they were, so the device itself has nothing to fear of them.
#include "kernel.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/ones.h>

namespace torch_pjrt {

using at::Tensor;
using c10::IValue;

namespace {

constexpr uint32_t arguments(std::initializer_list<int> list) {
  uint32_t bits = 0;
  for (int i : list) bits |= 1u << i;
  return bits;
}

// What a kernel asks beyond the default, which is TensorIterator's: no element of the target shares its memory with another,
// and no other argument has part of it. By base name; from aten/src/ATen/native (torch 2.13) and by trial.
struct Rule {
  const char *base;
  uint32_t apart;  // arguments that may share nothing with the target
};

const Rule kApart[] = {
    {"gather", arguments({0})},         {"take", arguments({0, 1})},        {"index_select", arguments({0, 2})},
    {"masked_select", arguments({0, 1})}, {"cat", arguments({0})},            {"stack", arguments({0})},
    {"index", arguments({0, 1})},       {"kthvalue", arguments({0})},       {"index_add", arguments({2, 3})},
    {"index_copy", arguments({2, 3})},  {"index_reduce", arguments({2, 3})}, {"index_fill", arguments({2})},
    {"scatter", arguments({2, 3})},     {"scatter_add", arguments({2, 3})}, {"scatter_reduce", arguments({2, 3})},
    {"put", arguments({1, 2})},         {"index_put", arguments({1, 2})},   {"_index_put_impl", arguments({1, 2})},
};

// Kernels that do not ask whether elements of the target share memory: the last one that is written stays. (The reductions,
// eye, tril and triu with out=, baddbmm_ and addmv_ do not ask either, but read what they have written: their numbers are what
// the order of a loop made, and they are refused here.)
const char *const kSharing[] = {
    "fill_.Scalar", "zero_", "_foreach_zero_", "masked_fill_", "index_fill_", "index_put_", "_index_put_impl_", "tril_", "triu_",
    "threshold_",   "full",  "ones",           "zeros",        "bmm",         "dot",
};

bool shares_memory(const Tensor &tensor) { return at::has_internal_overlap(tensor) == at::MemOverlap::Yes; }

void warn_of(const char *op) {
  TORCH_WARN("Use of ", op, " on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
             "This also applies to advanced indexing e.g. tensor[mask] = scalar");
}

// An element that is written once stays written, whatever of those that share its memory are not.
void fill_where(const Tensor &self, const Tensor &mask, const Tensor &value) {
  Tensor target = self;
  target.index_put_({mask.expand(self.sizes())}, value);
}

}  // namespace

OverlapRule find_overlap_rule(const std::string &name) {
  std::string op = name.substr(name.find("::") + 2), base = op.substr(0, op.find('.'));
  OverlapRule rule;
  for (const char *sharing : kSharing) rule.may_share |= op == sharing || base == sharing;
  if (base.size() > 1 && base.back() == '_') base.pop_back();
  for (const Rule &row : kApart)
    if (base == row.base) rule.apart = row.apart;
  return rule;
}

void check_overlap(Run &run) {
  const Mutation *mutation = run.op.mutation;
  for (int w = 0; w < mutation->write_count; ++w) {
    auto written = static_cast<size_t>(mutation->writes[w].argument);
    if (run.argument(written).isTensorList() && !run.op.overlap.may_share)
      for (const Tensor &target : run.argument(written).toTensorVector()) at::assert_no_internal_overlap(target);
    if (!run.argument(written).isTensor()) continue;
    const Tensor target = run.argument(written).toTensor();
    if (!target.defined() || !target.has_storage()) continue;
    if (!run.op.overlap.may_share) at::assert_no_internal_overlap(target);
    auto compare = [&](const Tensor &other, bool apart) {
      if (!other.defined() || !other.has_storage() || !other.storage().is_alias_of(target.storage())) return;
      if (apart) at::assert_no_overlap(target, other);
      else at::assert_no_partial_overlap(target, other);
    };
    for (size_t i = 0; i < run.op.arguments.size(); ++i) {
      const Argument &argument = run.op.arguments[i];
      if (argument.source < 0 || argument.source == static_cast<int>(written)) continue;
      const IValue &value = run.argument(static_cast<size_t>(argument.source));
      bool apart = run.op.overlap.apart >> i & 1;
      if (value.isTensor()) compare(value.toTensor(), apart);
      else if (apart && argument.kind == Kind::kTensors)
        for (const IValue &element : value.toListRef())
          if (element.isTensor()) compare(element.toTensor(), true);
    }
  }
}

bool run_shared_write(Run &run) {
  if (!run.op.overlap.may_share || run.op.mutation->kind != Mutation::kInPlace || !run.argument(0).isTensor()) return false;
  const Tensor self = run.argument(0).toTensor();
  if (!shares_memory(self)) return false;
  const std::string &name = run.op.name;
  if (name.rfind("aten::index_fill_", 0) == 0) warn_of("index_fill_");
  if (name.rfind("aten::index_put_", 0) == 0) warn_of("index_put_");
  if (name.rfind("aten::masked_fill_", 0) == 0) {
    warn_of("masked_fill_");
    const IValue &value = run.argument(2);
    fill_where(self, run.argument(1).toTensor(),
               value.isTensor() ? value.toTensor().to(self.device(), self.scalar_type())
                                : at::full({}, value.toScalar(), self.options()));
  } else if (name == "aten::tril_" || name == "aten::triu_") {
    int64_t diagonal = run.argument(1).toInt();
    Tensor all = at::ones(self.sizes(), self.options().dtype(c10::kBool));
    fill_where(self, (name == "aten::tril_" ? all.tril(diagonal) : all.triu(diagonal)).logical_not(),
               at::full({}, 0, self.options()));
  } else {
    return false;
  }
  bool lent = run.lent;  // then the caller has self, and takes no result
  run.drop();
  if (!lent) run.stack.emplace_back(self);
  return true;
}

}  // namespace torch_pjrt
