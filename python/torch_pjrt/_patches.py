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
        if not torch.compiler.is_compiling() and _C.is_started() and _C.queue_length() > 1:
            _C.cut(_C.current_device())

    register_optimizer_step_post_hook(cut)


_meta = torch.library.Library("aten", "IMPL", "Meta")  # its end would take the kernels away


def _fused_gru_cell() -> None:
    """nn.GRU and nn.GRUCell run it on every device but the CPU, and torch 2.13 has no meta kernel of it."""

    def cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
        return hx.new_empty(hx.shape), hx.new_empty(hx.shape[0], 5 * hx.shape[1])

    def cell_backward(grad_hy, workspace, has_bias):
        rows, width = workspace.shape[0], workspace.shape[1] // 5 * 3
        bias = [grad_hy.new_empty(width) if has_bias else None for _ in range(2)]
        return grad_hy.new_empty(rows, width), grad_hy.new_empty(rows, width), grad_hy.new_empty(grad_hy.shape), *bias

    _meta.impl("_thnn_fused_gru_cell", cell)
    _meta.impl("_thnn_fused_gru_cell_backward", cell_backward)


def apply() -> None:
    _set_float32_matmul_precision()
    _to_dlpack()
    _after_optimizer_step()
    _fused_gru_cell()
    _plugin.after_start.append(lambda: _C.set_matmul_precision(matmul_precision()))
