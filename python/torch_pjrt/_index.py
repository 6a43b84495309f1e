"""Which device is meant."""
import torch

from torch_pjrt import _C

DeviceLike = torch.device | str | int | None


def index_of(device: DeviceLike = None) -> int:
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
