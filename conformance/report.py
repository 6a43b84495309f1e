"""Runs as documents: docs/ops.md, docs/ops.svg, and the table that the package carries (python/torch_pjrt/ops.tsv)."""
import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from conformance import results
from conformance.catalogue import DTYPES, kinds
from conformance.judge import PASSED, RESULTS

ROOT = Path(__file__).resolve().parent.parent
COLOURS = {"native": "#1b7837", "ok": "#1b7837", "decomposed": "#a6dba0", "fallback": "#f1a340", "wrong": "#b2182b",
           "error": "#d6604d", "crash": "#67001f", "timeout": "#762a83", "unbuildable": "#999999", "skipped": "#d9d9d9"}
TABLE_KINDS = ("forward", "backward")  # a column for each of their dtypes


def merged(paths: list[str]) -> tuple[list[dict], dict[str, dict]]:
    """Headers, and results by id; of a case in several files that of the last file."""
    heads, rows = [], {}
    for path in paths:
        head, found = results.read(path)
        heads.append(head)
        rows.update((row["id"], row) for row in found)
    return heads, rows


def cell(row: dict[str, Any]) -> str:
    return f"{row['result']} {row['passed']}/{row['samples']}"


def table(rows: dict[str, dict]) -> tuple[list[str], dict[str, list[str]]]:
    """Columns ("forward float32", ...), and for each op its cells; an empty one: no such case."""
    present = {(row["kind"], row["dtype"]) for row in rows.values()}
    columns = [(kind, dtype) for kind in TABLE_KINDS for dtype in DTYPES if (kind, dtype) in present]
    ops = sorted({row["op"] for row in rows.values() if row["kind"] in TABLE_KINDS})
    cells = {op: [cell(rows[i]) if (i := f"{kind}/{op}/{dtype}") in rows else "" for kind, dtype in columns]
             for op in ops}
    return [" ".join(column) for column in columns], cells


def origin(heads: list[dict]) -> str:
    head = max(heads, key=lambda h: h["date"])
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    several = " and before" if len({h["commit"] for h in heads}) > 1 else ""
    return f"device {head['device']}; {versions}; commit {head['commit']}{several}; {head['date'][:10]}"


def counts(rows: dict[str, dict]) -> dict[tuple[str, str], Counter]:
    found: dict[tuple[str, str], Counter] = defaultdict(Counter)
    for row in rows.values():
        found[row["kind"], row["dtype"]][row["result"]] += 1
    order = {name: i for i, name in enumerate(kinds())}
    dtypes = {name: i for i, name in enumerate(DTYPES)}
    return dict(sorted(found.items(), key=lambda item: (order.get(item[0][0], 99), dtypes.get(item[0][1], 99))))


def markdown(heads: list[dict], rows: dict[str, dict]) -> str:
    present = {row["result"] for row in rows.values()}
    words = sorted(present, key=lambda word: (word not in PASSED, RESULTS.index(word)))
    lines = ["# Ops", "",
             "Written by `python -m conformance report`. How each op of PyTorch's own test lists (OpInfo) runs: by its "
             "lowering (native), through PyTorch's decomposition (decomposed), on the CPU (fallback), or not as on the "
             "CPU (wrong, error, crash, timeout). In a cell: the worst that happened, and how many of the samples "
             "passed.", "",
             f"{origin(heads)}.", "", "![cases by result](ops.svg)", "", "## Cases by result", "",
             "| kind | dtype | " + " | ".join(words) + " |", "|---|---|" + "---:|" * len(words)]
    for (kind, dtype), n in counts(rows).items():
        lines.append(f"| {kind} | {dtype} | " + " | ".join(str(n[word] or "") for word in words) + " |")
    questions = {name: kind.question for name, kind in kinds().items()}
    lines += ["", "What the kinds ask:", ""]
    asked = {row["kind"] for row in rows.values()}
    lines += [f"* **{name}**: {question}" for name, question in questions.items() if name in asked]
    columns, cells = table(rows)
    lines += ["", "## Ops by dtype", "", "| op | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    lines += [f"| `{op}` | " + " | ".join(row) + " |" for op, row in cells.items()]
    faults = sorted((row for row in rows.values() if row["result"] not in (*PASSED, "skipped")),
                    key=lambda row: row["id"])
    lines += ["", f"## What does not pass ({len(faults)} cases)", "", "| case | result | reason |", "|---|---|---|"]
    reasons = [row["reason"][:160].replace("|", r"\|") for row in faults]
    lines += [f"| `{row['id']}` | {row['result']} | {reason} |" for row, reason in zip(faults, reasons)]
    return "\n".join(lines) + "\n"


def picture(rows: dict[str, dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "ops", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    bars = counts(rows)
    names = [f"{kind} {dtype}".removesuffix(" -") for kind, dtype in bars]
    figure, axes = pyplot.subplots(figsize=(9, 0.6 + 0.26 * len(names)), layout="constrained")
    left = [0] * len(names)
    for word in ("native", "ok", "decomposed", "fallback", "wrong", "error", "crash", "timeout", "unbuildable",
                 "skipped"):
        widths = [n[word] for n in bars.values()]
        if any(widths):
            axes.barh(names, widths, left=left, color=COLOURS[word], label=word)
            left = [a + b for a, b in zip(left, widths)]
    axes.invert_yaxis()
    axes.set_xlabel("cases (op, dtype)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=5, frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def package_table(heads: list[dict], rows: dict[str, dict]) -> str:
    columns, cells = table(rows)
    lines = [f"# {origin(heads)}", "\t".join(["op", *columns])]
    return "\n".join(lines + ["\t".join([op, *row]) for op, row in cells.items()]) + "\n"


def compare(before: dict[str, dict], after: dict[str, dict]) -> list[str]:
    """A line for each case whose result is another one, worse ones first."""
    rank = {word: i for i, word in enumerate(RESULTS)}
    changed = [(before[i], after[i]) for i in before.keys() & after.keys() if before[i]["result"] != after[i]["result"]]
    changed.sort(key=lambda pair: (rank[pair[0]["result"]] - rank[pair[1]["result"]], pair[1]["id"]))
    lines = [f"{old['result']:>11} -> {new['result']:<11} {new['id']}  {new['reason']}".rstrip()
             for old, new in changed]
    better = sum(rank[new["result"]] < rank[old["result"]] for old, new in changed)
    lines.append(f"{len(before.keys() & after.keys())} cases in both: {len(changed) - better} worse, {better} better; "
                 f"{len(before.keys() - after.keys())} only in the first, "
                 f"{len(after.keys() - before.keys())} only in the second")
    return lines


def report(options: argparse.Namespace) -> int:
    if options.compare:
        if len(options.files) != 2:
            raise ValueError("--compare takes two files: the run before, and the run after")
        (_, before), (_, after) = (merged([path]) for path in options.files)
        print("\n".join(compare(before, after)))
        return 0
    heads, rows = merged(options.files)
    root = Path(options.root)
    (root / "docs").mkdir(parents=True, exist_ok=True)
    (root / "docs" / "ops.md").write_text(markdown(heads, rows))
    picture(rows, root / "docs" / "ops.svg")
    package = root / "python" / "torch_pjrt"
    package.mkdir(parents=True, exist_ok=True)
    (package / "ops.tsv").write_text(package_table(heads, rows))
    print(f"{len(rows)} cases: {root / 'docs' / 'ops.md'}, {root / 'docs' / 'ops.svg'}, {package / 'ops.tsv'}",
          file=sys.stderr)
    return 0


def add_arguments(commands: Any) -> None:
    p = commands.add_parser("report",
                            help="write docs/ops.md, docs/ops.svg and python/torch_pjrt/ops.tsv, or compare two runs")
    p.add_argument("files", nargs="+", metavar="FILE", help="files of results; of a case in several the last counts")
    p.add_argument("--compare", action="store_true", help="print what changed between two files")
    p.add_argument("--root", default=str(ROOT), help="folder that docs/ and python/ are in")
    p.set_defaults(call=report)
