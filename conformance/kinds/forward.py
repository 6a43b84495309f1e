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
    return (x.dtype, x.shape, x.layout, x.is_conj(), x.is_neg()) if isinstance(x, torch.Tensor) else type(x)


def same_metadata(xs: list, ys: list) -> bool:
    """Equal strides too, where a dimension has more than one element."""
    strided = [isinstance(x, torch.Tensor) and x.layout == torch.strided for x in xs]
    return list(map(form, xs)) == list(map(form, ys)) and all(
        check_significant_strides(x, y)[0] for x, y, has_strides in zip(xs, ys, strided) if has_strides)


def described(xs: list) -> str:
    def text(x):
        bits = " conjugate" * x.is_conj() + " negative" * x.is_neg()
        strides = f" strides {list(x.stride())}" if x.layout == torch.strided else f" {x.layout}"
        return f"{x.dtype}{list(x.shape)}{strides}{bits}"

    return ", ".join(text(x) if isinstance(x, torch.Tensor) else type(x).__name__ for x in xs)


def metadata(case: Case, run: Run):
    info = infos()[case.op]
    for _, sample in samples_of(case, run, most=5):
        def trial(sample=sample):
            want = tree_leaves(reference(called, info.op, sample, Mover("cpu")))
            got = tree_leaves(called(info.op, sample, Mover(run.device)))
            if same_metadata(got, want):
                return
            # Where the CPU's library has a way of its own (LAPACK's columns), PyTorch's meta kernel says what a device
            # does.
            meta = raised_nothing(lambda: tree_leaves(called(info.op, sample, Mover("meta"))))
            if meta is None or not same_metadata(got, meta):
                raise Wrong(f"{described(got)} instead of {described(want)}")

        yield trial


KINDS = [
    Kind("forward", "results equal the CPU's", pairs, values),
    Kind("metadata", "strides, dtypes, conjugate and negative bits of the results are PyTorch's",
         lambda: pairs(lambda info: not info.name.startswith("_foreach_"), ("float32", "complex64", "int64")),
         metadata),
]
