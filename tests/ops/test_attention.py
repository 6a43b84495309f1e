import math

import pytest
import torch
from checks import FLOATS, INF, check_against, make

FORWARD = "aten::_scaled_dot_product_fused_attention_overrideable"
BACKWARD = FORWARD + "_backward"
CASES = [(2, 4, 4, 5, 7, 8, 8), (2, 4, 2, 5, 5, 8, 6), (1, 6, 1, 3, 9, 4, 4)]  # B, heads, key heads, L, S, E, Ev


def bias_of(kind, dtype, b, heads, rows, columns):
    if kind == "full":
        return make(dtype, b, heads, rows, columns)
    if kind == "broadcast":
        return make(dtype, 1, 1, rows, columns)
    if kind == "boolean":
        mask = make(torch.bool, b, 1, rows, columns)
        mask[..., 0] = True
        return mask
    if kind == "masked row":
        bias = torch.zeros(rows, columns, dtype=dtype)
        bias[1] = -INF
        return bias
    return None


def reference(q, k, v, bias, causal, scale):
    groups = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(groups, 1).transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    if bias is not None:
        scores = scores.masked_fill(~bias, -INF) if bias.dtype == torch.bool else scores + bias
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -INF)
    out = torch.ops.aten._safe_softmax(scores, -1) @ v.repeat_interleave(groups, 1)
    return out, torch.logsumexp(scores, -1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["none", "causal", "full", "broadcast", "boolean", "masked row"])
@pytest.mark.parametrize("case", CASES)
def test_attention_and_its_backward_equal_float64(case, kind, dtype):
    b, heads, key_heads, rows, columns, width, value_width = case
    causal, scale = kind == "causal", None if kind == "full" else 0.3
    q = make(dtype, b, rows, heads, width).transpose(1, 2)
    k, v = make(dtype, b, key_heads, columns, width, seed=1), make(dtype, b, key_heads, columns, value_width, seed=2)
    bias = bias_of(kind, dtype, b, heads, rows, columns)
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    if bias is not None and bias.dtype != torch.bool:
        wide.append(bias.double().requires_grad_())
    out, logsumexp = reference(*wide[:3], wide[3] if len(wide) > 3 else bias, causal, scale)
    half = dtype != torch.float32
    seed = torch.zeros((), dtype=torch.int64)
    out32, lse32 = out.detach().to(dtype), logsumexp.detach().float()
    check_against(FORWARD, [out32, lse32, seed, seed], q, k, v, bias, 0.0, causal, scale=scale,
                  rtol=2e-2 if half else 1e-5, atol=1e-2 if half else 1e-5)
    if kind == "boolean":  # PyTorch makes a boolean mask a bias before it comes here when gradients are wanted
        return
    grad = make(dtype, *out.shape, seed=3)
    grads = [torch.nan_to_num(x).to(dtype) for x in torch.autograd.grad(out, wide, grad.double())]
    check_against(BACKWARD, grads, grad, q, k, v, bias, [True] * 4, out32, lse32, None, None, rows, columns, 0.0,
                  causal, seed, seed, scale=scale, rtol=2e-2 if half else 1e-4, atol=3e-2 if half else 1e-5)
