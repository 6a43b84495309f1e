"""Which cases there are, and which of them a run takes."""
import hashlib
import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

KIND_MODULES = ("forward", "backward", "variants", "layouts", "errors", "claims", "autocast", "determinism", "compiled",
                "modules", "optimizers")
DTYPES = ("float32", "bfloat16", "float16", "int64", "int32", "bool", "complex64")
ALL_DTYPES = (*DTYPES, "float64", "complex128", "complex32", "int8", "int16", "uint8", "uint16", "uint32", "uint64")
NO_DTYPE = "-"


@dataclass(frozen=True)
class Case:
    kind: str
    op: str
    dtype: str  # "float32", or "-" where the kind has none

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.op}/{self.dtype}"


@dataclass(frozen=True)
class Kind:
    """One question that is asked of many ops.

    `cases()` gives pairs (op, dtype). `trials(case, run)` gives functions, one for each sample: it returns when the
    device is right, and else raises (see judge.py); `run` is a judge.Run.
    """
    name: str
    question: str
    cases: Callable[[], Iterable[tuple[str, str]]]
    trials: Callable[[Case, Any], Iterator[Callable[[], None]]]


@dataclass(frozen=True)
class Budget:
    """`share` of each kind's cases, at most `samples` of each; None: all."""
    samples: int | None
    share: dict[str, float]


# Shares by the measured seconds a case (forward 0.2 to 0.5, compile 1.3, errors 0.1, ...), on two cores that others
# used too.
BUDGETS = {
    "5m": Budget(2, {"forward": 0.12, "metadata": 0.08, "backward": 0.12, "variants": 0.08, "layouts": 0.1,
                     "errors": 0.5, "dtypes": 0.05, "autocast": 1, "determinism": 0.1, "compile": 0.05,
                     "modules": 0.15, "optimizers": 0.3}),
    "30m": Budget(5, {"forward": 0.5, "metadata": 0.3, "backward": 0.3, "variants": 0.3, "layouts": 0.3, "errors": 1,
                      "dtypes": 0.2, "autocast": 1, "determinism": 0.3, "compile": 0.2, "modules": 0.5,
                      "optimizers": 1}),
    "full": Budget(None, {}),
}


def draw(*words: object) -> float:
    """A number in [0, 1) that depends on the words only."""
    digest = hashlib.sha256("\0".join(map(str, words)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def kinds(plugin: str | None = None) -> dict[str, Kind]:
    """All kinds, or those of the module `plugin` alone (a list KINDS)."""
    modules = [plugin] if plugin else [f"conformance.kinds.{name}" for name in KIND_MODULES]
    return {kind.name: kind for module in modules for kind in importlib.import_module(module).KINDS}


def select(table: dict[str, Kind], op: str | None = None, dtypes: list[str] | None = None, kind: str | None = None,
           budget: str = "full", seed: int = 0, shard: tuple[int, int] = (1, 1)) -> list[Case]:
    """The cases that match, in the order in which they run: all of an op together, since they share programs. Patterns
    are fnmatch's. A case belongs to the shard i of n, and to a budget, by the hash of its id."""
    wanted = set(dtypes or DTYPES) | {NO_DTYPE}
    share = BUDGETS[budget].share
    found = [case for k in table.values() if kind is None or fnmatchcase(k.name, kind)
             for case in (Case(k.name, *pair) for pair in k.cases())
             if case.dtype in wanted and (op is None or fnmatchcase(case.op, op))
             and draw(case.id, seed) < share.get(case.kind, 1)
             and int(draw(case.id, "shard") * shard[1]) == shard[0] - 1]
    order = {name: i for i, name in enumerate(table)}
    return sorted(found, key=lambda c: (c.op, order[c.kind], c.dtype))
