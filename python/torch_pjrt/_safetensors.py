"""safetensors (0.8) has a fixed list of devices: for ours, its safe_open opens on the host and what is read comes to the device,
one tensor after the other. load_file and load_model go through it."""
import functools
from types import ModuleType
from typing import Any

import torch

from torch_pjrt._after_import import after_import


class _Slice:
    """One tensor of a file, of which parts are read: `[...]` gives a tensor on the device."""

    def __init__(self, inner: Any, device: torch.device):
        self._inner, self._device = inner, device

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self._inner[index].to(self._device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _File:
    """An open file whose tensors come to the device."""

    def __init__(self, inner: Any, device: torch.device):
        self._inner, self._device = inner, device

    def __enter__(self) -> "_File":
        self._inner.__enter__()
        return self

    def __exit__(self, *reason: Any) -> Any:
        return self._inner.__exit__(*reason)

    def get_tensor(self, name: str) -> torch.Tensor:
        return self._inner.get_tensor(name).to(self._device)

    def get_tensors(self, *arguments: Any, **options: Any) -> dict[str, torch.Tensor]:
        return {name: x.to(self._device) for name, x in self._inner.get_tensors(*arguments, **options).items()}

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self._inner.get_slice(name), self._device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _change(module: ModuleType) -> None:
    original = module.safe_open
    if isinstance(original, functools.partial):
        return

    def safe_open(filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
        known = framework in ("pt", "torch", "pytorch") and isinstance(device, (str, torch.device))
        if not known or torch.device(device).type != "tpu":
            return original(filename, framework, device, **options)
        return _File(original(filename, framework, "cpu", **options), torch.device(device))

    module.safe_open = functools.partial(safe_open)  # told from the original by its type


def apply() -> None:
    for name in ("safetensors", "safetensors.torch"):
        after_import(name, _change)
