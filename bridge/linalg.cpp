// The old torch.cholesky: linalg.cholesky's factor and its check, under its own name.
#include <ATen/native/Resize.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <torch/library.h>

namespace torch_pjrt {

namespace {

at::Tensor old_cholesky(const at::Tensor &self, bool upper) {
  auto [factor, info] = at::linalg_cholesky_ex(self, upper, /*check_errors=*/false);
  at::_linalg_check_errors(info, "cholesky", /*is_matrix=*/self.dim() == 2);
  return factor;
}

at::Tensor &old_cholesky_out(const at::Tensor &self, bool upper, at::Tensor &out) {
  at::Tensor factor = old_cholesky(self, upper);
  at::native::resize_output(out, factor.sizes());
  return out.copy_(factor);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cholesky", old_cholesky);
  m.impl("cholesky.out", old_cholesky_out);
}

}  // namespace torch_pjrt
