"""Accommodations for libraries that know a TPU only by another package's name; none without TORCH_PJRT_COMPAT.

`in_force` says which are made, for `torch-pjrt doctor`.
"""
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys
import types

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


def _accelerate() -> None:
    """Accelerate 1.15 has a fixed list of devices and takes the CPU beside it, unless this variable names another; with
    Transformers' Trainer the model is then on one device and its inputs are on the other."""
    in_force["ACCELERATE_TORCH_DEVICE"] = "set to tpu when Accelerate is imported, which else takes the CPU"

    def change(_) -> None:
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is not None and accelerator.type == "tpu" and _plugin.available():
            os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "tpu")

    after_import("accelerate.state", change)


def apply(others: tuple[str, ...]) -> None:
    """`others`: the packages that drive TPUs too and do not here."""
    wanted, installed = _env.get("TORCH_PJRT_COMPAT"), "torch_tpu" in others
    if wanted or installed:
        _torch_tpu(installed)
    if wanted:
        _accelerate()
