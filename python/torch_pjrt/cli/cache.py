"""torch-pjrt cache: the directory of compiled programs. Each command gives (report, lines, exit status)."""
import os
import time
from typing import Any

from torch_pjrt import _core, _env

Result = tuple[dict[str, Any], list[str], int]


def directory() -> str:
    return os.path.expanduser(_env.get("TORCH_PJRT_CACHE_DIR"))


def size(count: int) -> str:
    """Bytes for people: "1.2 MB"."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


def amount(found: dict[str, Any]) -> str:
    """What a survey found, in words."""
    return f"{found['entries']} entries, {size(found['bytes'])} of at most {size(found['limit'])}"


def _day(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def survey() -> dict[str, Any]:
    """directory ("": none is used), exists, entries, bytes, limit, oldest and newest (seconds since 1970, or None; by
    last use). ValueError: a variable; RuntimeError: a directory that the runtime refuses; OSError: no core."""
    limit = _env.get("TORCH_PJRT_CACHE_BYTES") or _core.library().pj_cache_default_limit()
    place = directory()
    found = {"directory": place, "exists": os.path.isdir(place), "entries": 0, "bytes": 0, "limit": limit}
    used = []

    def visit(entry: _core.Entry) -> None:
        found["entries"] += 1
        found["bytes"] += entry.bytes
        used.append(entry.used)

    _core.scan_cache(place, visit)
    return found | {"oldest": min(used, default=None), "newest": max(used, default=None)}


def _guarded(command):
    """Errors are one sentence and exit status 1."""

    def call(options) -> Result:
        try:
            return command(options)
        except (ValueError, RuntimeError, OSError) as error:
            return {"error": str(error)}, [str(error)], 1

    return call


@_guarded
def info(options) -> Result:
    found = survey()
    if not found["directory"]:
        return found, ["TORCH_PJRT_CACHE_DIR is empty: nothing is kept on disk"], 0
    lines = [f"{found['directory']}: {amount(found)}" + ("" if found["exists"] else " (not made yet)")]
    if found["entries"]:
        lines.append(f"last used between {_day(found['oldest'])} and {_day(found['newest'])}")
    return found, lines, 0


@_guarded
def clear(options) -> Result:
    removed = []

    def remove(entry: _core.Entry) -> None:
        entry.remove()
        removed.append(entry.bytes)

    _core.scan_cache(directory(), remove)
    report = {"directory": directory(), "removed": len(removed), "bytes": sum(removed)}
    return report, [f"{directory()}: {len(removed)} entries removed, {size(sum(removed))}"], 0


@_guarded
def verify(options) -> Result:
    checked, damaged = [], {}

    def check(entry: _core.Entry) -> None:
        checked.append(entry.name)
        if wrong := entry.check():
            damaged[entry.name] = wrong
            if options.delete:
                entry.remove()

    _core.scan_cache(directory(), check)
    report = {"directory": directory(), "checked": len(checked), "damaged": damaged, "deleted": options.delete}
    lines = [f"{directory()}: {len(checked)} entries checked, {len(damaged)} damaged"]
    lines += [f"{name} {wrong}" for name, wrong in sorted(damaged.items())]
    if damaged:
        lines.append("they were removed" if options.delete else
                     "they are dropped when they are met; --delete removes them now")
    return report, lines, 1 if damaged and not options.delete else 0
