"""Files of results: a header, and one JSON object a case."""
import gzip
import json
import platform
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any

from conformance.judge import PASSED

ROOT = Path(__file__).resolve().parent.parent
OPEN_FAULTS = Path(__file__).resolve().parent / "open_faults.tsv"


def _commit() -> str:
    git = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT, capture_output=True,
                         text=True)
    return git.stdout.strip() or "unknown"


def _plugin(device: str) -> str:
    """What torch.<device> says it runs on."""
    import torch

    module = getattr(torch, torch.device(device).type, None)
    try:
        return str(module.get_device_properties(0))
    except Exception:
        return platform.machine()


def header(device: str, seed: int, samples: int | None, budget: str) -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for name in ("torch", "numpy", "torch-pjrt"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    command = shlex.join(["python", "-m", "conformance", *sys.argv[1:]])
    return {"conformance": 1, "device": device, "on": _plugin(device), "seed": seed, "samples": samples,
            "budget": budget,
            "commit": _commit(), "versions": versions, "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": command}


def read(path: str | Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and results; of several results of a case the last. ValueError where the file is no file of results. A
    last line that was cut off is left out."""
    path = Path(path)
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    rows = []
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                raise ValueError(f"{path} is no file of results: line {len(rows) + 1} is not JSON") from None
    if not rows or not isinstance(rows[0], dict) or rows[0].get("conformance") != 1:
        raise ValueError(f"{path} is no file of results: its first line is not a header")
    return rows[0], list({row["id"]: row for row in rows[1:]}.values())


def open_faults(path: Path = OPEN_FAULTS) -> list[tuple[str, str, str]]:
    """(pattern of ids, result, cause) for each known fault."""
    lines = path.read_text().splitlines()
    return [tuple(line.split("\t")) for line in lines[1:] if line.strip()]


def unknown_faults(rows: list[dict[str, Any]], known: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """The results that are no pass and stand in no line of the list."""
    return [row for row in rows if row["result"] not in PASSED and not any(
        result == row["result"] and fnmatchcase(row["id"], pattern) for pattern, result, _ in known)]
