"""The rows of long runs: benchmarks/results/soak.jsonl."""
import json
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def row(what: str) -> dict[str, Any]:
    """What a row begins with; asked before the run, which the commit is of."""
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    return {"what": what, "date": time.strftime("%Y-%m-%d"), "commit": commit.stdout.strip()}


def keep(result: dict[str, Any], out: Path | None) -> int:
    """Prints the row, appends it to the file, if there is one, and gives the exit status: whether it has faults."""
    text = json.dumps(result)
    print(text)
    if out:
        with out.open("a") as file:
            file.write(text + "\n")
    return int(bool(result["faults"]))
