"""Modules that take another path in eval, and lists and results on several devices."""
import itertools

import pytest
import torch
import torch.nn as nn
from child import run
from compare import ROUNDING, same


@pytest.fixture(autouse=True)
def native():
    with torch.tpu.set_fallback("error"), torch.no_grad():
        yield


def masks(kind):
    causal = torch.ones(5, 5).triu(1).bool()
    padding = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]]).bool()
    return {"none": {}, "causal": {"attn_mask": causal}, "padding": {"key_padding_mask": padding},
            "both": {"attn_mask": causal, "key_padding_mask": padding},
            "added": {"attn_mask": torch.zeros(5, 5).masked_fill(causal, float("-inf"))}}[kind]


@pytest.mark.parametrize("kind", ["none", "causal", "padding", "both", "added"])
@pytest.mark.parametrize("need_weights, average", [(True, True), (True, False), (False, True)])
def test_attention_in_eval_gives_what_it_gives_on_the_cpu(kind, need_weights, average):
    torch.manual_seed(0)
    module, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 5, 8)
    options = dict(need_weights=need_weights, average_attn_weights=average)
    want = module(x, x, x, **masks(kind), **options)
    moved = {name: mask.to("tpu") for name, mask in masks(kind).items()}
    y = x.to("tpu")
    got = module.to("tpu")(y, y, y, **moved, **options)
    same(got[0], want[0], **ROUNDING)
    assert (got[1] is None) == (want[1] is None)
    if need_weights:
        same(got[1], want[1], **ROUNDING)


@pytest.mark.parametrize("norm_first, activation, padded", list(itertools.product([False, True], ["relu", "gelu"], [False, True])))
def test_an_encoder_in_eval_gives_what_it_gives_on_the_cpu(norm_first, activation, padded):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, activation=activation, norm_first=norm_first, batch_first=True)
    module, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval(), torch.randn(2, 5, 8)
    padding = masks("padding")["key_padding_mask"] if padded else None
    want = module(x, src_key_padding_mask=padding)
    got = module.to("tpu")(x.to("tpu"), src_key_padding_mask=padding if padding is None else padding.to("tpu"))
    kept = torch.ones(2, 5).bool() if padding is None else ~padding  # what is padded is 0 on the CPU, and of no use
    same(got.cpu()[kept], want[kept], **ROUNDING)


def test_an_lstm_without_biases_gives_what_it_gives_on_the_cpu():
    torch.manual_seed(0)
    module, x = nn.LSTM(3, 4, bias=False), torch.randn(2, 1, 3)
    want = module(x)[0]
    same(module.to("tpu")(x.to("tpu"))[0], want, **ROUNDING)


def test_lists_may_be_on_several_devices():
    there, here = [torch.zeros(2, device="tpu")], [torch.ones(2)]
    torch._foreach_copy_(there, here)
    same(there[0], here[0])
    torch._foreach_copy_(here, [there[0] * 3])
    assert here[0].tolist() == [3, 3]
    one, other = torch._foreach_add([there[0], here[0]], 1)
    assert one.device.type == "tpu" and other.device.type == "cpu" and one.tolist() == [2, 2] and other.tolist() == [4, 4]


def test_what_is_made_like_a_tensor_may_be_on_another_device():
    run("""
    x = torch.ones(3, device="tpu:1")
    for make in (torch.zeros_like, torch.ones_like, torch.empty_like, torch.rand_like, torch.randn_like,
                 lambda x, device: torch.full_like(x, 2, device=device), lambda x, device: x.new_zeros(4, device=device),
                 lambda x, device: x.new_full((4,), 3, device=device)):
        for device in ("tpu:0", "tpu:1", "cpu"):
            made = make(x, device=device)
            assert made.device == torch.device(device), (make, made.device)
            made.sum().item()
    assert torch.zeros_like(x).device == x.device
    a, b = torch._foreach_mul([x, torch.ones(2, device="tpu:0")], 2)
    assert (a.device.index, b.device.index) == (1, 0) and a.tolist() == [2] * 3 and b.tolist() == [2] * 2
    """, TORCH_PJRT_CPU_DEVICES="2")


@pytest.mark.parametrize("bytes", [0, 8])
def test_a_tensor_that_reaches_beyond_its_storage_is_refused_everywhere(bytes):
    x = torch.arange(6.0, device="tpu")
    x.untyped_storage().resize_(bytes)
    for use in (lambda: x + 1, x.sum, lambda: x.add_(1), x.zero_, lambda: x.copy_(torch.ones(6)), x.cpu, x.tolist, lambda: repr(x),
                lambda: torch.ones(6).copy_(x), lambda: x.to(torch.int32)):
        with pytest.raises(RuntimeError, match=f"the storage holds {bytes} bytes"):
            use()
    x.untyped_storage().resize_(24)
    same(x.fill_(3) + 1, torch.full((6,), 4.0))


def test_a_view_that_came_through_dlpack_is_read():
    x = torch.arange(4.0, device="tpu")
    for view in (x[:2], x[0], x[::2], x[1:], x[0].expand(3)):
        assert torch.from_dlpack(view).tolist() == view.tolist()
