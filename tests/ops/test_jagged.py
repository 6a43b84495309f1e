"""Between rows of differing lengths and their padded form."""
import pytest
import torch
from harness import compare, run

OFFSETS = [torch.tensor([0, 3, 3, 7]), torch.tensor([0, 7]), torch.tensor([0, 0, 0, 7], dtype=torch.int32)]


@pytest.mark.parametrize("length", [7, 4, 0])
@pytest.mark.parametrize("offsets", OFFSETS, ids=str)
@pytest.mark.parametrize("width", [(5,), (2, 3)])
def test_rows_are_padded_and_cut(width, offsets, length):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        values = torch.randn(7, *width).to(dtype)
        (got,) = run("aten::_jagged_to_padded_dense_forward", values, [offsets], [length], -1.0)
        expected = torch.full((len(offsets) - 1, length, *width), -1, dtype=dtype)
        for row, (begin, end) in enumerate(zip(offsets.tolist(), offsets.tolist()[1:])):
            kept = min(end - begin, length)
            expected[row, :kept] = values[begin:begin + kept]
        assert torch.equal(got, expected)


@pytest.mark.parametrize("length", [7, 4])
@pytest.mark.parametrize("offsets", OFFSETS, ids=str)
@pytest.mark.parametrize("width", [(5,), (2, 3)])
def test_padding_is_taken_away(width, offsets, length):
    dense = torch.randn(len(offsets) - 1, length, *width)
    expected = torch.zeros(7, *width)
    for row, (begin, end) in enumerate(zip(offsets.tolist(), offsets.tolist()[1:])):
        kept = min(end - begin, length)
        expected[begin:begin + kept] = dense[row, :kept]
    (got,) = run("aten::_padded_dense_to_jagged_forward", dense, [offsets], 7, results=[expected])
    assert torch.equal(got, expected)


def test_both_are_the_cpus_where_nothing_is_cut_or_empty():
    offsets, values = torch.tensor([0, 3, 4, 8]), torch.randn(8, 4)
    compare("aten::_jagged_to_padded_dense_forward", values, [offsets], [4], 0.5)
    compare("aten::_padded_dense_to_jagged_forward", torch.randn(3, 4, 4), [offsets], 8, meta=False)


def test_the_device_asks_for_the_number_of_items_and_takes_one_jagged_dimension():
    offsets, dense = torch.tensor([0, 1]), torch.randn(1, 2, 3)
    with pytest.raises(NotImplementedError, match="needs total_L on this device"):
        run("aten::_padded_dense_to_jagged_forward", dense, [offsets], results=[dense[0]])
    with pytest.raises(RuntimeError, match="Only one jagged dim is supported"):
        run("aten::_padded_dense_to_jagged_forward", dense, [offsets, offsets], 1, results=[dense[0, :1]])
