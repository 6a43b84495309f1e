"""torch.nn modules: outputs, and gradients of inputs and parameters."""
import copy
from functools import cache

import torch
from torch.utils._pytree import tree_leaves

from conformance import tolerances
from conformance.catalogue import Case, Kind
from conformance.compare import same, same_form
from conformance.judge import Run, reference
from conformance.kinds.backward import cotangent
from conformance.kinds.opinfo import short
from conformance.samples import Draws, Mover, chosen, seed_all, to_cpu, widened

DTYPES = ("float32", "bfloat16")


@cache
def infos():
    from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db}


def forward_backward(module, arguments, kwargs, training: bool):
    outputs = module(*arguments, **kwargs)
    flat = [x for x in tree_leaves(outputs) if isinstance(x, torch.Tensor) and x.requires_grad]
    inputs = [x for x in [*tree_leaves([arguments, kwargs]), *module.parameters()]
              if isinstance(x, torch.Tensor) and x.requires_grad]
    grads = torch.autograd.grad(flat, inputs, [cotangent(x, i) for i, x in enumerate(flat)], allow_unused=True) \
        if training and flat and inputs else ()
    return outputs, list(grads), list(module.buffers())


def trials(case: Case, run: Run):
    info, dtype = infos()[case.op], getattr(torch, case.dtype)
    for training in (True, False) if info.train_and_eval_differ else (True,):
        seed_all(case.id, training, run.seed)
        samples = reference(lambda: list(info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True,
                                                                 training=training)))
        for number, sample in chosen(samples, case, run.seed, run.samples):
            def trial(words=(case.id, training, number, run.seed), sample=sample, training=training):
                seed_all(*words)
                made = sample.constructor_input
                module = reference(lambda: info.module_cls(*made.args, **made.kwargs).to(dtype).train(training))
                arguments, kwargs = sample.forward_input.args, sample.forward_input.kwargs
                if info.is_lazy:  # its parameters get their shapes from the first call
                    with torch.no_grad():
                        reference(module, *Mover("cpu")(list(arguments)), **Mover("cpu")(kwargs))

                def answer(device):
                    move = Mover(device)
                    there = copy.deepcopy(module).to(device)
                    seed_all(*words)
                    return to_cpu(forward_backward(there, move(list(arguments)), move(kwargs), training))

                def exact():
                    wide = copy.deepcopy(module).double()
                    return forward_backward(wide, widened(list(arguments)), widened(kwargs), training)

                with Draws() as draws:
                    want = reference(answer, "cpu")
                got = answer(run.device)
                if draws.random:
                    same_form(tree_leaves(got), tree_leaves(want))
                else:
                    same(got, want, tolerances.tolerance(case), exact)

            yield trial


def cases():
    for name, info in infos().items():
        for dtype in info.supported_dtypes("cpu"):
            if short(dtype) in DTYPES:
                yield name, short(dtype)


KINDS = [Kind("modules", "modules give the CPU's outputs, gradients and buffers, in training and evaluation", cases,
              trials)]
