"""Worker processes, seen from the parent: each runs case after case, and a new one takes over after a crash or a
hang."""
import contextlib
import json
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from conformance.catalogue import Case

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 300  # to import torch and its lists of ops, on a loaded machine
MOST_BYTES = 4 << 30  # of a worker that is used again: programs stay in memory


def last_words(said: BinaryIO, code: int) -> str:
    """How a process ended, and the line of its stderr that says why."""
    said.seek(0)
    lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    # What a failed check of XLA's says, or the exception that ended Python; the stack below either says less.
    why = [line for line in lines if line.startswith("F0") or "Check failed" in line or "Error" in line]
    name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    return f"{name}: {(why or lines or [''])[-1][:300]}"


class Worker:
    """`limit`: seconds without a sign of life after which a case has hung."""

    def __init__(self, arguments: list[str], limit: float):
        self.arguments, self.limit = arguments, limit
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen([sys.executable, "-m", "conformance.worker", *self.arguments], cwd=ROOT,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)
        self.buffer = b""
        message = self.read(START_SECONDS)
        if message is None or "ready" not in message:
            text = self.last_words()
            self.stop()
            raise RuntimeError(f"a worker did not start: {text}")

    def read(self, seconds: float) -> dict[str, Any] | None:
        """The next message; None at the end of the process. TimeoutError after so many seconds."""
        until = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            if not select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError
            data = self.process.stdout.read1(65536)
            if not data:
                return None
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def last_words(self) -> str:
        return last_words(self.said, self.process.wait())

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.said.close()
            self.process = None

    def bytes(self) -> int:
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096
        return 0

    def run(self, case: Case) -> dict[str, Any]:
        if self.process is None:
            self.start()
        begin, trial = time.monotonic(), 0

        def ended(result: str, reason: str) -> dict[str, Any]:
            self.stop()
            return {"id": case.id, "kind": case.kind, "op": case.op, "dtype": case.dtype, "result": result,
                    "reason": f"trial {trial}: {reason}", "seconds": round(time.monotonic() - begin, 3), "passed": 0,
                    "samples": 1}

        try:
            self.process.stdin.write(json.dumps([case.kind, case.op, case.dtype]).encode() + b"\n")
            self.process.stdin.flush()
            while True:
                message = self.read(self.limit)
                if message is None:
                    return ended("crash", self.last_words())
                if "result" in message:
                    break
                trial = message["trial"]
        except BrokenPipeError:
            return ended("crash", self.last_words())
        except TimeoutError:
            return ended("timeout", f"not done after {self.limit:g} s")
        if self.bytes() > MOST_BYTES:
            self.stop()
        return message


def run_all(cases: Iterable[Case], arguments: list[str], limit: float, jobs: int,
            done: Callable[[dict[str, Any]], None]) -> None:
    """Runs the cases in `jobs` workers; calls done(result) for each, one at a time. The first exception of a worker's
    start, or of done, ends it all."""
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    lock, failures, stop = threading.Lock(), [], threading.Event()

    def work() -> None:
        worker = Worker(arguments, limit)
        try:
            while not stop.is_set():
                result = worker.run(waiting.get_nowait())
                with lock:
                    done(result)
        except queue.Empty:
            pass
        except BaseException as error:
            failures.append(error)
            stop.set()
        finally:
            worker.stop()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        stop.set()
        for thread in threads:
            thread.join()
        raise
    if failures:
        raise failures[0]
