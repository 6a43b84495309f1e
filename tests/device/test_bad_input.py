"""Bad input: told at the call in a sentence, as the exception type of the CPU; the next op works."""
import pytest
import torch
import torch_pjrt  # noqa: F401
from child import run

D = "tpu"
F = torch.nn.functional


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
    lambda x, y: torch.cat([y, x]), lambda x, y: y.add_(x), lambda x, y: x.mul_(y),
    lambda x, y: torch.where(y > 0, x, x),
    lambda x, y: torch.add(x, x, out=y), lambda x, y: torch.add(y, y, out=x), lambda x, y: torch.addmm(x, x, y),
    lambda x, y: torch.nn.functional.linear(x, x, y[0]), lambda x, y: torch.nn.functional.embedding(y.long(), x),
    lambda x, y: x.index_put_((torch.tensor([0]),), y[0]), lambda x, y: y[x.long()],
    lambda x, y: torch._foreach_add([x], [y]),
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
    lambda d: torch.quantize_per_tensor(a(3), 0.1, 0, torch.qint8), lambda d: torch.neg(a(2).view(torch.complex32))])
def test_a_type_that_the_device_does_not_have_is_named(make):
    with pytest.raises((TypeError, RuntimeError), match="the tpu device has no tensors of type"):
        make(D)


@pytest.mark.parametrize("make", [
    lambda: a(3, 3).to_sparse() @ a(3, 3), lambda: a(3, 3).to_sparse().sin(), lambda: torch.eye(3).to_sparse_csr().to(D)._nnz(),
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


# torch.float and the like would hide Python's.
NAMES = {k: v for k, v in vars(torch).items() if k not in ("float", "int", "bool")}


def on(device, expression):
    with torch.device(device):
        return eval(expression, {"F": F, **NAMES})


SIZES = """
ones(-1)
empty(2, -3)
empty(2**62)
empty(2**40, 2**40)
empty_strided((2,), (-1,))
empty_strided((2, 2), (1,))
zeros(2, 3).resize_(-1)
arange(0, 5, -1)
arange(0, 5, 0)
linspace(0, 1, -1)
eye(-1)
randint(5, 5, (2,))
randperm(-1)
full((2,), "a")
ones(4).as_strided((3,), (-1,))
ones(4).as_strided((3,), (1,), -2)
ones(4).as_strided((9,), (1,))
zeros(4).set_(ones(9).untyped_storage(), 1, (3,), (-1,))
ones(4).as_strided((3,), (2**61,))
ones(6).view(4, -1)
ones(6).view(-1, -1)
ones(6).expand(3)
ones(6).unfold(0, 7, 1)
ones(6).unfold(0, 2, 0)
ones(6).narrow(0, 4, 3)
ones(6).select(0, 6)
ones(3).view(float64)
ones(2, 3).permute(0, 0)
ones(2, 3).squeeze(5)
ones(2, 3).unsqueeze(4)
ones(2, 3).movedim(0, 3)
ones(2, 3).repeat(-1, 2)
ones(2, 3).repeat(2)
ones(2, 3).split(-1)
ones(2, 3).chunk(0)
ones(2, 3)[2]
ones(2, 3)[0, 0, 0]
ones(2, 3)["a"]
ones(2, 3)[1.5]
ones(2, 3)[ones(3, dtype=bool)]
ones(2, 3).__setitem__((0, slice(0, 3)), ones(2))
ones(2, 3).flip(0, 0)
ones(2, 3).roll(1, 5)
ones(2, 3).scatter(0, zeros(3, 3, dtype=long), ones(2, 3))
ones(2, 3).gather(0, zeros(2, 2))
ones(2, 3).index_select(0, zeros(1))
ones(2, 3).index_select(0, zeros(1, 1, dtype=long))
ones(2, 3).take(ones(1))
ones(2, 3).diagonal(0, 1, 1)
ones(3).diagonal()
""".strip().splitlines()


CALLS = """
F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), padding=-1)
F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), stride=0)
F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), dilation=0)
F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 7, 7))
F.conv2d(ones(1, 3, 4, 4), ones(3, 1, 3, 3), groups=2)
F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3), bias=ones(3))
F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 3, 3, dtype=float64))
F.max_pool2d(ones(1, 3, 4, 4), 2, padding=2)
F.max_pool2d(ones(1, 3, 4, 4), 0)
F.max_pool2d(ones(1, 3, 4, 4), 9)
F.avg_pool2d(ones(1, 3, 4, 4), 2, stride=-1)
F.pad(ones(2, 3), (-4, 0))
F.pad(ones(1, 2, 3), (3, 0), mode="reflect")
F.pad(ones(2, 3), (1,))
F.interpolate(ones(1, 1, 2, 2), size=(0, 2))
F.layer_norm(ones(2, 3), (4,))
F.batch_norm(ones(1, 3), None, None, training=True)
F.group_norm(ones(1, 3, 2), 2)
F.softmax(ones(2), 3)
F.nll_loss(ones(3, 5), ones(2, dtype=long))
F.cross_entropy(ones(3, 5), ones(3, dtype=int32))
F.mse_loss(ones(3), ones(2))
F.dropout(ones(3), 1.5)
F.embedding(ones(3), ones(4, 2))
F.one_hot(ones(3))
F.scaled_dot_product_attention(ones(1, 1, 2, 4), ones(1, 1, 2, 5), ones(1, 1, 2, 4))
bmm(ones(2, 2, 2), ones(3, 2, 2))
mm(ones(2, 2), ones(2))
mm(ones(2, 2), ones(2, 2, dtype=float64))
addmm(ones(3), ones(2, 2), ones(2, 2))
dot(ones(2), ones(3))
einsum("ij,jk->ik", ones(2, 3), ones(2, 3))
linalg.cholesky(ones(2, 3))
linalg.solve(ones(2, 2), ones(3))
multinomial(ones(3), 4)
multinomial(ones(3), 0)
bernoulli(ones(3), 2.0)
normal(ones(3), -1.0)
ones(3).uniform_(1, 0)
ones(3).exponential_(-1)
ones(3).random_(5, 2)
ones(3, dtype=long).normal_()
topk(ones(3), 4)
kthvalue(ones(3), 4)
sort(ones(3), dim=2)
ones(0).max()
ones(0, 3).argmax(0)
ones(2, 3).sum((0, 0))
ones(3).cumsum(1)
ones(3, dtype=long).mean()
ones(3) << 1
~ones(3)
ones(3) & ones(3)
ones(3).bool() - ones(3).bool()
-ones(3).bool()
clamp(ones(3))
ones(3).fill_(ones(2))
ones(3, dtype=long).div_(2)
ones(3, dtype=long) ** -1
ones(3).add(ones(3), alpha="x")
ones(3, dtype=uint8).fill_(1j)
complex(ones(2), ones(2).double())
stack([])
cat([ones(2), ones(2, 2)])
stack([ones(2), ones(3)])
meshgrid(ones(2, 2), indexing="ij")
tril(ones(2))
histc(ones(3), 0)
bincount(ones(3))
searchsorted(ones(3), ones(3), right=True, side="left")
fft.fft(ones(0))
fft.fft(ones(3), n=-2)
bool(ones(2))
int(ones(2))
float(1j * ones(1))
len(ones(1)[0])
list(ones(1)[0])
ones(3).requires_grad_().add_(1)
ones(3, dtype=long).requires_grad_()
ones(2).requires_grad_().mul(2).backward()
ones(3).backward()
ones(3).expand(2, 3).add_(1)
ones(4)[:3].copy_(ones(4))
add(ones(3), 1, out=ones(3, dtype=long))
ones(3).set_(ones(3).long())
tensor([1, [2]])
tensor("a")
as_tensor(object())
ones(3).add_(1j)
ones(3).mul_(1j)
ones(3).fill_(1j)
full((2,), 1j, dtype=float32)
ones(3).masked_fill(ones(3) > 0, 1j)
ones(3).lerp(ones(3), 1j)
ones(3).addcmul_(ones(3), ones(3), value=1j)
ones(3).long().add_(0.5)
ones(3).long().mul_(0.5)
ones(3).bool().add_(1)
ones(3).long().add_(ones(3).long(), alpha=2.5)
ones(3).to(int8).fill_(300)
full((2,), 300, dtype=int8)
ones(3).half().fill_(1e6)
ones(3).to(int8).masked_fill(ones(3) > 0, 300)
ones(3).pow_(1j)
ones(3).log_normal_(0, -1)
ones(3).cauchy_(0, -1)
ones(3).geometric_(1.5)
ones(3).bernoulli_(2.0)
ones(3).bernoulli_(-0.5)
native_dropout(ones(3), 1.5, True)
rrelu(ones(3), 2, 1, training=True)
ones(3).uniform_(float("nan"), 0)
nn.functional.one_hot(ones(3).long(), 0)
""".strip().splitlines()


# Before the bad number a good one: the program is known then, and the number is one of its inputs.
KNOWN_PROGRAMS = """
x.normal_(0, 1) ; x.normal_(0, -1)
x.exponential_(1) ; x.exponential_(-1)
x.uniform_(0, 1) ; x.uniform_(1, 0)
x.geometric_(0.5) ; x.geometric_(0)
x.cauchy_(0, 1) ; x.cauchy_(0, 0)
x.log_normal_(0, 1) ; x.log_normal_(0, 0)
x.bernoulli_(0.5) ; x.bernoulli_(1.5)
x.random_(0, 5) ; x.random_(5, 5)
normal(x, 1.0) ; normal(x, -1.0)
native_dropout(x, 0.5, True) ; native_dropout(x, -0.5, True)
x.byte().fill_(3) ; x.byte().fill_(256)
full((2,), 3, dtype=int8) ; full((2,), 128, dtype=int8)
arange(0, 5) ; arange(0, -5)
""".strip().splitlines()


def raised(f, *arguments):
    try:
        f(*arguments)
    except Exception as error:  # noqa: BLE001
        # Where the CPU lacks a kernel for a type, any error of the device will do.
        return RuntimeError if type(error) is NotImplementedError else type(error)
    return None


@pytest.mark.parametrize("expression", SIZES + CALLS)
def test_bad_calls_raise_what_the_cpu_raises(expression):
    expected = raised(on, "cpu", expression)
    assert expected
    with pytest.raises(expected):
        on(D, expression)


@pytest.mark.parametrize("pair", KNOWN_PROGRAMS)
def test_a_bad_number_is_told_also_when_the_program_is_known(pair):
    good, bad = pair.split(" ; ")
    for device in ("cpu", D):
        x = a(3, device=device)
        names = vars(torch) | {"x": x}
        with torch.device(device):
            eval(good, names)
            before = x.tolist()
            with pytest.raises(RuntimeError):
                eval(bad, names)
        assert x.tolist() == before


@pytest.mark.eager("strict")
def test_an_index_out_of_range_is_told_at_the_next_read_or_synchronization():
    for bad in (lambda: a(4)[torch.tensor([9], device=D)], lambda: torch.bincount(-a(3, dtype=torch.long)),
                lambda: F.embedding(torch.tensor([1, 50], device=D), a(10, 4)),
                lambda: a(4).index_fill_(0, torch.tensor([7], device=D), 1.0)):
        with pytest.raises(IndexError, match="index out of range in"):
            bad()
            torch.tpu.synchronize()
        torch.tpu.synchronize()


def test_tpu_memory_is_no_numpy_and_no_pointer():
    x = a(3)
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()
    assert x.data_ptr() >= 2**48
    with pytest.raises((TypeError, RuntimeError, BufferError)):
        import numpy
        numpy.from_dlpack(x)


# ---- hard days -------------------------------------------------------------------------------------------------------


@pytest.mark.eager("strict")
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
    assert base.shape == (1 << 18,) and base[-1].item() == 1
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == used, (torch.tpu.memory_allocated(), used)
    assert [x[-1].item() for x in kept] == list(range(7))
    base = None
    works()
    torch.tpu.set_per_process_memory_fraction(1.0)
    assert torch.ones(1 << 21, device="tpu").sum().item() == 1 << 21
    for bad in (-0.1, 1.1, float("nan")):
        assert error(torch.tpu.set_per_process_memory_fraction, bad)[0] == "ValueError"
    """)


@pytest.mark.eager("strict")
def test_memory_that_the_plugin_does_not_have_is_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(2**42, device=D).add(1).sum().item()
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(2**42, device=D).add_(1)[0].item()


@pytest.mark.parametrize("fault, kind, words", [
    ("abort", "RuntimeError", "Check failed: this program is well formed"), ("exit", "RuntimeError", "exit status 3"),
    ("garbage", "RuntimeError", "was stopped"), ("lie", "RuntimeError", "worker"),
    ("memory", "OutOfMemoryError", "the compiler ran out of memory"), ("hang", "RuntimeError", "took longer than")])
@pytest.mark.eager("strict")
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
    """, PJ_WORKER_FAULT=fault, TORCH_PJRT_CACHE_DIR="",
        TORCH_PJRT_COMPILE_TIMEOUT_MS="500" if fault == "hang" else "60000",
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


@pytest.mark.eager("strict")
def test_ctrl_c_ends_a_long_compile_and_the_target_keeps_its_value():
    run(INTERRUPT + """
x = torch.arange(4096.0).to("tpu")
torch.arange(4096.0, device="meta").mul_(2)  # imports what meta kernels need: the signal shall meet the compile
assert interrupted(lambda: x.mul_(2)) < 10  # of the 10 minutes that a compile may take
del os.environ["PJ_WORKER_FAULT"]
assert torch.equal(x.cpu(), torch.arange(4096.0))
x.mul_(2)  # the program is not held to be bad
assert torch.equal(x.cpu(), 2 * torch.arange(4096.0))
works()
    """, PJ_WORKER_FAULT="hang", TORCH_PJRT_CACHE_DIR="")


@pytest.mark.eager("strict")
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


@pytest.mark.eager("strict")
def test_ctrl_c_ends_a_wait_for_another_threads_compile():
    run(INTERRUPT + """
x = torch.arange(4096.0).to("tpu")
y = torch.ones(4096).to("tpu")
torch.ones(9, device="meta").mul_(2)[1:].add_(1).mul(2)  # imports what meta kernels need: the signal shall meet the wait
compiling = threading.Thread(target=lambda: error(lambda: torch.ones(3, device="tpu")))
compiling.start()
time.sleep(0.5)
for wait in (lambda: x * 2, lambda: y.mul_(2), lambda: x[1:].add_(1), torch.tpu.synchronize):
    assert 0.2 < interrupted(wait) < 1.3
assert compiling.is_alive()
del os.environ["PJ_WORKER_FAULT"]
compiling.join()
works()
assert torch.equal(x.cpu()[:1], torch.zeros(1))
    """, PJ_WORKER_FAULT="hang", TORCH_PJRT_CACHE_DIR="", TORCH_PJRT_COMPILE_TIMEOUT_MS="12000")
