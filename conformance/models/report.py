"""Runs as a document: docs/models.md."""
from collections import Counter
from statistics import median
from typing import Any

from conformance.judge import PASSED, RESULTS
from conformance.models import universe
from conformance.report import merged, origin

WORST = 10


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def _table(head: list[str], rows: list[list[Any]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1),
            *("| " + " | ".join(str(x) for x in row) + " |" for row in rows)]


def _universes(rows: list[dict], recipes: dict[str, dict]) -> list[str]:
    lines = []
    for split, held in (("development", False), ("held out", True)):
        types = [t for t in universe.mapped() if universe.held_out(t) == held]
        searched = [t for t in types if t in recipes]
        built = sum("unbuildable" not in recipes[t] for t in searched)
        asked = sum(universe.held_out(row["op"]) == held and row["result"] != "unbuildable" for row in rows)
        lines.append([split, len(types), len(searched), built, _share(built, len(searched)), asked])
    total = ["all", *(sum(line[i] for line in lines) for i in (1, 2, 3)),
             _share(sum(line[3] for line in lines), sum(line[2] for line in lines)), sum(line[5] for line in lines)]
    head = ["types", "with a model class", "searched", "run on the CPU", "", "asked of the device"]
    return _table(head, [*lines, total])


def _results(rows: list[dict]) -> list[str]:
    words = sorted({row["result"] for row in rows}, key=lambda word: (word not in PASSED, RESULTS.index(word)))
    lines = []
    for split, held in (("development", False), ("held out", True)):
        counts = Counter(row["result"] for row in rows if universe.held_out(row["op"]) == held)
        if counts:
            passed = sum(counts[word] for word in PASSED)
            lines.append([split, *(counts[word] for word in words), _share(passed, counts.total())])
    return _table(["types", *words, "pass"], lines)


def _programs(rows: list[dict]) -> list[str]:
    counted = [row for row in rows if row.get("programs") and row["programs"][0] is not None]
    if not counted:
        return []
    again = [row for row in counted if len(row["programs"]) > 1]
    longer = [row["programs"][2] for row in counted if len(row["programs"]) > 2]
    more = sum(row["programs"][1] > 0 for row in again)
    worst = sorted(counted, key=lambda row: -row["programs"][0])[:WORST]
    cells = [[f"`{row['op']}`", *(row["programs"] + ["", ""])[:3]] for row in worst]
    return ["## Programs", "",
            "One for each op, shape and layout, in strict eager: compiled, or loaded from the cache.", "",
            *_table(["forward", "median", "most", "models"],
                    [["first", median(row["programs"][0] for row in counted), worst[0]["programs"][0], len(counted)],
                     ["second, the same inputs", median(row["programs"][1] for row in again),
                      max(row["programs"][1] for row in again), len(again)],
                     ["sixteen tokens more", median(longer) if longer else "", max(longer, default=""), len(longer)]]),
            "", f"{len(again) - more} of {len(again)} models make no program in the second forward.", "",
            f"The {WORST} types with most:", "", *_table(["type", "first", "second", "longer"], cells)]


def markdown(paths: list[str], recipes: dict[str, dict]) -> str:
    heads, by_id = merged(paths)
    rows = [row for row in by_id.values() if row["result"] != "unbuildable"]
    shown = [row for row in rows if not universe.held_out(row["op"])]
    faults = sorted((row for row in shown if row["result"] not in PASSED), key=lambda row: row["op"])
    lines = ["# Transformers' architectures", "",
             "Written by `python -m conformance models-report`. Every model type of Transformers, small and with "
             "random weights, on the device and on the CPU: outputs, every gradient, generated tokens. How it is "
             "judged is in "
             "[conformance](conformance.md#every-architecture-of-transformers).", "", f"{origin(heads)}.", "",
             "## Types", "",
             f"Transformers knows {len(universe.known())} types; those without a model class are parts of others.", "",
             *_universes(rows, recipes), "", "## Results", "", "Of the types that run on the CPU:", "", *_results(rows),
             "", *_programs(shown), "", f"## What does not pass ({len(faults)} types of the development set)", ""]
    if faults:
        cells = [[f"`{row['op']}`", row["result"], " ".join(row["reason"][:200].replace("|", r"\|").split())]
                 for row in faults]
        lines += ["| type | result | reason |", "|---|---|---|", *("| " + " | ".join(cell) + " |" for cell in cells)]
    return "\n".join(lines) + "\n"
