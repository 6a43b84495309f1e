"""The libraries as their users call them, offline; each test begins with the same seed and forbids the CPU fallback."""
import os
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported

import pytest
import torch
import torch_pjrt  # noqa: F401


@pytest.fixture(autouse=True)
def seeded_and_native():
    torch.manual_seed(0)
    with torch.tpu.set_fallback("error"):
        yield


@pytest.fixture
def process():
    """Runs a program in a process of its own, with these arguments and variables, and gives what it wrote to stdout."""

    def run(program: str, *arguments, **environment: str) -> str:
        done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=240, env={**os.environ, **environment})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
