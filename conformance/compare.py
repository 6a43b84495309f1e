"""Whether two answers are the same."""
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._comparison import default_tolerances
from torch.utils._pytree import tree_flatten

from conformance.judge import Skipped, Unbuildable, Wrong, reference
from conformance.samples import to_cpu
from conformance.tolerances import Tolerance


def _leaves(tree: Any) -> list:
    return tree_flatten(tree)[0]


def same_form(got: list, want: list) -> None:
    """As many results, of the same types, shapes and dtypes."""
    if len(got) != len(want):
        raise Wrong(f"{len(got)} results instead of {len(want)}")
    for i, (g, w) in enumerate(zip(got, want)):
        if isinstance(w, torch.Tensor) != isinstance(g, torch.Tensor):
            raise Wrong(f"result {i} is a {type(g).__name__} instead of a {type(w).__name__}")
        if isinstance(w, torch.Tensor) and (g.shape, g.dtype) != (w.shape, w.dtype):
            raise Wrong(f"result {i} is {g.dtype}{list(g.shape)} instead of {w.dtype}{list(w.shape)}")


def _difference(got: Any, want: Any, tolerance: Tolerance) -> str | None:
    """What assert_close says, on one line."""
    if not isinstance(want, (torch.Tensor, bool, int, float, complex)):
        return None if got == want or want is None else f"{got!r} instead of {want!r}"
    rtol, atol = tolerance.rtol, tolerance.atol
    if isinstance(want, torch.Tensor) and (want.is_floating_point() or want.is_complex()):
        default_rtol, default_atol = default_tolerances(want.dtype)
        rtol, atol = default_rtol if rtol is None else rtol, default_atol if atol is None else atol
        finite = want[want.isfinite()].abs() if tolerance.scale and want.layout == torch.strided else want.new_empty(0)
        atol = max(atol, tolerance.scale * float(finite.max())) if finite.numel() else atol
    else:
        rtol = atol = None  # exact
    try:
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return "; ".join(lines)[:300]
    return None


# So much farther than the CPU's own a result may be from the exact one.
AS_EXACT = {torch.float32: 2, torch.complex64: 2, torch.bfloat16: 1, torch.float16: 1}


def _error(x: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest error; infinite where other elements are finite than in the truth."""
    finite = x.isfinite()
    if not torch.equal(finite, truth.to(x.dtype).isfinite()):
        return math.inf
    return float((x.to(truth.dtype) - truth)[finite].abs().max()) if finite.any() else 0.0


def _as_exact(got: Any, want: Any, truth: Any) -> bool:
    """Whether `got` is as near to the truth as `want` is."""
    if not isinstance(want, torch.Tensor) or want.dtype not in AS_EXACT:
        return False
    allowed = _error(want, truth)
    return math.isfinite(allowed) and _error(got, truth) <= AS_EXACT[want.dtype] * allowed


def _narrowed(wide: Any, like: Any) -> Any:
    return wide.to(like.dtype) if isinstance(wide, torch.Tensor) else wide


def same(got: Any, want: Any, tolerance: Tolerance = Tolerance(), exact: Callable[[], Any] | None = None) -> None:
    """Equal results; NaN equals NaN. A result that differs from the CPU's may instead be near to `exact()`, the CPU's
    answer in double precision: within the same tolerance, or about as near as the CPU's own. PyTorch's CPU kernels
    round between the steps of an op in bfloat16, and sum float32 in an order of their own."""
    got, want = _leaves(to_cpu(got)), _leaves(to_cpu(want))
    same_form(got, want)
    bad = [(i, text) for i, (g, w) in enumerate(zip(got, want)) if (text := _difference(g, w, tolerance))]
    if not bad:
        return
    try:
        truth = _leaves(to_cpu(reference(exact))) if exact else []
    except (Unbuildable, Skipped):
        truth = []
    for i, text in bad:
        if len(truth) == len(want) and isinstance(truth[i], type(want[i])):
            near = not _difference(got[i], _narrowed(truth[i], want[i]), tolerance)
            if near or _as_exact(got[i], want[i], truth[i]):
                continue
        raise Wrong(f"result {i}: {text}")


# Of two samples of one distribution the distance exceeds the bound once in 10^9 (Kolmogorov-Smirnov).
KS_BOUND = math.sqrt(-math.log(1e-9 / 2) / 2)


def same_distribution(got: Any, want: Any) -> None:
    """Random results: types and shapes are equal, and the numbers may come from one distribution."""
    got, want = _leaves(to_cpu(got)), _leaves(to_cpu(want))
    same_form(got, want)
    for i, (g, w) in enumerate(zip(got, want)):
        if not isinstance(w, torch.Tensor) or w.numel() < 2 or w.layout != torch.strided:
            continue
        g, w = (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in (g, w))
        g, w = g.flatten().double().sort().values, w.flatten().double().sort().values
        at = torch.cat([g, w])
        distance = (torch.searchsorted(g, at, right=True) - torch.searchsorted(w, at, right=True)).abs().max() / len(w)
        if distance > KS_BOUND * math.sqrt(2 / len(w)):
            raise Wrong(f"result {i}: another distribution (Kolmogorov-Smirnov distance {distance:.2f} of {len(w)} "
                        "numbers)")


def raised(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None
