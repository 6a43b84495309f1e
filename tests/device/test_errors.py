"""Errors come at the call, as the exception type that the CPU raises; errors in data at the next synchronization."""
import pytest
import torch
import torch.nn.functional as F
from compare import same


def t(device, *sizes, dtype=torch.float32):
    return torch.ones(sizes, dtype=dtype, device=device)


@pytest.fixture(autouse=True)
def the_next_op_works():
    yield
    same(torch.arange(4, device="tpu") * 2, torch.arange(4) * 2)


@pytest.mark.parametrize("call", [
    lambda d: t(d, 3, 2) @ t(d, 3, 2), lambda d: torch.bmm(t(d, 2, 3, 4), t(d, 3, 4, 2)), lambda d: t(d, 4) @ t(d, 5),
    lambda d: torch.mul(t(d, 5, 2), t(d, 3)), lambda d: t(d, 4, 3).view(5, -1), lambda d: t(d, 4, 3).t().view(12),
    lambda d: torch.cat([t(d, 2, 3), t(d, 3, 2)]), lambda d: torch.stack([t(d, 2), t(d, 3)]), lambda d: torch.cat([]),
    lambda d: t(d, 2, 2).transpose(-3, 0), lambda d: t(d, 2, 2).sum(2), lambda d: t(d, 2, 2).log_softmax(-3),
    lambda d: F.linear(t(d, 3, 5), t(d, 4, 6)), lambda d: t(d, 2).mul_(t(d, 3, 2)),
    lambda d: t(d, 2, dtype=torch.int32).div_(2),
    lambda d: t(d, 2, dtype=torch.bool).sub_(t(d, 2, dtype=torch.bool)),
    lambda d: F.conv1d(t(d, 1, 4, 9), t(d, 2, 3, 3)), lambda d: F.conv2d(t(d, 1, 2, 3, 3), t(d, 2, 2, 5, 5)),
    lambda d: F.max_pool2d(t(d, 1, 1, 4, 4), 3, padding=2), lambda d: torch.linalg.cholesky(t(d, 3, 2)),
    lambda d: torch.linalg.solve(t(d, 3, 3), t(d, 4)), lambda d: t(d, 3).item(), lambda d: bool(t(d, 2)),
    lambda d: t(d, 2, 3).expand(4, 3), lambda d: t(d, 2, 3).squeeze(0).unsqueeze(5), lambda d: t(d, 5)[7],
    lambda d: t(d, 5)[1, 1],
    lambda d: t(d, 5).split([2, 2]), lambda d: t(d, 0).max(), lambda d: t(d, 0, 3).argmin(0), lambda d: t(d, 3).topk(4),
    lambda d: torch.gather(t(d, 3), 0, t(d, 2, dtype=torch.int32).float()),
    lambda d: t(d, 2, 2).index_select(2, t(d, 1, dtype=torch.int64)),
    lambda d: F.layer_norm(t(d, 2, 3), (4,)), lambda d: F.batch_norm(t(d, 1, 3), None, None, training=True),
    lambda d: F.cross_entropy(t(d, 2, 3), t(d, 4, dtype=torch.int64)), lambda d: F.embedding(t(d, 2), t(d, 3, 3)),
    lambda d: torch.arange(0, 5, 0, device=d), lambda d: F.dropout(t(d, 2), 1.5),
    lambda d: torch.einsum("ij,jk->ik", t(d, 2, 3), t(d, 2, 3)), lambda d: t(d, 3).as_strided((2,), (4,), 1),
    lambda d: F.one_hot(t(d, 2)), lambda d: t(d, 2).backward(), lambda d: t(d, 2, dtype=torch.int64).requires_grad_()])
def test_a_bad_call_raises_what_the_cpu_raises(call):
    with pytest.raises(Exception) as on_cpu:
        call("cpu")
    with pytest.raises(on_cpu.type) as on_device:
        call("tpu")
    assert on_device.type is on_cpu.type and str(on_device.value)


@pytest.mark.parametrize("write", [
    lambda d: t(d, 2, dtype=torch.int64).add_(1.5), lambda d: t(d, 2, dtype=torch.int64).div_(2),
    lambda d: t(d, 2, dtype=torch.int64).pow_(0.5),
    lambda d: t(d, 2, dtype=torch.int64).clamp_(0.5), lambda d: t(d, 2, dtype=torch.int32).exp_(),
    lambda d: t(d, 2, dtype=torch.bool).add_(2),
    lambda d: torch.add(t(d, 2), 1.5, out=t(d, 2, dtype=torch.int64)),
    lambda d: t(d, 2, dtype=torch.int64).sub_(t(d, 2))])
def test_a_write_that_would_lose_the_results_type_is_refused_as_on_the_cpu(write):
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError):
            write(device)


@pytest.mark.parametrize("write", [
    lambda d: t(d, 2, dtype=torch.int64).mul_(1.5), lambda d: t(d, 2, dtype=torch.int64).mul_(t(d, 2)),
    lambda d: t(d, 2).mul_(1j),
    lambda d: t(d, 2, dtype=torch.bool).mul_(t(d, 2)), lambda d: t(d, 2, dtype=torch.int64).addcmul_(t(d, 2), t(d, 2)),
    lambda d: torch._foreach_mul_([t(d, 2, dtype=torch.int64)], 1.5),
    lambda d: t(d, 2, dtype=torch.int64).index_add_(0, t(d, 1, dtype=torch.int64), t(d, 1))],
    ids=["mul_ number", "mul_", "mul_ complex", "mul_ bool", "addcmul_", "_foreach_mul_", "index_add_"])
def test_a_product_that_would_lose_its_type_is_refused_as_on_the_cpu(write):
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError):
            write(device)


def test_a_failed_write_changes_nothing():
    x = torch.arange(6.0, device="tpu").reshape(2, 3)
    for write in (lambda: x.add_(t("tpu", 4)), lambda: x[:, :2].copy_(t("tpu", 3, 3)), lambda: x.mul_("2")):
        with pytest.raises((RuntimeError, TypeError)):
            write()
    same(x, torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("op", [torch.add, torch.matmul, torch.minimum, torch.dot])
def test_tensors_of_two_devices_are_refused_with_the_names_of_both(op):
    for pair in ((t("tpu", 4), t("cpu", 4)), (t("cpu", 4), t("tpu", 4))):
        with pytest.raises(RuntimeError, match=r"same device.*(tpu.*cpu|cpu.*tpu)"):
            op(*pair)


def test_a_cpu_scalar_joins_an_op_of_the_device():
    x = torch.arange(3.0, device="tpu")
    same(x * torch.tensor(2.5), torch.arange(3.0) * 2.5)
    same(torch.tensor(2.5) - x, 2.5 - torch.arange(3.0))
    same(x[torch.tensor([2, 0])], torch.tensor([2.0, 0.0]))


OUT_OF_RANGE = {
    "cross_entropy": lambda i: F.cross_entropy(t("tpu", 3, 5), i + 3),
    "nll_loss": lambda i: F.nll_loss(t("tpu", 3, 5), i + 3),
    "embedding": lambda i: F.embedding(i, t("tpu", 2, 4)), "index": lambda i: t("tpu", 2)[i],
    "index of two": lambda i: t("tpu", 9, 2)[i, i], "index_put": lambda i: t("tpu", 2).index_put_((i,), t("tpu", 3)),
    "gather": lambda i: torch.gather(t("tpu", 2), 0, i), "scatter": lambda i: t("tpu", 2).scatter_(0, i, 1.0),
    "scatter_add": lambda i: t("tpu", 2).scatter_add_(0, i, t("tpu", 3)),
    "take": lambda i: torch.take(t("tpu", 1, 2), i),
    "index_select": lambda i: torch.index_select(t("tpu", 2), 0, i),
    "index_add": lambda i: t("tpu", 2).index_add_(0, i, t("tpu", 3)),
    "index_copy": lambda i: t("tpu", 2).index_copy_(0, i, t("tpu", 3)),
    "below zero": lambda i: torch.gather(t("tpu", 2), 0, i - 5),
}


@pytest.fixture
def index_check():
    yield torch.tpu.set_index_check
    torch.tpu.set_index_check("deferred")


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_an_index_out_of_range_is_told_once_at_the_next_synchronization(name, index_check):
    index = torch.tensor([1, 0, 2], device="tpu")
    with pytest.raises((IndexError, RuntimeError), match="out of (range|bounds)"):
        OUT_OF_RANGE[name](index)
        torch.tpu.synchronize()
    torch.tpu.synchronize()
    index_check("strict")
    with pytest.raises((IndexError, RuntimeError), match="out of (range|bounds)"):
        OUT_OF_RANGE[name](index)
    torch.tpu.synchronize()
    index_check("off")
    OUT_OF_RANGE[name](index)
    torch.tpu.synchronize()


@pytest.mark.parametrize("index", [[1, 0, 1], [0], [-2, -1]])
def test_an_index_in_range_is_not_told(index):
    x = torch.randn(2, 3)
    same(x.to("tpu")[torch.tensor(index, device="tpu")], x[torch.tensor(index)])
    torch.tpu.synchronize()


def test_an_ignored_class_is_in_range():
    scores, target = torch.randn(4, 5), torch.tensor([-100, 4, 0, -100])
    same(F.cross_entropy(scores.to("tpu"), target.to("tpu")), F.cross_entropy(scores, target))
    torch.tpu.synchronize()


@pytest.mark.parametrize("call", [
    lambda d: t(d, 0, 3).amax(0), lambda d: t(d, 0).amin(), lambda d: t(d, 2, 0).aminmax(dim=1), lambda d: t(d, 0).aminmax(),
    lambda d: torch.cat([t(d, 2), t(d, 2, 2)]), lambda d: torch.cat([t(d, 2), t(d)]),
    lambda d: t(d, 2, dtype=torch.int64).mean(), lambda d: t(d, 2, 2, dtype=torch.int64).mean(0),
    lambda d: t(d, 3).masked_fill(t(d, 3), 1.0), lambda d: t(d, 3).masked_fill_(t(d, 3) > 0, t(d, 2)),
    lambda d: t(d, 2).cauchy_(0, -1), lambda d: t(d, 2).exponential_(-1), lambda d: t(d, 2).geometric_(2),
    lambda d: t(d, 2).log_normal_(0, -1), lambda d: t(d, 2).uniform_(2, 1), lambda d: t(d, 2).normal_(0, -1),
    lambda d: torch.cholesky(-t(d, 1, 1))])
def test_bad_arguments_are_refused_in_the_cpus_words(call):
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(type(expected.value)) as refused:
        call("tpu")
    assert str(refused.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_an_index_that_gather_and_scatter_cannot_take_is_the_cpus_exception():
    for call in (lambda d: t(d, 3).gather(0, torch.tensor([5], device=d)),
                 lambda d: t(d, 3).scatter(0, torch.tensor([5], device=d), 1.0)):
        with pytest.raises(RuntimeError, match="out of bounds"):
            call("cpu")
        with pytest.raises(RuntimeError, match="index out of range in aten::(gather|scatter)"):
            call("tpu").cpu()
