"""Where PyTorch has no hook for a device, the Python function is replaced. Every such place, and why."""
import functools
import threading

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.dlpack import DLDeviceType

from torch_pjrt import _C, _plugin, _printing, _safetensors, _sparse
from torch_pjrt._after_import import after_import

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


def _autocast_dtype() -> None:
    """bfloat16 is what autocast takes on this device. PyTorch keeps the type per thread and starts each one at float16, and
    a backend cannot say otherwise."""
    read, write, chosen = torch.get_autocast_dtype, torch.set_autocast_dtype, threading.local()

    @functools.wraps(read)
    def get_autocast_dtype(device_type: str) -> torch.dtype:
        if device_type == "tpu" and not hasattr(chosen, "dtype"):
            set_autocast_dtype("tpu", torch.bfloat16)
        return read(device_type)

    @functools.wraps(write)
    def set_autocast_dtype(device_type: str, dtype: torch.dtype) -> None:
        write(device_type, dtype)
        if device_type == "tpu":
            chosen.dtype = dtype

    torch.get_autocast_dtype, torch.set_autocast_dtype = get_autocast_dtype, set_autocast_dtype
    get_autocast_dtype("tpu")


def _dlpack() -> None:
    """DLPack does not know the name of a renamed device, and cannot tell a consumer that memory is for reading only.

    Between tensors of the device the capsule holds the address, and the new tensor shares the storage. A consumer that
    asks for the CPU (numpy.from_dlpack(x, device="cpu")) gets a CPU plugin's memory itself, read-only, else a copy.
    """
    to_dlpack, to_device = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__

    @functools.wraps(to_dlpack)
    def __dlpack__(self, *, stream=-1, max_version=None, dl_device=None, copy=None):
        if self.device.type != "tpu":
            return to_dlpack(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
        if self.is_neg():
            raise BufferError("Can't export tensors with the negative bit set")
        host = dl_device is not None and dl_device[0] == DLDeviceType.kDLCPU
        if not host or self.requires_grad or self.is_conj():  # the original tells what is wrong
            return to_dlpack(self, max_version=max_version, dl_device=dl_device, copy=copy)
        versioned = max_version is not None and max_version[0] >= 1
        if versioned and not copy and _C.plugin_info()["platform"] == "cpu":
            return _C.to_host_dlpack(self)
        if copy is False:
            raise BufferError("the bytes of a tpu tensor cannot be exported without a copy")
        return to_dlpack(self.cpu(), max_version=max_version)

    @functools.wraps(to_device)
    def __dlpack_device__(self):
        return (DLDeviceType.kDLExtDev, self.device.index) if self.device.type == "tpu" else to_device(self)

    torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__ = __dlpack__, __dlpack_device__


def _share_memory() -> None:
    """PyTorch takes the memory of every device but the CPU for shared; a PJRT plugin shares none between processes."""

    def refuse_tpu(original):
        @functools.wraps(original)
        def share(self, *args, **kwargs):
            if self.device.type == "tpu":
                raise RuntimeError("tpu memory cannot be shared between processes: send tensor.cpu(), and move it to "
                                   "the device there")
            return original(self, *args, **kwargs)

        return share

    storage = torch.UntypedStorage
    for name in ("share_memory_", "_share_fd_cpu_", "_share_filename_cpu_"):
        setattr(storage, name, refuse_tpu(getattr(storage, name)))
    is_shared = storage.is_shared
    storage.is_shared = functools.wraps(is_shared)(lambda self: self.device.type != "tpu" and is_shared(self))


def _print() -> None:
    """PyTorch prints only the tensors of a fixed list of compiling devices on the host (torch/_tensor_str.py)."""
    original = torch._tensor_str._tensor_str

    @functools.wraps(original)
    def tensor_str(tensor: torch.Tensor, indent: int) -> str:
        if tensor.device.type == "tpu" and tensor.numel():
            return _printing.tensor_str(tensor, indent, original)
        return original(tensor, indent)

    torch._tensor_str._tensor_str = tensor_str


def _after_optimizer_step() -> None:
    """The end of an optimizer step is where a training loop's queue is cut, so that its programs are found again."""

    def cut(*_) -> None:
        if not torch.compiler.is_compiling() and _C.is_started() and _C.queue_length() > 1:
            _C.cut(_C.current_device())

    register_optimizer_step_post_hook(cut)


def _flex_attention() -> None:
    """It has a list of devices that it accepts."""

    def change(module) -> None:
        original = module._validate_device

        @functools.wraps(original)
        def validate(query, key, value) -> None:
            if query.device.type != "tpu":
                original(query, key, value)

        module._validate_device = validate

    after_import("torch.nn.attention.flex_attention", change)


def _jagged_attention() -> None:
    """Attention of jagged tensors chooses among CUDA's kernels, and pads for them, or makes strided nested tensors, which
    the device has not. It has attention of sequences one after the other, of any width."""

    def change(module) -> None:
        original, pad = module._select_sdp_backend, module._pad_last_dim

        @functools.wraps(original)
        def select(query, *args, **kwargs):
            tpu = query.device.type == "tpu"
            return module.SDPBackend.FLASH_ATTENTION if tpu else original(query, *args, **kwargs)

        @functools.wraps(pad)
        def pad_last_dim(tensor, *args, **kwargs):
            return tensor if tensor.device.type == "tpu" else pad(tensor, *args, **kwargs)

        module._select_sdp_backend, module._pad_last_dim = select, pad_last_dim

    after_import("torch.nested._internal.sdpa", change)


def _data_parallel() -> None:
    """nn.DataParallel splits a batch by functions that only PyTorch's CUDA build has. On one device it is its module."""
    original = torch.nn.DataParallel.__init__

    @functools.wraps(original)
    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        if torch.accelerator.current_accelerator().type != "tpu":
            return original(self, module, device_ids, output_device, dim)
        if len(device_ids or range(_C.device_count())) > 1:
            raise NotImplementedError("nn.DataParallel does not split a batch over tpu devices: run one process a device "
                                      "with nn.parallel.DistributedDataParallel, or give device_ids=[0]")
        torch.nn.Module.__init__(self)
        self.module, self.device_ids = module, []

    torch.nn.DataParallel.__init__ = __init__


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


def _padded_to_jagged() -> None:
    """torch 2.13 has the meta kernel of its reverse only."""

    def from_padded(dense, offsets, total_L=None):
        if total_L is None:
            raise RuntimeError("_padded_dense_to_jagged_forward on the tpu device needs total_L, the number of rows")
        return dense.new_empty(total_L, *dense.shape[2:])

    _meta.impl("_padded_dense_to_jagged_forward", from_padded)


def _determinism() -> None:
    """PyTorch's meta kernels take a tensor for one of CUDA's, and refuse for its kernels of median, mode and histc where
    torch.use_deterministic_algorithms asks for deterministic ones. Programs of the device are."""
    original = torch._prims_common.alert_not_deterministic

    @functools.wraps(original)
    def alert_not_deterministic(caller: str) -> None:
        if "cuda" not in caller.lower() or torch.cuda.is_available():
            original(caller)

    torch._prims_common.alert_not_deterministic = alert_not_deterministic


def _samplers() -> None:
    """torch 2.13 has no meta kernels of these. Where one is missing, torch.compile runs the op itself to see what comes out,
    which moves the generator on."""

    def like_first(x, *_):
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    def broadcast(x, *others):
        shapes = [other.shape for other in others if isinstance(other, torch.Tensor)]
        return x.new_empty(torch.broadcast_shapes(x.shape, *shapes))

    _meta.impl("_sample_dirichlet", like_first)
    for name in ("binomial", "_standard_gamma_grad", "_dirichlet_grad"):
        _meta.impl(name, broadcast)


def apply() -> None:
    _set_float32_matmul_precision()
    _autocast_dtype()
    _dlpack()
    _share_memory()
    _print()
    _after_optimizer_step()
    _fused_gru_cell()
    _samplers()
    _padded_to_jagged()
    _determinism()
    _flex_attention()
    _jagged_attention()
    _data_parallel()
    _safetensors.apply()
    _sparse.apply()
    _plugin.after_start.append(lambda: _C.set_matmul_precision(matmul_precision()))
