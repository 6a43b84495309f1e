"""The results of an op, and their types and strides."""
import torch
from torch._prims_common import check_significant_strides
from torch.utils._pytree import tree_leaves

from conformance.catalogue import Case, Kind
from conformance.judge import Run, Wrong, raised_nothing, reference
from conformance.kinds.opinfo import Reference, called, infos, pairs, samples_of
from conformance.samples import Mover, seed_all


def values(case: Case, run: Run):
    info = infos()[case.op]
    for number, sample in samples_of(case, run):
        def trial(words=(case.id, number, run.seed), sample=sample):
            want = Reference(info.op, sample, *words)
            seed_all(*words)
            want.judge(case, called(info.op, sample, Mover(run.device)), info)

        yield trial


def form(x):
    if not isinstance(x, torch.Tensor):
        return type(x)
    return x.dtype, tuple(x.shape), x.layout, x.is_conj(), x.is_neg()


def same_strides(x, y) -> bool:
    return not isinstance(x, torch.Tensor) or x.layout != torch.strided or check_significant_strides(x, y)[0]


def metadata(case: Case, run: Run):
    info = infos()[case.op]
    for _, sample in samples_of(case, run, most=5):
        def trial(sample=sample):
            want = tree_leaves(reference(called, info.op, sample, Mover("cpu")))
            got = tree_leaves(called(info.op, sample, Mover(run.device)))
            if list(map(form, got)) != list(map(form, want)):
                raise Wrong(f"the results are {list(map(form, got))} instead of {list(map(form, want))}")
            if all(map(same_strides, got, want)):
                return
            # Where the CPU's library has an order of its own (LAPACK's columns), PyTorch's meta kernel says what a device does.
            meta = raised_nothing(lambda: tree_leaves(called(info.op, sample, Mover("meta"))))
            if meta is None or len(meta) != len(got) or not all(map(same_strides, got, meta)):
                def strides(xs):
                    return [x.stride() for x in xs if isinstance(x, torch.Tensor) and x.layout == torch.strided]
                raise Wrong(f"strides {strides(got)} instead of {strides(want)}")

        yield trial


KINDS = [
    Kind("forward", "results equal the CPU's", pairs, values),
    Kind("metadata", "strides, dtypes, conjugate and negative bits of the results are PyTorch's",
         lambda: pairs(lambda info: not info.name.startswith("_foreach_"), ("float32", "complex64", "int64")), metadata),
]
