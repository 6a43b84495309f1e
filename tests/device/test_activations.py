"""Activations run on the device, forward and backward, without a fallback."""
import math

import pytest
import torch
import torch.nn.functional as F
from compare import ROUNDING, same

ACTIVATIONS = {
    "gelu": F.gelu, "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish,
    "elu": F.elu,
    "celu": F.celu, "selu": F.selu, "softplus": F.softplus, "softplus with beta": lambda x: F.softplus(x, 2.0, 5.0),
    "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "hardtanh": F.hardtanh, "leaky_relu": F.leaky_relu,
    "logsigmoid": F.logsigmoid, "tanhshrink": F.tanhshrink, "softshrink": F.softshrink, "hardshrink": F.hardshrink,
    "softsign": F.softsign, "relu": F.relu, "relu6": F.relu6, "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "glu": F.glu, "prelu": lambda x: F.prelu(x, x.new_full((1,), 0.3)),
    "softmin": lambda x: F.softmin(x, -1), "log_softmax": lambda x: F.log_softmax(x, 0),
    "rrelu": lambda x: F.rrelu(x, training=False),
}
each_activation = pytest.mark.parametrize("name", ACTIVATIONS)


def value_and_gradient(f, x, device):
    leaf = x.to(device).requires_grad_()
    y = f(leaf.t())  # a view with strides of its own
    (y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype, device=device).reshape(y.shape)).sum().backward()
    return y, leaf.grad


@each_activation
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_values_and_gradients_are_the_cpus_without_a_fallback(name, dtype, native):
    x = (3 * torch.randn(6, 11)).to(dtype)
    # bfloat16: one unit of the last place where two float32 results straddle a rounding border.
    tolerance = ROUNDING if dtype is torch.float32 else dict(rtol=2**-7, atol=1e-2)
    same(value_and_gradient(ACTIVATIONS[name], x, "tpu"), value_and_gradient(ACTIVATIONS[name], x, "cpu"), **tolerance)


@each_activation
def test_far_and_special_values_are_the_cpus(name, native):
    x = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 30.0, -30.0, 200.0, -200.0, 1e30, -1e30, math.inf, -math.inf, math.nan,
                      1.0])
    x = x[:, None].repeat(1, 2)
    if name == "gelu":
        x = x[~x.isposinf()].view(-1, 2)  # the CPU's vectors give inf * (1 + erf(inf)) = NaN there
    same(ACTIVATIONS[name](x.to("tpu")), ACTIVATIONS[name](x), **ROUNDING)


@pytest.mark.parametrize("name",
                         ["relu_", "elu_", "celu_", "selu_", "leaky_relu_", "hardtanh_", "threshold_", "rrelu_"])
def test_an_activation_in_place_writes_its_argument(name, native):
    def program(device):
        x = torch.linspace(-2, 2, 24).reshape(4, 6).to(device)
        arguments = (0.5, -3.0) if name == "threshold_" else ()
        result = getattr(F, name)(x[1:3], *arguments)
        return x, result

    x, result = program("tpu")
    assert result.data_ptr() == x[1:3].data_ptr()
    same((x, result), program("cpu"), **ROUNDING)
