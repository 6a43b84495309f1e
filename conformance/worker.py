"""The process in which cases run: a crash or a hang costs one case.

    python -m conformance.worker DEVICE SEED SAMPLES PLUGIN     (SAMPLES, PLUGIN: "-" for none)

It reads one JSON list [kind, op, dtype] a line and answers with one {"trial": n} a line before each trial, so that the
parent knows that it lives, and then with the case's result. What ops print goes to stderr.
"""
import faulthandler
import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from conformance.catalogue import Case, kinds
from conformance.judge import PASSED, RESULTS, Activity, FellBack, Run, Skipped, Unbuildable, Wrong, first_line


def judged(trial: Callable[[], None], device: str) -> tuple[str, str]:
    """The result of a trial and its reason."""
    activity = Activity(device)
    try:
        trial()
    except Wrong as reason:
        return "wrong", str(reason)
    except Unbuildable as reason:
        return "unbuildable", str(reason)
    except Skipped as reason:
        return "skipped", str(reason)
    except FellBack as reason:
        return "fallback", str(reason)
    except Exception as error:
        return "error", f"{type(error).__name__}: {first_line(error)}"
    return activity.word()


def run_case(case: Case, run: Run, trials: Callable, tell: Callable[[dict], None]) -> dict[str, Any]:
    begin, counts = time.monotonic(), Counter()
    result, reason = "skipped", "no sample"
    number = 0
    tell({"trial": number})
    try:
        for number, trial in enumerate(trials(case, run)):
            tell({"trial": number})
            word, why = judged(trial, run.device)
            counts[word] += 1
            if RESULTS.index(word) > RESULTS.index(result) or number == 0:
                result, reason = word, f"trial {number}: {why}" if why else ""
    except Unbuildable as why:
        result, reason = "unbuildable", str(why)
    except Exception as error:  # of the kind itself, as of a sample function
        result, reason = "unbuildable", f"{type(error).__name__}: {first_line(error)}"
    passed = sum(counts[word] for word in PASSED)
    return {"id": case.id, "kind": case.kind, "op": case.op, "dtype": case.dtype, "result": result, "reason": reason,
            "seconds": round(time.monotonic() - begin, 3), "passed": passed,
            "samples": sum(counts.values()) - counts["skipped"] - counts["unbuildable"]}


def main() -> None:
    device, seed, samples, plugin = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table = kinds(None if plugin == "-" else plugin)
    run = Run(device, int(seed), None if samples == "-" else int(samples))

    def tell(message: dict) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    tell({"ready": True})
    for line in sys.stdin:
        case = Case(*json.loads(line))
        tell(run_case(case, run, table[case.kind].trials, tell))


if __name__ == "__main__":
    main()
