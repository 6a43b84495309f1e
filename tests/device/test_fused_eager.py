"""Programs of the other tests with a queue of 8 ops: the same numbers in fewer executions."""
import pytest
import test_aliasing
import test_autograd
import test_optimizers
import test_scaled_dot_product_attention
import torch
from compare import ROUNDING, counted, like_cpu, same

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

    try:
        assert [executions(length) for length in (4, 16, 48)] == [12, 3, 1]
    finally:
        torch.tpu.set_eager_mode("strict")


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
