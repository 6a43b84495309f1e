"""Whether a model's answers on the device are those of the CPU, within what float32 can say."""
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance.judge import Wrong

# An error is measured against the largest element of its tensor, since a sum is as exact as its largest terms are.
# Two layers of 64 channels, summed in another order and with another exp and tanh, stay below a tenth of this; what
# is truly wrong (a mask, a transposition, a missing term) is off by a share of the tensor.
RELATIVE = 1e-4
# Where that is too strict (a gradient that is zero but for rounding, a sum that cancels, a kink of ReLU or of a
# bilinear sample that is stepped over) the CPU itself says how much: twice as far as its own answer moves when each
# weight and input moves by up to UNITS in the last place. A pass rounds by half a unit at each of the dozens of steps
# that tiny models have in a row, which is a walk of some four units.
NOISE, UNITS = 2, 4
# A tensor whose noise is a larger share than this of its largest element is counted as unstable: a choice (top-k, the
# nearest code) hangs on a rounding; one that is nothing but noise is not.
UNSTABLE = 0.01
# What is so small a share of the largest element of all is nothing. A gradient that is zero by symmetry, as that of the
# bias of a key, is a sum of dozens of terms as large as the others, each rounded at 6e-8 of itself.
NOTHING = 1e-6
# Chips and XLA's CPU code take numbers below 1.2e-38 for 0, also between two steps; the smallest that is compared.
ZERO = 1e-30
PERTURBED_RUNS = 4

Tensors = dict[str, torch.Tensor]


def named_tensors(tree: Any, name: str = "output") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a model's output by their path; caches are not part of it."""
    if isinstance(tree, torch.Tensor):
        yield name, tree
    elif isinstance(tree, dict):
        for key, part in tree.items():
            yield from named_tensors(part, f"{name}.{key}")
    elif isinstance(tree, (list, tuple)):
        for i, part in enumerate(tree):
            yield from named_tensors(part, f"{name}[{i}]")


def perturbed(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each element up to UNITS in the last place up or down."""
    step = torch.randint(-UNITS, UNITS + 1, x.shape, generator=generator).to(x.dtype)
    return x * (1 + step * torch.finfo(x.dtype).eps)


@dataclass
class Noise:
    """The CPU's answers from perturbed weights and inputs, made when they are first asked for."""
    run: Callable[[int], Tensors]
    answers: list[Tensors] = field(default_factory=list)
    unstable: int = 0
    largest: float = 0  # element of all tensors that are compared together
    worst: float = 0  # the largest error of a tensor that is something, as a share of its largest element

    @property
    def nothing(self) -> float:
        """Below are tensors that are zero but for rounding."""
        return NOTHING * self.largest

    def of(self, name: str, want: torch.Tensor) -> Iterator[torch.Tensor]:
        """The tensor in each of those answers that have it in the same shape."""
        if not self.answers:
            self.answers = [self.run(seed) for seed in range(PERTURBED_RUNS)]
        return (a[name] for a in self.answers if name in a and a[name].shape == want.shape)

    def is_elsewhere(self, name: str, want: torch.Tensor) -> bool:
        """Whether some answer has no such tensor, or in another shape: then the CPU itself does not hold it."""
        return len(list(self.of(name, want))) < PERTURBED_RUNS


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference where both are finite."""
    both = a.isfinite() & b.isfinite()
    return float((a - b)[both].abs().max()) if both.any() else 0.0


def _largest(x: torch.Tensor) -> float:
    """The largest magnitude but for those that stand for minus infinity in masks."""
    sane = x[x.isfinite() & (x.abs() < 1e30)]
    return float(sane.abs().max()) if sane.numel() else 0.0


def _float_difference(name: str, got: torch.Tensor, want: torch.Tensor, noise: Noise) -> str | None:
    scale = _largest(want)
    same_places = torch.equal(got.isfinite(), want.isfinite()) and torch.equal(got.isnan(), want.isnan())
    off = _distance(got, want)
    if scale > max(noise.nothing, ZERO):
        noise.worst = max(noise.worst, off / scale)
    allowed = max(RELATIVE * scale, noise.nothing, ZERO)
    if same_places and off <= allowed:
        return None
    if noise.is_elsewhere(name, want):
        noise.unstable += 1
        return None
    others = list(noise.of(name, want))
    if not same_places:
        if all(torch.equal(o.isfinite(), want.isfinite()) for o in others):
            return "finite in other places"
        noise.unstable += 1
        return None
    moved = max(_distance(other, want) for other in others)
    if off <= max(allowed, NOISE * moved):
        noise.unstable += moved > UNSTABLE * scale > UNSTABLE * noise.nothing
        return None
    return f"off by {off:.2g} where the largest element is {scale:.2g} and the CPU's noise {moved:.2g}"


def _exact_difference(name: str, got: torch.Tensor, want: torch.Tensor, noise: Noise) -> str | None:
    other = got != want
    if not other.any():
        return None
    if noise.is_elsewhere(name, want):
        noise.unstable += 1
        return None
    for answer in noise.of(name, want):
        other &= answer == want
    if not other.any():
        noise.unstable += 1
        return None
    return f"{int(other.sum())} of {other.numel()} elements differ"


def same(got: Tensors, want: Tensors, noise: Noise) -> None:
    """Raises Wrong at the first tensor that differs in dtype or shape, or by more than the rules above allow."""
    if missing := sorted(want.keys() ^ got.keys()):
        raise Wrong(f"{missing[0]} is there on one of the two only")
    noise.largest = max((_largest(w) for w in want.values() if w.is_floating_point()), default=0)
    for name, w in want.items():
        g = got[name]
        if g.dtype != w.dtype:
            raise Wrong(f"{name} is {g.dtype} instead of {w.dtype}")
        if g.shape != w.shape:
            if noise.is_elsewhere(name, w):
                noise.unstable += 1
                continue
            raise Wrong(f"{name} is {list(g.shape)} instead of {list(w.shape)}")
        if g.is_complex():
            g, w = torch.view_as_real(g.resolve_conj()), torch.view_as_real(w.resolve_conj())
        differs = _float_difference if w.is_floating_point() else _exact_difference
        if text := differs(name, g, w, noise):
            raise Wrong(f"{name}: {text}")
