"""Memory: what tensors hold and give back; transfers."""
import gc
import resource

import pytest
import torch
import torch.nn as nn
from compare import EXACT, same

KIB = 1024


@pytest.fixture
def base():
    """Bytes that are in use before the test."""
    gc.collect()
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    return torch.tpu.memory_allocated()


def used(base):
    torch.tpu.synchronize()
    return torch.tpu.memory_allocated() - base


def test_memory_is_counted_to_the_byte_and_given_back(base):
    tensors = [torch.zeros(16, 64, device="tpu") + i for i in range(20)]
    assert 20 * 4 * KIB <= used(base) <= 20 * 4 * KIB + KIB
    del tensors[5:]
    assert 5 * 4 * KIB <= used(base) <= 5 * 4 * KIB + KIB
    del tensors
    assert used(base) <= KIB
    assert torch.tpu.max_memory_allocated() - base >= 20 * 4 * KIB
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() - base <= 2 * KIB


def test_a_write_in_place_needs_no_second_buffer(base):
    x = torch.ones(64, KIB, device="tpu")
    x.add_(1)
    torch.tpu.synchronize()
    torch.tpu.reset_peak_memory_stats()
    for _ in range(5):
        x.mul_(2).add_(1)
        x[3] = 0
    assert used(base) <= 257 * KIB and torch.tpu.max_memory_allocated() - base < 300 * KIB
    same(x[:4, 0], torch.tensor([95.0, 95, 95, 0]))


def test_copies_share_memory_until_one_of_them_is_written(base):
    x = torch.ones(64, KIB, device="tpu")
    copies = [x.clone() for _ in range(10)]
    assert used(base) <= 257 * KIB
    copies[0].add_(1)
    assert 512 * KIB <= used(base) <= 514 * KIB
    same((x[0, 0], copies[1][0, 0], copies[0][0, 0]), (torch.tensor(1.0), torch.tensor(1.0), torch.tensor(2.0)))


def test_a_view_keeps_its_base_and_nothing_more(base):
    view = torch.ones(64, KIB, device="tpu")[3:4].t()
    assert 256 * KIB <= used(base) <= 257 * KIB
    view = view.clone(memory_format=torch.contiguous_format)
    assert used(base) <= 5 * KIB


def test_a_backward_gives_back_what_the_forward_saved(base):
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(4)]).to("tpu")
    held = used(base)
    for _ in range(3):
        loss = model(torch.ones(256, 32, device="tpu")).square().mean()
        loss.backward()
        del loss
        model.zero_grad()
    assert used(base) - held <= 2 * KIB
    assert torch.tpu.max_memory_allocated() - base >= held + 4 * 32 * KIB


def test_storage_that_is_resized_to_nothing_gives_its_memory_back(base):
    x = torch.ones(64, KIB, device="tpu")
    x.untyped_storage().resize_(0)
    assert used(base) <= KIB
    x.untyped_storage().resize_(256 * KIB)
    x.fill_(2)
    same(x[1, :2], torch.tensor([2.0, 2.0]))


def test_statistics_have_the_names_that_pytorch_reads(base):
    x = torch.ones(64, KIB, device="tpu")
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.tpu.memory_allocated() == torch.accelerator.memory_allocated()
    assert stats["allocated_bytes.all.peak"] == torch.tpu.max_memory_allocated() >= x.nbytes
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total
    torch.tpu.empty_cache()


def test_host_memory_stays_flat_over_many_transfers():
    x = torch.randn(2000)
    for _ in range(300):
        x.to("tpu").add_(1).cpu()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3000):
        x.to("tpu").add_(1).cpu()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024  # KiB, of 24,000 that went each way


@pytest.mark.parametrize("move",
                         [lambda x: x.to("tpu"), lambda x: x.to("tpu", non_blocking=True),
                          lambda x: x.pin_memory().to("tpu", non_blocking=True),
                                  lambda x: torch.empty_like(x, device="tpu").copy_(x, non_blocking=True),
                                  lambda x: x.double().to("tpu").float(),
                                  lambda x: x.reshape(100, -1).t().to("tpu").t().reshape(-1)])
def test_a_host_tensor_may_change_right_after_it_was_copied(move):
    for size in (10, 100, 200_000):
        x = torch.arange(float(size))
        y = move(x) + 1 if size == 100 else move(x) if size % 100 == 0 else x.to("tpu")
        x.fill_(-1)
        same(y, torch.arange(float(size)) + (size == 100), **EXACT)


def test_a_host_tensor_that_was_read_is_apart_from_the_device():
    x = torch.arange(1000.0, device="tpu")
    host = x.cpu()
    x.zero_()
    torch.tpu.synchronize()
    same(host, torch.arange(1000.0), **EXACT)
    host.fill_(7)
    assert not x.any()


@pytest.mark.parametrize("dtype",
                         [torch.bool, torch.int8, torch.uint16, torch.int64, torch.bfloat16, torch.float64,
                          torch.complex128,
                                   torch.float8_e4m3fn], ids=str)
def test_every_type_and_layout_crosses_unchanged(dtype):
    x = torch.randint(0, 2, (4, 6, 5)).to(dtype)
    for view in (x, x.transpose(0, 2), x[1:3, ::2], x[0, 0, 0], x[:0], x.expand(2, 4, 6, 5)):
        y = view.to("tpu")
        back = y.cpu()
        assert y.dtype is dtype and back.stride() == view.to("cpu", copy=True).stride()
        assert torch.equal(back.float() if dtype.itemsize == 1 else back, view.float() if dtype.itemsize == 1 else view)
        target = torch.zeros(view.shape, dtype=dtype)
        target.copy_(y)
        assert torch.equal(target.float() if dtype.itemsize == 1 else target,
                           back.float() if dtype.itemsize == 1 else back)


def test_a_limit_turns_into_an_out_of_memory_error(base):
    total = torch.tpu.mem_get_info()[1]
    try:
        torch.tpu.set_per_process_memory_fraction((torch.tpu.memory_allocated() + 300 * KIB) / total)
        x = torch.ones(64, KIB, device="tpu")
        with pytest.raises(torch.OutOfMemoryError):
            y = x + 1
            y.cpu()
    finally:
        torch.tpu.set_per_process_memory_fraction(1.0)
    same((x + 1)[0, :1], torch.tensor([2.0]))


def test_an_op_gives_its_arguments_back_however_it_ends(base):
    a, b = torch.eye(64, device="tpu"), torch.ones(64, 64, device="tpu")
    holders = a._use_count(), b._use_count()

    def refused():
        with pytest.raises(RuntimeError, match="broadcast"):
            a + torch.ones(3, device="tpu")

    def refused_in_place():
        with pytest.raises(RuntimeError, match="in-place"):
            torch.ones(64, 64, dtype=torch.int32, device="tpu").add_(b)

    def on_the_cpu():
        with torch.tpu.set_fallback("silent"):
            torch.linalg.eigvals(a)
        assert torch.tpu.fallbacks()

    def in_place():
        assert a.add_(b).sub_(b) is a

    for way in (lambda: a + b, in_place, lambda: torch.relu(a), refused, refused_in_place, on_the_cpu):
        for _ in range(3):
            way()
        assert (a._use_count(), b._use_count()) == holders, way
    assert torch.equal(a.cpu(), torch.eye(64))
    del a, b
    gc.collect()
    assert used(base) <= KIB
