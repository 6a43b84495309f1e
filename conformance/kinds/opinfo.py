"""What the kinds over OpInfos share: PyTorch's lists of ops, and one call on the CPU and on the device."""
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from conformance import tolerances
from conformance.catalogue import Case
from conformance.compare import same, same_distribution, same_form
from conformance.judge import Run, reference
from conformance.samples import Mover, chosen, seed_all, to_cpu, widened

# Their results are memory that nobody has written: only types and shapes can be asked for.
UNWRITTEN = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


@cache
def infos() -> dict[str, Any]:
    """Every OpInfo by its name and variant. JIT-ted CUDA strings (jiterator_*) are no ops of PyTorch and left out."""
    from torch.testing._internal import common_methods_invocations as db

    lists = [db.op_db, db.foreach_unary_op_db, db.foreach_binary_op_db, db.foreach_pointwise_op_db, db.foreach_reduce_op_db,
             db.foreach_other_op_db]
    return {name_of(info): info for infos in lists for info in infos if not info.name.startswith("jiterator_")}


def name_of(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def samples_of(case: Case, run: Run, requires_grad: bool = False, most: int | None = None) -> list[tuple[int, Any]]:
    """The numbered samples of a case on the CPU; Unbuildable when there are none to be had."""
    seed_all(case.op, case.dtype, run.seed)
    info = infos()[case.op]
    made = reference(lambda: list(info.sample_inputs("cpu", getattr(torch, case.dtype), requires_grad=requires_grad)))
    limits = [n for n in (run.samples, most) if n is not None]
    return chosen(made, case, run.seed, min(limits) if limits else None)


def called(call: Callable, sample: Any, move: Callable[[Any], Any]) -> Any:
    """The processed results of call(input, *args, **kwargs) with moved arguments; of a call that returns nothing, what it
    wrote."""
    arguments = move([sample.input, list(sample.args), sample.kwargs])
    result = call(arguments[0], *arguments[1], **arguments[2])
    return sample.output_process_fn_grad(arguments[0] if result is None else result)


class Reference:
    """The CPU's answer to a sample: `result`, and whether it is `random`, i.e. has drawn from the CPU's generator. `change`:
    the Mover's."""

    def __init__(self, call: Callable, sample: Any, *words: object, change: Callable = lambda x: x):
        seed_all(*words)
        before = torch.get_rng_state()
        self.call, self.sample, self.words = call, sample, words
        self.result = to_cpu(reference(called, call, sample, Mover("cpu", change)))
        self.random = not torch.equal(before, torch.get_rng_state())

    def exact(self) -> Any:
        seed_all(*self.words)
        return called(self.call, self.sample, widened)

    def judge(self, case: Case, got: Any, info: Any, exact: bool = True) -> None:
        got = to_cpu(got)
        if info.name in UNWRITTEN:
            same_form(tree_leaves(got), tree_leaves(self.result))
        elif self.random:
            same_distribution(got, self.result)
        else:
            same(got, self.result, tolerances.tolerance(case, info), self.exact if exact else None)


def pairs(wanted: Callable[[Any], bool] = lambda info: True, dtypes: tuple[str, ...] | None = None,
          supported: Callable[[Any], Any] = lambda info: info.supported_dtypes("cpu")) -> Iterator[tuple[str, str]]:
    """(op, dtype) of the wanted OpInfos and of the dtypes that PyTorch claims for its CPU kernels."""
    for name, info in infos().items():
        if wanted(info):
            for dtype in supported(info):
                if dtypes is None or short(dtype) in dtypes:
                    yield name, short(dtype)
