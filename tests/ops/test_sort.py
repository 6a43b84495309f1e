import pytest
import torch
from checks import FLOATS, INF, INTEGERS, NAN, SPECIAL, compare_but, layouts, make
from harness import compare, run

REAL = (*FLOATS, *INTEGERS)
DISTINCT = torch.stack([torch.randperm(50, generator=torch.Generator().manual_seed(i)) for i in range(6)])


def cases(dtype):
    yield from layouts(dtype)[:4]
    if dtype in FLOATS:
        yield SPECIAL.to(dtype)
        yield -SPECIAL.to(dtype)


@pytest.mark.parametrize("dtype", [*REAL, torch.bool, torch.uint8])
def test_sort_is_stable_and_puts_nan_last(dtype):
    for x in (*cases(dtype), make(dtype, 0, 3), make(dtype, 200)):
        for descending in (False, True):
            compare("aten::sort.stable", x, stable=True, dim=-1, descending=descending)
    compare("aten::sort", make(dtype, 3, 4), 0)


# Of equal values PyTorch's CPU kernels may give any place, so places are compared on distinct values below.
@pytest.mark.parametrize("dtype", REAL)
def test_top_k_and_order_statistics_equal_the_cpus(dtype):
    for x in cases(dtype):
        for k in {1, x.shape[-1] if x.dim() else 1}:
            compare_but("aten::kthvalue", (1,), x, k, -1)
            for largest in (False, True):
                compare_but("aten::topk", (1,), x, k, -1, largest)
        compare_but("aten::median.dim", (1,), x, -1)
        compare_but("aten::nanmedian.dim", (1,), x, -1, True)
        compare("aten::median", x)
        compare("aten::nanmedian", x)


@pytest.mark.parametrize("dtype", REAL)
def test_places_of_distinct_values_equal_the_cpus(dtype):
    x = DISTINCT.to(dtype)
    compare("aten::topk", x, 3, 1, True)
    compare("aten::topk", x.t(), 3, 0, True)
    compare("aten::topk", x, 5, 1, False)
    compare("aten::kthvalue", x, 7, 1)
    compare("aten::median.dim", x, 1)
    compare("aten::nanmedian.dim", x, 1)


def test_extreme_integers_keep_their_order():
    x = torch.tensor([2**63 - 1, -2**63, 5, 2**62])
    compare("aten::topk", x, 2, 0, False)
    compare("aten::topk", x, 2, 0, True)


# PyTorch's CPU kernel gives no defined mode when there are NaN.
@pytest.mark.parametrize("dtype", REAL)
def test_the_mode_is_the_smallest_of_the_most_frequent_values(dtype):
    for x in (torch.tensor([3, 1, 3, 1, 2]), torch.tensor([[3, 1, 3], [5, 5, 1]]), torch.tensor(4)):
        compare_but("aten::mode", (1,), x.to(dtype), -1)
    value, place = run("aten::mode", torch.tensor([3, 1, 3, 1, 3]).to(dtype), 0)
    assert value == 3 and place in (0, 2, 4)


def test_a_k_out_of_range_is_refused():
    pair = [torch.zeros(3), torch.zeros(3, dtype=torch.int64)]
    with pytest.raises(RuntimeError, match="out of range"):
        run("aten::topk", torch.zeros(3, 4), 5, 1, results=pair)
    with pytest.raises(RuntimeError, match="out of range"):
        run("aten::kthvalue", torch.zeros(3, 4), 0, 1, results=pair)


@pytest.mark.parametrize("right", [False, True])
def test_binary_search_equals_the_cpus(right):
    rows, values = torch.sort(make(torch.float32, 3, 10), -1)[0], make(torch.float32, 3, 4)
    boundaries = rows[0].contiguous()
    compare("aten::searchsorted.Tensor", rows, values, right=right)
    compare("aten::searchsorted.Tensor", boundaries, values, right=right, out_int32=True)
    compare("aten::searchsorted.Scalar", boundaries, 0.3, right=right)
    with_nan = torch.tensor([1.0, 3, 5, NAN])
    compare("aten::searchsorted.Tensor", with_nan, torch.tensor([1, NAN, INF, -INF, 3]), right=right)
    compare("aten::searchsorted.Tensor", torch.tensor([1, 3, 3, 7]), torch.tensor([0, 1, 2, 3, 7, 8]), right=right)
    compare("aten::bucketize.Tensor", values, boundaries, right=right)
    compare("aten::bucketize.Tensor", torch.tensor([1.5, 3.0]), torch.tensor([1, 3, 5]), right=right)
    compare("aten::bucketize.Scalar", 0.3, boundaries, right=right)


def test_binary_search_takes_a_sorter_a_side_and_nothing():
    rows, values = make(torch.float32, 3, 10), make(torch.float32, 3, 4)
    compare("aten::searchsorted.Tensor", rows, values, sorter=rows.argsort(-1))
    compare("aten::searchsorted.Tensor", rows.sort(-1)[0], values, side="right")
    compare("aten::searchsorted.Tensor", torch.zeros(0), values)
    compare("aten::bucketize.Tensor", torch.zeros(0), torch.tensor([1.0]))
