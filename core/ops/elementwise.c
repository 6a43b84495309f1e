#include "ops/elementwise.h"

#include <math.h>

pj_dtype pj_result_math(const pj_lowering *l, int result) { return pj_math_dtype(pj_result_type(l, result).dtype); }

hlo_value pj_as(pj_lowering *l, int argument, pj_dtype dtype) {
  pj_argument_kind kind = pj_kind(l, argument);
  return kind == PJ_ARG_TENSOR ? hlo_convert(l->h, pj_tensor(l, argument), dtype) : pj_number(l, argument, dtype);
}

hlo_value pj_constant_like(hlo *h, hlo_value x, double value) { return hlo_constant(h, x.dtype, value); }

#define K(x, value) pj_constant_like(h, (x), (value))

// ---- one operand ----------------------------------------------------------------------------------------------------

static bool is_unsigned(pj_dtype dtype) {
  return dtype == PJ_PRED || (pj_dtype_is_integer(dtype) && !pj_dtype_is_signed(dtype));
}

hlo_value pj_identity(hlo *h, hlo_value x) {
  (void)h;
  return x;
}

hlo_value pj_abs(hlo *h, hlo_value x) { return is_unsigned(x.dtype) ? x : hlo_abs(h, x); }
hlo_value pj_bitwise_not(hlo *h, hlo_value x) { return hlo_not(h, x); }
hlo_value pj_ceil(hlo *h, hlo_value x) { return pj_dtype_is_float(x.dtype) ? hlo_ceil(h, x) : x; }
hlo_value pj_floor(hlo *h, hlo_value x) { return pj_dtype_is_float(x.dtype) ? hlo_floor(h, x) : x; }
hlo_value pj_round(hlo *h, hlo_value x) { return pj_dtype_is_float(x.dtype) ? hlo_round_even(h, x) : x; }
hlo_value pj_deg2rad(hlo *h, hlo_value x) { return hlo_mul(h, x, K(x, M_PI / 180)); }
hlo_value pj_rad2deg(hlo *h, hlo_value x) { return hlo_mul(h, x, K(x, 180 / M_PI)); }
hlo_value pj_log10(hlo *h, hlo_value x) { return hlo_div(h, hlo_log(h, x), K(x, M_LN10)); }
hlo_value pj_log2(hlo *h, hlo_value x) { return hlo_div(h, hlo_log(h, x), K(x, M_LN2)); }
hlo_value pj_reciprocal(hlo *h, hlo_value x) { return hlo_div(h, K(x, 1), x); }
hlo_value pj_relu(hlo *h, hlo_value x) { return hlo_max(h, x, K(x, 0)); }
hlo_value pj_square(hlo *h, hlo_value x) { return hlo_mul(h, x, x); }

// The power function keeps full precision where exp(x * log 2) loses a digit for large x.
hlo_value pj_exp2(hlo *h, hlo_value x) { return hlo_pow(h, K(x, 2), x); }

hlo_value pj_trunc(hlo *h, hlo_value x) {
  if (!pj_dtype_is_float(x.dtype)) return x;
  return hlo_select(h, hlo_lt(h, x, K(x, 0)), hlo_ceil(h, x), hlo_floor(h, x));
}

hlo_value pj_frac(hlo *h, hlo_value x) { return hlo_sub(h, x, pj_trunc(h, x)); }

// NaN gives 0 for real numbers, as in PyTorch.
hlo_value pj_sgn(hlo *h, hlo_value x) {
  if (x.dtype == PJ_PRED) return x;
  if (is_unsigned(x.dtype)) return hlo_convert(h, hlo_ne(h, x, K(x, 0)), x.dtype);
  hlo_value sign = hlo_sign(h, x);
  return pj_dtype_is_float(x.dtype) ? hlo_select(h, hlo_is_nan(h, x), K(x, 0), sign) : sign;
}

hlo_value pj_sigmoid(hlo *h, hlo_value x) {
  if (!pj_dtype_is_complex(x.dtype)) return hlo_logistic(h, x);
  return pj_reciprocal(h, hlo_add(h, K(x, 1), hlo_exp(h, hlo_neg(h, x))));
}

hlo_value pj_signbit(hlo *h, hlo_value x) {
  if (!pj_dtype_is_float(x.dtype)) return hlo_lt(h, x, K(x, 0));
  pj_dtype bits = pj_dtype_size(x.dtype) == 8 ? PJ_S64 : pj_dtype_size(x.dtype) == 4 ? PJ_S32
                : pj_dtype_size(x.dtype) == 2 ? PJ_S16 : PJ_S8;
  hlo_value integer = hlo_bitcast(h, x, bits);
  return hlo_lt(h, integer, K(integer, 0));
}

hlo_value pj_is_inf(hlo *h, hlo_value x) {
  if (pj_dtype_is_complex(x.dtype)) return hlo_or(h, pj_is_inf(h, hlo_real(h, x)), pj_is_inf(h, hlo_imag(h, x)));
  if (!pj_dtype_is_float(x.dtype)) return hlo_full(h, PJ_PRED, x.rank, x.dims, 0);
  return hlo_eq(h, hlo_abs(h, x), K(x, INFINITY));
}

hlo_value pj_angle(hlo *h, hlo_value x) {
  if (pj_dtype_is_complex(x.dtype)) return hlo_atan2(h, hlo_imag(h, x), hlo_real(h, x));
  hlo_value angle = hlo_select(h, hlo_lt(h, x, K(x, 0)), K(x, M_PI), K(x, 0));
  return hlo_select(h, hlo_is_nan(h, x), x, angle);
}

// ---- two operands ---------------------------------------------------------------------------------------------------

hlo_value pj_sub(hlo *h, hlo_value a, hlo_value b) { return hlo_sub(h, a, b); }

// XLA turns division by a broadcast operand into multiplication by its reciprocal, which can miss a whole number.
hlo_value pj_div_trunc(hlo *h, hlo_value a, hlo_value b) {
  if (!hlo_same_dims(a, b)) b = hlo_optimization_barrier(h, hlo_broadcast_like(h, b, hlo_add(h, a, b)));
  return pj_trunc(h, hlo_div(h, a, b));
}

static hlo_value signs_differ(hlo *h, hlo_value a, hlo_value b) {
  return hlo_ne(h, hlo_lt(h, a, K(a, 0)), hlo_lt(h, b, K(b, 0)));
}

// Python's %: the remainder of truncation, moved to the divisor's sign.
hlo_value pj_remainder(hlo *h, hlo_value a, hlo_value b) {
  hlo_value r = hlo_rem(h, a, b);
  if (is_unsigned(a.dtype)) return r;
  hlo_value move = hlo_and(h, hlo_ne(h, r, K(r, 0)), signs_differ(h, r, b));
  return hlo_select(h, move, hlo_add(h, r, b), r);
}

hlo_value pj_copysign(hlo *h, hlo_value a, hlo_value b) {
  hlo_value magnitude = hlo_abs(h, a);
  return hlo_select(h, pj_signbit(h, b), hlo_neg(h, magnitude), magnitude);
}

// Integers: truncated quotient, one less when inexact and negative. Floats: Python's algorithm
// (c10::div_floor_floating), which takes the remainder out first so that the quotient is exact.
hlo_value pj_floor_divide(hlo *h, hlo_value a, hlo_value b) {
  if (is_unsigned(a.dtype)) return hlo_div(h, a, b);
  hlo_value r = hlo_rem(h, a, b);
  hlo_value inexact = hlo_and(h, hlo_ne(h, r, K(r, 0)), signs_differ(h, r, b));
  if (!pj_dtype_is_float(a.dtype)) {
    hlo_value quotient = hlo_div(h, a, b);
    return hlo_select(h, inexact, hlo_sub(h, quotient, K(a, 1)), quotient);
  }
  hlo_value exact = hlo_div(h, a, b);
  hlo_value quotient = hlo_div(h, hlo_sub(h, a, r), b);
  quotient = hlo_select(h, inexact, hlo_sub(h, quotient, K(a, 1)), quotient);
  hlo_value floor = hlo_floor(h, quotient);
  floor = hlo_select(h, hlo_gt(h, hlo_sub(h, quotient, floor), K(a, 0.5)), hlo_add(h, floor, K(a, 1)), floor);
  floor = hlo_select(h, hlo_ne(h, quotient, K(a, 0)), floor, pj_copysign(h, K(a, 0), exact));
  return hlo_select(h, hlo_eq(h, b, K(b, 0)), exact, floor);
}

hlo_value pj_fmax(hlo *h, hlo_value a, hlo_value b) {
  hlo_value larger = hlo_select(h, hlo_is_nan(h, a), b, hlo_max(h, a, b));
  return hlo_select(h, hlo_is_nan(h, b), a, larger);
}

hlo_value pj_fmin(hlo *h, hlo_value a, hlo_value b) {
  hlo_value smaller = hlo_select(h, hlo_is_nan(h, a), b, hlo_min(h, a, b));
  return hlo_select(h, hlo_is_nan(h, b), a, smaller);
}

static void gcd_goes_on(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_reduce_all(h, HLO_OR, hlo_ne(h, state[1], K(state[1], 0)));
}

static void gcd_step(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  (void)context;
  hlo_value a = state[0], b = state[1];
  hlo_value done = hlo_eq(h, b, K(b, 0));
  hlo_value divisor = hlo_select(h, done, K(b, 1), b);
  results[0] = hlo_select(h, done, a, b);
  results[1] = hlo_select(h, done, b, hlo_rem(h, a, divisor));
}

// Euclid's algorithm, all elements in step.
hlo_value pj_gcd(hlo *h, hlo_value a, hlo_value b) {
  hlo_value sum = hlo_add(h, a, b);
  hlo_value starts[2] = {pj_abs(h, hlo_broadcast_like(h, a, sum)), pj_abs(h, hlo_broadcast_like(h, b, sum))}, ends[2];
  hlo_while(h, starts, 2, gcd_goes_on, gcd_step, NULL, ends);
  return ends[0];
}

hlo_value pj_lcm(hlo *h, hlo_value a, hlo_value b) {
  hlo_value gcd = pj_gcd(h, a, b);
  hlo_value none = hlo_eq(h, gcd, K(gcd, 0));
  hlo_value multiple = pj_abs(h, hlo_mul(h, hlo_div(h, a, hlo_select(h, none, K(gcd, 1), gcd)), b));
  return hlo_select(h, none, K(gcd, 0), multiple);
}

hlo_value pj_heaviside(hlo *h, hlo_value a, hlo_value b) {
  hlo_value step = hlo_convert(h, hlo_gt(h, a, K(a, 0)), a.dtype);
  return hlo_select(h, hlo_eq(h, a, K(a, 0)), b, step);
}

// Scaled by the larger side, so that squares neither overflow nor vanish; an infinite side wins over NaN (C's hypot).
hlo_value pj_hypot(hlo *h, hlo_value a, hlo_value b) {
  hlo_value x = hlo_abs(h, a), y = hlo_abs(h, b);
  hlo_value large = hlo_max(h, x, y), small = hlo_min(h, x, y);
  hlo_value ratio = hlo_div(h, small, hlo_select(h, hlo_eq(h, large, K(x, 0)), K(x, 1), large));
  hlo_value length = hlo_mul(h, large, hlo_sqrt(h, hlo_add(h, K(x, 1), pj_square(h, ratio))));
  hlo_value infinite = hlo_or(h, pj_is_inf(h, x), pj_is_inf(h, y));
  return hlo_select(h, infinite, K(x, INFINITY), length);
}

// a * 2^b in two steps, since 2^b alone may overflow where the product does not.
hlo_value pj_ldexp(hlo *h, hlo_value a, hlo_value b) {
  hlo_value half = pj_trunc(h, hlo_mul(h, b, K(b, 0.5)));
  return hlo_mul(h, hlo_mul(h, a, pj_exp2(h, half)), pj_exp2(h, hlo_sub(h, b, half)));
}

// max + log1p(exp(-|a - b|)); equal infinities are their own result.
hlo_value pj_logaddexp(hlo *h, hlo_value a, hlo_value b) {
  if (pj_dtype_is_complex(a.dtype)) {
    hlo_value first = hlo_ge(h, hlo_real(h, a), hlo_real(h, b));
    hlo_value large = hlo_select(h, first, a, b), small = hlo_select(h, first, b, a);
    return hlo_add(h, large, hlo_log1p(h, hlo_exp(h, hlo_sub(h, small, large))));
  }
  hlo_value sum = hlo_add(h, hlo_max(h, a, b), hlo_log1p(h, hlo_exp(h, hlo_neg(h, hlo_abs(h, hlo_sub(h, a, b))))));
  return hlo_select(h, hlo_and(h, hlo_eq(h, a, b), pj_is_inf(h, a)), a, sum);
}

hlo_value pj_logaddexp2(hlo *h, hlo_value a, hlo_value b) {
  hlo_value gap = hlo_neg(h, hlo_abs(h, hlo_sub(h, a, b)));
  hlo_value extra = hlo_div(h, hlo_log1p(h, pj_exp2(h, gap)), K(a, M_LN2));
  hlo_value sum = hlo_add(h, hlo_max(h, a, b), extra);
  return hlo_select(h, hlo_and(h, hlo_eq(h, a, b), pj_is_inf(h, a)), a, sum);
}

// Booleans: a or not b.
hlo_value pj_pow(hlo *h, hlo_value a, hlo_value b) {
  if (a.dtype == PJ_PRED) return hlo_or(h, a, hlo_not(h, b));
  return hlo_pow(h, a, b);
}

hlo_value pj_pow_constant(hlo *h, hlo_value x, double exponent) {
  bool real = pj_dtype_is_float(x.dtype);
  if (exponent == 0) return hlo_full(h, x.dtype, x.rank, x.dims, 1);
  if (exponent == 1) return x;
  if (exponent == 2) return pj_square(h, x);
  if (exponent == 3) return hlo_mul(h, pj_square(h, x), x);
  if (real && exponent == 0.5) return hlo_sqrt(h, x);
  if (real && exponent == -0.5) return hlo_div(h, K(x, 1), hlo_sqrt(h, x));
  if (real && exponent == -1) return pj_reciprocal(h, x);
  if (real && exponent == -2) return pj_reciprocal(h, pj_square(h, x));
  return pj_pow(h, x, K(x, exponent));
}

// Amounts outside [0, bits) shift everything out; floats are scaled by 2^b (`__lshift__`).
hlo_value pj_shift_left(hlo *h, hlo_value a, hlo_value b) {
  if (pj_dtype_is_float(a.dtype)) return hlo_mul(h, a, pj_exp2(h, b));
  int64_t bits = (int64_t)pj_dtype_size(a.dtype) * 8;
  hlo_value inside = hlo_lt(h, b, hlo_constant_int(h, b.dtype, bits));
  if (!is_unsigned(b.dtype)) inside = hlo_and(h, inside, hlo_ge(h, b, K(b, 0)));
  return hlo_select(h, inside, hlo_shl(h, a, hlo_select(h, inside, b, K(b, 0))), K(a, 0));
}

hlo_value pj_shift_right(hlo *h, hlo_value a, hlo_value b) {
  if (pj_dtype_is_float(a.dtype)) return hlo_div(h, a, pj_exp2(h, b));
  int64_t bits = (int64_t)pj_dtype_size(a.dtype) * 8;
  hlo_value inside = hlo_lt(h, b, hlo_constant_int(h, b.dtype, bits));
  if (is_unsigned(a.dtype)) return hlo_select(h, inside, hlo_shr_logical(h, a, b), K(a, 0));
  inside = hlo_and(h, inside, hlo_ge(h, b, K(b, 0)));
  return hlo_shr(h, a, hlo_select(h, inside, b, hlo_constant_int(h, b.dtype, bits - 1)));
}

// x * log(y), 0 where x is 0 whatever y is, unless y is NaN.
static hlo_value x_log(hlo *h, hlo_value x, hlo_value y, hlo_value log) {
  hlo_value product = hlo_select(h, hlo_eq(h, x, K(x, 0)), K(x, 0), hlo_mul(h, x, log));
  return hlo_select(h, hlo_is_nan(h, y), y, product);
}

hlo_value pj_xlogy(hlo *h, hlo_value a, hlo_value b) { return x_log(h, a, b, hlo_log(h, b)); }
hlo_value pj_xlog1py(hlo *h, hlo_value a, hlo_value b) { return x_log(h, a, b, hlo_log1p(h, b)); }

hlo_value pj_lerp(hlo *h, hlo_value start, hlo_value end, hlo_value weight) {
  hlo_value size = hlo_abs(h, weight);
  hlo_value span = hlo_sub(h, end, start);
  hlo_value from_start = hlo_add(h, start, hlo_mul(h, weight, span));
  hlo_value from_end = hlo_sub(h, end, hlo_mul(h, span, hlo_sub(h, K(weight, 1), weight)));
  return hlo_select(h, hlo_lt(h, size, K(size, 0.5)), from_start, from_end);
}
