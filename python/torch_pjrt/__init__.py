"""A native PyTorch device, "tpu", on top of the PJRT C API.

    import torch
    torch.ones(3, device="tpu")

PyTorch finds the package through the entry point group `torch.backends`, so `import torch` is enough.
"""
import sys
import types

import torch

__version__ = "0.1.0"

# What keeps the device from being there, in one sentence: told at first use, never at `import torch`.
_trouble: str | None = None


def _load() -> None:
    """Makes PyTorch's spare device ours: kernels, name, torch.tpu. Runs once."""
    if tuple(torch.__version__.split(".")[:2]) != ("2", "13"):
        raise ImportError(f"this torch_pjrt is built for torch 2.13, and torch {torch.__version__} is installed")
    from torch_pjrt import _C  # noqa: F401  (registers the kernels)

    torch.utils.rename_privateuse1_backend("tpu")
    from torch_pjrt import tpu

    torch._register_device_module("tpu", tpu)
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_packed_sequence=True,
                                                         for_storage=True)


class _Absent(types.ModuleType):
    """torch.tpu where the device could not be made: says so when it is used."""

    def __init__(self, reason: str):
        super().__init__("torch.tpu")
        self.__dict__["reason"] = reason

    def is_available(self) -> bool:
        return False

    def device_count(self) -> int:
        return 0

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"the tpu device is not available: {self.reason}")


def _autoload() -> None:
    """Entry point of torch.backends; `import torch` calls it, and must never fail because of it."""
    global _trouble
    from torch_pjrt import _env

    if "torch_pjrt._C" in sys.modules or not _env.get("TORCH_PJRT_AUTOLOAD"):
        return
    try:
        _load()
    except Exception as error:  # whatever it is, PyTorch without this device must go on working
        _trouble = f"{type(error).__name__}: {error}"
        if not hasattr(torch, "tpu"):
            torch.tpu = _Absent(_trouble)


_autoload()
