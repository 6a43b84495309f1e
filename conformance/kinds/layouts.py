"""Inputs that are not plain arrays: non-contiguous, and with the conjugate or negative bit set."""
import torch
from torch.testing._internal.common_utils import noncontiguous_like

from conformance.catalogue import Case, Kind
from conformance.judge import Run
from conformance.kinds.opinfo import Reference, called, infos, pairs, samples_of
from conformance.samples import Mover, seed_all


def conjugate(x: torch.Tensor) -> torch.Tensor:
    """The same numbers, held as the conjugate of their conjugate."""
    return x.conj().resolve_conj().conj() if x.is_complex() else x


def negative(x: torch.Tensor) -> torch.Tensor:
    """The same numbers, held as the negative of their negative."""
    return torch._neg_view(x.neg()) if x.is_complex() or x.is_floating_point() else x


# Layout: whether upstream asks it of an OpInfo, and how a tensor gets it.
LAYOUTS = {
    "non-contiguous": (lambda info: True, noncontiguous_like),
    "conjugate": (lambda info: info.test_conjugated_samples, conjugate),
    "negative": (lambda info: info.test_neg_view, negative),
}


def trials(case: Case, run: Run):
    info = infos()[case.op]
    for number, sample in samples_of(case, run, most=2):
        for layout, (applies, change) in LAYOUTS.items():
            if not applies(info) or layout == "conjugate" and case.dtype != "complex64":
                continue

            def laid_out(x, change=change):
                return change(x) if x.layout == torch.strided else x

            def trial(words=(case.id, layout, number, run.seed), sample=sample, laid_out=laid_out):
                want = Reference(info.op, sample, *words, change=laid_out)
                seed_all(*words)
                want.judge(case, called(info.op, sample, Mover(run.device, laid_out)), info)

            yield trial


KINDS = [Kind("layouts", "non-contiguous, conjugate and negative inputs give the CPU's results",
              lambda: pairs(lambda info: not info.name.startswith("_foreach_"), ("float32", "complex64")), trials)]
