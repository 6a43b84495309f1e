"""Selection of the plugin, and packages that drive TPUs too (fakes of them, in a folder of their own)."""
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch_pjrt
from child import PRELUDE, run
from test_selection import compile_library
from torch_pjrt import _chips, _core, _selection

HOME = Path(torch_pjrt.__file__).parents[1]

# As torch_tpu 0.2.0: takes PyTorch's spare device where there is a chip, else does nothing.
LOADER = """
import os, torch, types
def load():
    print("torch_tpu was loaded")
    if os.environ.get("TPU_LIBRARY_PATH"):
        torch.utils.rename_privateuse1_backend("tpu")
        torch._register_device_module("tpu", types.ModuleType("torch_tpu.tpu"))
"""

# In a child that shall believe that its machine has a chip, before IMPORT.
CHIP = """
import sys, types
sys.modules["torch_pjrt._chips"] = types.SimpleNamespace(device_files=lambda: ["/dev/accel0"], holders=lambda: ([], 0))
"""

# What every child says: its warnings of who drives, one a line.
IMPORT = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
sentences = [str(w.message) for w in caught if "tpu" in str(w.message)]
"""


def package(folder: Path, name: str, files: dict[str, str], entry_point: str = "") -> Path:
    for file, text in {"__init__.py": "", **files}.items():
        path = folder / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    info = folder / f"{name}-0.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.2.0\n")
    (info / "entry_points.txt").write_text(f"[torch.backends]\n{name} = {entry_point}\n" if entry_point else "")
    return folder


@pytest.fixture
def torch_tpu(tmp_path):
    return package(tmp_path, "torch_tpu", {"_loader.py": LOADER}, "torch_tpu._loader:load")


def beside(folder: Path, program: str, first: str = "theirs", prelude: str = IMPORT, **environment) -> str:
    """Runs a program where the package in `folder` is installed too; PyTorch loads the `first` one before the other."""
    places = [str(folder), str(HOME)] if first == "theirs" else [str(HOME), str(folder)]
    return run(program, prelude=prelude, PYTHONPATH=os.pathsep.join(places), **environment)


@pytest.mark.parametrize("first", ["theirs", "ours"])
def test_without_a_chip_torch_pjrt_drives_beside_torch_tpu_and_one_sentence_says_so(torch_tpu, first):
    beside(torch_tpu, """
    (sentence,) = sentences
    assert 'torch_pjrt drives the device "tpu"' in sentence and "TORCH_PJRT_DRIVER=torch_tpu" in sentence, sentence
    assert (torch.ones(3, device="tpu") + 1).tolist() == [2, 2, 2]
    """, first)


@pytest.mark.parametrize("first", ["theirs", "ours"])
def test_with_a_chip_torch_tpu_drives_and_one_sentence_says_so(torch_tpu, first):
    beside(torch_tpu, """
    (sentence,) = sentences
    assert 'torch_tpu drives the device "tpu"' in sentence and "TORCH_PJRT_DRIVER=torch_pjrt" in sentence, sentence
    assert torch.tpu.__name__ == "torch_tpu.tpu"
    """, first, prelude=CHIP + IMPORT, TPU_LIBRARY_PATH="/a/chip/is/here.so")


def test_the_variable_gives_the_device_to_torch_pjrt_and_torch_tpu_is_not_even_loaded(torch_tpu):
    output = beside(torch_tpu, """
    assert not sentences, sentences
    assert (torch.ones(3, device="tpu") + 1).tolist() == [2, 2, 2]
    import torch_tpu
    try:
        torch_tpu.pallas
    except AttributeError as error:
        assert "torch_pjrt's stand-in" in str(error)
    else:
        assert False
    """, "ours", TORCH_PJRT_DRIVER="torch_pjrt", TORCH_PJRT_COMPAT="0", prelude=CHIP + IMPORT, TPU_LIBRARY_PATH=_selection.select().path)
    assert "torch_tpu was loaded" not in output


def test_a_torch_tpu_that_was_faster_is_told(torch_tpu):
    beside(torch_tpu, """
    (sentence,) = sentences
    assert "another package has taken" in sentence and "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in sentence, sentence
    assert torch.tpu.__name__ == "torch_tpu.tpu"
    """, "theirs", prelude=CHIP + IMPORT, TORCH_PJRT_DRIVER="torch_pjrt",
           TPU_LIBRARY_PATH="/a/chip/is/here.so")


@pytest.mark.parametrize("chosen, words", [("torch_tpu", ""), ("torch_xla", "torch_xla is not installed"),
                                           ("jax", "TORCH_PJRT_DRIVER is none of")])
def test_the_variable_keeps_torch_pjrt_out_and_a_choice_that_cannot_be_is_told(torch_tpu, chosen, words):
    beside(torch_tpu, f"""
    assert {words!r} in " ".join(sentences) and bool(sentences) == {bool(words)}, sentences
    assert hasattr(torch, "tpu") == {chosen == "jax"}
    """, TORCH_PJRT_DRIVER=chosen)


def test_beside_torch_xla_torch_pjrt_drives_and_the_sentence_says_what_libraries_do(tmp_path):
    package(tmp_path, "torch_xla", {"__init__.py": "raise AssertionError('torch_xla was imported')"})
    beside(tmp_path, """
    (sentence,) = sentences
    assert "torch_xla is installed too" in sentence and "USE_TORCH_XLA=0" in sentence, sentence
    assert (torch.ones(3, device="tpu") + 1).tolist() == [2, 2, 2]
    """)
    beside(tmp_path, 'assert not sentences and not hasattr(torch, "tpu")', TORCH_PJRT_DRIVER="torch_xla")


# ---- accommodations --------------------------------------------------------------------------------------------------

# What Transformers 5.18 and Ray Train 2.58 ask, and Accelerate's answer to who names no device.
LOOK = """
import importlib.util
there = importlib.util.find_spec("torch_tpu") is not None
if there:
    import torch_tpu._loader
    torch_tpu._loader.load()
import accelerate.state
device = str(accelerate.state.PartialState().default_device)
"""
STATE = """
import torch
class PartialState:
    @property
    def default_device(self):
        return torch.device("cpu")
"""


def test_libraries_find_torch_tpu_and_accelerate_takes_the_device(tmp_path):
    package(tmp_path, "accelerate", {"state.py": STATE})
    beside(tmp_path, LOOK + "assert there and device == 'tpu' and not sentences")
    beside(tmp_path, LOOK + "assert not there and device == 'cpu'", TORCH_PJRT_COMPAT="0")


# ---- which plugin ----------------------------------------------------------------------------------------------------


def has_chip(folder: Path) -> Path:
    """A /dev with one TPU chip."""
    (folder / "dev").mkdir()
    (folder / "dev" / "accel0").write_text("")
    return folder / "dev"


@pytest.fixture
def libtpu(tmp_path):
    """A libtpu that tells when it is loaded."""
    file = tmp_path / "libtpu" / "libtpu.so"
    file.parent.mkdir()
    source = tmp_path / "libtpu.c"
    source.write_text('#include <stdio.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void load(void)\n'
                      '{ puts("libtpu was loaded"); fflush(stdout); }')
    compile_library(file, source)
    return file


def test_the_order_of_selection_is_the_documented_one(libtpu, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_chips, "DEV", has_chip(tmp_path))
    named = tmp_path / "named.so"
    named.write_text("")
    cpu = next(p for p in _core.known_plugins() if p.platform == "cpu" and _selection._find(p))
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/lib/tpu.so")
    monkeypatch.setenv("TORCH_PJRT_PLUGIN", str(named))
    assert _selection.select()[:2] == (str(named), "") and _selection.select().variable == "TORCH_PJRT_PLUGIN"
    monkeypatch.setenv("TORCH_PJRT_PLUGIN", cpu.name)
    assert _selection.select()[:2] == (_selection._find(cpu), "cpu")
    monkeypatch.delenv("TORCH_PJRT_PLUGIN")
    assert _selection.select()[:2] == ("/lib/tpu.so", "tpu") and _selection.select().variable == "TPU_LIBRARY_PATH"
    monkeypatch.delenv("TPU_LIBRARY_PATH")
    assert _selection.select()[:2] == (str(libtpu), "tpu") and not _selection.select().variable
    monkeypatch.setattr(_chips, "DEV", tmp_path / "none")
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(libtpu))  # as `import jax` does
    assert _selection.select()[:2] == (_selection._find(cpu), "cpu")


@pytest.mark.parametrize("vendor, is_chip", [("0x1ae0", True), ("0x10de", False)])
def test_a_vfio_group_is_a_chip_only_with_a_device_of_google(tmp_path, monkeypatch, vendor, is_chip):
    (tmp_path / "vfio").mkdir()
    for name in ("7", "vfio"):
        (tmp_path / "vfio" / name).write_text("")
    device = tmp_path / "groups" / "7" / "devices" / "0000:00:04.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    monkeypatch.setattr(_chips, "DEV", tmp_path)
    monkeypatch.setattr(_chips, "IOMMU_GROUPS", tmp_path / "groups")
    assert _chips.device_files() == ([str(tmp_path / "vfio" / "7")] if is_chip else [])


def test_without_a_chip_libtpu_is_not_loaded_and_selection_takes_no_time(libtpu, tmp_path):
    output = beside(tmp_path, """
    import time
    from torch_pjrt import _selection
    begin = time.perf_counter()
    choice = _selection.select()
    assert choice.platform == "cpu" and time.perf_counter() - begin < 1
    works()
    """, prelude=PRELUDE)
    assert "libtpu was loaded" not in output


@pytest.fixture
def held_chip(tmp_path):
    """(a /dev with a chip, the process that has it open)."""
    dev = has_chip(tmp_path)
    code = f"import sys, time; f = open({str(dev / 'accel0')!r}); print(1, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield dev, process
        process.kill()


def test_a_chip_that_another_process_has_is_told_with_its_pid_at_the_start(libtpu, held_chip, tmp_path):
    dev, process = held_chip
    output = beside(tmp_path, f"""
    import pathlib
    from torch_pjrt import _chips
    _chips.DEV = pathlib.Path({str(dev)!r})
    kind, text = error(lambda: torch.ones(3, device="tpu"))
    assert kind == "RuntimeError" and "libtpu.so" in text, (kind, text)
    """, prelude=PRELUDE)
    told, loaded = (output.index(words) for words in (f"open in process {process.pid} (python", "libtpu was loaded"))
    assert told < loaded, output


def test_the_holders_of_a_chip_and_the_processes_that_may_not_be_seen_are_told(held_chip, monkeypatch):
    dev, process = held_chip
    monkeypatch.setattr(_chips, "DEV", dev)
    begin = time.perf_counter()
    ((pid, command, file),), _ = _chips.holders()
    assert (pid, file) == (process.pid, str(dev / "accel0")) and command.startswith("python")
    assert time.perf_counter() - begin < 5
    scandir = os.scandir

    def refuse(path):
        if str(path) == f"/proc/{process.pid}/fd":
            raise PermissionError
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found, refused = _chips.holders()
    assert not found and refused >= 1
