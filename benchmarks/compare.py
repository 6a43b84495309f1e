"""Speed as ratios, measured in one run on one machine with one plugin file.

    python benchmarks/compare.py [--rounds 9] [--case NAME] [--clock wall|cpu] [--out out/benchmark.json]

Each contender is a process of its own that waits while the others are measured: torch-pjrt in its modes (strict, fused and
adaptive eager, which is the default; compiled: torch.compile), PyTorch on the CPU, JAX on the same plugin file, and a C
loop over the plugin (raw). A round asks every contender of a case in turn; a ratio is the median over the rounds of the
ratios within a round. The first losses of a model must agree in all contenders. The table and the JSON carry the versions and
the plugin file. On a machine that others use too, `--clock cpu` compares CPU seconds of all threads: right for add and item,
which run on one.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

OURS = {"strict": {"TORCH_PJRT_EAGER": "strict"}, "fused": {"TORCH_PJRT_EAGER": "fused"}, "adaptive": {"TORCH_PJRT_EAGER": "adaptive"}, "compiled": {}}
MODES = [*OURS, "torch", "jax"]

# Case -> what it measures, its contenders, and the bounds that the project holds itself to: (who, over whom, at most).
CASES = {
    "add": ("us per `a + b` of 9 floats, chained", ["strict", "fused", "adaptive", "torch", "jax", "raw"],
            [("adaptive", "jax", 0.5), ("adaptive", "raw", 1.4)]),
    "to_device": ("ms for .to of 64 MiB (torch: clone)", ["adaptive", "torch", "jax"], [("adaptive", "torch", 2.0)]),
    "to_host": ("ms for .cpu of 64 MiB (torch: clone)", ["adaptive", "torch", "jax"], [("adaptive", "torch", 2.0)]),
    "item": ("us for .item() of a ready scalar", ["adaptive", "torch", "jax", "raw"], [("adaptive", "raw", 3.0)]),
    "write_1": ("us for a write of 16 rows into 1 MiB", ["adaptive", "torch"], []),
    "write_256": ("us for the same into 256 MiB", ["adaptive", "torch"], []),
    "matmul": ("ms for a 512 x 512 float32 product", ["adaptive", "torch", "jax"], []),
    "exp": ("ms for exp of 4 M floats", ["adaptive", "torch", "jax"], []),
    "train_4": ("ms per training step, Qwen3-style, 4 layers, f32", MODES,
                [("compiled", "jax", 1.0), ("fused", "jax", 1.05), ("adaptive", "jax", 1.05)]),
    "train_bf16": ("ms per training step of the same in bf16", MODES,
                   [("compiled", "jax", 1.0), ("fused", "jax", 1.05), ("adaptive", "jax", 1.05)]),
    "train_2": ("ms per training step, 2 layers", MODES, []),
    "train_8": ("ms per training step, 8 layers", MODES, []),
    "train_16": ("ms per training step, 16 layers", MODES, []),
    "train_resnet": ("ms per training step, ResNet, 32 x 3 x 32 x 32", MODES, [("compiled", "jax", 1.05), ("fused", "jax", 1.05)]),
    "lstm": ("ms for 100 LSTM steps, forward and backward", MODES, [("fused", "jax", 1.5)]),
    "decode": ("ms per greedy token, static cache of 1024", MODES, [("compiled", "jax", 1.05)]),
    "chain_small": ("ms for 1,000 elementwise ops over 9 floats", ["strict", "fused", "adaptive", "torch"], [("fused", "torch", 1.8)]),
    "chain_large": ("ms for 100 elementwise ops over 4 M floats", ["strict", "fused", "adaptive", "torch"], [("fused", "strict", 0.2)]),
}

# Contenders round differently, and a step's rounding goes into the next one's weights.
LOSS_TOLERANCE = {"train_bf16": 1e-2}
MOST_LOSS_DIFFERENCE = 1e-3

CLOCKS = ["wall", "cpu"]

# A write costs what it writes, however large the buffer is.
MOST_WRITE_RATIO = 1.5


class Contender:
    """A process that answers a case's name with the seconds of one repetition, by each clock."""

    def __init__(self, name, plugin):
        environment = dict(os.environ, TORCH_PJRT_PLUGIN=str(plugin))
        environment.update(OURS.get(name, {}))
        if name == "jax":
            environment.update(PJRT_NAMES_AND_LIBRARY_PATHS=f"peer:{plugin}", JAX_PLATFORMS="peer", TF_CPP_MIN_LOG_LEVEL="3")
        command = [build_raw(), str(plugin)] if name == "raw" else [sys.executable, HERE / "contender.py", "ours" if name in OURS and name != "compiled" else name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        env=environment)
        self.version = self.process.stdout.readline().strip()
        if not self.version:
            sys.exit(f"the contender {name} does not start: {' '.join(map(str, command))}")

    def measure(self, case):
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"a contender died in case {case}")
        answer = json.loads(answer)
        return dict(zip(CLOCKS, answer["seconds"], strict=True), losses=answer["losses"])


def build_raw():
    """Compiles raw.c against the installed core."""
    import torch_pjrt

    library = Path(torch_pjrt.__file__).parent
    program = HERE.parent / "build" / "raw"
    program.parent.mkdir(exist_ok=True)
    subprocess.run(["gcc", "-std=c17", "-O2", "-D_GNU_SOURCE", f"-I{HERE.parent / 'core' / 'include'}", HERE / "raw.c", "-o", program,
                    next(library.glob("libpj.so*")), f"-Wl,-rpath,{library}"], check=True)
    return program


def check_losses(case, first):
    """All contenders do the same work."""
    most = LOSS_TOLERANCE.get(case, MOST_LOSS_DIFFERENCE)
    reference = next(iter(first.values()))
    for name, losses in first.items():
        if any(abs(a - b) > most * max(abs(a), 1) for a, b in zip(losses, reference, strict=True)):
            sys.exit(f"{case}: the losses of {name} are {losses}, of {next(iter(first))} {reference}")


def run_case(case, contenders, rounds, clock):
    names = CASES[case][1]
    check_losses(case, {name: contenders[name].measure(case)["losses"] for name in names})  # warm: compiles, caches
    measured = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            answer = contenders[name].measure(case)
            measured[name].append({c: answer[c] for c in CLOCKS})
    medians = {name: statistics.median(v[clock] for v in values) for name, values in measured.items()}
    ratios = {who: {name: statistics.median(a[clock] / b[clock] for a, b in zip(measured[who], values))
                    for name, values in measured.items()}
              for who in names if who in OURS}
    return {"seconds": medians, "over": ratios, "all": measured}


def second_process():
    """Compiles and the seconds of the first training step of a small model, in a first and a second process of one cache."""
    import tempfile

    with tempfile.TemporaryDirectory() as cache:
        runs = []
        for _ in range(2):
            begin = time.perf_counter()
            result = subprocess.run([sys.executable, HERE / "contender.py", "first_step"], capture_output=True, text=True,
                                    env=dict(os.environ, TORCH_PJRT_CACHE_DIR=cache), check=True)
            runs.append(dict(json.loads(result.stdout), process_seconds=time.perf_counter() - begin))
    return {"first": runs[0], "second": runs[1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--case", action="append", choices=[*CASES, "second_process"])
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--plugin", type=Path, help="plugin file (default: the one that torch-pjrt selects)")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark.json"))
    options = parser.parse_args()
    if not options.plugin:
        from torch_pjrt import _plugin
        options.plugin = Path(_plugin.select())
    wanted = options.case or [*CASES, "second_process"]
    names = sorted({name for case in wanted if case in CASES for name in CASES[case][1]})
    contenders = {name: Contender(name, options.plugin) for name in names}
    report = {"date": time.strftime("%Y-%m-%d"), "machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
              "load": os.getloadavg()[0], "clock": options.clock, "plugin": options.plugin.name,
              "versions": {n: c.version for n, c in contenders.items()}, "cases": {}}
    print(f"plugin {options.plugin.name}; load {report['load']:.1f}; {report['versions']}")
    broken = False
    for case in wanted:
        if case == "second_process":
            result = report["cases"][case] = second_process()
            print(f"{case}: {result}")
            broken |= result["second"]["compiles"] > 0
            continue
        what, _, bounds = CASES[case]
        result = report["cases"][case] = run_case(case, contenders, options.rounds, options.clock)
        scale = 1e6 if what.startswith("us") else 1e3
        times = "  ".join(f"{name} {seconds * scale:.2f}" for name, seconds in result["seconds"].items())
        print(f"{case:<12} {what:<50} {times}", flush=True)
        for who, other, most in bounds:
            ratio = result["over"][who][other]
            print(f"{'':<10} {who} over {other}: {ratio:.2f} (at most {most}){'' if ratio <= most else '  NOT MET'}")
            broken |= ratio > most
    if {"write_1", "write_256"} <= report["cases"].keys():
        small, large = (report["cases"][case]["all"]["adaptive"] for case in ("write_1", "write_256"))
        ratio = statistics.median(b[options.clock] / a[options.clock] for a, b in zip(small, large))
        print(f"a write into 256 MiB over one into 1 MiB: {ratio:.2f} (at most {MOST_WRITE_RATIO}){'' if ratio <= MOST_WRITE_RATIO else '  NOT MET'}")
        broken |= ratio > MOST_WRITE_RATIO
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1))
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
