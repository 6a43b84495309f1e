"""Where PyTorch has no hook for a device, the Python function is replaced. Every such place, and why."""
import functools

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_pjrt import _C, _plugin

_PRECISION = {"highest": 2, "high": 1, "medium": 0}


def matmul_precision() -> int:
    """What torch.set_float32_matmul_precision asks for, as the core says it."""
    return _PRECISION[torch.get_float32_matmul_precision()]


def _set_float32_matmul_precision() -> None:
    """torch.set_float32_matmul_precision tells no device about a change."""
    original = torch.set_float32_matmul_precision

    @functools.wraps(original)
    def set_float32_matmul_precision(precision: str) -> None:
        original(precision)
        if _C.is_started():
            _C.set_matmul_precision(matmul_precision())

    torch.set_float32_matmul_precision = set_float32_matmul_precision


def _to_dlpack() -> None:
    """DLPack export would hand out a tensor's data pointer, which is no address of its bytes."""

    def refuse_tpu(original):
        @functools.wraps(original)
        def to_dlpack(tensor, *args, **kwargs):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "tpu":
                raise BufferError("a tpu tensor cannot be exported by DLPack: its bytes belong to the PJRT plugin; "
                                  "copy it to the CPU first, tensor.cpu()")
            return original(tensor, *args, **kwargs)

        return to_dlpack

    torch.Tensor.__dlpack__ = refuse_tpu(torch.Tensor.__dlpack__)
    torch.utils.dlpack.to_dlpack = refuse_tpu(torch.utils.dlpack.to_dlpack)
    torch.to_dlpack = torch.utils.dlpack.to_dlpack


def _after_optimizer_step() -> None:
    """The end of an optimizer step is where a training loop's queue is cut, so that its programs are found again."""

    def cut(*_) -> None:
        if _C.is_started() and _C.queue_length() > 1:
            _C.cut(_C.current_device())

    register_optimizer_step_post_hook(cut)


def apply() -> None:
    _set_float32_matmul_precision()
    _to_dlpack()
    _after_optimizer_step()
    _plugin.after_start.append(lambda: _C.set_matmul_precision(matmul_precision()))
