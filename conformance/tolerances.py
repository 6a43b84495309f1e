"""How near is near enough: upstream's word where there is one, else torch.testing's, and this one table of
exceptions."""
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch.testing._internal.common_device_type import toleranceOverride

from conformance.catalogue import Case

# The upstream test (class, function) that asks what a kind asks; its OpInfo decorators may loosen tolerances.
UPSTREAM = {"forward": ("TestCommon", "test_compare_cpu"), "variants": ("TestCommon", "test_variant_consistency_eager"),
            "layouts": ("TestCommon", "test_noncontiguous_samples"),
            "backward": ("TestCommon", "test_noncontiguous_samples"),
            "compile": ("TestInductorOpInfo", "test_comprehensive")}


@dataclass(frozen=True)
class Looser:
    """`scale`: allowed error as a share of the largest element of the result: a sum of many terms is as exact as its
    largest terms are, not as itself."""
    kind: str  # fnmatch patterns
    op: str
    dtype: str
    rtol: float
    scale: float
    reason: str  # what was measured


LOOSER = [
    Looser("*", "nn.*inear*ross*ntropy*", "bfloat16", 2e-2, 4e-3,
           "logits are rounded to bfloat16 before the logarithm of their "
           "sum: one loss of 8 is off by 1.7e-2 of itself, gradients by 1.5e-3 where the largest is 0.77"),
    Looser("backward", "cum*", "float16", 2e-3, 0,
           "cotangents are added in another order, one unit in the last place: 1e-3 at 0.5"),
    Looser("backward", "erfinv", "float32", 1e-5, 0, "XLA's erf_inv has a relative error of 5.4e-6, PyTorch's 4e-7"),
    Looser("forward", "*pow*", "complex64", 1e-5, 0, "XLA's complex power has a relative error of 3.9e-6"),
]


@dataclass(frozen=True)
class Tolerance:
    """rtol and atol: None: torch.testing's for the result's dtype."""
    rtol: float | None = None
    atol: float | None = None
    scale: float = 0


def tolerance(case: Case, info=None) -> Tolerance:
    for row in LOOSER:
        if fnmatchcase(case.kind, row.kind) and fnmatchcase(case.op, row.op) and fnmatchcase(case.dtype, row.dtype):
            return Tolerance(row.rtol, None, row.scale)
    dtype = getattr(torch, case.dtype, None)
    found = []
    if info is not None and case.kind in UPSTREAM:
        # "cuda": upstream's example of a device whose numbers are compared with the CPU's.
        for decorator in info.get_decorators(*UPSTREAM[case.kind], "cuda", dtype, {}):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                found.append(decorator.d[dtype])
    return Tolerance(max(t.rtol for t in found), max(t.atol for t in found)) if found else Tolerance()
