"""Runs every test and prints the minutes of each part. Exit status 1 when anything failed.

    python tools/test.py [--only PART[,PART]] [--jobs N]

Parts: core (the C library, on the fake plugin and on each CPU plugin), sanitize, device (the Python tests), counts.
"""
import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
CONCURRENT = "queue_test|compiler_test|disk_cache_test|worker_pool_test"  # what ThreadSanitizer looks at


def run(command, **options):
    print("+", " ".join(map(str, command)), flush=True)
    return subprocess.run([str(c) for c in command], cwd=ROOT, stdin=subprocess.DEVNULL, **options).returncode == 0


def tool(name):
    """cmake, ctest or ninja: the venv's, or the machine's."""
    beside = Path(sys.executable).parent / name
    return beside if beside.exists() else name


def plugins():
    """Paths of the CPU plugins that are installed, by name."""
    code = "import torch_pjrt._plugin as p; print(*[f'{n}={f}' for n, f in p.installed('cpu')], sep='\\n')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    return dict(line.split("=", 1) for line in result.stdout.split()) if result.returncode == 0 else {}


def official_header():
    """Folder of the official PJRT header, from the source package of pypjrt; None when it cannot be had."""
    folder = BUILD / "pypjrt"
    found = list(folder.rglob("pjrt_c_api.h"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        if not run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
                    "--dest", folder, "pypjrt==0.1.1"]):
            return None
        for archive in folder.glob("*.tar.gz"):
            run(["tar", "-xzf", archive, "-C", folder])
        found = list(folder.rglob("pjrt_c_api.h"))
    return found[0].parents[3] if found and found[0].parts[-4:-1] == ("xla", "pjrt", "c") else (found[0].parent if found else None)


def build_core(name, jobs, *definitions):
    folder = BUILD / name
    return (run([tool("cmake"), "-S", "core", "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", *definitions],
                stdout=subprocess.DEVNULL) and run([tool("ninja"), "-C", folder, f"-j{jobs}", "--quiet"]) and folder)


def core(jobs):
    header = official_header()
    if header is None:
        print("the official PJRT header could not be had: abi_test is left out", file=sys.stderr)
    folder = build_core("core", jobs, *([f"-DPJ_OFFICIAL_HEADER_DIR={header}"] if header else []))
    if not folder:
        return False
    good = run([tool("ctest"), "--test-dir", folder, "--output-on-failure", f"-j{jobs}"])
    for name, path in plugins().items():
        print(f"on the plugin {name}", flush=True)
        good &= run([tool("ctest"), "--test-dir", folder, "--output-on-failure", "-L", "plugin"], env=dict(os.environ, PJ_PLUGIN=path))
    return good


def sanitize(jobs):
    address = build_core("address", jobs, "-DPJ_SANITIZE=address,undefined")
    thread = build_core("thread", jobs, "-DPJ_SANITIZE=thread")
    environment = dict(os.environ, UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1", TSAN_OPTIONS="halt_on_error=1")
    return bool(address and thread
                and run([tool("ctest"), "--test-dir", address, "--output-on-failure", f"-j{jobs}"], env=environment)
                and run([tool("ctest"), "--test-dir", thread, "--output-on-failure", "-R", CONCURRENT], env=environment))


def device(jobs):
    reference = BUILD / "core" / "tests" / "libpj_view_reference.so"
    environment = dict(os.environ, **({"PJ_VIEW_REFERENCE": str(reference)} if reference.exists() else {}))
    return run([sys.executable, "-m", "pytest", "-q", "tests", "-x" if os.environ.get("CI") is None else "-q", "--durations=10"], env=environment)


def counts(jobs):
    return run([sys.executable, "tools/loc.py", "--check"])


PARTS = {"core": core, "sanitize": sanitize, "device": device, "counts": counts}


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
        print(f"{name:<10} {'passed' if good else 'FAILED'} {minutes:6.1f} min")
    return not all(good for _, good, _ in results)


if __name__ == "__main__":
    sys.exit(main())
