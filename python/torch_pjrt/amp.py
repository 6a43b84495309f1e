"""torch.tpu.amp: torch.amp for this device, by the names of torch.cuda.amp."""
import functools

import torch

custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="tpu")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="tpu")


class autocast(torch.amp.autocast):
    """torch.autocast("tpu")."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool = True):
        super().__init__("tpu", dtype, enabled, cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler("tpu"): for float16; bfloat16 needs no scaling."""

    def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True):
        super().__init__("tpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
