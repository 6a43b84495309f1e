#include "ops/elementwise.h"

#include <math.h>
#include <string.h>

// Computed in the result's type; complex operands of ops with a real result (abs, angle) stay complex.
static void unary(pj_lowering *l, pj_unary formula) {
  hlo_value x = pj_tensor(l, 0);
  pj_dtype dtype = pj_dtype_is_complex(x.dtype) ? x.dtype : pj_result_math(l, 0);
  pj_return(l, 0, formula(l->h, hlo_convert(l->h, x, dtype)));
}

static void binary(pj_lowering *l, pj_binary formula) {
  pj_dtype dtype = pj_result_math(l, 0);
  pj_return(l, 0, formula(l->h, pj_as(l, 0, dtype), pj_as(l, 1, dtype)));
}

// ---- one operand ----------------------------------------------------------------------------------------------------

// X(ATen name, formula); those of UNARY_OPS are prims too
#define UNARY_OPS(X) \
  X(abs, pj_abs) X(acos, hlo_acos) X(acosh, hlo_acosh) X(asin, hlo_asin) X(asinh, hlo_asinh) X(atan, hlo_atan) \
  X(atanh, hlo_atanh) X(bitwise_not, pj_bitwise_not) X(ceil, pj_ceil) X(cos, hlo_cos) X(cosh, hlo_cosh) \
  X(exp, hlo_exp) X(exp2, pj_exp2) X(expm1, hlo_expm1) X(floor, pj_floor) X(log, hlo_log) X(log10, pj_log10) \
  X(log1p, hlo_log1p) \
  X(log2, pj_log2) X(neg, hlo_neg) X(reciprocal, pj_reciprocal) X(round, pj_round) X(rsqrt, hlo_rsqrt) X(sign, pj_sgn) \
  X(sin, hlo_sin) X(sinh, hlo_sinh) X(sqrt, hlo_sqrt) X(tan, hlo_tan) X(tanh, hlo_tanh) X(trunc, pj_trunc)
#define ATEN_UNARY_OPS(X) \
  X(angle, pj_angle) X(deg2rad, pj_deg2rad) X(frac, pj_frac) X(rad2deg, pj_rad2deg) X(sgn, pj_sgn) \
  X(sigmoid, pj_sigmoid) X(_conj_physical, hlo_conj) X(_conj_copy, hlo_conj) X(_neg_view_copy, hlo_neg)

#define DEFINE_UNARY(name, formula) static void lower_##name(pj_lowering *l) { unary(l, formula); }
UNARY_OPS(DEFINE_UNARY)
ATEN_UNARY_OPS(DEFINE_UNARY)
DEFINE_UNARY(cbrt, hlo_cbrt)

// aten::round.decimals(self, decimals): round(x * 10^d) / 10^d
static void lower_round_decimals(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_as(l, 0, pj_result_math(l, 0));
  int64_t decimals = pj_int(l, 1);
  if (decimals == 0 || !pj_dtype_is_float(x.dtype)) return pj_return(l, 0, pj_round(h, x));
  hlo_value power = pj_constant_like(h, x, pow(10, fabs((double)decimals)));
  hlo_value scaled = decimals > 0 ? hlo_mul(h, x, power) : hlo_div(h, x, power);
  hlo_value rounded = hlo_round_even(h, scaled);
  pj_return(l, 0, decimals > 0 ? hlo_div(h, rounded, power) : hlo_mul(h, rounded, power));
}

// aten::frexp.Tensor(self): mantissa in [0.5, 1) and exponent, by way of the exponent bits; subnormals are
// scaled up first.
static void lower_frexp(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_as(l, 0, pj_result_math(l, 0));
  bool wide = x.dtype == PJ_F64;
  int mantissa_bits = wide ? 52 : 23, bias = wide ? 1022 : 126;
  hlo_value subnormal = hlo_lt(h, hlo_abs(h, x), pj_constant_like(h, x, wide ? 0x1p-1022 : 0x1p-126));
  hlo_value normal = hlo_select(h, subnormal, hlo_mul(h, x, pj_constant_like(h, x, 0x1p+54)), x);
  hlo_value bits = hlo_bitcast(h, normal, wide ? PJ_S64 : PJ_S32);
  hlo_value field = hlo_and(h, hlo_shr_logical(h, bits, hlo_constant_int(h, bits.dtype, mantissa_bits)),
                            hlo_constant_int(h, bits.dtype, wide ? 0x7ff : 0xff));
  int64_t keep = wide ? (int64_t)0x800fffffffffffff : (int64_t)(int32_t)0x807fffff;
  hlo_value mantissa_field = hlo_or(h, hlo_and(h, bits, hlo_constant_int(h, bits.dtype, keep)),
                                    hlo_constant_int(h, bits.dtype, (int64_t)bias << mantissa_bits));
  hlo_value mantissa = hlo_bitcast(h, mantissa_field, x.dtype);
  hlo_value exponent = hlo_sub(h, field, hlo_constant_int(h, field.dtype, bias));
  exponent = hlo_select(h, subnormal, hlo_sub(h, exponent, hlo_constant_int(h, field.dtype, 54)), exponent);
  hlo_value special = hlo_or(h, hlo_eq(h, x, pj_constant_like(h, x, 0)), hlo_not(h, hlo_is_finite(h, x)));
  pj_return(l, 0, hlo_select(h, special, x, mantissa));
  pj_return(l, 1, hlo_select(h, special, hlo_constant_int(h, exponent.dtype, 0), exponent));
}

// aten::nan_to_num(self, nan, posinf, neginf): defaults 0, largest and smallest finite number of self's dtype.
static hlo_value nan_to_num(pj_lowering *l, hlo_value x) {
  static const double LARGEST[PJ_DTYPE_COUNT] = {
      [PJ_F16] = 65504, [PJ_BF16] = 0x1.fep+127, [PJ_F32] = 0x1.fffffep+127, [PJ_F64] = 0x1.fffffffffffffp+1023,
      [PJ_C64] = 0x1.fffffep+127, [PJ_C128] = 0x1.fffffffffffffp+1023};
  hlo *h = l->h;
  double largest = LARGEST[pj_result_type(l, 0).dtype];
  hlo_value nan = pj_present(l, 1) ? pj_number(l, 1, x.dtype) : pj_constant_like(h, x, 0);
  hlo_value high = pj_present(l, 2) ? pj_number(l, 2, x.dtype) : pj_constant_like(h, x, largest);
  hlo_value low = pj_present(l, 3) ? pj_number(l, 3, x.dtype) : pj_constant_like(h, x, -largest);
  hlo_value y = hlo_select(h, hlo_is_nan(h, x), nan, x);
  y = hlo_select(h, hlo_eq(h, x, pj_constant_like(h, x, INFINITY)), high, y);
  return hlo_select(h, hlo_eq(h, x, pj_constant_like(h, x, -INFINITY)), low, y);
}

static void lower_nan_to_num(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_as(l, 0, pj_result_math(l, 0));
  if (pj_dtype_is_complex(x.dtype))
    x = hlo_complex(h, nan_to_num(l, hlo_real(h, x)), nan_to_num(l, hlo_imag(h, x)));
  else if (pj_dtype_is_float(x.dtype))
    x = nan_to_num(l, x);
  pj_return(l, 0, x);
}

// ---- two operands ---------------------------------------------------------------------------------------------------

// X(C name, formula)
#define BINARY_OPS(X) \
  X(mul, hlo_mul) X(div, hlo_div) X(atan2, hlo_atan2) X(copysign, pj_copysign) X(fmax, pj_fmax) X(fmin, pj_fmin) \
  X(maximum, hlo_max) X(minimum, hlo_min) X(fmod, hlo_rem) X(remainder, pj_remainder) \
  X(floor_divide, pj_floor_divide) X(gcd, pj_gcd) X(lcm, pj_lcm) X(heaviside, pj_heaviside) X(hypot, pj_hypot) \
  X(ldexp, pj_ldexp) X(logaddexp, pj_logaddexp) X(logaddexp2, pj_logaddexp2) X(xlogy, pj_xlogy) \
  X(xlog1py, pj_xlog1py) X(bitwise_and, hlo_and) X(bitwise_or, hlo_or) X(bitwise_xor, hlo_xor) \
  X(shift_left, pj_shift_left) X(shift_right, pj_shift_right) X(pow, pj_pow) X(plain_add, hlo_add) X(plain_sub, pj_sub)

#define DEFINE_BINARY(name, formula) static void lower_##name(pj_lowering *l) { binary(l, formula); }
BINARY_OPS(DEFINE_BINARY)

static hlo_value times_alpha(pj_lowering *l, hlo_value x) {
  return pj_present(l, 2) ? hlo_mul(l->h, x, pj_number(l, 2, x.dtype)) : x;
}

// aten::add.Tensor(self, other, alpha): self + alpha * other
static void lower_add(pj_lowering *l) {
  pj_dtype dtype = pj_result_math(l, 0);
  pj_return(l, 0, hlo_add(l->h, pj_as(l, 0, dtype), times_alpha(l, pj_as(l, 1, dtype))));
}

// aten::sub.Tensor(self, other, alpha): self - alpha * other
static void lower_sub(pj_lowering *l) {
  pj_dtype dtype = pj_result_math(l, 0);
  pj_return(l, 0, hlo_sub(l->h, pj_as(l, 0, dtype), times_alpha(l, pj_as(l, 1, dtype))));
}

// aten::rsub.Tensor(self, other, alpha): other - alpha * self
static void lower_rsub(pj_lowering *l) {
  pj_dtype dtype = pj_result_math(l, 0);
  pj_return(l, 0, hlo_sub(l->h, pj_as(l, 1, dtype), times_alpha(l, pj_as(l, 0, dtype))));
}

// aten::_add_relu.Tensor(self, other, alpha): relu(self + alpha * other)
static void lower_add_relu(pj_lowering *l) {
  pj_dtype dtype = pj_result_math(l, 0);
  pj_return(l, 0, pj_relu(l->h, hlo_add(l->h, pj_as(l, 0, dtype), times_alpha(l, pj_as(l, 1, dtype)))));
}

// aten::div.Tensor_mode(self, other, rounding_mode)
static void lower_div_mode(pj_lowering *l) {
  const char *mode = pj_string(l, 2);
  if (!strcmp(mode, "floor")) return binary(l, pj_floor_divide);
  if (!strcmp(mode, "trunc")) return binary(l, pj_div_trunc);
  binary(l, hlo_div);
}

// aten::pow.Tensor_Scalar(self, exponent): special exponents are part of the program.
static void lower_pow_scalar(pj_lowering *l) {
  hlo_value x = pj_as(l, 0, pj_result_math(l, 0));
  if (pj_kind(l, 1) == PJ_ARG_NUMBER || pj_dtype_is_complex(x.dtype)) return binary(l, pj_pow);
  double exponent = pj_float(l, 1);
  pj_require(l, !pj_dtype_is_integer(x.dtype) || exponent >= 0, PJ_INVALID_ARGUMENT,
             "Integers to negative integer powers are not allowed.");
  pj_return(l, 0, pj_pow_constant(l->h, x, exponent));
}

// aten::nextafter(self, other): in the tensors' own type, since the next number of a wider type is another one.
static void lower_nextafter(pj_lowering *l) {
  pj_dtype dtype = pj_result_type(l, 0).dtype;
  pj_return(l, 0, hlo_next_after(l->h, pj_as(l, 0, dtype), pj_as(l, 1, dtype)));
}

// aten::complex(real, imag)
static void lower_complex(pj_lowering *l) {
  pj_type real = pj_tensor_type(l, 0), imag = pj_tensor_type(l, 1);
  if (!pj_require(l, real.dtype == PJ_F16 || real.dtype == PJ_F32 || real.dtype == PJ_F64, PJ_INVALID_ARGUMENT,
                  "Expected both inputs to be Half, Float or Double tensors but got %s and %s",
                  pj_dtype_name(real.dtype), pj_dtype_name(imag.dtype)) ||
      !pj_require(l, real.dtype == imag.dtype, PJ_INVALID_ARGUMENT,
                  "Expected object of scalar type %s but got scalar type %s for second argument",
                  pj_dtype_name(real.dtype), pj_dtype_name(imag.dtype)))
    return;
  pj_dtype part = pj_real_dtype(pj_result_type(l, 0).dtype);
  pj_return(l, 0, hlo_complex(l->h, pj_as(l, 0, part), pj_as(l, 1, part)));
}

// aten::polar(abs, angle): abs * (cos(angle) + i sin(angle))
static void lower_polar(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype part = pj_real_dtype(pj_result_type(l, 0).dtype);
  hlo_value length = pj_as(l, 0, part), angle = pj_as(l, 1, part);
  pj_return(l, 0, hlo_complex(h, hlo_mul(h, length, hlo_cos(h, angle)), hlo_mul(h, length, hlo_sin(h, angle))));
}

// ---- three operands -------------------------------------------------------------------------------------------------

// aten::where.self(condition, self, other)
static void lower_where(pj_lowering *l) {
  pj_dtype dtype = pj_result_type(l, 0).dtype;
  pj_return(l, 0, hlo_select(l->h, pj_as(l, 0, PJ_PRED), pj_as(l, 1, dtype), pj_as(l, 2, dtype)));
}

// aten::masked_fill.Scalar(self, mask, value)
static void lower_masked_fill(pj_lowering *l) {
  pj_dtype dtype = pj_result_type(l, 0).dtype;
  pj_return(l, 0, hlo_select(l->h, pj_as(l, 1, PJ_PRED), pj_as(l, 2, dtype), pj_as(l, 0, dtype)));
}

// aten::clamp(self, min, max): min(max(self, min), max), NaN wins
static void lower_clamp(pj_lowering *l) {
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value x = pj_as(l, 0, dtype);
  if (pj_present(l, 1)) x = hlo_max(l->h, x, pj_as(l, 1, dtype));
  if (pj_present(l, 2)) x = hlo_min(l->h, x, pj_as(l, 2, dtype));
  pj_return(l, 0, x);
}

// aten::lerp.Tensor(self, end, weight)
static void lower_lerp(pj_lowering *l) {
  pj_dtype dtype = pj_result_math(l, 0);
  pj_return(l, 0, pj_lerp(l->h, pj_as(l, 0, dtype), pj_as(l, 1, dtype), pj_as(l, 2, dtype)));
}

// aten::addcmul(self, tensor1, tensor2, value): self + value * tensor1 * tensor2
static void lower_addcmul(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value product = hlo_mul(h, pj_as(l, 1, dtype), pj_as(l, 2, dtype));
  if (pj_present(l, 3)) product = hlo_mul(h, pj_number(l, 3, dtype), product);
  pj_return(l, 0, hlo_add(h, pj_as(l, 0, dtype), product));
}

// prims::fma(a, b, c): a * b + c
static void lower_fma(pj_lowering *l) {
  pj_dtype dtype = pj_result_math(l, 0);
  pj_return(l, 0, hlo_add(l->h, hlo_mul(l->h, pj_as(l, 0, dtype), pj_as(l, 1, dtype)), pj_as(l, 2, dtype)));
}

// aten::addcdiv(self, tensor1, tensor2, value): self + value * tensor1 / tensor2
static void lower_addcdiv(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value numerator = pj_as(l, 1, dtype);
  if (pj_present(l, 3)) numerator = hlo_mul(h, pj_number(l, 3, dtype), numerator);
  pj_return(l, 0, hlo_add(h, pj_as(l, 0, dtype), hlo_div(h, numerator, pj_as(l, 2, dtype))));
}

#define ATEN_ENTRY(name, formula) {"aten::" #name, lower_##name},
#define PRIMS_ENTRY(name, formula) {"prims::" #name, lower_##name},

PJ_LOWERINGS(pointwise_lowerings) = {
    UNARY_OPS(ATEN_ENTRY)
    UNARY_OPS(PRIMS_ENTRY)
    ATEN_UNARY_OPS(ATEN_ENTRY)
    {"prims::cbrt", lower_cbrt},
    {"prims::conj_physical", lower__conj_physical},
    {"aten::round.decimals", lower_round_decimals},
    {"aten::frexp.Tensor", lower_frexp},
    {"prims::frexp", lower_frexp},
    {"aten::nan_to_num", lower_nan_to_num},

    {"aten::add.Tensor", lower_add},
    {"aten::add.Scalar", lower_add},
    {"aten::sub.Tensor", lower_sub},
    {"aten::sub.Scalar", lower_sub},
    {"aten::rsub.Tensor", lower_rsub},
    {"aten::rsub.Scalar", lower_rsub},
    {"aten::_add_relu.Tensor", lower_add_relu},
    {"aten::_add_relu.Scalar", lower_add_relu},
    {"aten::mul.Tensor", lower_mul},
    {"aten::mul.Scalar", lower_mul},
    {"aten::div.Tensor", lower_div},
    {"aten::div.Scalar", lower_div},
    {"aten::div.Tensor_mode", lower_div_mode},
    {"aten::div.Scalar_mode", lower_div_mode},
    {"aten::floor_divide", lower_floor_divide},
    {"aten::floor_divide.Scalar", lower_floor_divide},
    {"aten::fmod.Tensor", lower_fmod},
    {"aten::fmod.Scalar", lower_fmod},
    {"aten::remainder.Tensor", lower_remainder},
    {"aten::remainder.Scalar", lower_remainder},
    {"aten::remainder.Scalar_Tensor", lower_remainder},
    {"aten::atan2", lower_atan2},
    {"aten::copysign.Tensor", lower_copysign},
    {"aten::copysign.Scalar", lower_copysign},
    {"aten::fmax", lower_fmax},
    {"aten::fmin", lower_fmin},
    {"aten::maximum", lower_maximum},
    {"aten::minimum", lower_minimum},
    {"aten::gcd", lower_gcd},
    {"aten::lcm", lower_lcm},
    {"aten::heaviside", lower_heaviside},
    {"aten::hypot", lower_hypot},
    {"aten::ldexp.Tensor", lower_ldexp},
    {"aten::logaddexp", lower_logaddexp},
    {"aten::logaddexp2", lower_logaddexp2},
    {"aten::nextafter", lower_nextafter},
    {"aten::xlogy.Tensor", lower_xlogy},
    {"aten::xlogy.Scalar_Other", lower_xlogy},
    {"aten::xlogy.Scalar_Self", lower_xlogy},
    {"aten::special_xlog1py", lower_xlog1py},
    {"aten::special_xlog1py.other_scalar", lower_xlog1py},
    {"aten::special_xlog1py.self_scalar", lower_xlog1py},
    {"aten::bitwise_and.Tensor", lower_bitwise_and},
    {"aten::bitwise_and.Scalar", lower_bitwise_and},
    {"aten::bitwise_and.Scalar_Tensor", lower_bitwise_and},
    {"aten::bitwise_or.Tensor", lower_bitwise_or},
    {"aten::bitwise_or.Scalar", lower_bitwise_or},
    {"aten::bitwise_or.Scalar_Tensor", lower_bitwise_or},
    {"aten::bitwise_xor.Tensor", lower_bitwise_xor},
    {"aten::bitwise_xor.Scalar", lower_bitwise_xor},
    {"aten::bitwise_xor.Scalar_Tensor", lower_bitwise_xor},
    {"aten::bitwise_left_shift.Tensor", lower_shift_left},
    {"aten::bitwise_left_shift.Tensor_Scalar", lower_shift_left},
    {"aten::bitwise_left_shift.Scalar_Tensor", lower_shift_left},
    {"aten::__lshift__.Tensor", lower_shift_left},
    {"aten::__lshift__.Scalar", lower_shift_left},
    {"aten::bitwise_right_shift.Tensor", lower_shift_right},
    {"aten::bitwise_right_shift.Tensor_Scalar", lower_shift_right},
    {"aten::bitwise_right_shift.Scalar_Tensor", lower_shift_right},
    {"aten::__rshift__.Tensor", lower_shift_right},
    {"aten::__rshift__.Scalar", lower_shift_right},
    {"aten::pow.Tensor_Tensor", lower_pow},
    {"aten::pow.Scalar", lower_pow},
    {"aten::pow.Tensor_Scalar", lower_pow_scalar, .specials = PJ_STATIC(1)},
    {"aten::complex", lower_complex},
    {"aten::polar", lower_polar},

    {"aten::where.self", lower_where},
    {"aten::masked_fill.Scalar", lower_masked_fill},
    {"aten::masked_fill.Tensor", lower_masked_fill},
    {"aten::clamp", lower_clamp},
    {"aten::clamp.Tensor", lower_clamp},
    {"aten::clamp_min", lower_maximum},
    {"aten::clamp_min.Tensor", lower_maximum},
    {"aten::clamp_max", lower_minimum},
    {"aten::clamp_max.Tensor", lower_minimum},
    {"aten::lerp.Tensor", lower_lerp},
    {"aten::lerp.Scalar", lower_lerp},
    {"aten::addcmul", lower_addcmul},
    {"aten::addcdiv", lower_addcdiv},

    {"prims::add", lower_plain_add},
    {"prims::sub", lower_plain_sub},
    {"prims::mul", lower_mul},
    {"prims::div", lower_div},
    {"prims::atan2", lower_atan2},
    {"prims::fma", lower_fma},
    {"prims::fmax", lower_fmax},
    {"prims::fmin", lower_fmin},
    {"prims::maximum", lower_maximum},
    {"prims::minimum", lower_minimum},
    {"prims::fmod", lower_fmod},
    {"prims::remainder", lower_remainder},
    {"prims::gcd", lower_gcd},
    {"prims::hypot", lower_hypot},
    {"prims::nextafter", lower_nextafter},
    {"prims::bitwise_and", lower_bitwise_and},
    {"prims::bitwise_or", lower_bitwise_or},
    {"prims::bitwise_xor", lower_bitwise_xor},
    {"prims::shift_left", lower_shift_left},
    {"prims::shift_right_arithmetic", lower_shift_right},
    {"prims::pow", lower_pow},
    {"prims::where", lower_where},
    {0},
};
