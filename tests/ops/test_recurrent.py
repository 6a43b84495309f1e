import pytest
import torch
from checks import check_against, make

B, H = 3, 4


def leaves(*tensors):
    return [None if x is None else x.float().clone().requires_grad_() for x in tensors]


def plus(x, bias):
    return x if bias is None else x + bias


def rounded(tensors, dtype):
    return [x.detach().to(dtype) for x in tensors]


def close(dtype):
    return {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 3e-2, "atol": 3e-2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
def test_the_lstm_cell_and_its_backward_equal_autograd(dtype, biased):
    args = [make(dtype, B, 4 * H), make(dtype, B, 4 * H, seed=1), make(dtype, B, H)]
    args += [make(dtype, 4 * H), make(dtype, 4 * H, seed=1)] if biased else [None, None]
    x, y, cx, b1, b2 = leaves(*args)
    i, f, g, o = plus(plus(x + y, b1), b2).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    hy, workspace = o * cy.tanh(), torch.cat([i, f, g, o], 1)
    check_against("aten::_thnn_fused_lstm_cell", rounded([hy, cy, workspace], dtype), *args, **close(dtype))
    grad_hy, grad_cy = make(dtype, B, H, seed=2), make(dtype, B, H, seed=3)
    saved = args[2], cy.detach().to(dtype), workspace.detach().to(dtype), biased
    wanted = [x, cx] + ([b1] if biased else [])
    for hg, cg in ((grad_hy, grad_cy), (grad_hy, None), (None, grad_cy)):
        outs, grads = zip(*[(out, g.float()) for out, g in ((hy, hg), (cy, cg)) if g is not None])
        expected = rounded(torch.autograd.grad(outs, wanted, grads, retain_graph=True), dtype)
        check_against("aten::_thnn_fused_lstm_cell_backward_impl", expected, hg, cg, *saved, **close(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
def test_the_gru_cell_and_its_backward_equal_autograd(dtype, biased):
    args = [make(dtype, B, 3 * H), make(dtype, B, 3 * H, seed=1), make(dtype, B, H)]
    args += [make(dtype, 3 * H), make(dtype, 3 * H, seed=1)] if biased else [None, None]
    x, y, hx, b1, b2 = leaves(*args)
    (xr, xz, xn), (yr, yz, yn) = plus(x, b1).chunk(3, 1), plus(y, b2).chunk(3, 1)
    r, z = (xr + yr).sigmoid(), (xz + yz).sigmoid()
    n = (xn + r * yn).tanh()
    hy, workspace = n + z * (hx - n), torch.cat([r, z, n, hx, yn], 1)
    check_against("aten::_thnn_fused_gru_cell", rounded([hy, workspace], dtype), *args, **close(dtype))
    grad = make(dtype, B, H, seed=2)
    wanted = [x, y, hx] + ([b1, b2] if biased else [])
    expected = rounded(torch.autograd.grad(hy, wanted, grad.float()), dtype)
    check_against("aten::_thnn_fused_gru_cell_backward", expected, grad, workspace.detach().to(dtype), biased,
                  **close(dtype))
