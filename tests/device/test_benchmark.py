"""benchmarks/compare.py runs: what it measures is its own to say, that every contender answers is said here."""
import importlib.util
import json
import subprocess
import sys

import pytest
from child import ROOT


@pytest.mark.eager("strict")
@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="JAX, a contender, is not installed")
def test_every_kind_of_contender_answers(tmp_path):
    out = tmp_path / "benchmark.json"
    done = subprocess.run([sys.executable, ROOT / "benchmarks" / "compare.py", "--rounds", "1", "--case", "item", "--case",
                           "chain_small", "--out", out], capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1), done.stderr  # 1: a bound is not met
    cases = json.loads(out.read_text())["cases"]
    assert cases["item"]["seconds"].keys() == {"adaptive", "torch", "jax", "raw"}
    assert cases["chain_small"]["seconds"].keys() == {"strict", "fused", "adaptive", "torch"}
    assert all(seconds > 0 for case in cases.values() for seconds in case["seconds"].values())
