"""What the device tells of its work: counters, programs and fallbacks."""
import re
import warnings
from pathlib import Path

import pytest
import torch
from child import run
from compare import counted

COUNTERS = {"compiles", "compile_ms", "worker_failures", "cache_loads", "executions", "host_reads", "bytes_to_device",
            "bytes_to_host",
            "donations", "fallback_calls", "decompositions", "queue_cuts"}
ROW = {"op": str, "shapes": list, "dtypes": list, "line": str, "reason": str, "compile_ms": float, "from": str,
       "temp_bytes": int}


def test_counters_have_their_names_and_start_again_at_zero():
    run("""
    x = torch.ones(3).to("tpu") + 1
    x.cpu()
    before = torch.tpu.counters()
    assert before["executions"] == 1 and before["host_reads"] == 1, before
    assert before["compiles"] + before["cache_loads"] == 1, before
    assert before["bytes_to_device"] == before["bytes_to_host"] == 12, before
    torch.tpu.reset_counters()
    after = torch.tpu.counters()
    assert after.keys() == before.keys() and not any(after.values()), after
    """)
    assert torch.tpu.counters().keys() == COUNTERS
    assert all(type(value) is (float if name == "compile_ms" else int) for name, value in torch.tpu.counters().items())


@pytest.mark.parametrize("work, counts", [
    (lambda x: x + 1, dict(executions=1, host_reads=0, bytes_to_device=0)), (lambda x: x.t()[1:], dict(executions=0)),
    (lambda x: x.clone().contiguous(), dict(executions=0)),
    (lambda x: x.cpu(), dict(executions=0, host_reads=1, bytes_to_host=96)),
    (lambda x: x[1, 1].item(), dict(host_reads=1)),
    (lambda x: torch.ones(5, 5).to("tpu"), dict(bytes_to_device=100, executions=0)),
    (lambda x: x.repeat(200, 200).mul_(2), dict(executions=2, donations=1)),
    (lambda x: torch.empty(9, device="tpu"), dict(executions=0)),
    (lambda x: x * 3.5, dict(executions=1, bytes_to_device=0))])
@pytest.mark.eager("strict")
def test_work_is_counted(work, counts):
    x = torch.ones(4, 6).to("tpu")
    work(x)
    found = counted(lambda: work(x))
    assert {name: found[name] for name in counts} == counts


@pytest.mark.eager("strict")
def test_every_program_is_a_row_with_the_callers_line():
    torch.tpu.synchronize()
    seen = len(torch.tpu.explain())
    x = torch.full((3, 211), 2.0).to("tpu")
    y = torch.arange(211, dtype=torch.int32).to("tpu")
    torch.ldexp(x, y)
    torch.tpu.synchronize()
    rows = torch.tpu.explain()[seen:]
    assert rows
    for row in rows:
        assert {name: type(value) for name, value in row.items()} == ROW
        assert "test_introspection.py:" in row["line"] and row["compile_ms"] > 0 and row["from"] in ("compiler", "disk")
        assert len(row["shapes"]) == len(row["dtypes"]) and row["temp_bytes"] >= -1
    assert any((3, 211) in row["shapes"] and "f32" in row["dtypes"] for row in rows)


ROOT = Path(__file__).resolve().parents[2]


def test_every_reason_for_a_program_is_told_in_the_docstring_and_in_the_docs():
    core = "".join((ROOT / "core" / "run" / file).read_text() for file in ("plan.c", "program.c", "queue.c", "adaptive.c"))
    words = set(re.findall(r'"((?:new|not) [a-z ]+)"', core))
    assert len(words) >= 9
    for text in (torch.tpu.explain.__doc__, (ROOT / "docs" / "design.md").read_text()):
        assert set(re.findall(r"[`\"]((?:new|not) [a-z ]+)[`\"]", text)) == words


@pytest.mark.eager("strict")
def test_a_line_is_told_relative_to_the_working_directory(tmp_path):
    program = tmp_path / "folder" / "program.py"
    program.parent.mkdir()
    program.write_text("import torch\ntorch.ones(3, 7, device='tpu').mul(3).sum()\n")
    found = run(f"""
    import os, runpy
    torch.tpu.counters()
    def lines():
        return {{row["line"] for row in torch.tpu.explain()}}
    runpy.run_path({str(program)!r})
    print(sorted(lines()))
    os.chdir({str(tmp_path)!r})
    print(sorted(lines()))
    os.chdir("folder")
    print(sorted(lines()))
    """).splitlines()
    assert found[-3:] == [str([f"{program}:2"]), "['folder/program.py:2']", "['program.py:2']"]


def fall_back():
    """An op that has neither a lowering nor a decomposition."""
    return torch.linalg.eigvals(torch.diag(torch.tensor([1.0, 2.0, 3.0])).to("tpu"))


def test_a_fallback_is_counted_listed_and_warned_about_once():
    run("""
    import warnings
    def fall_back():
        return torch.linalg.eigvals(torch.diag(torch.tensor([1.0, 2.0, 3.0])).to("tpu"))
    assert torch.tpu.fallbacks() == {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert sorted(fall_back().real.tolist()) == [1, 2, 3]
        fall_back()
    said = [str(w.message) for w in caught if "runs on the CPU" in str(w.message)]
    assert len(said) == 1 and "eig" in said[0], said
    (name, calls), = torch.tpu.fallbacks().items()
    assert "eig" in name and calls == 2 == torch.tpu.counters()["fallback_calls"], (name, calls)
    """)


def test_the_fallback_mode_is_undone_at_the_end_of_its_context():
    with torch.tpu.set_fallback("silent"), warnings.catch_warnings():
        warnings.simplefilter("error")
        fall_back()
        with torch.tpu.set_fallback("error"), pytest.raises(NotImplementedError, match="aten::.*eig.*no lowering"):
            fall_back()
        fall_back()
    for mode in ("loud", "", None):
        with pytest.raises((ValueError, TypeError)):
            torch.tpu.set_fallback(mode)


@pytest.mark.eager("strict")
def test_the_eager_mode_is_told_and_a_wrong_one_refused():
    assert torch.tpu.get_eager_mode() == "strict"
    try:
        torch.tpu.set_eager_mode("fused", length=3)
        assert torch.tpu.get_eager_mode() == "fused"
        x = torch.ones(3).to("tpu")
        found = counted(lambda: x.add(1).mul(2).add(3).mul(4).cpu())
        assert found["executions"] == 2 and found["queue_cuts"] >= 1
    finally:
        torch.tpu.set_eager_mode("strict")
    with pytest.raises(ValueError, match="lazy"):
        torch.tpu.set_eager_mode("lazy")
    with pytest.raises(ValueError, match="never"):
        torch.tpu.set_index_check("never")


def test_the_device_tells_what_it_is():
    assert torch.tpu.is_available() and torch.tpu.is_initialized() and torch.tpu.device_count() >= 1
    assert torch.accelerator.current_accelerator().type == "tpu" and torch.get_device_module("tpu") is torch.tpu
    properties = torch.tpu.get_device_properties()
    assert properties.name == torch.tpu.get_device_name() and properties.platform and properties.total_memory > 0
    x = torch.ones(2, device="tpu")
    assert x.is_tpu and x.tpu().data_ptr() == x.data_ptr()
    assert torch.ones(2).tpu().device.type == "tpu" and not torch.ones(2).is_tpu
