"""Random programs on the device against the CPU: ops, views and in-place writes, op by op and in fused regions of 8.

    python tools/fuzz.py [--minutes 30] [--seed 0] [--steps 12] [--out benchmarks/results/soak.jsonl]
    python tools/fuzz.py --one 1234                the program of one seed

Every program has a seed, and is the same on each machine. All numbers are small integers, so that every sum and product
is exact: each difference is a fault. One that is found is made small, by leaving out steps, and printed as a program.
Prints one JSON object, and appends it to --out.
"""
import argparse
import random
import sys
import time
import warnings
from pathlib import Path

import results
import torch

MODES = {"length 1": ("strict", 1), "length 8": ("fused", 8)}
DTYPES = ("float32", "int64", "int32", "bool", "bfloat16")


# ---- steps -----------------------------------------------------------------------------------------------------------
# A step is a line of Python over v, the list of the tensors so far. Each maker takes a random generator and the CPU's
# tensors so far, and gives a line, or None where none fits.


def _dim(r, x):
    return r.randrange(-x.dim(), x.dim())


def _slice(r, size):
    a, b = sorted(r.sample(range(size + 1), 2)) if size else (0, 0)
    return f"{a}:{b}" + (f":{r.randrange(2, 4)}" if r.random() < 0.3 else "")


def _view(r, x, name):
    kind = r.choice(["index", "index", "t", "expand", "unsqueeze", "narrow", "diag", "view", "detach", "unfold", "chunk"])
    if kind == "index" and x.dim():
        sizes = x.shape[:r.randrange(1, x.dim() + 1)]
        parts = [str(r.randrange(s)) if s and r.random() < 0.3 else _slice(r, s) for s in sizes]
        return f"{name}[{', '.join(parts)}]"
    if kind == "t" and x.dim() > 1:
        return f"{name}.transpose({_dim(r, x)}, {_dim(r, x)})"
    if kind == "expand" and x.dim() < 4:
        return f"{name}.expand({', '.join([str(r.randrange(1, 4))] + ['-1'] * x.dim())})"
    if kind == "unsqueeze" and x.dim() < 4:
        return f"{name}.unsqueeze({r.randrange(x.dim() + 1)})"
    if kind == "narrow" and x.dim():
        d = _dim(r, x)
        if x.shape[d]:
            start = r.randrange(x.shape[d])
            return f"{name}.narrow({d}, {start}, {r.randrange(x.shape[d] - start + 1)})"
    if kind == "diag" and x.dim() == 2:
        return f"{name}.diagonal({r.randrange(-1, 2)})"
    if kind == "view" and x.is_contiguous() and x.numel():
        return f"{name}.view({r.choice(['-1', f'{x.numel()}', f'1, {x.numel()}', f'{x.numel()}, 1'])})"
    if kind == "unfold" and x.dim() and x.shape[-1] > 1:
        return f"{name}.unfold(-1, {r.randrange(1, x.shape[-1] + 1)}, {r.randrange(1, 3)})"
    if kind == "chunk" and x.dim() and x.shape[0] > 1:
        return f"{name}.chunk(2)[{r.randrange(2)}]"
    if kind == "detach":
        return f"{name}.detach()"
    return None


def view(r, shapes):
    i = r.randrange(len(shapes))
    return (line := _view(r, shapes[i], f"v[{i}]")) and f"v.append({line})"


def _apart(x, y) -> bool:
    """Whether x may be written from y: PyTorch does not promise in which order elements are that both hold."""
    same = (x.shape, x.stride(), x.storage_offset()) == (y.shape, y.stride(), y.storage_offset())
    return same or x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr()


def _fitting(r, shapes, x):
    """A tensor that broadcasts to x, or a number."""
    def fits(y):
        stretches = y.dim() <= x.dim() and all(b in (1, a) for a, b in zip(x.shape[::-1], y.shape[::-1]))
        return stretches and _apart(x, y) and torch.can_cast(torch.result_type(x, y), x.dtype)

    fit = [i for i, y in enumerate(shapes) if fits(y)]
    return f"v[{r.choice(fit)}]" if fit and r.random() < 0.8 else str(r.randrange(-2, 4))


def _overlaps(x) -> bool:
    """Whether two elements are one place in memory: what is written to such a tensor PyTorch does not promise."""
    places = torch.arange(x.untyped_storage().nbytes() // x.element_size())
    return places.as_strided(x.shape, x.stride(), x.storage_offset()).unique().numel() < x.numel()


def write(r, shapes):
    """Writes in place, often through a view that is made for it."""
    i = r.randrange(len(shapes))
    x, name = shapes[i], f"v[{i}]"
    if r.random() < 0.5 and (line := _view(r, x, name)):
        try:
            x, name = eval(line, {"v": shapes}), line
        except (RuntimeError, IndexError):
            return None
    if _overlaps(x):
        return None
    logic = x.dtype is torch.bool
    kind = r.choice(["copy", "fill", "zero", "masked_fill", "set", "index_fill", "index_copy"] + ([] if logic else [
        "add", "sub", "mul", "clamp", "addcmul", "relu", "index_add", "scatter_add", "accumulate", "neg"]))
    other = _fitting(r, shapes, x)
    if kind in ("add", "sub", "mul") and not other.startswith("v["):
        return f"{name}.{kind}_({other})"
    if kind in ("add", "sub", "mul", "copy"):
        return f"{name}.{kind}_({other})" if other.startswith("v[") else f"{name}.fill_({other})"
    if kind == "addcmul" and other.startswith("v["):
        return f"{name}.addcmul_({other}, {other}, value=2)"
    if kind == "clamp":
        return f"{name}.clamp_(-9, 9)"
    if kind in ("zero", "relu", "neg"):
        return f"{name}.{kind}_()"
    if kind == "masked_fill":
        masks = [j for j, y in enumerate(shapes) if y.dtype is torch.bool and y.shape == x.shape and _apart(x, y)]
        return f"{name}.masked_fill_(v[{r.choice(masks)}], {r.randrange(3)})" if masks else f"{name}.fill_(1)"
    if x.dim() and x.shape[0]:
        at = [r.randrange(x.shape[0]) for _ in range(r.randrange(1, 4))]
        if kind == "index_copy":  # which of two numbers stays in one place is nobody's promise
            at = sorted(set(at))
        index = f"torch.tensor({at}, device=d)"
        rest = "".join(f", {s}" for s in x.shape[1:])
        source = f"number(({len(at)}{rest},), torch.{str(x.dtype)[6:]})"
        if kind == "index_fill":
            return f"{name}.index_fill_(0, {index}, {r.randrange(3)})"
        if kind == "index_add":
            return f"{name}.index_add_(0, {index}, {source})"
        if kind == "index_copy":
            return f"{name}.index_copy_(0, {index}, {source})"
        if kind == "accumulate":
            return f"{name}.index_put_(({index},), {source}, accumulate=True)"
        if kind == "scatter_add" and x.dim() == 1:
            return f"{name}.scatter_add_(0, {index}, {source})"
        if kind == "set":
            return f"{name}[{r.randrange(x.shape[0])}] = {r.randrange(3)}"
    return f"{name}.fill_({r.randrange(3)})"


UNARY = ("neg", "abs", "relu", "square", "sign", "clone", "contiguous", "logical_not", "flatten")
BINARY = ("add", "sub", "mul", "maximum", "minimum", "eq", "lt", "logical_and", "where")
COMPUTE = ("unary", "binary", "binary", "reduce", "convert", "matmul", "cat", "gather", "nonzero", "make", "roll", "pad")
REDUCE = ("sum", "amax", "amin", "argmax", "any", "all", "cumsum", "sort", "flip", "argmin")


def compute(r, shapes):
    i = r.randrange(len(shapes))
    x, name = shapes[i], f"v[{i}]"
    kind = r.choice(COMPUTE)
    if kind == "unary":
        op = r.choice(UNARY)
        return f"v.append({name}.{op}())"
    if kind == "binary":
        fit = [j for j, y in enumerate(shapes) if y.shape == x.shape] if r.random() < 0.5 else range(len(shapes))
        j, op = r.choice(list(fit)), r.choice(BINARY)
        if op == "where":
            masks = [m for m, y in enumerate(shapes) if y.dtype is torch.bool]
            return f"v.append(torch.where(v[{r.choice(masks)}], {name}, v[{j}]))" if masks else None
        return f"v.append(torch.{op}({name}, v[{j}]))"
    if kind == "reduce" and x.dim():
        op, d = r.choice(REDUCE), _dim(r, x)
        if op == "flip":
            return f"v.append({name}.flip({d}))"
        if op == "sort":
            return f"v.append({name}.sort({d}, stable=True)[{r.randrange(2)}])"
        return f"v.append({name}.{op}({d}))"
    if kind == "convert":
        return f"v.append({name}.to(torch.{r.choice(DTYPES)}))"
    if kind == "matmul":
        fit = [j for j, y in enumerate(shapes) if x.dim() == y.dim() == 2 and x.shape[1] == y.shape[0]
               and x.dtype is y.dtype is not torch.bool]
        return f"v.append({name}.clamp(-9, 9) @ v[{r.choice(fit)}].clamp(-9, 9))" if fit else None
    if kind == "cat" and x.dim():
        fit = [j for j, y in enumerate(shapes) if y.dim() == x.dim() and y.shape[1:] == x.shape[1:]]
        return f"v.append(torch.cat([{name}, v[{r.choice(fit)}]]))"
    if kind == "gather" and x.dim() and x.shape[0]:
        at = [r.randrange(x.shape[0]) for _ in range(3)]
        return f"v.append({name}[torch.tensor({at}, device=d)])"
    if kind == "nonzero" and x.numel() < 100:
        return f"v.append({name}.nonzero())"
    if kind == "roll" and x.dim():
        return f"v.append({name}.roll({r.randrange(-2, 3)}, {_dim(r, x)}))"
    if kind == "pad" and x.dim() and x.dtype is not torch.bool:
        return f"v.append(torch.nn.functional.pad({name}, ({r.randrange(3)}, {r.randrange(3)})))"
    sizes = ", ".join(str(r.randrange(1, 5)) for _ in range(r.randrange(1, 4)))
    return f"v.append(number(({sizes},), torch.{r.choice(DTYPES)}))"


# ---- programs --------------------------------------------------------------------------------------------------------


class Numbers:
    """Small integers, the same each time they are asked for."""

    def __init__(self, device: str):
        self.device, self.next = device, 0

    def __call__(self, sizes, dtype):
        count = torch.Size(sizes).numel()
        self.next += 1
        numbers = (torch.arange(count) * 7 + self.next * 5) % 11 - 4
        return (numbers % 2 == 0 if dtype is torch.bool else numbers).reshape(sizes).to(dtype).to(self.device)


def run(lines: list[str], device: str) -> list[torch.Tensor]:
    """The tensors that the program made, as they are at its end, on the CPU."""
    names = {"torch": torch, "d": device, "number": Numbers(device), "v": []}
    for line in lines:
        exec(line, names)
    return [x.to("cpu") for x in names["v"]]


# float32 holds the integers up to 2**24 and bfloat16 those up to 2**8: beyond, sums depend on their order.
EXACT = {torch.float32: 2**24, torch.bfloat16: 2**8}


def exact(tensors: list[torch.Tensor]) -> bool:
    return all(x.numel() == 0 or x.abs().max() < EXACT[x.dtype] for x in tensors if x.dtype in EXACT)


def generate(seed: int, steps: int) -> list[str]:
    """Lines that the CPU runs without an error, with exact numbers."""
    r = random.Random(seed)
    lines = [f"v.append(number(({r.randrange(1, 5)}, {r.randrange(1, 5)}), torch.{r.choice(DTYPES)}))"
             for _ in range(2)]
    shapes = run(lines, "cpu")
    for _ in range(20 * steps):
        if len(lines) == steps + 2:
            break
        line = r.choice([view, write, write, compute])(r, shapes)
        if not line:
            continue
        try:
            next_shapes = run(lines + [line], "cpu")
        except (RuntimeError, IndexError, TypeError, NotImplementedError, ValueError):
            continue  # the CPU refuses it
        if exact(next_shapes) and sum(x.numel() for x in next_shapes) < 2000:
            lines, shapes = lines + [line], next_shapes
    return lines


def difference(lines: list[str]) -> str:
    """What is different on the device, or ""."""
    wanted = run(lines, "cpu")
    for name, (mode, length) in MODES.items():
        try:
            with torch.tpu.set_eager_mode(mode, length):
                got = run(lines, "tpu")
        except Exception as error:
            return f"{name}: {type(error).__name__}: {str(error)[:300]}"
        for i, (a, b) in enumerate(zip(got, wanted)):
            if a.dtype != b.dtype or a.shape != b.shape or not torch.equal(a, b):
                return f"{name}: v[{i}] is {a.dtype} {a.tolist()} for {b.dtype} {b.tolist()}"[:600]
    return ""


def shrink(lines: list[str]) -> list[str]:
    """Fewer lines that still differ. A line that others need is first replaced by one that makes a new tensor."""
    smaller = True
    while smaller:
        smaller = False
        for i in reversed(range(len(lines))):
            for instead in ([], ["v.append(number((2, 3), torch.float32))"] if "append" in lines[i] else []):
                shorter = lines[:i] + instead + lines[i + 1:]
                if shorter == lines:
                    continue
                try:
                    found = exact(run(shorter, "cpu")) and difference(shorter)
                except Exception:
                    continue
                if found:
                    lines, smaller = shorter, True
                    break
    return lines


def report(seed: int, lines: list[str]) -> dict:
    lines = shrink(lines)
    found = {"seed": seed, "difference": difference(lines), "program": lines}
    print(f"\nseed {seed}: {found['difference']}\n  " + "\n  ".join(lines), file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--steps", type=int, default=12, help="lines a program")
    parser.add_argument("--one", type=int, help="runs the program of this seed and prints it")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.tpu.set_fallback("silent")
    warnings.simplefilter("ignore")  # of writes that PyTorch advises against
    if options.one is not None:
        lines = generate(options.one, options.steps)
        print("\n".join(lines))
        found = difference(lines)
        if found:
            report(options.one, lines)
        return int(bool(found))
    begun = results.row("fuzz")
    end, programs, lines_run, differences = time.monotonic() + 60 * options.minutes, 0, 0, []
    while time.monotonic() < end and len(differences) < 20:
        lines = generate(options.seed + programs, options.steps)
        if difference(lines):
            differences.append(report(options.seed + programs, lines))
        programs += 1
        lines_run += len(lines)
        print(f"\r{programs} programs, {len(differences)} differences", end="", file=sys.stderr, flush=True)
    return results.keep({**begun, "minutes": options.minutes, "first_seed": options.seed, "programs": programs,
                         "steps": lines_run, "faults": differences}, options.out)


if __name__ == "__main__":
    sys.exit(main())
