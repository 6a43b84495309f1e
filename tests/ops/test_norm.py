import pytest
import torch
from checks import FLOATS, HALVES, check_against, compare_but, compare_exactly_rounded, make
from harness import flat_results, overload

# The halves' CPU kernels keep statistics in the half type, and the meta kernels (CUDA's convention) in float32; they
# are compared with float64.


def check_norm(name, *args, rtol=None, atol=None, skip=()):
    if any(isinstance(a, torch.Tensor) and a.dtype in HALVES for a in args):
        compare_exactly_rounded(name, *args, rtol=2e-2, atol=2e-2, skip=skip)
    else:
        compare_but(name, skip, *args, rtol=rtol or 1e-5, atol=atol or 1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm_and_its_backward_equal_the_cpus(dtype):
    dense, strided = make(dtype, 3, 7, 5), make(dtype, 7, 3, 5).transpose(0, 1)
    for x, sizes in ((dense, [5]), (dense * 5 + 3, [7, 5]), (strided, [5]), (make(dtype, 0, 5), [5]),
                     (make(dtype, 5), [5])):
        weight, bias, grad = make(dtype, *sizes), make(dtype, *sizes, seed=1), make(dtype, *x.shape, seed=2)
        for w, b, mask in ((weight, bias, [True] * 3), (None, None, [True, False, False]),
                           (weight, None, [False, True, False])):
            check_norm("aten::native_layer_norm", x, sizes, w, b, 1e-5)
            _, mean, rstd = torch.native_layer_norm(x.float(), sizes, None, None, 1e-5)
            mean, rstd = mean.to(dtype), rstd.to(dtype)
            check_norm("aten::native_layer_norm_backward", grad, x, sizes, mean, rstd, w, b, mask)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_float32_weight_may_scale_a_half_input(dtype):
    x, weight = make(dtype, 3, 5), make(torch.float32, 5)
    check_norm("aten::native_layer_norm", x, [5], weight, weight, 1e-5)


def test_rms_norm_and_its_backward_equal_autograd():
    x, weight, grad = make(torch.float32, 4, 6, 8), make(torch.float32, 8), make(torch.float32, 4, 6, 8, seed=1)
    for w in (weight, None):
        for eps in (1e-6, None):
            compare_but("aten::_fused_rms_norm", (), x, [8], w, eps)
    x.requires_grad_(), weight.requires_grad_()
    y, rstd = torch.ops.aten._fused_rms_norm(x, [8], weight, 1e-6)
    expected = list(torch.autograd.grad(y, [x, weight], grad))
    args = grad, x.detach(), [8], rstd.detach(), weight.detach(), [True, True]
    check_against("aten::_fused_rms_norm_backward", expected, *args, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sizes", [(2, 6, 3, 4), (3, 6)])
def test_group_norm_and_its_backward_equal_the_cpus(dtype, sizes):
    x, grad, (n, c) = make(dtype, *sizes), make(dtype, *sizes, seed=1), sizes[:2]
    spatial = x[0, 0].numel()
    for weight in (make(dtype, c), None):
        check_norm("aten::native_group_norm", x, weight, weight, n, c, spatial, 3, 1e-5)
        _, mean, rstd = torch.native_group_norm(x.float(), None, None, n, c, spatial, 3, 1e-5)
        mask = [True, weight is not None, weight is not None]
        check_norm("aten::native_group_norm_backward", grad, x, mean.to(dtype), rstd.to(dtype), weight, n, c, spatial,
                   3, mask, rtol=1e-4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sizes", [(2, 6, 3, 4), (3, 6)])
def test_batch_norm_updates_the_running_statistics_and_its_backward_equals_the_cpus(dtype, sizes):
    x, grad, c = make(dtype, *sizes), make(dtype, *sizes, seed=1), sizes[1]
    mean, var = make(torch.float32, c), make(torch.float32, c, seed=1).abs() + 0.5
    for weight in (make(torch.float32, c), None):
        mask = [True, weight is not None, weight is not None]
        for training in (True, False):
            # in evaluation the CPU saves no statistics; the meta kernels follow CUDA
            check_norm("aten::_native_batch_norm_legit_functional", x, weight, weight, mean, var, training, 0.1, 1e-5,
                       skip=() if training else (1, 2))
            _, m, r, *_ = overload("aten::_native_batch_norm_legit_functional")(
                x.float(), weight, weight, mean, var, training, 0.1, 1e-5)
            check_norm("aten::native_batch_norm_backward", grad, x, weight, mean, var, m, r, training, 1e-5, mask,
                       rtol=1e-4)
    check_norm("aten::_native_batch_norm_legit.no_stats", x, None, None, True, 0.1, 1e-5)
    check_norm("aten::_native_batch_norm_legit_no_training", x, None, None, mean, var, 0.1, 1e-5, skip=(1, 2))


def test_batch_norm_with_update_gives_what_the_functional_one_gives():
    x, mean, var = make(torch.float32, 2, 6, 5), make(torch.float32, 6), torch.ones(6)
    w = make(torch.float32, 6, seed=1)
    name = "aten::_batch_norm_with_update_functional"
    expected = flat_results(overload(name)(x, w, w, mean, var, 0.1, 1e-5))
    check_against(name, expected, x, w, w, mean, var, 0.1, 1e-5, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sizes, dim", [((4, 3, 5), 0), ((4, 3, 5), 2), ((6, 7), 1)])
def test_weight_norm_and_its_backward_equal_the_cpus(dtype, sizes, dim):
    v, grad = make(dtype, *sizes), make(dtype, *sizes, seed=1)
    g = make(dtype, *(n if d == dim else 1 for d, n in enumerate(sizes)), seed=2)
    check_norm("aten::_weight_norm_interface", v, g, dim)
    norm = torch._weight_norm_interface(v.float(), g.float(), dim)[1].to(torch.float32 if dtype in HALVES else dtype)
    check_norm("aten::_weight_norm_interface_backward", grad, v, g, norm, dim)
