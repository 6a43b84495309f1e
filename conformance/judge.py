"""What a trial may say, and what is asked of the device about it."""
from dataclasses import dataclass
from typing import Any

import torch

# From best to worst; a case is what the worst of its trials is.
RESULTS = ("skipped", "unbuildable", "ok", "native", "decomposed", "fallback", "error", "wrong", "timeout", "crash")
PASSED = ("ok", "native", "decomposed")


class Wrong(Exception):
    """The device gave another answer than PyTorch on the CPU."""


class Unbuildable(Exception):
    """The CPU cannot answer this sample either, so nothing is asked of the device."""


class Skipped(Exception):
    """The question does not arise for this sample."""


class FellBack(Exception):
    """The answer is right, but was had in a way that counts as a fallback."""


@dataclass(frozen=True)
class Run:
    device: str
    seed: int
    samples: int | None  # at most so many of a case


def reference(call, *args, **kwargs) -> Any:
    """What the CPU gives; Unbuildable when it raises."""
    try:
        return call(*args, **kwargs)
    except Skipped:
        raise
    except Exception as error:
        raise Unbuildable(f"the CPU raises {type(error).__name__}: {first_line(error)}") from None


def raised_nothing(call) -> Any:
    """What the call gives, or None when it raises."""
    try:
        return call()
    except Exception:
        return None


def first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else ""


class Activity:
    """How the device ran what ran between the beginning and `word`: counted where torch.<device> counts, else "ok"."""

    def __init__(self, device: str):
        self.module = getattr(torch, torch.device(device).type, None)
        self.counts = hasattr(self.module, "counters") and hasattr(self.module, "fallbacks")
        if self.counts:
            self.counters, self.fallbacks = self.module.counters(), self.module.fallbacks()

    def word(self) -> tuple[str, str]:
        """The result and its reason."""
        if not self.counts:
            return "ok", ""
        counters, fallbacks = self.module.counters(), self.module.fallbacks()
        ran = sorted(op for op, calls in fallbacks.items() if calls > self.fallbacks.get(op, 0))
        if ran or counters["fallback_calls"] > self.counters["fallback_calls"]:
            return "fallback", f"on the CPU: {', '.join(ran)}"
        return ("decomposed" if counters["decompositions"] > self.counters["decompositions"] else "native"), ""
