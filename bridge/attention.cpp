// Which attention torch.nn.functional.scaled_dot_product_attention takes: the one program of the op made for backends to
// override, where that can say what is asked for, else PyTorch's composite of products and softmax.
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include "bridge.h"

namespace torch_pjrt {

int64_t choose_attention(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
                         const std::optional<at::Tensor> &mask, double dropout, bool, std::optional<double>, bool gqa) {
  bool heads = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && key.size(1) == value.size(1) && key.size(1) > 0 &&
               (query.size(1) == key.size(1) || (gqa && query.size(1) % key.size(1) == 0));
  bool types = query.is_floating_point() && query.scalar_type() == key.scalar_type() &&
               query.scalar_type() == value.scalar_type();
  bool sizes = heads && query.size(0) == key.size(0) && query.size(0) == value.size(0);
  bool can = sizes && types && dropout == 0 && at::globalContext().userEnabledOverrideableSDP();
  return static_cast<int64_t>(can ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

// The same question asked from Python; scaled_dot_product_attention itself asks the stub.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", choose_attention); }

}  // namespace torch_pjrt

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_pjrt::choose_attention)

}  // namespace at::native
