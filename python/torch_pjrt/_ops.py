"""`torch-pjrt ops`: how each op runs, from the table that the conformance suite wrote (ops.tsv)."""
import argparse
import json
from fnmatch import fnmatchcase
from pathlib import Path

TABLE = Path(__file__).with_name("ops.tsv")


def load(path: Path = TABLE) -> tuple[str, list[dict[str, str]]]:
    """Where the table comes from, and one dict an op: "op", and e.g. "forward float32": "native 5/5" (the worst of its
    samples, and how many of them passed; "" where PyTorch has no such case)."""
    first, names, *lines = path.read_text().splitlines()
    return first.removeprefix("# "), [dict(zip(names.split("\t"), line.split("\t"))) for line in lines]


def main(argv: list[str] | None = None) -> int:
    """Exit status 1 when no op matches."""
    parser = argparse.ArgumentParser(prog="torch-pjrt ops",
                                     description="How each op of PyTorch runs on the device: native "
                                     "(its lowering), decomposed, fallback (on the CPU), or not as on the CPU.")
    parser.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="ops, as add, linalg.* or *norm*")
    parser.add_argument("--json", action="store_true", help="one JSON list")
    options = parser.parse_args(argv)
    origin, rows = load()
    rows = [row for row in rows if fnmatchcase(row["op"], options.pattern)]
    if options.json:
        print(json.dumps({"origin": origin, "ops": rows}, indent=1))
    elif rows:
        columns = [name for name in rows[0] if any(row[name] for row in rows)]
        widths = [max(len(name), *(len(row[name]) for row in rows)) for name in columns]
        for cells in [columns, *([row[name] for name in columns] for row in rows)]:
            print("  ".join(text.ljust(width) for text, width in zip(cells, widths)).rstrip())
        print(f"\n{origin}")
    if not rows and not options.json:
        print(f"no op matches {options.pattern!r}; a pattern is the whole name, with * for any text")
    return 0 if rows else 1
