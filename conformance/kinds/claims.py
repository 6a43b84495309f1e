"""The dtypes that an op takes."""
import torch
from torch.testing._internal.common_dtype import all_types_and_complex_and

from conformance.catalogue import NO_DTYPE, Case, Kind
from conformance.judge import Run, Skipped, reference
from conformance.kinds.opinfo import called, infos, placed
from conformance.samples import Mover, seed_all, to_cpu

DTYPES = all_types_and_complex_and(torch.bool, torch.float16, torch.bfloat16)


def trials(case: Case, run: Run):
    info = infos()[case.op]
    for dtype in DTYPES:
        def trial(dtype=dtype):
            seed_all(case.id, dtype, run.seed)
            sample = reference(lambda: next(iter(info.sample_inputs("cpu", dtype)), None))
            if sample is None:
                raise Skipped("no sample")
            placed(info, sample)
            reference(called, info.op, sample, Mover("cpu"))
            try:
                to_cpu(called(info.op, sample, Mover(run.device)))
            except Exception as error:
                raise type(error)(f"{dtype}: {error}") from None

        yield trial


KINDS = [Kind("dtypes", "every dtype that the CPU's kernels take is taken",
              lambda: ((name, NO_DTYPE) for name, info in infos().items() if not info.name.startswith("_foreach_")),
              trials)]
