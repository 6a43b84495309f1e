"""Values that grow by torch.cat live in arrays with room to grow: one program serves many lengths (core/ops/room.h)."""
import numpy as np
import pytest
import torch
from compare import EXACT, ROUNDING, same

D = "tpu"
pytestmark = pytest.mark.eager("strict")  # each op is a program of its own here, which is counted


def grown(length: int, dim: int = 1, shape=(2, 3, 4), dtype=torch.float32, to: str = D) -> torch.Tensor:
    """The shape with `length` along dim, grown by one at a time from 3, on the device; to: a copy there."""
    shape = list(shape)
    shape[dim] = length
    whole = (torch.arange(torch.Size(shape).numel()) * 7 % 11 - 4).reshape(shape).to(dtype)
    x, *rest = [part.to(D) for part in whole.split([3] + [1] * (length - 3), dim)]
    for part in rest:
        x = torch.cat([x, part], dim)
    return x.to(to)


@pytest.fixture
def compiles():
    """Says how many programs were made or loaded since it was asked last."""

    def new() -> int:
        now = torch.tpu.counters()
        made = now["compiles"] + now["cache_loads"]
        before, new.before = new.before, made
        return made - before

    new.before = 0
    new()
    return new


def test_a_loop_that_grows_a_tensor_needs_programs_only_when_its_array_is_full(compiles):
    step = torch.ones(2, 1, 8192, device=D)  # 64 KiB a step: arrays of 1, 2, 4, 8 ... steps
    x, counts = step, []
    for n in range(2, 34):
        x = torch.cat([x, step * n], 1)
        counts.append(compiles())
        same(x[:, -1], torch.full((2, 8192), float(n)), **EXACT)
        compiles()
    assert [n for n, made in zip(range(2, 34), counts) if made] == [2, 3, 5, 9, 17, 33], counts
    assert max(counts) <= 3  # step * n, pj::grow, aten::cat
    same(x, torch.cat([torch.full((2, 1, 8192), float(max(1, n))) for n in range(1, 34)], 1), **EXACT)


# What has a rule, and gives no new program for the next length.
RULED = {
    "add a number": lambda x: x + 2,
    "add itself": lambda x: x + x.abs(),
    "broadcast": lambda x: x * torch.ones(4, device=x.device) - torch.full((2, 1, 1), 3.0, device=x.device),
    "compare and choose": lambda x: torch.where(x > 0, x, -x),
    "convert": lambda x: x.to(torch.bfloat16),
    "softmax along": lambda x: x.softmax(1),
    "softmax across": lambda x: x.softmax(2),
    "log_softmax": lambda x: x.log_softmax(1),
    "cumsum along": lambda x: x.cumsum(1),
    "cumsum across": lambda x: x.cumsum(0),
    "sum": lambda x: x.sum(),
    "sum along": lambda x: x.sum(1),
    "sum across, kept": lambda x: x.sum(-1, keepdim=True),
    "sum along both": lambda x: x.sum((0, 1)),
    "amax": lambda x: x.amax(1),
    "amin across": lambda x: x.amin(0),
    "max": lambda x: (x - 100).max(),
    "min": lambda x: (x + 100).min(),
    "max and its place": lambda x: (x - 100).max(1),
    "argmin": lambda x: (x + 100).argmin(1),
    "any": lambda x: (x > 100).any(),
    "all along": lambda x: (x < 100).all(1),
    "transposed copy": lambda x: x.transpose(0, 1).contiguous(),
    "repeated heads": lambda x: x[:, None].expand(2, 5, *x.shape[1:]).reshape(10, *x.shape[1:]),
    "last": lambda x: x[:, -1] * 2,
    "first": lambda x: x[:, :2] * 2,
    "rows": lambda x: x.index_select(0, torch.tensor([1, 1, 0], device=x.device)),
    "product along": lambda x: x.transpose(1, 2) @ x.exp(),
    "product across": lambda x: x @ torch.ones(2, 4, 5, device=x.device),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(
        torch.ones(2, 1, 1, 4, device=x.device), x[:, None], x[:, None] - 1),
    "masked attention": lambda x: torch.nn.functional.scaled_dot_product_attention(
        torch.ones(2, 3, 2, 4, device=x.device), x[:, None], x[:, None] - 1, attn_mask=(x.sum(2) > -2)[:, None, None],
        enable_gqa=True),
}


@pytest.mark.parametrize("name", RULED)
def test_an_op_with_a_rule_is_right_and_finds_its_program_at_the_next_length(name, native, compiles):
    op = RULED[name]
    for n in (6, 7):
        x = grown(n)
        cpu = x.cpu()
        compiles()
        got = op(x)
        made = compiles()
        for mine, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, op(cpu))), strict=True):
            assert mine.stride() == theirs.stride()
            same(mine, theirs, **ROUNDING)
    assert made == 0


def test_windows_that_move_grow_too():
    """The start of the first part is a run-time number of the call once it was met in a few places."""
    whole = torch.arange(400.0).view(20, 20)
    there, step = whole.to(D), torch.full((1, 20), -1.0)
    for width in (3, 4):
        for start in (*range(15), 3):
            got = torch.cat([there[start:start + width], step.to(D)], 0)
            same(got, torch.cat([whole[start:start + width], step]), **EXACT)
            same(torch.cat([got, step.to(D)], 0), torch.cat([whole[start:start + width], step, step]), **EXACT)


# What has none gets what counts.
OTHERS = {
    "sort": lambda x: x.sort(1).values,
    "mean": lambda x: x.mean(1),
    "flip": lambda x: x.flip(1),
    "behind the first": lambda x: x[:, 1:] + 1,
    "every second": lambda x: x[:, ::2] + 1,
    "flat": lambda x: x.reshape(-1) * 2,
    "bits": lambda x: x.view(torch.int32) + 1,
    "argmax of all": lambda x: x.argmax(),
    "joined along another dimension": lambda x: torch.cat([x, x], 2),
    "joined behind": lambda x: torch.cat([torch.ones(2, 1, 4, device=x.device), x], 1),
    "joined with itself": lambda x: torch.cat([x, x], 1),
    "take": lambda x: x[:, torch.tensor([0, 2], device=x.device)],
    "beside one of that length": lambda x: x + torch.arange(x.shape[1], device=x.device)[:, None],
    "diagonal": lambda x: x.diagonal(0, 0, 1) * 2,
    "overlapping windows": lambda x: x.unfold(1, 2, 1) * 2,
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "sliding windows of rows": lambda x: x.as_strided((2, x.shape[1] - 1, 8), (x.stride(0), 4, 1)) + 1,
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_op_without_a_rule_is_right(name, native):
    for n in (6, 7):
        x = grown(n)
        same(OTHERS[name](x), OTHERS[name](x.cpu()), **ROUNDING)


@pytest.mark.parametrize("dtype", (torch.float32, torch.int64, torch.bool, torch.complex64))
@pytest.mark.parametrize("dim", (0, 1, 2))
def test_room_in_any_dimension_of_any_dtype_is_read_and_copied(dim, dtype):
    x, cpu = grown(9, dim, dtype=dtype), grown(9, dim, dtype=dtype, to="cpu")
    assert x.shape == cpu.shape and x.stride() == cpu.stride() and x.is_contiguous()
    same(x, cpu, **EXACT)
    same(x.to("tpu:0", copy=True), cpu, **EXACT)
    assert x.tolist() == cpu.tolist() and repr(x.cpu()) == repr(cpu)
    if dtype != torch.bool:
        assert np.array_equal(np.from_dlpack(x, device="cpu"), cpu.numpy())


def test_a_grown_tensor_is_written_resized_and_saved_as_any_other(tmp_path):
    x, cpu = grown(9), grown(9, to="cpu")
    for t in (x, cpu):
        t[:, 4] = 50
        t.mul_(2)
        t[1, -1, 2:] += 1
        t[:, ::3].zero_()
    same(x, cpu, **EXACT)
    x = torch.cat([x, x[:, :1]], 1)
    cpu = torch.cat([cpu, cpu[:, :1]], 1)
    same(x, cpu, **EXACT)
    torch.save(x, tmp_path / "x.pt")
    same(torch.load(tmp_path / "x.pt"), cpu, **EXACT)
    for t in (x, cpu):
        t.resize_(2, 5, 4)
    same(x, cpu, **EXACT)
    assert x.untyped_storage().nbytes() == cpu.untyped_storage().nbytes()


def test_gradients_go_through_a_loop_that_grows():
    def loss(device):
        parts = [torch.full((1, 2, 1, 4), 0.1 * i, device=device, requires_grad=True) for i in range(6)]
        keys = parts[0]
        total = 0
        for part in parts[1:]:
            keys = torch.cat([keys, part], 2)
            total = total + torch.nn.functional.scaled_dot_product_attention(part, keys, keys * 2).square().sum()
        return torch.autograd.grad(total, parts)

    loss(D)  # the lengths are met
    for mine, theirs in zip(loss(D), loss("cpu"), strict=True):
        same(mine, theirs, **ROUNDING)


def test_memory_counts_the_array():
    x = grown(9, shape=(2, 3, 8192))  # 64 KiB a step
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    y = torch.cat([x, x[:, :1]], 1)
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - before == 16 * 65536 and y.nbytes == 10 * 65536


@pytest.mark.eager("fused")
def test_a_region_of_several_ops_finds_its_program_at_the_next_length(compiles):
    def step(keys, query):
        keys = torch.cat([keys, query], 2)
        out = torch.nn.functional.scaled_dot_product_attention(query, keys, keys) * 2 + 1
        return keys, out.cpu()

    torch.manual_seed(0)
    made, results = [], {D: [], "cpu": []}
    queries = [torch.randn(1, 2, 1, 8) for _ in range(20)]
    for device, out in results.items():
        keys = torch.zeros(1, 2, 3, 8, device=device)
        for query in queries:
            query = query.to(device)
            compiles()
            keys, result = step(keys, query)
            out.append(result)
            if device == D:
                made.append(compiles())
    assert sum(made[4:]) == 0, made
    for mine, theirs in zip(results[D], results["cpu"], strict=True):
        same(mine, theirs, **ROUNDING)
