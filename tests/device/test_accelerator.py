"""torch.accelerator, and torch.tpu's memory and random states: what generic code asks of whatever device there is."""
import gc
import pickle

import pytest
import torch
from child import run
from compare import EXACT, same

KIB = 1024


@pytest.fixture
def base():
    """Bytes that are in use before the test."""
    gc.collect()
    torch.tpu.synchronize()
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    return torch.accelerator.memory_allocated()


def test_the_accelerators_memory_is_the_devices(base):
    x = torch.ones(64, KIB).to("tpu")
    y = torch.ones(32, KIB).to("tpu")
    del y
    a = torch.accelerator
    assert a.memory_allocated() - base == a.memory_reserved() - base == x.nbytes == torch.tpu.memory_allocated() - base
    assert a.max_memory_allocated() - base == a.max_memory_reserved() - base == 96 * 4 * KIB
    stats = a.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == 96 * 4 * KIB and stats["allocated_bytes.all.freed"] == 32 * 4 * KIB
    assert stats["allocation.all.allocated"] == stats["num_device_alloc"] == 2 and stats["num_device_free"] == 1
    a.reset_peak_memory_stats()
    a.reset_accumulated_memory_stats()
    stats = a.memory_stats()
    assert stats["allocated_bytes.all.peak"] - base == x.nbytes and not stats["allocated_bytes.all.allocated"]
    assert torch.tpu.memory_stats() == stats
    a.empty_cache()
    a.empty_host_cache()
    same(x[0, 0], torch.tensor(1.0), **EXACT)


def test_free_memory_falls_by_what_is_allocated_up_to_the_limit(base):
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total and torch.tpu.mem_get_info() == (free, total)
    assert torch.tpu.get_device_properties().total_memory == total
    x = torch.ones(64, KIB).to("tpu")
    assert free - torch.accelerator.get_memory_info()[0] == x.nbytes


def test_a_limit_is_told_counted_and_taken_away(base):
    total = torch.tpu.mem_get_info()[1]
    try:
        torch.tpu.set_per_process_memory_fraction((base + 128 * KIB) / total)
        assert torch.tpu.get_per_process_memory_fraction() == pytest.approx((base + 128 * KIB) / total)
        assert torch.tpu.mem_get_info()[0] <= 128 * KIB
        x = torch.ones(16, KIB).to("tpu")
        with pytest.raises(torch.OutOfMemoryError, match="largest live tensors"):
            torch.ones(64, KIB).to("tpu")
        assert torch.tpu.memory_stats()["num_ooms"] == 1
    finally:
        torch.tpu.set_per_process_memory_fraction(1)
    torch.ones(64, KIB).to("tpu")
    same(x[0, 0], torch.tensor(1.0), **EXACT)
    with pytest.raises(ValueError, match="between 0 and 1"):
        torch.tpu.set_per_process_memory_fraction(1.5)


def test_a_snapshot_lists_every_live_value(base, tmp_path):
    x = torch.ones(3, 257, dtype=torch.bfloat16).to("tpu")
    segments = torch.tpu.memory_snapshot()
    assert sum(s["total_size"] for s in segments) == torch.tpu.memory_allocated()
    (block,) = [b for s in segments for b in s["blocks"] if b["shape"] == (3, 257)]
    assert block["size"] == x.nbytes and block["dtype"] == "bf16" and block["state"] == "active_allocated"
    torch.tpu.memory._dump_snapshot(tmp_path / "snapshot")
    assert pickle.loads((tmp_path / "snapshot").read_bytes())["segments"] == segments
    torch.tpu.memory._record_memory_history(enabled=None)
    with pytest.raises(NotImplementedError, match="no history"):
        torch.tpu.memory._record_memory_history()
    assert f"{torch.tpu.memory_allocated():,}" in torch.tpu.memory_summary()
    nested = torch.tpu.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == torch.tpu.memory_allocated()


def test_pinned_memory_is_counted():
    torch.tpu.reset_accumulated_host_memory_stats()
    torch.tpu.reset_peak_host_memory_stats()
    before = torch.tpu.host_memory_stats()
    x = torch.ones(1000).pin_memory()
    during = torch.tpu.host_memory_stats()
    assert during["active_bytes.current"] - before["active_bytes.current"] == x.nbytes
    del x
    after = torch.tpu.host_memory_stats()
    assert after["active_bytes.current"] == before["active_bytes.current"] and after["allocations.freed"] == 1
    assert after["active_bytes.peak"] == during["active_bytes.peak"] and after["allocated_bytes.freed"] == 4000


def test_a_block_as_large_as_all_weights_costs_nothing_until_it_is_written(base):
    """What Transformers' caching_allocator_warmup takes, and gives back at once."""
    block = torch.empty(2 * torch.tpu.mem_get_info()[1] // 2, dtype=torch.float16, device="tpu", requires_grad=False)
    assert torch.tpu.memory_allocated() == base and block.data_ptr()
    del block
    assert torch.tpu.max_memory_allocated() == base


def test_the_device_says_which_types_it_has():
    types = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn} <= types
    assert torch.qint8 not in types and torch.complex32 not in types
    for dtype in types:
        assert torch.empty(2, dtype=dtype, device="tpu").cpu().dtype is dtype


def test_several_devices_have_streams_memory_and_random_numbers_of_their_own():
    run("""
    a = torch.accelerator
    assert a.device_count() == torch.tpu.device_count() == 3 and a.current_device_index() == 0
    x = torch.full((100, 10), 2.0, device="tpu:1")
    torch.tpu.synchronize("tpu:1")
    assert (a.memory_allocated(0), a.memory_allocated(1), a.memory_allocated("tpu:2")) == (0, 4000, 0)
    with a.device_index(2):
        y = torch.ones(3, device="tpu")
        assert [z.device.index for z in (y, torch.empty_like(x), torch.ones(1, device=0))] == [2, 1, 0]
    assert torch.tpu.current_device() == 0
    a.set_device_index(2)
    assert torch.zeros(1, device="tpu").device.index == 2
    torch.tpu.set_device("tpu:0")
    for move in (lambda: x.to("tpu:0"), lambda: x.tpu(0), lambda: torch.empty(100, 10, device="tpu:0").copy_(x),
                 lambda: x.t().to("tpu:0").t(), lambda: x.to("tpu:0", torch.float64).float(),
                 lambda: x.to("tpu:0", memory_format=torch.contiguous_format, non_blocking=True)):
        there = move()
        assert there.device.index == 0 and there.sum().item() == 2000
    z = torch.zeros(4, 4, device="tpu:0")
    z[1:3, ::2] = torch.ones(2, 2, device="tpu:1")
    assert z.sum().item() == 4 and (x + torch.tensor(1.0)).device.index == 1
    kind, text = error(lambda: x + torch.ones(100, 10, device="tpu:0"))
    assert kind == "RuntimeError" and "same device" in text and "tpu:0" in text and "tpu:1" in text, text
    w = torch.ones(3, device="tpu:1", requires_grad=True)
    (w.to("tpu:2") * y * w.to("tpu:0").to("tpu:2")).sum().backward()
    assert w.grad.device.index == 1 and w.grad.tolist() == [2, 2, 2]
    for bad in (3, "tpu:3"):
        kind, text = error(lambda: torch.tpu.synchronize(bad))
        assert kind == "RuntimeError" and "tpu:3 does not exist: there are 3 devices" in text, text

    torch.manual_seed(1)
    first = [torch.rand(3, device=f"tpu:{i}").cpu() for i in range(3)]
    assert all(torch.equal(first[0], other) for other in first)
    states = torch.tpu.get_rng_state_all()
    drawn = [torch.rand(2, device=f"tpu:{i}").cpu() for i in range(3)]
    torch.tpu.set_rng_state_all(states)
    with torch.random.fork_rng(devices=[0, 1], device_type="tpu"):
        torch.rand(2, device="tpu:0"), torch.rand(2, device="tpu:1")
    assert all(torch.equal(torch.rand(2, device=f"tpu:{i}").cpu(), drawn[i]) for i in range(3))
    torch.tpu.manual_seed_all(7)
    assert [g.initial_seed() for g in (torch.tpu.default_generators[i] for i in range(3))] == [7, 7, 7]
    generator = torch.Generator("tpu:2")
    assert generator.device == torch.device("tpu:2")
    assert torch.rand(1, device="tpu:2", generator=generator).device.index == 2

    layer = torch.nn.Linear(10, 2).to("tpu:1")
    assert layer(x).device.index == 1 and layer.to("tpu:2").weight.device.index == 2
    """, TORCH_PJRT_CPU_DEVICES="3")


@pytest.mark.parametrize("mask, devices, count", [("1", None, 1), ("0,1", None, 2), ("0, 2", "4", 2), ("", "2", 2)])
def test_a_mask_of_chips_makes_only_those_visible(mask, devices, count):
    environment = {"TPU_VISIBLE_CHIPS": mask} | ({"TORCH_PJRT_CPU_DEVICES": devices} if devices else {})
    run(f"""
    assert torch.tpu.device_count() == {count}, torch.tpu.device_count()
    assert (torch.ones(2, device="tpu:{count - 1}") + 1).sum().item() == 4
    """, **environment)


@pytest.mark.parametrize("mask, devices, words", [
    ("0,4", "4", "chips 0 to 3"), ("two", None, "two"), ("0,0", None, "twice"), ("-1", None, "-1")])
def test_a_wrong_mask_is_told(mask, devices, words):
    environment = {"TPU_VISIBLE_CHIPS": mask} | ({"TORCH_PJRT_CPU_DEVICES": devices} if devices else {})
    run(f"""
    kind, text = error(lambda: torch.ones(2, device="tpu"))
    assert kind in ("ValueError", "RuntimeError") and "TPU_VISIBLE_CHIPS" in text and {words!r} in text, (kind, text)
    """, **environment)


# ---- random states ---------------------------------------------------------------------------------------------------


def test_a_generator_is_seeded_copied_and_pickled_with_its_place():
    g = torch.Generator("tpu").manual_seed(2**63)
    torch.rand(5, generator=g, device="tpu")
    twins = [g.clone_state(), pickle.loads(pickle.dumps(g)), torch.Generator("tpu")]
    twins[2].set_state(g.get_state())
    expected = torch.randn(4, generator=g, device="tpu").cpu()
    for twin in twins:
        assert twin.device.type == "tpu" and twin.initial_seed() == 2**63
        same(torch.randn(4, generator=twin, device="tpu"), expected, **EXACT)
    assert g.get_state().numel() == 16 and torch.Generator("tpu").seed() != torch.Generator("tpu").seed()
    with pytest.raises(RuntimeError, match="16 bytes"):
        g.set_state(torch.zeros(5, dtype=torch.uint8))
    with pytest.raises(TypeError):
        g.set_state(torch.zeros(16))


def test_the_states_of_torch_tpu_are_those_of_its_generator():
    torch.tpu.random.manual_seed(5)
    assert torch.tpu.initial_seed() == 5 == torch.tpu.default_generators[0].initial_seed()
    state = torch.tpu.get_rng_state()
    a = torch.rand(3, device="tpu")
    torch.tpu.set_rng_state(state, "tpu:0")
    same(torch.rand(3, device="tpu"), a.cpu(), **EXACT)
    torch.tpu.seed()
    torch.tpu.seed_all()
    assert torch.tpu.initial_seed() != 5
    torch.manual_seed(9)
    assert torch.tpu.initial_seed() == 9
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.manual_seed(1)
    assert torch.tpu.initial_seed() == 9


# ---- addresses -------------------------------------------------------------------------------------------------------


def test_an_address_belongs_to_one_storage_for_its_life():
    x, y = torch.ones(4, 6, device="tpu"), torch.ones(4, 6, device="tpu")
    address = x.data_ptr()
    assert address and address % 512 == 0 and address != y.data_ptr() == y.untyped_storage().data_ptr()
    x.add_(1)
    x[0] = 3
    x.mul_(y).zero_()
    assert x.data_ptr() == address
    views = [x[2:], x.t(), x.view(-1)[5:], x[1, 1:], x.detach(), x.data]
    host = torch.ones(4, 6)
    others = [host[2:], host.t(), host.view(-1)[5:], host[1, 1:], host.detach(), host.data]
    assert [v.data_ptr() - address for v in views] == [o.data_ptr() - host.data_ptr() for o in others]
    for copy in (x.clone(), x.to(torch.float64), x.t().contiguous(), torch.empty_like(x)):
        assert copy.data_ptr() and copy.data_ptr() // 4096 != 0 and copy.untyped_storage().data_ptr() != address
    assert torch.empty(0, device="tpu").data_ptr() == torch.empty(0).data_ptr() == 0


def test_addresses_are_not_given_again_and_ranges_do_not_overlap():
    kept = [torch.empty(size, dtype=torch.uint8, device="tpu") for size in (1, 511, 512, 513, 10**9, 7)]
    seen = {torch.empty(3, device="tpu").data_ptr() for _ in range(200)}
    assert len(seen) == 200
    ranges = sorted((x.data_ptr(), x.data_ptr() + x.nbytes) for x in kept)
    assert all(end <= begin for (_, end), (begin, _) in zip(ranges, ranges[1:]))


def test_an_address_is_never_readable():
    """No process has user memory from 2^48 up on x86-64: reading there is a fault, never a wrong number."""
    assert all(torch.ones(n, device="tpu").data_ptr() >= 2**48 for n in (1, 1000, 10**6))


def test_a_generator_is_of_a_device_that_there_is():
    with pytest.raises(RuntimeError, match="tpu:7"):
        torch.Generator("tpu:7")
    assert torch.Generator("tpu:0").device == torch.device("tpu:0")


def test_a_snapshot_lists_what_is_on_every_device():
    run("""
    x, y = torch.ones(3, device="tpu:1"), torch.ones(5, device="tpu:0")
    [torch.tpu.synchronize(i) for i in range(2)]
    assert sorted((s["device"], s["total_size"]) for s in torch.tpu.memory_snapshot()) == [(0, 20), (1, 12)]
    assert [s["total_size"] for s in torch.tpu.memory_snapshot(1)] == [12]
    """, TORCH_PJRT_CPU_DEVICES="2")
