"""TORCH_LOGS of the device: what is compiled, what runs on the CPU, when the queue is cut.

    TORCH_LOGS=tpu_compiles,tpu_fallbacks python train.py
    TORCH_LOGS=+torch_pjrt python train.py                   # all but tpu_cuts, which is a line an op in strict eager
"""
import functools
import logging
import os

from torch._logging import _internal

# The compiled module is imported where it is used: the names must be known also where it cannot be loaded.


_ARTIFACTS = {"tpu_compiles": "Each program of the tpu device: what, where, why, how long, from the compiler or disk.",
              "tpu_fallbacks": "Each op of the tpu device that runs on the CPU.",
              "tpu_cuts": "When queued ops of the tpu device run, and why."}

# What is written of each kind of span (pj/trace.h).
_LINES = {"COMPILE": ("tpu_compiles", "%(text)s at %(line)s: %(reason)s, %(ms).1f ms, from compiler"),
          "LOAD": ("tpu_compiles", "%(text)s at %(line)s: %(reason)s, %(ms).1f ms, from disk"),
          "REFUSED": ("tpu_compiles", "%(text)s at %(line)s: the compiler refused it, and it runs op by op"),
          "FALLBACK": ("tpu_fallbacks", "%(text)s at %(line)s"),
          "CUT": ("tpu_cuts", "%(ops)d queued: %(reason)s")}

_loggers: dict[str, logging.Logger] = {}  # by artifact


def short(line: str) -> str:
    """A source line as people read it: relative to the working directory where the file is under it."""
    return line.removeprefix(os.path.join(os.getcwd(), ""))


def tell(kind: int, text: str, line: str, reason: str, ms: float, ops: int) -> None:
    """Called by the core for each span of a kind that was asked for."""
    from torch_pjrt import _C

    artifact, form = _LINES[_C.SPAN_KINDS[kind]]
    where = short(line) or "an unknown line"
    _loggers[artifact].debug(form, dict(text=text, line=where, reason=reason, ms=ms, ops=ops))


def listen() -> None:
    """Asks the core for what the loggers are set to write. The runtime is started."""
    from torch_pjrt import _C

    def writes(artifact: str) -> bool:
        logger = _loggers[artifact]
        return logger.isEnabledFor(logging.DEBUG) and (logger.propagate or bool(logger.handlers))

    _C.tell(sum(1 << _C.SPAN_KINDS.index(kind) for kind, (artifact, _) in _LINES.items() if writes(artifact)))


def register() -> None:
    """Before PyTorch reads TORCH_LOGS, which it does at the end of `import torch`."""
    _internal.register_log("torch_pjrt", "torch_pjrt")
    for name, description in _ARTIFACTS.items():
        _internal.register_artifact(name, description, visible=True, off_by_default=name == "tpu_cuts")
        _loggers[name] = _internal.getArtifactLogger("torch_pjrt", name)
    original = _internal._init_logs

    @functools.wraps(original)
    def _init_logs(*arguments, **named) -> None:  # also of torch._logging.set_logs; PyTorch has no hook for a change
        from torch_pjrt import _C

        original(*arguments, **named)
        if _C.is_started() and not _C.in_bad_fork():
            listen()

    _internal._init_logs = _init_logs
