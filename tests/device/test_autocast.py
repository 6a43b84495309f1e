"""Autocast: which op runs in which type, and that gradients keep the parameter's."""
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from child import run
from compare import ROUNDING, same

LOWER = {
    "linear": lambda x: F.linear(x, x), "matmul": lambda x: x @ x, "bmm": lambda x: torch.bmm(x[None], x[None]),
    "addmm": lambda x: torch.addmm(x, x, x),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "conv2d": lambda x: F.conv2d(x[None, None], x[None, None, :2, :2]),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
}
FLOAT32 = {
    "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(-1), "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sum": lambda x: x.sum(), "cumsum": lambda x: x.cumsum(0), "prod": lambda x: x.prod(0), "norm": lambda x: x.norm(),
    "pow": lambda x: x.pow(2),
    "layer_norm": lambda x: F.layer_norm(x, (4,)), "mse_loss": lambda x: F.mse_loss(x, x + 1),
    "rsqrt": lambda x: x.rsqrt(),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2, 3], device=x.device)),
}
HALVES = pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])


def positive(dtype):
    return (torch.rand(4, 4, device="tpu") + 0.5).to(dtype)


@HALVES
@pytest.mark.parametrize("name", LOWER)
def test_products_run_in_the_half_type(name, half):
    x = positive(torch.float32)
    with torch.autocast("tpu", dtype=half):
        assert LOWER[name](x).dtype is half
    assert LOWER[name](x).dtype is torch.float32


@HALVES
@pytest.mark.parametrize("name", FLOAT32)
def test_sums_and_powers_run_in_float32(name, half):
    x = positive(half)
    with torch.autocast("tpu", dtype=half):
        assert FLOAT32[name](x).dtype is torch.float32


@HALVES
def test_other_ops_keep_their_type_and_mixed_arguments_take_the_widest(half):
    x, y = positive(half), positive(torch.float32)
    with torch.autocast("tpu", dtype=half):
        assert (x + x).dtype is half and x.relu().dtype is half and (x + y).dtype is torch.float32
        assert torch.cat([x, y]).dtype is torch.float32 and torch.stack([y, x]).dtype is torch.float32
        assert torch.addcmul(x, y, x).dtype is torch.float32


def test_regions_nest_and_end():
    x = torch.ones(2, 2, device="tpu")
    with torch.autocast("tpu", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("tpu") and (x @ x).dtype is torch.bfloat16
        with torch.autocast("tpu", enabled=False):
            assert (x @ x).dtype is torch.float32
        with torch.autocast("tpu", dtype=torch.float16):
            assert (x @ x).dtype is torch.float16
        assert (x @ x).dtype is torch.bfloat16
    assert not torch.is_autocast_enabled("tpu") and (x @ x).dtype is torch.float32


def products_dtype():
    x = torch.ones(2, 2, device="tpu")
    with torch.autocast("tpu"):
        return torch.get_autocast_dtype("tpu"), (x @ x).dtype


def test_without_a_type_autocast_takes_bfloat16_in_every_thread():
    with ThreadPoolExecutor(1) as other:
        for found in (products_dtype(), other.submit(products_dtype).result(),
                      other.submit(torch.get_autocast_dtype, "tpu").result()):
            assert found in (torch.bfloat16, (torch.bfloat16, torch.bfloat16))


def test_a_type_that_was_set_stays_in_its_thread():
    def choose():
        torch.set_autocast_dtype("tpu", torch.float16)
        return products_dtype()

    with ThreadPoolExecutor(1) as other:
        assert other.submit(choose).result() == (torch.float16, torch.float16)
    assert products_dtype() == (torch.bfloat16, torch.bfloat16)


@pytest.mark.parametrize("imports", ["import torch", "import torch_pjrt, torch", "import torch, torch_pjrt"])
def test_autocasts_type_is_bfloat16_whatever_is_imported_first(imports):
    run("""
    assert torch.get_autocast_dtype("tpu") is torch.bfloat16
    assert torch.autocast("tpu").fast_dtype is torch.bfloat16
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16 and torch.get_autocast_dtype("cuda") is torch.float16
    """, prelude=imports + "\n")


def test_training_under_autocast_keeps_float32_parameters_and_follows_float32():
    def train(enabled):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)).to("tpu")
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = torch.randn(8, 6).to("tpu"), torch.randint(3, (8,)).to("tpu")
        losses = []
        for _ in range(4):
            with torch.autocast("tpu", dtype=torch.bfloat16, enabled=enabled):
                loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            assert all(p.grad.dtype is torch.float32 for p in model.parameters())
            opt.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    low, full = train(True), train(False)
    same(low, full, rtol=2e-2, atol=2e-2)  # bfloat16 has 8 bits
    assert not torch.equal(low, full)


@pytest.mark.eager("strict")
def test_a_parameter_is_cast_once_in_a_region():
    layer, x = nn.Linear(4, 4).to("tpu"), torch.ones(2, 4, device="tpu", dtype=torch.bfloat16)

    def executions(times):
        before = torch.tpu.counters()["executions"]
        with torch.autocast("tpu", dtype=torch.bfloat16):
            for _ in range(times):
                layer(x)
        return torch.tpu.counters()["executions"] - before

    # Weight and bias become bfloat16 once; then there is one product a call.
    assert [executions(times) for times in (1, 2, 5)] == [3, 4, 7]


def test_custom_functions_take_the_type_that_they_ask_for():
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="tpu", cast_inputs=torch.float32)
        def forward(ctx, x):
            assert x.dtype is torch.float32 and not torch.is_autocast_enabled("tpu")
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="tpu")
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad @ x.t() + x.t() @ grad

    x = positive(torch.bfloat16).requires_grad_()
    with torch.autocast("tpu", dtype=torch.bfloat16):
        y = Product.apply(x)
        assert y.dtype is torch.float32
    y.sum().backward()
    assert x.grad.dtype is torch.bfloat16


def scaled_training(d, fused):
    """Four steps, the third of which overflows."""
    torch.manual_seed(2)
    model = nn.Linear(4, 3).to(d)
    opt = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler(d, init_scale=2.0**10, growth_interval=2)
    scales, norms = [], []
    for step in range(4):
        loss = model(torch.linspace(-1, 1, 8).reshape(2, 4).to(d)).square().sum() * (float("inf") if step == 2 else 1)
        opt.zero_grad()
        scaler.scale(loss).backward()
        if not fused:
            scaler.unscale_(opt)
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        scaler.step(opt)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [1024, 2048, 1024, 1024]
    other = torch.amp.GradScaler(d)
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 1024 and other.state_dict() == scaler.state_dict()
    return [p for p in model.parameters()], norms


@pytest.mark.parametrize("fused", [False, True], ids=["unscaled", "fused"])
def test_a_gradient_scaler_skips_steps_that_overflow_and_grows_again(fused, native):
    same(scaled_training("tpu", fused), scaled_training("cpu", fused), **ROUNDING)


def test_autocast_tells_its_default_and_refuses_other_types():
    assert torch.amp.is_autocast_available("tpu") and torch.get_autocast_dtype("tpu") in (torch.bfloat16, torch.float16)
    assert torch.tpu.get_amp_supported_dtype() == [torch.bfloat16, torch.float16] and torch.tpu.is_bf16_supported()
    with pytest.warns(UserWarning, match="supports dtypes of torch.bfloat16, torch.float16"), \
            torch.autocast("tpu", dtype=torch.float32):
        assert not torch.is_autocast_enabled("tpu")
    x = torch.ones(2, 2, device="tpu")
    with torch.autocast("tpu", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(x, x)


def test_the_precision_of_float32_products_is_what_was_asked_for():
    before = torch.get_float32_matmul_precision()
    x = torch.randn(64, 64).to("tpu")
    try:
        for precision in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(precision)
            assert torch.get_float32_matmul_precision() == precision
            same(x @ x, x.cpu() @ x.cpu(), rtol=2e-2, atol=0.5)  # medium is bfloat16 on a TPU
        torch.set_float32_matmul_precision("highest")
        # Sums of 64 float32 products of about 1: below bfloat16's error by far.
        same(x @ x, (x.cpu().double() @ x.cpu().double()).float(), rtol=1e-4, atol=1e-4)
    finally:
        torch.set_float32_matmul_precision(before)
