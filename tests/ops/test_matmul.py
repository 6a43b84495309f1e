import pytest
import torch
from checks import CONTRACTION, HALVES, NAN, check, check_against, make
from harness import compare, run

KINDS = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int8, torch.complex64)


def tolerance(dtype):
    if dtype in (torch.float32, torch.complex64):
        return CONTRACTION
    return {"rtol": 2e-3, "atol": 1e-2} if dtype == torch.float16 else {}


@pytest.mark.parametrize("dtype", KINDS)
def test_matrix_products_equal_the_cpus(dtype):
    close = tolerance(dtype)
    a, b = make(dtype, 4, 6), make(dtype, 6, 5)
    compare("aten::mm", make(dtype, 30, 600), make(dtype, 600, 20), **close)
    for x, y in ((a, b), (make(dtype, 6, 4).t(), make(dtype, 5, 6).t()), (make(dtype, 0, 6), b),
                 (make(dtype, 4, 0), make(dtype, 0, 5))):
        compare("aten::mm", x, y, **close)
        compare("aten::addmm", make(dtype, 5), x, y, **close)
        compare("aten::addmm", make(dtype, 4, 1)[:x.shape[0]], x, y, beta=2, alpha=3, **close)
    compare("aten::addmm", make(dtype), a, b, **close)
    x, y = make(dtype, 3, 4, 6), make(dtype, 3, 6, 5)
    compare("aten::bmm", x, y, **close)
    compare("aten::bmm", make(dtype, 4, 3, 6).transpose(0, 1), make(dtype, 3, 5, 6).transpose(1, 2), **close)
    compare("aten::baddbmm", make(dtype, 4, 5), x, y, beta=2, **close)
    compare("aten::addbmm", make(dtype, 4, 5), x, y, alpha=2, **close)


@pytest.mark.parametrize("dtype", KINDS)
def test_products_with_vectors_equal_the_cpus(dtype):
    close = tolerance(dtype)
    a, v, w = make(dtype, 4, 6), make(dtype, 6), make(dtype, 6, seed=1)
    compare("aten::mv", a, v, **close)
    compare("aten::dot", v, w, **close)
    compare("aten::vdot", v, w, **close)
    compare("aten::addmv", make(dtype, 4), a, v, beta=2, alpha=3, **close)
    check("aten::addr", make(dtype, 6, 6), v, w, beta=2, alpha=3, **close)
    compare("aten::mv", make(dtype, 4, 0), make(dtype, 0))
    compare("aten::dot", make(dtype, 0), make(dtype, 0))


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_beta_zero_ignores_nan_in_self(dtype):
    a, b = make(dtype, 4, 6), make(dtype, 6, 5)
    compare("aten::addmm", torch.full((5,), NAN, dtype=dtype), a, b, beta=0, **tolerance(dtype))
    compare("aten::addmm", make(dtype, 5), a, b, beta=0.5, alpha=0.25, **tolerance(dtype))


def test_the_outer_product_of_bools_is_logical():
    self, a, b = make(torch.bool, 3, 4), make(torch.bool, 3), make(torch.bool, 4)
    compare("aten::addr", self, a, b)
    compare("aten::addr", self, a, b, beta=False)
    compare("aten::addr", self, a, b, alpha=False)


def test_integer_products_are_exact():
    compare("aten::mm", torch.tensor([[2**40 + 1]]), torch.tensor([[2**20 + 3]]))
    compare("aten::_int_mm", make(torch.int8, 20, 16), make(torch.int8, 16, 24))


def test_half_products_accumulate_in_float32():
    a, b = make(torch.bfloat16, 8, 3000), make(torch.bfloat16, 3000, 8)
    check_against("aten::mm", [(a.double() @ b.double()).bfloat16()], a, b)
    weight, scales = make(torch.int8, 16, 3000), torch.full((16,), 0.5, dtype=torch.bfloat16)
    expected = (a.double() @ weight.t().double() * 0.5).bfloat16()
    check_against("aten::_weight_int8pack_mm", [expected], a, weight, scales)


def test_operands_of_two_dtypes_and_bools_are_refused():
    with pytest.raises(RuntimeError, match="same dtype"):
        run("aten::mm", make(torch.float32, 2, 2), make(torch.float16, 2, 2), results=[make(torch.float32, 2, 2)])
    with pytest.raises(NotImplementedError, match="Bool"):
        run("aten::mm", make(torch.bool, 2, 2), make(torch.bool, 2, 2), results=[make(torch.bool, 2, 2)])


def test_the_trilinear_sum_equals_the_cpus():
    i1, i2, i3 = make(torch.float32, 4, 3), make(torch.float32, 6, 3, 5), make(torch.float32, 4, 5)
    compare("aten::_trilinear", i1, i2, i3, [1, 3], [0], [1, 2], [2, 3], rtol=1e-5)


@pytest.mark.parametrize("rowwise", [0, 1])
def test_the_scaled_products_of_lists_equal_the_cpus(rowwise):
    a, b = (make(torch.float32, 16, 32, seed=i).to(torch.float8_e4m3fn) for i in range(2))
    scales = [torch.rand(16, 1), torch.rand(1, 16)] if rowwise else [torch.tensor([0.5]), torch.tensor([0.25])]
    bias = make(torch.float32, 16).bfloat16()
    arguments = ([scales[0]], [rowwise], [0], [scales[1]], [rowwise], [0], bias, torch.bfloat16)
    compare("aten::_scaled_mm_v2", a, b.t(), *arguments, rtol=2e-2, atol=2e-2)  # bfloat16 has 8 bits
