"""torch.tpu's streams and events.

Work on a device has one order: a stream is a name for it, an event a point in it. So work of two streams never runs at
the same time, and what CUDA code says with wait_stream, wait_event and record_stream holds already; between devices an
event is waited for.
"""
import torch

from torch_pjrt import _C
from torch_pjrt._index import DeviceLike, index_of


_priorities: dict[tuple[int, int], int] = {}  # by device and stream, where it is not 0


class Stream(torch.Stream):
    """A stream of the device. The priority is kept, and changes nothing."""

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **kwargs):
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        made = super().__new__(cls, torch.device("tpu", index_of(device)), priority=priority)
        if priority:
            _priorities[made.device_index, made.stream_id] = priority
        return made

    @property
    def priority(self) -> int:
        return _priorities.get((self.device_index, self.stream_id), 0)

    def __repr__(self) -> str:
        return f"<torch.tpu.Stream device={self.device} id={self.stream_id}>"


class _EventType(type):
    """A torch.Event, whose methods take no subclass of it, passes as a torch.tpu.Event."""

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "tpu"


class Event(metaclass=_EventType):
    """A point in the device's work: a torch.Event. With enable_timing, record() waits for the work before it, and the
    time is exact: PJRT does not tell when work was done."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
        if interprocess:
            raise NotImplementedError("a tpu event cannot be shared between processes: PJRT's events belong to one process")
        return torch.Event("tpu", enable_timing=enable_timing, blocking=blocking)


def _named(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: DeviceLike = None) -> Stream:
    """The device's current stream (None: of the current device)."""
    return _named(torch.accelerator.current_stream(torch.device("tpu", index_of(device))))


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream that is current where nobody has set another."""
    kind = int(torch._C._autograd.DeviceType.PrivateUse1)
    return Stream(stream_id=0, device_index=index_of(device), device_type=kind)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` the current one of its device, and that device the current one. None: does nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


def is_current_stream_capturing() -> bool:
    """False: there are no graphs to capture; torch.compile and set_eager_mode("fused") make one program of many ops."""
    return False


class StreamContext:
    """Context manager: makes `stream` the current one, and its device the current one. None: does nothing."""

    def __init__(self, stream: torch.Stream | None):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self.device = _C.current_device()
            self.before = current_stream(self.stream.device)
            set_stream(self.stream)
        return self.stream

    def __exit__(self, *_):
        if self.stream is not None:
            set_stream(self.before)
            _C.set_device(self.device)
        return False


stream = StreamContext
