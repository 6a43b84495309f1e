"""The suite itself: what is wrong is found and told, and costs one case."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from conformance import catalogue, report, results
from conformance.__main__ import main
from conformance.catalogue import Case
from conformance.compare import same, same_distribution
from conformance.judge import RESULTS, Wrong
from conformance.samples import Mover

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Of the fake cases on the CPU, where nothing is counted.
EXPECTED = {"right": "ok", "right_again": "ok", "fallback": "ok", "decomposed": "ok", "wrong": "wrong",
            "error": "error",
            "crash": "crash", "hang": "timeout", "unbuildable": "ok", "skipped": "ok"}


def absolute(paths):
    return os.pathsep.join(str(Path(path).absolute()) for path in paths)


@pytest.fixture
def ask(monkeypatch, tmp_path):
    """Runs the tool with the fake cases; gives its exit status, and the results by op if a file came out."""
    monkeypatch.setenv("PYTHONPATH", absolute([HERE, *sys.path]))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.syspath_prepend(str(HERE))
    (tmp_path / "none.tsv").write_text("id\tresult\tcause\n")

    def call(*arguments, device="cpu", out="run.jsonl", faults="none.tsv"):
        words = ["run", "--device", device, "--out", str(tmp_path / out), "--plugin-cases", "fake_cases", "--timeout",
                 "4",
                 "--open-faults", str(tmp_path / faults), *arguments]
        monkeypatch.setattr(sys, "argv", ["conformance", *words])
        try:
            status = main()
        except SystemExit as end:  # argparse's
            status = end.code
        return status, {row["op"]: row for row in results.read(tmp_path / out)[1]} if status != 2 else {}

    return call


def ran(tmp_path):
    return (tmp_path / "log").read_text().split()


def test_each_kind_of_failure_is_told_and_costs_one_case(ask, tmp_path):
    status, rows = ask()
    assert {op: row["result"] for op, row in rows.items()} == EXPECTED
    assert status == 1 and sorted(ran(tmp_path)) == sorted(EXPECTED)
    assert "SIGABRT" in rows["crash"]["reason"] and "4 s" in rows["hang"]["reason"]
    assert "not close" in rows["wrong"]["reason"] and "no device" in rows["error"]["reason"]
    assert (rows["right"]["passed"], rows["right"]["samples"]) == (2, 2)
    assert (rows["wrong"]["passed"], rows["wrong"]["samples"]) == (1, 2)

    # Listed faults are no news, and what the list says of another result is no excuse.
    bad = {op: word for op, word in EXPECTED.items() if word != "ok"}
    lines = [f"fake/{op}/*\t{word}\tmade so" for op, word in bad.items()]
    (tmp_path / "all.tsv").write_text("\n".join(["id\tresult\tcause", *lines]) + "\n")
    (tmp_path / "others.tsv").write_text("id\tresult\tcause\nfake/*\tfallback\tmade so\n")
    assert ask("--resume", faults="all.tsv")[0] == 0
    assert ask("--resume", faults="others.tsv")[0] == 1
    assert len(ran(tmp_path)) == len(EXPECTED)


def test_a_run_that_was_cut_off_goes_on_where_it_was(ask, tmp_path):
    assert ask("--op", "r*")[0] == 0
    file = tmp_path / "run.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    assert len(lines) == 3
    file.write_text("".join(lines[:2]) + lines[2][:20])
    status, rows = ask("--op", "r*", "--resume")
    assert status == 0 and set(rows) == {"right", "right_again"}
    assert sorted(ran(tmp_path)) == ["right", "right_again", "right_again"]
    assert ask("--op", "r*", "--resume", "--seed", "7")[0] == 2  # other inputs: not the same run


def test_a_wrong_question_has_exit_status_2(ask, tmp_path, capsys):
    for arguments, text in ((("--op", "no_such_op"), "no case matches"), (("--shard", "3/2"), "1 <= i <= n"),
                            (("--budget", "1h"), "invalid choice"), (("--dtype", "float31"), "invalid choice")):
        assert ask(*arguments)[0] == 2 and text in capsys.readouterr().err
    assert ask("--op", "right", device="abacus")[0] == 2 and "'abacus'" in capsys.readouterr().err
    (tmp_path / "run.jsonl").write_text("something else\n")
    for arguments in (("--op", "right"), ("--op", "right", "--resume")):
        assert ask(*arguments)[0] == 2 and "run.jsonl" in capsys.readouterr().err
    assert (tmp_path / "run.jsonl").read_text() == "something else\n" and not (tmp_path / "log").exists()


def test_on_the_device_a_fallback_is_told_and_is_no_pass(ask):
    status, rows = ask("--op", "[rfd]*", "--timeout", "120", device="tpu")
    assert {op: row["result"] for op, row in rows.items()} == {"right": "native", "right_again": "native",
                                                              "fallback": "fallback", "decomposed": "decomposed"}
    assert status == 1 and "eig" in rows["fallback"]["reason"] and rows["fallback"]["passed"] == 1


def test_shards_are_disjoint_and_together_all():
    sys.path.insert(0, str(HERE))
    table = catalogue.kinds("fake_cases")
    everything = catalogue.select(table)
    parts = [catalogue.select(table, shard=(i, 3)) for i in (1, 2, 3)]
    assert sorted((case.id for part in parts for case in part)) == sorted(case.id for case in everything)
    assert all(0 < len(part) < len(everything) for part in parts)


def test_a_budget_is_the_same_slice_each_time_and_another_one_from_another_seed():
    def cases():
        return ((f"op{i}", "float32") for i in range(1000))

    table = {"forward": catalogue.Kind("forward", "", cases, lambda *_: iter(()))}
    first = catalogue.select(table, budget="5m")
    assert first == catalogue.select(table, budget="5m") != catalogue.select(table, budget="5m", seed=1)
    share = catalogue.BUDGETS["5m"].share["forward"]
    assert abs(len(first) - 1000 * share) < 5 * (1000 * share) ** 0.5
    assert len(catalogue.select(table, budget="full")) == 1000
    assert set(catalogue.BUDGETS["5m"].share) == set(catalogue.BUDGETS["30m"].share) == set(catalogue.kinds())


@pytest.mark.parametrize("got, want", [
    (torch.ones(3), torch.ones(3) + 1e-4), (torch.ones(3), torch.ones(3).double()), (torch.ones(3), torch.ones(1, 3)),
    (torch.tensor([1.0, torch.nan]), torch.ones(2)), ([torch.ones(3)], [torch.ones(3)] * 2), (torch.ones(3), 1.0), (1,
                                                                                                                    2),
    (torch.tensor([torch.inf]), torch.tensor([-torch.inf])), (torch.zeros(2, dtype=torch.int64), torch.tensor([0, 1]))])
def test_a_difference_is_seen(got, want):
    same(want, want)
    with pytest.raises(Wrong):
        same(got, want)
    with pytest.raises(Wrong):
        same(want, got)


def test_a_result_may_be_nearer_to_the_exact_one_than_the_cpus():
    exact = torch.tensor([1.0], dtype=torch.float64)
    rounded = torch.tensor([1.05], dtype=torch.bfloat16)
    same(exact.bfloat16(), rounded, exact=lambda: exact)
    with pytest.raises(Wrong):
        same(torch.tensor([0.95], dtype=torch.bfloat16), rounded, exact=lambda: exact)
    cancelled = torch.tensor([1.0001, 1e4])
    truth = torch.tensor([1.0, 1e4], dtype=torch.float64)
    same(torch.tensor([0.9999, 1e4]), cancelled, exact=lambda: truth)
    for worse in (0.9997, torch.nan, torch.inf):
        with pytest.raises(Wrong):
            same(torch.tensor([worse, 1e4]), cancelled, exact=lambda: truth)


def test_other_distributions_are_told_apart():
    torch.manual_seed(0)
    same_distribution(torch.randn(1000), torch.randn(1000))
    for other in (torch.rand(1000), torch.randn(1000) * 2, torch.randn(1000) + 1, torch.zeros(1000)):
        with pytest.raises(Wrong):
            same_distribution(other, torch.randn(1000))


def test_inputs_keep_strides_bits_and_shared_memory_on_their_way():
    base = torch.randn(6, 4, dtype=torch.complex64)
    inputs = [base, base[1::2].t(), base[0].conj(), torch._neg_view(base[1]), base.imag, torch.ones(1).expand(5),
              torch.empty(0, 3)]
    moved = Mover("tpu")(inputs)
    for there, here in zip(moved, inputs):
        assert there.device.type == "tpu" and there.stride() == here.stride()
        assert there.is_conj() == here.is_conj() and there.is_neg() == here.is_neg()
        assert torch.equal(there.cpu(), here)
    moved[0].zero_()
    assert not moved[1].cpu().any() and not moved[2].cpu().any()
    assert base.any()


def row(id, result):
    kind, op, dtype = id.split("/")
    return {"id": id, "kind": kind, "op": op, "dtype": dtype, "result": result, "reason": "", "seconds": 0.1,
            "passed": 1,
            "samples": 2}


def write(path, rows):
    head = results.header("cpu", 0, None, "full")
    path.write_text("".join(json.dumps(line) + "\n" for line in [head, *rows]))
    return str(path)


def test_a_report_is_a_page_a_picture_a_table_and_a_comparison(tmp_path, monkeypatch, capsys):
    before = write(tmp_path / "a.jsonl", [row("forward/add/float32", "native"), row("forward/mm/float32", "fallback"),
                                          row("errors/mm/-", "native")])
    after = write(tmp_path / "b.jsonl", [row("forward/add/float32", "wrong"), row("forward/mm/float32", "native")])

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["conformance", "report", *arguments])
        return main()

    assert call(before, after, "--root", str(tmp_path)) == 0
    page = (tmp_path / "docs" / "ops.md").read_text()
    assert "| `add` | wrong 1/2 |" in page and "| `mm` | native 1/2 |" in page
    assert "`forward/add/float32` | wrong" in page
    assert (tmp_path / "docs" / "ops.svg").read_text().count("wrong") == 1
    table = tmp_path / "python" / "torch_pjrt" / "ops.tsv"
    assert table.read_text().splitlines()[1:] == ["op\tforward float32", "add\twrong 1/2", "mm\tnative 1/2"]
    capsys.readouterr()
    assert call(before, after, "--compare") == 0
    said = capsys.readouterr().out
    assert "native -> wrong" in said and "1 worse, 1 better; 1 only in the first" in said
    assert call(before, "--compare") == 2


def test_the_package_tells_how_an_op_runs(capsys):
    from torch_pjrt.cli import main, ops

    assert ops.TABLE.stat().st_size < 200_000
    assert main(["ops", "add"]) == 0 and "native" in capsys.readouterr().out
    assert main(["ops", "linalg.*", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["ops"]
    assert len(found) > 20 and all(entry["op"].startswith("linalg.") for entry in found)
    assert main(["ops", "no_such_op"]) == 1


def test_every_open_fault_has_a_pattern_a_result_and_a_cause():
    for fault in results.open_faults():
        pattern, result, cause = fault
        assert pattern.count("/") == 2 and result in RESULTS and cause.strip(), fault


def test_every_case_of_the_committed_results_is_one_of_the_catalogue():
    known = {case.id for case in catalogue.select(catalogue.kinds(), dtypes=list(catalogue.ALL_DTYPES))}
    files = [f for f in (ROOT / "conformance" / "results").glob("*.jsonl*") if not f.name.startswith("models")]
    assert files
    for file in files:
        head, rows = results.read(file)
        assert rows and {row["id"] for row in rows} <= known, file
        assert {"commit", "versions", "date", "command", "seed"} <= set(head)


UPSTREAM_FILE = """
import os
import torch
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.testing._internal.common_device_type import instantiate_device_type_tests

class TestSome(TestCase):
    def test_right(self, device):
        self.assertEqual(torch.ones(2, device=device) + 1, torch.full((2,), 2.0, device=device))
    def test_wrong(self, device):
        self.assertEqual(torch.ones(2, device=device), torch.zeros(2, device=device))
    def test_crash(self, device):
        os.abort()

instantiate_device_type_tests(TestSome, globals())
"""


def test_upstreams_own_files_run_on_the_device(tmp_path):
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_ops.py").write_text(UPSTREAM_FILE)
    out = tmp_path / "out.jsonl"
    ended = subprocess.run([sys.executable, "-m", "conformance", "upstream", "--src", tmp_path, "--out", out], cwd=ROOT,
                           capture_output=True, text=True, timeout=200, env={**os.environ,
                                                                             "PYTHONPATH": absolute(sys.path)})
    assert ended.returncode == 1, ended.stderr
    words = {row["id"].rpartition("/")[2]: row["result"] for row in results.read(out)[1]}
    assert words == {"test_right_tpu": "ok", "test_wrong_tpu": "wrong", "test_crash_tpu": "crash"}
