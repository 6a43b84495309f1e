"""Inputs of a trial: which samples of an OpInfo, and how they get to the device."""
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from conformance.catalogue import Case, draw


def seed_all(*words: object) -> None:
    """Every generator that sample functions draw from, seeded by the words."""
    seed = int(draw(*words) * 2**32)
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


class Draws(TorchDispatchMode):
    """Notes whether an op inside has drawn from the CPU's generator: then its results are `random`. (Some OpInfos put
    the generator's state back, so that comparing it outside would not do.)"""
    random = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = torch.get_rng_state()
        result = func(*args, **(kwargs or {}))
        self.random = self.random or not torch.equal(before, torch.get_rng_state())
        return result


def chosen(samples: Iterable[Any], case: Case, seed: int, most: int | None) -> list[tuple[int, Any]]:
    """At most `most` samples with their numbers: the first two, since those are the plain ones, and others by hash."""
    numbered = list(enumerate(samples))
    if most is None or len(numbered) <= most:
        return numbered
    rest = sorted(numbered[2:], key=lambda pair: draw(case.op, pair[0], seed))
    return sorted(numbered[:min(2, most)] + rest[:max(0, most - 2)], key=lambda pair: pair[0])


class Mover:
    """Copies trees of CPU tensors to a device. Strides, conjugate and negative bits, requires_grad and memory that
    tensors share there are the same; `change` is applied to each tensor before."""

    def __init__(self, device: str, change: Callable[[torch.Tensor], torch.Tensor] = lambda x: x):
        self.device, self.change = device, change
        self.moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.bases: dict[tuple[int, torch.dtype], tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, tree: Any) -> Any:
        return tree_map(self._leaf, tree)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(self.device)
        if isinstance(value, str) and value == "cpu":
            return self.device
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or hasattr(value, "stays_on_cpu"):
            return value
        if id(value) not in self.moved:  # the tensor is kept: its id must stay its own
            self.moved[id(value)] = value, self._copy(value)
        return self.moved[id(value)][1]

    def _copy(self, value: torch.Tensor) -> torch.Tensor:
        there = self._to_device(self.change(value.detach()))
        return there.requires_grad_(value.requires_grad) if value.requires_grad else there

    def _to_device(self, x: torch.Tensor) -> torch.Tensor:
        if x.layout != torch.strided:
            return x.to(self.device)
        conj, neg = x.is_conj(), x.is_neg()
        plain = x.conj() if conj else x
        plain = torch._neg_view(plain) if neg else plain
        storage = plain.untyped_storage()
        key = storage._cdata, plain.dtype
        if key not in self.bases:
            whole = plain
            elements = storage.nbytes() // plain.element_size()
            dense = torch.empty_like(plain, device="meta").stride() == plain.stride()
            if plain.storage_offset() or plain.numel() != elements or not dense:
                whole = torch.empty(0, dtype=plain.dtype).set_(storage, 0, (elements,), (1,))
            copied = whole.to(self.device, copy=True)
            self.bases[key] = storage, copied
        there = self.bases[key][1]
        if (there.size(), there.stride()) != (plain.size(), plain.stride()) or plain.storage_offset():
            there = there.as_strided(plain.size(), plain.stride(), plain.storage_offset())
        else:
            there = there.detach()  # a tensor of its own
        there = torch._neg_view(there) if neg else there
        return there.conj() if conj else there


WIDE = {torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.float32: torch.float64,
        torch.complex32: torch.complex128, torch.complex64: torch.complex128}


def widened(tree: Any) -> Any:
    """Floating tensors, and dtypes among the arguments, in double precision."""
    def leaf(value):
        if isinstance(value, torch.Tensor) and value.dtype in WIDE:
            wide = value.detach().resolve_conj().resolve_neg().to(WIDE[value.dtype])
            return wide.requires_grad_(value.requires_grad) if value.requires_grad else wide
        return WIDE.get(value, value) if isinstance(value, torch.dtype) else value

    return tree_map(leaf, tree)


def to_cpu(tree: Any) -> Any:
    return tree_map(lambda x: x.detach().cpu() if isinstance(x, torch.Tensor) else x, tree)
