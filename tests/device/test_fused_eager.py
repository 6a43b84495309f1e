"""Programs of the other tests with a queue of 8 ops: the same numbers in fewer executions."""
import pytest
import test_aliasing
import test_autograd
import test_optimizers
import test_scaled_dot_product_attention
import torch
from compare import ROUNDING, counted, like_cpu, same
from torch_pjrt import _env

MODE = _env.get("TORCH_PJRT_EAGER")  # of this run
PROGRAMS = [*test_aliasing.PROGRAMS, *test_autograd.PROGRAMS, *test_optimizers.PROGRAMS,
            *test_scaled_dot_product_attention.PROGRAMS]
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)


@each_program
def test_a_queued_program_gives_the_cpus_values(program, fused_eager):
    like_cpu(program, **ROUNDING)


@each_program
def test_a_queued_program_needs_fewer_executions(program, fused_eager):
    def executions():
        torch.manual_seed(0)
        return counted(lambda: program("tpu"))["executions"]

    fused = executions()
    torch.tpu.set_eager_mode("strict")
    assert fused < executions()


def test_a_queued_loop_makes_no_program_on_its_second_pass(fused_eager):
    for program in (test_optimizers.sgd_steps, test_optimizers.adamw_steps):
        program("tpu")
        assert counted(lambda: program("tpu"))["programs"] == 0


def test_a_value_is_read_in_the_middle_of_a_region(fused_eager):
    x = torch.arange(6.0, device="tpu")
    y = x + 1
    assert y[2].item() == 3
    z = y.mul_(2) - x
    assert bool((z > 0).all()) and z.tolist() == [2, 3, 4, 5, 6, 7]
    y[1:3] = z[:2]
    same(y, torch.tensor([2.0, 2, 3, 8, 10, 12]))


def test_a_queued_program_whose_results_nobody_holds_is_not_run(fused_eager):
    x = torch.ones(5, device="tpu")
    torch.tpu.synchronize()

    def work():
        for _ in range(3):
            x.exp().sum()

    assert counted(work)["executions"] == 0


def test_a_host_tensor_may_change_while_its_copy_is_queued(fused_eager):
    x = torch.arange(9.0)
    y = x.to("tpu") * 2
    x.zero_()
    same(y, torch.arange(9.0) * 2)


def test_a_longer_queue_needs_fewer_executions():
    def executions(length):
        torch.tpu.set_eager_mode("fused", length=length)
        x = torch.ones(5, device="tpu")

        def work():
            y = x
            for _ in range(48):
                y = y + 1
            return y.cpu()

        return counted(work)["executions"]

    with torch.tpu.set_eager_mode("fused"):
        assert [executions(length) for length in (4, 16, 48)] == [12, 3, 1]


def training(steps, wrap=lambda step: step):
    """The losses of a small network's steps, and executions and compiles of the last one."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(9, 9), torch.nn.LayerNorm(9), torch.nn.GELU())])
    model.to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.randn(7, 9).to("tpu")

    @wrap
    def step():
        optimizer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step().item() for _ in range(steps - 1)]
    last = counted(lambda: losses.append(step().detach()))
    return [*losses[:-1], losses[-1].item()], last


def test_a_whole_training_step_is_one_program():
    losses, last = training(4, torch.tpu.one_program())
    assert (last["executions"], last["compiles"], last["cache_loads"]) == (1, 0, 0)
    assert torch.tpu.get_eager_mode() == MODE
    with torch.tpu.set_eager_mode("strict"):
        one_by_one, last = training(4)
    assert last["executions"] > 20
    # Fused ops round otherwise; a step's rounding goes into the next one's weights.
    torch.testing.assert_close(losses, one_by_one, rtol=1e-5, atol=0)


def test_a_value_that_is_read_cuts_one_program_and_the_mode_comes_back_after_an_error():
    x = torch.ones(5, device="tpu")
    with torch.tpu.one_program(), torch.tpu.one_program():
        assert (x + 1).sum().item() == 10
        y = x * 3
    assert y.tolist() == [3] * 5
    with pytest.raises(RuntimeError, match="broadcast"), torch.tpu.one_program():
        x + torch.ones(4, device="tpu")
    assert torch.tpu.get_eager_mode() == MODE


@pytest.mark.eager("strict")
def test_in_blocking_eager_a_call_tells_at_once_that_an_index_is_out_of_range():
    x, bad = torch.ones(3, device="tpu"), torch.tensor([7], device="tpu")
    with torch.tpu.blocking():
        assert torch.tpu.get_eager_mode() == "blocking"
        with pytest.raises(IndexError, match="aten::take"):
            x.take(bad)
        same(x.take(bad - 6) + 1, torch.tensor([2.0]))
    assert torch.tpu.get_eager_mode() == "strict"
    x.take(bad)  # told later
    with pytest.raises(IndexError, match="aten::take"):
        torch.tpu.synchronize()
    with pytest.raises(ValueError, match="eager mode is one of"):
        torch.tpu.set_eager_mode("lazy")
