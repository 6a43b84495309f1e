"""torch-pjrt doctor: what is installed, chosen and at fault. Loads the plugin only in a process of its own."""
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
from typing import Any

from torch_pjrt import __version__, _beside, _chips, _core, _env, _selection
from torch_pjrt.cli import cache

PROBE_SECONDS = 180


class Report:
    def __init__(self):
        self.found: dict[str, Any] = {}
        self.lines: list[str] = []
        self.faults: list[dict[str, str]] = []

    def say(self, name: str, *lines: str) -> None:
        self.lines += [f"{name if i == 0 else '':<12}{line}" for i, line in enumerate(lines)]

    def fault(self, what: str, do: str) -> None:
        self.faults.append({"what": what, "do": do})


def _versions(report: Report) -> bool:
    """Whether the rest can be asked."""
    def installed(package: str) -> str | None:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    found = {"torch_pjrt": __version__, "python": platform.python_version(), "torch": installed("torch"), "libpj": None,
             "libpj_abi": None}
    try:
        found |= {"libpj": _core.library().pj_version().decode(), "libpj_abi": _core.library().pj_abi()}
    except OSError as error:
        report.fault(f"the core's library does not load: {error}", "install torch-pjrt anew")
    if not found["torch"]:
        report.fault("torch is not installed", "pip install 'torch==2.13.*'")
    report.found["versions"] = found
    report.say("versions", f"torch-pjrt {found['torch_pjrt']}, libpj {found['libpj']} (ABI {found['libpj_abi']}), "
                           f"torch {found['torch']}, Python {found['python']}")
    return found["libpj"] is not None


def _variables(report: Report) -> bool:
    ok = True
    for name in _env.VARIABLES:
        try:
            _env.get(name)
        except ValueError as error:
            ok = False
            report.fault(str(error), f"unset it or give it a value of docs/environment.md: {_env.VARIABLES[name].doc}")
    return ok


def _driver(report: Report) -> bool:
    """Whether it is torch_pjrt that drives the device."""
    decision = _beside.decide()
    report.found["driver"] = {"name": decision.driver, "also_installed": decision.others}
    others = f"; installed too: {', '.join(decision.others)}" if decision.others else ""
    report.say("driver", f"{decision.driver} drives the device tpu{others}",
               *(["(TORCH_PJRT_DRIVER chooses)"] if decision.others else []))
    if decision.driver not in ("torch_pjrt", *decision.others):
        report.fault(decision.sentence, "unset TORCH_PJRT_DRIVER")
    return decision.driver == "torch_pjrt"


def _plugin(report: Report) -> bool:
    try:
        choice = _selection.select()
    except RuntimeError as error:
        what, _, do = str(error).partition("; run: ")
        report.found["plugin"] = None
        report.say("plugin", "none")
        report.fault(what, do or "set TORCH_PJRT_PLUGIN to one of these names or to a file that exists")
        return False
    report.found["plugin"] = {"path": choice.path, "why": choice.why, "variable": choice.variable}
    if choice.variable:
        report.say("plugin", choice.path, f"FROM THE ENVIRONMENT: {choice.variable} ({choice.why}); its code runs in "
                                          "every process that uses the device")
    else:
        report.say("plugin", choice.path, choice.why)
    return True


def _chip_files(report: Report) -> None:
    files, (holders, refused) = _chips.device_files(), _chips.holders()
    report.found["chips"] = {"files": files, "holders": [h._asdict() for h in holders], "processes_not_seen": refused}
    report.say("chips", ", ".join(files) or "no TPU in this machine")
    for pid, command, file in holders:
        report.say("", f"{file} is open in process {pid} ({command})")
        report.fault(f"the chip {file} belongs to process {pid} ({command})",
                     f"end it (kill {pid}), or leave that chip out of TPU_VISIBLE_CHIPS")
    if refused:
        report.say("", f"permission denied for {refused} processes of other users: they may hold a chip too (root sees "
                       "them)")


def _shared_cache(report: Report) -> None:
    if not (place := os.path.expanduser(_env.get("TORCH_PJRT_SHARED_CACHE"))):
        return
    found = report.found["shared_cache"] = {"directory": place, "exists": os.path.isdir(place)}
    if not found["exists"]:
        report.say("shared", f"{place}: no such directory")
        report.fault(f"TORCH_PJRT_SHARED_CACHE names {place}, which is no directory", "make it, or unset the variable")
        return
    owner, mode = os.stat(place).st_uid, os.stat(place).st_mode
    if owner not in (0, os.geteuid()) or mode & 0o022 or os.path.islink(place):
        report.say("shared", f"{place}: refused")
        report.fault(f"the shared cache {place} is not used: it must be a directory of root's or yours that nobody else can "
                     "write, and no link", f"chown root {place}, chmod go-w {place}, and name the directory itself")
        return
    report.say("shared", f"{place}: only read; its entries are taken where they are root's or yours")


def _cache(report: Report) -> None:
    try:
        found = cache.survey()
    except (RuntimeError, OSError) as error:
        report.found["cache"] = {"directory": cache.directory(), "error": str(error)}
        report.say("cache", f"{cache.directory()}: refused")
        report.fault(str(error), "name another directory in TORCH_PJRT_CACHE_DIR; until then every start compiles anew")
        return
    report.found["cache"] = found
    if not found["directory"]:
        report.say("cache", "none: TORCH_PJRT_CACHE_DIR is empty, so every start compiles anew")
        return
    place = pathlib.Path(found["directory"])
    while not place.exists():
        place = place.parent
    found["writable"] = os.access(place, os.W_OK | os.X_OK)
    found["free"] = shutil.disk_usage(place).free
    report.say("cache", f"{found['directory']}: {cache.amount(found)}; {'' if found['writable'] else 'NOT '}writable, "
                        f"{cache.size(found['free'])} free on its disk")
    if not found["writable"]:
        report.fault(f"{place} cannot be written",
                     "give yourself the right, or name another directory in TORCH_PJRT_CACHE_DIR")
    elif found["free"] < 1 << 20:
        report.fault(f"the disk of {place} is full", "make room, or name another directory in TORCH_PJRT_CACHE_DIR")


def _device(report: Report) -> None:
    """Uses the device once, in a process of its own, without the cache, so that its compiler has to work."""
    command = [sys.executable, "-W", "ignore", "-m", "torch_pjrt.cli.probe"]
    environment = dict(os.environ, TORCH_PJRT_CACHE_DIR="", TORCH_PJRT_SHARED_CACHE="")
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        report.fault(f"the device does not answer within {PROBE_SECONDS} s",
                     "look whether another process has the chip, and whether this machine reaches what its plugin "
                     "waits for (PJ_PLUGIN_LOG=1 shows the plugin's own log)")
        return
    last = (done.stdout.strip().splitlines() or [""])[-1]
    found = json.loads(last) if last.startswith("{") else {
        "error": f"the process that used it ended with status {done.returncode}: {done.stderr.strip()[-600:]}"}
    report.found["device"] = found
    if "error" in found:
        report.say("device", "cannot be used")
        report.fault(f"the device cannot be used: {found['error']}",
                     "the sentence says what is wrong; where it is the plugin, choose another by TORCH_PJRT_PLUGIN, "
                     "and where it is torch, install the version that it names")
        return
    plugin, compiler, mode = found["plugin"], found["compiler"], found["mode"]
    platform_version = plugin["platform_version"].splitlines()[0]
    report.say("devices", *(f"tpu:{i} {kind}" for i, kind in enumerate(found["devices"])),
               f"PJRT API {plugin['api_version']}, platform {plugin['platform']} {platform_version}")
    if compiler["worker"]:
        report.say("compiler", f"a worker process compiled {compiler['compiles']} small programs in "
                               f"{compiler['compile_ms']} ms")
    else:
        report.say("compiler", "in the own process: " + (compiler["why_not"] or "TORCH_PJRT_WORKERS=0"))
    if compiler["why_not"]:
        report.fault(f"no compile worker is used: {compiler['why_not']}",
                     "an abort of the compiler now ends your process; see that pj-worker lies beside libpj.so and may "
                     "be run, or set TORCH_PJRT_WORKERS=0 if that is what you want")
    report.say("mode", f"{mode['eager']} eager, fallback {mode['fallback']}, index check {mode['index_check']}")
    report.say("compat", *[f"{name}: {why}" for name, why in found["accommodations"].items()] or ["none"])


def run(options) -> tuple[dict[str, Any], list[str], int]:
    report = Report()
    if _versions(report) and _variables(report):
        ours, chosen = _driver(report), _plugin(report)
        _chip_files(report)
        _cache(report)
        _shared_cache(report)
        if ours and chosen:
            _device(report)
    for fault in report.faults:
        report.lines += ["", f"FAULT  {fault['what']}", f"   DO  {fault['do']}"]
    report.lines += [] if report.faults else ["", "All is well."]
    return report.found | {"faults": report.faults}, report.lines, 1 if report.faults else 0
