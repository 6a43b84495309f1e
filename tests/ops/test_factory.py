"""Factories, fills and copies give what PyTorch gives on CPU."""
import pytest
import torch
from harness import compare, run

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_constant_tensors(dtype):
    for shape in ([2, 3], [], [0, 4]):
        compare("aten::zeros", shape, dtype=dtype)
        compare("aten::ones", shape, dtype=dtype)
        compare("aten::full", shape, True if dtype == torch.bool else 3, dtype=dtype)
    compare("aten::scalar_tensor", 1, dtype=dtype)
    x = torch.ones(2, 3).t()
    compare("aten::zeros_like", x, dtype=dtype)
    compare("aten::full_like", x, 2, dtype=dtype)
    compare("aten::new_full", x, [4], 2, dtype=dtype)
    compare("aten::fill.Scalar", x.to(dtype), 1)
    compare("aten::fill.Tensor", x.to(dtype), torch.tensor(1, dtype=dtype))


def test_large_integers_are_exact():
    compare("aten::full", [2], 2**62 + 1, dtype=torch.int64)
    compare("aten::full", [2], -(2**63), dtype=torch.int64)


def test_fill_wants_one_value():
    with pytest.raises(RuntimeError, match="0-dimension value tensor"):
        run("aten::fill.Tensor", torch.zeros(3), torch.ones(3), results=[torch.zeros(3)])


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_copies_convert_as_pytorch_does(source, target):
    x = torch.tensor([0.0, 1.0, -2.0, 3.75]).to(source)
    compare("aten::_to_copy", x, dtype=target)
    compare("aten::copy", torch.zeros(2, 4, dtype=target), x)


def test_clones_keep_layout():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    compare("aten::clone", x)
    compare("aten::clone", torch.randn(3, 4).t(), memory_format=torch.contiguous_format)
    compare("aten::clone", torch.randn(3, dtype=torch.complex64).conj())


def test_ranges():
    for dtype in (torch.int64, torch.int32, torch.float32, torch.bfloat16):
        compare("aten::arange", 7, dtype=dtype)
        compare("aten::arange.start", 3, 9, dtype=dtype)
        compare("aten::arange.start_step", 9, -2, -3, dtype=dtype)
    compare("aten::arange.start_step", 0.5, 2.0, 0.1)
    compare("aten::arange.start_step", 2**60, 2**60 + 5, 2)
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        compare("aten::linspace", -3, 10, 7, dtype=dtype)
        compare("aten::linspace", 5, 5, 1, dtype=dtype)
    compare("aten::linspace", 0.1, 0.2, 0)
    compare("aten::linspace.Tensor_Scalar", torch.tensor(1.5), 3, 4)
    compare("aten::logspace", 0, 3, 5, 10.0, rtol=5e-6)
    compare("aten::eye", 3)
    compare("aten::eye.m", 3, 5, dtype=torch.int64)


@pytest.mark.parametrize("rows, columns, offset", [(4, 4, 0), (5, 3, 1), (3, 6, -1), (3, 6, 4), (4, 4, -3), (1, 1, 0),
                                                   (0, 3, 0), (3, 3, 9), (40, 90, -5), (90, 40, 7)])
def test_the_indices_of_triangles(rows, columns, offset):
    compare("aten::tril_indices", rows, columns, offset)
    compare("aten::triu_indices", rows, columns, offset)
