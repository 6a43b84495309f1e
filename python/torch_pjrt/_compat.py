"""Accommodations for libraries that know a TPU only by another package's name; none without TORCH_PJRT_COMPAT.

`in_force` says which are made, for `torch-pjrt doctor`.
"""
import functools
import importlib.abc
import importlib.machinery
import importlib.metadata
import inspect
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from torch_pjrt import _env, _plugin
from torch_pjrt._after_import import after_import

in_force: dict[str, str] = {}


class _StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers `import torch_tpu` by modules that have no more than what is called to load it."""

    def __init__(self):
        self.functions = {"torch_tpu": set(), "torch_tpu._loader": {"load"}}

    def find_spec(self, name, path=None, target=None):
        if name in self.functions:
            return importlib.machinery.ModuleSpec(name, self, origin=__file__, is_package=name == "torch_tpu")

    def exec_module(self, module: types.ModuleType) -> None:
        def missing(name: str):
            raise AttributeError(f"{module.__name__} is here only torch_pjrt's stand-in for libraries that look for "
                                 f"it, and has no {name!r}; with TORCH_PJRT_COMPAT=0 there is none")

        module.__doc__ = "torch_pjrt's stand-in (torch_pjrt/_compat.py)."
        module.__getattr__ = missing
        for function in self.functions[module.__name__]:
            setattr(module, function, lambda *_, **__: None)  # the device is there since `import torch`


def _torch_tpu(installed: bool) -> None:
    if "torch_tpu" in sys.modules:
        return
    stand_in = _StandIn()
    sys.meta_path.insert(0, stand_in)
    if not installed:
        in_force["module torch_tpu"] = "Transformers 5.18 (5.24 no longer) and Ray Train 2.58 look for it"
        return
    in_force["module torch_tpu"] = "keeps the installed one from taking the device a second time"
    for entry in importlib.metadata.entry_points(group="torch.backends"):  # what PyTorch is about to call
        if entry.module.partition(".")[0] == "torch_tpu":
            stand_in.functions.setdefault(entry.module, set()).add(entry.attr)


def _in_use() -> bool:
    """Whether a library that asks for an accelerator gets this one."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == "tpu" and _plugin.available()


# Who gives a device to those who name none, from a fixed list of kinds with the CPU at its end (Accelerate 1.15,
# PEFT 0.21, sentence-transformers 6.2). Without Accelerate's, the Trainer's model and its inputs are on two devices.
_DEFAULT_DEVICES = {
    "accelerate.state": "PartialState.default_device",
    "peft.utils.other": "infer_device",
    "sentence_transformers.util.environment": "get_device_name",
}


def _default_devices() -> None:
    def tpu_for_cpu(original: Callable) -> Callable:
        @functools.wraps(original)
        def device(*arguments) -> str | torch.device:
            found = original(*arguments)
            return type(found)("tpu") if str(found) == "cpu" and _in_use() else found

        return device

    def change(module: types.ModuleType, path: str) -> None:
        *classes, name = path.split(".")
        owner = functools.reduce(getattr, classes, module)
        original = getattr(owner, name)
        is_property = isinstance(original, property)
        setattr(owner, name, property(tpu_for_cpu(original.fget)) if is_property else tpu_for_cpu(original))

    for module, path in _DEFAULT_DEVICES.items():
        in_force[f"{module}.{path}"] = "gives tpu instead of the CPU to those who name no device"
        after_import(module, functools.partial(change, path=path))


def _pipeline_device() -> None:
    """A device's number, or none, means the CPU to Transformers 5.24 beside its list, and moves a model there."""
    in_force["transformers' pipelines"] = "take a number, or no device, for a tpu device"

    def change(module: types.ModuleType) -> None:
        original = module.Pipeline.__init__
        signature = inspect.signature(original)

        @functools.wraps(original)
        def __init__(self, *arguments, **options):
            bound = signature.bind(self, *arguments, **options)
            placed = getattr(bound.arguments["model"], "hf_device_map", None)
            device = next(iter(placed.values())) if placed else bound.arguments.get("device", None) or 0
            ours = _in_use() and isinstance(device, int) and device >= 0
            if ours and not placed:
                bound.arguments["device"] = torch.device("tpu", device)
            original(*bound.args, **bound.kwargs)
            if ours:
                self.device = torch.device("tpu", device)

        module.Pipeline.__init__ = __init__

    after_import("transformers.pipelines.base", change)


def _accelerate_memory() -> None:
    """What device_map="auto" asks. Accelerate 1.15 has a fixed list of devices here too, and then fills the CPU."""
    in_force["accelerate's get_max_memory"] = 'tells the memory of the tpu devices, for device_map="auto"'

    def change(module: types.ModuleType) -> None:
        original = module.get_max_memory

        @functools.wraps(original)
        def get_max_memory(max_memory: dict | None = None) -> dict:
            if not _in_use():
                return original(max_memory)
            devices = range(torch.tpu.device_count())
            if max_memory is None:
                return {**{i: torch.tpu.mem_get_info(i)[0] for i in devices}, **original()}
            for key, size in max_memory.items():
                if isinstance(size, str):  # in place: Transformers counts on it
                    max_memory[key] = module.convert_file_size_to_int(size)
            ours = {i: max_memory[i] for i in devices if i in max_memory}
            return {**ours, **original({key: size for key, size in max_memory.items() if key not in ours})}

        module.get_max_memory = get_max_memory

    after_import("accelerate.utils.modeling", change)


def _save_generators(folder: Any, process: int) -> None:
    """Writes the states of the devices' generators beside those that a library has written."""
    if torch.tpu.is_initialized():
        torch.save(torch.tpu.get_rng_state_all(), os.path.join(folder, f"tpu_rng_state_{process}.pth"))


def _load_generators(folder: Any, process: int) -> None:
    """Sets them again; a folder that was written without tpu has none."""
    file = os.path.join(folder, f"tpu_rng_state_{process}.pth")
    if _in_use() and os.path.exists(file):
        torch.tpu.set_rng_state_all(torch.load(file, weights_only=True)[:torch.tpu.device_count()])


def _accelerate_generators() -> None:
    """Accelerate 1.15 has a fixed list of devices whose random states save_state and load_state keep."""
    in_force["accelerate's save_state"] = "keeps the random states of the tpu devices, and load_state sets them"

    def change(module: types.ModuleType) -> None:
        save, load = module.save_accelerator_state, module.load_accelerator_state

        @functools.wraps(save)
        def save_accelerator_state(output_dir, *rest, **options):
            written = save(output_dir, *rest, **options)
            _save_generators(output_dir, module.PartialState().process_index)
            return written

        @functools.wraps(load)
        def load_accelerator_state(input_dir, *rest, **options):
            found = load(input_dir, *rest, **options)
            _load_generators(input_dir, module.PartialState().process_index)
            return found

        module.save_accelerator_state, module.load_accelerator_state = save_accelerator_state, load_accelerator_state

    after_import("accelerate.checkpointing", change)


def _trainer_generators() -> None:
    """Transformers 5.24 has such a list too, for the checkpoints of its Trainer."""
    in_force["transformers' Trainer"] = "keeps the random states of the tpu devices in its checkpoints"

    def change(module: types.ModuleType) -> None:
        trainer = module.Trainer
        save, load = trainer._save_rng_state, trainer._load_rng_state

        @functools.wraps(save)
        def _save_rng_state(self, output_dir):
            save(self, output_dir)
            _save_generators(output_dir, self.args.process_index)

        @functools.wraps(load)
        def _load_rng_state(self, checkpoint):
            load(self, checkpoint)
            if checkpoint is not None:
                _load_generators(checkpoint, self.args.process_index)

        trainer._save_rng_state, trainer._load_rng_state = _save_rng_state, _load_rng_state

    after_import("transformers.trainer", change)


def apply(others: tuple[str, ...]) -> None:
    """`others`: the packages that drive TPUs too and do not here."""
    wanted, installed = _env.get("TORCH_PJRT_COMPAT"), "torch_tpu" in others
    if wanted or installed:
        _torch_tpu(installed)
    if wanted:
        for accommodation in (_default_devices, _pipeline_device, _accelerate_memory, _accelerate_generators,
                              _trainer_generators):
            accommodation()
