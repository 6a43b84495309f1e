"""Sparse COO tensors of the device: what embeddings' gradients need, against the CPU."""
import pytest
import torch

D = "tpu"


def sparse(device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """f[3, 4, 2] with one dense dimension and an index that comes twice."""
    indices = torch.tensor([[0, 2, 2, 1], [1, 0, 0, 3]])
    values = torch.arange(8.0).view(4, 2).to(dtype)
    return torch.sparse_coo_tensor(indices.to(device), values.to(device), (3, 4, 2), check_invariants=False)


OPS = {
    "to dense": lambda x: x.to_dense(),
    "coalesce": lambda x: x.coalesce(),
    "coalesce of none": lambda x: torch.empty(3, 4, layout=torch.sparse_coo, device=x.device).coalesce(),
    "clone": lambda x: x.clone(),
    "detach": lambda x: x.detach(),
    "zero": lambda x: x.clone().zero_(),
    "plus itself": lambda x: x + x,
    "plus dense": lambda x: torch.ones(3, 4, 2, device=x.device) + x,
    "dense plus a multiple, in place": lambda x: torch.ones(3, 4, 2, device=x.device).add_(x, alpha=-0.5),
    "in place": lambda x: x.clone().add_(x, alpha=3),
    "times a number": lambda x: x * 3,
    "times a 0-d tensor, in place": lambda x: x.clone().mul_(torch.tensor(2.0, device=x.device)),
    "over a number": lambda x: x / 4,
    "mask of a dense tensor": lambda x: torch.arange(24.0, device=x.device).view(3, 4, 2).sparse_mask(x.coalesce()),
    "of a dense tensor": lambda x: x.to_dense().to_sparse(),
    "of a dense tensor, rows": lambda x: x.to_dense().to_sparse(1),
    "of a number": lambda x: torch.tensor(3.0, device=x.device).to_sparse(),
    "of none": lambda x: torch.zeros(2, 0, 3, device=x.device).to_sparse(2),
    "sum": lambda x: torch.sparse.sum(x),
}


@pytest.mark.parametrize("name", OPS)
def test_an_op_of_a_sparse_tensor_is_the_cpus(name, native):
    got, expected = OPS[name](sparse(D)), OPS[name](sparse("cpu"))
    assert got.layout == expected.layout and got.device.type == D
    if got.is_sparse:
        assert got.is_coalesced() == expected.is_coalesced()
        assert got._nnz() == expected._nnz() or not got.is_coalesced()  # else an index may come more than once
        got, expected = got.cpu().to_dense(), expected.to_dense()
    torch.testing.assert_close(got.cpu(), expected)


def test_it_comes_from_the_cpu_and_goes_back(native):
    there = sparse("cpu").to(D)
    assert there.device.type == D and there.shape == (3, 4, 2) and there.sparse_dim() == 2 and there.dense_dim() == 1
    back, first = there.cpu(), sparse("cpu")
    assert torch.equal(back._indices(), first._indices()) and torch.equal(back._values(), first._values())


def test_accumulated_sparse_gradients_are_the_cpus(native):
    grads = []
    for device in ("cpu", D):
        torch.manual_seed(0)
        table = torch.nn.Embedding(5, 3, sparse=True).to(device)
        for ids in ([0, 1, 1], [1, 4]):
            table(torch.tensor(ids, device=device)).square().sum().backward()
        assert table.weight.grad.is_sparse
        grads.append(table.weight.grad.to_dense().cpu())
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("call, words", [
    (lambda: torch.ones(2, 2, device=D).add_(sparse(D)), "sizes must be equal"),
    (lambda: sparse(D) + torch.ones(2, 2, device=D).to_sparse(), "cannot be added: give both"),
    (lambda: sparse(D) * sparse(D), "multiplied and divided by numbers only")])
def test_what_is_not_there_is_said_in_a_sentence(call, words):
    with pytest.raises((RuntimeError, NotImplementedError), match=words):
        call()
