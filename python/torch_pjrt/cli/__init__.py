"""The program torch-pjrt."""
import argparse
import json
import sys
from typing import Any

from torch_pjrt.cli import cache, doctor, ops


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torch-pjrt", description="The PyTorch device tpu on PJRT plugins.",
                                     epilog="Exit status: 0 all is well, 1 something is at fault, 2 wrong usage.")
    commands = parser.add_subparsers(required=True, metavar="command")

    def add(group, name: str, about: str, function) -> argparse.ArgumentParser:
        command = group.add_parser(name, help=about, description=about)
        command.add_argument("--json", action="store_true", help="one JSON object instead of text")
        command.set_defaults(function=function)
        return command

    add(commands, "doctor", "What is installed, chosen and at fault, and what to do about it.", doctor.run)
    group = commands.add_parser("cache", help="The directory of compiled programs.").add_subparsers(
        required=True, metavar="info|clear|verify")
    add(group, "info", "Where it is, how much is in it, and since when.", cache.info)
    add(group, "clear", "Removes all entries and no other file; processes that run compile again.", cache.clear)
    listed = add(commands, "ops", "How each op runs on the device: native (its lowering), decomposed, fallback (on the CPU), "
                 "or not as on the CPU.", ops.run)
    listed.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="ops, as add, linalg.* or *norm*")
    verify = add(group, "verify", "Checks every entry as the runtime does before it loads one.", cache.verify)
    verify.add_argument("--delete", action="store_true", help="remove the damaged ones")
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    report: dict[str, Any]
    report, lines, status = options.function(options)
    print(json.dumps(report, indent=2) if options.json else "\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
