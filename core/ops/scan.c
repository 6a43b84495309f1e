#include <math.h>

#include "ops/reduce.h"

// aten::cumsum(self, dim, *, dtype), cumprod: in the result's dtype, float32 for half types
static void scan(pj_lowering *l, hlo_op op) {
  pj_dtype dtype = pj_result_type(l, 0).dtype;
  hlo_value x = hlo_convert(l->h, pj_tensor(l, 0), dtype);
  x = pj_at_least_1d(l->h, hlo_convert(l->h, x, pj_math_dtype(dtype)));
  pj_return_reshaped(l, 0, hlo_scan(l->h, op, x, pj_dim(l, 1, x.rank)));
}

static void lower_cumsum(pj_lowering *l) { scan(l, HLO_ADD); }
static void lower_cumprod(pj_lowering *l) { scan(l, HLO_MUL); }

// Two (value, place): the later place wins ties, and a NaN wins over all that is not NaN. Said with the places, so that
// the order of the two does not matter: a compiler may combine the parts of a window in any.
static void extreme_body(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  hlo_value a = arguments[0], b = arguments[2], a_nan = hlo_is_nan(h, a), b_nan = hlo_is_nan(h, b);
  hlo_value better = *(hlo_op *)context == HLO_MAX ? hlo_gt(h, b, a) : hlo_lt(h, b, a);
  hlo_value wins = hlo_or(h, better, hlo_and(h, b_nan, hlo_not(h, a_nan)));
  hlo_value tie = hlo_or(h, hlo_eq(h, a, b), hlo_and(h, a_nan, b_nan));
  hlo_value take = hlo_or(h, wins, hlo_and(h, tie, hlo_gt(h, arguments[3], arguments[1])));
  results[0] = hlo_select(h, take, b, a);
  results[1] = hlo_select(h, take, arguments[3], arguments[1]);
}

static void scan_extreme(pj_lowering *l, hlo_op op) {
  hlo *h = l->h;
  hlo_value x = pj_at_least_1d(h, pj_tensor(l, 0));
  int dim = pj_dim(l, 1, x.rank);
  hlo_value start = op == HLO_MAX ? hlo_lowest(h, x.dtype) : hlo_highest(h, x.dtype);
  hlo_value operands[] = {x, hlo_iota(h, PJ_S32, x.rank, x.dims, dim)};
  hlo_value starts[] = {start, hlo_constant_int(h, PJ_S32, 0)}, found[2];
  hlo_scan_many(h, operands, starts, 2, dim, extreme_body, &op, found);
  pj_return_reshaped(l, 0, found[0]);
  pj_return_reshaped(l, 1, found[1]);
}

static void lower_cummax(pj_lowering *l) { scan_extreme(l, HLO_MAX); }
static void lower_cummin(pj_lowering *l) { scan_extreme(l, HLO_MIN); }

// log(exp(a) + exp(b)) = m + log1p(exp(least - m)), m being the one with the larger real part; equal infinities stay
// what they are.
static void log_add_exp(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)context;
  hlo_value a = arguments[0], b = arguments[1], real_a = hlo_real(h, a), real_b = hlo_real(h, b);
  hlo_value less = hlo_lt(h, real_a, real_b);
  hlo_value most = hlo_select(h, less, b, a), least = hlo_select(h, less, a, b);
  hlo_value sum = hlo_add(h, most, hlo_log1p(h, hlo_exp(h, hlo_sub(h, least, most))));
  hlo_value infinite = hlo_eq(h, hlo_abs(h, real_a), pj_full_like(h, real_a, INFINITY));
  results[0] = hlo_select(h, hlo_and(h, hlo_eq(h, real_a, real_b), infinite), a, sum);
}

// aten::_logcumsumexp(self, dim)
static void lower_logcumsumexp(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  x = pj_at_least_1d(h, hlo_convert(h, x, pj_math_dtype(x.dtype)));
  hlo_value start = hlo_constant(h, x.dtype, -INFINITY), result;
  hlo_scan_many(h, &x, &start, 1, pj_dim(l, 1, x.rank), log_add_exp, NULL, &result);
  pj_return_reshaped(l, 0, result);
}

PJ_LOWERINGS(scan_lowerings) = {
    {"aten::cumsum", lower_cumsum},
    {"aten::cumprod", lower_cumprod},
    {"aten::cummax", lower_cummax},
    {"aten::cummin", lower_cummin},
    {"aten::_logcumsumexp", lower_logcumsumexp},
    {"aten::logcumsumexp", lower_logcumsumexp},
    {0},
};
