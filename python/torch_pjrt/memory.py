"""torch.tpu.memory: what the device's memory holds.

The plugin owns the memory and nothing is kept aside here, so what is reserved is what is allocated: the bytes of the
values that tensors and queued work hold.
"""
import pickle
from typing import Any

import torch

from torch_pjrt import _C, _chips
from torch_pjrt._index import DeviceLike, index_of


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """The statistics of torch.cuda.memory_stats, by its names. A block is a value; num_ooms counts refusals by the
    limit of set_per_process_memory_fraction."""
    return torch.accelerator.memory_stats(index_of(device))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """memory_stats before its names are joined by dots; empty before the runtime starts."""
    return torch._C._accelerator_getDeviceStats(index_of(device)) if _C.is_started() else {}


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes of the values that tensors and queued work hold."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most that memory_allocated was since the start or reset_peak_memory_stats."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


memory_reserved, max_memory_reserved = memory_allocated, max_memory_allocated


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Sets the peaks to what is allocated now."""
    torch.accelerator.reset_peak_memory_stats(index_of(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Sets the sums of what was allocated and freed to 0."""
    torch.accelerator.reset_accumulated_memory_stats(index_of(device))


reset_max_memory_allocated = reset_peak_memory_stats


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free bytes, up to the limit of set_per_process_memory_fraction, and total bytes. Where the plugin does not tell
    its memory (a CPU plugin): the host's."""
    return torch.accelerator.get_memory_info(index_of(device))


def empty_cache() -> None:
    """Nothing is kept: memory goes back to the plugin when its last tensor goes."""


empty_host_cache = empty_cache


def ipc_collect() -> None:
    """No memory is shared between processes."""


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """torch.OutOfMemoryError is raised when live bytes would exceed this part of the device's memory."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"the fraction is between 0 and 1, not {fraction}")
    limit = int(mem_get_info(device)[1] * fraction)
    _C.set_memory_limit(index_of(device), max(limit, 1))  # 0 is no limit


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """What set_per_process_memory_fraction was given; 1 where there is no limit."""
    limit = _C.memory_limit(index_of(device))
    return limit / mem_get_info(device)[1] if limit else 1.0


def memory_snapshot(device: DeviceLike = None) -> list[dict[str, Any]]:
    """Every value in the memory of the device, or of all devices; one segment of one block each, as
    torch.cuda.memory_snapshot says it; shape and dtype (StableHLO's name) beside. A value has no address."""
    indices = range(_C.device_count()) if device is None else [index_of(device)]
    return [{"device": index, "address": 0, "total_size": size, "allocated_size": size, "active_size": size,
             "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
             "is_expandable": False, "frames": [],
             "blocks": [{"address": 0, "size": size, "requested_size": size, "state": "active_allocated", "frames": [],
                         "shape": shape, "dtype": dtype}]}
            for index in indices for size, shape, dtype in _C.live_values(index)]


def _snapshot(device: DeviceLike = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    devices = range(_C.device_count()) if device is None else [index_of(device)]
    return {"segments": [segment for i in devices for segment in memory_snapshot(i)],
            "device_traces": [[] for _ in range(_C.device_count())], "allocator_settings": {},
            "external_annotations": []}


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def _record_memory_history(enabled: str | None = "all", *_, **__) -> None:
    if enabled is not None:
        raise NotImplementedError("the tpu device keeps no history of allocations; torch.tpu.memory_snapshot() tells "
                                  "what is in memory now")


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """memory_stats as a table. Abbreviated: bytes only."""
    index = index_of(device)
    stats, (free, total) = memory_stats(index), mem_get_info(index)
    rows = [("bytes", "allocated_bytes")] + ([] if abbreviated else [("values", "allocation")])
    kinds = ("current", "peak", "allocated", "freed")
    lines = [f"tpu:{index}: {free:,} of {total:,} bytes free", "".join(f"{head:>20}" for head in ("", *kinds))]
    for name, key in rows:
        lines.append(f"{name:>20}" + "".join(f"{stats.get(f'{key}.all.{kind}', 0):>20,}" for kind in kinds))
    return "\n".join(lines)


def list_gpu_processes(device: DeviceLike = None) -> str:
    """Who has the files of the machine's chips open, a line each; which chip is which device, only libtpu knows. The name is
    torch.cuda's."""
    index_of(device)
    holders, refused = _chips.holders()
    lines = [f"process {pid} ({command}) has {file} open" for pid, command, file in holders] or ["no processes are running"]
    return "\n".join(lines + ([f"{refused} processes of other users could not be asked"] if refused else []))


# ---- pinned host memory ----------------------------------------------------------------------------------------------


def host_memory_stats() -> dict[str, int]:
    """Of the memory of pin_memory(), by the names of torch.cuda.host_memory_stats."""
    return _C.host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Sets the peaks of host_memory_stats to what is allocated now."""
    _C.reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Sets the sums of host_memory_stats to 0."""
    _C.reset_accumulated_host_memory_stats()
