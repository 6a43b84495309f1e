"""Optimizers, clipping and scaling follow the CPU step by step."""
import pytest
import torch
import torch.nn as nn
from compare import like_cpu, same

CHOICES = {
    "SGD": (torch.optim.SGD, dict(lr=0.1)),
    "SGD, Nesterov": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
    "SGD, fused": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, fused=True)), "Adam": (torch.optim.Adam, dict(lr=0.02)),
    "Adam, AMSGrad": (torch.optim.Adam, dict(lr=0.02, amsgrad=True, weight_decay=0.1)),
    "Adam, foreach": (torch.optim.Adam, dict(lr=0.02, foreach=True)),
    "Adam, fused": (torch.optim.Adam, dict(lr=0.02, fused=True)), "AdamW": (torch.optim.AdamW, dict(lr=0.02)),
    "AdamW, one by one": (torch.optim.AdamW, dict(lr=0.02, foreach=False)),
    "AdamW, fused": (torch.optim.AdamW, dict(lr=0.02, fused=True)),
    "AdamW, maximize": (torch.optim.AdamW, dict(lr=0.02, maximize=True)), "Adamax": (torch.optim.Adamax, {}),
    "NAdam": (torch.optim.NAdam, {}),
    "RAdam": (torch.optim.RAdam, {}), "Adadelta": (torch.optim.Adadelta, {}), "Adagrad": (torch.optim.Adagrad, {}),
    "Adagrad, fused": (torch.optim.Adagrad, dict(fused=True)), "ASGD": (torch.optim.ASGD, {}),
    "Rprop": (torch.optim.Rprop, {}),
    "RMSprop": (torch.optim.RMSprop, dict(lr=0.01)),
    "RMSprop, centered": (torch.optim.RMSprop, dict(lr=0.01, centered=True, momentum=0.5)),
    "Adafactor": (torch.optim.Adafactor, {}),
}


def training(device, optimizer, options, steps=4):
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2)).to(device)
    opt = optimizer(model.parameters(), **options)
    for step in range(steps):
        x = torch.linspace(-2, 2, 15).roll(step).reshape(3, 5).to(device)
        opt.zero_grad()
        model(x).square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    return list(model.parameters())


@pytest.mark.parametrize("name", CHOICES)
def test_parameters_after_steps_are_the_cpus_without_a_fallback(name, native):
    optimizer, options = CHOICES[name]
    like_cpu(lambda d: training(d, optimizer, options), rtol=1e-3,
             atol=1e-4)  # g / sqrt(g * g) magnifies the rounding of a small g


def sgd_steps(d):
    return training(d, torch.optim.SGD, dict(lr=0.1, momentum=0.9))


def adamw_steps(d):
    return training(d, torch.optim.AdamW, dict(lr=0.02))


def line_search(d):
    w = nn.Parameter(torch.tensor([-1.0, 1.5], device=d))
    opt = torch.optim.LBFGS([w], max_iter=8, line_search_fn="strong_wolfe")

    def loss():
        opt.zero_grad()
        value = (1 - w[0])**2 + 5 * (w[1] - w[0]**2)**2
        value.backward()
        return value

    opt.step(loss)
    return w


def test_lbfgs_searches_as_on_the_cpu(native):
    like_cpu(line_search, rtol=1e-3, atol=1e-3)


PROGRAMS = [sgd_steps, adamw_steps]


@pytest.mark.parametrize("clip",
                         [lambda p: nn.utils.clip_grad_norm_(p, 0.7),
                          lambda p: nn.utils.clip_grad_norm_(p, 2.0, norm_type=float("inf")),
                                  lambda p: nn.utils.clip_grad_norm_(p, 100.0),
                                  lambda p: nn.utils.clip_grad_norm_(p, 0.7, foreach=False),
                                  lambda p: nn.utils.clip_grad_value_(p, 0.5),
                                  lambda p: nn.utils.get_total_norm([x.grad for x in p])])
def test_clipped_gradients_are_the_cpus(clip, native):
    def program(device):
        parameters = [nn.Parameter(torch.ones(n, 3, device=device)) for n in (1, 4, 2)]
        for k, p in enumerate(parameters):
            p.grad = torch.linspace(-k - 1, 1, p.numel()).reshape(p.shape).to(device)
        return clip(parameters), [p.grad for p in parameters]

    like_cpu(program, rtol=1e-5, atol=1e-6)


def test_a_scaler_skips_the_steps_whose_gradients_overflow(native):
    w = nn.Parameter(torch.ones(3, device="tpu"))
    opt = torch.optim.SGD([w], lr=0.5)
    scaler = torch.amp.GradScaler("tpu", init_scale=1024.0, growth_interval=2)
    scales = []
    for value in (1.0, float("inf"), 2.0, 3.0):
        opt.zero_grad()
        scaler.scale((w * value).sum()).backward()
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        scales.append(scaler.get_scale())
    same(w, torch.full((3,), 1 - 0.5 * (1.0 + 2.0 + 3.0)))
    assert scales == [1024.0, 512.0, 512.0, 1024.0]


def test_averaged_weights_and_schedules_are_the_cpus(native):
    def program(device):
        model = nn.Linear(3, 2).to(device)
        average = torch.optim.swa_utils.AveragedModel(model,
                                                      multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        opt = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.2))
        schedule = torch.optim.lr_scheduler.SequentialLR(
            opt, [torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 2),
                  torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)], [2])
        for step in range(5):
            opt.zero_grad()
            model(torch.full((4, 3), step + 1.0, device=device)).square().mean().backward()
            opt.step()
            schedule.step()
            average.update_parameters(model)
        return list(model.parameters()), list(average.parameters())

    like_cpu(program, rtol=1e-4, atol=1e-5)


def test_gradients_are_dropped_or_zeroed():
    w = nn.Parameter(torch.ones(2, device="tpu"))
    opt = torch.optim.SGD([w], lr=0.1)
    (w * 3).sum().backward()
    opt.zero_grad(set_to_none=False)
    same(w.grad, torch.zeros(2))
    opt.zero_grad()
    assert w.grad is None
