"""Optimizers, in each of their implementations, against the plain one on the CPU."""
from functools import cache

import torch
from torch.utils._pytree import tree_map

from conformance import tolerances
from conformance.catalogue import Case, Kind
from conformance.compare import same
from conformance.judge import Run, reference
from conformance.samples import Mover, seed_all, to_cpu

STEPS = 3
SHAPES = ((4, 3), (3, 2))  # Muon takes matrices only
IMPLEMENTATIONS = ("forloop", "foreach", "fused")


@cache
def infos():
    from torch.testing._internal.common_optimizers import optim_db

    return {info.name: info for info in optim_db}


def steps(info, kwargs: dict, implementation: str, device: str) -> tuple:
    """Parameters and state after a few steps with the same gradients everywhere."""
    move = Mover(device)
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.nn.Parameter(move(torch.randn(shape, generator=generator))) for shape in SHAPES]
    flags = {name: name == implementation for name in ("foreach", "fused") if name in info.supported_impls}
    optimizer = info.optim_cls(parameters, **{**move(kwargs), **flags})
    for _ in range(STEPS):
        for parameter, shape in zip(parameters, SHAPES):
            grad = move(torch.randn(shape, generator=generator))
            parameter.grad = grad.to_sparse() if info.only_supports_sparse_grads else grad

        def closure():  # optimizers that take one make gradients of their own: a bowl's
            optimizer.zero_grad()
            loss = sum((parameter - 1).square().sum() for parameter in parameters)
            loss.backward()
            return loss

        optimizer.step(*([closure] if info.step_requires_closure else []))
    if info.step_requires_closure:  # LBFGS keeps differences of nearly equal gradients
        return to_cpu([p.detach() for p in parameters]), []
    # A step count is a tensor in some implementations and a number in others.
    state = tree_map(lambda x: torch.tensor(float(x)) if isinstance(x, (int, float)) else x,
                     to_cpu([dict(optimizer.state[p]) for p in parameters]))
    return to_cpu([p.detach() for p in parameters]), state


def trials(case: Case, run: Run):
    name, _, implementation = case.op.rpartition(".")
    info = infos()[name]
    for sample in info.optim_inputs_func(device="cpu"):
        def trial(kwargs=sample.kwargs):
            words = case.id, run.seed
            seed_all(*words)
            want = reference(steps, info, {**kwargs, "capturable": False} if "capturable" in kwargs else kwargs,
                             "forloop", "cpu")
            seed_all(*words)
            same(steps(info, kwargs, implementation, run.device), want, tolerances.tolerance(case))

        yield trial


def cases():
    for name, info in infos().items():
        for implementation in IMPLEMENTATIONS:
            if implementation == "forloop" or implementation in info.supported_impls:
                yield f"{name}.{implementation}", "float32"


KINDS = [Kind("optimizers", "a few steps change parameters and state as the plain implementation on the CPU does",
              cases, trials)]
