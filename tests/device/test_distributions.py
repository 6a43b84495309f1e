"""torch.distributions on the device: samples, their densities and gradients."""
import math

import pytest
import torch
import torch.distributions as D
from compare import EXACT, like_cpu, same

pytestmark = pytest.mark.usefixtures("native")


def correlations(d):
    return torch.tensor([[1.0, 0.5], [0.5, 2.0]], device=d)


# name: the distribution of parameters p(...) on device d
MAKERS = {
    "Bernoulli": lambda p, d: D.Bernoulli(p(0.3, 0.6)),
    "Beta": lambda p, d: D.Beta(p(0.5, 2.0), p(1.0, 3.0)),
    "Binomial": lambda p, d: D.Binomial(30, p(0.1, 0.6)),
    "Categorical": lambda p, d: D.Categorical(p(0.3, 0.2, 0.5)),
    "Cauchy": lambda p, d: D.Cauchy(p(0.0, 1.0), p(1.0, 2.0)),
    "Chi2": lambda p, d: D.Chi2(p(1.0, 3.0)),
    "ContinuousBernoulli": lambda p, d: D.ContinuousBernoulli(p(0.3, 0.7)),
    "Dirichlet": lambda p, d: D.Dirichlet(p(0.5, 1.0, 2.0)),
    "Exponential": lambda p, d: D.Exponential(p(1.0, 2.0)),
    "FisherSnedecor": lambda p, d: D.FisherSnedecor(p(3.0, 5.0), p(14.0, 16.0)),
    "Gamma": lambda p, d: D.Gamma(p(0.5, 2.0), p(1.0, 3.0)),
    "GeneralizedPareto": lambda p, d: D.GeneralizedPareto(p(0.0, 1.0), p(1.0, 2.0), p(0.1, 0.2)),
    "Geometric": lambda p, d: D.Geometric(p(0.3, 0.6)),
    "Gumbel": lambda p, d: D.Gumbel(p(0.0, 1.0), p(1.0, 2.0)),
    "HalfCauchy": lambda p, d: D.HalfCauchy(p(1.0, 2.0)),
    "HalfNormal": lambda p, d: D.HalfNormal(p(1.0, 2.0)),
    "Independent": lambda p, d: D.Independent(D.Normal(p(0.0, 1.0), p(1.0, 2.0)), 1),
    "InverseGamma": lambda p, d: D.InverseGamma(p(9.0, 8.0), p(1.0, 3.0)),
    "Kumaraswamy": lambda p, d: D.Kumaraswamy(p(1.0, 2.0), p(1.0, 3.0)),
    "Laplace": lambda p, d: D.Laplace(p(0.0, 1.0), p(1.0, 2.0)),
    "LKJCholesky": lambda p, d: D.LKJCholesky(3, p(0.5)),
    "LogNormal": lambda p, d: D.LogNormal(p(0.0, 1.0), p(0.5, 0.3)),
    "LogisticNormal": lambda p, d: D.LogisticNormal(p(0.0, 1.0), p(1.0, 2.0)),
    "LowRankMultivariateNormal": lambda p, d: D.LowRankMultivariateNormal(p(0.0, 1.0), torch.ones(2, 1, device=d),
                                                                          p(1.0, 2.0)),
    "MixtureSameFamily": lambda p, d: D.MixtureSameFamily(D.Categorical(p(0.3, 0.7)), D.Normal(p(0.0, 1.0), p(1.0, 2.0))),
    "Multinomial": lambda p, d: D.Multinomial(10, p(0.3, 0.7)),
    "MultivariateNormal": lambda p, d: D.MultivariateNormal(p(0.0, 1.0), correlations(d)),
    "MultivariateNormal of a precision": lambda p, d: D.MultivariateNormal(p(0.0, 1.0), precision_matrix=correlations(d)),
    "NegativeBinomial": lambda p, d: D.NegativeBinomial(p(5.0, 60.0), p(0.3, 0.6)),
    "Normal": lambda p, d: D.Normal(p(0.0, 1.0), p(1.0, 2.0)),
    "OneHotCategorical": lambda p, d: D.OneHotCategorical(p(0.3, 0.7)),
    "OneHotCategoricalStraightThrough": lambda p, d: D.OneHotCategoricalStraightThrough(p(0.3, 0.7)),
    "Pareto": lambda p, d: D.Pareto(p(1.0, 2.0), p(9.0, 8.0)),
    "Poisson": lambda p, d: D.Poisson(p(1.0, 20.0)),
    "RelaxedBernoulli": lambda p, d: D.RelaxedBernoulli(p(0.5), p(0.3, 0.6)),
    "RelaxedOneHotCategorical": lambda p, d: D.RelaxedOneHotCategorical(p(0.5), p(0.3, 0.7)),
    "StudentT": lambda p, d: D.StudentT(p(9.0, 14.0), p(0.0, 1.0), p(1.0, 2.0)),
    "TransformedDistribution": lambda p, d: D.TransformedDistribution(
        D.Normal(p(0.0, 1.0), p(1.0, 2.0)), [D.SigmoidTransform(), D.AffineTransform(1.0, 2.0)]),
    "Uniform": lambda p, d: D.Uniform(p(0.0, 1.0), p(1.0, 2.0)),
    "VonMises": lambda p, d: D.VonMises(p(0.0, 1.0), p(1.0, 2.0)),
    "Weibull": lambda p, d: D.Weibull(p(1.0, 2.0), p(1.0, 3.0)),
    "Wishart": lambda p, d: D.Wishart(p(12.0).squeeze(0), correlations(d)),
}


def parameters(d, requires_grad=False):
    return lambda *numbers: torch.tensor(numbers, device=d, requires_grad=requires_grad)


def test_every_distribution_of_pytorch_is_here():
    abstract = {"Distribution", "ExponentialFamily"}
    assert {name for name in D.__all__ if isinstance(getattr(D, name), type) and issubclass(getattr(D, name), D.Distribution)
            } - abstract <= {name.split()[0] for name in MAKERS}


def test_every_random_op_runs_and_says_what_it_gives():
    """Random ops never run on the CPU, and where a meta kernel is missing torch.compile would draw numbers to find out."""
    from torch_pjrt import _C

    missing = []
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, kind = name.removeprefix("aten::").partition(".")
        if not name.startswith("aten::") or not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU"):
            continue
        op = getattr(getattr(torch.ops.aten, packet), kind or "default")
        if torch.Tag.nondeterministic_seeded not in op.tags or op._schema.is_mutable:
            continue
        meta = torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta")
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeExplicitAutograd")
        if not (meta or composite) or not (_C.has_lowering(name) or composite):
            missing.append(name)
    # What scaled_dot_product_attention asks of the CPU; on the device it takes another way.
    assert set(missing) <= {"aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_fused_sdp_choice"}


@pytest.mark.parametrize("name", MAKERS)
def test_samples_have_the_mean_and_deviation_that_the_distribution_says(name):
    count = 20_000
    dist = MAKERS[name](parameters("tpu"), "tpu")
    x = dist.sample((count,))
    assert x.device.type == "tpu" and dist.support.check(x).all()
    if name == "VonMises":  # its mean is that of directions
        assert (torch.atan2(x.sin().mean(0), x.cos().mean(0)) - dist.mean).abs().max() < 0.05
        return
    on_cpu = MAKERS[name](parameters("cpu"), "cpu")
    try:
        on_cpu.mean, on_cpu.variance
    except NotImplementedError:  # PyTorch knows none
        return
    mean, deviation = dist.mean.cpu(), dist.variance.sqrt().cpu()
    known = mean.isfinite() & deviation.isfinite()
    x = x.cpu().double()
    assert ((x.mean(0) - mean).abs() <= 6 * deviation / math.sqrt(count) + 1e-6)[known].all()
    assert torch.isclose(x.std(0), deviation.double(), rtol=0.15, atol=1e-6)[known].all()  # of heavy tails, too


@pytest.mark.parametrize("name", MAKERS)
def test_densities_and_their_gradients_are_the_cpus(name):
    x = MAKERS[name](parameters("tpu"), "tpu").sample((5,)).cpu()

    def program(d):
        given = []

        def leaf(*numbers):
            given.append(torch.tensor(numbers, device=d, requires_grad=True))
            return given[-1]

        dist = MAKERS[name](leaf, d)
        density = dist.log_prob(x.to(d))
        results = [density] + list(torch.autograd.grad(density.sum(), given, allow_unused=True, retain_graph=True))
        for ask in (dist.entropy, lambda: dist.cdf(x.to(d))):
            try:
                results.append(ask())
            except NotImplementedError:  # PyTorch knows none; what the device alone lacks makes the lists differ in length
                pass
        return [torch.zeros(()) if r is None else r for r in results]

    like_cpu(program, rtol=1e-3, atol=1e-4)  # log1p, lgamma and digamma of two libraries, and differences of them


# Without a mean, with a biased gradient, and one whose rsample overwrites in torch 2.13 what its backward needs, on the CPU too.
NO_GRADIENT = ("Cauchy", "HalfCauchy", "OneHotCategoricalStraightThrough", "Wishart")


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in NO_GRADIENT])
def test_the_gradient_of_samples_is_that_of_the_mean(name):
    given = []

    def leaf(*numbers):
        given.append(torch.tensor(numbers, device="tpu", requires_grad=True))
        return given[-1]

    dist = MAKERS[name](leaf, "tpu")
    if not dist.has_rsample:
        pytest.skip("its samples have no gradient")
    weights = torch.arange(1.0, 1 + (dist.batch_shape + dist.event_shape).numel(), device="tpu")
    weights = weights.view(dist.batch_shape + dist.event_shape)
    try:
        mean = (dist.mean * weights).sum()
    except NotImplementedError:
        pytest.skip("PyTorch knows no mean of it")
    wanted = torch.autograd.grad(mean, given, allow_unused=True, retain_graph=True)
    # 40 estimates, whose spread is their error.
    estimates = []
    for _ in range(40):
        sample = (dist.rsample((1000,)) * weights).mean(0).sum()
        estimates.append([torch.zeros(1) if g is None else g.cpu()
                          for g in torch.autograd.grad(sample, given, allow_unused=True, retain_graph=True)])
    for i, gradient in enumerate(wanted):
        if gradient is None:
            continue
        all_of = torch.stack([e[i] for e in estimates])
        error = all_of.std(0) / math.sqrt(len(estimates))
        assert ((all_of.mean(0) - gradient.cpu()).abs() <= 5 * error + 1e-3 * gradient.cpu().abs() + 1e-5).all()


def samples(a):
    return (D.Gamma(a, 2.0, validate_args=False).rsample((4,)), D.Beta(a, 2.0, validate_args=False).rsample((4,)),
            D.Binomial(30, torch.sigmoid(a), validate_args=False).sample((4,)),
            D.Poisson(a, validate_args=False).sample((4,)), torch.rand(3, device="tpu"))


@pytest.mark.parametrize("mode", ["fused", "blocking", "compiled"])
def test_samples_are_the_same_in_every_mode(mode):
    a = torch.tensor([0.5, 2.0, 30.0], device="tpu")
    torch.manual_seed(3)
    strict = samples(a)
    torch.manual_seed(3)
    if mode == "compiled":
        got = torch.compile(samples)(a)
    else:
        with torch.tpu.set_eager_mode(mode):
            got = samples(a)
    same(got, strict, rtol=1e-6, atol=1e-6)  # arithmetic on a number may be fused
    same(got[2:], strict[2:], **EXACT)
