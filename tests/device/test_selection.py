"""Which plugin is loaded, and what is said when there is none, a broken one, or the wrong torch or Python."""
import shutil
import subprocess
from pathlib import Path

import pytest
import torch_pjrt
from child import ROOT, run

BROKEN = {
    "none.so": "int unrelated(void) { return 0; }",
    "null.so": "const void *GetPjrtApi(void) { return 0; }",
    "short.so": "static unsigned long api[2] = {8}; const void *GetPjrtApi(void) { return api; }",
    "empty.so": "static unsigned long api[400] = {3200}; const void *GetPjrtApi(void) { return api; }",
}


def compile_library(path: Path, *arguments) -> None:
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), *map(str, arguments)], check=True)


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    """A folder of files that are no good plugins, and of the core's fake one."""
    folder = tmp_path_factory.mktemp("plugins")
    for name, code in BROKEN.items():
        source = folder / (name + ".c")
        source.write_text(code)
        compile_library(folder / name, source)
    core = ROOT / "core"
    compile_library(folder / "fake.so", f"-I{core}/include", f"-I{core}", "-pthread",
                    *(core / "tests/fake_plugin").glob("*.c"), core / "base/dtype.c")
    (folder / "text.so").write_text("this is no library")
    return folder


def test_a_plugin_that_cannot_be_used_is_told_with_its_path_and_a_right_one_works_afterwards(plugins):
    run(f"""
    import os
    for name, words in {{
        "absent.so": "neither a file nor a known plugin",
        "text.so": "not a shared library",
        "none.so": "no function GetPjrtApi",
        "null.so": "gives no table",
        "short.so": "has 8 bytes",
        "empty.so": "PJRT API 0.0",
    }}.items():
        path = os.path.join({str(plugins)!r}, name)
        os.environ["TORCH_PJRT_PLUGIN"] = path
        kind, text = error(lambda: torch.ones(3, device="tpu"))
        assert kind == "RuntimeError" and path in text and words in text, (name, kind, text)
        assert not torch.tpu.is_initialized()
    del os.environ["TORCH_PJRT_PLUGIN"]
    works()
    """)


@pytest.mark.parametrize("setting, words", [
    ({"FAKE_PLUGIN_MINOR": "50"}, ["PJRT API 0.50", "0.57", "use another plugin version"]),
    ({"FAKE_PLUGIN_ABSENT": "PJRT_LoadedExecutable_Execute"}, ["PJRT_LoadedExecutable_Execute is absent"]),
    ({"FAKE_PLUGIN_FAIL": "PJRT_Client_Create:9:the chips are in use by process 7"},
     ["the chips are in use by process 7"]),
])
def test_a_plugin_that_is_too_old_or_finds_no_chip_is_told(plugins, setting, words):
    run(f"""
    kind, text = error(lambda: torch.ones(3, device="tpu"))
    assert kind == "RuntimeError" and all(word in text for word in {words!r}), (kind, text)
    assert (torch.ones(3) + 1).tolist() == [2, 2, 2]
    """, TORCH_PJRT_PLUGIN=str(plugins / "fake.so"), **setting)


def test_a_known_plugin_that_is_not_installed_says_what_to_install():
    run("""
    import os, sys
    from torch_pjrt import _core, _plugin
    name, package = _core.known_plugins()[0].name, _core.known_plugins()[0].package
    os.environ["TORCH_PJRT_PLUGIN"] = name
    path = list(sys.path)
    sys.path[:] = []
    kind, text = error(_plugin.select)
    assert kind == "RuntimeError" and f"pip install {package}" in text, (kind, text)
    del os.environ["TORCH_PJRT_PLUGIN"]
    kind, text = error(_plugin.select)
    assert kind == "RuntimeError" and "pip install" in text and "TORCH_PJRT_PLUGIN" in text, (kind, text)
    assert not torch.tpu.is_available() and torch.tpu.device_count() == 0
    sys.path[:] = path
    works()
    """)


@pytest.mark.parametrize("name, value", [("TORCH_PJRT_QUEUE", "many"), ("TORCH_PJRT_FALLBACK", "perhaps"),
                                         ("TORCH_PJRT_CPU_DEVICES", "0"), ("TORCH_PJRT_WORKERS", "-1"),
                                         ("TORCH_PJRT_LOG", "loud")])
def test_a_wrong_environment_variable_is_named(name, value):
    run(f"""
    import os
    kind, text = error(lambda: torch.ones(3, device="tpu"))
    assert kind in ("ValueError", "RuntimeError") and {name!r} in text and {value!r} in text, (kind, text)
    del os.environ[{name!r}]
    works()
    """, **{name: value})


def test_another_torch_is_told_when_the_device_is_used_and_the_cpu_works():
    run("""
    import warnings, torch
    torch.__version__ = "2.12.1"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import torch_pjrt
    sentence = "built for torch 2.13, and torch 2.12.1 is installed"
    (warning,) = (str(w.message) for w in caught if "tpu" in str(w.message))
    assert sentence in warning and "\\n" not in warning, warning
    torch.manual_seed(3)
    assert not hasattr(torch.tpu, "anything")
    assert not torch.tpu.is_available() and torch.tpu.device_count() == 0
    for use in (lambda: torch.tpu.synchronize(), lambda: torch.ones(3, device="tpu"), lambda: torch.ones(3).to("tpu"),
                lambda: torch.nn.Linear(2, 2).to("tpu"), lambda: torch.autocast("tpu")):
        try:
            use()
        except RuntimeError as e:
            assert sentence in str(e), (type(e), e)
        else:
            assert False
    assert (torch.ones(3) + 1).tolist() == [2, 2, 2]
    """, prelude="", TORCH_DEVICE_BACKEND_AUTOLOAD="0")


@pytest.mark.parametrize("damage", ["another Python", "not a library", "absent", "a part that fails"])
def test_a_package_that_does_not_load_never_breaks_import_torch(tmp_path, damage):
    """As after an upgrade of Python, or half an installation. The package is found through its entry point."""
    package = tmp_path / "torch_pjrt"
    shutil.copytree(Path(torch_pjrt.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    library = next(package.glob("_C*.so"))
    if damage == "a part that fails":
        with open(package / "_compat.py", "a") as file:
            file.write("\n\ndef apply(others):\n    raise OSError('no _C here')\n")
    else:
        library.unlink()
    if damage == "not a library":
        (package / "_C.so").write_text("half of a file")
    elif damage == "another Python":  # what CPython says of a module whose symbols it lacks
        (tmp_path / "c.c").write_text("extern void PyOfAnotherVersion(void);\n"
                                      "void *PyInit__C(void) { PyOfAnotherVersion(); return 0; }")
        compile_library(package / "_C.so", tmp_path / "c.c")
    info = tmp_path / "torch_pjrt-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-pjrt\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_pjrt = torch_pjrt:_autoload\n")
    run(f"""
    import torch
    assert torch.tpu.__class__.__name__ == "_Absent" and not torch.tpu.is_available()
    for use in (lambda: torch.ones(3, device="tpu"), lambda: torch.ones(3).to("tpu")):
        try:
            use()
        except Exception as e:
            assert "the tpu device cannot be used" in str(e) and "_C" in str(e), (type(e), e)
        else:
            assert False
    assert (torch.ones(3) + 1).tolist() == [2, 2, 2]
    """, prelude="", PYTHONPATH=str(tmp_path))


def test_import_torch_goes_on_where_another_package_has_taken_the_spare_device():
    run("""
    import torch
    torch.utils.rename_privateuse1_backend("other")
    import torch_pjrt
    assert not hasattr(torch, "tpu")
    assert (torch.ones(3) + 1).tolist() == [2, 2, 2]
    """, prelude="", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
