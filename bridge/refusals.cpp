// Arguments that PyTorch's CPU kernels refuse with another exception or sentence than its meta kernels (torch 2.13). Asked
// once a key, before the meta kernel.
#include "kernel.h"

#include <c10/core/WrapDimMinimal.h>

namespace torch_pjrt {

using at::Tensor;
using c10::IValue;

namespace {

// Nothing has no extreme: neither a dimension that was named, nor all of them.
void check_extreme(Run &run) {
  const Tensor self = run.argument(0).toTensor();
  const IValue &named = run.argument(1);
  c10::DimVector dims = named.isInt() ? c10::DimVector{named.toInt()} : named.isNone() ? c10::DimVector{} : named.toDimVector();
  bool pair = run.op.name == "aten::aminmax";
  std::string what = run.op.name.substr(6, run.op.name.find('.') - 6) + (pair ? "" : "()");
  for (int64_t dim : dims) {
    if (dim < -self.dim() || dim >= self.dim()) return;  // the meta kernel tells
    dim = c10::maybe_wrap_dim(dim, self.dim());
    TORCH_CHECK_INDEX(self.size(dim) != 0, what, ": Expected reduction dim ", dim, " to have non-zero size.");
  }
  if (!dims.empty()) return;
  TORCH_CHECK(self.numel() || !pair, "aminmax(): cannot compute aminmax over an empty dimension as the operation has no "
              "identity.");
  TORCH_CHECK(self.numel(), what, ": Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
              "dim with the 'dim' argument.");
}

void check_mean(Run &run) {
  if (!run.argument(run.op.argument_count - 1).isNone()) return;  // dtype
  c10::ScalarType type = run.argument(0).toTensor().scalar_type();
  TORCH_CHECK(c10::isFloatingType(type) || c10::isComplexType(type), "mean(): could not infer output dtype. Input dtype must "
              "be either a floating point or complex dtype. Got: ", type);
}

void check_cat(Run &run) {
  std::optional<int64_t> rank;
  auto list = run.argument(0).toTensorVector();
  for (size_t i = 0; i < list.size(); ++i)
    TORCH_CHECK(list[i].dim() > 0, "zero-dimensional tensor (at position ", i, ") cannot be concatenated");
  for (const Tensor &tensor : list) {
    if (tensor.dim() == 1 && tensor.size(0) == 0) continue;  // counts as nothing, for old programs' sake
    if (!rank) rank = tensor.dim();
    TORCH_CHECK(tensor.dim() == *rank, "Tensors must have same number of dimensions: got ", *rank, " and ", tensor.dim());
  }
}

void check_masked_fill(Run &run) {
  const Tensor self = run.argument(0).toTensor(), mask = run.argument(1).toTensor();
  TORCH_CHECK(mask.scalar_type() == c10::ScalarType::Bool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.dtype());
  if (!run.argument(2).isTensor()) return;
  int64_t rank = run.argument(2).toTensor().dim();
  TORCH_CHECK(rank == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ", rank,
              " dimension(s).");
}

struct Refusal {
  const char *op;
  void (*check)(Run &run);
};
const Refusal kRefusals[] = {
    {"aten::amax", check_extreme},         {"aten::amin", check_extreme},
    {"aten::aminmax", check_extreme},      {"aten::mean", check_mean},
    {"aten::mean.dim", check_mean},        {"aten::cat", check_cat},
    {"aten::masked_fill.Scalar", check_masked_fill}, {"aten::masked_fill.Tensor", check_masked_fill},
    {"aten::masked_fill_.Scalar", check_masked_fill}, {"aten::masked_fill_.Tensor", check_masked_fill},
};

}  // namespace

void check_refusals(Run &run) {
  for (const Refusal &refusal : kRefusals)
    if (run.op.name == refusal.op) return refusal.check(run);
}

}  // namespace torch_pjrt
