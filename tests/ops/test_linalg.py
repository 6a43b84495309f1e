import pytest
import torch
from checks import check_against, compare_but, make
from harness import compare, run

KINDS = (torch.float32, torch.complex64, torch.float64)
SHAPES = ((4, 4), (2, 3, 5, 5), (1, 1), (0, 3, 3), (2, 0, 0))


def close(dtype):
    return {"rtol": 1e-7, "atol": 1e-7} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-3}


def positive(dtype, *sizes):
    x = make(dtype, *sizes)
    return x @ x.mH + 2 * torch.eye(sizes[-1], dtype=dtype)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("sizes", SHAPES)
def test_lu_and_what_is_made_of_it_equal_the_cpus(sizes, dtype):
    a, b, tol = make(dtype, *sizes), make(dtype, *sizes[:-1], 3), close(dtype)
    for x in (a, a.mT):
        compare("aten::linalg_lu_factor_ex", x, **tol)
        compare("aten::_linalg_det", x, **tol)
        compare("aten::_linalg_slogdet", x, **tol)
    compare("aten::linalg_lu", a, **tol)
    compare("aten::linalg_inv_ex", a, **tol)
    compare("aten::_linalg_solve_ex", a, b, **tol)
    compare("aten::_linalg_solve_ex", a, b.mT.contiguous(), left=False, **tol)
    compare("aten::_linalg_solve_ex", a, b[..., 0].contiguous(), **tol)
    factors, pivots, _ = torch.linalg.lu_factor_ex(a)
    compare("aten::lu_unpack", factors, pivots, **tol)
    compare("aten::lu_unpack", factors, pivots, False, True, **tol)
    for adjoint in (False, True):
        compare("aten::linalg_lu_solve", factors, pivots, b, adjoint=adjoint, **tol)
        compare("aten::linalg_lu_solve", factors, pivots, b.mT.contiguous(), left=False, adjoint=adjoint, **tol)


def test_lu_of_matrices_that_are_not_square_and_batches_that_broadcast():
    for a in (make(torch.float32, 3, 5), make(torch.float32, 2, 6, 4)):
        compare("aten::linalg_lu_factor_ex", a, rtol=1e-4, atol=1e-4)
        compare("aten::linalg_lu", a, rtol=1e-4, atol=1e-4)
    a = positive(torch.float32, 4, 4)
    compare("aten::_linalg_solve_ex", a, make(torch.float32, 3, 4, 2), rtol=1e-4, atol=1e-4)
    compare("aten::linalg_solve_triangular", a, make(torch.float32, 3, 4, 2), upper=True, rtol=1e-4, atol=1e-4)


def test_info_names_the_first_zero_pivot():
    singular = torch.tensor([[1.0, 2, 3], [2, 4, 6], [1, 1, 1]])
    compare("aten::linalg_lu_factor_ex", torch.stack([torch.eye(3), torch.zeros(3, 3), singular]))
    compare_but("aten::_linalg_det", (1, 2), singular)  # its factors are rounding noise
    compare("aten::_linalg_slogdet", torch.zeros(2, 2))
    compare_but("aten::linalg_inv_ex", (0,), torch.zeros(2, 2))


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_and_triangular_systems_equal_the_cpus(sizes, dtype, upper):
    a, b, tol = positive(dtype, *sizes), make(dtype, *sizes[:-1], 3), close(dtype)
    compare("aten::linalg_cholesky_ex", a.triu() if upper else a.tril(), upper=upper, **tol)
    factor = torch.linalg.cholesky(a, upper=upper)
    compare("aten::_cholesky_solve_helper", b, factor, upper, **tol)
    compare("aten::cholesky_inverse", factor, upper, **tol)
    for unit in (False, True):  # the whole of `a` is given: only one triangle of it may be read
        scaled = a / 10 if unit else a
        compare("aten::linalg_solve_triangular", scaled, b, upper=upper, unitriangular=unit, **tol)
        compare("aten::linalg_solve_triangular", scaled, b.mT.contiguous(), upper=upper, left=False, unitriangular=unit,
                **tol)
        compare("aten::triangular_solve", b, scaled, upper, True, unit, **tol)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_info_names_the_first_bad_minor(upper):
    indefinite = torch.tensor([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]])
    compare_but("aten::linalg_cholesky_ex", (0,), torch.stack([torch.eye(3), -torch.eye(3), indefinite]), upper=upper)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("sizes", [(4, 4), (2, 5, 3), (2, 3, 5), (6, 1), (0, 3, 2), (2, 0, 3)])
def test_qr_and_householder_products_equal_the_cpus(sizes, dtype):
    a, tol = make(dtype, *sizes), close(dtype)
    for mode in ("reduced", "complete", "r"):
        compare("aten::linalg_qr", a, mode, **tol)
    if a.numel() and sizes[-2] >= sizes[-1]:
        reflectors, tau = torch.geqrf(a)
        check_against("aten::geqrf", [reflectors, tau], a, **tol)
        compare("aten::linalg_householder_product", reflectors, tau, **tol)
        for left in (True, False):
            other = make(dtype, *sizes[:-1], 2) if left else make(dtype, *sizes[:-2], 2, sizes[-2])
            compare("aten::ormqr", reflectors, tau, other, left, True, **tol)


# Eigenvectors are unique only up to a factor, so they are held to what defines them.
@pytest.mark.parametrize("dtype", [*KINDS, torch.complex128])
@pytest.mark.parametrize("sizes", [(4, 4), (2, 3, 5, 5), (1, 1), (40, 40)])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_symmetric_eigenvalues_equal_the_cpus_and_the_vectors_diagonalise(sizes, dtype, uplo):
    a = positive(dtype, *sizes) - 3 * torch.eye(sizes[-1], dtype=dtype)
    tol = {"rtol": 1e-4, "atol": 1e-4} if dtype in (torch.float32, torch.complex64) else {"rtol": 1e-11, "atol": 1e-11}
    given = a.tril() if uplo == "L" else a.triu()
    values, vectors = run("aten::_linalg_eigh", given, uplo, True)
    torch.testing.assert_close(values, torch.linalg.eigvalsh(a), **tol)
    torch.testing.assert_close((vectors * values.unsqueeze(-2)) @ vectors.mH, a, **tol)
    torch.testing.assert_close(vectors.mH @ vectors, torch.eye(sizes[-1], dtype=dtype).expand_as(a), **tol)
    compare("aten::_linalg_eigh", given, uplo, False, **tol)


def test_equal_eigenvalues_of_64_bits_have_orthonormal_vectors():
    # Values up to 4, whose rounding in 64 bits is 4e-16: a hundred of these for some sweeps of rotations.
    for a in (torch.zeros(3, 3, dtype=torch.float64), 2 * torch.eye(3, dtype=torch.float64),
              torch.ones(4, 4, dtype=torch.float64)):
        values, vectors = run("aten::_linalg_eigh", a, "L", True)
        torch.testing.assert_close(values, torch.linalg.eigvalsh(a), rtol=0, atol=1e-13)
        torch.testing.assert_close(vectors.mT @ vectors, torch.eye(len(a), dtype=torch.float64), rtol=0, atol=1e-13)


# Singular vectors too.
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("sizes", [(4, 4), (2, 6, 3), (3, 7), (1, 1)])
@pytest.mark.parametrize("full", [False, True])
def test_singular_values_equal_the_cpus_and_the_vectors_are_orthonormal(sizes, dtype, full):
    a, k = make(dtype, *sizes), min(sizes[-2:])
    tol = {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    one_rank = a[..., :1] @ a[..., :1, :]
    graded = a * 10.0 ** -torch.arange(0, 8 * sizes[-1], 8)
    for x in (a, one_rank, graded, torch.zeros_like(a)):
        u, s, vh = run("aten::_linalg_svd", x, full, True)
        torch.testing.assert_close(s, torch.linalg.svdvals(x), **tol)
        torch.testing.assert_close((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], x, **tol)
        torch.testing.assert_close(u.mH @ u, torch.eye(u.shape[-1], dtype=dtype).expand(*sizes[:-2], -1, -1), **tol)
        torch.testing.assert_close(vh @ vh.mH, torch.eye(vh.shape[-2], dtype=dtype).expand(*sizes[:-2], -1, -1), **tol)
    compare("aten::_linalg_svd", a, full, False, **tol)


def test_singular_values_of_nothing_are_none():
    compare("aten::_linalg_svd", make(torch.float32, 0, 3), True)
    compare("aten::_linalg_svd", make(torch.float32, 2, 3, 0), True)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("sizes", SHAPES)
def test_matrix_exponentials_equal_the_cpus(sizes, dtype):
    tol = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    for factor in (0.01, 1, 2):
        compare("aten::linalg_matrix_exp", make(dtype, *sizes) * factor, **tol)


# atol and rtol are arguments of the op here, and of `compare` too.
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("sizes", [(4, 4), (2, 6, 3), (3, 7)])
def test_pseudoinverses_equal_the_cpus(sizes, dtype):
    name, a, tol = "aten::linalg_pinv.atol_rtol_tensor", make(dtype, *sizes), close(dtype)
    compare(name, a, **tol)
    compare(name, a[..., :1] @ a[..., :1, :], **tol)
    real = a.real.dtype
    for cut in ({"atol": torch.tensor(0.5, dtype=real)}, {"rtol": torch.full(sizes[:-2], 0.5, dtype=real)}):
        got, = run(name, a, results=[a.mT.contiguous()], **cut)
        torch.testing.assert_close(got, torch.linalg.pinv(a, **cut), **tol)
    if sizes == (4, 4):
        compare(name, positive(dtype, *sizes).tril(), hermitian=True, **tol)
    compare(name, make(dtype, 0, 3))


LSTSQ_SHAPES = ((2, 5, 3), (3, 5), (0, 3), (2, 3, 0))


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd"])
@pytest.mark.parametrize("sizes", LSTSQ_SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_least_squares_equal_the_cpus_for_every_driver(driver, sizes, dtype):
    a, b, tol = make(dtype, *sizes), make(dtype, *sizes[:-1], 2), close(dtype)
    compare("aten::linalg_lstsq", a, b, driver=driver, meta=False, **tol)


def test_least_squares_of_vectors():
    a, b = make(torch.float64, 2, 5, 3), make(torch.float64, 2, 5)
    compare("aten::linalg_lstsq", a, b, driver="gels", meta=False)
    compare("aten::linalg_lstsq", a[0], b[0], driver="gelss", meta=False)


@pytest.mark.parametrize("driver", [None, "gelsd", "gelss"])
def test_least_squares_without_full_rank_are_the_shortest_and_know_their_rank(driver):
    def check(a, b, rank, rcond=None):
        solution, residuals, found, values = run("aten::linalg_lstsq", a, b, rcond, driver=driver)
        # Not the CPU's default driver, gelsy: torch 2.13 gives it pivots that nobody set, and the solution changes from call
        # to call.
        torch.testing.assert_close(solution, torch.linalg.lstsq(a, b, rcond=rcond, driver="gelsd")[0])
        assert residuals.shape == (0,) and found == rank and values.shape == ((3,) if driver else (0,))

    a, b = make(torch.float64, 5, 3), make(torch.float64, 5, 2)
    a[:, 2] = a[:, 0]
    check(a, b, 2)
    diagonal = torch.diag(torch.tensor([4.0, 3, 1]))
    check(diagonal, b[:3].float(), 2, 0.5)
    check(diagonal, b[:3].float(), 1, 0.9)


def test_least_squares_refuse_what_does_not_fit():
    with pytest.raises(RuntimeError, match="driver"):
        run("aten::linalg_lstsq", torch.ones(3, 2), torch.ones(3, 1), driver="qr")
    with pytest.raises(RuntimeError, match="rows"):
        run("aten::linalg_lstsq", torch.ones(3, 2), torch.ones(2, 1))


def test_the_pseudo_inverse_of_a_hermitian_matrix_reads_no_imaginary_diagonal():
    # The rounding of the eigenvalues, 1e-7 of the largest, is divided by the smallest.
    a = make(torch.complex64, 4, 4)
    got = run("aten::linalg_pinv.atol_rtol_tensor", a, hermitian=True, results=[a])[0]
    torch.testing.assert_close(got, torch.linalg.pinv(a, hermitian=True), rtol=1e-3, atol=1e-4)


def test_the_matrix_exponential_of_half_types_is_rounded_once():
    a = make(torch.float32, 4, 4).bfloat16()
    got = run("aten::linalg_matrix_exp", a)[0]
    torch.testing.assert_close(got, torch.linalg.matrix_exp(a.double()).bfloat16())
