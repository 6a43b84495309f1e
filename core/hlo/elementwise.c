#include "hlo/internal.h"

// The element types that each op takes, by StableHLO's constraints and what XLA's shape inference accepts.
enum {
  F = KIND_FLOAT,
  FC = KIND_FLOAT | KIND_COMPLEX,
  REAL = KIND_REAL,
  NUMBER = KIND_REAL | KIND_COMPLEX,
  BITS = KIND_PRED | KIND_INTEGER,
  ANY = NUMBER | KIND_PRED,

  TAKES_abs = NUMBER, TAKES_neg = NUMBER, TAKES_exp = FC, TAKES_expm1 = FC, TAKES_log = FC, TAKES_log1p = FC,
  TAKES_logistic = FC, TAKES_tanh = FC, TAKES_sin = FC, TAKES_cos = FC, TAKES_sqrt = FC, TAKES_rsqrt = FC,
  TAKES_cbrt = F, TAKES_floor = F, TAKES_ceil = F, TAKES_round_even = F, TAKES_sign = NUMBER, TAKES_not = BITS,
  TAKES_popcnt = KIND_INTEGER, TAKES_clz = KIND_INTEGER, TAKES_erf = F, TAKES_erfc = F, TAKES_erf_inv = F,
  TAKES_lgamma = F, TAKES_digamma = F, TAKES_tan = FC, TAKES_asin = FC, TAKES_acos = FC, TAKES_atan = FC,
  TAKES_sinh = FC, TAKES_cosh = FC, TAKES_asinh = FC, TAKES_acosh = FC, TAKES_atanh = FC, TAKES_bessel_i1e = F,

  TAKES_add = ANY, TAKES_sub = NUMBER, TAKES_mul = ANY, TAKES_div = NUMBER, TAKES_rem = REAL, TAKES_pow = NUMBER,
  TAKES_max = REAL | KIND_PRED, TAKES_min = REAL | KIND_PRED, TAKES_atan2 = F, TAKES_and = BITS, TAKES_or = BITS,
  TAKES_xor = BITS, TAKES_shl = KIND_INTEGER, TAKES_shr = KIND_INTEGER, TAKES_shr_logical = KIND_INTEGER,
  TAKES_polygamma = F, TAKES_zeta = F, TAKES_next_after = F,
};

static hlo_value unary(hlo *h, const char *op, int kinds, hlo_value x, pj_dtype dtype) {
  if (!hlo_usable(h, op, &x, 1) || !hlo_want_kind(h, op, x, kinds)) return hlo_invalid();
  return hlo_simple(h, op, &x, 1, hlo_retyped(x, dtype));
}

// Brings the operands to their common, broadcast dimensions.
static bool broadcast_together(hlo *h, const char *op, hlo_value *operands, int count) {
  if (!hlo_usable(h, op, operands, count)) return false;
  hlo_value common = operands[0];
  for (int i = 1; i < count; ++i) {
    hlo_value x = operands[i], longer = x.rank > common.rank ? x : common, shorter = x.rank > common.rank ? common : x;
    for (int d = 1; d <= shorter.rank; ++d) {
      int64_t *size = &longer.dims[longer.rank - d], other = shorter.dims[shorter.rank - d];
      if (*size != other && *size != 1 && other != 1)
        return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s and %s cannot be broadcast together", op, TYPE(common),
                        TYPE(x)),
               false;
      if (*size == 1) *size = other;
    }
    common = longer;
  }
  for (int i = 0; i < count; ++i) operands[i] = hlo_broadcast_like(h, operands[i], common);
  return !hlo_failed(h);
}

static bool same_dtypes(hlo *h, const char *op, const hlo_value *operands, int count) {
  for (int i = 1; i < count; ++i)
    if (operands[i].dtype != operands[0].dtype)
      return hlo_fail(h, PJ_INTERNAL, "%s: %s and %s differ in element type", op, TYPE(operands[0]), TYPE(operands[i])),
             false;
  return true;
}

static bool align(hlo *h, const char *op, hlo_value *operands, int count) {
  return hlo_usable(h, op, operands, count) && same_dtypes(h, op, operands, count) &&
         broadcast_together(h, op, operands, count);
}

static hlo_value binary(hlo *h, const char *op, int kinds, hlo_value a, hlo_value b) {
  hlo_value operands[2] = {a, b};
  if (!align(h, op, operands, 2) || !hlo_want_kind(h, op, a, kinds)) return hlo_invalid();
  return hlo_simple(h, op, operands, 2, hlo_retyped(operands[0], a.dtype));
}

#define DEFINE_UNARY(name, op) \
  hlo_value hlo_##name(hlo *h, hlo_value x) { return unary(h, op, TAKES_##name, x, x.dtype); }
HLO_UNARY_OPS(DEFINE_UNARY)

#define DEFINE_BINARY(name, op) \
  hlo_value hlo_##name(hlo *h, hlo_value a, hlo_value b) { return binary(h, op, TAKES_##name, a, b); }
HLO_BINARY_OPS(DEFINE_BINARY)

// StableHLO has no abs and sign of unsigned integers, and XLA shifts them right as if they were signed.
hlo_value hlo_abs(hlo *h, hlo_value x) {
  if (hlo_kind(x.dtype) == KIND_UNSIGNED) return x;
  return unary(h, "stablehlo.abs", TAKES_abs, x, pj_real_dtype(x.dtype));
}

hlo_value hlo_sign(hlo *h, hlo_value x) {
  if (hlo_kind(x.dtype) == KIND_UNSIGNED) return hlo_convert(h, hlo_convert(h, x, PJ_PRED), x.dtype);
  return unary(h, "stablehlo.sign", TAKES_sign, x, x.dtype);
}

hlo_value hlo_shr(hlo *h, hlo_value a, hlo_value b) {
  if (hlo_kind(a.dtype) == KIND_UNSIGNED) return hlo_shr_logical(h, a, b);
  return binary(h, "stablehlo.shift_right_arithmetic", TAKES_shr, a, b);
}

// XLA:CPU of API 0.115 turns atan2(x, 1), which chlo.atan also is, into a vector atan that returns wrong numbers and
// reads its neighbours. A second operand that only looks like it depends on the first keeps it from seeing the
// constant.
hlo_value hlo_atan2(hlo *h, hlo_value a, hlo_value b) {
  hlo_value nan_or_b = hlo_select(h, hlo_ne(h, a, a), a, b);
  return binary(h, "stablehlo.atan2", TAKES_atan2, a, nan_or_b);
}

hlo_value hlo_atan(hlo *h, hlo_value x) {
  if (hlo_kind(x.dtype) == KIND_FLOAT) return hlo_atan2(h, x, hlo_constant(h, x.dtype, 1));
  return unary(h, "chlo.atan", TAKES_atan, x, x.dtype);
}

// ---- operations by name ---------------------------------------------------------------------------------------------

static hlo_value second(hlo *h, hlo_value a, hlo_value b) {
  (void)h, (void)a;
  return b;
}

typedef struct op_entry {
  hlo_value (*apply)(hlo *h, hlo_value a, hlo_value b);
  hlo_value (*apply_pred)(hlo *h, hlo_value a, hlo_value b);
} op_entry;

static const op_entry OPS[] = {
    [HLO_ADD] = {hlo_add, hlo_or}, [HLO_MUL] = {hlo_mul, hlo_and}, [HLO_MAX] = {hlo_max, hlo_or},
    [HLO_MIN] = {hlo_min, hlo_and}, [HLO_AND] = {hlo_and, hlo_and}, [HLO_OR] = {hlo_or, hlo_or},
    [HLO_SECOND] = {second, second},
};

hlo_value hlo_apply(hlo *h, hlo_op op, hlo_value a, hlo_value b) {
  if ((unsigned)op >= sizeof OPS / sizeof OPS[0]) return hlo_fail(h, PJ_INTERNAL, "unknown operation %d", (int)op);
  return (a.dtype == PJ_PRED ? OPS[op].apply_pred : OPS[op].apply)(h, a, b);
}

void hlo_apply_body(hlo *h, const hlo_value *arguments, hlo_value *results, void *op) {
  results[0] = hlo_apply(h, *(const hlo_op *)op, arguments[0], arguments[1]);
}

hlo_value hlo_identity(hlo *h, hlo_op op, pj_dtype dtype) {
  switch (op) {
    case HLO_ADD:
    case HLO_OR: return hlo_constant(h, dtype, 0);
    case HLO_MUL: return hlo_constant(h, dtype, 1);
    case HLO_MAX: return hlo_lowest(h, dtype);
    case HLO_MIN: return hlo_highest(h, dtype);
    case HLO_AND: return hlo_not(h, hlo_constant(h, dtype, 0));
    case HLO_SECOND: break;
  }
  return hlo_fail(h, PJ_INTERNAL, "operation %d has no identity", (int)op);
}

// ---- comparisons and choices ----------------------------------------------------------------------------------------

static hlo_value compare(hlo *h, const char *direction, int kinds, hlo_value a, hlo_value b) {
  hlo_value operands[2] = {a, b};
  if (!align(h, "stablehlo.compare", operands, 2) || !hlo_want_kind(h, "stablehlo.compare", a, kinds))
    return hlo_invalid();
  hlo_value result = hlo_retyped(operands[0], PJ_PRED);
  if (!hlo_begin(h, "stablehlo.compare", operands, 2, &result, 1)) return result;
  hlo_attribute_text(h, "comparison_direction", direction);
  hlo_end(h, operands, 2, &result, 1);
  return result;
}

#define DIRECTION(name) "#stablehlo<comparison_direction " #name ">"
hlo_value hlo_eq(hlo *h, hlo_value a, hlo_value b) { return compare(h, DIRECTION(EQ), ANY, a, b); }
hlo_value hlo_ne(hlo *h, hlo_value a, hlo_value b) { return compare(h, DIRECTION(NE), ANY, a, b); }
hlo_value hlo_lt(hlo *h, hlo_value a, hlo_value b) { return compare(h, DIRECTION(LT), REAL | KIND_PRED, a, b); }
hlo_value hlo_le(hlo *h, hlo_value a, hlo_value b) { return compare(h, DIRECTION(LE), REAL | KIND_PRED, a, b); }
hlo_value hlo_gt(hlo *h, hlo_value a, hlo_value b) { return compare(h, DIRECTION(GT), REAL | KIND_PRED, a, b); }
hlo_value hlo_ge(hlo *h, hlo_value a, hlo_value b) { return compare(h, DIRECTION(GE), REAL | KIND_PRED, a, b); }

hlo_value hlo_lt_total(hlo *h, hlo_value a, hlo_value b) {
  hlo_value less = hlo_lt(h, a, b);
  if (hlo_kind(a.dtype) != KIND_FLOAT) return less;
  return hlo_or(h, less, hlo_and(h, hlo_ne(h, b, b), hlo_eq(h, a, a)));
}

hlo_value hlo_is_nan(hlo *h, hlo_value x) {
  if (!(hlo_kind(x.dtype) & FC)) return hlo_full(h, PJ_PRED, x.rank, x.dims, 0);
  return hlo_ne(h, x, x);
}

hlo_value hlo_is_finite(hlo *h, hlo_value x) {
  if (hlo_kind(x.dtype) == KIND_COMPLEX)
    return hlo_and(h, hlo_is_finite(h, hlo_real(h, x)), hlo_is_finite(h, hlo_imag(h, x)));
  if (hlo_kind(x.dtype) != KIND_FLOAT) return hlo_full(h, PJ_PRED, x.rank, x.dims, 1);
  return unary(h, "stablehlo.is_finite", F, x, PJ_PRED);
}

hlo_value hlo_select(hlo *h, hlo_value predicate, hlo_value on_true, hlo_value on_false) {
  const char *op = "stablehlo.select";
  hlo_value operands[3] = {predicate, on_true, on_false};
  int scalar = predicate.rank == 0;  // a 0-d predicate chooses the whole, without a broadcast
  if (!hlo_usable(h, op, operands, 3) || !hlo_want_kind(h, op, predicate, KIND_PRED) ||
      !same_dtypes(h, op, operands + 1, 2) || !broadcast_together(h, op, operands + scalar, 3 - scalar))
    return hlo_invalid();
  return hlo_simple(h, op, operands, 3, hlo_retyped(operands[1], on_true.dtype));
}

hlo_value hlo_clamp(hlo *h, hlo_value low, hlo_value x, hlo_value high) {
  hlo_value operands[3] = {low, x, high};
  if (!align(h, "stablehlo.clamp", operands, 3) || !hlo_want_kind(h, "stablehlo.clamp", x, REAL)) return hlo_invalid();
  return hlo_simple(h, "stablehlo.clamp", operands, 3, hlo_retyped(operands[1], x.dtype));
}

// ---- complex numbers and conversions --------------------------------------------------------------------------------

hlo_value hlo_complex(hlo *h, hlo_value real, hlo_value imag) {
  hlo_value operands[2] = {real, imag};
  if (!align(h, "stablehlo.complex", operands, 2)) return hlo_invalid();
  if (real.dtype != PJ_F32 && real.dtype != PJ_F64)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "stablehlo.complex: not defined for %s", TYPE(real));
  return hlo_simple(h, "stablehlo.complex", operands, 2,
                    hlo_retyped(operands[0], real.dtype == PJ_F32 ? PJ_C64 : PJ_C128));
}

hlo_value hlo_real(hlo *h, hlo_value x) {
  if (hlo_kind(x.dtype) != KIND_COMPLEX) return x;
  return unary(h, "stablehlo.real", KIND_COMPLEX, x, pj_real_dtype(x.dtype));
}

hlo_value hlo_imag(hlo *h, hlo_value x) {
  if (hlo_kind(x.dtype) != KIND_COMPLEX) return hlo_full(h, x.dtype, x.rank, x.dims, 0);
  return unary(h, "stablehlo.imag", KIND_COMPLEX, x, pj_real_dtype(x.dtype));
}

hlo_value hlo_conj(hlo *h, hlo_value x) {
  if (hlo_kind(x.dtype) != KIND_COMPLEX) return x;
  return hlo_complex(h, hlo_real(h, x), hlo_neg(h, hlo_imag(h, x)));
}

hlo_value hlo_convert(hlo *h, hlo_value x, pj_dtype dtype) {
  if (x.dtype == dtype || !hlo_usable(h, "stablehlo.convert", &x, 1)) return x;
  if (dtype == PJ_PRED) return hlo_ne(h, x, hlo_constant(h, x.dtype, 0));
  int from = hlo_kind(x.dtype), to = hlo_kind(dtype);
  if (from == KIND_COMPLEX && to != KIND_COMPLEX) return hlo_convert(h, hlo_real(h, x), dtype);
  if (to == KIND_COMPLEX && from != KIND_COMPLEX) {
    hlo_value real = hlo_convert(h, x, pj_real_dtype(dtype));
    return hlo_complex(h, real, hlo_imag(h, real));
  }
  return unary(h, "stablehlo.convert", ANY, x, dtype);
}

// ---- bits -----------------------------------------------------------------------------------------------------------

// A last dimension of `count` elements put after, or in place of, the dimensions of x.
static hlo_value split_last(hlo *h, hlo_value x, int64_t count) {
  hlo_value dims = x;
  if (x.rank < 1 || x.rank >= PJ_MAX_RANK || !count || x.dims[x.rank - 1] % count)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "bitcast: cannot group %s by %d", TYPE(x), (int)count);
  dims.dims[x.rank - 1] /= count;
  dims.dims[x.rank] = count;
  return hlo_reshape(h, x, x.rank + 1, dims.dims);
}

static hlo_value merge_last(hlo *h, hlo_value x) {
  if (x.rank < 2) return hlo_fail(h, PJ_INVALID_ARGUMENT, "bitcast: cannot merge dimensions of %s", TYPE(x));
  hlo_value dims = x;
  dims.dims[x.rank - 2] *= x.dims[x.rank - 1];
  return hlo_reshape(h, x, x.rank - 1, dims.dims);
}

static hlo_value complex_to_pairs(hlo *h, hlo_value x) {
  hlo_value parts[2] = {hlo_keep(h, hlo_real(h, x), x.rank), hlo_keep(h, hlo_imag(h, x), x.rank)};
  return hlo_concatenate(h, parts, 2, -1);
}

static hlo_value pairs_to_complex(hlo *h, hlo_value x) {
  if (!x.rank || x.dims[x.rank - 1] != 2)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "bitcast: the last dimension of %s is not a pair of parts", TYPE(x));
  return hlo_complex(h, hlo_drop(h, hlo_slice_dim(h, x, -1, 0, 1), -1), hlo_drop(h, hlo_slice_dim(h, x, -1, 1, 2), -1));
}

hlo_value hlo_bitcast(hlo *h, hlo_value x, pj_dtype dtype) {
  const char *op = "stablehlo.bitcast_convert";
  if (x.dtype == dtype || !hlo_usable(h, op, &x, 1)) return x;
  // StableHLO casts neither PRED nor complex numbers to other types: they go through bytes and through real parts.
  if (x.dtype == PJ_PRED) return hlo_bitcast(h, hlo_convert(h, x, PJ_U8), dtype);
  if (dtype == PJ_PRED) return hlo_convert(h, hlo_bitcast(h, x, PJ_U8), dtype);
  pj_dtype real = pj_real_dtype(dtype);
  int64_t from = (int64_t)pj_dtype_size(x.dtype), to = (int64_t)pj_dtype_size(dtype), half = to / 2;
  if (!to) return hlo_fail(h, PJ_INTERNAL, "%s: to no element type", op);
  if (hlo_kind(x.dtype) == KIND_COMPLEX) {  // [..., 2] reals of from / 2 bytes each
    hlo_value pairs = complex_to_pairs(h, x);
    if (to < from / 2) return merge_last(h, hlo_bitcast(h, pairs, dtype));
    if (to <= from) return hlo_bitcast(h, pairs, dtype);
    return hlo_bitcast(h, merge_last(h, pairs), dtype);
  }
  if (real != dtype) {  // reals of to / 2 bytes each, in pairs
    return pairs_to_complex(h, hlo_bitcast(h, from < half ? split_last(h, x, half / from) : x, real));
  }
  hlo_value result = hlo_retyped(x, dtype);
  if (from > to) {
    if (x.rank == PJ_MAX_RANK)
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s has no room for a dimension", op, TYPE(x));
    result.dims[result.rank++] = from / to;
  } else if (from < to) {
    if (!x.rank || x.dims[x.rank - 1] != to / from)
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: the last dimension of %s does not make one %s", op, TYPE(x),
                      pj_dtype_name(dtype));
    result.rank -= 1;
  }
  return hlo_simple(h, op, &x, 1, result);
}
