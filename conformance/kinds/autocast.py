"""Autocast: upstream's lists of ops that run in the lower precision, in float32, or in the widest type of their
arguments."""
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_map

from conformance import tolerances
from conformance.catalogue import Case, Kind
from conformance.compare import same
from conformance.judge import Run, reference
from conformance.samples import Mover, seed_all, to_cpu, widened

LOWER = torch.bfloat16
# List: where its ops are, and the dtype that they run in; None: their own, since they promote by themselves.
LISTS = {"torch_fp16": (torch, LOWER), "torch_fp32": (torch, torch.float32),
         "torch_need_autocast_promote": (torch, torch.float32), "torch_expect_builtin_promote": (torch, None),
         "nn_fp16": (torch._C._nn, LOWER), "nn_fp32": (torch._C._nn, torch.float32),
         "linalg_fp16": (torch._C._linalg, LOWER), "methods_fp16": (torch.Tensor, LOWER),
         "methods_fp32": (torch.Tensor, torch.float32), "methods_expect_builtin_promote": (torch.Tensor, None)}
VENDOR = ("cudnn_convolution", "cudnn_convolution_transpose")


@cache
def entries() -> dict[str, tuple[str, str, tuple, dict]]:
    """Name -> list, op, arguments, keyword arguments."""
    from torch.testing._internal.autocast_test_lists import AutocastTestLists

    seed_all("autocast")
    lists, found = AutocastTestLists("cpu"), {}

    def lower(x):  # the lists are written for float16, and autocast cannot mix the two
        return x.to(LOWER) if isinstance(x, torch.Tensor) and x.dtype == torch.float16 else x

    for name, (module, _) in LISTS.items():
        for entry in getattr(lists, name):
            op, args = entry[0], entry[1]
            # The matrices of the list's einsum have fewer dimensions than its equation.
            if op in VENDOR or op == "einsum" or not hasattr(module, op):
                continue
            kwargs = next((x for x in entry[2:] if isinstance(x, dict)), {})
            key = f"{name}.{op}"
            key = key if key not in found else f"{key}.{sum(k.startswith(key) for k in found)}"
            found[key] = name, op, tree_map(lower, args), kwargs
    return found


def cast(tree: Any, dtype: torch.dtype | None) -> Any:
    """Floating tensors as that dtype."""
    def leaf(x):
        return x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    return tree if dtype is None else tree_map(leaf, tree)


def trials(case: Case, run: Run):
    name, op, args, kwargs = entries()[case.op]
    module, dtype = LISTS[name]
    call = getattr(module, op)

    def trial():
        inputs = cast(list(args), dtype)
        want = reference(lambda: to_cpu(call(*inputs, **kwargs)))
        there = Mover(run.device)(list(args))
        with torch.autocast(torch.device(run.device).type, dtype=LOWER):
            got = call(*there, **kwargs)
        same(got, want, tolerances.tolerance(case), lambda: call(*widened(inputs), **kwargs))

    yield trial


KINDS = [Kind("autocast", "under autocast an op of upstream's lists runs in the dtype that they say",
              lambda: ((name, "bfloat16") for name in entries()), trials)]
