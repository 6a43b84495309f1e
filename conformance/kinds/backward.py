"""Gradients."""
import torch
from torch.utils._pytree import tree_leaves

from conformance import tolerances
from conformance.catalogue import Case, Kind
from conformance.compare import same, same_form
from conformance.judge import Run, Skipped, reference
from conformance.kinds.opinfo import POINTERS, infos, pairs, samples_of
from conformance.samples import Draws, Mover, seed_all, to_cpu, widened


def cotangent(output: torch.Tensor, seed: int) -> torch.Tensor:
    """The same numbers for every device and precision."""
    dtype = torch.complex128 if output.is_complex() else torch.float64
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(output.shape, dtype=dtype, generator=generator).to(output.device, output.dtype)


def gradients(info, sample, move) -> list:
    arguments = move([sample.input, list(sample.args), sample.kwargs])
    result = info.gradcheck_wrapper(info.op, arguments[0], *arguments[1], **arguments[2])
    outputs = [x for x in tree_leaves(sample.output_process_fn_grad(result))
               if isinstance(x, torch.Tensor) and x.requires_grad]
    inputs = [x for x in tree_leaves(arguments) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not outputs or not inputs:
        raise Skipped("no result has a gradient")
    return list(torch.autograd.grad(outputs, inputs, [cotangent(x, i) for i, x in enumerate(outputs)],
                                    allow_unused=True))


def has_free_order(info, sample) -> bool:
    """Which of several equal elements gets a gradient is free where their order is."""
    if info.name not in (*POINTERS, "msort") or sample.kwargs.get("stable"):
        return False
    return sample.input.unique().numel() < sample.input.numel()


def trials(case: Case, run: Run):
    info = infos()[case.op]
    for number, sample in samples_of(case, run, requires_grad=True):
        def trial(words=(case.id, number, run.seed), sample=sample):
            if has_free_order(info, sample):
                raise Skipped("equal elements: which one gets the gradient is free")
            seed_all(*words)
            with Draws() as draws:
                want = to_cpu(reference(gradients, info, sample, Mover("cpu")))
            seed_all(*words)
            got = to_cpu(gradients(info, sample, Mover(run.device)))
            if draws.random:
                same_form(got, want)
            else:
                same(got, want, tolerances.tolerance(case, info), lambda: gradients(info, sample, widened))

        yield trial


KINDS = [Kind("backward", "gradients equal the CPU's, for the same random cotangents",
              lambda: pairs(lambda info: info.supports_autograd and not info.name.startswith("_foreach_"),
                            supported=lambda info: info.supported_backward_dtypes("cpu")), trials)]
