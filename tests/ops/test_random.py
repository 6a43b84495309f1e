"""Random overloads: the generator's numbers, their distributions, and what they depend on."""
import math

import mpmath
import pytest
import torch
from harness import run

N = 100_000


def draw(name, *args, seed=1234, offset=0, **kwargs):
    return run("aten::" + name, *args, random=(seed, offset), **kwargs)[0]


def threefry(seed, counter):
    mask, rotations = 2**32 - 1, ((13, 15, 26, 6), (17, 29, 16, 24))
    keys = [seed & mask, seed >> 32]
    keys.append(keys[0] ^ keys[1] ^ 0x1BD11BDA)
    x, y = (counter & mask) + keys[0] & mask, (counter >> 32) + keys[1] & mask
    for group in range(5):
        for by in rotations[group % 2]:
            x = x + y & mask
            y = (y << by | y >> 32 - by) & mask ^ x
        x = x + keys[(group + 1) % 3] & mask
        y = y + keys[(group + 2) % 3] + group + 1 & mask
    return x, y


def test_the_reference_of_this_test_gives_the_published_numbers():
    assert threefry(0, 0) == (0x6B200159, 0x99BA4EFE)  # Random123's known answers
    assert threefry(2**64 - 1, 2**64 - 1) == (0x1CB996FC, 0xBB002BE7)


@pytest.mark.parametrize("seed, offset", [(0, 0), (12345678901234, 2**32 - 2), (2**63 - 1, 2**40 + 7)])
def test_the_bits_are_threefrys(seed, offset):
    x = draw("random.from", torch.empty(5, dtype=torch.int64), -(2**63), None, seed=seed, offset=offset)
    wanted = [a << 32 | b for a, b in (threefry(seed, offset + i) for i in range(5))]
    assert [int(v) + 2**63 for v in x] == wanted


def test_numbers_depend_on_seed_and_position_alone():
    whole = draw("rand", [100])
    assert torch.equal(whole, draw("rand", [100]))
    assert torch.equal(whole[40:], draw("rand", [60], offset=40))
    assert torch.equal(whole.view(4, 25), draw("rand", [4, 25]))
    assert not torch.equal(whole, draw("rand", [100], seed=1235))
    strided = draw("rand_like", torch.empty(25, 4).t())
    assert torch.equal(strided.contiguous().view(-1), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_uniform_numbers_are_below_one(dtype):
    x = draw("uniform", torch.empty(N, dtype=dtype), 0.0, 1.0).double()
    assert 0 <= x.min() and x.max() < 1
    assert abs(x.mean() - 0.5) < 5 / math.sqrt(12 * N) + 0.002 * (dtype == torch.bfloat16)
    assert abs(x.var() - 1 / 12) < 2e-3
    counts = torch.histc(x.float(), 16, 0, 1)
    assert ((counts - N / 16) ** 2 / (N / 16)).sum() < 45  # chi-square, 15 degrees of freedom: p = 1e-4 at 44


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_normal_numbers_are_normal_into_the_tails(dtype):
    x = draw("normal_functional", torch.empty(10 * N, dtype=dtype), 1.0, 2.0).double()
    z = (x - 1) / 2
    assert abs(z.mean()) < 5e-3 and abs(z.std() - 1) < 5e-3
    assert abs((z**4).mean() - 3) < 0.05
    for limit, share in ((3.0902, 1e-3), (-3.0902, 1e-3)):
        seen = (z > limit if limit > 0 else z < limit).double().mean().item()
        assert abs(seen - share) < 5 * math.sqrt(share / (10 * N)) + 2e-4 * (dtype == torch.bfloat16)


def test_complex_normal_numbers_share_their_variance():
    x = draw("randn", [N], dtype=torch.complex64)
    assert abs(x.real.var() - 0.5) < 0.02 and abs(x.imag.var() - 0.5) < 0.02
    assert abs((x.real * x.imag).mean()) < 0.01


@pytest.mark.parametrize("name, args, mean, std", [
    ("exponential", (2.0,), 0.5, 0.5), ("log_normal", (0.0, 0.5), math.exp(0.125), 0.6039),
    ("geometric", (0.25,), 4.0, 3.4641),
    ("bernoulli.p", (0.3,), 0.3, 0.4583)])
def test_mean_and_deviation_of_a_distribution(name, args, mean, std):
    x = draw(name, torch.empty(N), *args)
    assert abs(x.mean() - mean) < 6 * std / math.sqrt(N) and abs(x.std() - std) < 0.05 * std


def test_exponential_numbers_are_never_zero():
    assert draw("exponential", torch.empty(10 * N), 1.0).min() > 0


def test_half_of_the_cauchy_numbers_lie_within_the_scale():
    x = draw("cauchy", torch.empty(N), 1.0, 3.0)
    assert abs(((x - 1).abs() < 3).double().mean() - 0.5) < 0.01


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32])
def test_integers_fill_their_range_evenly(dtype):
    x = draw("random.from", torch.empty(N, dtype=dtype), 3, 10)
    counts = torch.bincount(x.long(), minlength=10)
    assert counts[:3].sum() == 0 and len(counts) == 10
    assert ((counts[3:] - N / 7) ** 2 / (N / 7)).sum() < 30
    assert draw("randint.low", -5, 5, [1000]).min() == -5
    assert draw("random", torch.empty(1000, dtype=torch.bool)).float().mean() > 0.4


def test_an_empty_range_of_integers_is_refused():
    with pytest.raises(RuntimeError, match="less than"):
        draw("random.from", torch.empty(3), 5, 5)


def test_permutations_hold_every_number_once():
    x = draw("randperm", 1000)
    assert torch.equal(x.sort().values, torch.arange(1000)) and not torch.equal(x, torch.arange(1000))
    assert draw("randperm", 0).shape == (0,)


def test_dropout_scales_what_it_keeps():
    x = torch.ones(N)
    y, mask = run("aten::native_dropout", x, 0.2, True, random=(5, 0))
    assert abs(mask.double().mean() - 0.8) < 0.01
    assert torch.equal(y, mask / torch.tensor(0.8))
    assert run("aten::native_dropout", x, 1.0, True, random=(5, 0))[0].sum() == 0
    assert torch.equal(run("aten::native_dropout", x, 0.2, False, random=(5, 0))[0], x)
    assert torch.equal(run("aten::native_dropout_backward", x, mask, 1.25)[0], mask * 1.25)


def test_random_slopes_are_noise_in_training():
    x = torch.randn(N)
    y, noise = run("aten::rrelu_with_noise_functional", x, torch.zeros(N), 0.1, 0.3, True, None, random=(5, 0))
    assert torch.equal(y, x * noise) and (noise[x > 0] == 1).all()
    slopes = noise[x <= 0]
    assert 0.1 <= slopes.min() and slopes.max() <= 0.3 and abs(slopes.mean() - 0.2) < 1e-3


def test_categories_are_drawn_by_their_weight():
    p = torch.tensor([0.1, 0.0, 0.6, 0.3])
    x = draw("multinomial", p, N, True)
    share = torch.bincount(x, minlength=4) / N
    assert (share - p).abs().max() < 0.01 and share[1] == 0
    rows = draw("multinomial", p.expand(N, 4).bfloat16(), 1)
    assert ((torch.bincount(rows[:, 0], minlength=4) / N) - p).abs().max() < 0.01
    distinct = draw("multinomial", torch.tensor([[0.1, 0.2, 0.3, 0.4]]).repeat(1000, 1), 3)
    assert all(len(set(row)) == 3 for row in distinct.tolist())
    assert abs((distinct[:, 0] == 3).double().mean() - 0.4) < 0.06


@pytest.mark.parametrize("p, samples, replacement, text", [
    (torch.rand(3), 0, True, "n_sample <= 0"), (torch.rand(3), 4, False, "without replacement"),
    (torch.rand(1, 2, 3), 1, True, "1 or 2 dim"), (torch.ones(3, dtype=torch.int64), 1, True, "floating-point")])
def test_impossible_draws_are_refused(p, samples, replacement, text):
    with pytest.raises(RuntimeError, match=text):
        draw("multinomial", p, samples, replacement, results=[torch.empty(max(samples, 0), dtype=torch.int64)])


def test_consecutive_draws_are_independent():
    p = torch.full((1000,), 1e-3)
    draws = [draw("multinomial", p, 1, offset=i).item() for i in range(20)]
    assert len({a - b for a, b in zip(draws, draws[1:])}) > 15


@pytest.mark.parametrize("rate", [0.0, 0.5, 9.0, 12.0, 1000.0])
def test_poisson_numbers(rate):
    x = draw("poisson", torch.full((N // 4,), rate))
    assert abs(x.mean() - rate) <= 6 * math.sqrt(rate / (N // 4)) and abs(x.var() - rate) <= 0.06 * rate


@pytest.mark.parametrize("count, p", [(10, 0.3), (10, 0.0), (10, 1.0), (1000, 0.005), (1000, 0.4), (500, 0.95)])
def test_binomial_numbers(count, p):
    n = N // 4
    x = draw("binomial", torch.full((n,), float(count)), torch.full((n,), p), results=[torch.empty(n)])
    variance = count * p * (1 - p)
    assert abs(x.mean() - count * p) <= 6 * math.sqrt(variance / n) and abs(x.var() - variance) <= 0.06 * variance
    assert x.min() >= 0 and x.max() <= count


@pytest.mark.parametrize("shape", [0.1, 0.9, 1.0, 7.5])
def test_gamma_numbers(shape):
    x = draw("_standard_gamma", torch.full((N // 4,), shape)).double()
    assert abs(x.mean() - shape) < 6 * math.sqrt(shape / (N // 4)) and abs(x.var() - shape) < 0.1 * shape
    assert x.min() > 0


def test_dirichlet_numbers_add_up_to_one():
    shape = torch.tensor([0.5, 1.0, 2.5])
    x = draw("_sample_dirichlet", shape.expand(N // 4, 3), results=[torch.empty(N // 4, 3)])
    torch.testing.assert_close(x.sum(-1), torch.ones(N // 4))
    assert (x.mean(0) - shape / shape.sum()).abs().max() < 0.01


def test_parameters_that_no_sample_fits_do_not_hang():
    bad = torch.tensor([float("nan"), float("inf"), -1.0])
    for name in ("poisson", "_standard_gamma"):
        assert draw(name, bad).shape == (3,)
    assert draw("binomial", bad, torch.full((3,), 0.5), results=[bad]).shape == (3,)


def gradient(name, *args, dtype=torch.float64):
    args = [x.to(dtype) for x in args]
    return run("aten::" + name, *args, results=[torch.broadcast_tensors(*args)[0]])[0]


@pytest.mark.parametrize("dtype, rtol", [(torch.float64, 1e-6), (torch.float32, 1e-5)])  # of the finite difference
def test_a_gamma_sample_grows_with_its_shape_as_its_distribution_function_says(dtype, rtol):
    a = torch.tensor([1e-3, 0.1, 1.0, 5.0, 300.0], dtype=torch.float64).unsqueeze(1)
    x = torch.tensor([1e-10, 0.1, 0.9, 1.5, 4.7, 11.0, 300.0, 340.0], dtype=torch.float64)
    step, density = a * 1e-5, torch.exp((a - 1) * x.log() - x - torch.lgamma(a))
    upper = torch.special.gammaincc(a + step, x) - torch.special.gammaincc(a - step, x)
    lower = torch.special.gammainc(a - step, x) - torch.special.gammainc(a + step, x)
    wanted = torch.where(x > a, upper, lower) / (2 * step) / density
    told = (x < 4 * a + 20) & (x > a / 4) | (a < 1)  # beyond, the density is too small for the difference
    torch.testing.assert_close(gradient("_standard_gamma_grad", a, x, dtype=dtype)[told], wanted.to(dtype)[told], rtol=rtol,
                               atol=0)


def test_a_gamma_sample_of_a_large_shape_moves_with_it():
    a = torch.tensor([1e4, 9e4, 2e5, 1e6, 1e12], dtype=torch.float64)
    torch.testing.assert_close(gradient("_standard_gamma_grad", a, a), 1 + 1 / (6 * a), rtol=1e-9, atol=0)
    # Cornish and Fisher's expansion of the quantile; both sides of where the formula changes
    z, a = torch.tensor([-3.0, 0.5, 3.0]).double(), torch.tensor([[9.9e4], [1.01e5]]).double()
    x = a + z * a.sqrt() + (z**2 - 1) / 3 + (z**3 - 7 * z) / 36 / a.sqrt()
    wanted = 1 + z / 2 / a.sqrt() - (z**3 - 7 * z) / 72 / a**1.5
    torch.testing.assert_close(gradient("_standard_gamma_grad", a, x), wanted, rtol=1e-7, atol=0)


def test_a_beta_sample_grows_with_its_parameter_as_the_closed_forms_say():
    a = torch.tensor([1e-2, 0.5, 1.0, 7.0, 1e3], dtype=torch.float64).unsqueeze(1)
    x = torch.tensor([1e-8, 0.01, 0.3, 0.9, 0.9999], dtype=torch.float64)
    torch.testing.assert_close(gradient("_dirichlet_grad", x, a, a + 1), -x * x.log() / a / (1 - x))  # F = x^a


@pytest.mark.parametrize("a, b, x", [(0.3, 0.4, 0.5), (2.0, 3.0, 0.7), (60.0, 0.4, 0.99), (0.3, 90.0, 0.001),
                                     (0.3, 90.0, 0.99), (60.0, 90.0, 0.35), (1000.0, 2000.0, 0.33)])
def test_a_beta_sample_grows_with_its_parameter_as_its_distribution_function_says(a, b, x):
    with mpmath.workdps(300):  # PyTorch's kernel is itself off by 1e-3, and by more in the tails
        step, a_, b_, x_ = mpmath.mpf(a) * mpmath.mpf(10)**-12, mpmath.mpf(a), mpmath.mpf(b), mpmath.mpf(x)
        below, above = (mpmath.betainc(s, b_, 0, x_, regularized=True) for s in (a_ - step, a_ + step))
        density = x_**(a_ - 1) * (1 - x_)**(b_ - 1) / mpmath.beta(a_, b_)
        wanted = torch.tensor([float((below - above) / (2 * step) / density / (1 - x_))], dtype=torch.float64)
    arguments = (torch.tensor([v], dtype=torch.float64) for v in (x, a, a + b))
    torch.testing.assert_close(gradient("_dirichlet_grad", *arguments), wanted, rtol=1e-9, atol=0)


def test_gradients_at_the_ends_of_a_range_and_outside_of_it_end():
    bad = torch.tensor([float("nan"), float("inf"), -1.0, 0.0])
    assert gradient("_standard_gamma_grad", bad.unsqueeze(1), bad).shape == (4, 4)
    assert gradient("_standard_gamma_grad", torch.ones(1), torch.zeros(1)) == 0
    ends = gradient("_dirichlet_grad", torch.tensor([0.0, 1.0]), torch.ones(2), 2 * torch.ones(2))
    torch.testing.assert_close(ends, torch.tensor([0.0, 1.0], dtype=torch.float64))


def test_counts_of_integers_are_refused():
    with pytest.raises(RuntimeError, match="floating-point dtypes for count"):
        draw("binomial", torch.ones(3, dtype=torch.int64), torch.ones(3), results=[torch.ones(3, dtype=torch.int64)])
