"""torch.tpu.random: the devices' generators. A state is 16 bytes: seed and offset."""
from collections.abc import Iterable

import torch

from torch_pjrt import _C
from torch_pjrt._index import DeviceLike, index_of


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    _C.default_generator(_C.current_device()).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds every device's generator; starts nothing."""
    for i in range(_C.device_count() if _C.is_started() else 1):
        _C.default_generator(i).manual_seed(seed)


def seed() -> int:
    """Seeds the current device's generator with a number that the system draws, and gives it."""
    return _C.default_generator(_C.current_device()).seed()


def seed_all() -> None:
    """Seeds every device's generator with one number that the system draws."""
    manual_seed_all(seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _C.default_generator(_C.current_device()).initial_seed()


def get_rng_state(device: DeviceLike = "tpu") -> torch.Tensor:
    """The state of a device's generator: uint8[16] on the CPU, seed and offset."""
    return _C.default_generator(index_of(device)).get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "tpu") -> None:
    """Makes the generator go on from a state of get_rng_state."""
    _C.default_generator(index_of(device)).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices, by index."""
    return [_C.default_generator(i).get_state() for i in range(_C.device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of all devices, by index."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


class _Generators:
    """torch.tpu.default_generators[i]"""

    def __getitem__(self, index: int) -> torch.Generator:
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} tpu devices, and no generator {index}")
        return _C.default_generator(index)

    def __len__(self) -> int:
        return _C.device_count()


default_generators = _Generators()
