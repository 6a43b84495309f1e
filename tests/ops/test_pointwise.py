"""Elementwise overloads give what PyTorch gives on CPU."""
import pytest
import torch
from harness import compare, compare_wide, run

INF, NAN = float("inf"), float("nan")
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
SPECIAL = [0.0, -0.0, 0.3, -0.3, 0.5, 1.0, -1.0, 1.5, -1.5, 2.5, 3.7, -7.2, 30.0, INF, -INF, NAN]


def special(dtype):
    if dtype.is_complex:
        return torch.complex(torch.tensor([0.5, -1.25, 2.0, 0.1]), torch.tensor([1.5, 0.25, -0.75, -3.0])).to(dtype)
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return torch.tensor([0, 1, 2, 3, 7, 100, limits.max, limits.min] + ([] if limits.min == 0 else [-1, -7]),
                            dtype=dtype)
    return torch.tensor(SPECIAL, dtype=dtype)


# name: dtypes beside the float types
UNARY = {name: [torch.complex64, torch.int64] for name in (
    "abs acos asin asinh atan cos cosh exp log log10 log2 log1p sigmoid sin sinh sqrt tan tanh reciprocal "
    "rsqrt").split()}
UNARY |= {name: [torch.int64, torch.uint8] for name in "ceil floor round trunc sign sgn".split()}
UNARY |= {name: [torch.int32] for name in "acosh atanh deg2rad rad2deg exp2 expm1 angle".split()}
UNARY |= {"neg": [torch.int64, torch.uint8, torch.complex64], "frac": [], "bitwise_not": [torch.int32, torch.bool]}
UNARY |= {name: [torch.int64, torch.bool] for name in "isinf isposinf isneginf signbit logical_not".split()}
UNARY |= {"isnan": [torch.int64, torch.bool, torch.complex64], "nan_to_num": [torch.int64, torch.complex64],
          "frexp.Tensor": [], "_conj_physical": [torch.complex64], "angle": [torch.complex64]}


@pytest.mark.parametrize("name", UNARY)
def test_an_op_of_one_operand_gives_what_the_cpu_gives(name):
    for dtype in ([] if name in ("bitwise_not", "_conj_physical") else FLOATS) + UNARY[name]:
        if name == "nan_to_num":
            compare("aten::nan_to_num", special(dtype))  # its defaults are the limits of the dtype itself
            continue
        # XLA's float32 functions are within a few units in the last place.
        compare_wide("aten::" + name, special(dtype), rtol=5e-6 if dtype in (torch.float32, torch.complex64) else None)


ARITHMETIC = "add.Tensor sub.Tensor rsub.Tensor mul.Tensor div.Tensor".split()
REAL = "fmod.Tensor remainder.Tensor floor_divide maximum minimum fmax fmin".split()
FLOAT_ONLY = "atan2 copysign.Tensor heaviside hypot logaddexp logaddexp2 nextafter xlogy.Tensor special_xlog1py".split()
INTEGER = "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor gcd lcm".split()
COMPARISONS = "eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor logical_and logical_or logical_xor".split()


def pairs(dtype):
    x = special(dtype)
    return x[:, None], x.flip(0)[None, :]


@pytest.mark.parametrize("name", ARITHMETIC + REAL + FLOAT_ONLY + COMPARISONS)
def test_an_op_of_two_operands_gives_what_the_cpu_gives(name):
    for dtype in FLOATS:
        if name == "nextafter":
            if dtype != torch.float16:
                compare("aten::nextafter", *pairs(dtype), rtol=0, atol=0)
            continue
        compare_wide("aten::" + name, *pairs(dtype), **({"rtol": 5e-6} if dtype == torch.float32 else {}))


@pytest.mark.parametrize("name", ARITHMETIC + REAL + INTEGER + COMPARISONS)
def test_an_op_of_two_integers_gives_what_the_cpu_gives(name):
    for dtype in (torch.int64, torch.int32, torch.uint8):
        a, b = pairs(dtype)
        if name in ("fmod.Tensor", "remainder.Tensor", "floor_divide"):
            b = b[:, b[0] != 0]
        if name in ("gcd", "lcm"):
            a, b = a.clamp(-100, 100), b.clamp(-100, 100)
        if dtype.is_signed and name in ("fmod.Tensor", "remainder.Tensor", "floor_divide"):
            a = a.clamp(min=torch.iinfo(dtype).min + 1)  # the smallest integer by -1 is undefined in C
        compare("aten::" + name, a, b)


@pytest.mark.parametrize("name", ["add.Tensor", "mul.Tensor", "maximum", "minimum", *COMPARISONS, *INTEGER[:3]])
def test_booleans_follow_pytorch(name):
    compare("aten::" + name, torch.tensor([[True], [False]]), torch.tensor([True, False]))


@pytest.mark.parametrize("name", ARITHMETIC + COMPARISONS[:2] + ["pow.Tensor_Tensor"])
def test_complex_numbers_follow_pytorch(name):
    compare("aten::" + name, *pairs(torch.complex64), rtol=5e-6)


@pytest.mark.parametrize("a, b", [(torch.int32, torch.int64), (torch.int64, torch.float32), (torch.bool, torch.int32),
                                  (torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16),
                                  (torch.float32, torch.complex64), (torch.uint8, torch.int8),
                                  (torch.float32, torch.float64)])
def test_two_dtypes_are_promoted_as_in_pytorch(a, b):
    x, y = special(a)[:3], special(b)[1:4]
    for name in ("add.Tensor", "mul.Tensor", "div.Tensor", "eq.Tensor"):
        compare("aten::" + name, x, y)


def test_python_numbers_are_run_time_inputs_with_pytorchs_promotion():
    ints, halves = torch.arange(-3, 4), torch.linspace(-2, 2, 7).bfloat16()
    for number in (2, -1.5, True):
        for x in (ints, halves, halves.float()):
            for name in ("mul.Tensor", "add.Tensor", "div.Tensor", "lt.Scalar", "maximum"):
                if name != "maximum":
                    compare_wide("aten::" + name, x, number)
    compare("aten::mul.Tensor", halves, 1.001)  # computed in float32, rounded once
    compare("aten::add.Tensor", ints, ints, alpha=3)
    compare("aten::sub.Tensor", halves.float(), halves.float(), alpha=-0.25)
    compare("aten::rsub.Scalar", ints, 5, 2)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_division_rounds_as_asked(mode):
    compare("aten::div.Tensor_mode", *pairs(torch.float32), rounding_mode=mode)
    a, b = pairs(torch.int64)
    a, b = a[a != torch.iinfo(torch.int64).min][:, None], b[:, b[0] != 0]
    compare("aten::div.Tensor_mode", a, b, rounding_mode=mode)
    compare("aten::div.Scalar_mode", a, 3, rounding_mode=mode)


def test_an_integer_division_by_zero_does_not_trap():
    zero, x = torch.zeros(3, dtype=torch.int64), torch.tensor([1, -1, 0])
    for name in ("floor_divide", "remainder.Tensor", "fmod.Tensor"):
        assert run("aten::" + name, x, zero)[0].shape == (3,)


def test_shifts_outside_the_width_shift_everything_out():
    for dtype in (torch.int64, torch.int32, torch.uint8):
        x = torch.tensor([1, 5, 100], dtype=dtype)
        amounts = torch.tensor([[0], [1], [7], [31 if dtype != torch.uint8 else 7], [64], [100]], dtype=dtype)
        compare("aten::bitwise_left_shift.Tensor", x, amounts)
        compare("aten::bitwise_right_shift.Tensor", x, amounts)
    compare("aten::bitwise_right_shift.Tensor_Scalar", torch.tensor([-8, 8]), 70)
    compare("aten::bitwise_left_shift.Tensor_Scalar", torch.tensor([-8, 8]), -1)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.7, 5])
def test_a_power_with_a_number_is_exact_where_pytorch_is(exponent):
    compare("aten::pow.Tensor_Scalar", special(torch.float32), exponent, rtol=5e-6)
    compare_wide("aten::pow.Tensor_Scalar", special(torch.bfloat16), exponent)
    if isinstance(exponent, int) and exponent >= 0:
        compare("aten::pow.Tensor_Scalar", torch.tensor([0, 1, -2, 3]), exponent)


def test_powers_follow_pytorch():
    compare("aten::pow.Tensor_Tensor", *pairs(torch.float32), rtol=1e-5)  # XLA's power: 1e-5 at 30 ** 30
    compare("aten::pow.Tensor_Tensor", torch.tensor([[2], [1], [-1], [0]]), torch.tensor([0, 1, 2, 5]))
    compare("aten::pow.Scalar", 2, torch.tensor([0.5, -1.0, 3.0]))
    with pytest.raises(RuntimeError, match="negative integer powers"):
        run("aten::pow.Tensor_Scalar", torch.tensor([1, 2]), -1)


@pytest.mark.parametrize("decimals", [0, 2, -1])
def test_rounding_to_decimals(decimals):
    compare("aten::round.decimals", torch.tensor([1.23456, -2.5, 0.005, 12345.678, NAN, INF]), decimals=decimals)


def test_clamping_lets_nan_through_and_the_upper_bound_wins():
    x = special(torch.float32)
    compare("aten::clamp", x, -1, 2)
    compare("aten::clamp", x, 2, -1)
    compare("aten::clamp", x, None, 0.25)
    compare("aten::clamp", torch.arange(6), 1.5, None)
    compare("aten::clamp.Tensor", x, torch.tensor(NAN), torch.tensor(2.0))
    compare("aten::clamp_min", x.bfloat16(), 0.1)
    compare("aten::clamp_max", torch.arange(6), 3)


def test_where_and_masked_fill_choose_elements():
    x, mask = special(torch.float32), torch.arange(len(SPECIAL)) % 2 == 0
    compare("aten::where.self", mask, x, torch.tensor(7.0))
    compare("aten::where.self", mask[:, None], x.bfloat16(), torch.zeros(3, 1, 1))
    compare("aten::where.self", mask, torch.arange(len(SPECIAL)), torch.tensor(1.5))
    compare("aten::masked_fill.Scalar", x, mask, -INF)
    compare("aten::masked_fill.Scalar", torch.arange(16), mask, 9)
    compare("aten::masked_fill.Tensor", x.half(), mask, torch.tensor(2.0))


def test_lerp_addcmul_and_addcdiv():
    a, b, c = torch.randn(3, 4), torch.randn(3, 4), torch.rand(4) + 0.5
    for dtype in FLOATS:
        x, y, z = a.to(dtype), b.to(dtype), c.to(dtype)
        compare_wide("aten::lerp.Scalar", x, y, 0.3)
        compare_wide("aten::lerp.Tensor", x, y, z)
        compare_wide("aten::addcmul", x, y, z, value=0.5)
        compare_wide("aten::addcdiv", x, y, z, value=-2)
    compare("aten::addcmul", torch.arange(4), torch.arange(4), torch.arange(4), value=3)


def test_complex_numbers_are_made_of_their_parts():
    a, b = torch.randn(3), torch.randn(3)
    compare("aten::complex", a, b)
    compare("aten::polar", a.abs(), b)
    with pytest.raises(RuntimeError, match="second argument"):
        run("aten::complex", a, b.double(), results=[torch.empty(3, dtype=torch.complex64)])


def test_isin_finds_elements():
    compare("aten::isin.Tensor_Tensor", torch.arange(6).view(2, 3), torch.tensor([1, 4, 9]))
    compare("aten::isin.Tensor_Tensor", torch.randn(4), torch.empty(0), invert=True)
    compare("aten::isin.Tensor_Scalar", torch.arange(6), 3)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 4)])
def test_any_shape_and_any_layout(shape):
    x = torch.randn(shape)
    compare("aten::exp", x)
    compare("aten::add.Tensor", x, torch.tensor(2.0))
    compare("aten::where.self", x > 0, x, x)
    if x.dim() == 2:
        wide = torch.randn(8, 6)
        compare("aten::mul.Tensor", wide[::2, 1:5].t()[1:], x.expand(2, 3, 4)[1])
        compare("aten::sub.Tensor", x.t(), torch.randn(4, 1))
        compare("aten::sigmoid", torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
