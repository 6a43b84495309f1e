"""A program on the device against the same program on the CPU, whose answer is the right one."""
from collections.abc import Callable
from typing import Any

import torch
import torch_pjrt  # noqa: F401
from torch.utils._pytree import tree_map

# float32: XLA sums in another order than PyTorch, and may fuse a multiplication and an addition into one rounding.
ROUNDING = dict(rtol=1e-4, atol=1e-5)
EXACT = dict(rtol=0, atol=0)


def to_cpu(tree: Any) -> Any:
    return tree_map(lambda x: x.detach().cpu() if isinstance(x, torch.Tensor) else x, tree)


def same(actual: Any, expected: Any, **tolerance) -> None:
    """Equal structures, shapes, dtypes and values; NaN equals NaN. Tolerances: as in torch.testing.assert_close."""
    torch.testing.assert_close(to_cpu(actual), to_cpu(expected), equal_nan=True, **tolerance)


def like_cpu(program: Callable[[str], Any], **tolerance) -> None:
    """program(device) gives the same tensors on both devices, from the same seed of the CPU."""
    torch.manual_seed(0)
    expected = to_cpu(program("cpu"))
    torch.manual_seed(0)
    same(program("tpu"), expected, **tolerance)


def counted(program: Callable[[], Any]) -> dict[str, float]:
    """What torch.tpu.counters() counts during the program; "programs": those made, by the compiler or from the disk."""
    torch.tpu.synchronize()
    before = torch.tpu.counters()
    program()
    torch.tpu.synchronize()
    after = torch.tpu.counters()
    counts = {name: after[name] - before[name] for name in after}
    return dict(counts, programs=counts["compiles"] + counts["cache_loads"])
