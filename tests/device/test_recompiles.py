"""What changes from step to step makes no new program; what makes one is told with its reason.

Programs are counted whether they were compiled or came from the disk: a warm cache hides nothing.
"""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from child import run
from compare import ROUNDING, counted, same

pytestmark = pytest.mark.eager("strict")  # a region is a program of its own (test_fused_eager.py)


@pytest.mark.parametrize("op", [
    lambda x, k: x * k, lambda x, k: x + k, lambda x, k: k - x, lambda x, k: x / k, lambda x, k: x > k,
    lambda x, k: torch.add(x, x, alpha=k), lambda x, k: x.clamp(-k, k), lambda x, k: x.lerp(x + 1, k),
    lambda x, k: x.addcmul(x, x, value=k), lambda x, k: x.clone().fill_(k), lambda x, k: x.masked_fill(x > 0, k),
    lambda x, k: torch.where(x > 0, x, k), lambda x, k: torch.full_like(x, k), lambda x, k: F.leaky_relu(x, k),
    lambda x, k: F.elu(x, alpha=k), lambda x, k: x.clone().add_(k).mul_(k),
    lambda x, k: torch.arange(5, device=x.device) * k,
    lambda x, k: torch._foreach_mul([x, x + 1], k)])
def test_python_numbers_that_change_make_no_program(op, native):
    host = torch.linspace(0.5, 2, 81).reshape(9, 9)
    x = host.to("tpu")
    results = []
    op(x, 0.375)

    def loop():
        for k in range(12):
            results.append(op(x, 0.5 + k / 16))

    assert counted(loop)["programs"] == 0
    for k, result in enumerate(results):
        same(result, op(host, 0.5 + k / 16), rtol=1e-5, atol=1e-5)


POWERS = {
    "**": lambda x, k: x ** k, "pow_": lambda x, k: x.clone().pow_(k), "foreach": lambda x, k: torch._foreach_pow([x, x + 1], k)[1],
    "addmm alpha": lambda x, k: torch.addmm(x, x, x, alpha=k), "addmm beta": lambda x, k: torch.addmm(x, x, x, beta=k),
    "baddbmm": lambda x, k: torch.baddbmm(x[None], x[None], x[None], alpha=k, beta=k)[0],
    "addmv": lambda x, k: torch.addmv(x[0], x, x[1], alpha=k, beta=k), "addr": lambda x, k: torch.addr(x, x[0], x[1], alpha=k),
    "addbmm": lambda x, k: torch.addbmm(x, x[None], x[None], alpha=k, beta=k),
}


@pytest.mark.parametrize("name", POWERS)
def test_only_special_exponents_and_factors_are_programs_of_their_own(name, native):
    """0, +-0.5, +-1, +-2 and 3 are: at most eight programs, however many values a loop goes through."""
    op, host = POWERS[name], torch.linspace(0.5, 2, 81).reshape(9, 9)
    x = host.to("tpu")
    op(x, 1.375)
    for k in (0.0, 0, 0.5, -0.5, 1, -1, 2, -2, 3, 2.0):
        same(op(x, k), op(host, k), rtol=1e-5, atol=1e-5)
    values = [1.01 + i / 7 for i in range(9)] + [-1.7, -3.3]

    def loop():
        for k in values:
            same(op(x, k), op(host, k), rtol=1e-5, atol=1e-5)

    assert counted(loop)["programs"] == 0


def test_a_changing_integer_exponent_makes_no_program_and_a_negative_one_is_refused(native):
    host = torch.arange(-5, 6)
    x = host.to("tpu")
    x ** 4
    assert counted(lambda: [x ** k for k in range(5, 12)])["programs"] == 0
    for k in (0, 1, 2, 3, 4, 5, 9):
        assert torch.equal((x ** k).cpu(), host ** k)
    for bad in (lambda t: t ** -3, lambda t: t.pow_(-1), lambda t: torch._foreach_pow([t], -4)):
        for t in (host.clone(), x):
            with pytest.raises(RuntimeError, match="negative integer powers"):
                bad(t)


def test_factors_of_integer_products_are_truncated_as_on_the_cpu():
    host = torch.arange(9).reshape(3, 3)
    x = host.to("tpu")
    for k in (0.5, 1.5, 2, 2.75):
        same(torch.addmm(x, x, x, alpha=k, beta=k), torch.addmm(host, host, host, alpha=k, beta=k))


@pytest.mark.parametrize("optimizer, options", [
    (torch.optim.SGD, dict(momentum=0.9)), (torch.optim.Adam, {}), (torch.optim.AdamW, dict(foreach=False)),
    (torch.optim.RMSprop, {}), (torch.optim.Adagrad, {})])
def test_a_learning_rate_schedule_and_the_step_count_make_no_program(optimizer, options):
    model = nn.Linear(7, 3).to("tpu")
    opt = optimizer(model.parameters(), lr=0.1, **options)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=20)
    x = torch.randn(5, 7, device="tpu")

    def steps(count):
        for _ in range(count):
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()
            schedule.step()

    steps(3)
    assert counted(lambda: steps(15))["programs"] == 0


def test_seeds_and_random_numbers_make_no_program():
    x = torch.ones(31, 33, device="tpu")

    def draw(seed):
        torch.manual_seed(seed)
        return [F.dropout(x, 0.25), torch.rand_like(x), torch.randn(31, device="tpu"), torch.randperm(31, device="tpu"),
                torch.empty(31, device="tpu").uniform_(-seed, seed), torch.bernoulli(x / 2)]

    draw(2)
    assert counted(lambda: [draw(seed) for seed in range(3, 13)])["programs"] == 0


@pytest.mark.parametrize("make", [nn.LSTMCell, nn.GRUCell])
def test_a_recurrent_cell_walks_a_sequence_in_a_bounded_number_of_programs(make):
    cell = make(6, 9).to("tpu")
    steps = torch.randn(120, 3, 6, device="tpu")

    def walk():
        state = None
        for step in range(len(steps)):
            state = cell(steps[step], state)
        torch.tpu.synchronize()

    assert counted(walk)["programs"] <= 30


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_makes_no_program_for_another_sequence_of_equal_length(make):
    layer = make(6, 9, num_layers=2, batch_first=True).to("tpu")

    def train():
        out, _ = layer(torch.randn(3, 7, 6).to("tpu"))
        out.square().sum().backward()

    train()
    train()
    assert counted(lambda: [train() for _ in range(3)])["programs"] == 0


def test_positions_in_a_buffer_become_inputs_of_one_program():
    x = torch.randn(90, 11, device="tpu")
    y = torch.zeros(90, 11, device="tpu")

    def copy_rows():
        for i in range(len(x)):
            y[i] = x[i] * 2

    assert counted(copy_rows)["programs"] <= 40
    same(y, x.cpu() * 2)


def test_a_training_step_makes_no_program_from_the_second_on():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(),
                          nn.LazyLinear(5))
    model = model.to("tpu")
    model(torch.zeros(2, 3, 6, 6, device="tpu"))
    opt = torch.optim.AdamW(model.parameters())

    def step():
        x, y = torch.randn(4, 3, 6, 6).to("tpu"), torch.randint(5, (4,)).to("tpu")
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()

    step()
    step()
    assert counted(lambda: [step() for _ in range(5)])["programs"] == 0


def test_explain_tells_why_each_program_was_made():
    run("""
    def reasons(f):
        torch.tpu.synchronize()
        seen = len(torch.tpu.explain())
        f()
        torch.tpu.synchronize()
        return [(row["op"], row["reason"]) for row in torch.tpu.explain()[seen:]]

    x = torch.ones(4, 6).to("tpu")
    for f, reason in [(lambda: x.cosh(), "new op"), (lambda: x.cosh(), None), (lambda: x[0].cosh(), "new shape"),
                      (lambda: torch.ones(6, dtype=torch.float64).to("tpu").cosh(), "new dtype"),
                      (lambda: x.t().cosh(), ...),
                      (lambda: x[:, 1::2].cosh(), ...), (lambda: x[:, ::2].cosh(), "new layout"),
                      (lambda: x.sum(0), "new op"),
                      (lambda: x.sum(1), "new constant")]:
        got = reasons(f)
        if reason is not ...:
            assert [why for _, why in got] == ([reason] if reason else []), (reason, got)

    torch.tpu.set_eager_mode("fused", length=8)
    got = reasons(lambda: (x + 1).cosh().sum().item())
    assert [why for _, why in got] == ["new region"] and " + " in got[0][0], got
    """)


PROGRAM = """
model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).to("tpu")
loss = model(torch.randn(3, 4, device="tpu")).square().mean()
loss.backward()
loss.item()
counters = torch.tpu.counters()
print(counters["compiles"], counters["cache_loads"])
"""


def test_a_second_process_compiles_nothing(tmp_path):
    compiles, loads = map(int, run(PROGRAM, TORCH_PJRT_CACHE_DIR=str(tmp_path)).split())
    assert compiles > 0 and loads == 0
    assert run(PROGRAM, TORCH_PJRT_CACHE_DIR=str(tmp_path)).split() == ["0", str(compiles)]


def test_the_gradient_of_each_position_is_one_program():
    x = torch.randn(60, 5, device="tpu", requires_grad=True)
    weight = torch.arange(60.0)

    def train():
        x.grad = None
        total = 0
        for i in range(60):
            total = total + x[i].sum() * float(weight[i]) + x[i:i + 1, 1:3].sum()
        total.backward()

    assert counted(train)["programs"] <= 60
    expected = weight[:, None].repeat(1, 5)
    expected[:, 1:3] += 1
    same(x.grad, expected)


def test_a_range_that_slides_is_one_program():
    def slide():
        for start in range(40):
            assert torch.arange(start, start + 3, device="tpu").tolist() == [start, start + 1, start + 2]
            assert torch.arange(start / 2, start / 2 + 1, 0.5, device="tpu").tolist() == [start / 2, start / 2 + 0.5]

    assert counted(slide)["programs"] <= 2


def test_the_first_starts_are_compiled_in_and_the_others_are_one_program():
    """Four layouts of their own, then one for all (core/run/starts.c)."""
    x = torch.arange(1000.0, device="tpu").reshape(100, 10)

    def read():
        for i in range(100):
            same(x[i].exp2(), torch.arange(10.0 * i, 10.0 * i + 10).exp2())

    assert counted(read)["programs"] == 5
    assert counted(read)["programs"] == 0


def test_views_that_lie_otherwise_are_programs_of_their_own():
    """Seven elements of a flat view: within a row of the base, or over the end of one."""
    x = torch.arange(60.0).reshape(6, 10)
    y = x.to("tpu")
    for offset in range(53):
        view = torch.as_strided(x, (7,), (1,), offset)
        same(torch.as_strided(y, (7,), (1,), offset) + 1, view + 1)
    for offset in range(0, 50, 3):
        view = torch.as_strided(x, (2, 4), (3, 2), offset)
        same(torch.as_strided(y, (2, 4), (3, 2), offset) + 1, view + 1)


def test_writes_at_moving_places_equal_the_cpus():
    x = torch.zeros(40, 6, 8, dtype=torch.bfloat16)
    y = x.to("tpu")
    for i in range(40):
        for t in (x, y):
            t[i, i % 6] = i
            t[i, ::2, 1::3] += 1
            t[:, i % 6, i % 8].mul_(0.5)
            t.view(-1)[i * 48 + i: i * 48 + i + 3].index_fill_(0, torch.tensor([1, 2], device=t.device), -i)
            t[i].index_put_((torch.tensor([0, 5], device=t.device),), torch.full((2, 8), i + 0.5, dtype=t.dtype, device=t.device))
            t[i:i + 1].scatter_add_(1, torch.zeros(1, 1, 8, dtype=torch.long, device=t.device), torch.ones(1, 1, 8, dtype=t.dtype, device=t.device))
            t.view(torch.uint8)[i, 3, 2:4] = torch.tensor([0, 64], dtype=torch.uint8, device=t.device)
    same(y, x)


def test_lengths_of_sequences_that_change_make_no_program(native):
    log_probs, targets = torch.randn(9, 2, 5).log_softmax(2), torch.tensor([[1, 2, 2, 3], [4, 1, 1, 2]])
    results = []

    def step(device, inputs, lengths):
        x = log_probs.detach().to(device).requires_grad_()
        loss = F.ctc_loss(x, targets.to(device), torch.tensor(inputs), torch.tensor(lengths))
        loss.backward()
        return torch.cat([loss.detach().reshape(1), x.grad.flatten()])

    step("tpu", [9, 9], [4, 4])
    batches = [([9, 8], [4, 3]), ([9, 5], [4, 1]), ([6, 9], [2, 4])]
    assert counted(lambda: results.extend(step("tpu", *batch) for batch in batches))["programs"] == 0
    for batch, result in zip(batches, results):
        same(result, step("cpu", *batch), **ROUNDING)
