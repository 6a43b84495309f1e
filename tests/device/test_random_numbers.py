"""Random numbers: seeds, states and distributions."""
import math

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from compare import EXACT, counted, same


def draws():
    """One draw of each kind."""
    x = torch.full((40,), 0.3, device="tpu")
    return [torch.rand(40, device="tpu"), torch.randn(40, device="tpu", dtype=torch.bfloat16),
            torch.randint(9, (40,), device="tpu"),
            torch.bernoulli(x), F.dropout(x), torch.randperm(40, device="tpu"), torch.multinomial(x, 4),
            x.clone().exponential_(),
            torch.normal(x, 2.0), torch.rand_like(x), torch.nn.init.trunc_normal_(x.clone())]


def test_a_seed_gives_the_same_numbers_again_and_each_draw_others():
    torch.manual_seed(11)
    first, second = draws(), draws()
    torch.manual_seed(11)
    same(draws(), first, **EXACT)
    same(draws(), second, **EXACT)
    torch.manual_seed(12)
    for a, b, c in zip(first, second, draws(), strict=True):
        assert not torch.equal(a, b) and not torch.equal(a, c)


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**63 - 1, -1, -2**63])
def test_any_seed_is_told_back(seed):
    torch.tpu.manual_seed(seed)
    a = torch.rand(8, device="tpu")
    assert torch.tpu.initial_seed() % 2**64 == seed % 2**64
    torch.tpu.manual_seed(seed)
    same(torch.rand(8, device="tpu"), a, **EXACT)


def test_a_state_that_was_kept_gives_the_numbers_that_followed():
    torch.rand(3, device="tpu")
    state = torch.tpu.get_rng_state()
    assert state.dtype is torch.uint8 and state.device.type == "cpu" and state.numel() == 16
    after = draws()
    torch.tpu.set_rng_state(state)
    same(draws(), after, **EXACT)
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.tpu.set_rng_state(state)
        same(draws(), after, **EXACT)
        draws()
    assert not torch.equal(draws()[0], after[0])


def test_a_generator_of_its_own_is_apart_from_the_default_one():
    a, b = (torch.Generator("tpu").manual_seed(5) for _ in range(2))
    torch.manual_seed(0)
    expected = torch.rand(9, device="tpu")
    torch.manual_seed(0)
    mine = torch.rand(9, device="tpu", generator=a)
    same(torch.rand(9, device="tpu"), expected, **EXACT)
    same(torch.rand(9, device="tpu", generator=b), mine, **EXACT)
    b.set_state(a.get_state())
    same(torch.randn(9, device="tpu", generator=a), torch.randn(9, device="tpu", generator=b), **EXACT)


def test_the_cpus_generator_is_left_alone():
    state = torch.get_rng_state()
    draws()
    same(torch.get_rng_state(), state)


def test_a_draw_reads_nothing_from_the_device():
    def work():
        nn.Dropout(0.1)(torch.rand(20, device="tpu")).normal_().uniform_(1, 2)

    work()
    assert counted(work)["host_reads"] == 0


def test_the_queue_changes_no_random_number(fused_eager):
    torch.manual_seed(3)
    fused = draws()
    torch.tpu.set_eager_mode("strict")
    torch.manual_seed(3)
    same(draws(), fused, rtol=1e-6, atol=1e-6)  # the number itself is the same: arithmetic on it may be fused


COUNT = 100_000


def filled(method, *arguments):
    return lambda: getattr(torch.empty(COUNT, device="tpu"), method)(*arguments)


@pytest.mark.parametrize("make, mean, std", [
    (lambda: torch.rand(COUNT, device="tpu"), 1 / 2, math.sqrt(1 / 12)),
    (lambda: torch.randn(COUNT, device="tpu"), 0, 1),
    (lambda: torch.rand(COUNT, device="tpu", dtype=torch.float64), 1 / 2, math.sqrt(1 / 12)),
    (lambda: torch.randn(COUNT, device="tpu", dtype=torch.bfloat16), 0, 1),
    (filled("uniform_", -3, 5), 1, 8 / math.sqrt(12)),
    (filled("normal_", 2, 0.5), 2, 0.5), (filled("exponential_", 4.0), 0.25, 0.25),
    (filled("bernoulli_", 0.2), 0.2, 0.4),
    (filled("geometric_", 0.4), 2.5, math.sqrt(0.6) / 0.4),
    (filled("log_normal_", 0.0, 0.5), math.exp(0.125), math.exp(0.125) * math.sqrt(math.exp(0.25) - 1)),
    (filled("random_", 3, 13), 7.5, math.sqrt(99 / 12)),
    (lambda: torch.randint(-4, 4, (COUNT,), device="tpu"), -0.5, math.sqrt(63 / 12)),
    (lambda: torch.bernoulli(torch.full((COUNT,), 0.7, device="tpu")), 0.7, math.sqrt(0.21)),
    (lambda: torch.poisson(torch.full((COUNT,), 3.0, device="tpu")), 3, math.sqrt(3)),
    (lambda: torch.randperm(COUNT, device="tpu"), (COUNT - 1) / 2, COUNT / math.sqrt(12)),
    (lambda: torch.multinomial(torch.tensor([3.0, 0.0, 1.0, 4.0], device="tpu"), COUNT, replacement=True), 14 / 8,
     math.sqrt(40 / 8 - (14 / 8)**2)),
    (lambda: F.dropout(torch.ones(COUNT, device="tpu"), 0.25), 1, math.sqrt(1 / 3)),
    (lambda: torch.distributions.Gamma(torch.full((COUNT,), 2.0, device="tpu"), 1.0).sample(), 2, math.sqrt(2))])
def test_a_distribution_has_its_mean_and_deviation(make, mean, std):
    x = make().cpu().double()
    assert abs(x.mean().item() - mean) < 5 * std / math.sqrt(COUNT)
    assert x.std().item() == pytest.approx(std, rel=0.03)


def test_uniform_numbers_fill_the_interval_evenly_and_independently():
    x = torch.rand(COUNT, device="tpu").cpu()
    assert 0 <= x.min() < 1e-3 and 0.999 < x.max() < 1
    counts = torch.histc(x, 50, 0, 1)
    chi_square = ((counts - COUNT / 50)**2 / (COUNT / 50)).sum().item()
    assert 15 < chi_square < 100  # 49 degrees of freedom: 49 +- 10
    assert abs(torch.corrcoef(torch.stack([x[:-1], x[1:]]))[0, 1].item()) < 5 / math.sqrt(COUNT)


def test_normal_numbers_have_the_normal_distribution_function():
    x = torch.randn(COUNT, device="tpu").cpu().sort()[0].double()
    expected = torch.special.ndtr(x)
    steps = torch.arange(1, COUNT + 1, dtype=torch.float64) / COUNT
    assert (expected - steps).abs().max() < 2 / math.sqrt(COUNT)  # Kolmogorov and Smirnov: one in 1,500 is more


def test_draws_without_replacement_are_distinct():
    assert torch.equal(torch.randperm(1000, device="tpu").sort()[0].cpu(), torch.arange(1000))
    picks = torch.multinomial(torch.tensor([[1.0, 2, 0, 3, 4]] * 50, device="tpu"), 4).cpu()
    assert all(sorted(row) == [0, 1, 3, 4] for row in picks.tolist())


def test_dropout_scales_what_it_keeps_and_its_backward_uses_the_same_mask():
    x = torch.ones(4000, device="tpu", requires_grad=True)
    y = F.dropout(x, 0.2)
    y.sum().backward()
    assert set(y.detach().cpu().unique().tolist()) == {0, 1.25}
    same(x.grad, y)
    assert torch.equal(F.dropout(x, 0.2, training=False), x) and not F.dropout(x, 1.0).any()
