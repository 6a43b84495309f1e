"""The command line: `models` and `recipes`."""
import argparse
import json
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

from conformance import results
from conformance.judge import PASSED, Unbuildable

HIDDEN = "held out"
HELD_OUT_BAR = 0.95
RECIPES = results.ROOT / "conformance" / "results" / "models_recipes.jsonl"


def _shard(text: str) -> tuple[int, int]:
    from conformance.__main__ import shard

    return shard(text)


def _prepare() -> None:
    """What is the same for all types is done once, before the processes are forked."""
    import logging
    import os
    import warnings

    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers.modeling_utils  # noqa: F401

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def read_recipes(path: Path = RECIPES) -> dict[str, dict[str, Any]]:
    """By type: the recipe, or {"unbuildable": why}."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return {row.pop("type"): row for row in rows}


class Output:
    """A file of a header and rows, which a later run may continue."""

    def __init__(self, path: Path, head: dict[str, Any], key: str, resume: bool, wanted: list[str]):
        self.path, self.key, self.rows = path, key, {}
        if path.exists() and not resume:
            raise ValueError(f"{path} exists; continue it with --resume, or take another --out")
        if path.exists():
            lines = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            if not lines or lines[0].get("device") != head["device"]:
                raise ValueError(f"{path} is of another run; take another --out")
            head = lines[0]
            self.rows = {row[key]: row for row in lines[1:]}
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("w")
        for row in [head, *self.rows.values()]:
            self._write(row)
        self.left = [name for name in wanted if name not in self.rows]

    def _write(self, row: dict[str, Any]) -> None:
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    def add(self, row: dict[str, Any]) -> None:
        self.rows[row[self.key]] = row
        self._write(row)


def _tell_of(counts: Counter) -> str:
    return " ".join(f"{word} {n}" for word, n in sorted(counts.items()))


def recipes(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    _prepare()
    from conformance.models import pool, universe
    from conformance.models.recipes import find

    types = universe.select(options.types, options.split, options.shard)
    head = _header("cpu", options.memory)
    out = Output(Path(options.out), head, "type", options.resume, types)

    def call(name: str, tell) -> dict[str, Any]:
        try:
            return find(name, options.search, tell).to_json()
        except Unbuildable as error:
            return {"unbuildable": str(error)}
        except Exception as error:
            return {"unbuildable": f"{type(error).__name__}: {str(error)[:300]}"}

    with tqdm(total=len(out.left), unit="type") as bar:
        def done(name: str, row: dict[str, Any]) -> None:
            row = {"unbuildable": f"{row['result']}: {row['reason']}"} if "result" in row else row
            row.pop("seconds", None)
            if "unbuildable" in row:
                row["unbuildable"] = _reason(name, row["unbuildable"], options)
            out.add({"type": name, **row})
            bar.update()

        pool.run_all(out.left, call, done, limit=options.search * 2 + 30, most_bytes=options.memory << 30,
                     jobs=options.jobs)
    found = sum("unbuildable" not in row for row in out.rows.values())
    print(f"{len(universe.known())} types known, {len(universe.mapped())} mapped; "
          f"of {len(out.rows)} asked {found} run on the CPU")
    return 0


def _header(device: str, memory: int) -> dict[str, Any]:
    """The header of a run on a device that can be used. Asked in a process of its own, since after its first use of the
    device this one could fork no more."""
    from conformance.__main__ import check_device
    from conformance.models import pool

    def call(name: str, tell) -> dict[str, Any]:
        try:
            check_device(name)
        except ValueError as error:
            return {"reason": str(error)}
        return {"reason": "", "header": results.header(name, 0, None, "full")}

    answers: list[dict[str, Any]] = []
    pool.run_all([device], call, lambda _, row: answers.append(row), limit=300, most_bytes=memory << 30, jobs=1)
    if answers[0]["reason"]:
        raise ValueError(answers[0]["reason"])
    head = answers[0]["header"]
    return {**head, "versions": {**head["versions"], "transformers": metadata.version("transformers")}}


def _verdict(rows: list[dict[str, Any]], known: list[tuple[str, str, str]], named: bool) -> int:
    """Prints what came out, and the exit status: 1 where a type fails that stands in no line of the list, or where of
    those that are held out, which no line can name, too few pass. `named`: the types were asked for by name, and none
    is hidden."""
    from conformance.__main__ import verdict
    from conformance.models.universe import held_out

    built = [row for row in rows if row["result"] != "unbuildable"]
    print(f"{len(built)} of {len(rows)} types run on the CPU")
    hidden = [row for row in built if held_out(row["op"]) and not named]
    status = verdict([row for row in built if row not in hidden], known)
    if hidden:
        passed = sum(row["result"] in PASSED for row in hidden)
        print(f"held out: {passed} of {len(hidden)} pass ({_tell_of(Counter(row['result'] for row in hidden))})")
        status = status or int(passed < HELD_OUT_BAR * len(hidden))
    return status


def models(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    _prepare()
    from conformance.models import pool, universe
    from conformance.models.inputs import Recipe
    from conformance.models.judge import judge

    types = universe.select(options.types, options.split, options.shard)
    head = _header(options.device, options.memory)
    out = Output(Path(options.out), head, "op", options.resume, types)
    found = read_recipes(Path(options.recipes))

    def call(name: str, tell) -> dict[str, Any]:
        known = found.get(name)
        if known and "unbuildable" in known:
            return {"result": "unbuildable", "reason": known["unbuildable"]}
        return judge(name, Recipe.from_json(known) if known else None, options.device, options.search, tell)

    counts = Counter(row["result"] for row in out.rows.values())
    with tqdm(total=len(types), initial=len(types) - len(out.left), unit="type") as bar:
        def done(name: str, row: dict[str, Any]) -> None:
            passed = row["result"] in PASSED
            out.add({"id": f"models/{name}/float32", "kind": "models", "op": name, "dtype": "float32", **row,
                     "reason": _reason(name, row["reason"], options), "passed": int(passed),
                     "samples": int(row["result"] != "unbuildable")})
            counts[row["result"]] += 1
            bar.set_postfix_str(_tell_of(counts), refresh=False)
            bar.update()

        pool.run_all(out.left, call, done, limit=options.timeout, most_bytes=options.memory << 30, jobs=options.jobs)
    return _verdict(list(out.rows.values()), results.open_faults(Path(options.open_faults)), bool(options.types))


def report(options: argparse.Namespace) -> int:
    from conformance.models.report import markdown

    out = Path(options.out)
    out.write_text(markdown(options.files, read_recipes(Path(options.recipes))))
    return 0


def _reason(name: str, reason: str, options: argparse.Namespace) -> str:
    """What is written of a fault. Of a type that is held out nothing, unless it was asked for by name."""
    from conformance.models.universe import held_out

    return HIDDEN if held_out(name) and not options.types and reason else reason[:options.reason]


def add_arguments(commands: Any) -> None:
    def common(p: argparse.ArgumentParser, call) -> None:
        p.add_argument("--types", type=lambda text: text.split(","), metavar="A,B")
        p.add_argument("--split", choices=("dev", "held", "all"), default="all",
                       help="held: what nobody looks at while mending (md5 of the name begins with 0, 1 or 2)")
        p.add_argument("--shard", type=_shard, default=(1, 1), metavar="i/n")
        p.add_argument("--resume", action="store_true", help="keep what is in --out, run what is not")
        p.add_argument("--jobs", type=int, default=1, help="processes at a time")
        p.add_argument("--memory", type=int, default=9, help="GiB that a process may take")
        p.add_argument("--search", type=float, default=40, help="seconds to find a recipe where there is none")
        p.add_argument("--reason", type=int, default=300, help=argparse.SUPPRESS)
        p.set_defaults(call=call)

    p = commands.add_parser("recipes", help="find for each Transformers type what runs on the CPU")
    common(p, recipes)
    p.add_argument("--out", default=str(RECIPES))

    p = commands.add_parser("models", help="run every Transformers type on a device")
    common(p, models)
    p.add_argument("--device", default="tpu")
    p.add_argument("--timeout", type=float, default=300, help="seconds for one type")
    p.add_argument("--recipes", default=str(RECIPES), help="what `recipes` has written; what it lacks is searched for")
    p.add_argument("--open-faults", default=str(results.OPEN_FAULTS))
    p.add_argument("--out", required=True)

    p = commands.add_parser("models-report", help="write docs/models.md")
    p.add_argument("files", nargs="+", metavar="FILE", help="files of results; of a type in several the last counts")
    p.add_argument("--recipes", default=str(RECIPES))
    p.add_argument("--out", default=str(results.ROOT / "docs" / "models.md"))
    p.set_defaults(call=report)
