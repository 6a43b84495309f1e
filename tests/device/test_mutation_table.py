"""bridge/mutation_table.inc against the torch that is installed."""
import pathlib
import re
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import mutation_table  # noqa: E402


def test_the_table_is_what_the_installed_torch_gives():
    assert mutation_table.PATH.read_text() == mutation_table.text()


def rows():
    found = {}
    for line in mutation_table.PATH.read_text().splitlines():
        if match := re.match(r'\{"([^"]+)", Mutation::(\w+), "([^"]*)"', line):
            found[match[1]] = (match[2], match[3])
    return found


def test_every_twin_is_functional_and_another_overload():
    for name, (kind, twin) in rows().items():
        if not twin:
            continue
        assert twin != name
        base, _, overload = twin.partition(".")
        schema = torch._C._get_schema(base, overload)
        assert not any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments), (name, twin)


def test_every_mutating_overload_below_autograd_is_classified():
    table = rows()
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        base, _, overload = name.partition(".")
        try:
            schema = torch._C._get_schema(base, overload)
        except RuntimeError:
            continue
        mutates = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        if mutates and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
            assert name in table


def test_what_only_looks_like_a_twin_is_none():
    table = rows()
    for name in ("resize_", "as_strided_", "set_", "set_.source_Tensor", "squeeze_", "t_"):
        assert table[f"aten::{name}"][0] == "kMetadata"
    assert table["aten::native_batch_norm"] == ("kHidden", "aten::_native_batch_norm_legit_functional")
