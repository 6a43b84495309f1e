"""Builds the documentation site into out/site: README.md, docs/*.md, and the references of torch.tpu and libpj.

    python3 tools/site.py

MkDocs comes from the extra [docs] of pyproject.toml into a small environment of its own (build/docs): the Python
reference is read from the sources, so neither torch nor a built package is needed. A warning ends the build.
"""
import shutil
import subprocess
import sys
from pathlib import Path

import c_reference
from build import ROOT, Stamp, extras, run

PAGES, VENV = ROOT / "out" / "pages", ROOT / "build" / "docs"
TOP = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]

# What users write, and whose docstrings say what it is.
PYTHON = {"torch.tpu": "torch_pjrt.tpu", "torch.tpu.memory": "torch_pjrt.memory",
          "torch.tpu.streams": "torch_pjrt.streams", "torch.tpu.random": "torch_pjrt.random",
          "torch.compile": "torch_pjrt.compile\n    options: {members: [backend]}"}


def collect() -> None:
    """Copies the pages, in the repository's own layout so that their links hold, and writes the references."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES / "docs")
    for page in TOP:
        shutil.copy(ROOT / page, PAGES / page)
    reference = PAGES / "reference"
    c_reference.write(reference / "c")
    for name, source in PYTHON.items():
        (reference / f"{name}.md").write_text(f"# {name}\n\n::: {source}\n")


def install() -> Path:
    """The environment's Python."""
    python = VENV / "bin" / "python"
    wanted = extras("docs")
    if not python.exists():
        run([sys.executable, "-m", "venv", VENV])
    done = Stamp(VENV, "dependencies", "\n".join(wanted))
    if not done:
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted])
        done.set()
    return python


def main() -> int:
    collect()
    built = subprocess.run([install(), "-m", "mkdocs", "build", "--strict", "--quiet"], cwd=ROOT)
    if built.returncode == 0:
        print("out/site/index.html")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
