"""Cases whose results are known: `python -m conformance run --plugin-cases fake_cases`. Each run is noted in
$FAKE_LOG."""
import os
import time

import torch

from conformance.catalogue import Kind
from conformance.compare import same
from conformance.judge import Skipped, reference


def answer(device, factor):
    x = torch.arange(4.0)
    same(factor * x.to(device), 2 * x)


def eigenvalues(device):
    torch.linalg.eigvals(torch.diag(torch.tensor([1.0, 2.0])).to(device)).cpu()


library = torch.library.Library("conformance_test", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CPU")
library.impl("twice", lambda x: torch.empty_like(x), "Meta")


def decomposed(device):
    """An op that has a decomposition and no lowering."""
    if device == "tpu":
        from torch_pjrt import decompose

        decompose._table()[torch.ops.conformance_test.twice.default] = lambda x: x + x
    same(torch.ops.conformance_test.twice(torch.ones(3).to(device)), torch.full((3,), 2.0))


def absent(device):
    raise Skipped("not asked")


OPS = {"right": lambda device: answer(device, 2), "wrong": lambda device: answer(device, 3),
       "error": lambda device: answer("no device", 2), "crash": lambda device: os.abort(),
       "hang": lambda device: time.sleep(1000), "unbuildable": lambda device: reference(torch.ones, -1),
       "skipped": absent,
       "right_again": lambda device: answer(device, 2), "fallback": eigenvalues, "decomposed": decomposed}


def trials(case, run):
    with open(os.environ["FAKE_LOG"], "a") as log:
        log.write(case.op + "\n")
    yield lambda: answer(run.device, 2)
    yield lambda: OPS[case.op](run.device)


KINDS = [Kind("fake", "what is said of known results", lambda: ((op, "float32") for op in OPS), trials)]
