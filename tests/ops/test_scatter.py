"""Indexed writes, functional and in place through a view."""
import pytest
import torch

from harness import compare, overload, run, run_in_place, values

I64 = torch.int64
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
REAL = [torch.float32, torch.float16, torch.int64, torch.int32]


A, B = torch.tensor([0, 2, -1]), torch.tensor([[1], [0]])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_writes_every_dtype(dtype, accumulate):
    indices = [torch.tensor([0, 3, 3]) if accumulate else torch.tensor([0, 3, 1])]
    compare("aten::index_put", values(4, 5, dtype=dtype), indices, values(3, 5, dtype=dtype), accumulate)


@pytest.mark.parametrize("indices, shape", [([A], (3, 4, 5, 3)), ([None, A], (4, 3, 5, 3)), ([A, A], (3, 5, 3)),
                                            ([None, A, B], (4, 2, 3, 3)), ([A, None, B], (2, 3, 4, 3)), ([A], (3,)),
                                            ([A], ()), ([torch.empty(0, dtype=I64)], (0, 4, 5, 3))], ids=str)
def test_index_put_broadcasts_values_to_the_indexed_shape(indices, shape):
    compare("aten::index_put", values(4, 4, 5, 3), indices, values(*shape), True)


@pytest.mark.parametrize("mask_rank, shape", [(1, ()), (2, ()), (2, (3,)), (1, (4, 3)), (3, (1,))])
def test_index_put_with_a_mask_writes_a_value_that_does_not_depend_on_the_position(mask_rank, shape):
    x = values(3, 4, 3)
    mask = values(*x.shape[:mask_rank]) > 0
    compare("aten::index_put", x, [mask], values(*shape), False)
    compare("aten::index_put", x, [mask], values(*shape), True)


def test_index_put_refuses_values_of_another_shape():
    with pytest.raises(RuntimeError, match="shape mismatch"):
        run("aten::index_put", values(4, 5), [A], values(2, 5), False, results=[values(4, 5)])


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_row_writes(dtype, dim):
    x, index = values(4, 4, 2, dtype=dtype), torch.tensor([3, 0])
    source = values(4, 4, 2, dtype=dtype).narrow(dim, 0, 2)
    compare("aten::index_copy", x, dim, index, source)
    compare("aten::index_add", x, dim, index, source, alpha=2)
    compare("aten::index_fill.int_Scalar", x, dim, index - 4, 7)
    for reduce in ("prod", "mean", "amax", "amin"):
        for include_self in (True, False):
            compare("aten::index_reduce", x, dim, index, source, reduce, include_self=include_self)


def test_row_writes_take_0d_and_empty_tensors():
    compare("aten::index_add", values(), 0, torch.tensor([0]), values())
    compare("aten::index_copy", values(), 0, torch.tensor(0), values())
    compare("aten::index_fill.int_Scalar", values(3), 0, torch.empty(0, dtype=I64), 1)
    compare("aten::index_add", torch.empty(0, 3), 1, torch.tensor([0]), torch.empty(0, 1))


def test_index_add_refuses_a_source_of_another_shape():
    with pytest.raises(RuntimeError):
        run("aten::index_add", values(4, 5), 0, torch.tensor([0, 1]), values(2, 4))


INDEX = torch.tensor([[0, 2, 1], [3, 0, 3]])


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(dtype, reduce, include_self):
    compare("aten::scatter_reduce.two", values(4, 4, dtype=dtype), 0, INDEX, values(3, 3, dtype=dtype), reduce,
            include_self=include_self)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scatter_and_scatter_add(dtype):
    x, src = values(4, 4, dtype=dtype), values(3, 3, dtype=dtype)
    compare("aten::scatter_add", x, 0, INDEX, src)
    compare("aten::scatter_add", x, 1, INDEX, src)
    unique = torch.tensor([[0, 1, 2], [3, 2, 1]])
    compare("aten::scatter.src", x, 1, unique, src)
    compare("aten::scatter.value", x, 0, INDEX, 3)
    if dtype != torch.bool:
        compare("aten::scatter.reduce", x, 1, unique, src, reduce="add")
        compare("aten::scatter.value_reduce", x, 1, unique, 2, reduce="multiply")


def test_scatter_propagates_nan():
    nan = float("nan")
    x = torch.tensor([nan, 1.0, 2.0])
    compare("aten::scatter_reduce.two", x, 0, torch.tensor([0, 1, 2]), torch.tensor([1.0, nan, 3.0]), "amax")
    compare("aten::scatter_reduce.two", x, 0, torch.tensor([0, 1, 2]), torch.tensor([1.0, nan, 3.0]), "amin")


@pytest.mark.parametrize("accumulate", [False, True])
def test_put_counts_in_the_flattened_tensor(accumulate):
    compare("aten::put", values(3, 4).t(), torch.tensor([[0, -1], [5, 7]]), values(2, 2), accumulate)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_masked_scatter_takes_the_source_in_order(dtype):
    x = values(3, 4, dtype=dtype)
    compare("aten::masked_scatter", x, values(3, 4) > 0, values(12, dtype=dtype))
    compare("aten::masked_scatter", x, values(4) > 0, values(20, dtype=dtype))
    compare("aten::masked_scatter_backward", values(3, 4), values(3, 4) > 0, [20], meta=False)


def test_masked_scatter_refuses_a_mask_that_is_no_mask():
    with pytest.raises(RuntimeError, match="boolean masks"):
        run("aten::masked_scatter", values(3), torch.tensor([1, 0, 1]), values(3), results=[values(3)])


VIEWS = {
    "whole": lambda x: x,
    "slice": lambda x: x[1:5, 2:8:2],
    "row": lambda x: x[3:4],
    "transposed": lambda x: x.t()[1:5],
    "selected": lambda x: x.unflatten(1, (2, 5))[:, 1],
    "reshaped": lambda x: x.view(3, 2, 10),
    "split and selected": lambda x: x.view(6, 5, 2)[1:, :, 1],
    "as_strided": lambda x: x.as_strided((4, 3), (11, 2), 3),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_writes_in_place_through_a_view(view):
    shape = view(values(6, 10)).shape
    n = shape[-1]
    rows, first = torch.tensor([0, n - 1]), torch.tensor([0, -1, 0])
    along = torch.arange(values(*shape).numel()).view(shape) % n
    mask = values(*shape) > 0
    for name, *args in [
        ("index_copy", -1, rows, values(*shape[:-1], 2)),
        ("index_add", -1, rows, values(*shape[:-1], 2)),
        ("index_fill.int_Scalar", -1, rows, 7.0),
        ("index_put", [first], values(3, *shape[1:]), True),
        ("index_put", [mask], torch.tensor(1.0), False),
        ("scatter_add", -1, along, values(*shape)),
        ("scatter.value", -1, along, 3.0),
        ("scatter_reduce.two", -1, along, values(*shape), "amax", True),
        ("scatter_reduce.two", -1, along, values(*shape), "mean", False),
        ("masked_scatter", mask, values(100)),
        ("put", torch.tensor([0, -1, -1]), values(3), True),
    ]:
        kwargs = {"include_self": args.pop()} if name == "scatter_reduce.two" else {}
        expected, base = values(6, 10), values(6, 10)
        view(expected).copy_(overload("aten::" + name)(view(expected).clone(), *args, **kwargs))
        got = run_in_place("aten::" + name, view(base), *args, **kwargs)
        torch.testing.assert_close(got, expected.flatten(), msg=lambda text: f"{name}: {text}")
