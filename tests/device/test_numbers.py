"""Numbers, types and precision: results have the CPU's dtype, and its value where rounding leaves no choice."""
import math

import pytest
import torch
from compare import EXACT, like_cpu, same

HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])


@HALVES
@pytest.mark.parametrize("op", [
    lambda x: x * 1.001, lambda x: x + 0.1003, lambda x: x - 1 / 3, lambda x: 1 / 3 - x, lambda x: x / 3.3,
    lambda x: torch.add(x, x, alpha=0.77),
    lambda x: x.mul_(0.3), lambda x: x.add_(x, alpha=-1.7), lambda x: x.clamp(-0.1003, 0.7007),
    lambda x: torch._foreach_mul([x], 0.3)[0],
    lambda x: x.masked_fill(x > 0, 1 / 3), lambda x: torch.rsub(x, 1 / 3, alpha=0.7)])
def test_a_python_number_is_not_rounded_to_a_half_type_first(op, dtype):
    """Against float32, rounded once. PyTorch's CPU kernels of add and sub round the number too."""
    x = torch.randn(500).to(dtype)
    same(op(x.to("tpu")), op(x.float()).to(dtype), **EXACT)


@HALVES
@pytest.mark.parametrize("op", [lambda x: x > 0.1003, lambda x: x == 0.1, lambda x: x <= 1 / 3, lambda x: x.ne(-0.7)])
def test_a_half_type_compares_with_a_python_number_as_on_the_cpu(op, dtype):
    x = torch.cat([torch.randn(500), torch.tensor([0.1003, 0.1, 1 / 3, -0.7])]).to(dtype)
    same(op(x.to("tpu")), op(x), **EXACT)


@HALVES
@pytest.mark.parametrize("op",
                         [lambda x: x.sum(), lambda x: x.mean(0), lambda x: x.softmax(1), lambda x: x.cumsum(1),
                          lambda x: x.var(1),
                                lambda x: torch.nn.functional.layer_norm(x, (400,)), lambda x: x.norm(dim=1),
                                lambda x: x.logsumexp(1)])
def test_a_reduction_of_a_half_type_is_rounded_once(op, dtype):
    """Against float64, to one unit in the last place: a sum in the half type itself would be off by more."""
    x = torch.rand(30, 400).to(dtype)
    exact = op(x.double())
    result = op(x.to("tpu"))
    assert result.dtype is dtype
    same(result.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-5)


TYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16, torch.float16,
         torch.float32,
         torch.float64, torch.complex64]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_types_promote_as_on_the_cpu(dtype):
    def program(device):
        x = torch.ones(3, dtype=dtype, device=device)
        others = [other for other in TYPES if not {dtype, other} == {torch.float16, torch.complex64}]  # complex32
        with_types = [x * torch.ones(3, dtype=other, device=device) for other in others]
        with_scalars = [x * torch.ones((), dtype=other, device=device) for other in others]
        return with_types, with_scalars, x + 1, x + True, x * 1.5, x.sum(), x.prod(), x.cumsum(0)

    like_cpu(program)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_integers_wrap_divide_and_shift_as_on_the_cpu(dtype):
    info = torch.iinfo(dtype)
    values = [info.min, info.min + 1, 0, 1, 2, 7, info.max - 1, info.max]

    def program(device):
        x = torch.tensor(values, dtype=dtype, device=device)
        y = torch.tensor([3, 7, 1, 2, 5, 3, 4, 7], dtype=dtype, device=device)
        divisions = [torch.div(x, y, rounding_mode=mode) for mode in (None, "floor", "trunc")]
        bits = x << 1, x >> 1, x & y, x | y, x ^ y, ~x
        return divisions, bits, x + y, x - y, x * y, x // y, x % y, torch.fmod(x, y), x ** 2, x.neg(), x.sum()

    like_cpu(program, **EXACT)


def test_products_of_integer_matrices_are_exact():
    a, b = torch.randint(-2**20, 2**20, (3, 6, 5)), torch.randint(-2**20, 2**20, (5, 4))
    same(a.to("tpu") @ b.to("tpu"), a @ b, **EXACT)
    same(a[0].int().to("tpu") @ b.int().to("tpu"), a[0].int() @ b.int(), **EXACT)
    same(a[0, 0].to("tpu").dot(b[:, 0].to("tpu")), a[0, 0].dot(b[:, 0]), **EXACT)


@pytest.fixture
def matmul_precision():
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("product",
                         [lambda a, b: a @ b, lambda a, b: torch.addmm(a.new_ones(48), a, b),
                          lambda a, b: torch.einsum("ik,kj->ij", a, b),
                                     lambda a, b: torch.nn.functional.linear(a, b.t()),
                                     lambda a, b: torch.bmm(a[None], b[None])])
def test_float32_products_of_the_highest_precision_have_float32_digits(product, matmul_precision):
    a, b = torch.randn(40, 300), torch.randn(300, 48)
    exact = product(a.double(), b.double()).float()
    matmul_precision("highest")
    same(product(a.to("tpu"), b.to("tpu")), exact, rtol=1e-5,
         atol=1e-4)  # float32 eps times sqrt(300) terms of size 1 to 4
    matmul_precision("medium")
    same(product(a.to("tpu"), b.to("tpu")), exact, rtol=1e-2, atol=0.3)  # bfloat16 at least


def test_float64_keeps_its_digits():
    def program(device):
        x = torch.linspace(0.1, 2, 40, dtype=torch.float64).to(device)
        m = x.reshape(5, 8)
        elementwise = x.exp(), x.log(), x.sin(), x.rsqrt(), x.erf(), x.pow(2.5), x * (1 / 3)
        return *elementwise, x.sum(), m @ m.t(), x.softmax(0), x.std()

    like_cpu(program, rtol=1e-13, atol=1e-14)


def test_conversions_between_types_are_the_cpus():
    def program(device):
        x = torch.tensor([-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 100.7, math.pi], device=device)
        n = torch.tensor([0, 1, -1, 2**31 - 1, 2**24 + 1, -2**40], device=device)
        return [x.to(t) for t in (torch.int8, torch.int32, torch.int64, torch.bool, torch.float16, torch.bfloat16,
                                  torch.float64, torch.complex64)], \
               [n.to(t) for t in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.bool, torch.float32,
                                  torch.float64, torch.bfloat16)], \
               x.round(), x.trunc(), x.int().to(torch.float16)

    like_cpu(program, **EXACT)


def test_special_values_pass_as_on_the_cpu():
    """Without subnormal numbers, and numbers whose reciprocal is one: XLA's CPU code takes those for 0."""
    values = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e37, 1e-37]

    def program(device):
        x = torch.tensor(values, device=device)
        y = x[:, None]
        return (x + y, x * y, x / y, torch.maximum(x, y), torch.fmin(x, y), x < y, x == y, x.max(), x.argmax(),
                x[x == x].min(), x.sort()[0],
                x.isnan(), x.isinf(), x.sign(), x.signbit(), torch.nan_to_num(x), x.clamp(0, 1), x.nansum(), x.relu(),
                x.atan2(y))

    like_cpu(program, rtol=1e-6, atol=0)


def test_a_number_read_from_the_device_is_the_python_number():
    for value, dtype in ((True, None), (7, None), (-2**62, None), (0.1, torch.float64), (1 + 2j, torch.complex128)):
        read = torch.tensor(value, dtype=dtype).to("tpu").item()
        assert read == value and type(read) is type(value)
    x = torch.arange(3, device="tpu")
    assert x.tolist() == [0, 1, 2] and int(x[2]) == 2 and float(x[1]) == 1.0 and bool(x[0]) is False
    assert [10, 11, 12][x[1]] == 11
