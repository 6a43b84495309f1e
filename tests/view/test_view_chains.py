"""View programs against PyTorch: random chains of PyTorch's own view operations on CPU tensors.

PyTorch makes each view; its sizes, strides and offset go to the reference interpreter of the core's view programs
(core/tests/view/reference.c), and what that reads and writes must be what PyTorch reads and writes, byte for byte.
"""

import ctypes
import os
import random

import pytest
import torch

LIBRARY = os.environ.get("PJ_VIEW_REFERENCE")
pytestmark = pytest.mark.skipif(not LIBRARY, reason="PJ_VIEW_REFERENCE does not name libpj_view_reference.so")

CHAINS = 20_000

# The numbers of core/include/pj/dtype.h.
DTYPES = {
    torch.bool: 1, torch.int8: 2, torch.int16: 3, torch.int32: 4, torch.int64: 5, torch.uint8: 6, torch.float16: 10,
    torch.float32: 11, torch.float64: 12, torch.bfloat16: 13, torch.complex64: 14, torch.complex128: 15,
    torch.float8_e5m2: 16, torch.float8_e4m3fn: 17,
}  # fmt: skip
OVERLAPS, COVERS, IS_BASE = 1, 2, 4


def slice_(r, t):
    dim = r.randrange(t.dim())
    start = r.randint(0, t.shape[dim] // 2)
    stop = r.choice([t.shape[dim], t.shape[dim], r.randint(start, t.shape[dim])])
    return t[(slice(None),) * dim + (slice(start, stop, r.randint(1, 3)),)]


def split(r, t):
    dim = r.randrange(t.dim())
    inner = r.randint(1, max(1, t.shape[dim]))
    return t.view(*t.shape[:dim], t.shape[dim] // inner, inner, *t.shape[dim + 1 :])


def merge(r, t):
    first = r.randrange(t.dim())
    last = r.randrange(first, t.dim())
    return t.view(*t.shape[:first], t.shape[first : last + 1].numel(), *t.shape[last + 1 :])


def expand(r, t):
    sizes = [r.choice([0, 1, 2, 2, 3, 3]) if n == 1 else n for n in t.shape]
    return t.expand([r.randint(1, 3)] * r.randint(0, 1) + sizes)


def unfold(r, t):
    dim = r.randrange(t.dim())
    return t.unfold(dim, r.randint(r.random() > 0.1, t.shape[dim]), r.randint(1, 3))


def diagonal(r, t):
    a, b = r.sample(range(t.dim()), 2)
    return t.diagonal(r.randint(-3, 3), a, b)


def as_strided(r, t):
    """Any elements of the storage, as any dtype."""
    dtype = r.choice([t.dtype, *list(DTYPES)[1:]]) if not (t.is_conj() or t.is_neg()) else t.dtype
    if torch.bool in (dtype, t.dtype):
        dtype = t.dtype
    room = t.untyped_storage().nbytes() // dtype.itemsize
    if room == 0:
        return t
    offset = r.randrange(room)
    last, sizes, strides = offset, [], []
    for _ in range(r.randint(0, 3)):
        strides.append(r.randint(0, 12))
        most = (room - 1 - last) // strides[-1] + 1 if strides[-1] else 4
        sizes.append(r.randint(1, min(8, most)))
        last += (sizes[-1] - 1) * strides[-1]
    if dtype == t.dtype:
        return t.as_strided(sizes, strides, offset)
    return torch.empty(0, dtype=dtype).set_(t.untyped_storage(), offset, sizes, strides)


def with_dtype(r, t):
    dtype = r.choice(list(DTYPES)[1:])  # any byte may be read as any dtype but bool
    return t if t.dtype == torch.bool else t.view(dtype)


OPERATIONS = [
    slice_, slice_, split, merge, expand, unfold, diagonal, as_strided, with_dtype, with_dtype,
    lambda r, t: t.select(d := r.randrange(t.dim()), r.randrange(t.shape[d])),
    lambda r, t: t.permute(r.sample(range(t.dim()), t.dim())),
    lambda r, t: t.unsqueeze(r.randint(0, t.dim())),
    lambda r, t: t.squeeze(),
    lambda r, t: t.chunk(r.randint(1, 3), r.randrange(t.dim()))[-1],
    lambda r, t: torch.view_as_real(t),
    lambda r, t: torch.view_as_complex(t),
    lambda r, t: t.conj(),
    lambda r, t: t.real if r.random() < 0.5 else t.imag,
]  # fmt: skip


def random_bytes(generator, shape, dtype):
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
    count = torch.Size(shape).numel() * dtype.itemsize
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator).view(dtype).reshape(shape)


def chains():
    """(base, view): a contiguous tensor, whose dims are the stored value's, and a view of it."""
    r, generator = random.Random(20260729), torch.Generator().manual_seed(1)
    for _ in range(CHAINS):
        shape = [0 if r.random() < 0.01 else r.randint(1, 8) for _ in range(r.randint(0, 4))]
        base = random_bytes(generator, shape, r.choice(list(DTYPES)))
        view = base
        for _ in range(r.randint(0, 8)):
            try:
                after = r.choice(OPERATIONS)(r, view)
                view = after if after.dtype in DTYPES else view  # XLA has no complex32
            except (RuntimeError, ValueError):
                pass  # the operation does not apply to this tensor
        yield base, view


def numbers(values):
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def arguments(base, view, *, data):
    """What each entry of the reference takes for a base and a view."""
    parts = [DTYPES[base.dtype], base.dim(), numbers(base.shape)]
    if data:
        parts.append(ctypes.c_void_p(base.data_ptr()))
    parts += [DTYPES[view.dtype], view.dim(), numbers(view.shape), numbers(view.stride())]
    parts.append(ctypes.c_int64(view.storage_offset()))
    return parts + [int(view.is_conj()), int(view.is_neg())] if data else parts


def storage_bytes(t):
    return torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage())


def same(got, want):
    """Byte for byte, but for NaN, which PyTorch's negation of half types may quieten."""
    return torch.equal(storage_bytes(got), storage_bytes(want)) or (
        not want.dtype.is_complex and torch.equal(got.nan_to_num(7), want.nan_to_num(7))
    )


def text(base, view):
    bits = f"{' conj' if view.is_conj() else ''}{' neg' if view.is_neg() else ''}"
    place = f"sizes {tuple(view.shape)} strides {view.stride()} offset {view.storage_offset()}"
    return f"{base.dtype} {tuple(base.shape)} -> {view.dtype} {place}{bits}"


@pytest.fixture(scope="module")
def reference():
    return ctypes.CDLL(LIBRARY)


def test_random_views_read_as_in_pytorch(reference):
    views = 0
    for base, view in chains():
        want = view.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        got = torch.empty(view.shape, dtype=view.dtype)
        assert reference.pj_view_reference_read(*arguments(base, view, data=True), ctypes.c_void_p(got.data_ptr()))
        assert same(got, want), text(base, view)
        views += view.numel() > 1 and not (view.shape == base.shape and view.is_contiguous())
    assert views > CHAINS / 3


def test_random_views_are_written_as_in_pytorch(reference):
    generator, written = torch.Generator().manual_seed(2), 0
    for base, view in chains():
        source = random_bytes(generator, view.shape, view.dtype)
        got, want = torch.empty_like(base), base.clone()
        done = reference.pj_view_reference_write(
            *arguments(base, view, data=True), ctypes.c_void_p(source.data_ptr()), ctypes.c_void_p(got.data_ptr())
        )
        if not done:
            continue  # the view overlaps itself
        target = torch.empty(0, dtype=view.dtype).set_(
            want.untyped_storage(), view.storage_offset(), view.shape, view.stride()
        )
        target = target.conj() if view.is_conj() else target
        target = torch._neg_view(target) if view.is_neg() else target
        target.copy_(source)
        assert torch.equal(storage_bytes(got), storage_bytes(want)), text(base, view)
        written += view.numel() > 0
    assert written > CHAINS / 3


def test_overlap_cover_and_identity_are_what_the_addresses_say(reference):
    counts = [0, 0, 0]
    for base, view in chains():
        if view.is_conj() or view.is_neg():
            continue
        facts = reference.pj_view_reference_facts(*arguments(base, view, data=False))
        elements = torch.arange(base.untyped_storage().nbytes() // view.element_size())
        places = elements.as_strided(view.shape, view.stride(), view.storage_offset()).unique()
        overlaps = places.numel() < view.numel()
        covers = places.numel() * view.element_size() == base.untyped_storage().nbytes() and not overlaps
        assert bool(facts & OVERLAPS) == overlaps, text(base, view)
        assert bool(facts & COVERS) == covers, text(base, view)
        is_base = view.dtype == base.dtype and view.shape == base.shape and view.is_contiguous()
        is_base = is_base and (view.storage_offset() == 0 or view.numel() == 0)
        assert bool(facts & IS_BASE) == is_base, text(base, view)
        for i, fact in enumerate((OVERLAPS, COVERS, IS_BASE)):
            counts[i] += bool(facts & fact)
    assert min(counts) > CHAINS / 100
