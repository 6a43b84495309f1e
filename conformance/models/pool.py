"""A process for each type, forked from this one, which has imported torch and Transformers and never used the device.

The child writes JSON lines to a pipe: {"stage": ...} when it begins something, {"row": ...} when it is done. A crash, a
hang or a lack of memory ends it alone, and the last stage says where.
"""
import faulthandler
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from conformance.pool import last_words

Tell = Callable[[str], None]


@dataclass
class Child:
    name: str
    process: int
    pipe: int
    said: BinaryIO
    begin: float
    received: bytes = b""
    stage: str = "start"
    row: dict[str, Any] = field(default_factory=dict)

    def read(self) -> bool:
        """Takes what has come; False at the end."""
        data = os.read(self.pipe, 1 << 20)
        *lines, self.received = (self.received + data).split(b"\n")
        for message in map(json.loads, lines):
            self.stage = message.get("stage", self.stage)
            self.row = message.get("row", self.row)
        return bool(data)


def _child(name: str, call: Callable[[str, Tell], dict], pipe: int, said: BinaryIO, most_bytes: int) -> None:
    """Never returns."""
    try:
        faulthandler.disable()  # what ended it is in the last line
        os.setsid()  # so that its compile workers end with it
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False)
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(pipe, "w", buffering=1) as out:
            row = call(name, lambda stage: print(json.dumps({"stage": stage}), file=out))
            print(json.dumps({"row": row}), file=out)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _start(name: str, call: Callable[[str, Tell], dict], most_bytes: int) -> Child:
    read, write = os.pipe()
    said = tempfile.TemporaryFile()
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if not process:
        os.close(read)
        _child(name, call, write, said, most_bytes)
    os.close(write)
    return Child(name, process, read, said, time.monotonic())


def _end(child: Child, killed: bool) -> int:
    """The exit status; first killed, or ending by itself. What it has started, as compile workers, ends too."""
    try:
        if killed:
            os.kill(child.process, signal.SIGKILL)
        status = os.waitpid(child.process, 0)[1]
        os.killpg(child.process, signal.SIGKILL)
    except ProcessLookupError:  # it had started none
        pass
    os.close(child.pipe)
    return status


def run_all(names: list[str], call: Callable[[str, Tell], dict[str, Any]],
            done: Callable[[str, dict[str, Any]], None], *, limit: float, most_bytes: int, jobs: int) -> None:
    """call(name, tell) in a process for each name, `jobs` at a time; done(name, row) here, with row = {"result":
    "crash" or "timeout", "reason": ..., "seconds": ...} where the process gave none."""
    waiting, live = list(names), {}
    try:
        while waiting or live:
            while waiting and len(live) < jobs:
                child = _start(waiting.pop(0), call, most_bytes)
                live[child.pipe] = child
            ready = select.select(list(live), [], [], 0.2)[0]
            for pipe, child in list(live.items()):
                ended = pipe in ready and not child.read()
                late = not ended and time.monotonic() - child.begin > limit
                if not (ended or late):
                    continue
                del live[pipe]
                status, row = _end(child, killed=late), child.row
                if not row:
                    why = f"not done after {limit:g} s" if late else last_words(child.said, os.waitstatus_to_exitcode(status))
                    row = {"result": "timeout" if late else "crash", "reason": f"{child.stage}: {why}"[:300]}
                child.said.close()
                done(child.name, {**row, "seconds": round(time.monotonic() - child.begin, 1)})
    finally:
        for child in live.values():
            _end(child, killed=True)
