"""Special functions give what PyTorch gives on CPU."""
import mpmath
import pytest
import torch
from harness import compare, compare_wide, run

INF, NAN = float("inf"), float("nan")
POINTS = [0.0, -0.0, 1e-4, 0.1, -0.1, 0.5, -0.7, 1.0, 1.5, -2.3, 3.0, -4.5, 7.9, 8.1, -12.3, 25.0, 60.0, INF, -INF, NAN]

# name: (rtol, atol) in float32: XLA's functions and the series are within some units in the last place.
NAMES = {"erf": None, "erfc": (3e-6, 1e-5), "digamma": (5e-6, 2e-5), "lgamma": (5e-6, 1e-5), "i0": (5e-6, 1e-5),
         "special_i0e": (5e-6, 1e-6), "special_i1": (5e-6, 1e-5), "special_i1e": (5e-6, 1e-6), "sinc": (1e-5, 2e-6),
         "special_log_ndtr": (5e-6, 1e-5), "special_entr": (3e-6, 1e-5), "special_erfcx": (1e-5, 1e-6),
         "special_bessel_j0": (1e-5, 2e-6), "special_bessel_j1": (1e-5, 2e-6), "special_bessel_y0": (1e-5, 2e-6),
         "special_bessel_y1": (1e-5, 2e-6), "special_spherical_bessel_j0": (1e-5, 1e-6),
         "special_modified_bessel_i0": (5e-6, 1e-5), "special_modified_bessel_i1": (5e-6, 1e-5),
         "special_modified_bessel_k0": (5e-6, 1e-6), "special_modified_bessel_k1": (5e-6, 1e-6),
         "special_scaled_modified_bessel_k0": (5e-6, 1e-6), "special_scaled_modified_bessel_k1": (5e-6, 1e-6)}


@pytest.mark.parametrize("name", NAMES)
def test_a_special_function_gives_what_the_cpu_gives(name):
    x = torch.tensor(POINTS)
    if name in ("special_erfcx", "i0", "special_i1", "special_modified_bessel_i0", "special_modified_bessel_i1"):
        x = x[(x > -8) | x.isnan()]  # exp(x^2) takes 100 times x's own rounding error there
    if name == "digamma":
        x = x[x.isnan() | (x > -5)]
    if "scaled" in name or "modified" in name:
        x = x[~x.isinf()]  # PyTorch's kernels give NaN for infinity there
    rtol, atol = NAMES[name] or (None, None)
    compare_wide("aten::" + name, x, rtol=rtol, atol=atol)
    compare_wide("aten::" + name, torch.tensor([1, 2, 5]), rtol=rtol, atol=atol)
    if not any(part in name for part in ("bessel", "erfcx", "log_ndtr")):  # no bfloat16 kernels in PyTorch
        compare_wide("aten::" + name, x[:12].bfloat16())
    # float64 keeps its digits; PyTorch's Bessel functions of the first and second kind are themselves off by 5e-9.
    compare("aten::" + name, x[:16].double(), rtol=1e-11,
            atol=1e-8 if "_bessel_j" in name or "_bessel_y" in name else 1e-12)


def test_inverse_error_function_and_normal_quantile_reach_the_tails():
    compare("aten::erfinv", torch.tensor([-1.0, -0.999, -0.3, 0.0, 0.7, 0.9999, 1.0, 1.5]), rtol=5e-6)
    p = torch.tensor([0.0, 1e-30, 1e-12, 1e-5, 0.01, 0.15, 0.25, 0.5, 0.7, 0.9, 0.9999, 1.0, -0.1, NAN])
    compare("aten::special_ndtri", p, rtol=5e-6)
    compare("aten::special_ndtri", torch.tensor([1e-300, 1e-100, 1e-20, 1e-3, 0.3]).double(), rtol=1e-10)


@pytest.mark.parametrize("n", [0, 1, 2, 4])
def test_polygamma(n):
    compare("aten::polygamma", n, torch.tensor([0.3, 1.0, 2.5, 10.0]), rtol=1e-5)
    compare("aten::polygamma", n, torch.tensor([-0.3, -3.3]), rtol=1e-4)  # terms of both signs cancel


def test_zeta_has_poles_and_negative_arguments():
    s = torch.tensor([[1.0], [0.5], [2.0], [3.0], [4.5]])
    compare("aten::special_zeta", s, torch.tensor([1.0, 2.5, 10.0, 0.0, -1.0, -2.5, NAN]), rtol=1e-5)


def test_incomplete_gamma_functions():
    a = torch.tensor([[0.0], [0.3], [1.0], [5.0], [100.0], [INF], [-1.0]])
    x = torch.tensor([0.0, 0.1, 1.0, 4.0, 90.0, 120.0, INF, -1.0])
    compare("aten::igamma", a, x, rtol=3e-5)   # PyTorch's float32 kernel itself is off by 2e-5 at a = 100
    compare("aten::igammac", a, x, rtol=3e-5)


POLYNOMIALS = [kind + "_polynomial_" + letter for kind, letters in (
    ("chebyshev", "tuvw"), ("shifted_chebyshev", "tuvw"), ("laguerre", "l"), ("legendre", "p")) for letter in letters]


@pytest.mark.parametrize("name", [*POLYNOMIALS, "hermite_polynomial_h", "hermite_polynomial_he"])
def test_orthogonal_polynomials(name):
    x, n = torch.tensor([[-0.9], [0.1], [0.5], [0.8]]), torch.tensor([0.0, 1.0, 2.0, 5.0, -1.0])
    compare("aten::special_" + name, x, n, rtol=1e-5)
    compare(f"aten::special_{name}.n_scalar", x, 3, rtol=1e-5)


@pytest.mark.parametrize("dtype, rtol, atol", [(torch.float64, 1e-12, 1e-15), (torch.float32, 1e-5, 3e-6)])
def test_the_airy_function_on_both_sides_of_its_three_forms(dtype, rtol, atol):
    # In float32 the phase 2/3 |x|^(3/2) is rounded: 110 at x = -30. PyTorch's own kernel is off by 3e-6 at x = -2.1.
    x = [-30.0, -9.0, -4.1, -4.0, -3.9, -2.1, -1.0, 0.0, 0.5, 1.9, 2.0, 2.1, 8.0, 20.0]
    wanted = torch.tensor([float(mpmath.airyai(v)) for v in torch.tensor(x, dtype=dtype).tolist()], dtype=dtype)
    torch.testing.assert_close(run("aten::special_airy_ai", torch.tensor(x, dtype=dtype))[0], wanted, rtol=rtol, atol=atol)
    ends = torch.tensor([INF, -INF, NAN, 200.0], dtype=dtype)
    compare("aten::special_airy_ai", ends)
    compare("aten::special_airy_ai", torch.tensor([1, 2, -1]))
