"""Every environment variable that torch_pjrt reads: one table, from which docs/environment.md is written.

    python -m torch_pjrt._env > docs/environment.md
"""
import os
from dataclasses import dataclass
from typing import Any, Callable


@dataclass(frozen=True)
class Variable:
    name: str
    kind: Callable[[str], Any]
    default: Any
    doc: str


EAGER_MODES = ("strict", "fused", "adaptive", "blocking")  # in the order of the core's pj_eager


def flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(f"is neither 0 nor 1: {text!r}")


def choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"is none of {', '.join(allowed)}: {text!r}")
        return text

    parse.__name__ = " | ".join(allowed)
    return parse


def whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number < 2**31 * 2**31:
            raise ValueError(f"is no whole number from {least} up: {text!r}")
        return number

    parse.__name__ = f"int >= {least}"
    return parse


def chips(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"is no list of chip numbers: {text!r}")
    if len(set(map(int, parts))) < len(parts):
        raise ValueError(f"names a chip twice: {text!r}")
    return [int(part) for part in parts]


VARIABLES = {v.name: v for v in [
    Variable("TORCH_PJRT_PLUGIN", str, "", "The PJRT plugin: the path of a .so file, or the name of a known package "
             "(`lammps-cpu`, `libtpu`, ...). Empty: libtpu where a TPU is present, else the first known CPU plugin."),
    Variable("TPU_LIBRARY_PATH", str, "", "libtpu's own variable: its file. Used where the machine has a TPU "
             "chip and TORCH_PJRT_PLUGIN is empty."),
    Variable("TORCH_PJRT_DRIVER", choice("auto", "torch_pjrt", "torch_tpu", "torch_xla"), "auto", "Which of the "
             "installed packages drives the device `tpu`; any but torch_pjrt: this one does nothing. auto: torch_tpu "
             "where it is installed and the machine has a TPU, else torch_pjrt; `import torch` then says which."),
    Variable("TORCH_PJRT_COMPAT", flag, True, "Accommodations for libraries that know a TPU only by another package's "
             "name (`torch-pjrt doctor` lists them)."),
    Variable("TORCH_PJRT_CPU_DEVICES", whole(1), 1, "Number of devices of a CPU plugin in one process."),
    Variable("TPU_VISIBLE_CHIPS", chips, [], "libtpu's own mask: the chips that this process sees, `0,1`. A CPU plugin "
             "makes as many devices as it names. Empty: all."),
    Variable("TORCH_PJRT_CACHE_DIR", str, "~/.cache/torch_pjrt", "Directory of compiled programs; empty: no disk cache."),
    Variable("TORCH_PJRT_CACHE_BYTES", whole(0), 0, "Size limit of that directory in bytes; 0: the core's default."),
    Variable("TORCH_PJRT_SHARED_CACHE", str, "", "A second directory of compiled programs that is only read, e.g. one "
             "for all users of a machine. It and its entries must be root's or the user's and writable by nobody else."),
    Variable("TORCH_PJRT_WORKERS", whole(0), 2, "Compile workers; 0: compile in this process."),
    Variable("TORCH_PJRT_COMPILE_TIMEOUT_MS", whole(0), 0, "Longest compile in milliseconds; 0: the core's default."),
    Variable("TORCH_PJRT_WORKER_BYTES", whole(0), 0, "Memory limit of one compile worker in bytes; 0: none."),
    Variable("TORCH_PJRT_EAGER", choice(*EAGER_MODES), "adaptive", "Whether every op runs at its call, or several as one "
             "program (torch.tpu.set_eager_mode)."),
    Variable("TORCH_PJRT_BLOCKING", flag, False, "The mode blocking, whatever TORCH_PJRT_EAGER says: every call returns when "
             "its op is computed, and tells what failed."),
    Variable("TORCH_PJRT_QUEUE", whole(2), 64, "Ops of one program at most, in fused and adaptive eager."),
    Variable("TORCH_PJRT_FALLBACK", choice("warn", "error", "silent"), "warn", "What happens when an op has to run on "
             "the CPU: a warning once per op, an error, or nothing. It is counted in any case."),
    Variable("TORCH_PJRT_INDEX_CHECK", choice("deferred", "strict", "off"), "deferred", "When an index out of range is "
             "told: at the next synchronization, at once, or never."),
    Variable("TORCH_PJRT_LOG", choice("off", "error", "warning", "info", "debug"), "warning", "What the core writes to stderr."),
]}


def get(name: str) -> Any:
    """The variable's value; ValueError, with its name, when the text is not of its kind."""
    variable = VARIABLES[name]
    text = os.environ.get(name)
    if text is None:
        return variable.default
    try:
        return variable.kind(text)
    except ValueError as error:
        raise ValueError(f"the environment variable {name} {error}") from None


def check() -> None:
    """ValueError for the first variable that cannot be read, also for those that the core reads by itself."""
    for name in VARIABLES:
        get(name)


def document() -> str:
    lines = ["# Environment variables", "", "Written by `python -m torch_pjrt._env`.", "",
             "| variable | type | default | what it does |", "|---|---|---|---|"]
    for v in VARIABLES.values():
        kind = v.kind.__name__.replace("|", "\\|")
        lines.append(f"| `{v.name}` | {kind} | `{v.default!r}` | {v.doc} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(document())
