"""What torch.compile's parts are told of the device.

torch 2.13 keeps the name "tpu" for a device that is programmed through JAX: its device interface and its Inductor
backend must not be taken for ours.
"""
import functools
from types import ModuleType

import torch
from torch.utils._pytree import tree_leaves

from torch_pjrt import tpu
from torch_pjrt._after_import import after_import


def _uses_device(graph, example_inputs) -> bool:
    values = list(example_inputs)
    if isinstance(graph, torch.fx.GraphModule):
        values += [node.meta[key] for node in graph.graph.nodes for key in ("example_value", "val") if key in node.meta]
    return any(isinstance(leaf, torch.Tensor) and leaf.device.type == "tpu" for leaf in tree_leaves(values))


def _change_inductor(module: ModuleType) -> None:
    """Inductor would write Pallas code and import JAX for it: plain torch.compile gives our backend."""
    original = module.compile_fx

    @functools.wraps(original)
    def compile_fx(model_, example_inputs_, *args, **kwargs):
        if _uses_device(model_, example_inputs_):
            from torch_pjrt.compile import backend  # imports Dynamo

            return backend(model_, example_inputs_)
        return original(model_, example_inputs_, *args, **kwargs)

    ahead = module.compile_fx_aot

    @functools.wraps(ahead)
    def compile_fx_aot(model_, example_inputs_, *args, **kwargs):
        if _uses_device(model_, example_inputs_):
            raise NotImplementedError("AOTInductor has no compiler for the tpu device: keep the exported program "
                                      "(torch.export.save), and compile it where it runs, with torch.compile")
        return ahead(model_, example_inputs_, *args, **kwargs)

    module.compile_fx, module.compile_fx_aot = compile_fx, compile_fx_aot


def _change_interface(module: ModuleType) -> None:
    """PyTorch's own interface of "tpu" has one device, no streams, and no float16, float64 or complex types."""

    class TpuInterface(module.DeviceInterface):
        device, Event, Stream = tpu.device, torch.Event, tpu.Stream
        current_device = staticmethod(tpu.current_device)
        set_device = staticmethod(tpu.set_device)
        device_count = staticmethod(tpu.device_count)
        exchange_device = staticmethod(tpu._exchange_device)
        maybe_exchange_device = staticmethod(tpu._maybe_exchange_device)
        is_available = staticmethod(tpu.is_available)
        stream = staticmethod(tpu.stream)
        current_stream = staticmethod(tpu.current_stream)
        set_stream = staticmethod(tpu.set_stream)
        synchronize = staticmethod(tpu.synchronize)
        memory_allocated = staticmethod(tpu.memory_allocated)
        is_bf16_supported = staticmethod(tpu.is_bf16_supported)

        class Worker:
            set_device = staticmethod(tpu.set_device)
            current_device = staticmethod(tpu.current_device)
            get_device_properties = staticmethod(tpu.get_device_properties)

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            tpu.set_stream(tpu.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return tpu.current_stream(device_idx).stream_id

        @staticmethod
        def get_compute_capability(device=None) -> str:
            return ""  # part of a cache's key; the plugin's name and version are in ours

        @classmethod
        def is_dtype_supported(cls, dtype: torch.dtype, including_emulation: bool = False) -> bool:
            return dtype in torch.accelerator.get_device_capability()["supported_dtypes"]

    original = module.init_device_reg

    @functools.wraps(original)
    def init_device_reg() -> None:
        original()
        module.register_interface_for_device("tpu", TpuInterface)

    module.init_device_reg = init_device_reg
    if module._device_initialized:
        module.register_interface_for_device("tpu", TpuInterface)


def apply() -> None:
    after_import("torch._dynamo.device_interface", _change_interface)
    after_import("torch._inductor.compile_fx", _change_inductor)
