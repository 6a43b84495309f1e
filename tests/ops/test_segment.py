"""Reductions over segments of rows."""
import pytest
import torch
from harness import compare, run

NAN = float("nan")
REDUCTIONS = ("sum", "mean", "max", "min", "prod")
CUTS = [((6, 3), 0, {"lengths": torch.tensor([2, 0, 3, 1])}), ((6,), 0, {"offsets": torch.tensor([0, 2, 2, 6])}),
        ((2, 6, 3), 1, {"lengths": torch.tensor([[2, 0, 4], [1, 2, 3]])}),
        ((2, 6), 1, {"offsets": torch.tensor([[0, 0, 4, 6], [0, 1, 2, 6]])}),
        ((0, 2), 0, {"lengths": torch.tensor([0, 0])})]


@pytest.mark.parametrize("initial", [None, 2.0])
@pytest.mark.parametrize("sizes, axis, cuts", CUTS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions_of_segments_and_their_gradients(reduction, sizes, axis, cuts, initial):
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        data = torch.randn(sizes, dtype=dtype)
        compare("aten::segment_reduce", data, reduction, **cuts, axis=axis, initial=initial)
        output = torch.segment_reduce(data, reduction, **cuts, axis=axis, initial=initial)
        compare("aten::_segment_reduce_backward", torch.randn_like(output), output, data, reduction, **cuts, axis=axis,
                initial=initial, rtol=1e-5)  # of products: a rounding for each factor, up to a segment's rows


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_equal_rows_and_zeros_and_nan_share_a_gradient_as_on_the_cpu(reduction):
    lengths = torch.tensor([3, 2, 0, 3, 2, 2])
    data = torch.tensor([0.0, 3, 3, NAN, 5, 0, 0, 7, NAN, NAN, 0, NAN])
    output = torch.segment_reduce(data, reduction, lengths=lengths)
    compare("aten::segment_reduce", data, reduction, lengths=lengths)
    compare("aten::_segment_reduce_backward", torch.tensor([2.0, 3, 4, 5, 6, 7]), output, data, reduction, lengths=lengths)


def test_rows_of_no_segment_count_nowhere():
    data = torch.arange(8.0)
    compare("aten::segment_reduce", data, "sum", lengths=torch.tensor([2, 3]), unsafe=True)
    compare("aten::segment_reduce", data, "max", offsets=torch.tensor([1, 3, 6]))
    got = run("aten::_segment_reduce_backward", torch.ones(2), torch.tensor([3.0, 12.0]), data, "sum",
              offsets=torch.tensor([1, 3, 6]))[0]
    assert got.tolist() == [0, 1, 1, 1, 1, 1, 0, 0]


def test_bad_segments_are_refused():
    data, lengths = torch.ones(4), torch.tensor([2, 2])
    like = [torch.empty(2)]
    with pytest.raises(RuntimeError, match="got foo"):
        run("aten::segment_reduce", data, "foo", lengths=lengths, results=like)
    with pytest.raises(RuntimeError, match="lengths or offsets"):
        run("aten::segment_reduce", data, "sum", results=like)
    with pytest.raises(RuntimeError, match="last dimension of lengths"):
        run("aten::segment_reduce", torch.ones(2, 4), "sum", lengths=lengths, axis=1, results=like)
