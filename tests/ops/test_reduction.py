import pytest
import torch
from checks import DTYPES, FLOATS, HALVES, INF, SPECIAL, check, layouts, make
from harness import compare, run

REAL = [dtype for dtype in DTYPES if dtype != torch.complex64]
INEXACT = [*FLOATS, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_products_and_counts_equal_the_cpus(dtype):
    for x in layouts(dtype):
        check("aten::sum", x)
        check("aten::sum.dim_IntList", x, [0], True)
        check("aten::sum.dim_IntList", x, [] if x.dim() == 0 else [-1, 0] if x.dim() > 1 else [0])
        check("aten::prod", x)
        check("aten::prod.dim_int", x, -1)
        compare("aten::count_nonzero", x)
        compare("aten::count_nonzero.dim_IntList", x, [0])
        if dtype != torch.complex64:
            check("aten::nansum", x, [0])
    if dtype != torch.bool:
        check("aten::trace", make(dtype, 4, 5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_and_all_equal_the_cpus_and_an_empty_list_of_dims_reduces_nothing(dtype):
    for x in layouts(dtype):
        for name in ("any", "all"):
            compare(f"aten::{name}", x)
            compare(f"aten::{name}.dim", x, 0, True)
            compare(f"aten::{name}.dims", x, [0])
            compare(f"aten::{name}.dims", x, [])
            compare(f"aten::{name}.dims", x, None, True)
    compare("aten::all", torch.tensor([1, 0], dtype=torch.uint8))


@pytest.mark.parametrize("dtype", REAL)
def test_extremes_and_their_places_equal_the_cpus(dtype):
    for x in layouts(dtype)[:4]:
        compare("aten::amax", x, [0])
        compare("aten::amin", x, [], True)
        compare("aten::max", x)
        compare("aten::min", x)
        compare("aten::max.dim", x, 0, True)
        compare("aten::min.dim", x, -1)
        compare("aten::aminmax", x, dim=0, keepdim=True)
        compare("aten::aminmax", x)
        if dtype != torch.bool:
            compare("aten::argmax", x)
            compare("aten::argmin", x, -1, True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_wins_every_extreme(dtype):
    x = SPECIAL.to(dtype)
    for name in ("amax", "amin"):
        compare(f"aten::{name}", x, [1])
    for name in ("max", "min"):
        compare(f"aten::{name}", x)
        compare(f"aten::{name}.dim", x, 1)
    for name in ("argmax", "argmin"):
        compare(f"aten::{name}", x, 1)
        compare(f"aten::{name}", x)
    compare("aten::aminmax", x, dim=1)


def test_ties_give_the_first_place_and_integers_stay_exact():
    compare("aten::max.dim", torch.tensor([3, 1, 3]), 0)
    compare("aten::min.dim", torch.tensor([3, 1, 1]), 0)
    compare("aten::amax", torch.tensor([2**62 + 1, 2**62]), [0])
    compare("aten::max.dim", torch.tensor([[-2**63, -2**63]]), 1)
    compare("aten::sum", torch.tensor([2**62, 2**62, 5]))


def test_extremes_of_nothing_raise_as_the_cpu_does():
    with pytest.raises(RuntimeError):
        run("aten::max", torch.zeros(0), results=[torch.zeros(())])
    with pytest.raises(IndexError):
        run("aten::max.dim", torch.zeros(3, 0), 1, results=[torch.zeros(3), torch.zeros(3, dtype=torch.int64)])
    with pytest.raises(RuntimeError, match="does not have an identity"):
        run("aten::linalg_vector_norm", torch.zeros(0), INF, results=[torch.zeros(())])


@pytest.mark.parametrize("dtype", INEXACT)
def test_means_and_norms_equal_the_cpus(dtype):
    for x in layouts(dtype)[:4]:
        check("aten::mean", x)
        check("aten::mean.dim", x, [0])
        for p in (2, 1, 0, INF, -INF, 3.5, -1.0):
            check("aten::linalg_vector_norm", x, p, [0], True)
        check("aten::norm.Scalar", x, 2)
        check("aten::norm.ScalarOpt_dim", x, None, [0])
        check("aten::norm.ScalarOpt_dim", x, 3, [0])
    compare("aten::mean", torch.zeros(0))
    compare("aten::linalg_vector_norm", torch.zeros(0), 2)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool])
def test_logsumexp_equals_the_cpus(dtype):
    for x in layouts(dtype):
        check("aten::logsumexp", x, [0], True)
    if dtype in FLOATS:
        check("aten::logsumexp", SPECIAL.to(dtype), [1])


def test_a_dtype_argument_is_the_dtype_of_the_sum():
    compare("aten::sum", make(torch.bfloat16, 3, 4), dtype=torch.float32)
    compare("aten::sum", make(torch.float32, 3, 4), dtype=torch.int64)
    compare("aten::sum.dim_IntList", make(torch.int32, 3, 4), [0], dtype=torch.int32)
    compare("aten::mean", make(torch.int64, 3, 4), dtype=torch.float32)
    compare("aten::linalg_vector_norm", make(torch.bfloat16, 3, 4), 2, [0], dtype=torch.float32)


@pytest.mark.parametrize("dtype", HALVES)
def test_half_types_add_up_in_float32(dtype):
    check("aten::sum", torch.ones(4096, dtype=dtype))
    check("aten::mean", torch.full((1000,), 100.0, dtype=dtype))


@pytest.mark.parametrize("dtype", INEXACT)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_variances_equal_the_cpus_for_every_correction(dtype):
    for x in layouts(dtype)[:4]:
        for name in ("var", "std", "var_mean", "std_mean"):
            check(f"aten::{name}.correction", x)
            check(f"aten::{name}.correction", x, [0], correction=0, keepdim=True)
        check("aten::var.correction", x, [0], correction=2.5)
    if dtype in FLOATS:
        check("aten::var.correction", SPECIAL.to(dtype), [1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.uint8,
                                   torch.bool], ids=str)
def test_the_hash_of_a_tensor_is_the_exclusive_or_of_its_bits(dtype):
    x = make(dtype, 2, 3, 4)
    for dims in ([], [1], [0, -1]):
        compare("aten::hash_tensor", x, dims, keepdim=True)
        compare("aten::hash_tensor", x, dims)
    compare("aten::hash_tensor", make(dtype))
    compare("aten::hash_tensor", make(dtype, 0, 3), [1])
    with pytest.raises(RuntimeError, match="Unknown hash_tensor mode: 1"):
        run("aten::hash_tensor", x, mode=1, results=[torch.empty((), dtype=torch.uint64)])
