"""Indexed reads: index, gather, take, index_select, embedding and its bags."""
import pytest
import torch

from harness import compare, run, values

I64 = torch.int64
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_index_reads_every_dtype(dtype):
    compare("aten::index.Tensor", values(4, 5, dtype=dtype), [torch.tensor([[0, -1], [2, 3]])])


A, B = torch.tensor([0, 2, -1]), torch.tensor([[1], [0]])


@pytest.mark.parametrize("indices", [[A], [None, A], [A, A], [None, A, B], [A, None, B], [B, A, None, A],
                                     [None, None, B, A],
                                     [A.int()], [torch.tensor(1)], [torch.empty(0, dtype=I64), None, A[:1]]], ids=str)
def test_index_puts_the_indexed_dimensions_where_pytorch_does(indices):
    compare("aten::index.Tensor", values(3, 4, 5, 3), indices)


def test_index_reads_through_a_transposed_view():
    compare("aten::index.Tensor", values(4, 5, 6).permute(2, 0, 1), [None, A, B])


def test_index_of_an_empty_dimension_is_an_index_error():
    with pytest.raises(IndexError):
        run("aten::index.Tensor", torch.empty(0, 3), [A])


@pytest.mark.parametrize("error, name, args", [
    (IndexError, "aten::index.Tensor", (torch.zeros(3, 2), [torch.tensor([0, 3])])),
    (IndexError, "aten::index.Tensor", (torch.zeros(3, 2), [torch.tensor([-4])])),
    (RuntimeError, "aten::gather", (torch.zeros(3, 2), 0, torch.tensor([[3, 0]]))),
    (RuntimeError, "aten::gather", (torch.zeros(3, 2), 1, torch.tensor([[-1], [0]]))),
    (IndexError, "aten::index_select", (torch.zeros(3, 2), 0, torch.tensor([3]))),
    (IndexError, "aten::embedding", (torch.zeros(3, 2), torch.tensor([[0, 3]]))),
    (IndexError, "aten::take", (torch.zeros(3, 2), torch.tensor([6]))),
    (RuntimeError, "aten::scatter.value", (torch.zeros(3), 0, torch.tensor([3]), 1.0)),
    (IndexError, "aten::index_put", (torch.zeros(3), [torch.tensor([3])], torch.ones(1), False)),
    (IndexError, "aten::index_copy", (torch.zeros(3), 0, torch.tensor([-1]), torch.ones(1))),
], ids=lambda x: x if isinstance(x, str) else "")
def test_an_index_out_of_range_raises_what_it_raises_on_the_cpu(error, name, args):
    with pytest.raises(error, match="index out of range") as raised:
        run(name, *args)
    assert raised.type is error


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_takes_along_a_dimension(dtype, dim):
    index = torch.tensor([[[0, 1], [1, 0]], [[1, 1], [0, 0]]])
    compare("aten::gather", values(2, 3, 4, dtype=dtype), dim, index)


def test_gather_takes_0d_and_empty_tensors():
    compare("aten::gather", values(), 0, torch.tensor(0))
    compare("aten::gather", values(3, 2), 0, torch.empty(0, 2, dtype=I64))
    compare("aten::gather", values(4, 6).t(), 1, torch.zeros(6, 2, dtype=I64))


@pytest.mark.parametrize("index", [torch.tensor([2, 0, 2]), torch.tensor([1], dtype=torch.int32), torch.tensor(1),
                                   torch.empty(0, dtype=I64)], ids=str)
def test_index_select_reads_rows(index):
    compare("aten::index_select", values(3, 4, 3), 0, index)
    compare("aten::index_select", values(3, 4, 3).transpose(0, 2), -1, index)


def test_take_wraps_negative_indices():
    compare("aten::take", values(3, 4).t(), torch.tensor([[0, -1], [11, -12]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("by_frequency", [False, True])
def test_embedding_and_its_gradient(dtype, by_frequency):
    indices = torch.tensor([[0, 2, 2], [5, 0, 2]])
    compare("aten::embedding", values(6, 4, dtype=dtype), indices, 2)
    compare("aten::embedding_dense_backward", values(2, 3, 4, dtype=dtype), indices, 6, 2, by_frequency)


def test_embedding_renorm_scales_only_long_rows():
    compare("aten::embedding_renorm", values(5, 3), torch.tensor([0, 3, 3]), 1.5, 2.0, meta=False)


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [-1, 4])
def test_embedding_bag_reduces_each_bag(mode, padding):
    weight, indices, offsets = values(8, 3), torch.tensor([1, 2, 4, 5, 4, 3, 7]), torch.tensor([0, 3, 3, 5])
    expected = torch._embedding_bag(weight, indices, offsets, False, mode, False, None, False, padding)
    got = run("aten::_embedding_bag", weight, indices, offsets, False, mode, False, None, False, padding)
    torch.testing.assert_close(got[0], expected[0])
    if mode == 2:
        torch.testing.assert_close(got[3], expected[3])
    # The gradient, with the tables that the device's own forward gives.
    leaf = weight.clone().requires_grad_()
    out = torch.nn.functional.embedding_bag(indices, leaf, offsets, mode=["sum", "mean", "max"][mode],
                                            padding_idx=None if padding < 0 else padding)
    grad = values(*out.shape)
    out.backward(grad)
    back = run("aten::_embedding_bag_backward", grad, indices, offsets,
               got[1], got[2], got[3], 8, False, mode, False, None, padding)
    torch.testing.assert_close(back[0], leaf.grad)
