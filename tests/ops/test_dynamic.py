"""Ops whose result sizes depend on data."""
import pytest
import torch

from harness import compare, run, values

NAN = float("nan")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
def test_nonzero_lists_coordinates_in_order(dtype):
    x = values(3, 4, dtype=dtype) * (values(3, 4) > 0).to(dtype)
    compare("aten::nonzero", x, meta=False)
    compare("aten::nonzero", x.t(), meta=False)


def test_nonzero_lists_its_columns_one_after_the_other():
    """As PyTorch says of every device: so contiguous() copies, and a write to the copy leaves the positions alone."""
    for x in (torch.ones(2, 2), torch.eye(3), torch.zeros(2, 2), torch.ones(4)):
        (got,) = run("aten::nonzero", x)
        assert torch.equal(got, x.nonzero()) and (got.stride() == x.nonzero().stride() or not len(got))


def test_nonzero_of_0d_and_empty_tensors_and_of_nan():
    for x in (torch.tensor(0.0), torch.tensor(NAN), torch.empty(0, 3), torch.zeros(2, 2),
              torch.tensor([NAN, -0.0, 1.0])):
        compare("aten::nonzero", x, meta=False)


def test_nonzero_static_fills_or_cuts():
    for size in (0, 2, 9):
        compare("aten::nonzero_static", torch.tensor([[1, 0, 1], [0, 1, 1]]), size=size, fill_value=-7)


def test_masked_select_broadcasts_both_ways():
    compare("aten::masked_select", values(3, 4), values(4) > 0, meta=False)
    compare("aten::masked_select", values(4), values(3, 1) > 0, meta=False)
    compare("aten::masked_select", values(3, 4).t(), torch.zeros(4, 3, dtype=torch.bool), meta=False)
    with pytest.raises(RuntimeError, match="BoolTensor"):
        run("aten::masked_select", values(3), torch.tensor([1, 0, 1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool], ids=str)
def test_unique(dtype):
    x = values(4, 5, dtype=dtype).round() if dtype.is_floating_point else values(4, 5, dtype=dtype)
    compare("aten::_unique2", x, True, True, True, meta=False)
    compare("aten::_unique2", x, True, False, False, meta=False)
    compare("aten::_unique", x, True, True, meta=False)
    compare("aten::unique_consecutive", x.flatten().sort()[0], True, True, meta=False)


def test_unique_keeps_every_nan_and_one_zero():
    x = torch.tensor([NAN, 1.0, 0.0, NAN, -0.0, 1.0])
    compare("aten::_unique2", x, True, True, True, meta=False)
    compare("aten::_unique2", torch.empty(0), True, True, True, meta=False)


def test_unique_slices_along_a_dimension():
    x = torch.tensor([[1, 0, 2], [1, 0, 1], [1, 0, 2], [0, 5, 5]])
    compare("aten::unique_dim", x, 0, True, True, True, meta=False)
    compare("aten::unique_dim", x.t(), 1, True, True, True, meta=False)
    compare("aten::unique_dim_consecutive", x[[0, 2, 1, 3]], 0, True, True, meta=False)
    compare("aten::unique_consecutive", x[[0, 2, 1, 3]], True, True, 0, meta=False)


def test_bincount():
    x = torch.tensor([3, 1, 1, 0, 6])
    compare("aten::bincount", x, meta=False)
    compare("aten::bincount", x, None, 10, meta=False)
    compare("aten::bincount", x.int(), values(5), meta=False)
    compare("aten::bincount", torch.empty(0, dtype=torch.int64), None, 3, meta=False)
    with pytest.raises((RuntimeError, IndexError)):
        run("aten::bincount", torch.tensor([1, -1]))


def test_repeat_interleave():
    compare("aten::repeat_interleave.Tensor", torch.tensor([2, 0, 3, 1]), meta=False)
    compare("aten::repeat_interleave.Tensor", torch.tensor([0, 0, 1], dtype=torch.int32), meta=False)
    compare("aten::repeat_interleave.Tensor", torch.tensor([0, 1, 0, 0]), meta=False)
    compare("aten::repeat_interleave.Tensor", torch.tensor([2, 1]), output_size=3, meta=False)
    compare("aten::repeat_interleave.Tensor", torch.empty(0, dtype=torch.int64), meta=False)


def test_histograms():
    x = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 4.5, -1.0, NAN])
    compare("aten::histc", x, 4, 0, 4)
    compare("aten::histc", x[:6], 3)
    compare("aten::histc", torch.ones(3), 4)
    compare("aten::histc", x, 1, 0, 4)
    experts = torch.tensor([3, 0, 2, 0, 3, 3], dtype=torch.int32)
    assert run("aten::histc", experts, 4, 0, 3, results=[experts[:4]])[0].tolist() == [2, 0, 1, 3]
    compare("aten::histogram.bin_ct", x[:6], 4, meta=False)
    compare("aten::histogram.bin_ct", x[:6], 4, range=[0.0, 4.0], weight=values(6), density=True, meta=False)
    compare("aten::histogram.bins_tensor", x[:7], torch.tensor([0.0, 1.0, 2.5, 4.5]), meta=False)
    compare("aten::histogram.bins_tensor", x[:7], torch.tensor([1.0, 2.5]), meta=False)
    with pytest.raises(RuntimeError, match="max must be larger"):
        run("aten::histc", x, 4, 3, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_histograms_of_points_by_counts_and_by_edges(dtype):
    x, weight = values(40, 2, dtype=dtype), values(40, dtype=dtype).abs()
    edges = [torch.tensor([-4.0, 0, 1], dtype=dtype), torch.tensor([-2.0, 0, 0.5, 8], dtype=dtype)]
    given = {"range": [-4.0, 4.0, -2.0, 2.0]}
    compare("aten::_histogramdd_bin_edges", x, [3, 4], meta=False)
    compare("aten::_histogramdd_bin_edges", x, [3, 4], **given, meta=False)
    for options in ({}, {"weight": weight, "density": True}):
        compare("aten::_histogramdd_from_bin_cts", x, [3, 4], **options, meta=False)
        compare("aten::_histogramdd_from_bin_cts", x, [3, 4], **given, **options, meta=False)
        compare("aten::_histogramdd_from_bin_tensors", x, edges, **options, meta=False)
    compare("aten::_histogramdd_from_bin_cts", values(2, 3, 2, dtype=dtype), [2, 2], meta=False)
    for few in (torch.empty(0, 2, dtype=dtype), torch.ones(3, 2, dtype=dtype)):
        compare("aten::_histogramdd_from_bin_cts", few, [2, 2], meta=False)
        compare("aten::_histogramdd_bin_edges", few, [2, 2], meta=False)


def test_bad_histograms_of_points_are_refused():
    x = values(5, 2)
    for bins, options, text in (([2, 0], {}, "bins must be > 0"), ([2], {}, "expected 2 sequences"),
                                ([2, 2], {"range": [0.0, 1.0]}, "range should have 4 elements"),
                                ([2, 2], {"range": [1.0, 0.0, 0.0, 1.0]}, "min should not exceed max"),
                                ([2, 2], {"weight": values(3)}, "same shape")):
        with pytest.raises(RuntimeError, match=text):
            run("aten::_histogramdd_from_bin_cts", x, bins, **options)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        run("aten::_histogramdd_from_bin_cts", values(5), [2])
