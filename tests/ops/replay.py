"""Replays on the device every overload that a piece of PyTorch code calls on CPU, and compares the results.

    with Replay(names) as replay: ...      # replay.failures: {(name, message): example}
"""
import collections
import random

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import harness


class Replay(TorchDispatchMode):
    def __init__(self, names, tolerances=None, meta=True):
        super().__init__()
        self.names, self.tolerances, self.meta = set(names), tolerances or {}, meta
        self.calls, self.failures, self.seen = collections.Counter(), {}, set()

    def key(self, name, args, kwargs):
        def one(x):
            if isinstance(x, torch.Tensor):
                return (x.dtype, tuple(x.shape), tuple(x.stride()), x.storage_offset())
            return tuple(map(one, x)) if isinstance(x, (list, tuple)) else repr(x)
        return (name, one(args), one(list(kwargs.items())))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name + ("." + func._schema.overload_name if func._schema.overload_name else "")
        if name in self.names:
            key = self.key(name, args, kwargs)
            if key not in self.seen:
                self.seen.add(key)
                self.calls[name] += 1
                try:
                    with torch.no_grad():
                        harness.compare(name, *args, meta=self.meta, **self.tolerances.get(name, {}), **kwargs)
                except Exception as error:
                    text = f"{type(error).__name__}: {error}"
                    self.failures.setdefault((name, text[:160]), (text, args, kwargs))
        return func(*args, **kwargs)
