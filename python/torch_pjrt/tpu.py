"""torch.tpu: what PyTorch and the libraries on top of it ask of a device's module."""
import contextlib
import os
import re
import types
from typing import Any

import torch

from torch_pjrt import _C, _plugin

_DeviceLike = torch.device | str | int | None


def _index(device: _DeviceLike = None) -> int:
    """A device's index; ValueError for a device of another type, RuntimeError for one that does not exist."""
    if isinstance(device, int):
        index = device
    elif device is None:
        index = -1
    else:
        if torch.device(device).type != "tpu":
            raise ValueError(f"expected a tpu device, not {device}")
        # PyTorch keeps an index in 8 bits: "tpu:400" is -112 there.
        text = str(device).partition(":")[2]
        index = int(text) if text else -1
    if index == -1:
        return _C.current_device()
    if not 0 <= index < _C.device_count():
        raise RuntimeError(f"tpu:{index} does not exist: there are {_C.device_count()} devices")
    return index


# ---- devices ---------------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """Whether a PJRT plugin can be found. Starts nothing."""
    return _plugin.available()


def init() -> None:
    """Starts the runtime; any use of the device does so by itself."""
    _plugin.start()


_lazy_init = init


def is_initialized() -> bool:
    return _C.is_started()


def __getattr__(name: str):
    if name == "_initialized":  # torch.utils.checkpoint keeps and restores random states only where this is true
        return is_initialized()
    raise AttributeError(f"module 'torch.tpu' has no attribute {name!r}")


def _is_in_bad_fork() -> bool:
    return _C.in_bad_fork()


def device_count() -> int:
    """Number of devices of this process; 0 when no plugin is found. Starts the runtime."""
    return _C.device_count() if is_available() else 0


def current_device() -> int:
    return _C.current_device()


def set_device(device: _DeviceLike) -> None:
    _C.set_device(_index(device))


class device:
    """Context manager: makes `device` the current one. Negative or None: does nothing."""

    def __init__(self, device: _DeviceLike):
        self.index = -1 if device is None else _index(device)
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


def synchronize(device: _DeviceLike = None) -> None:
    """Waits until all work of the device is done; raises what failed in it."""
    _C.synchronize(_index(device))


def get_device_name(device: _DeviceLike = None) -> str:
    return _C.plugin_info()["device_kinds"][_index(device)]


def get_device_properties(device: _DeviceLike = None) -> types.SimpleNamespace:
    """name, platform, platform_version, total_memory (bytes, as mem_get_info), multi_processor_count."""
    info = _C.plugin_info()
    return types.SimpleNamespace(name=info["device_kinds"][_index(device)], platform=info["platform"],
                                 platform_version=info["platform_version"], total_memory=mem_get_info(device)[1],
                                 multi_processor_count=1)


def get_device_capability(device: _DeviceLike = None) -> tuple[int, int]:
    """The version of the plugin's PJRT API."""
    _index(device)
    return _C.plugin_info()["api_version"]


def can_device_access_peer(device: _DeviceLike, peer: _DeviceLike) -> bool:
    return _index(device) != _index(peer)


# ---- streams and events ----------------------------------------------------------------------------------------------

# Work on a device has one order: a stream is a name for it, an event a point in it.


class Stream(torch.Stream):
    def __new__(cls, device: _DeviceLike = None, priority: int = 0, **kwargs):
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, torch.device("tpu", _index(device)), priority=priority)


class Event:
    """A torch.Event of the device. enable_timing makes record() wait: PJRT does not tell when work was done."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
        return torch.Event("tpu", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def current_stream(device: _DeviceLike = None) -> torch.Stream:
    return torch.accelerator.current_stream(torch.device("tpu", _index(device)))


def default_stream(device: _DeviceLike = None) -> torch.Stream:
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=int(torch._C._autograd.DeviceType.PrivateUse1))


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


@contextlib.contextmanager
def stream(stream: torch.Stream | None):
    """Makes `stream` the current one."""
    if stream is None:
        yield
        return
    before = current_stream(stream.device)
    set_stream(stream)
    try:
        yield stream
    finally:
        set_stream(before)


# ---- random numbers --------------------------------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    _C.default_generator(_C.current_device()).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds every device's generator; starts nothing."""
    for i in range(_C.device_count() if _C.is_started() else 1):
        _C.default_generator(i).manual_seed(seed)


def seed() -> int:
    return _C.default_generator(_C.current_device()).seed()


def seed_all() -> None:
    manual_seed_all(seed())


def initial_seed() -> int:
    return _C.default_generator(_C.current_device()).initial_seed()


def get_rng_state(device: _DeviceLike = "tpu") -> torch.Tensor:
    """16 bytes: seed and offset."""
    return _C.default_generator(_index(device)).get_state()


def set_rng_state(new_state: torch.Tensor, device: _DeviceLike = "tpu") -> None:
    _C.default_generator(_index(device)).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(states) -> None:
    for i, state in enumerate(states):
        set_rng_state(state, i)


class _Generators:
    """torch.tpu.default_generators[i]"""

    def __getitem__(self, index: int) -> torch.Generator:
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} tpu devices, and no generator {index}")
        return _C.default_generator(index)

    def __len__(self) -> int:
        return device_count()


default_generators = _Generators()


# ---- memory ----------------------------------------------------------------------------------------------------------


def memory_allocated(device: _DeviceLike = None) -> int:
    """Bytes of the values that tensors and queued work hold."""
    return _C.memory(_index(device))["allocated"]


def max_memory_allocated(device: _DeviceLike = None) -> int:
    return _C.memory(_index(device))["max_allocated"]


def reset_peak_memory_stats(device: _DeviceLike = None) -> None:
    _C.reset_max_memory(_index(device))


reset_max_memory_allocated = reset_peak_memory_stats
# The plugin owns the memory, and nothing is kept aside here: reserved is what is allocated.
memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def memory_stats(device: _DeviceLike = None) -> dict[str, Any]:
    """The names of torch.cuda.memory_stats that have a meaning here."""
    memory = _C.memory(_index(device))
    stats = {}
    for kind in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        stats[f"{kind}.all.current"] = memory["allocated"]
        stats[f"{kind}.all.peak"] = memory["max_allocated"]
    stats["num_alloc_retries"] = 0
    stats["num_ooms"] = 0
    return stats


def mem_get_info(device: _DeviceLike = None) -> tuple[int, int]:
    """Free bytes, up to the limit of set_per_process_memory_fraction, and total bytes. Where the plugin does not tell its
    memory (a CPU plugin): the host's."""
    memory = _C.memory(_index(device))
    total = memory["total"] or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max((memory["limit"] or total) - memory["allocated"], 0), total


def empty_cache() -> None:
    """Nothing is kept: memory goes back to the plugin when its last tensor goes."""


def ipc_collect() -> None:
    """No memory is shared between processes."""


def set_per_process_memory_fraction(fraction: float, device: _DeviceLike = None) -> None:
    """torch.OutOfMemoryError is raised when live bytes would exceed this part of the device's memory."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"the fraction is between 0 and 1, not {fraction}")
    limit = int(mem_get_info(device)[1] * fraction)
    _C.set_memory_limit(_index(device), max(limit, 1))  # 0 is no limit


# ---- types -----------------------------------------------------------------------------------------------------------


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


# ---- what the device did ---------------------------------------------------------------------------------------------


def counters() -> dict[str, int | float]:
    """Since the start or reset_counters(): compiles, compile_ms, worker_failures, cache_loads, executions, host_reads,
    bytes_to_device, bytes_to_host, donations, fallback_calls, decompositions, queue_cuts."""
    return _C.counters()


def reset_counters() -> None:
    _C.reset_counters()


def _short(line: str) -> str:
    inside = os.path.join(os.getcwd(), "")
    return line.removeprefix(inside)


def explain() -> list[dict[str, Any]]:
    """Every program that was made since the start, one dict each:

    op           overload name, or the names of a region's ops joined by " + "
    shapes       sizes of the tensor arguments (of a single op; empty for a region)
    dtypes       their StableHLO dtypes ("f32", "i64", ...)
    line         "file.py:12" of the caller, relative to the working directory where the file is under it, or ""
    reason       why no program was there, against the last one of the same op:
                 "new op"                 the first call of the op
                 "new number of tensors"  more or fewer tensors or Python numbers
                 "new dtype"              another type of a tensor or of a Python number
                 "new shape"              other sizes of a tensor
                 "new layout"             other strides or offset of a tensor, or another base under its view
                 "new constant"           another argument that is part of the program: a dimension, a flag, an index
                 "new aliasing"           the call was known, but other inputs may be overwritten, other results are held, or the
                                          matmul precision or index check has changed
                 "new region"             several ops that were never queued together (fused eager)
    compile_ms   milliseconds of the compile or the load
    from         "compiler" or "disk"
    temp_bytes   memory that the program needs beside its arguments and results; -1 where the plugin does not tell
    """
    rows = []
    for row in _C.explain():
        op, _, arguments = row.pop("what").partition("(")
        tensors = re.findall(r"([A-Za-z0-9<>]+)\[([\d,]*)\]", arguments)
        rows.append({"op": op, "shapes": [tuple(int(n) for n in dims.split(",") if n) for _, dims in tensors],
                     "dtypes": [dtype for dtype, _ in tensors], "line": _short(row["line"]), "reason": row["reason"],
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


def set_eager_mode(mode: str, length: int = 64) -> None:
    """"strict": every op runs at its call. "fused": up to `length` ops are compiled and run as one program."""
    if mode not in ("strict", "fused"):
        raise ValueError(f'the eager mode is "strict" or "fused", not {mode!r}')
    _C.set_queue_length(1 if mode == "strict" else length)


def get_eager_mode() -> str:
    return "strict" if _C.queue_length() <= 1 else "fused"


def set_index_check(mode: str) -> None:
    """When an index out of range is told: "deferred" (at the next synchronization), "strict" (at once), "off"."""
    modes = ("deferred", "strict", "off")
    if mode not in modes:
        raise ValueError(f"the index check is one of {modes}, not {mode!r}")
    _C.set_index_mode(modes.index(mode))
