"""Autograd: threads, checkpoints, hooks, custom functions, higher derivatives."""
import threading

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from compare import EXACT, ROUNDING, like_cpu, same
from torch.utils.checkpoint import checkpoint


def test_backward_runs_on_many_threads_at_once():
    weight = torch.randn(6, 6, device="tpu", requires_grad=True)
    errors = []

    def work(i):
        try:
            for step in range(5):
                x = torch.full((7, 6), float(i + step), device="tpu")
                (gradient,) = torch.autograd.grad((x @ weight).sum(), weight)
                same(gradient, torch.full((6, 6), 7.0 * (i + step)))
        except Exception as error:  # told below: an exception of a thread fails no test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and not any(thread.is_alive() for thread in threads)


def test_gradients_of_many_threads_add_up_in_one_parameter():
    weight = nn.Parameter(torch.zeros(5, device="tpu"))

    def work(i):
        (weight * i).sum().backward()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    same(weight.grad, torch.full((5,), 36.0))


@pytest.mark.parametrize("reentrant", [False, True], ids=["saved tensors", "reentrant"])
def test_a_checkpoint_gives_the_same_gradients_with_the_same_dropout(reentrant):
    block = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 8)).to("tpu")
    x = torch.randn(4, 8)
    gradients = []
    for run in (block, lambda y: checkpoint(block, y, use_reentrant=reentrant)):
        torch.manual_seed(4)
        leaf = x.to("tpu").requires_grad_()
        block.zero_grad()
        run(leaf).square().sum().backward()
        gradients.append([leaf.grad] + [p.grad.clone() for p in block.parameters()])
    same(gradients[1], gradients[0], rtol=1e-6, atol=1e-6)  # the same ops again, at most a rounding apart


def hooks(d):
    seen = []
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(d)
    x = torch.linspace(-1, 1, 6).reshape(2, 3).to(d).requires_grad_()
    x.register_hook(lambda g: g * 2)
    model[0].weight.register_hook(lambda g: seen.append(g.clone()))
    model[1].register_full_backward_hook(lambda module, grad_in, grad_out: seen.append(grad_in[0] + grad_out[0]))
    model[2].register_forward_hook(lambda module, inputs, output: output * 3)
    model[2].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad + 1))
    y = model(x)
    y.retain_grad()
    y.square().sum().backward()
    return seen, x.grad, y.grad, [p.grad for p in model.parameters()]


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x**3 * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2 * ctx.scale, None


def custom_function(d):
    x = torch.tensor([1.0, -2.0, 0.5], device=d, requires_grad=True)
    y = Cube.apply(x, 0.25)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return y, first, second


def gradient_penalty(d):
    model = nn.Sequential(nn.Linear(3, 5), nn.SiLU(), nn.Linear(5, 1)).to(d)
    x = torch.linspace(-1, 2, 12).reshape(4, 3).to(d).requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    (slope.norm(dim=1) - 1).square().mean().backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def accumulation(d):
    w = torch.linspace(0, 1, 6, device=d).reshape(2, 3).requires_grad_()
    for i in range(3):
        (w.t() @ w * i).sum().backward()
    gradient = w.grad
    (w[:, 1:] ** 2).sum().backward()
    assert w.grad is gradient
    return w.grad


def inplace_in_the_graph(d):
    x = torch.linspace(-1, 1, 8, device=d, requires_grad=True)
    y = x * 2
    y[2:5].mul_(3).add_(x[:3])
    y.view(2, 4)[1, ::2] = x[:2] * 5
    y.relu_()
    y.sum().backward()
    return y, x.grad


def transforms(d):
    x, w = torch.linspace(-1, 1, 12, device=d).reshape(3, 4), torch.linspace(0, 2, 4, device=d)

    def f(w, row):
        return (row * w).sin().sum()

    return (torch.func.vmap(torch.func.grad(f), (None, 0))(w, x), torch.func.hessian(f)(w, x[0]),
            torch.func.jvp(f, (w, x[1]), (w, x[2])),
            torch.func.jacrev(lambda w: x @ w)(w))


def shared_and_unused(d):
    table, unused = nn.Embedding(7, 4).to(d), nn.Linear(2, 2).to(d)
    tokens = torch.tensor([[1, 2, 2], [6, 0, 1]], device=d)
    F.cross_entropy((table(tokens).mean(1) @ table.weight.t()), tokens[:, 0]).backward()
    assert unused.weight.grad is None
    return table.weight.grad


PROGRAMS = [hooks, custom_function, gradient_penalty, accumulation, inplace_in_the_graph, transforms, shared_and_unused]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_derivatives_are_the_cpus(program):
    like_cpu(program, **ROUNDING)


def test_a_saved_tensor_that_was_written_since_is_told():
    x = torch.ones(3, device="tpu", requires_grad=True)
    y = x.exp()
    y[0] = 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.add_(1)
    z = (x * x).sum()
    z.backward()
    with pytest.raises(RuntimeError, match="second time"):
        z.backward()


def test_gradients_match_finite_differences():
    x = torch.rand(3, 4, dtype=torch.float64, device="tpu", requires_grad=True)
    w = torch.rand(4, 2, dtype=torch.float64, device="tpu", requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: (x @ w).softmax(-1).log().tanh(), (x, w))
    assert torch.autograd.gradgradcheck(lambda x: F.softplus(x).prod(1), (x,))


def test_saved_tensors_may_wait_on_the_host():
    def gradient(context):
        x = torch.linspace(-1, 1, 9, device="tpu", requires_grad=True)
        with context:
            y = (x.sin() * x).exp()
        y.sum().backward()
        return x.grad

    same(gradient(torch.autograd.graph.save_on_cpu()), gradient(torch.enable_grad()), **EXACT)


def test_no_grad_detach_and_inference_mode_record_nothing():
    x = torch.ones(3, device="tpu", requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        y = x * 2
    assert y.is_inference() and not x.detach().requires_grad and (x * 2).requires_grad
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="nan"):
        (torch.zeros(2, device="tpu", requires_grad=True) * 0).sqrt().mul(0).sum().backward()
