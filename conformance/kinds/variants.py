"""One op, called in its other ways: as a method, in place, with out=."""
import torch
from torch.utils._pytree import tree_leaves, tree_map

from conformance.catalogue import Case, Kind
from conformance.judge import Run, Skipped, Unbuildable, Wrong
from conformance.kinds.opinfo import UNWRITTEN, Reference, called, infos, pairs, samples_of
from conformance.samples import Mover, seed_all

GARBAGE = 77  # what targets hold before


def in_place(info):
    def call(input, *args, **kwargs):
        result = info.inplace_variant(input, *args, **kwargs)
        if isinstance(input, torch.Tensor) and result is not input:
            raise Wrong("the in-place call returns another tensor than its first argument")
        return result

    return call


def with_out(info, like, empty: bool):
    """The op writing to tensors like those of `like`, or to empty ones, which it resizes."""
    def call(input, *args, **kwargs):
        device = next((x.device for x in tree_leaves([input, args, kwargs]) if isinstance(x, torch.Tensor)), None)
        device = kwargs.get("device", "cpu") if device is None else device

        def target(x):
            shape = (0,) if empty else x.shape
            return torch.full(shape, True if x.dtype == torch.bool else GARBAGE, dtype=x.dtype, device=device)

        out = tree_map(target, like)
        result = info.op(input, *args, **kwargs, out=out)
        if result is None:  # as of split_with_sizes_copy
            return out
        for r, o in zip(tree_leaves(result), tree_leaves(out)):
            if r is not o:
                raise Wrong("the call returns another tensor than its out= argument")
        return result

    return call


def ways(info, sample, like):
    """The other calls that should give the same. In place nothing can grow (where the CPU lets it, it should not)."""
    if info.method_variant and not info.name.startswith("_foreach_"):
        yield info.method_variant
    if info.operator_variant:
        yield info.operator_variant
    if info.inplace_variant and not sample.broadcasts_input:
        yield in_place(info)
    if info.supports_out and not info.name.startswith("_foreach_"):
        if all(isinstance(x, torch.Tensor) and x.layout == torch.strided for x in tree_leaves(like)):
            like = tuple(like) if isinstance(like, (tuple, list)) else like
            yield with_out(info, like, empty=False)
            yield with_out(info, like, empty=True)


def trials(case: Case, run: Run):
    info = infos()[case.op]
    for number, sample in samples_of(case, run, most=2):
        words = (case.id, number, run.seed)
        try:
            seed_all(*words)
            plain = called(info.op, sample, Mover("cpu"))
        except Exception:
            continue  # kind "forward" says so
        for way in ways(info, sample, plain):
            def trial(words=words, sample=sample, way=way):
                try:
                    want = Reference(way, sample, *words, plain=info.op)
                except Unbuildable as reason:  # 1 + True cannot be in place: the result has another type
                    raise Skipped(f"the CPU has no such call: {reason}") from None
                seed_all(*words)
                want.judge(case, called(way, sample, Mover(run.device)), info)

            yield trial


def has_ways(info) -> bool:
    if info.name in UNWRITTEN:
        return False
    foreach = info.name.startswith("_foreach_")
    return bool(info.operator_variant or info.inplace_variant or
                (info.method_variant or info.supports_out) and not foreach)


KINDS = [Kind("variants", "method, operator, in-place and out= calls give the CPU's results",
              lambda: pairs(has_ways, ("float32", "int64")), trials)]
