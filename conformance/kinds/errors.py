"""Bad calls."""
import re

from conformance.catalogue import NO_DTYPE, Case, Kind
from conformance.compare import raised
from conformance.judge import Run, Skipped, Wrong, first_line
from conformance.kinds.opinfo import infos, placed
from conformance.samples import Mover, seed_all, to_cpu


def trials(case: Case, run: Run):
    info = infos()[case.op]
    seed_all(case.id, run.seed)
    for bad in info.error_inputs("cpu"):
        def trial(bad=bad):
            sample = placed(info, bad.sample_input)

            def call(move):
                arguments = move([sample.input, list(sample.args), sample.kwargs])
                return to_cpu(info.op(arguments[0], *arguments[1], **arguments[2]))

            want = raised(lambda: call(Mover("cpu")))
            if want is None:
                raise Skipped("the CPU takes it")
            got = raised(lambda: call(Mover(run.device)))  # its results are read, since errors may come late
            if got is None:
                raise Wrong(f"is taken; the CPU raises {type(want).__name__}: {first_line(want)}")
            if not isinstance(got, type(want)):
                raise Wrong(f"raises {type(got).__name__}: {first_line(got)}; the CPU raises {type(want).__name__}: "
                            f"{first_line(want)}")
            if re.search(str(bad.error_regex), str(want)) and not re.search(str(bad.error_regex), str(got)):
                raise Wrong(f"says {first_line(got)!r}; upstream expects {str(bad.error_regex)!r}")

        yield trial


KINDS = [Kind("errors", "bad calls raise the CPU's exception, with the text that upstream expects",
              lambda: ((name, NO_DTYPE) for name, info in infos().items() if info.error_inputs_func), trials)]
