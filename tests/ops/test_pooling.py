"""Pooling with fixed, adaptive and fractional windows."""
import pytest
import torch

from harness import compare, compare_wide, run, values

NAN, INF = float("nan"), float("inf")
MAX_CASES = [([2, 2], [2, 2], [0, 0], [1, 1], False), ([3, 2], [2, 1], [1, 1], [1, 1], False),
             ([3, 3], [2, 2], [1, 0], [2, 1], False), ([3, 2], [], [1, 0], [1, 1], True), ([2], [3], [1], [1], True)]
AVERAGE_CASES = [([2, 2], [2, 2], [0, 0], False, True, None), ([3, 2], [2, 1], [1, 1], False, True, None),
                 ([3, 2], [2, 1], [1, 1], False, False, None), ([3, 2], [2, 2], [1, 0], True, True, None),
                 ([3, 2], [2, 2], [1, 1], True, False, None), ([2, 2], [1, 3], [0, 0], False, True, 3)]


@pytest.mark.parametrize("case", MAX_CASES, ids=str)
def test_max_pool2d_and_its_gradient(case):
    x = values(2, 3, 7, 8)
    compare("aten::max_pool2d_with_indices", x, *case)
    out, indices = torch.ops.aten.max_pool2d_with_indices(x, *case)
    kernel, stride, *rest = case
    compare("aten::max_pool2d_with_indices_backward", values(*out.shape), x, kernel, stride or kernel, *rest, indices)


def test_max_pool3d_and_its_gradient():
    x, case = values(2, 2, 4, 5, 6), ([2, 3, 2], [2, 1, 2], [1, 1, 0], [1, 1, 2], False)
    compare("aten::max_pool3d_with_indices", x, *case)
    out, indices = torch.ops.aten.max_pool3d_with_indices(x, *case)
    compare("aten::max_pool3d_with_indices_backward", values(*out.shape), x, *case, indices)


def test_max_pool_takes_the_last_nan_and_the_first_of_equal_values():
    for x in (torch.tensor([[[1.0, NAN, 3, 2], [0, 1, 2, 3]]]), torch.tensor(
        [[[NAN, 1.0], [NAN, 1.0]]]), torch.ones(1, 4, 4), torch.full((1, 3, 3), -INF)):
        compare("aten::max_pool2d_with_indices", x, [2, 2], [2, 2], [0, 0])
    compare("aten::max_pool2d_with_indices", torch.full((1, 3, 3), -INF), [2, 2], [2, 2], [1, 1])
    compare("aten::max_pool2d_with_indices", values(1, 4, 4, dtype=torch.int64), [2, 2], [1, 1], [1, 1])
    compare("aten::max_pool2d_with_indices", values(1, 4, 4, dtype=torch.bfloat16), [2, 2], [1, 1], [1, 1])


@pytest.mark.parametrize("case", AVERAGE_CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_avg_pool2d_and_its_gradient(case, dtype):
    x = values(2, 3, 7, 8, dtype=dtype)
    compare_wide("aten::avg_pool2d", x, *case)
    out = torch.ops.aten.avg_pool2d(x, *case)
    compare_wide("aten::avg_pool2d_backward", values(*out.shape, dtype=dtype), x, *case)


def test_avg_pool3d_and_its_gradient():
    x, case = values(2, 2, 4, 5, 6), ([2, 3, 2], [2, 1, 2], [1, 1, 0], True, False, None)
    compare("aten::avg_pool3d", x, *case)
    compare("aten::avg_pool3d_backward", values(*torch.ops.aten.avg_pool3d(x, *case).shape), x, *case)


def test_bad_windows_are_refused():
    x = values(1, 1, 4, 4)
    for name, args, message in [("avg_pool2d", ([0, 2],), "greater than zero"),
                                ("avg_pool2d", ([2, 2], [1, 1], [2, 2]), "at most half"),
                                ("avg_pool2d", ([2, 2], [1, 1], [0, 0], False, True, 0), "divisor"),
                                ("max_pool2d_with_indices", ([2, 2], [0, 1]), "greater than zero")]:
        results = [x] if name == "avg_pool2d" else [x, x.long()]
        with pytest.raises(RuntimeError, match=message):
            run("aten::" + name, x, *args, results=results)


@pytest.mark.parametrize("size", [[1, 1], [3, 4], [7, 2], [2, 8], [9, 3]], ids=str)
def test_adaptive_pools_and_their_gradients(size):
    x = values(2, 3, 7, 8)
    compare("aten::_adaptive_avg_pool2d", x, size)
    compare("aten::_adaptive_avg_pool2d_backward", values(2, 3, *size), x)
    compare("aten::adaptive_max_pool2d", x, size)
    indices = torch.nn.functional.adaptive_max_pool2d(x, size, return_indices=True)[1]
    compare("aten::adaptive_max_pool2d_backward", values(2, 3, *size), x, indices)


def test_adaptive_pools_in_3d():
    x = values(2, 2, 4, 5, 6)
    compare("aten::_adaptive_avg_pool3d", x, [2, 3, 1])
    compare("aten::_adaptive_avg_pool3d_backward", values(2, 2, 2, 3, 1), x)
    compare("aten::adaptive_max_pool3d", x, [2, 3, 1])


def test_adaptive_average_keeps_infinity_in_its_window():
    x = values(1, 1, 5, 5)
    x[0, 0, 0, 0] = INF
    compare("aten::_adaptive_avg_pool2d", x, [3, 3])


def test_unpool_puts_values_back():
    x = values(2, 3, 6, 6)
    out, indices = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    compare("aten::max_unpool2d", out, indices, [6, 6])
    out, indices = torch.nn.functional.max_pool3d(values(2, 4, 4, 4), 2, return_indices=True)
    compare("aten::max_unpool3d", out, indices, [4, 4, 4], [2, 2, 2], [0, 0, 0])


def test_fractional_pools():
    x, samples = values(2, 3, 8, 9), torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(0))
    compare("aten::fractional_max_pool2d", x, [2, 3], [4, 5], samples)
    out, indices = torch.ops.aten.fractional_max_pool2d(x, [2, 3], [4, 5], samples)
    compare("aten::fractional_max_pool2d_backward", values(*out.shape), x, [2, 3], [4, 5], indices)
    x, samples = values(2, 3, 5, 6, 7), torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(0))
    compare("aten::fractional_max_pool3d", x, [2, 2, 2], [3, 3, 3], samples)
    out, indices = torch.ops.aten.fractional_max_pool3d(x, [2, 2, 2], [3, 3, 3], samples)
    compare("aten::fractional_max_pool3d_backward", values(*out.shape), x, [2, 2, 2], [3, 3, 3], indices, meta=False)
