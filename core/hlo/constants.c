#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "hlo/internal.h"

// Bits of the values that have no decimal form, and of the largest and lowest value. The types without infinity
// (f8E4M3FN and the FNUZ types) give NaN where an infinity is converted, and their largest finite value as highest.
// Source: the type definitions of LLVM's APFloat.
typedef struct float_bits {
  const char *infinity, *negative_infinity, *nan, *highest, *lowest;
} float_bits;

static const float_bits FLOAT_BITS[PJ_DTYPE_COUNT] = {
    [PJ_F16] = {"0x7C00", "0xFC00", "0x7E00", "0x7C00", "0xFC00"},
    [PJ_BF16] = {"0x7F80", "0xFF80", "0x7FC0", "0x7F80", "0xFF80"},
    [PJ_F32] = {"0x7F800000", "0xFF800000", "0x7FC00000", "0x7F800000", "0xFF800000"},
    [PJ_F64] = {"0x7FF0000000000000", "0xFFF0000000000000", "0x7FF8000000000000", "0x7FF0000000000000",
                "0xFFF0000000000000"},
    [PJ_F8E5M2] = {"0x7C", "0xFC", "0x7E", "0x7C", "0xFC"},
    [PJ_F8E4M3FN] = {"0x7F", "0xFF", "0x7F", "0x7E", "0xFE"},
    [PJ_F8E4M3B11FNUZ] = {"0x80", "0x80", "0x80", "0x7F", "0xFF"},
    [PJ_F8E5M2FNUZ] = {"0x80", "0x80", "0x80", "0x7F", "0xFF"},
    [PJ_F8E4M3FNUZ] = {"0x80", "0x80", "0x80", "0x7F", "0xFF"},
};

static int64_t lowest_int(pj_dtype dtype) {
  return pj_dtype_is_signed(dtype) ? INT64_MIN >> (64 - 8 * pj_dtype_size(dtype)) : 0;
}

static uint64_t highest_int(pj_dtype dtype) {
  return UINT64_MAX >> (64 - 8 * pj_dtype_size(dtype) + (pj_dtype_is_signed(dtype) ? 1 : 0));
}

// Seventeen digits are exact for f64; MLIR rounds them once, to nearest even, to a narrower type.
static void put_float(hlo *h, pj_dtype dtype, double value) {
  const float_bits *bits = &FLOAT_BITS[dtype];
  char digits[40];
  snprintf(digits, sizeof digits, "%.16e", value);
  hlo_put(h, isnan(value)      ? bits->nan
             : isfinite(value) ? digits
             : value > 0       ? bits->infinity
                               : bits->negative_infinity);
}

static void put_int(hlo *h, pj_dtype dtype, int64_t value) {
  char digits[24];
  snprintf(digits, sizeof digits, dtype == PJ_U64 ? "%" PRIu64 : "%" PRId64, value);
  hlo_put(h, dtype == PJ_PRED ? (value ? "true" : "false") : digits);
}

// Whether the integer type holds the value. U64 takes the 64 bits as they are.
static bool holds_int(hlo *h, pj_dtype dtype, int64_t value) {
  if (dtype == PJ_PRED || dtype == PJ_U64) return true;
  if (value >= lowest_int(dtype) && (value < 0 || (uint64_t)value <= highest_int(dtype))) return true;
  hlo_fail(h, PJ_INVALID_ARGUMENT, "constant: %" PRId64 " is not a value of %s", value, pj_dtype_name(dtype));
  return false;
}

// Whether the type holds the value, apart from the rounding of a float type.
static bool holds(hlo *h, pj_dtype dtype, double value) {
  if (dtype == PJ_PRED || !pj_dtype_is_integer(dtype)) return true;
  if (value == rint(value) && value >= -0x1p63 && value < 0x1p63 && (dtype != PJ_U64 || value >= 0))
    return holds_int(h, dtype, (int64_t)value);
  hlo_fail(h, PJ_INVALID_ARGUMENT, "constant: %.17g is not a value of %s", value, pj_dtype_name(dtype));
  return false;
}

static void put_number(hlo *h, pj_dtype dtype, double value) {
  if (pj_dtype_is_float(dtype)) {
    put_float(h, dtype, value);
  } else if (pj_dtype_is_complex(dtype)) {
    hlo_put(h, "(");
    put_float(h, pj_real_dtype(dtype), value);
    hlo_put(h, ", 0.0)");
  } else {
    put_int(h, dtype, dtype == PJ_PRED ? value != 0 : (int64_t)value);
  }
}

static bool begin_constant(hlo *h, hlo_value *result) {
  if (!hlo_begin(h, "stablehlo.constant", NULL, 0, result, 1)) return false;
  hlo_attribute_text(h, "value", "dense<");
  return true;
}

static void end_constant(hlo *h, hlo_value *result) {
  hlo_put(h, "> : ");
  hlo_put_type(h, *result);
  hlo_end(h, NULL, 0, result, 1);
}

static hlo_value constant_of_text(hlo *h, pj_dtype dtype, const char *text) {
  hlo_value result = hlo_type(dtype, 0, NULL);
  if (begin_constant(h, &result)) {
    hlo_put(h, text);
    end_constant(h, &result);
  }
  return result;
}

hlo_value hlo_constant(hlo *h, pj_dtype dtype, double value) { return hlo_full(h, dtype, 0, NULL, value); }

hlo_value hlo_constant_int(hlo *h, pj_dtype dtype, int64_t value) {
  if (pj_dtype_is_float(dtype) || pj_dtype_is_complex(dtype)) return hlo_constant(h, dtype, (double)value);
  hlo_value result = hlo_type(dtype, 0, NULL);
  if (!holds_int(h, dtype, value) || !begin_constant(h, &result)) return hlo_invalid();
  put_int(h, dtype, value);
  end_constant(h, &result);
  return result;
}

hlo_value hlo_full(hlo *h, pj_dtype dtype, int rank, const int64_t *dims, double value) {
  hlo_value result = hlo_type(dtype, rank, dims);
  if (!holds(h, dtype, value)) return hlo_invalid();
  if (rank > 0 && rank <= PJ_MAX_RANK && hlo_size(result) == 0)  // a dense attribute of no elements has no value
    return hlo_broadcast_to(h, hlo_constant(h, dtype, value), rank, dims);
  if (!begin_constant(h, &result)) return hlo_invalid();
  put_number(h, dtype, value);
  end_constant(h, &result);
  return result;
}

hlo_value hlo_constant_ints(hlo *h, pj_dtype dtype, const int64_t *values, int64_t count) {
  hlo_value result = hlo_type(dtype, 1, &count);
  if (!hlo_want_kind(h, "constant", result, KIND_PRED | KIND_INTEGER)) return hlo_invalid();
  for (int64_t i = 0; i < count; ++i)
    if (!holds_int(h, dtype, values[i])) return hlo_invalid();
  if (!begin_constant(h, &result)) return hlo_invalid();
  for (int64_t i = 0; i < count; ++i) {
    hlo_put(h, i ? ", " : "[");
    put_int(h, dtype, values[i]);
  }
  if (count) hlo_put(h, "]");
  end_constant(h, &result);
  return result;
}

hlo_value hlo_constant_floats(hlo *h, pj_dtype dtype, const double *values, int64_t count) {
  hlo_value result = hlo_type(dtype, 1, &count);
  if (!hlo_want_kind(h, "constant", result, KIND_FLOAT | KIND_COMPLEX) || !begin_constant(h, &result))
    return hlo_invalid();
  for (int64_t i = 0; i < count; ++i) {
    hlo_put(h, i ? ", " : "[");
    put_number(h, dtype, values[i]);
  }
  if (count) hlo_put(h, "]");
  end_constant(h, &result);
  return result;
}

hlo_value hlo_iota(hlo *h, pj_dtype dtype, int rank, const int64_t *dims, int dim) {
  if (dtype == PJ_PRED) return hlo_convert(h, hlo_iota(h, PJ_S64, rank, dims, dim), PJ_PRED);
  hlo_value result = hlo_type(dtype, rank, dims);
  if (!hlo_normal_dim(h, "iota", result, &dim) || !hlo_begin(h, "stablehlo.iota", NULL, 0, &result, 1))
    return hlo_invalid();
  hlo_attribute_int(h, "iota_dimension", dim);
  hlo_end(h, NULL, 0, &result, 1);
  return result;
}

hlo_value hlo_lowest(hlo *h, pj_dtype dtype) {
  if (pj_dtype_is_float(dtype)) return constant_of_text(h, dtype, FLOAT_BITS[dtype].lowest);
  if (dtype == PJ_PRED) return hlo_constant_int(h, dtype, 0);
  if (pj_dtype_is_integer(dtype)) return hlo_constant_int(h, dtype, lowest_int(dtype));
  return hlo_fail(h, PJ_INVALID_ARGUMENT, "lowest value: not defined for %s", pj_dtype_name(dtype));
}

hlo_value hlo_highest(hlo *h, pj_dtype dtype) {
  if (pj_dtype_is_float(dtype)) return constant_of_text(h, dtype, FLOAT_BITS[dtype].highest);
  if (dtype == PJ_PRED) return hlo_constant_int(h, dtype, 1);
  if (pj_dtype_is_integer(dtype)) return hlo_constant_int(h, dtype, (int64_t)highest_int(dtype));
  return hlo_fail(h, PJ_INVALID_ARGUMENT, "highest value: not defined for %s", pj_dtype_name(dtype));
}
