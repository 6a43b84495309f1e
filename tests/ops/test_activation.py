"""Activations and their gradients give what PyTorch gives on CPU."""
import pytest
import torch
from harness import compare_wide, run

FLOATS = [torch.float32, torch.bfloat16, torch.float16]


def inputs(dtype):
    torch.manual_seed(0)
    x = torch.cat([torch.randn(2, 10) * 3, torch.tensor([[0.0, -0.0, 3.0, -3.0, 0.5, -0.5, 30.0, -30.0, 6.0, 1.0]])])
    return x.to(dtype)


FORWARD = {"relu": (), "gelu": (), "silu": (), "mish": (), "elu": (1.5, 1.1, 0.9), "celu": (1.3,),
           "softplus": (2.0, 5.0),
           "hardtanh": (-1.5, 0.5), "hardswish": (), "hardsigmoid": (), "leaky_relu": (0.2,), "threshold": (0.1, 20.0),
           "hardshrink": (0.5,), "softshrink": (0.5,), "glu": (1,), "logit": (0.1,), "log_sigmoid_forward": (),
           "sigmoid": ()}


@pytest.mark.parametrize("name", FORWARD)
def test_an_activation_gives_what_the_cpu_gives(name):
    for dtype in FLOATS:
        x = inputs(dtype)
        # log_sigmoid_forward's buffer is empty except on CPU: only the result counts.
        if name == "log_sigmoid_forward":
            torch.testing.assert_close(run("aten::" + name, x)[0], torch.nn.functional.logsigmoid(x.double()).to(dtype))
        else:
            compare_wide("aten::" + name, x, *FORWARD[name])


BACKWARD = {"gelu_backward": (), "silu_backward": (), "mish_backward": (), "softplus_backward": (2.0, 5.0),
            "hardtanh_backward": (-1.5, 0.5), "hardswish_backward": (), "hardsigmoid_backward": (),
            "leaky_relu_backward": (0.2, False), "threshold_backward": (0.1,), "hardshrink_backward": (0.5,),
            "softshrink_backward": (0.5,), "sigmoid_backward": (), "tanh_backward": (), "logit_backward": (0.1,)}


@pytest.mark.parametrize("name", BACKWARD)
def test_the_gradient_of_an_activation_gives_what_the_cpu_gives(name):
    for dtype in FLOATS:
        x = inputs(dtype)
        compare_wide("aten::" + name, torch.ones_like(x) * 0.75, x, *BACKWARD[name])


def test_gelu_has_two_forms():
    for dtype in FLOATS:
        x = inputs(dtype)
        compare_wide("aten::gelu", x, approximate="tanh")
        compare_wide("aten::gelu_backward", x.flip(0), x, approximate="tanh")
    with pytest.raises(RuntimeError, match="none or tanh"):
        run("aten::gelu", inputs(torch.float32), approximate="sigmoid", results=[inputs(torch.float32)])


def test_gradients_with_more_arguments():
    x = inputs(torch.float32)
    grad = torch.randn_like(x)
    compare_wide("aten::elu_backward", grad, 1.5, 1.1, 0.9, False, x)
    compare_wide("aten::elu_backward", grad, 1.5, 1.1, 0.9, True, x.abs())
    compare_wide("aten::_prelu_kernel", x, torch.full((1, 10), 0.3))
    compare_wide("aten::_prelu_kernel_backward", grad, x, torch.full((1, 10), 0.3))
    compare_wide("aten::glu_backward", grad[:, :5].contiguous(), x, 1)
    compare_wide("aten::log_sigmoid_backward", grad, x, torch.exp(-x.abs()))
    compare_wide("aten::rrelu_with_noise_backward", grad, x, x.abs(), 0.1, 0.3, True, False)
    compare_wide("aten::rrelu_with_noise_backward", grad, x, x.abs(), 0.1, 0.3, False, False)


def test_glu_wants_an_even_dimension():
    with pytest.raises(RuntimeError, match="must be even"):
        run("aten::glu", torch.randn(3), 0, results=[torch.empty(1)])


def test_relu_keeps_nan_and_integers():
    compare_wide("aten::relu", torch.tensor([float("nan"), -1.0, 2.0]))
    compare_wide("aten::relu", torch.tensor([-3, 0, 4]))
