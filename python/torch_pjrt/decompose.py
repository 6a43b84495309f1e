"""Ops without a lowering: PyTorch's own decomposition, run once over fake tensors, gives the ops of one program.

A fake tensor is a view of its storage, and each storage is a value of the program, so views need no node. C++ calls
`trace` on a new key only; the plan that comes of it is found by the key afterwards.
"""
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# op -> why its newest decomposition was given up, for `doctor` and curious users.
failures: dict[str, str] = {}

aten = torch.ops.aten

# Memory that nobody wrote yet.
EMPTY = {aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default, aten.new_empty.default,
         aten.new_empty_strided.default, aten.empty_permuted.default}


class Unsupported(Exception):
    """The op has neither a lowering nor a decomposition."""


def _table() -> dict:
    global _merged
    if _merged is None:
        _merged = {**decomposition_table, **core_aten_decompositions()}
    return _merged


_merged: dict | None = None


def overload(name: str) -> torch._ops.OpOverload:
    """The overload of a full name: "aten::add.Tensor"."""
    namespace, _, rest = name.partition("::")
    base, _, kind = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), kind or "default")


def positional(func: torch._ops.OpOverload, args: tuple, kwargs: dict) -> list:
    """All arguments in the order of the schema, defaults filled in."""
    values = list(args)
    for argument in func._schema.arguments[len(args):]:
        values.append(kwargs.get(argument.name, argument.default_value))
    return values


def _gives_view(func: torch._ops.OpOverload) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


def _dense(result: Any) -> Any:
    """A node's result is an array of its own: some kernels (aten::copy) give a part of a larger storage."""
    if not isinstance(result, torch.Tensor):
        return result
    dense = torch.ops.aten.is_non_overlapping_and_dense.default(result)
    if dense and not result.storage_offset():
        return result
    return torch.empty_strided(result.shape, result.stride() if dense else torch._prims_common.make_contiguous_strides_for(
        result.shape), dtype=result.dtype, device=result.device)


class Recorder(TorchDispatchMode):
    """Gives each op that has a lowering to the builder, and opens every other one."""

    def __init__(self, builder: Any):
        super().__init__()
        self.builder = builder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _gives_view(func) or func.namespace == "prim":  # prim: questions, as prim::device
            return func(*args, **kwargs)
        if func in EMPTY:
            result = func(*args, **kwargs)
            self.builder.empty(result)
            return result
        name = func.name()
        if self.builder.can_lower(name):
            return self.record(func, name, args, kwargs)
        with self:
            return self.open(func, args, kwargs)

    def open(self, func, args, kwargs):
        """The op by what PyTorch makes it of."""
        if func in _table():
            result = _table()[func](*args, **kwargs)
        else:
            result = func.decompose(*args, **kwargs)
        if result is NotImplemented:
            raise Unsupported(func.name())
        return result

    def record(self, func, name, args, kwargs):
        result = func(*args, **kwargs)
        if not func._schema.is_mutable:
            result = tree_map(_dense, result)
        # Numbers and None among the results are no values of the program.
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.builder.node(name, positional(func, args, kwargs), tensors)
        return result


def fake(tensor: torch.Tensor) -> torch.Tensor:
    """A fake tensor of the same geometry over a storage of its own, of the same size."""
    if tensor.is_conj() or tensor.is_neg():
        raise Unsupported("lazy conjugates and negatives")
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    base = torch.empty(count, dtype=tensor.dtype, device=tensor.device)
    return base.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def trace(builder: Any, name: str, arguments: list) -> Any:
    """Runs the op `name` over fake copies of its arguments; gives its fake results."""
    func = overload(name)
    operand = 0

    def to_fake(value):
        nonlocal operand
        if not isinstance(value, torch.Tensor):
            return value
        if value.device.type != "tpu":
            raise Unsupported("CPU tensors")
        copy = fake(value)
        builder.input(copy, operand)
        operand += 1
        return copy

    schema = func._schema.arguments
    with torch.no_grad(), FakeTensorMode():
        fakes = tree_map(to_fake, arguments)
        args = [v for v, a in zip(fakes, schema) if not a.kwarg_only]
        kwargs = {a.name: v for v, a in zip(fakes, schema) if a.kwarg_only}
        recorder = Recorder(builder)
        with recorder:
            return recorder.open(func, args, kwargs)
