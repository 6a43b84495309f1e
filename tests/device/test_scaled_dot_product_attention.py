"""Attention and softmax, with masks that hide everything too."""
import math

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from compare import ROUNDING, counted, like_cpu, same
from torch.nn.attention import SDPBackend, sdpa_kernel

CASES = {
    "plain": {}, "causal": dict(is_causal=True), "scale": dict(scale=0.3), "bool mask": dict(mask="bool"),
    "float mask": dict(mask="float"),
    "grouped heads": dict(heads=2, enable_gqa=True),
    "grouped and causal": dict(heads=1, enable_gqa=True, is_causal=True),
    "more keys than queries": dict(keys=9), "causal, more keys": dict(keys=9, is_causal=True),
    "one query": dict(queries=1, mask="bool"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_attention_and_its_gradients_are_the_cpus_without_a_fallback(name, dtype, native):
    options = dict(CASES[name])
    queries, keys, heads, mask = (options.pop(key, default) for key,
                                  default in (("queries", 6), ("keys", 6), ("heads", 4), ("mask", None)))
    q, k, v = torch.randn(3, 4, queries, 5), torch.randn(3, heads, keys, 5), torch.randn(3, heads, keys, 5)
    visible = (torch.rand(3, 1, queries, keys) > 0.4).logical_or(torch.eye(queries, keys, dtype=torch.bool))
    bias = visible if mask == "bool" else torch.randn(3, 1, queries, keys).to(dtype) if mask == "float" else None

    def program(device):
        inputs = [x.to(dtype).to(device).requires_grad_() for x in (q, k, v)]
        out = F.scaled_dot_product_attention(*inputs, attn_mask=None if bias is None else bias.to(device), **options)
        (out.float() * torch.linspace(-1, 1, out.numel(), device=device).reshape(out.shape)).sum().backward()
        return [out] + [x.grad for x in inputs]

    tolerance = 1e-4 if dtype is torch.float32 else 3e-2  # bfloat16: 8 bits of each factor
    same(program("tpu"), program("cpu"), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_the_softmax_of_a_row_that_is_all_hidden_is_the_cpus(dtype, native):
    x = torch.randn(3, 5)
    x[1] = -math.inf
    x[2, 1:] = -math.inf
    x = x.to(dtype)
    for f in (lambda x: x.softmax(-1), lambda x: x.log_softmax(-1), lambda x: x.softmax(0), lambda x: x.logsumexp(-1)):
        same(f(x.to("tpu")), f(x))


def test_a_query_that_sees_no_key_gives_what_the_cpu_gives(native):
    q, k, v = torch.randn(3, 1, 2, 4, 5).unbind()
    visible = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    visible[..., 2, :] = False
    same(F.scaled_dot_product_attention(q.to("tpu"), k.to("tpu"), v.to("tpu"), attn_mask=visible.to("tpu")),
         F.scaled_dot_product_attention(q, k, v, attn_mask=visible), **ROUNDING)


def test_dropout_in_attention_keeps_the_mean(native):
    q, k = torch.zeros(2, 1, 1, 400, 4, device="tpu").unbind()
    v = torch.ones(1, 1, 400, 4, device="tpu")
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert out.std() > 0.01
    # Each of 400 rows averages 400 values that are 0 or 2.
    assert out.mean().item() == pytest.approx(1, abs=5 / 400)


def attention_layers(d):
    attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True).to(d)
    x = torch.linspace(-1, 1, 80).reshape(2, 5, 8).to(d).requires_grad_()
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2], device=d)
    out, weights = attention(x, x[..., :6] * 2, x[..., 4:], key_padding_mask=hidden)
    out.square().sum().backward()
    return out, weights, x.grad, [p.grad for p in attention.parameters()]


def transformer(d):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(d)
    x = torch.linspace(-1, 1, 48).reshape(1, 6, 8).to(d).requires_grad_()
    y = model(x, mask=nn.Transformer.generate_square_subsequent_mask(6, device=d), is_causal=True)
    y.square().sum().backward()
    return y, x.grad, model.eval()(x.detach())


def growing_cache(d):
    """One query a step against keys and values that grow, as in generation."""
    keys, values, out = torch.zeros(1, 2, 0, 4, device=d), torch.zeros(1, 2, 0, 4, device=d), []
    for step in range(5):
        token = torch.linspace(-1, step, 24).reshape(1, 2, 3, 4).to(d)
        keys, values = torch.cat([keys, token[:, :, 1:2]], 2), torch.cat([values, token[:, :, 2:]], 2)
        out.append(F.scaled_dot_product_attention(token[:, :, :1], keys, values))
    return torch.cat(out, 2)


PROGRAMS = [attention_layers, transformer, growing_cache]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_modules_of_attention_are_the_cpus(program, native):
    like_cpu(program, **ROUNDING)


ONE_PROGRAM = {"plain": {}, "mask": dict(attn_mask=torch.randn(2, 1, 8, 8)), "bool mask": dict(attn_mask=torch.randn(2, 1, 8, 8) > 0),
               "causal": dict(is_causal=True), "scale": dict(scale=0.3), "groups": dict(enable_gqa=True)}


@pytest.mark.parametrize("name", ONE_PROGRAM)
def test_the_backend_is_the_overrideable_one_and_each_direction_is_one_op_of_ours(name, native):
    options = {k: v.to("tpu") if isinstance(v, torch.Tensor) else v for k, v in ONE_PROGRAM[name].items()}
    heads = 2 if name == "groups" else 4
    q, k, v = (torch.randn(2, h, 8, 16, device="tpu", requires_grad=True) for h in (4, heads, heads))
    assert torch._fused_sdp_choice(q, k, v, **options) == int(SDPBackend.OVERRIDEABLE)
    found = []

    def attend():
        found.append(F.scaled_dot_product_attention(q, k, v, **options))
        found[0].sum().backward()

    work = counted(attend)
    assert work["decompositions"] == work["fallback_calls"] == 0
    assert type(found[0].grad_fn).__name__ == "ScaledDotProductFusedAttentionOverrideableBackward0"
    assert all(x.grad is not None for x in (q, k, v))


def test_attention_with_dropout_takes_the_math_path_natively(native):
    q, k, v = (torch.randn(2, 4, 8, 16, device="tpu", requires_grad=True) for _ in range(3))
    assert torch._fused_sdp_choice(q, k, v, dropout_p=0.5) == int(SDPBackend.MATH)
    work = counted(lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5).sum().backward())
    assert work["decompositions"] == work["fallback_calls"] == 0
    with sdpa_kernel(SDPBackend.MATH):
        assert torch._fused_sdp_choice(q, k, v) == int(SDPBackend.MATH)
