"""What the tests of several families share: inputs of a dtype, and comparison where the CPU kernel is less accurate."""
import torch
from harness import compare, flat_results, overload, run

NAN, INF = float("nan"), float("inf")
HALVES = (torch.bfloat16, torch.float16)
FLOATS = (torch.float32, *HALVES)
INTEGERS = (torch.int64, torch.int32)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, torch.complex64)
# rtol and atol of float32 contractions and scans: XLA and PyTorch sum in different orders.
CONTRACTION = {"rtol": 1e-5, "atol": 1e-4}

SPECIAL = torch.tensor([[1, NAN, INF, -INF, 2], [-INF, -INF, -INF, -INF, 1], [NAN, NAN, 0, -0.0, 3],
                        [INF, INF, 1, -2, INF], [3, 1, 3, 2, 3]], dtype=torch.float32)


def make(dtype, *sizes, seed=0):
    """Random numbers: standard normal, or integers from -9 to 8."""
    generator = torch.Generator().manual_seed(seed + sum(sizes))
    if dtype == torch.bool:
        return torch.rand(sizes, generator=generator) > 0.5
    if dtype.is_floating_point:
        return torch.randn(sizes, generator=generator).to(dtype)
    if dtype.is_complex:
        return torch.randn(sizes, generator=generator, dtype=dtype)
    return torch.randint(-9, 9, sizes, generator=generator).to(dtype)


def layouts(dtype):
    """A dense tensor, a transposed one, a slice with steps, a 0-d one, one without elements."""
    x = make(dtype, 3, 4, 5)
    return x, x.transpose(0, 2), x[:, 1:3, ::2], make(dtype), make(dtype, 0, 3)


def _wide(value):
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return torch.float64 if value in HALVES and isinstance(value, torch.dtype) else value


def compare_exactly_rounded(name, *args, rtol=None, atol=None, skip=(), **kwargs):
    """Half-type results equal those of float64, rounded once: for ops whose CPU kernel rounds in between."""
    got = run(name, *args, **kwargs)
    wide = flat_results(overload(name)(*map(_wide, args), **{key: _wide(value) for key, value in kwargs.items()}))
    for i, (g, e) in enumerate(zip(got, wide, strict=True)):
        if i not in skip:
            tolerance = {} if rtol is None else {"rtol": rtol, "atol": atol}
            torch.testing.assert_close(g, e.to(g.dtype), equal_nan=True, **tolerance)


def check(name, *args, **kwargs):
    """As `compare`, and half types against float64."""
    if any(isinstance(a, torch.Tensor) and a.dtype in HALVES for a in args):
        compare_exactly_rounded(name, *args, **kwargs)
    else:
        skip = kwargs.pop("skip", ())
        if skip:
            compare_but(name, skip, *args, **kwargs)
        else:
            compare(name, *args, **kwargs)


def compare_but(name, skip, *args, rtol=1.3e-6, atol=1e-5, **kwargs):
    """As `compare`, without the results numbered in `skip`."""
    expected = flat_results(overload(name)(*args, **kwargs))
    for i, (g, e) in enumerate(zip(run(name, *args, **kwargs), expected, strict=True)):
        if i not in skip:
            torch.testing.assert_close(g, e, rtol=rtol, atol=atol, equal_nan=True)


def check_against(name, expected, *args, rtol=None, atol=None, **kwargs):
    """Against given results, for ops that PyTorch's CPU build does not have."""
    got = run(name, *args, results=expected, **kwargs)
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        tolerance = {} if rtol is None or not e.dtype.is_floating_point else {"rtol": rtol, "atol": atol}
        torch.testing.assert_close(g, e, equal_nan=True, msg=lambda text: f"{name} result {i}: {text}", **tolerance)
