"""Runs every test and prints the minutes of each part. Exit status 1 when anything failed.

    python tools/test.py [--only PART[,PART]] [--jobs N]

Parts: core (the C library, on the fake plugin and on each CPU plugin), sanitize, and the Python tests in each eager mode:
strict (all but huggingface), fused and adaptive (device and models); huggingface (the libraries on top of PyTorch, in
the default mode); conformance (a slice of the cases of conformance/); counts.
"""
import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

from plugins import installed_plugins

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
# Some tests send signals and wait for limits: what failed beside others is asked once more alone, and both runs are shown.
ONCE_MORE = "once more, alone: what failed"


def run(command, **options):
    print("+", " ".join(map(str, command)), flush=True)
    return subprocess.run([str(c) for c in command], cwd=ROOT, stdin=subprocess.DEVNULL, **options).returncode == 0


def tool(name):
    """cmake, ctest or ninja: the venv's, or the machine's."""
    beside = Path(sys.executable).parent / name
    return beside if beside.exists() else name


def official_header():
    """Folder that holds xla/pjrt/c/pjrt_c_api.h, from the source package of pypjrt; None when it cannot be had."""
    folder = BUILD / "pypjrt"
    pattern = "pypjrt-*/vendor/xla/pjrt/c/pjrt_c_api.h"
    if not list(folder.glob(pattern)):
        folder.mkdir(parents=True, exist_ok=True)
        run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--no-binary", ":all:", "--dest", folder, "pypjrt==0.1.1"])
        for archive in folder.glob("*.tar.gz"):
            run(["tar", "-xzf", archive, "-C", folder])
    return next((header.parents[3] for header in folder.glob(pattern)), None)


def build_core(name, jobs, *definitions):
    folder = BUILD / name
    configured = run([tool("cmake"), "-S", "core", "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
                      *definitions], stdout=subprocess.DEVNULL)
    return configured and run([tool("ninja"), "-C", folder, f"-j{jobs}", "--quiet"]) and folder


def ctest(folder, jobs, *selection, **environment):
    """Runs the selected tests, with these and no other PJ_* variables, and says which were skipped and why."""
    report = folder / "report.xml"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PJ_")}
    command = [tool("ctest"), "--test-dir", folder, "--output-on-failure"]
    good = run([*command, f"-j{jobs}", "--no-tests=error", "--output-junit", report, *selection], env={**clean, **environment})
    for case in ElementTree.parse(report).iter("testcase"):
        if case.get("status") == "notrun":
            said = (case.findtext("system-out") or "").strip().splitlines()
            print(f"{case.get('name')}: {said[-1] if said else 'skipped without a reason'}", flush=True)
    if not good:
        print(ONCE_MORE, flush=True)
        good = run([*command, "--rerun-failed"], env={**clean, **environment})
    return good


def core(jobs):
    header = official_header()
    if header is None:
        print("the official PJRT header could not be had: abi_test is left out", file=sys.stderr)
    folder = build_core("core", jobs, f"-DPJ_OFFICIAL_HEADER_DIR={header or ''}")
    if not folder:
        return False
    tpu = {"PJ_TPU_PLUGIN": file for file in installed_plugins(folder / "libpj.so", "tpu").values()}
    good = ctest(folder, jobs, **tpu)
    for name, file in installed_plugins(folder / "libpj.so", "cpu").items():
        print(f"on the plugin {name}", flush=True)
        good &= ctest(folder, jobs, "-L", "^plugin$", PJ_PLUGIN=file)
    return good


def sanitize(jobs):
    address = build_core("address", jobs, "-DPJ_SANITIZE=address,undefined")
    thread = build_core("thread", jobs, "-DPJ_SANITIZE=thread")
    if not address or not thread:
        return False
    good = ctest(address, jobs, UBSAN_OPTIONS="print_stacktrace=1")
    # Threads meet in run/: the queue, the disk cache, the compiler and its workers.
    return ctest(thread, jobs, "-L", "^run$", TSAN_OPTIONS="halt_on_error=1") and good


def python_tests(jobs, *selection, **variables):
    """The Python tests, on the installed package."""
    import torch_pjrt

    library = next(Path(torch_pjrt.__file__).parent.glob("libpj.so*"))
    reference = BUILD / "core" / "tests" / "libpj_view_reference.so"
    if not reference.exists() and not build_core("core", jobs):
        return False
    plugin = next(iter(installed_plugins(library, "cpu").values()))
    environment = dict(os.environ, **variables, PJ_VIEW_REFERENCE=str(reference), PJ_LIBRARY=str(library), PJ_PLUGIN=plugin)
    pytest = [sys.executable, "-m", "pytest", "-q", "-rfEs"]
    if run([*pytest, "-n", jobs, "--dist", "loadfile", "--durations=15", *selection], env=environment):
        return True
    print(ONCE_MORE, flush=True)
    return run([*pytest, "--last-failed", "--last-failed-no-failures", "none", *selection], env=environment)


def strict(jobs):
    return python_tests(jobs, "tests", "--ignore", "tests/huggingface", TORCH_PJRT_EAGER="strict")


def fused(jobs):
    """Equal results with 8 ops a region; that these are fewer executions is in test_fused_eager.py."""
    return python_tests(jobs, "tests/device", "tests/models", TORCH_PJRT_EAGER="fused", TORCH_PJRT_QUEUE="8")


def adaptive(jobs):
    return python_tests(jobs, "tests/device", "tests/models", TORCH_PJRT_EAGER="adaptive")


def huggingface(jobs):
    """A second thread for each of many tiny CPU ops would only wait, most of all where the machine is shared."""
    return python_tests(jobs, "tests/huggingface", OMP_NUM_THREADS="1")


def conformance(jobs):
    out = BUILD / "conformance.jsonl"
    out.unlink(missing_ok=True)
    return run([sys.executable, "-m", "conformance", "run", "--budget", "5m", "--jobs", jobs, "--out", out])


def counts(jobs):
    return run([sys.executable, "tools/loc.py", "--check"])


PARTS = {"core": core, "sanitize": sanitize, "strict": strict, "fused": fused, "adaptive": adaptive,
         "huggingface": huggingface, "conformance": conformance, "counts": counts}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="parts, separated by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else list(PARTS)
    BUILD.mkdir(exist_ok=True)
    results = []
    for name in wanted:
        begin = time.monotonic()
        good = PARTS[name](options.jobs)
        results.append((name, good, (time.monotonic() - begin) / 60))
    print()
    for name, good, minutes in results:
        print(f"{name:<11} {'passed' if good else 'FAILED'} {minutes:6.1f} min")
    return not all(good for _, good, _ in results)


if __name__ == "__main__":
    sys.exit(main())
