"""torch.tpu: what PyTorch and the libraries on top of it ask of a device's module."""
import contextlib
import re
import sys
import types
from typing import Any

import torch
from torch import Generator, OutOfMemoryError  # noqa: F401

from torch_pjrt import _C, _env, _plugin, amp, logs, memory, random, streams
from torch_pjrt._index import DeviceLike, index_of
from torch_pjrt.memory import *  # noqa: F403
from torch_pjrt.random import *  # noqa: F403
from torch_pjrt.streams import *  # noqa: F403

for _part in (amp, memory, random, streams):
    sys.modules["torch.tpu." + _part.__name__.rpartition(".")[2]] = _part

# ---- devices ---------------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """Whether a PJRT plugin can be found. Starts nothing."""
    return _plugin.available()


def init() -> None:
    """Starts the runtime; any use of the device does so by itself. RuntimeError in a child forked after that."""
    _C.init()


_lazy_init = init


def is_initialized() -> bool:
    """Whether the runtime has been started."""
    return _C.is_started()


# What torch.cuda has and this device has not, and what to do instead.
_ABSENT = {
    ("CUDAGraph", "graph", "graphs", "graph_pool_handle", "make_graphed_callables"):
        "there are no graphs to capture; torch.compile and torch.tpu.set_eager_mode(\"fused\") make one program of many ops",
    ("utilization", "memory_usage", "device_memory_used", "temperature", "power_draw", "clock_rate"):
        "PJRT does not tell it; torch.tpu.memory_stats() and torch.profiler tell what it does",
    ("MemPool", "use_mem_pool", "caching_allocator_alloc", "caching_allocator_delete", "caching_allocator_enable",
     "change_current_allocator", "get_allocator_backend"): "the plugin owns the memory, and no allocator can be chosen",
    ("nvtx", "cudart", "nccl", "jiterator", "tunable", "current_blas_handle", "ExternalStream", "get_stream_from_external"):
        "it is a part of CUDA",
    ("set_sync_debug_mode", "get_sync_debug_mode"):
        "torch.tpu.counters()[\"host_reads\"] counts what waits, and TORCH_LOGS=tpu_cuts names it",
}


def __getattr__(name: str):
    if name == "_initialized":  # torch.utils.checkpoint keeps and restores random states only where this is true
        return is_initialized()
    why = next((f": {sentence}" for names, sentence in _ABSENT.items() if name in names), "")
    raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}{why}")


def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


def device_count() -> int:
    """Number of devices of this process; 0 when no plugin is found. Starts the runtime."""
    return _C.device_count() if is_available() else 0


def current_device() -> int:
    """The index of the current device."""
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Makes the device the current one. A negative index: does nothing."""
    _C.set_device(index_of(device))


def _exchange_device(device: int) -> int:
    """Makes the device of that index the current one (negative: does nothing) and gives the one before."""
    before = _C.current_device()
    _C.set_device(device)
    return before


_maybe_exchange_device = _exchange_device


class device:
    """Context manager: makes `device` the current one. Negative or None: does nothing."""

    def __init__(self, device: DeviceLike):
        self.index = -1 if device is None else index_of(device)
        self.before = -1

    def __enter__(self):
        self.before = _C.current_device()
        if self.index >= 0:
            _C.set_device(self.index)
        return self

    def __exit__(self, *_):
        _C.set_device(self.before)
        return False


class device_of(device):
    """Context manager: makes the device of a tensor the current one, if it is a tpu tensor."""

    def __init__(self, tensor: torch.Tensor):
        super().__init__(tensor.device if tensor.device.type == "tpu" else None)


def synchronize(device: DeviceLike = None) -> None:
    """Waits until all work of the device is done; raises what failed in it. Nothing to do before the first use, which
    matters to torch.profiler: it calls this where only the CPU was used, too."""
    if device is None and not is_initialized():
        return
    _C.synchronize(index_of(device))


def get_device_name(device: DeviceLike = None) -> str:
    """The kind of chip, as the plugin names it."""
    return _C.plugin_info()["device_kinds"][index_of(device)]


def get_device_properties(device: DeviceLike = None) -> types.SimpleNamespace:
    """name, platform, platform_version, total_memory (bytes, as mem_get_info), multi_processor_count."""
    info = _C.plugin_info()
    return types.SimpleNamespace(name=info["device_kinds"][index_of(device)], platform=info["platform"],
                                 platform_version=info["platform_version"], total_memory=mem_get_info(device)[1],
                                 multi_processor_count=1)


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """The version of the plugin's PJRT API."""
    index_of(device)
    return _C.plugin_info()["api_version"]


def can_device_access_peer(device: DeviceLike, peer: DeviceLike) -> bool:
    """True for two different devices: the plugin copies between any two."""
    return index_of(device) != index_of(peer)


# ---- types -----------------------------------------------------------------------------------------------------------


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every plugin computes with it, if need be in float32."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types of torch.autocast("tpu")."""
    return [torch.bfloat16, torch.float16]


# ---- what the device did ---------------------------------------------------------------------------------------------


def counters() -> dict[str, int | float]:
    """Since the start or reset_counters(): compiles, compile_ms, worker_failures, cache_loads, executions, host_reads,
    bytes_to_device, bytes_to_host, donations, fallback_calls, decompositions, queue_cuts."""
    return _C.counters()


def reset_counters() -> None:
    """Sets all counters to 0."""
    _C.reset_counters()


def explain() -> list[dict[str, Any]]:
    """Every program that was made since the start, one dict each:

        op           overload name, or the names of a region's ops joined by " + ", or of torch.compile "graph:4[3/1]":
                     the fifth graph, of the fourth function's first recompile (TORCH_LOGS=recompiles tells its cause)
        shapes       sizes of the tensor arguments (of a single op or a graph; empty for a region)
        dtypes       their StableHLO dtypes ("f32", "i64", ...)
        line         "file.py:12" of the caller, relative to the working directory where the file is under it, or ""
        reason       why no program was there, against the last one of the same op:
                     "new op"                 the first call of the op
                     "new number of tensors"  more or fewer tensors or Python numbers
                     "new dtype"              another type of a tensor or of a Python number
                     "new shape"              other sizes of a tensor
                     "new layout"             other strides or offset of a tensor, or another base under its view
                     "new constant"           another argument that is part of the program: a dimension, a flag, ...
                     "new aliasing"           the call was known, but other inputs may be overwritten, other results are
                                              held, or the matmul precision or index check has changed
                     "new region"             several ops that were never queued together (fused and adaptive eager)
                     "new room"               a value that grows got a larger array, or an op met such an array first
                     "not kept"               the program was there, and was unloaded: a process keeps the 4,096 used last
                     "not compiled"           a region whose program the compiler refused: it goes on op by op
        compile_ms   milliseconds of the compile or the load
        from         "compiler" or "disk"
        temp_bytes   memory that the program needs beside its arguments and results; -1 where the plugin does not tell
    """
    rows = []
    for row in _C.explain():
        op, _, arguments = row.pop("what").partition("(")
        tensors = re.findall(r"([A-Za-z0-9<>]+)\[([\d,]*)\]", arguments)
        rows.append({"op": op, "shapes": [tuple(int(n) for n in dims.split(",") if n) for _, dims in tensors],
                     "dtypes": [dtype for dtype, _ in tensors], "line": logs.short(row["line"]), "reason": row["reason"],
                     "compile_ms": row["compile_ms"], "from": "disk" if row["from_disk"] else "compiler",
                     "temp_bytes": row["temp_bytes"]})
    return rows


def fallbacks() -> dict[str, int]:
    """The ops that ran on the CPU, and how often."""
    return _C.fallbacks()


class set_fallback:
    """What happens when an op has to run on the CPU: "warn" (once per op), "error" or "silent".

    Takes effect at once; as a context manager it is undone at the end.
    """

    def __init__(self, mode: str):
        self.before = _C.set_fallback(mode)
        _plugin.fallback_chosen = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _C.set_fallback(self.before)
        return False


class set_eager_mode:
    """How ops run that follow each other.

        "strict"    every op runs at its call
        "fused"     up to `length` ops run as one program, which is compiled when they are met for the first time
        "adaptive"  (the default) the same, but ops that are met for the first time run one by one; when they come again soon,
                    as a loop's do, their program is compiled in the background, and it runs from the third time on. What
                    comes now and then, or in many shapes, waits longer. torch.use_deterministic_algorithms(True) keeps
                    all one by one
        "blocking"  every op runs at its call, which returns when it is computed, and tells at once what failed, indices
                    out of range too: to find out where

    Queued ops run when a value is read, an optimizer step ends, the device is synchronized, or `length` of them wait; an
    error in them is told then. Takes effect at once; as a context manager it is undone at the end.
    """

    def __init__(self, mode: str, length: int = 64):
        if mode not in _env.EAGER_MODES:
            raise ValueError(f"the eager mode is one of {_env.EAGER_MODES}, not {mode!r}")
        self.before = (_C.eager(), _C.queue_length())
        _C.set_eager(_env.EAGER_MODES.index(mode), length)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _C.set_eager(*self.before)
        return False


class one_program(contextlib.ContextDecorator):
    """All ops inside become one program, however many they are: round a whole training step (forward, backward, optimizer),
    as a context manager or as the decorator of a function.

    It is compiled when it is met for the first time, which for a large model takes minutes. What waits for the device cuts
    it: a value that is read, an op whose result's shape depends on values. The end of an optimizer step does too, so that
    each step is the same program.
    """

    def __init__(self) -> None:
        self.modes: list[set_eager_mode] = []  # it may be entered again inside

    def __enter__(self):
        self.modes.append(set_eager_mode("fused", length=2**31 - 1))
        return self

    def __exit__(self, *exception):
        return self.modes.pop().__exit__(*exception)


def get_eager_mode() -> str:
    """The mode of set_eager_mode."""
    return _env.EAGER_MODES[_C.eager()]


def blocking() -> set_eager_mode:
    """set_eager_mode("blocking"): from now on, or inside a `with`."""
    return set_eager_mode("blocking")


def set_index_check(mode: str) -> None:
    """When an index out of range is told: "deferred" (at the next synchronization), "strict" (at once), "off"."""
    modes = ("deferred", "strict", "off")
    if mode not in modes:
        raise ValueError(f"the index check is one of {modes}, not {mode!r}")
    _C.set_index_mode(modes.index(mode))
