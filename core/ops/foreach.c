#include "ops/elementwise.h"

#include <math.h>

#define K(x, value) pj_constant_like(h, (x), (value))

// What the i-th element of a foreach op takes from an argument: the i-th of a list or of numbers, or the argument.
static hlo_value element(pj_lowering *l, int argument, int i, pj_dtype dtype) {
  switch (pj_kind(l, argument)) {
    case PJ_ARG_TENSORS: return hlo_convert(l->h, pj_list_tensor(l, argument, i), dtype);
    case PJ_ARG_NUMBERS:
    case PJ_ARG_FLOATS: return pj_list_number(l, argument, i, dtype);
    default: return pj_as(l, argument, dtype);
  }
}

static void unary(pj_lowering *l, pj_unary formula) {
  for (int i = 0; i < pj_result_count(l); ++i) {
    hlo_value x = pj_list_tensor(l, 0, i);
    pj_dtype dtype = pj_dtype_is_complex(x.dtype) ? x.dtype : pj_result_math(l, i);
    pj_return(l, i, formula(l->h, hlo_convert(l->h, x, dtype)));
  }
}

static void binary(pj_lowering *l, pj_binary formula) {
  for (int i = 0; i < pj_result_count(l); ++i) {
    pj_dtype dtype = pj_result_math(l, i);
    pj_return(l, i, formula(l->h, element(l, 0, i, dtype), element(l, 1, i, dtype)));
  }
}

// self + alpha * other, self - alpha * other
static void with_alpha(pj_lowering *l, pj_binary formula) {
  for (int i = 0; i < pj_result_count(l); ++i) {
    pj_dtype dtype = pj_result_math(l, i);
    hlo_value other = element(l, 1, i, dtype);
    if (pj_present(l, 2)) other = hlo_mul(l->h, other, pj_number(l, 2, dtype));
    pj_return(l, i, formula(l->h, element(l, 0, i, dtype), other));
  }
}

// X(ATen name without _foreach_, formula)
#define UNARY_OPS(X) \
  X(abs, pj_abs) X(acos, hlo_acos) X(asin, hlo_asin) X(atan, hlo_atan) X(ceil, pj_ceil) X(clone, pj_identity) \
  X(cos, hlo_cos) X(cosh, hlo_cosh) X(erf, hlo_erf) X(erfc, hlo_erfc) X(exp, hlo_exp) X(expm1, hlo_expm1) \
  X(floor, pj_floor) X(frac, pj_frac) X(lgamma, hlo_lgamma) X(log, hlo_log) X(log10, pj_log10) X(log1p, hlo_log1p) \
  X(log2, pj_log2) X(neg, hlo_neg) X(reciprocal, pj_reciprocal) X(round, pj_round) X(rsqrt, hlo_rsqrt) \
  X(sigmoid, pj_sigmoid) X(sign, pj_sgn) X(sin, hlo_sin) X(sinh, hlo_sinh) X(sqrt, hlo_sqrt) X(tan, hlo_tan) \
  X(tanh, hlo_tanh) X(trunc, pj_trunc)

// X(ATen name without _foreach_, formula, how)
#define BINARY_OPS(X) \
  X(add, hlo_add, with_alpha) X(sub, pj_sub, with_alpha) X(mul, hlo_mul, binary) X(div, hlo_div, binary) \
  X(clamp_max, hlo_min, binary) X(clamp_min, hlo_max, binary) X(maximum, hlo_max, binary) \
  X(minimum, hlo_min, binary) X(pow, pj_pow, binary)

#define DEFINE_UNARY(name, formula) static void lower_##name(pj_lowering *l) { unary(l, formula); }
#define DEFINE_BINARY(name, formula, how) static void lower_##name(pj_lowering *l) { how(l, formula); }
UNARY_OPS(DEFINE_UNARY)
BINARY_OPS(DEFINE_BINARY)

// aten::_foreach_pow.Scalar(self, exponent): special exponents are part of the program.
static void lower_pow_scalar(pj_lowering *l) {
  if (pj_kind(l, 1) == PJ_ARG_NUMBER) return binary(l, pj_pow);
  for (int i = 0; i < pj_result_count(l); ++i)
    pj_return(l, i, pj_pow_constant(l->h, element(l, 0, i, pj_result_math(l, i)), pj_float(l, 1)));
}

// aten::_foreach_lerp.List(self, tensors1, weights)
static void lower_lerp(pj_lowering *l) {
  for (int i = 0; i < pj_result_count(l); ++i) {
    pj_dtype dtype = pj_result_math(l, i);
    pj_return(l, i, pj_lerp(l->h, element(l, 0, i, dtype), element(l, 1, i, dtype), element(l, 2, i, dtype)));
  }
}

// self + value * combine(tensor1, tensor2); the values of the .Tensor overloads are a vector.
static void lower_addc(pj_lowering *l, pj_binary combine) {
  hlo *h = l->h;
  for (int i = 0; i < pj_result_count(l); ++i) {
    pj_dtype dtype = pj_result_math(l, i);
    hlo_value value = element(l, 3, i, dtype);
    if (value.rank == 1) value = hlo_reshape(h, hlo_slice_dim(h, value, 0, i, i + 1), 0, NULL);
    hlo_value first = hlo_mul(h, value, element(l, 1, i, dtype));
    pj_return(l, i, hlo_add(h, element(l, 0, i, dtype), combine(h, first, element(l, 2, i, dtype))));
  }
}

// aten::_foreach_addcmul.Scalar(self, tensor1, tensor2, value)
static void lower_addcmul(pj_lowering *l) { lower_addc(l, hlo_mul); }

// aten::_foreach_addcdiv.Scalar(self, tensor1, tensor2, value)
static void lower_addcdiv(pj_lowering *l) { lower_addc(l, hlo_div); }

// aten::_foreach_copy(self, src, non_blocking)
static void lower_copy(pj_lowering *l) {
  for (int i = 0; i < pj_result_count(l); ++i) {
    pj_type type = pj_result_type(l, i);
    pj_return(l, i, hlo_broadcast_to(l->h, pj_list_tensor(l, 1, i), type.rank, type.dims));
  }
}

// aten::_foreach_zero(self)
static void lower_zero(pj_lowering *l) {
  for (int i = 0; i < pj_result_count(l); ++i) {
    pj_type type = pj_result_type(l, i);
    pj_return(l, i, hlo_full(l->h, type.dtype, type.rank, type.dims, 0));
  }
}

// aten::_foreach_max(self)
static void lower_max(pj_lowering *l) {
  for (int i = 0; i < pj_result_count(l); ++i)
    pj_return(l, i, hlo_reduce_all(l->h, HLO_MAX, pj_list_tensor(l, 0, i)));
}

// aten::_foreach_mm(self, mat2)
static void lower_mm(pj_lowering *l) {
  for (int i = 0; i < pj_result_count(l); ++i)
    pj_return(l, i, hlo_matmul(l->h, pj_list_tensor(l, 0, i), pj_list_tensor(l, 1, i), pj_result_math(l, i)));
}

// The sum of |x|^p over all elements; the largest or smallest |x| for p = inf or -inf.
static hlo_value power_sum(hlo *h, hlo_value x, double p) {
  if (isinf(p)) return hlo_reduce_all(h, p > 0 ? HLO_MAX : HLO_MIN, x);
  hlo_value power = p == 0 ? hlo_convert(h, hlo_ne(h, x, K(x, 0)), x.dtype) : pj_pow_constant(h, x, p);
  return hlo_reduce_all(h, HLO_ADD, power);
}

static hlo_value magnitude(pj_lowering *l, int i) {
  hlo_value x = pj_list_tensor(l, 0, i);
  if (pj_dtype_is_complex(x.dtype)) x = hlo_abs(l->h, x);
  return pj_abs(l->h, hlo_convert(l->h, x, pj_result_math(l, i)));
}

// aten::_foreach_powsum.Scalar(self, ord, dtype)
static void lower_powsum(pj_lowering *l) {
  for (int i = 0; i < pj_result_count(l); ++i) pj_return(l, i, power_sum(l->h, magnitude(l, i), pj_float(l, 1)));
}

// aten::_foreach_norm.Scalar(self, ord, dtype): power_sum ^ (1 / ord)
static void lower_norm(pj_lowering *l) {
  hlo *h = l->h;
  double p = pj_float(l, 1);
  for (int i = 0; i < pj_result_count(l); ++i) {
    hlo_value sum = power_sum(h, magnitude(l, i), p);
    pj_return(l, i, isinf(p) || p == 0 || p == 1 ? sum : pj_pow_constant(h, sum, 1 / p));
  }
}

// ---- gradient scaling -----------------------------------------------------------------------------------------------

// aten::_amp_foreach_non_finite_check_and_unscale(self, found_inf, inv_scale): every tensor times inv_scale, and 1 in
// found_inf if any element is not finite
static void lower_amp_unscale(pj_lowering *l) {
  hlo *h = l->h;
  int count = pj_list_count(l, 0);
  hlo_value found = pj_as(l, 1, PJ_F32);
  for (int i = 0; i < count; ++i) {
    hlo_value x = element(l, 0, i, pj_result_math(l, i));
    hlo_value finite = hlo_reduce_all(h, HLO_AND, hlo_is_finite(h, x));
    found = hlo_max(h, found, hlo_convert(h, hlo_not(h, finite), PJ_F32));
    hlo_value scale = hlo_reshape(h, pj_as(l, 2, x.dtype), 0, NULL);
    pj_return(l, i, hlo_mul(h, x, scale));
  }
  pj_return(l, count, found);
}

// aten::_amp_update_scale(self, growth_tracker, found_inf, scale_growth_factor, scale_backoff_factor, growth_interval):
// backs off after an overflow, grows (while finite) after growth_interval steps without one
static void lower_amp_update(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value scale = pj_as(l, 0, PJ_F32), tracker = pj_as(l, 1, PJ_S32);
  hlo_value overflowed = hlo_ne(h, pj_as(l, 2, PJ_F32), hlo_constant(h, PJ_F32, 0));
  hlo_value steps = hlo_add(h, tracker, K(tracker, 1));
  hlo_value due = hlo_eq(h, steps, hlo_constant_int(h, PJ_S32, pj_int(l, 5)));
  hlo_value grown = hlo_mul(h, scale, pj_number(l, 3, PJ_F32));
  grown = hlo_select(h, hlo_and(h, due, hlo_is_finite(h, grown)), grown, scale);
  pj_return(l, 0, hlo_select(h, overflowed, hlo_mul(h, scale, pj_number(l, 4, PJ_F32)), grown));
  pj_return(l, 1, hlo_select(h, hlo_or(h, overflowed, due), K(tracker, 0), steps));
}

#define UNARY_ENTRY(name, formula) {"aten::_foreach_" #name, lower_##name},
#define LIST_ENTRIES(name) \
  {"aten::_foreach_" #name ".List", lower_##name}, {"aten::_foreach_" #name ".Scalar", lower_##name}, \
  {"aten::_foreach_" #name ".ScalarList", lower_##name}

PJ_LOWERINGS(foreach_lowerings) = {
    UNARY_OPS(UNARY_ENTRY)
    LIST_ENTRIES(add),
    LIST_ENTRIES(sub),
    LIST_ENTRIES(mul),
    LIST_ENTRIES(div),
    LIST_ENTRIES(clamp_max),
    LIST_ENTRIES(clamp_min),
    LIST_ENTRIES(maximum),
    LIST_ENTRIES(minimum),
    LIST_ENTRIES(lerp),
    {"aten::_foreach_add.Tensor", lower_add},
    {"aten::_foreach_mul.Tensor", lower_mul},
    {"aten::_foreach_div.Tensor", lower_div},
    {"aten::_foreach_pow.List", lower_pow},
    {"aten::_foreach_pow.Scalar", lower_pow_scalar, .specials = PJ_STATIC(1)},
    {"aten::_foreach_pow.ScalarList", lower_pow},
    {"aten::_foreach_pow.ScalarAndTensor", lower_pow},
    {"aten::_foreach_addcmul.Scalar", lower_addcmul},
    {"aten::_foreach_addcmul.ScalarList", lower_addcmul},
    {"aten::_foreach_addcmul.Tensor", lower_addcmul},
    {"aten::_foreach_addcdiv.Scalar", lower_addcdiv},
    {"aten::_foreach_addcdiv.ScalarList", lower_addcdiv},
    {"aten::_foreach_addcdiv.Tensor", lower_addcdiv},
    {"aten::_foreach_copy", lower_copy, .shape_only = PJ_SHAPE_ONLY(0)},
    {"aten::_foreach_zero", lower_zero, .shape_only = PJ_SHAPE_ONLY(0)},
    {"aten::_foreach_max", lower_max},
    {"aten::_foreach_mm", lower_mm},
    {"aten::_foreach_norm.Scalar", lower_norm, .statics = PJ_STATIC(1)},
    {"aten::_foreach_powsum.Scalar", lower_powsum, .statics = PJ_STATIC(1)},
    {"aten::_amp_foreach_non_finite_check_and_unscale", lower_amp_unscale},
    {"aten::_amp_update_scale", lower_amp_update},
    {0},
};
