"""The program torch-pjrt, in processes of its own."""
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch_pjrt
from child import ROOT, run
from test_cache import WORK, counts, entries
from test_selection import compile_library
from torch_pjrt import _beside, _chips, _compat, _env, _selection
from torch_pjrt.cli import doctor, main

HOME = Path(torch_pjrt.__file__).parents[1]


@pytest.fixture
def report(monkeypatch, capsys):
    """report(arguments, **environment): exit status and JSON of the program, run in this process."""

    def call(*arguments: str, **environment: str) -> tuple[int, dict]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        if "TORCH_PJRT_DRIVER" in environment:  # else the decision stays that of `import torch`
            monkeypatch.setattr(_beside, "decide", _beside.decide.__wrapped__)
        status = main([*arguments, "--json"])
        return status, json.loads(capsys.readouterr().out)

    return call


def program(*arguments: str, **environment: str) -> tuple[int, str]:
    """Exit status and standard output of the program in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "torch_pjrt", *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=240, env=dict(os.environ, **environment))
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


# ---- doctor ----------------------------------------------------------------------------------------------------------


def test_doctor_tells_versions_plugin_devices_cache_compiler_mode_and_accommodations(report, tmp_path):
    status, found = report("doctor", TORCH_PJRT_CACHE_DIR=str(tmp_path / "cache"), TORCH_PJRT_CPU_DEVICES="2",
                           TORCH_PJRT_PLUGIN="")
    assert status == 0 and found["faults"] == []
    assert found["versions"] == {"torch_pjrt": torch_pjrt.__version__, "libpj": torch_pjrt.__version__, "libpj_abi": 0,
                                 "torch": torch.__version__, "python": platform.python_version()}
    assert found["driver"] == {"name": "torch_pjrt", "also_installed": []}
    assert found["plugin"]["path"] == _selection.select().path and not found["plugin"]["variable"]
    assert found["chips"]["files"] == _chips.device_files()
    device = found["device"]
    assert re.fullmatch(r"0\.\d+", device["plugin"]["api_version"]) and device["plugin"]["platform"] == "cpu"
    assert len(device["devices"]) == 2
    compiler = device["compiler"]
    assert compiler["worker"] and compiler["compiles"] >= 1 and not compiler["worker_failures"]
    assert device["mode"]["eager"] == _env.get("TORCH_PJRT_EAGER")
    assert set(device["accommodations"]) == set(_compat.in_force) and "accelerate's get_max_memory" in _compat.in_force
    assert found["cache"]["writable"] and not found["cache"]["exists"] and not (tmp_path / "cache").exists()


def test_doctor_shows_the_shared_cache(report, tmp_path):
    _, found = report("doctor", TORCH_PJRT_CACHE_DIR="", TORCH_PJRT_SHARED_CACHE=str(tmp_path))
    assert found["shared_cache"] == {"directory": str(tmp_path), "exists": True} and not found["faults"]


def test_doctor_says_loudly_that_a_plugin_comes_from_the_environment():
    path = _selection.select().path
    status, text = program("doctor", TORCH_PJRT_PLUGIN=path, TORCH_PJRT_CACHE_DIR="", TORCH_PJRT_COMPAT="0")
    assert status == 0 and text.endswith("All is well.\n"), text
    assert path in text and "FROM THE ENVIRONMENT: TORCH_PJRT_PLUGIN" in text and "compat      none" in text, text


ABORTS = "#include <stdlib.h>\nvoid *GetPjrtApi(void) { abort(); }"


@pytest.mark.parametrize("setting, what, do", [
    ({"TORCH_PJRT_PLUGIN": "absent.so"}, "absent.so is neither a file nor a known plugin", "file that exists"),
    ({"TORCH_PJRT_PLUGIN": "{folder}/text.so"}, "not a shared library", "TORCH_PJRT_PLUGIN"),
    ({"TORCH_PJRT_PLUGIN": "{folder}/aborts.so"}, "ended with status -6", "TORCH_PJRT_PLUGIN"),
    ({"TORCH_PJRT_CACHE_DIR": "{folder}/open"}, "writable by others", "TORCH_PJRT_CACHE_DIR"),
    ({"TORCH_PJRT_SHARED_CACHE": "{folder}/open"}, "nobody else can write", "chmod go-w"),
    ({"TORCH_PJRT_SHARED_CACHE": "{folder}/absent"}, "no directory", "unset the variable"),
    ({"TORCH_PJRT_QUEUE": "many"}, "TORCH_PJRT_QUEUE", "unset it"),
    ({"TORCH_PJRT_DRIVER": "torch_xla"}, "torch_xla is not installed", "unset TORCH_PJRT_DRIVER"),
])
def test_doctor_tells_each_fault_and_what_to_do(report, tmp_path, setting, what, do):
    (tmp_path / "text.so").write_text("this is no library")
    (tmp_path / "aborts.c").write_text(ABORTS)
    compile_library(tmp_path / "aborts.so", tmp_path / "aborts.c")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    status, found = report("doctor", **{"TORCH_PJRT_CACHE_DIR": ""} | {
        name: value.format(folder=tmp_path) for name, value in setting.items()})
    (fault,) = found["faults"]
    assert status == 1 and what in fault["what"] and do in fault["do"], fault


@pytest.mark.parametrize("file, code, what", [
    ("torch/__init__.py", "raise ImportError('libtorch is broken')", "libtorch is broken"),
    ("sitecustomize.py", "import os\nos.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'\nimport torch\n"
     "torch.__version__ = '2.12.1'", "built for torch 2.13, and torch 2.12.1"),
])
def test_doctor_works_and_says_so_when_torch_is_broken_or_of_another_version(tmp_path, file, code, what):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(code)
    status, text = program("doctor", TORCH_PJRT_CACHE_DIR="", PYTHONPATH=f"{tmp_path}:{HOME}")
    assert status == 1 and text.count("FAULT") == text.count("   DO") == 1 and what in text, text
    assert f"libpj {torch_pjrt.__version__}" in text and _selection.select().path in text, text


def test_doctor_finds_a_worker_that_cannot_start(tmp_path):
    """A package whose compile worker is no program."""
    package = tmp_path / "torch_pjrt"
    package.mkdir()
    for file in Path(torch_pjrt.__file__).parent.iterdir():
        if file.name != "pj-worker":
            (package / file.name).symlink_to(file.resolve())
    (package / "pj-worker").write_text("#!/bin/false\n")
    (package / "pj-worker").chmod(0o755)
    status, text = program("doctor", TORCH_PJRT_CACHE_DIR="", PYTHONPATH=str(tmp_path))
    assert status == 1 and text.count("FAULT") == 1 and "FAULT  no compile worker is used" in text, text


def test_doctor_tells_who_holds_a_chip(tmp_path, monkeypatch):
    (tmp_path / "accel0").write_text("")
    monkeypatch.setattr(_chips, "DEV", tmp_path)
    code = f"import time; f = open({str(tmp_path / 'accel0')!r}); print(1, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        told = doctor.Report()
        doctor._chip_files(told)
        holder.kill()
    (fault,) = told.faults
    assert f"belongs to process {holder.pid}" in fault["what"] and f"kill {holder.pid}" in fault["do"]


# ---- cache -----------------------------------------------------------------------------------------------------------


@pytest.mark.eager("strict")
def test_cache_info_verify_and_clear_touch_entries_alone(report, tmp_path):
    folder = tmp_path / "cache"
    cache = {"TORCH_PJRT_CACHE_DIR": str(folder), "TORCH_PJRT_CACHE_BYTES": "1000000"}
    status, found = report("cache", "info", **cache)
    assert status == 0 and found["entries"] == 0 and not found["exists"] and not folder.exists()
    compiles, _ = counts(run(WORK, **cache))
    (folder / "notes.txt").write_text("mine")
    (folder / ("x" * 64)).write_text("mine")
    files = [p for p in entries(folder) if p.name != "x" * 64]
    status, found = report("cache", "info", **cache)
    assert status == 0 and found["entries"] == len(files) == compiles + 1 and found["limit"] == 1000000
    assert found["bytes"] == sum(p.stat().st_size for p in files)
    assert found["oldest"] <= found["newest"] <= max(p.stat().st_mtime for p in files)

    assert report("cache", "verify", **cache)[0] == 0
    damaged = max(files, key=lambda p: p.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    status, found = report("cache", "verify", **cache)
    assert status == 1 and found["checked"] == len(files)
    assert list(found["damaged"]) == [damaged.name] and damaged.exists()
    status, found = report("cache", "verify", "--delete", **cache)
    assert status == 0 and list(found["damaged"]) == [damaged.name] and not damaged.exists()
    assert counts(run(WORK, **cache)) == (1, compiles - 1)

    status, found = report("cache", "clear", **cache)
    assert status == 0 and found["removed"] == len(files)
    assert sorted(p.name for p in folder.iterdir()) == ["notes.txt", "x" * 64]


@pytest.mark.eager("strict")
def test_a_process_goes_on_when_its_cache_is_cleared(tmp_path):
    output = run("""
    from torch_pjrt.cli import main
    works()
    assert main(["cache", "clear"]) == 0
    works()
    assert (torch.ones(5, device="tpu") * 3).tolist() == [3] * 5
    """, TORCH_PJRT_CACHE_DIR=str(tmp_path))
    assert "entries removed" in output and "torch_pjrt: " not in output and len(entries(tmp_path)) == 2, output


@pytest.mark.parametrize("name", ["info", "clear", "verify"])
def test_a_cache_that_the_runtime_refuses_is_left_alone(report, tmp_path, name):
    tmp_path.chmod(0o777)
    (tmp_path / ("a" * 64)).write_text("")
    status, found = report("cache", name, TORCH_PJRT_CACHE_DIR=str(tmp_path))
    assert status == 1 and "writable by others" in found["error"] and len(entries(tmp_path)) == 1


@pytest.mark.parametrize("arguments", [[], ["heal"], ["cache"], ["cache", "info", "--delete"], ["doctor", "now"]])
def test_wrong_usage_has_exit_status_2(arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2


def test_the_program_is_installed_by_its_name():
    assert 'torch-pjrt = "torch_pjrt.cli:main"' in (ROOT / "pyproject.toml").read_text()
