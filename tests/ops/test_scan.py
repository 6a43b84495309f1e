import pytest
import torch
from checks import DTYPES, FLOATS, SPECIAL, check, check_against, compare_exactly_rounded, layouts, make
from harness import compare

INEXACT = {torch.float32, torch.complex64}


@pytest.mark.parametrize("dtype", DTYPES)
def test_cumulative_sums_and_products_equal_the_cpus(dtype):
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype in INEXACT else {}
    for x in (*layouts(dtype), make(dtype, 1, 200)):
        for name in ("aten::cumsum", "aten::cumprod"):
            check(name, x, -1, **tolerance)
    check("aten::cumsum", make(dtype, 3, 4), 0, **tolerance)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.complex64])
def test_cumulative_extremes_give_the_last_place_of_ties(dtype):
    for x in (*layouts(dtype), make(dtype, 1, 200)):
        compare("aten::cummax", x, -1)
        compare("aten::cummin", x, 0)
    compare("aten::cummin", torch.tensor([2**63 - 1, 2**63 - 1]), 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinity_go_through_scans_as_on_the_cpu(dtype):
    x = SPECIAL.to(dtype)
    for name in ("cummax", "cummin", "cumsum", "cumprod"):
        compare(f"aten::{name}", x, 1)
    check_against("aten::logcumsumexp", [torch.logcumsumexp(x.double(), 1).to(dtype)], x, 1)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
def test_logcumsumexp_equals_the_cpus(dtype):
    for x in (*layouts(dtype), make(dtype, 1, 200)):
        wide = x.to(torch.complex128) if dtype.is_complex else x.double()
        check_against("aten::logcumsumexp", [torch.logcumsumexp(wide, -1).to(dtype)], x, -1,
                      **({"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {}))


def test_a_dtype_argument_is_the_dtype_of_the_scan():
    compare("aten::cumsum", make(torch.bfloat16, 3, 4), 0, dtype=torch.float32)
    compare("aten::cumsum", make(torch.float32, 3, 4), 0, dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_scan_in_float32(dtype):
    compare_exactly_rounded("aten::cumsum", torch.ones(600, dtype=dtype) * 1.1, 0)
