"""torch.compile(backend="tpu"): a graph of PyTorch's ops as one program of the device.

Dynamo and AOTAutograd give graphs of ATen ops. Each becomes a Program, which is traced like a decomposition (decompose.py)
for every new layout of its inputs, and then goes through the same lowerings, caches and runner as eager ops.
"""
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from torch_pjrt import _C
from torch_pjrt.decompose import Recorder, Unsupported, fake

# Random ops of a program that are opened into several ones.
DRAWS_PER_OP = 4

_numbers = itertools.count()


class _Interpreter(torch.fx.Interpreter):
    """Runs a graph over fake tensors. What the graph holds, and what it makes on the CPU, is on the device."""

    def __init__(self, module: torch.fx.GraphModule, held: dict[str, torch.Tensor]):
        super().__init__(module)
        self.held = held

    def get_attr(self, target, args, kwargs):
        return self.held[target] if target in self.held else super().get_attr(target, args, kwargs)

    def call_function(self, target, args, kwargs):
        if "device" in kwargs and torch.device(kwargs["device"]).type == "cpu":
            kwargs = {**kwargs, "device": torch.device("tpu", _C.current_device())}
        return super().call_function(target, args, kwargs)


def _held_tensors(module: torch.fx.GraphModule) -> dict[str, torch.Tensor]:
    names = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    values = {name: torch.fx.graph_module._get_attr(module, name) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def _on_device(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.device.type != "tpu":
        value = value.to("tpu")
    return value.resolve_conj().resolve_neg() if value.is_conj() or value.is_neg() else value


@dataclasses.dataclass
class _View:
    """An output that shares the memory of another one."""
    base: int  # position among the outputs
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    def of(self, outputs: list) -> torch.Tensor:
        base = outputs[self.base]
        empty = torch.empty(0, dtype=self.dtype, device=base.device)
        return empty.set_(base.untyped_storage(), self.offset, self.size, self.stride)


def _share_memory(outputs: list, inputs: list) -> list:
    """Outputs over one storage become views of one of them, or of all of it, which is appended. What shares an input's
    memory AOTAutograd makes itself."""
    def storage(tensor):
        return tensor.untyped_storage()._cdata

    known = {storage(tensor) for tensor in inputs if isinstance(tensor, torch.Tensor)}
    groups: dict[int, list[int]] = {}
    for i, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor) or output.is_conj() or output.is_neg():
            continue
        if storage(output) not in known:
            groups.setdefault(storage(output), []).append(i)
    result = list(outputs)
    for members in groups.values():
        if len(members) == 1:
            continue
        first = outputs[members[0]]
        size, nbytes = first.element_size(), first.untyped_storage().nbytes()
        base = next((i for i in members if outputs[i].numel() * outputs[i].element_size() == nbytes
                     and torch.ops.aten.is_non_overlapping_and_dense.default(outputs[i])), None)
        if base is None:
            base = len(result)
            result.append(first.as_strided((nbytes // size,), (1,), 0))
        for i in members:
            if i != base:
                view = outputs[i]
                result[i] = _View(base, view.dtype, view.size(), view.stride(), view.storage_offset())
    return result


def _compile_id() -> str:
    """Dynamo's number of the function, and of its compile: "[3/1]" is the fourth function's first recompile, whose cause
    TORCH_LOGS=recompiles tells."""
    compile_id = torch._guards.CompileContext.current_compile_id()
    return f"[{compile_id}]" if compile_id else ""


class Graph:
    """A graph as a function of its inputs: tensors, ints, floats and None."""

    def __init__(self, module: torch.fx.GraphModule):
        self.module = module
        with unset_fake_temporarily(), torch.no_grad():
            held = {name: _on_device(value) for name, value in _held_tensors(module).items()}
        self.names, self.held = list(held), list(held.values())
        seeded = [node for node in module.graph.nodes if node.op == "call_function" and isinstance(
            node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags]
        self.program = _C.Program(f"graph:{next(_numbers)}{_compile_id()}", self.trace, DRAWS_PER_OP * len(seeded))
        outputs = next(node for node in module.graph.nodes if node.op == "output").args[0]
        self.output_count = len(outputs)
        values = [getattr(output, "meta", {}).get("val") for output in outputs]
        self.to_cpu = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor) and v.device.type == "cpu"]
        self.written: set[int] = set()  # inputs
        self.reason: str | None = None  # why the ops run one by one

    def trace(self, builder: Any, inputs: list) -> tuple[list, list]:
        """The fake outputs, and the inputs that the graph writes as (position, fake tensor)."""
        with torch.no_grad(), FakeTensorMode():
            operands, fakes = itertools.count(), []
            for value in inputs:
                if isinstance(value, torch.Tensor):
                    value = fake(value)
                    builder.input(value, next(operands))
                fakes.append(value)
            count = len(inputs) - len(self.names)
            held = dict(zip(self.names, fakes[count:]))
            with Recorder(builder):
                outputs = _Interpreter(self.module, held).run(*fakes[:count])
            written = [(i, value) for i, value in enumerate(fakes)
                       if isinstance(value, torch.Tensor) and builder.changed(value)]
            outputs = _share_memory(list(outputs), fakes)
        self.written.update(i for i, _ in written)
        return outputs, written

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        if self.reason is None:
            given = [_on_device(value) for value in inputs]
            try:
                outputs = self.program.run(given + self.held)
            except (Unsupported, NotImplementedError) as error:
                self.reason = str(error).partition("\n")[0]
                warnings.warn(f"a graph of torch.compile runs op by op: {self.reason}", stacklevel=2)
            else:
                for i in self.written:  # as an optimizer's step count, which lives on the CPU
                    if i < len(inputs) and given[i] is not inputs[i]:
                        inputs[i].copy_(given[i])
                outputs = [value.of(outputs) if isinstance(value, _View) else value for value in outputs][:self.output_count]
                for i in self.to_cpu:
                    outputs[i] = outputs[i].cpu()
                return outputs
        return torch.fx.Interpreter(self.module).run(*inputs)


def compile_graph(module: torch.fx.GraphModule, _: Sequence[Any]) -> Callable:
    return make_boxed_func(Graph(module))


# What the backward pass needs is kept or computed again, whichever is the least memory, as Inductor has it.
backend = aot_autograd(fw_compiler=compile_graph, bw_compiler=compile_graph, inference_compiler=compile_graph,
                       partition_fn=min_cut_rematerialization_partition, keep_inference_input_mutations=True)
"""The backend "tpu" of torch.compile: takes a graph and example inputs, gives the callable that runs it."""
