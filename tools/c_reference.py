"""Writes the C headers' comments and declarations as Markdown, one page a header: the reference of libpj.

    python3 tools/c_reference.py FOLDER

The file's first comment becomes the page's introduction, a line `// ---- name ---` a heading, any other comment at the
line's beginning the text above the declarations that follow it.
"""
import re
import sys
from pathlib import Path

HEADERS = Path(__file__).resolve().parent.parent / "core" / "include" / "pj"
SECTION = re.compile(r"// -{2,} (.+?) -{2,}")
# Lines that say nothing to a caller: the include guard, and what a C++ compiler needs.
PLUMBING = re.compile(r'#ifndef PJ_\w+_H_|#define PJ_\w+_H_|#define PJ_EXPORT .*|#ifdef __cplusplus|extern "C" \{')


def prose(comment: str) -> str:
    """The comment as Markdown: all is text but what stands in backticks."""
    parts = re.split(r"(`[^`]+`)", comment)
    return "".join(part if part.startswith("`") else re.sub(r"([\\`*_<>\[\]])", r"\\\1", part) for part in parts)


def declarations(code: str) -> str:
    """Without PJ_EXPORT, which says how the library is linked and not what the function is, and without bodies."""
    unindented = "\n" + " " * len("PJ_EXPORT ")
    code = re.sub(r"^static inline ([^{]+) \{(?:.*\}$|\n[\s\S]*?^\})", r"\1;", code, flags=re.M)
    return re.sub(r"PJ_EXPORT ([^;]*;)", lambda match: match[1].replace(unindented, "\n"), code)


def without_plumbing(lines: list[str]) -> list[str]:
    """The lines without guards, `extern "C"` and includes."""
    kept, skipping = [], False
    for line in lines:
        if PLUMBING.fullmatch(line):
            skipping = skipping or line == "#ifdef __cplusplus"
        elif line.startswith("#endif") or (skipping and line == "}"):
            skipping = False
        elif not line.startswith("#include"):
            kept.append(line)
    return kept


def blocks(lines: list[str]):
    """("section", name), ("text", comment) and ("code", declarations), in the header's order."""
    comment, code = [], []

    def flush():
        if comment:
            yield "text", "\n".join(comment)
        if code:
            yield "code", "\n".join(code).strip("\n")
        comment.clear(), code.clear()

    for line in [*lines, ""]:
        section = SECTION.fullmatch(line)
        # A comment inside an open enum or struct is indented, and stays in the code.
        if section or (code and line.startswith("//")) or (not line and not code):
            yield from flush()
        if section:
            yield "section", section[1]
        elif line.startswith("//"):
            comment.append(line[2:].removeprefix(" "))
        elif line or code:
            code.append(line)
        closed = "\n".join(code).count("{") == "\n".join(code).count("}")
        if not line and code and closed:
            yield from flush()


def page(header: Path) -> str:
    out = [f"# pj/{header.name}"]
    for kind, text in blocks(without_plumbing(header.read_text().splitlines())):
        if kind == "section":
            out.append(f"## {text[0].upper()}{text[1:]}")
        elif kind == "text":
            out.append(prose(text))
        else:
            out.append(f"```c\n{declarations(text)}\n```")
    return "\n\n".join(out) + "\n"


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for header in sorted(HEADERS.glob("*.h")):
        (folder / f"{header.stem}.md").write_text(page(header))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(Path(sys.argv[1]))
