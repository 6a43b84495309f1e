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


@pytest.mark.parametrize("width", [(), (3,), (2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_jagged_rows_are_padded_and_come_back(width, dtype):
    offsets = torch.tensor([0, 3, 3, 7, 8])  # one is empty
    x = torch.arange(8 * 4).reshape(8, 4)[:, :max(torch.Size(width).numel(), 1)].reshape(8, *width).to(dtype)
    for longest in (4, 6, 2):  # what is longer is cut
        compare("aten::_jagged_to_padded_dense_forward", x, [offsets], [longest], 9.0)
    (padded,) = run("aten::_jagged_to_padded_dense_forward", x, [offsets], [5])
    if width:
        compare("aten::_padded_dense_to_jagged_forward", padded, [offsets], 8, meta=False)
    assert torch.equal(run("aten::_padded_dense_to_jagged_forward", padded, [offsets], 8, results=[x])[0], x)
    assert run("aten::_padded_dense_to_jagged_forward", padded, [offsets * 0], 0, results=[x[:0]])[0].numel() == 0


def test_a_jagged_sequence_that_is_longer_than_its_padded_one_is_told():
    with pytest.raises(IndexError, match="out of range"):
        run("aten::_padded_dense_to_jagged_forward", torch.ones(2, 2, 1), [torch.tensor([0, 3, 4])], 4,
            results=[torch.ones(4, 1)])
    with pytest.raises(RuntimeError, match="only one dimension of a tensor can be jagged"):
        run("aten::_jagged_to_padded_dense_forward", torch.ones(4, 1), [torch.tensor([0, 4])] * 2, [4, 4],
            results=[torch.ones(1, 4, 4, 1)])
