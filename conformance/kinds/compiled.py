"""torch.compile."""
import warnings
from unittest import mock

import torch

from conformance.catalogue import Case, Kind
from conformance.judge import FellBack, Run
from conformance.kinds.opinfo import Reference, called, infos, pairs, samples_of
from conformance.samples import Mover, seed_all


def trials(case: Case, run: Run):
    info = infos()[case.op]
    for number, sample in samples_of(case, run, most=2):
        def trial(words=(case.id, number, run.seed), sample=sample):
            want = Reference(info.op, sample, *words)
            torch._dynamo.reset()
            compiled = torch.compile(lambda *args, **kwargs: info.op(*args, **kwargs), dynamic=False)
            seed_all(*words)
            # Dynamo cannot trace upstream's wrapper that seeds and puts the generator's state back; random results are
            # judged by their distribution anyway.
            plain = mock.patch("torch.testing._internal.common_methods_invocations.wrapper_set_seed",
                               lambda op, *args, **kwargs: op(*args, **kwargs))
            with plain, warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                got = called(compiled, sample, Mover(run.device))
            want.judge(case, got, info)
            apart = [str(w.message) for w in said if "runs op by op" in str(w.message)]
            if apart:
                raise FellBack(apart[0])

        yield trial


KINDS = [Kind("compile", "torch.compile of the op gives the CPU's eager results",
              lambda: pairs(lambda info: not info.name.startswith("_foreach_"), ("float32",)), trials)]
