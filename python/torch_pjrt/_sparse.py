"""Sparse COO tensors, as the gradients of embeddings are: made, moved, combined, and added to dense tensors.

A sparse tensor is a dense tensor of indices [sparse dimensions, entries] and one of values [entries, ...]: what only
hands these two parts on is PyTorch's own kernel, and what computes is written in ops of the parts. Other ops raise.
"""
import math
from collections.abc import Callable

import torch

# PyTorch's kernels of the CPU's sparse tensors that read no element.
_STRUCTURAL = (
    "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "_indices", "_values", "indices",
    "values", "_nnz", "sparse_dim", "dense_dim", "_dimI", "_dimV", "is_coalesced", "_coalesced_", "empty.memory_format",
    "clone", "copy_", "copy_sparse_to_sparse_", "sparse_resize_", "sparse_resize_and_clear_", "zero_", "_to_dense",
)


def _structural(name: str) -> Callable:
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.SparseCPU)
    return lambda *arguments, **options: op.redispatch(keys, *arguments, **options)


def _like(x: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, is_coalesced: bool) -> torch.Tensor:
    return torch.sparse_coo_tensor(indices, values, x.shape, check_invariants=False, is_coalesced=is_coalesced)


def _to_sparse_of(x: torch.Tensor, sparse_dim: int) -> torch.Tensor:
    """The entries that hold anything but zero, in order. How many there are is read."""
    if not (x.dim() and 0 < sparse_dim <= x.dim() or x.dim() == sparse_dim == 0):
        raise RuntimeError(f"sparse_dim = {sparse_dim} is not within 1 and the {x.dim()} dimensions of the tensor")
    sizes, rest = x.shape[:sparse_dim], x.shape[sparse_dim:]
    entries = x.reshape(math.prod(sizes), *rest)
    taken = (entries != 0).reshape(len(entries), math.prod(rest)).any(1)
    values = entries[taken.nonzero().squeeze(1)]
    return torch.sparse_coo_tensor(taken.reshape(sizes).nonzero().t(), values, x.shape, check_invariants=False,
                                   is_coalesced=True)


def _to_sparse(x: torch.Tensor, *, layout: torch.layout | None = None, blocksize=None, dense_dim: int | None = None):
    if layout not in (None, torch.sparse_coo):
        raise NotImplementedError(f"the tpu device has no {layout} tensors; make it of x.cpu()")
    if blocksize is not None:
        raise RuntimeError("to_sparse: a blocksize belongs to block-compressed layouts only")
    return _to_sparse_of(x, x.dim() - (dense_dim or 0))


def _coalesce(x: torch.Tensor) -> torch.Tensor:
    """Equal indices become one, with the sum of their values. How many there are is read."""
    indices, values = x._indices(), x._values()
    sizes = x.shape[:x.sparse_dim()]
    steps = [math.prod(sizes[d + 1:]) for d in range(len(sizes))]
    flat = sum(step * row for step, row in zip(steps, indices.unbind()))
    flat, place = torch.unique(flat, return_inverse=True)
    summed = values.new_zeros((len(flat), *values.shape[1:])).index_add_(0, place, values)
    return _like(x, torch.stack([flat // step % size for step, size in zip(steps, sizes)]), summed, True)


def _add(x: torch.Tensor, other: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:
    if x.is_sparse and other.is_sparse:
        if x.shape != other.shape or x.sparse_dim() != other.sparse_dim():
            raise RuntimeError(f"sparse tensors of sizes {tuple(x.shape)} and {tuple(other.shape)} cannot be added: "
                               "give both the same sizes and sparse dimensions")
        return _like(x, torch.cat([x._indices(), other._indices()], 1),
                     torch.cat([x._values(), other._values() * alpha]), False)
    if x.is_sparse:
        return other.mul(alpha).add_(x)
    return x.clone().add_(other, alpha=alpha)


def _add_(x: torch.Tensor, other: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:
    if x.is_sparse:
        return x.copy_(_add(x, other, alpha=alpha))
    if x.shape != other.shape:
        raise RuntimeError(f"a sparse tensor of size {tuple(other.shape)} cannot be added to a dense one of size "
                           f"{tuple(x.shape)}: sizes must be equal")
    values = other._values()
    x.index_put_(other._indices().unbind(), (values if alpha == 1 else values * alpha).to(x.dtype), accumulate=True)
    return x


def _sparse_mask(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The elements of a dense tensor where the mask has entries."""
    if x.is_sparse:
        raise NotImplementedError("aten::sparse_mask: a sparse tpu tensor cannot be masked; make it dense first")
    return _like(x, mask._indices().clone(), x[mask._indices().unbind()], mask.is_coalesced())


def _scaled(compute: Callable) -> Callable:
    """A product or quotient with a number or a 0-d tensor is one of the values."""

    def kernel(x: torch.Tensor, other: torch.Tensor | float) -> torch.Tensor:
        number = not isinstance(other, torch.Tensor) or not other.is_sparse and not other.dim()
        if number and x.is_sparse:
            return _like(x, x._indices(), compute(x._values(), other), x.is_coalesced())
        raise NotImplementedError("sparse tpu tensors are multiplied and divided by numbers only: make them dense")

    return kernel


def _in_place(kernel: Callable) -> Callable:
    return lambda x, other: x.copy_(kernel(x, other))


_mul, _div = _scaled(torch.mul), _scaled(torch.div)
_COMPUTING = {"_coalesce": _coalesce, "add.Tensor": _add, "add_.Tensor": _add_, "sparse_mask": _sparse_mask,
              "mul.Tensor": _mul, "mul_.Tensor": _in_place(_mul), "div.Tensor": _div, "div_.Tensor": _in_place(_div)}

# Of a dense tensor.
_MAKING = {"_to_sparse": _to_sparse, "_to_sparse.sparse_dim": _to_sparse_of}

# Their end would take the kernels away.
_of_sparse, _of_dense = (torch.library.Library("aten", "IMPL", key) for key in ("SparsePrivateUse1", "PrivateUse1"))


def apply() -> None:
    for name in _STRUCTURAL:
        _of_sparse.impl(name, _structural(name))
    for library, kernels in ((_of_sparse, _COMPUTING), (_of_dense, _MAKING)):
        for name, kernel in kernels.items():
            library.impl(name, kernel)
