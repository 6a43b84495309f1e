"""Judges a PyTorch device by PyTorch on the CPU, op by op.

    python -m conformance run [--device tpu] [--op PATTERN] [--dtype D] [--kind K] [--budget 5m|30m|full] --out FILE
    python -m conformance report FILE... [--compare]
    python -m conformance upstream --src DIR --out FILE
    python -m conformance models [--types A,B] [--split dev|held|all] [--device tpu] --out FILE
    python -m conformance recipes [--types A,B] [--split dev|held|all]

Exit status: 0 when all that is not native or decomposed stands in conformance/open_faults.tsv, 1 when something does
not, 2 when the question is wrong.
"""
import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from conformance import catalogue, pool, report, results, upstream
from conformance.models import command as models


def shard(text: str) -> tuple[int, int]:
    i, _, n = text.partition("/")
    if not (i.isdecimal() and n.isdecimal() and 1 <= int(i) <= int(n)):
        raise argparse.ArgumentTypeError(f"a shard is i/n with 1 <= i <= n, not {text!r}")
    return int(i), int(n)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"is no whole number from 1 up: {text!r}")
    return int(text)


def check_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device)
    except Exception as error:
        raise ValueError(f"the device {device!r} cannot be used: {str(error).splitlines()[0]}") from None


def verdict(rows: list[dict], known: list[tuple[str, str, str]]) -> int:
    """Prints the counts, and what is not known; the exit status."""
    counts = Counter(row["result"] for row in rows)
    print(", ".join(f"{n} {word}" for word, n in counts.most_common()))
    unknown = results.unknown_faults(rows, known)
    for row in unknown:
        print(f"{row['result']:<11} {row['id']}  {row['reason']}")
    if unknown:
        print(f"{len(unknown)} cases are no pass and stand in no line of {results.OPEN_FAULTS.name}")
    return 1 if unknown else 0


def run(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    table = catalogue.kinds(options.plugin_cases)
    cases = catalogue.select(table, options.op, options.dtype, options.kind, options.budget, options.seed,
                             options.shard)
    if not cases:
        raise ValueError(f"no case matches; the kinds are {', '.join(table)}")
    check_device(options.device)
    samples = options.samples or catalogue.BUDGETS[options.budget].samples
    head = results.header(options.device, options.seed, samples, options.budget)
    out = Path(options.out)
    rows = []
    if options.resume and out.exists():
        before, rows = results.read(out)
        for key in ("device", "seed", "samples"):
            if before[key] != head[key]:
                raise ValueError(f"{out} was made with {key} {before[key]!r}, not {head[key]!r}; take another --out")
        head = before
    elif out.exists():
        raise ValueError(f"{out} exists; continue it with --resume, or take another --out")
    wanted = {case.id for case in cases}
    rows = [row for row in rows if row["id"] in wanted]
    known = {row["id"] for row in rows}
    left = [case for case in cases if case.id not in known]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w") as file, tqdm(total=len(cases), initial=len(rows), unit="case", smoothing=0.05) as bar:
        for row in [head, *rows]:
            file.write(json.dumps(row) + "\n")
        file.flush()
        counts = Counter(row["result"] for row in rows)

        def done(row: dict) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()
            rows.append(row)
            counts[row["result"]] += 1
            bar.set_postfix_str(" ".join(f"{word} {n}" for word, n in sorted(counts.items())), refresh=False)
            bar.update()

        arguments = [options.device, str(options.seed), str(samples or "-"), options.plugin_cases or "-"]
        pool.run_all(left, arguments, options.timeout, options.jobs, done)
    return verdict(rows, results.open_faults(Path(options.open_faults)))


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m conformance", description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(required=True)
    p = commands.add_parser("run", help="run cases on a device")
    p.add_argument("--device", default="tpu")
    p.add_argument("--op", help="pattern of ops, as add or fft.*")
    p.add_argument("--dtype", action="append", choices=sorted(catalogue.ALL_DTYPES),
                   help="may be given more than once; default: " + ", ".join(catalogue.DTYPES))
    p.add_argument("--kind", help="pattern of kinds")
    p.add_argument("--budget", choices=list(catalogue.BUDGETS), default="full")
    p.add_argument("--samples", type=positive, help="at most so many samples a case; default: the budget's")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--shard", type=shard, default=(1, 1), metavar="i/n")
    p.add_argument("--resume", action="store_true", help="keep what is in --out, run what is not")
    p.add_argument("--jobs", type=positive, default=1, help="worker processes")
    p.add_argument("--timeout", type=float, default=120, help="seconds for one sample")
    p.add_argument("--out", required=True)
    p.add_argument("--open-faults", default=str(results.OPEN_FAULTS))
    p.add_argument("--plugin-cases", help=argparse.SUPPRESS)
    p.set_defaults(call=run)
    report.add_arguments(commands)
    upstream.add_arguments(commands)
    models.add_arguments(commands)
    return top


def main() -> int:
    options = parser().parse_args()
    try:
        return options.call(options)
    except (ValueError, OSError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
