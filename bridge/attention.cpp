// What PyTorch asks a device before it takes a fused path: which attention torch.nn.functional.scaled_dot_product_attention
// takes (the one program of the op made for backends to override, where that can say what is asked for, else PyTorch's
// composite of products and softmax), and whether nn.TransformerEncoder may pack a padded batch.
#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
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

// What nn.MultiheadAttention takes in eval: both projections in one weight, masks that are true (or not 0) where nothing is
// attended to, of [queries, keys] (mask type 0), [batch, keys] (1) or [batch, heads, queries, keys] (2).
std::tuple<at::Tensor, at::Tensor> native_multi_head_attention(
    const at::Tensor &query, const at::Tensor &key, const at::Tensor &value, int64_t width, int64_t heads,
    const at::Tensor &qkv_weight, const at::Tensor &qkv_bias, const at::Tensor &proj_weight, const at::Tensor &proj_bias,
    const std::optional<at::Tensor> &mask, bool need_weights, bool average, std::optional<int64_t> mask_type) {
  TORCH_CHECK(query.dim() == 3 && key.dim() == 3 && value.dim() == 3 && query.size(2) == width && width % heads == 0,
              "expected 3-D query, key and value of width ", width, ", which ", heads, " heads must divide");
  auto weights = qkv_weight.chunk(3), biases = qkv_bias.chunk(3);
  int64_t batch = query.size(0);
  auto project = [&](const at::Tensor &x, size_t i) {
    return at::linear(x, weights[i], biases[i]).view({batch, -1, heads, width / heads}).transpose(1, 2);
  };
  at::Tensor q = project(query, 0), k = project(key, 1), v = project(value, 2), attended, shares;
  std::optional<at::Tensor> hidden;
  if (mask && mask->defined()) hidden = mask->to(at::kBool);
  if (hidden && mask_type == 1) hidden = hidden->view({batch, 1, 1, -1});
  if (need_weights) {
    at::Tensor scores = at::matmul(q / std::sqrt(static_cast<double>(width / heads)), k.transpose(2, 3));
    if (hidden) scores = scores.masked_fill(*hidden, -std::numeric_limits<double>::infinity());
    shares = scores.softmax(-1);
    attended = at::matmul(shares, v);
    if (average) shares = shares.mean(1);
  } else {
    attended = at::scaled_dot_product_attention(q, k, v, hidden ? std::optional(hidden->logical_not()) : std::nullopt);
  }
  return {at::linear(attended.transpose(1, 2).reshape({batch, -1, width}), proj_weight, proj_bias), shares};
}

// Asked by nn.TransformerEncoder before it makes a nested tensor of a padded batch, which the device does not have.
bool is_left_aligned(const at::Tensor &, const at::Tensor &) { return false; }

// The same question asked from Python; scaled_dot_product_attention itself asks the stub.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", choose_attention);
  m.impl("_native_multi_head_attention", native_multi_head_attention);
  m.impl("_transformer_encoder_layer_fwd", at::native::transformer_encoder_layer_forward);
  m.impl("_nested_tensor_from_mask_left_aligned", is_left_aligned);
}

}  // namespace torch_pjrt

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_pjrt::choose_attention)

}  // namespace at::native
