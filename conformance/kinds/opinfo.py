"""What the kinds over OpInfos share: PyTorch's lists of ops, and one call on the CPU and on the device."""
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from conformance import tolerances
from conformance.catalogue import Case
from conformance.compare import same, same_distribution, same_form
from conformance.judge import Run, raised_nothing, reference
from conformance.samples import Draws, Mover, chosen, seed_all, to_cpu, widened

# Their results are memory that nobody has written: only types and shapes can be asked for.
UNWRITTEN = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
# Their index tensors have to be on the CPU, on every device (tensor_split checks it).
CPU_ARGUMENTS = ("tensor_split",)
# Where elements are equal their order is free, and so are these indices: what they point to must be right. Op ->
# position of its argument `dim` after the input.
POINTERS = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1}


@cache
def infos() -> dict[str, Any]:
    """Every OpInfo by its name and variant. JIT-ted CUDA strings (jiterator_*) are no ops of PyTorch and left out."""
    from torch.testing._internal import common_methods_invocations as db

    lists = [db.op_db, db.foreach_unary_op_db, db.foreach_binary_op_db, db.foreach_pointwise_op_db,
             db.foreach_reduce_op_db,
             db.foreach_other_op_db]
    return {name_of(info): info for infos in lists for info in infos if not info.name.startswith("jiterator_")}


def name_of(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def placed(info: Any, sample: Any) -> Any:
    """The sample; tensors that stay on the CPU are marked for the Mover."""
    if info.name in CPU_ARGUMENTS:
        for x in tree_leaves([sample.args, sample.kwargs]):
            if isinstance(x, torch.Tensor):
                x.stays_on_cpu = True
    return sample


def samples_of(case: Case, run: Run, requires_grad: bool = False, most: int | None = None) -> list[tuple[int, Any]]:
    """The numbered samples of a case on the CPU; Unbuildable when there are none to be had."""
    seed_all(case.op, case.dtype, run.seed)
    info = infos()[case.op]
    made = reference(lambda: [placed(info, sample) for sample in info.sample_inputs(
        "cpu", getattr(torch, case.dtype), requires_grad=requires_grad)])
    limits = [n for n in (run.samples, most) if n is not None]
    return chosen(made, case, run.seed, min(limits) if limits else None)


def called(call: Callable, sample: Any, move: Callable[[Any], Any]) -> Any:
    """The processed results of call(input, *args, **kwargs) with moved arguments; of a call that returns nothing, what
    it wrote."""
    arguments = move([sample.input, list(sample.args), sample.kwargs])
    result = call(arguments[0], *arguments[1], **arguments[2])
    return sample.output_process_fn_grad(arguments[0] if result is None else result)


def other_form(x: Any, y: Any) -> bool:
    return isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and (x.shape, x.dtype) != (y.shape, y.dtype)


def pointed(info: Any, sample: Any, results: list) -> list:
    """The results, free indices replaced by the elements that they point to."""
    if info.name not in POINTERS or sample.kwargs.get("stable") or sample.input.dim() == 0:
        return results
    at = POINTERS[info.name]
    dim = sample.kwargs.get("dim", sample.args[at] if len(sample.args) > at else -1)
    indices = results[-1] if results[-1].dim() == sample.input.dim() else results[-1].unsqueeze(dim)
    return [*results[:-1], sample.input.gather(dim, indices)]


class Reference:
    """The CPU's answer to a sample: `result`, and whether it is `random`. `change`: the Mover's.
    `plain`: the call whose answer in double precision is the exact one, where it is not `call`."""

    def __init__(self, call: Callable, sample: Any, *words: object, change: Callable = lambda x: x,
                 plain: Callable | None = None):
        seed_all(*words)
        self.call, self.sample, self.words, self.plain = call, sample, words, plain or call
        with Draws() as draws:
            self.result = to_cpu(reference(called, call, sample, Mover("cpu", change)))
        self.random = draws.random

    def exact(self) -> Any:
        seed_all(*self.words)
        return called(self.plain, self.sample, widened)

    def judge(self, case: Case, got: Any, info: Any) -> None:
        got, want, exact = tree_leaves(to_cpu(got)), tree_leaves(self.result), self.exact
        if len(got) == len(want) and any(map(other_form, got, want)):
            # As the saved statistics of batch norm, which the CPU leaves out in evaluation and keeps in bfloat16: what
            # PyTorch's meta kernel gives every other device is right too, and there is nothing to compare it with.
            meta = raised_nothing(lambda: tree_leaves(called(self.call, self.sample, Mover("meta")))) or want
            kept = [i for i in range(len(got)) if not other_form(got[i], want[i]) or other_form(got[i], meta[i])]
            if len(kept) < len(got):
                got, want = [got[i] for i in kept], [want[i] for i in kept]

                def exact():
                    all_exact = tree_leaves(self.exact())
                    return [all_exact[i] for i in kept]
        if info.name in UNWRITTEN:
            same_form(got, want)
        elif self.random:
            same_distribution(got, want)
        else:
            same_form(got, want)
            got, want = (pointed(info, self.sample, results) for results in (got, want))
            same(got, want, tolerances.tolerance(case, info), exact)


def pairs(wanted: Callable[[Any], bool] = lambda info: True, dtypes: tuple[str, ...] | None = None,
          supported: Callable[[Any], Any] = lambda info: info.supported_dtypes("cpu")) -> Iterator[tuple[str, str]]:
    """(op, dtype) of the wanted OpInfos and of the dtypes that PyTorch claims for its CPU kernels."""
    for name, info in infos().items():
        if wanted(info):
            for dtype in supported(info):
                if dtypes is None or short(dtype) in dtypes:
                    yield name, short(dtype)
