#include "ops/elementwise.h"

#include <math.h>

// Compared in the type that PyTorch promotes both to, without widening: a number is rounded to it first, as on the CPU.
static void compare(pj_lowering *l, pj_binary formula) {
  pj_dtype dtype = pj_promote(l, (const int[]){0, 1}, 2);
  pj_return(l, 0, formula(l->h, pj_as(l, 0, dtype), pj_as(l, 1, dtype)));
}

static void logical(pj_lowering *l, pj_binary formula) {
  pj_return(l, 0, formula(l->h, pj_as(l, 0, PJ_PRED), pj_as(l, 1, PJ_PRED)));
}

static void predicate(pj_lowering *l, pj_unary formula) { pj_return(l, 0, formula(l->h, pj_tensor(l, 0))); }

static hlo_value is_positive_infinity(hlo *h, hlo_value x) {
  if (!pj_dtype_is_float(x.dtype)) return hlo_full(h, PJ_PRED, x.rank, x.dims, 0);
  return hlo_eq(h, x, pj_constant_like(h, x, INFINITY));
}

static hlo_value is_negative_infinity(hlo *h, hlo_value x) {
  if (!pj_dtype_is_float(x.dtype)) return hlo_full(h, PJ_PRED, x.rank, x.dims, 0);
  return hlo_eq(h, x, pj_constant_like(h, x, -INFINITY));
}

// X(ATen name, formula, how)
#define OPS(X) \
  X(eq, hlo_eq, compare) X(ne, hlo_ne, compare) X(lt, hlo_lt, compare) X(le, hlo_le, compare) X(gt, hlo_gt, compare) \
  X(ge, hlo_ge, compare) X(logical_and, hlo_and, logical) X(logical_or, hlo_or, logical) \
  X(logical_xor, hlo_xor, logical) X(isnan, hlo_is_nan, predicate) X(isinf, pj_is_inf, predicate) \
  X(isfinite, hlo_is_finite, predicate) X(isposinf, is_positive_infinity, predicate) \
  X(isneginf, is_negative_infinity, predicate) X(signbit, pj_signbit, predicate)

#define DEFINE(name, formula, how) static void lower_##name(pj_lowering *l) { how(l, formula); }
OPS(DEFINE)

// aten::logical_not(self)
static void lower_logical_not(pj_lowering *l) { pj_return(l, 0, hlo_not(l->h, pj_as(l, 0, PJ_PRED))); }

// aten::isin.Tensor_Tensor(elements, test_elements, assume_unique, invert): any(elements[..., None] == test_elements)
static void lower_isin(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_promote(l, (const int[]){0, 1}, 2);
  hlo_value elements = pj_as(l, 0, dtype), tests = hlo_flatten(h, pj_as(l, 1, dtype));
  hlo_value equal = hlo_eq(h, hlo_keep(h, elements, elements.rank), tests);
  hlo_value found = hlo_reduce(h, HLO_OR, equal, &elements.rank, 1);
  pj_return(l, 0, pj_bool(l, 3) ? hlo_not(h, found) : found);
}

#define COMPARE_ENTRIES(name) \
  {"aten::" #name ".Tensor", lower_##name}, {"aten::" #name ".Scalar", lower_##name}, {"prims::" #name, lower_##name}

PJ_LOWERINGS(compare_lowerings) = {
    COMPARE_ENTRIES(eq),
    COMPARE_ENTRIES(ne),
    COMPARE_ENTRIES(lt),
    COMPARE_ENTRIES(le),
    COMPARE_ENTRIES(gt),
    COMPARE_ENTRIES(ge),
    {"aten::logical_and", lower_logical_and},
    {"aten::logical_or", lower_logical_or},
    {"aten::logical_xor", lower_logical_xor},
    {"aten::logical_not", lower_logical_not},
    {"aten::isnan", lower_isnan},
    {"aten::isinf", lower_isinf},
    {"prims::isfinite", lower_isfinite},
    {"aten::isposinf", lower_isposinf},
    {"aten::isneginf", lower_isneginf},
    {"aten::signbit", lower_signbit},
    {"prims::signbit", lower_signbit},
    {"aten::isin.Tensor_Tensor", lower_isin},
    {"aten::isin.Tensor_Scalar", lower_isin},
    {"aten::isin.Scalar_Tensor", lower_isin},
    {0},
};
