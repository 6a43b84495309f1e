"""torch-pjrt ops: how each op runs, from the table that the conformance suite wrote (ops.tsv)."""
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent.with_name("ops.tsv")


def load(path: Path = TABLE) -> tuple[str, list[dict[str, str]]]:
    """Where the table comes from, and one dict an op: "op", and e.g. "forward float32": "native 5/5" (the worst of its
    samples, and how many of them passed; "" where PyTorch has no such case)."""
    first, names, *lines = path.read_text().splitlines()
    return first.removeprefix("# "), [dict(zip(names.split("\t"), line.split("\t"))) for line in lines]


def run(options) -> tuple[dict[str, Any], list[str], int]:
    """(report, lines, exit status); 1 when no op matches."""
    origin, rows = load()
    rows = [row for row in rows if fnmatchcase(row["op"], options.pattern)]
    if not rows:
        lines = [f"no op matches {options.pattern!r}; a pattern is the whole name, with * for any text"]
    else:
        columns = [name for name in rows[0] if any(row[name] for row in rows)]
        widths = [max(len(name), *(len(row[name]) for row in rows)) for name in columns]
        lines = ["  ".join(text.ljust(width) for text, width in zip(cells, widths)).rstrip()
                 for cells in [columns, *([row[name] for name in columns] for row in rows)]] + ["", origin]
    return {"origin": origin, "ops": rows}, lines, 0 if rows else 1
