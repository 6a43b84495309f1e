"""Bad input: told at the call in a sentence, as the exception type of the CPU; the next op works."""
import pytest
import torch
import torch_pjrt  # noqa: F401
from child import run

D = "tpu"


@pytest.fixture(autouse=True)
def device_still_works():
    yield
    assert (torch.ones(3, device=D) + 1).tolist() == [2, 2, 2]


def a(*sizes, dtype=torch.float32, device=D):
    return torch.ones(*sizes, dtype=dtype, device=device)


# ---- devices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", [
    lambda: a(2, device="tpu:7"), lambda: a(2, device="tpu:400"), lambda: a(2, device="cpu").to("tpu:5"),
    lambda: torch.tpu.set_device(9), lambda: torch.tpu.synchronize("tpu:400"), lambda: torch.tpu.memory_allocated(300),
    lambda: torch.tpu.memory_allocated(2**40), lambda: torch.tpu.get_device_name(3), lambda: torch.tpu.synchronize(-5),
    lambda: torch.tpu.get_rng_state(4), lambda: torch.tpu.current_stream(2), lambda: torch.tpu.device(6).__enter__()])
def test_an_unknown_device_index_is_told(use):
    with pytest.raises(RuntimeError, match="does not exist: there are 1 devices"):
        use()


def test_generators_end():
    assert len(list(torch.tpu.default_generators)) == torch.tpu.device_count()


@pytest.mark.parametrize("op", [
    lambda x, y: x + y, lambda x, y: y + x, lambda x, y: x @ y, lambda x, y: y @ x, lambda x, y: torch.cat([x, y]),
    lambda x, y: torch.cat([y, x]), lambda x, y: y.add_(x), lambda x, y: x.mul_(y), lambda x, y: torch.where(y > 0, x, x),
    lambda x, y: torch.add(x, x, out=y), lambda x, y: torch.add(y, y, out=x), lambda x, y: torch.addmm(x, x, y),
    lambda x, y: torch.nn.functional.linear(x, x, y[0]), lambda x, y: torch.nn.functional.embedding(y.long(), x),
    lambda x, y: x.index_put_((torch.tensor([0]),), y[0]), lambda x, y: y[x.long()], lambda x, y: torch._foreach_add([x], [y]),
    lambda x, y: torch.stack([x, y]), lambda x, y: x.masked_scatter(x > 0, y), lambda x, y: torch.lerp(x, y, 0.5)])
def test_tensors_of_two_devices_in_one_op_are_told_with_both_devices(op):
    with pytest.raises(RuntimeError, match="same device.*(tpu:0.*cpu|cpu.*tpu)"):
        op(a(2, 2), a(2, 2, device="cpu"))


def test_two_tpu_devices():
    run("""
    x, y = torch.ones(3, device="tpu:0"), torch.full((3,), 2.0, device="tpu:1")
    assert torch.tpu.device_count() == 2 and y.device == torch.device("tpu:1") and (y + 1).device.index == 1
    kind, text = error(lambda: x + y)
    assert kind == "RuntimeError" and "tpu:0 and tpu:1" in text, (kind, text)
    for op in (lambda: x @ y, lambda: torch.cat([x, y]), lambda: x.add_(y), lambda: torch.add(y, y, out=x)):
        kind, text = error(op)
        assert kind == "RuntimeError" and "same device" in text and "tpu:0" in text and "tpu:1" in text, (kind, text)
    assert x.tolist() == [1, 1, 1]
    z = y.to("tpu:0")
    assert z.device.index == 0 and (x + z).tolist() == [3, 3, 3]
    x.copy_(y * 5)
    assert x.tolist() == [10, 10, 10] and x.device.index == 0
    wide = torch.arange(12.0, device="tpu:1").reshape(3, 4)
    target = torch.zeros(4, 3, device="tpu:0")
    target[1:, ::2].copy_(wide.t()[1:, ::2])
    want = torch.zeros(4, 3)
    want[1:, ::2].copy_(torch.arange(12.0).reshape(3, 4).t()[1:, ::2])
    assert torch.equal(target.cpu(), want)
    with torch.tpu.device(1):
        assert torch.ones(2, device="tpu").device.index == 1 and torch.tpu.current_device() == 1
    assert torch.tpu.current_device() == 0
    w = torch.ones(3, device="tpu:0", requires_grad=True)
    (w.to("tpu:1") * y).sum().backward()
    assert w.grad.device.index == 0 and w.grad.tolist() == [2, 2, 2]
    torch.manual_seed(3); p = torch.rand(4, device="tpu:1"); torch.manual_seed(3)
    assert torch.equal(p, torch.rand(4, device="tpu:1"))
    torch.tpu.synchronize(0); torch.tpu.synchronize(1)
    """, TORCH_PJRT_CPU_DEVICES="2")


# ---- types, sizes and layouts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda d: torch.zeros(2, dtype=torch.complex32, device=d), lambda d: torch.zeros(2, dtype=torch.complex32).to(d),
    lambda d: torch.empty(2, dtype=torch.uint4, device=d), lambda d: torch.zeros(2, dtype=torch.bits8, device=d),
    lambda d: torch.zeros(2, dtype=torch.float4_e2m1fn_x2, device=d), lambda d: a(2).to(torch.complex32),
    lambda d: torch.quantize_per_tensor(a(3), 0.1, 0, torch.qint8), lambda d: a(2).view(torch.complex32) * 2])
def test_a_type_that_the_device_does_not_have_is_named(make):
    with pytest.raises((TypeError, RuntimeError), match="the tpu device has no tensors of type"):
        make(D)


@pytest.mark.parametrize("make", [
    lambda: torch.eye(3).to_sparse().to(D), lambda: a(3, 3).to_sparse(), lambda: torch.eye(3).to_sparse_csr().to(D) * 2,
    lambda: torch.sparse_coo_tensor(a(1, 1).long() * 0, a(1), (2,)), lambda: torch.empty(2, layout=torch.sparse_coo, device=D),
    lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).to(D),
    lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device=D) * 2])
def test_a_layout_that_the_device_does_not_have_is_named(make):
    with pytest.raises(NotImplementedError, match="the tpu device has (no|only).* tensors|Unsupported device type"):
        make()


@pytest.mark.parametrize("make", [
    lambda: a(*[1] * 17), lambda: a(1).reshape([1] * 17) + 1, lambda: torch.ones([1] * 17).to(D),
    lambda: a(*[1] * 16)[None] * a(2), lambda: a(2).expand([2] * 17).sum()])
def test_more_than_16_dimensions_are_told(make):
    with pytest.raises(RuntimeError, match="16"):
        make()


@pytest.mark.parametrize("make", [
    lambda d: torch.ones(-1, device=d), lambda d: torch.empty(2, -3, device=d), lambda d: torch.empty(2**62, device=d),
    lambda d: torch.empty(2**40, 2**40, device=d), lambda d: torch.empty_strided((2,), (-1,), device=d),
    lambda d: torch.empty_strided((2, 2), (1,), device=d), lambda d: torch.zeros(2, 3, device=d).resize_(-1),
    lambda d: torch.arange(0, 5, -1, device=d), lambda d: torch.arange(0, 5, 0, device=d),
    lambda d: torch.linspace(0, 1, -1, device=d), lambda d: torch.eye(-1, device=d), lambda d: torch.randint(5, 5, (2,), device=d),
    lambda d: torch.randperm(-1, device=d), lambda d: torch.full((2,), "a", device=d),
    lambda d: torch.ones(4, device=d).as_strided((3,), (-1,)), lambda d: torch.ones(4, device=d).as_strided((3,), (1,), -2),
    lambda d: torch.ones(4, device=d).as_strided((9,), (1,)), lambda d: torch.ones(4, device=d).as_strided((3,), (2**61,)),
    lambda d: torch.ones(6, device=d).view(4, -1), lambda d: torch.ones(6, device=d).view(-1, -1),
    lambda d: torch.ones(6, device=d).expand(3), lambda d: torch.ones(6, device=d).unfold(0, 7, 1),
    lambda d: torch.ones(6, device=d).unfold(0, 2, 0), lambda d: torch.ones(6, device=d).narrow(0, 4, 3),
    lambda d: torch.ones(6, device=d).select(0, 6), lambda d: torch.ones(3, device=d).view(torch.float64),
    lambda d: torch.ones(2, 3, device=d).permute(0, 0), lambda d: torch.ones(2, 3, device=d).squeeze(5),
    lambda d: torch.ones(2, 3, device=d).unsqueeze(4), lambda d: torch.ones(2, 3, device=d).movedim(0, 3),
    lambda d: torch.ones(2, 3, device=d).repeat(-1, 2), lambda d: torch.ones(2, 3, device=d).repeat(2),
    lambda d: torch.ones(2, 3, device=d).split(-1), lambda d: torch.ones(2, 3, device=d).chunk(0),
    lambda d: torch.ones(2, 3, device=d)[2], lambda d: torch.ones(2, 3, device=d)[0, 0, 0],
    lambda d: torch.ones(2, 3, device=d)["a"], lambda d: torch.ones(2, 3, device=d)[1.5],
    lambda d: torch.ones(2, 3, device=d)[torch.ones(3, dtype=torch.bool, device=d)],
    lambda d: torch.ones(2, 3, device=d).__setitem__((0, slice(0, 3)), torch.ones(2, device=d)),
    lambda d: torch.ones(2, 3, device=d).flip(0, 0), lambda d: torch.ones(2, 3, device=d).roll(1, 5),
    lambda d: torch.ones(2, 3, device=d).scatter(0, torch.zeros(3, 3, dtype=torch.long, device=d), torch.ones(2, 3, device=d)),
    lambda d: torch.ones(2, 3, device=d).gather(0, torch.zeros(2, 2, device=d)),
    lambda d: torch.ones(2, 3, device=d).index_select(0, torch.zeros(1, device=d)),
    lambda d: torch.ones(2, 3, device=d).index_select(0, torch.zeros(1, 1, dtype=torch.long, device=d)),
    lambda d: torch.ones(2, 3, device=d).take(torch.ones(1, device=d)),
    lambda d: torch.ones(2, 3, device=d).diagonal(0, 1, 1), lambda d: torch.ones(3, device=d).diagonal()])
def test_bad_sizes_dimensions_and_indices_raise_what_the_cpu_raises(make):
    with pytest.raises(Exception) as on_cpu:
        make("cpu")
    with pytest.raises(type(on_cpu.value)):
        make(D)


F = torch.nn.functional


@pytest.mark.parametrize("call", [
    lambda d: F.conv2d(a(1, 3, 4, 4, device=d), a(2, 3, 3, 3, device=d), padding=-1),
    lambda d: F.conv2d(a(1, 3, 4, 4, device=d), a(2, 3, 3, 3, device=d), stride=0),
    lambda d: F.conv2d(a(1, 3, 4, 4, device=d), a(2, 3, 3, 3, device=d), dilation=0),
    lambda d: F.conv2d(a(1, 3, 4, 4, device=d), a(2, 3, 7, 7, device=d)),
    lambda d: F.conv2d(a(1, 3, 4, 4, device=d), a(3, 1, 3, 3, device=d), groups=2),
    lambda d: F.conv2d(a(1, 3, 4, 4, device=d), a(2, 3, 3, 3, device=d), bias=a(3, device=d)),
    lambda d: F.conv2d(a(1, 3, 4, 4, device=d), a(2, 3, 3, 3, dtype=torch.float64, device=d)),
    lambda d: F.max_pool2d(a(1, 3, 4, 4, device=d), 2, padding=2), lambda d: F.max_pool2d(a(1, 3, 4, 4, device=d), 0),
    lambda d: F.max_pool2d(a(1, 3, 4, 4, device=d), 9), lambda d: F.avg_pool2d(a(1, 3, 4, 4, device=d), 2, stride=-1),
    lambda d: F.pad(a(2, 3, device=d), (-4, 0)), lambda d: F.pad(a(1, 2, 3, device=d), (3, 0), mode="reflect"),
    lambda d: F.pad(a(2, 3, device=d), (1,)), lambda d: F.interpolate(a(1, 1, 2, 2, device=d), size=(0, 2)),
    lambda d: F.layer_norm(a(2, 3, device=d), (4,)), lambda d: F.batch_norm(a(1, 3, device=d), None, None, training=True),
    lambda d: F.group_norm(a(1, 3, 2, device=d), 2), lambda d: F.softmax(a(2, device=d), 3),
    lambda d: F.nll_loss(a(3, 5, device=d), a(2, dtype=torch.long, device=d)),
    lambda d: F.cross_entropy(a(3, 5, device=d), a(3, dtype=torch.int32, device=d)),
    lambda d: F.mse_loss(a(3, device=d), a(2, device=d)), lambda d: F.dropout(a(3, device=d), 1.5),
    lambda d: F.embedding(a(3, device=d), a(4, 2, device=d)), lambda d: F.one_hot(a(3, device=d)),
    lambda d: F.scaled_dot_product_attention(a(1, 1, 2, 4, device=d), a(1, 1, 2, 5, device=d), a(1, 1, 2, 4, device=d)),
    lambda d: torch.bmm(a(2, 2, 2, device=d), a(3, 2, 2, device=d)), lambda d: torch.mm(a(2, 2, device=d), a(2, device=d)),
    lambda d: torch.mm(a(2, 2, device=d), a(2, 2, dtype=torch.float64, device=d)),
    lambda d: torch.addmm(a(3, device=d), a(2, 2, device=d), a(2, 2, device=d)),
    lambda d: torch.dot(a(2, device=d), a(3, device=d)), lambda d: torch.einsum("ij,jk->ik", a(2, 3, device=d), a(2, 3, device=d)),
    lambda d: torch.linalg.cholesky(a(2, 3, device=d)), lambda d: torch.linalg.solve(a(2, 2, device=d), a(3, device=d)),
    lambda d: torch.multinomial(a(3, device=d), 4), lambda d: torch.multinomial(a(3, device=d), 0),
    lambda d: torch.bernoulli(a(3, device=d), 2.0), lambda d: torch.normal(a(3, device=d), -1.0),
    lambda d: a(3, device=d).uniform_(1, 0), lambda d: a(3, device=d).exponential_(-1), lambda d: a(3, device=d).random_(5, 2),
    lambda d: a(3, dtype=torch.long, device=d).normal_(), lambda d: torch.topk(a(3, device=d), 4),
    lambda d: torch.kthvalue(a(3, device=d), 4), lambda d: torch.sort(a(3, device=d), dim=2), lambda d: a(0, device=d).max(),
    lambda d: a(0, 3, device=d).argmax(0), lambda d: a(2, 3, device=d).sum((0, 0)), lambda d: a(3, device=d).cumsum(1),
    lambda d: a(3, dtype=torch.long, device=d).mean(), lambda d: a(3, device=d) << 1, lambda d: ~a(3, device=d),
    lambda d: a(3, device=d) & a(3, device=d), lambda d: a(3, device=d).bool() - a(3, device=d).bool(),
    lambda d: -a(3, device=d).bool(), lambda d: torch.clamp(a(3, device=d)), lambda d: a(3, device=d).fill_(a(2, device=d)),
    lambda d: a(3, dtype=torch.long, device=d).div_(2), lambda d: a(3, dtype=torch.long, device=d) ** -1,
    lambda d: a(3, device=d).add(a(3, device=d), alpha="x"), lambda d: a(3, device=d).bool().add(True, alpha=2.5),
    lambda d: a(3, dtype=torch.uint8, device=d).fill_(1j), lambda d: torch.complex(a(2, device=d), a(2, device=d).double()),
    lambda d: torch.stack([]), lambda d: torch.cat([a(2, device=d), a(2, 2, device=d)]), lambda d: torch.stack([a(2, device=d), a(3, device=d)]),
    lambda d: torch.meshgrid(a(2, 2, device=d), indexing="ij"), lambda d: torch.tril(a(2, device=d)),
    lambda d: torch.histc(a(3, device=d), 0), lambda d: torch.bincount(a(3, device=d)), lambda d: torch.bincount(-a(3, dtype=torch.long, device=d)),
    lambda d: torch.searchsorted(a(3, device=d), a(3, device=d), right=True, side="left"),
    lambda d: torch.fft.fft(a(0, device=d)), lambda d: torch.fft.fft(a(3, device=d), n=-2), lambda d: bool(a(2, device=d)),
    lambda d: int(a(2, device=d)), lambda d: float(1j * a(1, device=d)), lambda d: len(a(1, device=d)[0]),
    lambda d: list(a(1, device=d)[0]), lambda d: a(3, device=d).requires_grad_().numpy(),
    lambda d: a(3, device=d).requires_grad_().add_(1), lambda d: a(3, dtype=torch.long, device=d).requires_grad_(),
    lambda d: a(2, device=d).requires_grad_().mul(2).backward(), lambda d: a(3, device=d).backward(),
    lambda d: a(3, device=d).expand(2, 3).add_(1), lambda d: a(4, device=d)[:3].copy_(a(4, device=d)),
    lambda d: torch.add(a(3, device=d), 1, out=a(3, dtype=torch.long, device=d)), lambda d: a(3, device=d).set_(a(3, device=d).long()),
    lambda d: torch.tensor([1, [2]], device=d), lambda d: torch.tensor("a", device=d), lambda d: torch.as_tensor(object(), device=d)])
def test_bad_calls_raise_what_the_cpu_raises(call):
    with pytest.raises(Exception) as on_cpu:
        call("cpu")
    with pytest.raises(type(on_cpu.value)):
        call(D)


def test_tpu_memory_is_no_numpy_and_no_pointer():
    x = a(3)
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()
    assert x.data_ptr() >= 2**48
    with pytest.raises((TypeError, RuntimeError, BufferError)):
        import numpy
        numpy.from_dlpack(x)


# ---- hard days -------------------------------------------------------------------------------------------------------


def test_out_of_memory_names_the_five_largest_tensors_and_the_tensors_stay():
    run("""
    kept = [torch.full((1 << 10 + i,), float(i), device="tpu") for i in range(7)]
    torch.tpu.synchronize()
    total = torch.tpu.mem_get_info()[1]
    limit = 4 << 20
    for _ in range(2):  # the fraction is of the device, not of an earlier limit
        torch.tpu.set_per_process_memory_fraction(limit / total)
    free, same_total = torch.tpu.mem_get_info()
    assert same_total == total and free < limit
    base = torch.ones(1 << 18, device="tpu")
    used = torch.tpu.memory_allocated()
    for grow in (lambda: torch.cat([base] * 4), lambda: torch.ones(1 << 21, device="tpu"), lambda: base.repeat(8),
                 lambda: torch.ones(1 << 20).to("tpu"), lambda: torch.zeros(1 << 20, device="tpu")):
        kind, text = error(grow)
        assert kind == "OutOfMemoryError" and "tpu:0 out of memory: tried to allocate" in text, (kind, text)
        assert "f32[262144] 1.00 MiB, f32[65536] 0.25 MiB, f32[32768] 0.12 MiB, f32[16384]" in text, text
        assert "set_per_process_memory_fraction" in text
    kind, text = error(lambda: base.resize_(1 << 20).add_(1))
    assert kind == "OutOfMemoryError", (kind, text)
    assert torch.tpu.memory_allocated() == used
    assert [x[-1].item() for x in kept] == list(range(7))
    base = None
    works()
    torch.tpu.set_per_process_memory_fraction(1.0)
    assert torch.ones(1 << 21, device="tpu").sum().item() == 1 << 21
    assert [error(torch.tpu.set_per_process_memory_fraction, f)[0] for f in (-0.1, 1.1, float("nan"))] == ["ValueError"] * 3
    """)


def test_memory_that_the_plugin_does_not_have_is_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(2**42, device=D).add(1).sum().item()
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(2**42, device=D).add_(1)[0].item()


@pytest.mark.parametrize("fault, kind, words", [
    ("abort", "RuntimeError", "Check failed: this program is well formed"), ("exit", "RuntimeError", "exit status 3"),
    ("garbage", "RuntimeError", "was stopped"), ("lie", "RuntimeError", "worker"),
    ("memory", "OutOfMemoryError", "the compiler ran out of memory"), ("hang", "RuntimeError", "took longer than")])
def test_a_compiler_that_dies_is_an_exception_and_in_place_targets_keep_their_values(fault, kind, words):
    run(f"""
    import os
    x = torch.arange(4096.0).to("tpu")  # no compile; large enough to be donated
    view = x[8:]
    want = torch.arange(4096.0)
    for write in (lambda: x.mul_(2), lambda: view.copy_(x[:-8]), lambda: x.mul_(2)):
        got, text = error(write)
        assert got == {kind!r} and {words!r} in text and "could not be compiled" in text, (got, text)
        assert torch.equal(x.cpu(), want)
    assert 2 <= torch.tpu.counters()["worker_failures"] <= 3
    del os.environ["PJ_WORKER_FAULT"]
    view.mul_(3)
    want[8:].mul_(3)
    assert torch.equal(x.cpu(), want)
    works()
    """, PJ_WORKER_FAULT=fault, TORCH_PJRT_CACHE_DIR="", TORCH_PJRT_COMPILE_TIMEOUT_MS="500" if fault == "hang" else "60000",
        TORCH_PJRT_WORKER_BYTES=str(1 << 28) if fault == "memory" else "0")


def test_a_failed_region_tells_every_reader_and_the_next_one_works():
    run("""
    import os
    torch.tpu.set_eager_mode("fused", 64)
    x = torch.arange(4096.0).to("tpu")
    y = x * 2
    z = (y + 1).sum()
    for use in (y.cpu, z.item, lambda: (y * z).cpu(), lambda: repr(z)):
        kind, text = error(use)
        assert kind == "RuntimeError" and "could not be compiled" in text, (kind, text)
    del os.environ["PJ_WORKER_FAULT"]
    assert (x + 3)[1].item() == 4
    """, PJ_WORKER_FAULT="abort", TORCH_PJRT_CACHE_DIR="")


INTERRUPT = """
import os, signal, threading, time

def interrupted(f):
    def interrupt():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    start = time.monotonic()
    try:
        f()
    except KeyboardInterrupt:
        return time.monotonic() - start
    raise AssertionError("it was not interrupted")
"""


def test_ctrl_c_ends_a_long_compile_and_the_target_keeps_its_value():
    run(INTERRUPT + """
x = torch.arange(4096.0).to("tpu")
assert interrupted(lambda: x.mul_(2)) < 10  # of the 10 minutes that a compile may take
del os.environ["PJ_WORKER_FAULT"]
assert torch.equal(x.cpu(), torch.arange(4096.0))
x.mul_(2)  # the program is not held to be bad
assert torch.equal(x.cpu(), 2 * torch.arange(4096.0))
works()
    """, PJ_WORKER_FAULT="hang", TORCH_PJRT_CACHE_DIR="")


def test_ctrl_c_ends_a_long_wait_and_the_next_op_works():
    run(INTERRUPT + """
works()
torch.tpu.set_eager_mode("fused", 1000)
y = torch.zeros(3000, 3000).to("tpu")
for _ in range(100):  # 5 TFlop in one program
    y = y @ y
event = torch.tpu.Event()
event.record()
assert interrupted(y.cpu) < 30  # the compile, and then one tick
assert interrupted(torch.tpu.synchronize) < 2
assert not event.query()
works()
os._exit(0)  # without waiting for the rest
    """)
