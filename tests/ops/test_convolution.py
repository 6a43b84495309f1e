"""Convolutions and their gradients.

Tolerance: a sum of n products in another order differs by about sqrt(n) roundings, so float32 is held to rtol 1e-5 and
atol 1e-4. Half types are held against the float64 result: the CPU sums in the half type.
"""
import pytest
import torch

from harness import compare, compare_wide, run, values

CLOSE = {"rtol": 1e-5, "atol": 1e-4}
CASES = {
    "1d": ((2, 3, 7), (4, 3, 3), [1], [0], [1], False, [0], 1),
    "2d": ((2, 3, 6, 7), (4, 3, 3, 2), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "2d strided, padded": ((2, 3, 6, 7), (4, 3, 3, 2), [2, 1], [1, 2], [1, 1], False, [0, 0], 1),
    "2d dilated": ((2, 3, 8, 9), (4, 3, 3, 2), [1, 2], [2, 1], [2, 3], False, [0, 0], 1),
    "2d grouped": ((2, 4, 6, 7), (6, 2, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 2),
    "2d depthwise": ((2, 4, 6, 7), (8, 1, 3, 3), [2, 2], [1, 1], [1, 1], False, [0, 0], 4),
    "3d": ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), [1, 2, 1], [0, 1, 1], [1, 1, 2], False, [0, 0, 0], 1),
    "2d transposed": ((2, 4, 4, 5), (4, 3, 3, 2), [2, 3], [1, 0], [1, 1], True, [1, 0], 1),
    "2d transposed, grouped": ((2, 4, 4, 5), (4, 3, 3, 2), [2, 3], [1, 0], [2, 1], True, [1, 2], 2),
    "2d transposed, large output padding": ((2, 4, 4, 4), (4, 3, 3, 2), [2, 2], [0, 0], [4, 4], True, [3, 2], 1),
    "1d transposed": ((2, 4, 5), (4, 3, 3), [2], [1], [1], True, [1], 1),
}


def tensors(case, dtype=torch.float32):
    input_shape, weight_shape, *rest = CASES[case]
    bias = weight_shape[1] * rest[-1] if rest[3] else weight_shape[0]
    return values(*input_shape, dtype=dtype), values(*weight_shape, dtype=dtype), values(bias, dtype=dtype), rest


@pytest.mark.parametrize("case", CASES)
def test_convolution_and_its_gradients(case):
    x, weight, bias, rest = tensors(case)
    compare("aten::convolution", x, weight, bias, *rest, **CLOSE)
    grad = values(*torch.convolution(x, weight, bias, *rest).shape)
    compare("aten::convolution_backward", grad, x, weight, [bias.numel()], *rest, [True, True, True], **CLOSE)


@pytest.mark.parametrize("dtype, rtol, atol", [(torch.bfloat16, 1.6e-2, 1e-2), (torch.float16, 1e-3, 1e-2)])
def test_half_types_sum_in_float32(dtype, rtol, atol):
    x, weight, bias, rest = tensors("2d strided, padded", dtype)
    compare_wide("aten::convolution", x, weight, bias, *rest, rtol=rtol, atol=atol)
    grad = values(*torch.convolution(x, weight, bias, *rest).shape, dtype=dtype)
    compare_wide("aten::convolution_backward", grad, x, weight, [4], *rest, [True, True, True], rtol=rtol, atol=atol)


@pytest.mark.parametrize("mask", [[True, False, False], [False, True, False], [True, True, False]], ids=str)
def test_only_the_wanted_gradients_are_given(mask):
    x, weight, bias, rest = tensors("2d")
    grad = values(*torch.convolution(x, weight, bias, *rest).shape)
    compare("aten::convolution_backward", grad, x, weight, [4], *rest, mask, **CLOSE)


def test_channels_last_and_integers_and_empty_batches():
    x, weight, bias, rest = tensors("2d")
    compare("aten::convolution", x.to(memory_format=torch.channels_last), weight, None, *rest, **CLOSE)
    compare("aten::convolution", x.long(), weight.long(), None, *rest)
    compare("aten::convolution", x[:0], weight, bias, *rest)


@pytest.mark.parametrize("position, value, message", [
    (0, [0, 1], "non-positive stride"), (1, [-1, 0], "negative padding"), (2, [0, 1], "dilation"),
    (5, 2, "weight to be at least 2|channels")])
def test_what_the_meta_kernel_lets_pass_is_refused(position, value, message):
    x, weight, bias, rest = tensors("2d")
    rest[position] = value
    if position == 5:
        x, weight = values(2, 3, 6, 7), values(5, 3, 3, 2)
    with pytest.raises(RuntimeError, match=message):
        run("aten::convolution", x, weight, None, *rest, results=[values(2, 4, 4, 6)])


def test_a_kernel_larger_than_the_input_is_refused():
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        run("aten::convolution", values(1, 1, 2), values(1, 1, 3), None,
            [1], [0], [1], False, [0], 1, results=[values(1, 1, 1)])
