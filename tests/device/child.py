"""Python programs in processes of their own: for tests of what a process can survive, or of how it starts."""
import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What every program begins with. `error` calls f and gives what it raises as (type's name, text).
PRELUDE = """
import torch, torch_pjrt

def error(f, *args):
    try:
        f(*args)
    except Exception as e:
        return type(e).__name__, str(e)
    return "", "nothing was raised"

def works():
    assert (torch.ones(3, device="tpu") + 1).tolist() == [2, 2, 2]
"""


def run(program: str, timeout: float = 240, prelude: str = PRELUDE, **environment: str) -> str:
    """Runs the program and gives what it wrote to stdout and stderr; fails when it died, hung or raised."""
    command = [sys.executable, "-X", "faulthandler", "-c", prelude + textwrap.dedent(program)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=timeout, env=dict(os.environ, **environment))
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}"
    return done.stdout
