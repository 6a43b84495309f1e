"""Writes bridge/mutation_table.inc: what each mutating ATen overload writes, and its functional twin.

    python tools/mutation_table.py            rewrites the file from the installed torch
    python tools/mutation_table.py --check    fails when the file is not what the installed torch gives

A twin is a key of the lowering table and is never dispatched: many twins are composites that call the mutating
overload back. The rule: same base name without "_", "_out" or "__i*__" (or with "_functional" or "_copy"), and the same
arguments other than out= ones. Where the rule is wrong, the hand-written lists below say so.
"""
import argparse
import pathlib
import re
import sys

import torch

PATH = pathlib.Path(__file__).resolve().parent.parent / "bridge" / "mutation_table.inc"

# They change what a tensor is (sizes, strides, storage), not its values: own kernels, or none on this device.
METADATA = {
    "resize_", "_resize_output_", "as_strided_", "set_", "resize_as_sparse_", "sparse_resize_",
    "sparse_resize_and_clear_", "copy_sparse_to_sparse_", "_coalesced_", "record_stream", "set_data", "requires_grad_",
    "retain_grad", "rename_",
}

# Written without an alias annotation when the boolean argument is true (torch 2.13, native_functions.yaml).
# overload: (twin, {argument: result of the twin}, condition argument)
HIDDEN = {
    "native_batch_norm": ("_native_batch_norm_legit_functional", {3: 3, 4: 4}, 5),
}

# Twins that return more than they mutate: the mutating overload's own returns come first (torch 2.13).
EXTRA_RETURNS = {
    "_native_batch_norm_legit": {3: 3, 4: 4},
    "_batch_norm_with_update": {3: 4, 4: 5},
    "_fused_moving_avg_obs_fq_helper": {4: 2, 5: 3, 6: 4, 7: 5},
    "rrelu_with_noise": {1: 1},
}

# A factory's twin takes more than its out= overload: dtype is that of out, the rest is None.
FACTORY_EXTRA = {"dtype", "layout", "device", "pin_memory"}


def overloads():
    """(name, schema) of every ATen overload."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if not name.startswith("aten::"):
            continue
        try:
            schema = torch._C._get_schema(name.split(".")[0], name.partition(".")[2])
        except RuntimeError:
            continue
        yield name, schema


def is_write(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def bases(name):
    """Base names that a twin of `name` ("aten::" removed) may have, best first."""
    found = []
    if match := re.fullmatch(r"__i(\w+)__", name):
        found.append(f"__{match[1]}__")
    if name.endswith("_out"):
        found.append(name[:-4])
    if name.endswith("_") and not name.endswith("__"):
        found.append(name[:-1])
    found.append(name)
    return found + [f"{base}_functional" for base in found] + [f"{base}_copy" for base in found]


def find_twin(name, schema, by_base):
    """(twin name, twin schema, inputs): inputs[i] is the argument of `schema` that twin argument i takes."""
    base = name.removeprefix("aten::").split(".")[0]
    given = [(i, a) for i, a in enumerate(schema.arguments) if not a.is_out]
    for candidate in bases(base):
        for twin, twin_schema in by_base.get(candidate, ()):
            if twin == name or any(is_write(a) for a in twin_schema.arguments):
                continue
            if any(r.alias_info is not None for r in twin_schema.returns):
                continue
            wanted = list(twin_schema.arguments)
            if [str(a.type) for a in wanted] == [str(a.type) for _, a in given]:
                return twin, twin_schema, [i for i, _ in given]
    for candidate in bases(base):
        for twin, twin_schema in by_base.get(candidate, ()):
            if twin == name or any(is_write(a) for a in twin_schema.arguments):
                continue
            wanted = list(twin_schema.arguments)
            extra = [a.name for a in wanted[len(given):]]
            same = [str(a.type) for a in wanted[:len(given)]] == [str(a.type) for _, a in given]
            if same and extra and set(extra) <= FACTORY_EXTRA:
                return twin, twin_schema, [i for i, _ in given] + [-2 if e == "dtype" else -1 for e in extra]
    return None


def row(name, kind, twin="", inputs=(), writes=(), condition=-1):
    pairs = ", ".join(f"{{{a}, {r}}}" for a, r in writes)
    return (f'{{"{name}", Mutation::{kind}, "{twin}", {len(inputs)}, {{{", ".join(map(str, inputs))}}}, '
            f'{len(writes)}, {{{pairs}}}, {condition}}},')


def table():
    schemas = dict(overloads())
    by_base = {}
    for name, schema in schemas.items():
        by_base.setdefault(name.removeprefix("aten::").split(".")[0], []).append((name, schema))
    rows = []
    for name, schema in schemas.items():
        base = name.removeprefix("aten::").split(".")[0]
        if name.removeprefix("aten::") in HIDDEN:
            twin, writes, condition = HIDDEN[name.removeprefix("aten::")]
            rows.append(row(name, "kHidden", f"aten::{twin}", range(len(schema.arguments)), writes.items(), condition))
            continue
        if not any(is_write(a) for a in schema.arguments):
            continue
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
            continue
        packet = getattr(torch.ops.aten, base)
        overload = getattr(packet, name.partition(".")[2] or "default")
        if base in METADATA or torch.Tag.inplace_view in overload.tags:
            rows.append(row(name, "kMetadata"))
            continue
        # out= arguments first: they are what the twin returns first.
        written = [i for i, a in enumerate(schema.arguments) if is_write(a)]
        written.sort(key=lambda i: not schema.arguments[i].is_out)
        found = find_twin(name, schema, by_base)
        if not found:
            rows.append(row(name, "kNone", writes=[(i, -1) for i in written]))
            continue
        twin, twin_schema, inputs = found
        if base in EXTRA_RETURNS and not any(a.is_out for a in schema.arguments):
            writes = EXTRA_RETURNS[base].items()
        else:
            # Results that the overload returns without aliasing come first, then one a written argument.
            own = len(twin_schema.returns) - len(written)
            if own < 0:
                rows.append(row(name, "kNone", writes=[(i, -1) for i in written]))
                continue
            writes = [(i, own + k) for k, i in enumerate(written)]
        kind = "kOut" if any(a.is_out for a in schema.arguments) else "kInPlace"
        rows.append(row(name, kind, twin, inputs, writes))
    return rows


def text():
    head = ("// Generated by tools/mutation_table.py from torch " + torch.__version__.split("+")[0] + ": do not edit.\n"
            "// overload, kind, twin, twin arguments taken from (-1: None, -2: out's dtype), {written argument, result}, "
            "condition\n")
    return head + "\n".join(table()) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        if PATH.read_text() != text():
            sys.exit(f"{PATH.name} is not what torch {torch.__version__} gives: run tools/mutation_table.py")
        return
    PATH.write_text(text())


if __name__ == "__main__":
    main()
