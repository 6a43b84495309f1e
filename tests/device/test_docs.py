"""The documents say what is so: their Python runs, and what is written down twice is the same."""
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch_pjrt
import yaml
from child import ROOT, run
from torch_pjrt import _core, cli

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
HEADERS = sorted((ROOT / "core" / "include" / "pj").glob("*.h"))
# A block of Python, and the comment above it that says why it is not run, if there is one.
BLOCK = re.compile(r"(?:<!-- not run: (?P<reason>[^\n]+?) -->\n)?```python\n(?P<code>.*?)^```$", re.M | re.S)


def blocks(page: Path) -> list[str]:
    """The blocks that run, each at the line that it has in the page."""
    text = page.read_text()
    found = [match for match in BLOCK.finditer(text) if not match["reason"]]
    return ["\n" * text.count("\n", 0, match.start("code")) + match["code"] for match in found]


@pytest.mark.eager("adaptive")  # the default
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_python_of_a_page_runs_in_its_order(page, tmp_path):
    """In a folder of its own, with errors where an op falls back."""
    run(f"""
    import os
    os.chdir({str(tmp_path)!r})
    names = {{"__name__": "__main__"}}
    for code in {blocks(page)!r}:
        exec(compile(code, {str(page)!r}, "exec"), names)
    """, prelude="", TORCH_PJRT_FALLBACK="error")


def test_every_block_of_python_is_found():
    for page in PAGES:
        assert len(BLOCK.findall(page.read_text())) == len(re.findall(r"^```py", page.read_text(), re.M)), page.name


def test_every_link_between_pages_leads_to_a_file():
    for page in [*PAGES, ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_version_is_the_same_wherever_it_is_written():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    written = {torch_pjrt.__version__, _core.library().pj_version().decode()}
    for file in ("CMakeLists.txt", "core/CMakeLists.txt"):
        written |= set(re.findall(r"^project\(\w+ VERSION ([\d.]+)", (ROOT / file).read_text(), re.M))
    assert written == {version}
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_support_page_has_the_numbers_of_the_code():
    page = (ROOT / "docs" / "support.md").read_text()
    file_format = re.search(r"FORMAT_VERSION = (\d+)", (ROOT / "core/run/disk_cache.c").read_text())[1]
    for row in (f"| libpj ABI | {_core.library().pj_abi()} |", f"| cache entry format | {file_format} |",
                f"| package | {torch_pjrt.__version__} |"):
        assert row in page, row


def test_the_page_of_environment_variables_is_that_of_the_code():
    made = subprocess.run([sys.executable, "-m", "torch_pjrt._env"], capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / "environment.md").read_text() == made


def public(module) -> dict:
    return {f"{module.__name__}.{name}": value for name, value in vars(module).items() if not name.startswith("_")
            and getattr(value, "__module__", None) == module.__name__ and (inspect.isclass(value) or callable(value))}


def test_every_public_name_of_the_reference_has_a_docstring():
    names = {}
    for module in (torch_pjrt.tpu, torch_pjrt.memory, torch_pjrt.streams, torch_pjrt.random):
        names |= public(module)
    assert len(names) > 50
    assert not [name for name, value in names.items() if not value.__doc__]


def test_every_public_c_function_is_in_the_c_reference(tmp_path):
    subprocess.run([sys.executable, ROOT / "tools" / "c_reference.py", tmp_path], check=True)
    assert sorted(page.stem for page in tmp_path.glob("*.md")) == [header.stem for header in HEADERS]
    for header in HEADERS:
        page = (tmp_path / f"{header.stem}.md").read_text()
        functions = re.findall(r"^(?:PJ_EXPORT|static inline) .*?(\w+)\(", header.read_text(), re.M)
        code = "\n".join(re.findall(r"^```c\n(.*?)^```$", page, re.M | re.S))
        assert not [name for name in functions if f"{name}(" not in code], header.name
        assert "PJ_EXPORT" not in code and "extern" not in code, header.name


def test_the_workflow_runs_every_part_of_the_tests():
    parts = re.search(r"^PARTS = \{(.*?)\}$", (ROOT / "tools" / "test.py").read_text(), re.M | re.S)[1]
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["part"] == re.findall(r'"(\w+)":', parts)


def test_every_page_is_in_the_sites_menu():
    menu = re.findall(r": ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = [str(page.relative_to(ROOT)) for page in PAGES] + ["SECURITY.md", "CHANGELOG.md"]
    headers = [f"reference/c/{header.stem}.md" for header in HEADERS]
    assert sorted(name for name in menu if not name.startswith("reference/torch")) == sorted(pages + headers)


@pytest.mark.parametrize("form", ["bug", "op"])
def test_an_issue_form_asks_for_a_report_that_the_program_gives(form):
    asked = re.findall(r"`torch-pjrt (doctor --json)`", (ROOT / f".github/ISSUE_TEMPLATE/{form}.yml").read_text())
    assert len(asked) == 1 and cli._parser().parse_args(asked[0].split()).json
