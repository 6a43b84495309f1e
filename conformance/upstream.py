"""PyTorch's own test files, which no wheel carries, run on the device from a checkout of PyTorch."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from conformance import results

# Files of PyTorch's test/ folder whose tests are made for every device (instantiate_device_type_tests).
FILES = ("test_ops.py", "test_unary_ufuncs.py", "test_binary_ufuncs.py", "test_reductions.py", "test_shape_ops.py",
         "test_sort_and_select.py", "test_scatter_gather_ops.py", "test_indexing.py", "test_tensor_creation_ops.py",
         "test_type_promotion.py", "test_view_ops.py", "test_linalg.py", "test_spectral_ops.py", "test_foreach.py",
         "test_modules.py", "test_optim.py", "test_nn.py", "test_torch.py")


def result_of(case: ElementTree.Element) -> tuple[str, str]:
    for tag, word in (("skipped", "skipped"), ("failure", "error"), ("error", "error")):
        found = case.find(tag)
        if found is not None:
            reason = (found.get("message") or found.text or "").strip().splitlines()
            reason = reason[0][:300] if reason else ""
            word = "crash" if "crashed while running" in reason else word  # pytest-xdist's words
            return "wrong" if word == "error" and reason.startswith("AssertionError") else word, reason
    return "ok", ""


def run_file(file: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs one file; a test that ends the process costs that test (pytest-xdist starts another one)."""
    environment = {**os.environ, "PYTORCH_TESTING_DEVICE_ONLY_FOR": options.device}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(options.jobs),
                   "--junit-xml", report,
                   "-o", f"faulthandler_timeout={options.timeout:g}", "-o", "faulthandler_exit_on_timeout=true",
                   file.name]
        command += ["-k", options.tests] if options.tests else []
        ended = subprocess.run(list(map(str, command)), cwd=file.parent, env=environment, stdout=sys.stderr)
        if not report.exists():
            return [{"id": f"upstream/{file.name}/-", "kind": "upstream", "op": file.name, "dtype": "-",
                     "result": "crash",
                     "reason": f"pytest ended with status {ended.returncode}", "seconds": 0, "passed": 0, "samples": 1}]
        rows = []
        for case in ElementTree.parse(report).iter("testcase"):
            word, reason = result_of(case)
            rows.append({"id": f"upstream/{file.name}/{case.get('name')}", "kind": "upstream", "op": file.name,
                         "dtype": "-", "result": word, "reason": reason, "seconds": float(case.get("time", 0)),
                         "passed": int(word == "ok"), "samples": int(word != "skipped")})
        return rows


def upstream(options: argparse.Namespace) -> int:
    from conformance.__main__ import check_device, verdict

    check_device(options.device)
    source = Path(options.src).resolve()
    folder = source / "test" if (source / "test").is_dir() else source
    files = [folder / name for name in options.file or FILES if (folder / name).is_file()]
    if not files:
        names = ", ".join((options.file or FILES)[:3])
        raise ValueError(f"{folder} holds none of PyTorch's test files ({names}, ...); "
                         "--src is a checkout of PyTorch at the tag of the installed torch")
    rows, out = [], Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w") as stream:
        stream.write(json.dumps(results.header(options.device, 0, None, "upstream")) + "\n")
        for file in files:
            for row in run_file(file, options):
                stream.write(json.dumps(row) + "\n")
                rows.append(row)
            stream.flush()
    if not rows:
        raise ValueError(f"no test was made for the device {options.device!r}")
    return verdict([row for row in rows if row["result"] != "skipped"], results.open_faults(Path(options.open_faults)))


def add_arguments(commands: Any) -> None:
    p = commands.add_parser("upstream", help="run PyTorch's own test files on the device")
    p.add_argument("--src", required=True, metavar="DIR", help="a checkout of PyTorch, or its test/ folder")
    p.add_argument("--device", default="tpu")
    p.add_argument("--file", action="append",
                   help="a file of test/; may be given more than once; default: a list of files")
    p.add_argument("--tests", metavar="EXPRESSION", help="pytest's -k")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--timeout", type=float, default=300, help="seconds for one test")
    p.add_argument("--out", required=True)
    p.add_argument("--open-faults", default=str(results.OPEN_FAULTS))
    p.set_defaults(call=upstream)
