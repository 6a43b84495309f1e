"""The same seed gives the same numbers, once PyTorch is told to repeat itself: without it a device may choose anew how it
computes, as cuDNN's benchmark mode and our adaptive eager mode do."""
from contextlib import contextmanager

import torch
from torch.utils._pytree import tree_leaves

from conformance.catalogue import Case, Kind
from conformance.judge import Run, Wrong
from conformance.kinds.opinfo import UNWRITTEN, Reference, called, infos, pairs, samples_of
from conformance.samples import Mover, seed_all, to_cpu


def equal(first, second) -> bool:
    return all(torch.allclose(x, y, rtol=0, atol=0, equal_nan=True) if isinstance(x, torch.Tensor) else x == y or x != x
               for x, y in zip(tree_leaves(first), tree_leaves(second)))


@contextmanager
def repeating():
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def trials(case: Case, run: Run):
    info = infos()[case.op]
    for number, sample in samples_of(case, run, most=2):
        def trial(words=(case.id, number, run.seed), sample=sample):
            def results(*seed):
                seed_all(*seed)
                with repeating():
                    return to_cpu(called(info.op, sample, Mover(run.device)))

            want = Reference(info.op, sample, *words)
            first = results(*words)
            if not equal(first, results(*words)):
                raise Wrong("two runs from the same seed differ")
            if want.random and not equal(want.result, Reference(info.op, sample, *words, "other").result):
                if equal(first, results(*words, "other")):
                    raise Wrong("another seed gives the same numbers")

        yield trial


KINDS = [Kind("determinism", "the same seed gives the same bits, another one other numbers",
              lambda: pairs(lambda info: info.name not in UNWRITTEN, ("float32",)), trials)]
