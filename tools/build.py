"""Sets up .venv, installs pinned dependencies, builds the wheel and installs it. Needs only Python's standard library.

    python3 tools/build.py [--venv .venv] [--jobs N] [--torch-index URL]

A second run installs and builds only what changed.
"""
import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"
BUILD_TOOLS = ["scikit-build-core==1.1.2", "cmake==4.4.5", "ninja==1.13.2"]
EXTRAS = "cpu,tpu,test,hf,bench"
# What the wheel is made of; a change in any of these files makes a new one.
SOURCES = ["CMakeLists.txt", "pyproject.toml", "core", "bridge", "python"]


def fail(sentence):
    sys.exit(f"make build: {sentence}")


def check_machine():
    """Says what is missing on this machine, in one sentence with the command that installs it."""
    if sys.version_info < (3, 11):
        fail(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: install it and run 'make PYTHON=python3.11 ...'")
    if sys.platform != "linux":
        fail(f"torch-pjrt runs on Linux x86-64; this is {sys.platform}")
    missing = [p for p, program in [("gcc", "gcc"), ("g++", "g++"), ("make", "make")] if not shutil.which(program)]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        missing.append(f"python{version}-venv")
    import sysconfig
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append(f"python{version}-dev")
    if missing:
        fail(f"{', '.join(missing)} is missing on this machine: apt-get install {' '.join(missing)}")


def run(command, **options):
    """Runs a command quietly; on failure shows what it said and ends."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, **options)
    if result.returncode:
        print(result.stdout[-8000:], file=sys.stderr)
        fail(f"'{' '.join(map(str, command))}' failed with status {result.returncode}")
    return result.stdout


def digest(paths):
    """SHA-256 over the names and bytes of all files under the paths."""
    total = hashlib.sha256()
    for path in paths:
        top = ROOT / path
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if file.is_file() and "__pycache__" not in file.parts:
                total.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


class Stamp:
    """Remembers in the venv what a step was done for, so that it is not done again."""

    def __init__(self, venv, name, wanted):
        self.file, self.wanted = venv / f".{name}", wanted

    def __bool__(self):
        return self.file.exists() and self.file.read_text() == self.wanted

    def set(self):
        self.file.write_text(self.wanted)


def extras(names=EXTRAS):
    """The pinned requirements of the extras, from pyproject.toml."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return sorted({r for name in names.split(",") for r in project["optional-dependencies"][name]})


def install_dependencies(venv, torch_index):
    wanted = extras()
    # The newest CPU plugin's metadata asks for the whole of JAX; the file alone is all that is used.
    alone = [r for r in wanted if r.startswith("lammps-jax-pjrt-cpu")]
    rest = [r for r in wanted if r not in alone]
    done = Stamp(venv, "dependencies", "\n".join([TORCH, *BUILD_TOOLS, *wanted]))
    if done:
        return
    pip = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    print("installing torch (once)", flush=True)
    run([*pip, *(["--index-url", torch_index] if torch_index else []), TORCH])
    print("installing the other dependencies (once)", flush=True)
    run([*pip, TORCH, *BUILD_TOOLS, *rest])
    if alone:
        run([*pip, "--no-deps", *alone])
    done.set()


def build_wheel(venv, jobs):
    done = Stamp(venv, "built", digest(SOURCES))
    if done:
        print("the package is up to date")
        return
    python = venv / "bin" / "python"
    folder = ROOT / "build" / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    begin = time.monotonic()
    environment = dict(os.environ, CMAKE_BUILD_PARALLEL_LEVEL=str(jobs), PATH=f"{venv / 'bin'}:{os.environ['PATH']}")
    run([python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, "."], env=environment)
    seconds = time.monotonic() - begin
    wheel = next(folder.glob("*.whl"))
    run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel])
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, built in {seconds:.0f} s")
    done.set()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--torch-index", help="package index to take torch from")
    options = parser.parse_args()
    check_machine()
    venv = ROOT / options.venv
    if not (venv / "bin" / "python").exists():
        run([sys.executable, "-m", "venv", venv])
    install_dependencies(venv, options.torch_index)
    build_wheel(venv, options.jobs)


if __name__ == "__main__":
    main()
