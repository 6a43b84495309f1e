"""A native PyTorch device, "tpu", on top of the PJRT C API.

    import torch
    torch.ones(3, device="tpu")

PyTorch finds the package through the entry point group `torch.backends`, so `import torch` is enough.
"""
# torch is imported last: its import calls _autoload, also when the user imports this package first.
import sys
import types
import warnings

__version__ = "0.1.0"


def _load(others: tuple[str, ...]) -> None:
    """Registers the kernels and torch.tpu; `others`: packages that drive TPUs too and do not here."""
    import torch

    from torch_pjrt import logs

    logs.register()
    if torch.__version__.split(".")[:2] != ["2", "13"]:
        raise ImportError(f"this torch_pjrt is built for torch 2.13, and torch {torch.__version__} is installed; "
                          "run: pip install 'torch==2.13.*', or install the torch_pjrt of that torch")
    from torch_pjrt import _C, _compat, _patches, dynamo, tpu

    _patches.apply()
    dynamo.apply()
    _compat.apply(others)
    # Last, since these cannot be taken back: whatever fails before, _stand_in takes their places.
    torch._register_device_module("tpu", tpu)
    sys.modules["torch.tpu"] = tpu
    _C.register_kernels()


class _Unusable(RuntimeError, AttributeError):
    """Also an AttributeError: PyTorch asks every device's module by hasattr() what it has."""


class _Absent(types.ModuleType):
    """torch.tpu where the device cannot be had: says why when it is used. `import torch` only warns."""

    def __init__(self, reason: str):
        super().__init__("torch.tpu")
        self.__dict__["_reason"] = reason

    def is_available(self) -> bool:
        return False

    def is_initialized(self) -> bool:
        return False

    def device_count(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:  # of torch.manual_seed
        pass

    def get_amp_supported_dtype(self):  # torch.autocast would tell only that it is missing
        return self.use

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        raise _Unusable(f"the tpu device cannot be used: {self._reason}")


def _stand_in(reason: str) -> None:
    """Makes torch.tpu and every op on the device say why there is none."""
    import torch

    absent = _Absent(reason)
    torch._register_device_module("tpu", absent)
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda *_, **__: absent.use, "PrivateUse1")
    absent.__dict__["_library"] = library  # its end would take the fallback away
    acc = getattr(torch._C, "_acc", None)
    if hasattr(acc, "register_python_privateuseone_device_guard"):  # else `.to` says only that PyTorch has no such device

        class Guard(acc.DeviceGuard):
            def type_(self):
                return torch._C._autograd.DeviceType.PrivateUse1

        acc.register_python_privateuseone_device_guard(Guard())
    if plugin := sys.modules.get("torch_pjrt._plugin"):  # the bridge is loaded, and something failed after it
        plugin.start = lambda: absent.use


_autoloaded = False


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=3)


def _autoload() -> None:
    """Entry point of torch.backends. Whatever goes wrong, `import torch` goes on."""
    global _autoloaded
    import torch

    if _autoloaded:
        return
    _autoloaded = True
    from torch_pjrt import _beside

    decision = _beside.decide()
    if decision.sentence:
        _warn(decision.sentence)
    if decision.driver != "torch_pjrt":
        return
    spare = torch._C._get_privateuse1_backend_name()
    if spare != "privateuseone" or hasattr(torch, "tpu"):
        _warn('torch_pjrt does not drive the device "tpu": another package has taken the spare device of PyTorch '
              f'before, as "{spare}"; with TORCH_DEVICE_BACKEND_AUTOLOAD=0 only the package is loaded that you import first')
        return
    torch.utils.rename_privateuse1_backend("tpu")
    try:
        _load(decision.others)
    except Exception as error:
        _warn(f'the device "tpu" cannot be used: {error}')
        _stand_in(f"{type(error).__name__}: {error}")
        return
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_packed_sequence=True,
                                                         for_storage=True)


try:
    import torch  # noqa: E402, F401
except (ImportError, OSError):  # the program's own `import torch` says why; `torch-pjrt doctor` works without it
    pass
else:
    _autoload()
