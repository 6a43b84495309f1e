"""torch.compile: the same values as eager, in one program a graph."""
import warnings

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from compare import ROUNDING, counted, like_cpu, same


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="a graph of torch.compile runs op by op")
        yield


def compiled(f, d="tpu", **options):
    return f if d == "cpu" else torch.compile(f, **{"backend": "tpu", **options})


@pytest.mark.parametrize("options", [{}, {"backend": "inductor"}, {"backend": "tpu"}, {"backend": "tpu", "dynamic": True},
                                     {"mode": "reduce-overhead"}])
def test_a_function_gives_the_cpus_values_whatever_names_the_backend(options):
    f = torch.compile(lambda x, y: F.gelu(x @ y).softmax(-1) + x.sum(), **options)
    x, y = torch.randn(5, 7), torch.randn(7, 3)
    same(f(x.to("tpu"), y.to("tpu")), F.gelu(x @ y).softmax(-1) + x.sum(), **ROUNDING)


@pytest.mark.eager("strict")
def test_a_graph_is_one_execution_and_its_second_call_compiles_nothing():
    f = compiled(lambda x: (x.exp() * 2 + x[1:].sum(0)).tanh().view(-1)[::2].contiguous())
    x = torch.randn(4, 6).to("tpu")
    f(x)
    torch.tpu.synchronize()
    found = counted(lambda: f(x))
    assert found["executions"] == 1 and found["programs"] == 0


def model(d):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)).to(d)


def test_training_gives_the_cpus_gradients_and_running_statistics():
    def train(d):
        m = model(d)
        f = compiled(m, d)
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for step in range(3):
            x = torch.linspace(-1, 1, 2 * 3 * 36).reshape(2, 3, 6, 6).to(d) * (step + 1)
            loss = f(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return losses, dict(m.state_dict())

    like_cpu(train, **ROUNDING)


def test_dropout_draws_what_eager_draws():
    m = nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.4), nn.ReLU(), nn.Dropout(0.2)).to("tpu")
    x = torch.randn(4, 6).to("tpu")
    f = compiled(m)

    def run(f):
        torch.manual_seed(5)
        out = f(x)
        m.zero_grad()
        out.sum().backward()
        return out.detach(), [p.grad.clone() for p in m.parameters()], torch.rand(3, device="tpu")

    for _ in range(2):
        same(run(f), run(m), **ROUNDING)


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adam", "RMSprop"])
def test_a_compiled_optimizer_step_does_what_the_cpu_does(name):
    def train(d):
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(5, 3).to(d)), nn.Parameter(torch.randn(4).to(d))]
        optimizer = getattr(torch.optim, name)(parameters, lr=0.05)
        step = compiled(optimizer.step, d)
        for i in range(4):
            for p in parameters:
                p.grad = torch.full_like(p, 0.5 - 0.25 * i)
            step()
        return parameters, [optimizer.state[p].get("step", torch.zeros(())).cpu() for p in parameters]

    like_cpu(train, **ROUNDING)


def test_inputs_are_written_in_place_and_views_stay_views():
    def program(d):
        buffer = torch.zeros(6, 4, device=d)

        def update(buffer, row, i):
            buffer[i:i + 1] = row
            buffer.view(-1)[::5].add_(1)
            return buffer.sum(), buffer[2]

        f = compiled(update, d)
        total, row = f(buffer, torch.arange(4.0).to(d), 2)
        row.mul_(2)
        return buffer, total, row

    like_cpu(program, **ROUNDING)


@pytest.mark.eager("strict")
def test_a_written_input_is_donated():
    x = torch.zeros(1 << 16, device="tpu")
    f = compiled(lambda x: x.mul_(0.5).add_(1))
    f(x)
    torch.tpu.synchronize()
    found = counted(lambda: f(x))
    assert found["donations"] == 1 and found["executions"] == 1
    same(x, torch.full((1 << 16,), 1.5))


def test_graph_breaks_autocast_and_checkpointing():
    def program(d):
        torch.manual_seed(0)
        first, second = nn.Linear(6, 6).to(d), nn.Linear(6, 6).to(d)

        def f(x):
            with torch.autocast(d, dtype=torch.bfloat16):
                y = torch.utils.checkpoint.checkpoint(lambda x: torch.tanh(first(x)), x, use_reentrant=False)
            if float(y.sum()) > 1e9:  # read on the host
                return y
            return second(y.float()).sum()

        x = torch.linspace(-1, 1, 18).reshape(3, 6).to(d).requires_grad_()
        compiled(f, d)(x).backward()
        return x.grad, first.weight.grad

    like_cpu(program, rtol=2e-2, atol=2e-2)  # bfloat16 has 8 bits


def test_sizes_that_change_give_the_cpus_values():
    f = compiled(lambda x: F.layer_norm(x, x.shape[-1:]) * torch.arange(x.shape[0], device=x.device)[:, None], dynamic=True)
    for n in (3, 5, 9, 4):
        x = torch.linspace(-1, 1, n * 6).reshape(n, 6)
        same(f(x.to("tpu")), F.layer_norm(x, (6,)) * torch.arange(n)[:, None], **ROUNDING)


def test_a_graph_on_the_cpu_goes_where_it_went_before():
    f = torch.compile(lambda a: a + 1, backend="eager")
    assert f(torch.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize("f", [lambda x: (lambda y: (y, y[0]))(x * 2), lambda x: (lambda y: (y[1], y))(x * 2),
                               lambda x: (lambda y: (y.t(), y.view(-1)))(x * 2), lambda x: (lambda y: (y, y.detach()))(x * 2),
                               lambda x: (lambda y: (y[0], y[1:, ::2]))(x * 2), lambda x: (lambda y: (y, y))(x * 2),
                               lambda x: (x, x + 1, x[0]), lambda x: tuple((x * 2).split(1))])
def test_outputs_that_share_memory_go_on_sharing_it(f):
    def program(d):
        outputs = compiled(f, d)(torch.arange(6.0).reshape(2, 3).to(d))
        outputs[0].add_(10)
        outputs[-1].mul_(3)
        return outputs

    like_cpu(program)


def test_an_output_and_its_bits_share_memory():
    x = torch.ones(4, device="tpu")
    y, bits = compiled(lambda x: (lambda y: (y, y.view(torch.int32)))(x * 2))(x)
    y.mul_(2)
    same(bits, torch.full((4,), 4.0).view(torch.int32))


@pytest.mark.eager("strict")  # else it is part of a region
def test_a_graph_is_explained_by_its_number_its_inputs_and_the_compile_that_made_it():
    torch._dynamo.reset()
    double = torch.compile(lambda x: (x * 2).relu().sum(), backend="tpu", dynamic=False)
    for rows in (83, 84):  # met nowhere else
        double(torch.ones(rows, 4, device="tpu")).item()
    first, again = [row for row in torch.tpu.explain() if row["op"].startswith("graph:")][-2:]
    assert (first["shapes"], again["shapes"]) == ([(83, 4)], [(84, 4)]) and first["dtypes"] == ["f32"]
    frame, _, recompile = first["op"].partition("[")[2].rstrip("]").partition("/")
    assert recompile == "0" and again["op"].endswith(f"[{frame}/1]")
