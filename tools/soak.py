"""Long runs that no test waits for. Prints one JSON object, and appends it to --out.

    python tools/soak.py threads [--minutes 10]   eight threads of eager ops, backward passes and transfers, on a core that is
                                                  built with ThreadSanitizer: no race, no deadlock, the CPU's results
    python tools/soak.py starts [--count 100]     processes that compile and then end in every way: none hangs, and none
                                                  leaves a compile worker behind
"""
import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import results
from results import ROOT

PR_SET_CHILD_SUBREAPER = 36

# How a process ends -> what it does once it has used the device, and what it must give back. The device is still busy then.
ENDINGS = {
    "at its end": ("", [0]),
    "by an exception": ("raise ValueError('on purpose')", [1]),
    "by sys.exit in the midst of work": ("sys.exit(3)", [3]),
    "by os._exit": ("os._exit(4)", [4]),
    "by SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", [-signal.SIGTERM]),
    "by Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(30)", [-signal.SIGINT]),
    "by Ctrl-C in a compile": ("threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
                               "for n in range(1, 10**6): torch.ones(n, device='tpu').cumsum(0)", [-signal.SIGINT]),
    "with a thread that computes": ("threading.Thread(target=lambda: [x.mul_(1.5) for _ in range(10**7)], daemon=True).start()",
                                    [0, -signal.SIGABRT]),  # PyTorch's binding aborts then, also with tensors on the CPU
    "with a backward pass under way": ("y = torch.ones(300, 300, device='tpu', requires_grad=True)\n(y @ y @ y).sum().backward()",
                                       [0]),
}
START = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started this with Ctrl-C ignored
import torch, torch_pjrt
x = torch.randn(64, 64, device="tpu")
(x @ x).sum().item()
"""


def children():
    """Processes whose parent this one is now."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(entry.name))
        except (OSError, IndexError):
            continue  # it has just ended
    return found


def starts(options):
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):  # orphans become children of this process
        sys.exit("the kernel knows no subreapers")
    faults = []
    for number in range(options.count):
        name, (work, wanted) = list(ENDINGS.items())[number % len(ENDINGS)]
        # Without a cache every process starts a worker.
        process = subprocess.Popen([sys.executable, "-c", START + work], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, env=dict(os.environ, TORCH_PJRT_CACHE_DIR=""))
        try:
            said = process.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[1]
            faults.append(f"{name}: hangs")
        if process.returncode not in wanted:
            faults.append(f"{name}: status {process.returncode} for {wanted}: {said[-300:]}")
        deadline = time.monotonic() + 5
        while children() and time.monotonic() < deadline:
            try:
                os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            time.sleep(0.01)
        for orphan in children():
            faults.append(f"{name}: leaves process {orphan} behind")
            os.kill(orphan, signal.SIGKILL)
        print(f"\r{number + 1} of {options.count}", end="", file=sys.stderr, flush=True)
    return {"processes": options.count, "endings": list(ENDINGS), "faults": faults}


def threads(options):
    import torch_pjrt

    build = ROOT / "build" / "thread"
    for command in (["cmake", "-S", ROOT / "core", "-B", build, "-G", "Ninja", "-DPJ_SANITIZE=thread"],
                    ["ninja", "-C", build, "pj"]):
        subprocess.run(command, check=True, stdout=sys.stderr)
    runtime = subprocess.run(["gcc", "-print-file-name=libtsan.so"], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "torch_pjrt")
        shutil.copytree(Path(torch_pjrt.__file__).parent, package, ignore=shutil.ignore_patterns("libpj.so*"), ignore_dangling_symlinks=True)
        for library in build.glob("libpj.so*"):
            shutil.copy(library, package, follow_symlinks=False)
        # Only what the core itself does is judged: Python, torch and the plugin are not built with ThreadSanitizer.
        told = f"ignore_noninstrumented_modules=1 report_signal_unsafe=0 suppressions={ROOT / 'tools' / 'tsan.supp'} " \
               f"exitcode=0 log_path={folder}/race"
        result = subprocess.run([sys.executable, ROOT / "tools" / "soak_threads.py", str(options.minutes)], capture_output=True, text=True,
                                env=dict(os.environ, LD_PRELOAD=str(Path(runtime).resolve()), PYTHONPATH=folder, TSAN_OPTIONS=told),
                                timeout=60 * options.minutes + 600)
        races = [line for report in Path(folder).glob("race.*") for line in report.read_text().splitlines()
                 if line.startswith("SUMMARY")]
    faults = sorted(set(races)) + ([] if result.returncode == 0 else [result.stdout[-500:] + result.stderr[-500:]])
    return {"minutes": options.minutes, **(json.loads(result.stdout) if result.returncode == 0 else {}), "faults": faults}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["threads", "starts"])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    begun = results.row(options.what)
    return results.keep({**begun, **{"threads": threads, "starts": starts}[options.what](options)}, options.out)


if __name__ == "__main__":
    sys.exit(main())
