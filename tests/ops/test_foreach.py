"""Foreach overloads and fused optimizers give what PyTorch gives on CPU."""
import pytest
import torch
from harness import compare, compare_wide, flat_results, overload, run

SHAPES = [(3, 4), (5,), ()]


def tensors(dtype, seed=0, shapes=SHAPES):
    torch.manual_seed(seed)
    return [(torch.rand(shape) * 2 + 0.25).to(dtype) for shape in shapes]


def check(name, *args, tolerance=compare_wide, **kwargs):
    # No meta kernel for some foreach overloads: the CPU's results give the sizes.
    tolerance("aten::_foreach_" + name, *args, meta=False, **kwargs)


@pytest.mark.parametrize("name",
                         "abs ceil cos erf exp floor frac log neg reciprocal round rsqrt sigmoid sign sqrt tanh trunc "
                                 "lgamma erfc expm1 log10 log1p log2 sin sinh cosh tan atan".split())
def test_a_foreach_op_of_one_list(name):
    for dtype in (torch.float32, torch.bfloat16):
        check(name, tensors(dtype), rtol=5e-6 if dtype == torch.float32 else None)


@pytest.mark.parametrize("name", "add sub mul div maximum minimum clamp_max clamp_min pow".split())
def test_a_foreach_op_of_a_list_and_lists_numbers_or_a_number(name):
    for dtype in (torch.float32, torch.bfloat16):
        x, y = tensors(dtype), tensors(dtype, 1)
        check(name + ".List", x, y)
        check(name + ".Scalar", x, 0.75)
        check(name + ".ScalarList", x, [0.5, 1.5, 2.0])
    check(name + ".List", [torch.arange(4)], [torch.tensor([3, 1, 2, 2])])


def test_foreach_ops_with_alpha_and_a_tensor():
    x, y = tensors(torch.float32), tensors(torch.float32, 1)
    check("add.List", x, y, alpha=-0.5)
    check("sub.List", x, y, alpha=2)
    check("add.Tensor", x, torch.tensor(2.0), alpha=3)
    check("mul.Tensor", x, torch.tensor(2.5))
    check("div.Tensor", x, torch.tensor(2.5))
    check("pow.ScalarAndTensor", 0.9, x)


def test_foreach_lerp_addcmul_and_addcdiv():
    for dtype in (torch.float32, torch.bfloat16):
        x, y, z = (tensors(dtype, seed) for seed in range(3))
        check("lerp.Scalar", x, y, 0.1)
        check("lerp.List", x, y, z)
        for name in ("addcmul", "addcdiv"):
            check(name + ".Scalar", x, y, z, 0.5)
            check(name + ".ScalarList", x, y, z, [0.5, -1.0, 2.0])
            check(name + ".Tensor", x, y, z, torch.tensor([0.5, -1.0, 2.0]))


@pytest.mark.parametrize("order", [0, 1, 2, 3, float("inf")])
def test_foreach_norms(order):
    check("norm.Scalar", tensors(torch.float32), order)
    check("norm.Scalar", tensors(torch.bfloat16), order)
    check("norm.Scalar", tensors(torch.bfloat16), order, dtype=torch.float32, tolerance=compare)


def test_foreach_maxima():
    check("max", tensors(torch.float32))


def test_foreach_copies_convert():
    x, y = tensors(torch.float32), tensors(torch.bfloat16, 1)
    got = run("aten::_foreach_copy", x, y, results=x)
    assert all(torch.equal(g, e.float()) for g, e in zip(got, y))
    assert all((g == 0).all() for g in run("aten::_foreach_zero", x, results=x))


def test_gradient_scaling_finds_what_is_not_finite():
    x = tensors(torch.float32)
    bad = [x[0], torch.tensor([1.0, float("inf")])]
    inverse, found = torch.tensor(0.5), torch.tensor(0.0)
    for grads, flag in ((x, 0.0), (bad, 1.0)):
        *got, seen = run("aten::_amp_foreach_non_finite_check_and_unscale", grads, found, inverse,
                         results=[*grads, found])
        assert seen.item() == flag
        assert all(torch.equal(g, e * 0.5) for g, e in zip(got, grads))


@pytest.mark.parametrize("found, tracker, wanted", [(1.0, 3, (4.0, 0)), (0.0, 3, (8.0, 4)), (0.0, 4, (16.0, 0))])
def test_the_gradient_scale_backs_off_and_grows(found, tracker, wanted):
    args = (torch.tensor(8.0), torch.tensor(tracker, dtype=torch.int32), torch.tensor(found), 2.0, 0.5, 5)
    scale, steps = run("aten::_amp_update_scale", *args, results=list(args[:2]))
    assert (scale.item(), steps.item()) == wanted


# ---- optimizers ------------------------------------------------------------------------------------------------------


def check_optimizer(name, lists, rest, dtype):
    """Against the float64 result of PyTorch's own fused CPU kernel, which works in place."""
    wide = [[x.double() for x in list_] for list_ in lists]
    torch.ops.aten.__getattr__(name + "_").default(*wide, **rest)
    returned = [list_ for list_ in lists if list_ is not lists[-1] or name == "_fused_sgd"]
    expected = [x for list_, mine in zip(wide, lists) if any(mine is r for r in returned) for x in list_]
    got = run("aten::" + name, *lists, results=[x for list_ in returned for x in list_], **rest)
    rtol, atol = {torch.float32: (3e-6, 1e-6), torch.bfloat16: (1.6e-2, 1e-5)}[dtype]
    for g, e in zip(got, expected):
        torch.testing.assert_close(g, e.to(dtype), rtol=rtol, atol=atol)


def state(dtype, count):
    return [tensors(dtype, seed, [(3, 4), (5,)]) for seed in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["_fused_adam", "_fused_adamw"])
def test_fused_adam_is_adam(name, dtype):
    for step in (1.0, 1000.0):
        for amsgrad, maximize in ((False, False), (True, True)):
            lists = state(dtype, 5 if amsgrad else 4) + ([] if amsgrad else [[]])
            lists.append([torch.tensor(step) for _ in range(2)])
            rest = dict(lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=amsgrad,
                        maximize=maximize)
            check_optimizer(name, lists, rest, dtype)


@pytest.mark.parametrize("first, nesterov, momentum", [(True, False, 0.9), (False, True, 0.9), (False, False, 0.0)])
def test_fused_sgd_is_sgd(first, nesterov, momentum):
    lists = state(torch.float32, 3 if momentum else 2) + ([] if momentum else [[]])
    rest = dict(weight_decay=0.1, momentum=momentum, lr=0.05, dampening=0.0 if nesterov else 0.25, nesterov=nesterov,
                maximize=False, is_first_step=first)
    check_optimizer("_fused_sgd", lists, rest, torch.float32)


def test_fused_adagrad_is_adagrad():
    lists = state(torch.float32, 3) + [[torch.tensor(4.0) for _ in range(2)]]
    rest = dict(lr=0.05, lr_decay=0.1, weight_decay=0.01, eps=1e-10, maximize=False)
    got = run("aten::_fused_adagrad", *lists, results=[x for list_ in lists for x in list_], **rest)
    torch.ops.aten._fused_adagrad_.default(*lists, **rest)
    for g, e in zip(got, [x for list_ in lists for x in list_]):
        torch.testing.assert_close(g, e, rtol=3e-6, atol=1e-6)


def test_an_overflow_leaves_everything_as_it_was():
    lists = state(torch.float32, 4) + [[], [torch.tensor(2.0) for _ in range(2)]]
    rest = dict(lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False)
    results = [x for list_ in lists[:4] for x in list_]
    got = run("aten::_fused_adamw", *lists, results=results, grad_scale=torch.tensor(4.0), found_inf=torch.tensor(1.0),
              **rest)
    for i, (g, e) in enumerate(zip(got, results)):
        assert torch.equal(g, e / 4 if i in (2, 3) else e)  # gradients come back unscaled


def test_the_learning_rate_may_be_a_tensor():
    lists = state(torch.float32, 4) + [[], [torch.tensor(2.0) for _ in range(2)]]
    rest = dict(beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False)
    results = [x for list_ in lists[:4] for x in list_]
    number = run("aten::_fused_adamw", *lists, results=results, lr=1e-3, **rest)
    tensor = run("aten::_fused_adamw.tensor_lr", *lists, results=results, lr=torch.tensor(1e-3), **rest)
    assert all(torch.allclose(a, b, rtol=1e-6) for a, b in zip(number, tensor))
