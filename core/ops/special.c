// Special functions of one or two real arguments, other than Bessel functions and orthogonal polynomials. The
// coefficients are those of the Chebyshev interpolation with 40 digits, cut where they no longer show in float64.
#include <math.h>

#include "ops/chebyshev.h"
#include "ops/elementwise.h"

#define K(x, value) pj_constant_like(h, (x), (value))

enum { MOST_TERMS = 2000 };  // of the series that are summed in a loop

static const double ERFCX[] = {
    0.408024469549131491, 0.376358235676367434, 0.147580354572223619, 0.0495713179300275863,
    0.014227107557117174, 0.00344349326271752413, 0.000682254183283808062, 0.000103404519757561881,
    9.72854595199015e-6, -1.19887137584120442e-7, -2.17477677034495643e-7, -3.02917677359913909e-8,
    9.47991756520454925e-10, 8.63341169499095587e-10, 6.87215642595340244e-11, -1.70348984382962759e-11,
    -3.39213068682908865e-12, 2.61580876685402449e-13, 1.212767580310864e-13, -2.11468954324480916e-15,
    -4.11734093340417837e-15, -6.32871272170070868e-17, 1.43931109834498473e-16, 4.56149479828413069e-18,
    -5.33909425797813509e-18};
static const double NDTRI_NEAR[] = {
    0.68396021541099635, -0.274472402177297483, 0.0646652085706783274, -0.0162952403900141328,
    0.00427611953363870208, -0.00115574331598285335, 0.000319926839828286394, -0.0000903767602287508359,
    0.0000259816774545396377, -7.58281726167586875e-6, 2.24185900965694638e-6, -6.70150487142921625e-7,
    2.02213509642105255e-7, -6.15067306603927236e-8, 1.88371085662902108e-8, -5.80334858795287324e-9,
    1.79714552327437012e-9, -5.59055025168830674e-10, 1.74608783930409536e-10, -5.47303784888949544e-11,
    1.72100336007792608e-11, -5.42737159656984741e-12, 1.71606902467646159e-12, -5.43895850076384262e-13,
    1.72760299189411554e-13, -5.49846690193876982e-14, 1.75323506768846845e-14, -5.59987995320104267e-15,
    1.79144356404906806e-15, -5.73937914461858866e-16, 1.84128295925598093e-16, -5.91467307509808243e-17,
    1.9022169800427596e-17};
static const double NDTRI_FAR[] = {
    0.302365580019795935, 0.170744102570099075, -0.0136072007325702586, 0.0020869136737395577,
    -0.000453518276424463976, 0.00011820970428946935, -0.0000343475194217764145, 0.0000107284735397574539,
    -3.52715024387134192e-6, 1.20453917135960452e-6, -4.23594765116698675e-7, 1.52475949126062989e-7,
    -5.59361236199443575e-8, 2.08460303428538693e-8, -7.87269558925999448e-9, 3.00715100626502373e-9,
    -1.1599824572714601e-9, 4.51306571591619197e-10, -1.76918080294848356e-10, 6.98207076968546962e-11,
    -2.77202919101816351e-11, 1.10649621204927196e-11, -4.43828971166712477e-12, 1.78813758933009205e-12,
    -7.23331392114629326e-13, 2.93682157951582315e-13, -1.19644370779782584e-13, 4.88952959979028724e-14,
    -2.00401256881908505e-14, 8.23572367849899965e-15, -3.39304726473479519e-15, 1.40117342732698812e-15,
    -5.79884968151864244e-16, 2.40480649114926344e-16, -9.99200295823345204e-17, 4.1591992488841253e-17,
    -1.73422934091919419e-17, 7.2427188228752092e-18, -3.02940295461129458e-18};

// ---- error function and normal distribution -------------------------------------------------------------------------

// exp(x^2) erfc(x): t times a series in t = 4 / (4 + x) for x >= 0, 2 exp(x^2) minus its mirror below
static hlo_value erfcx(hlo *h, hlo_value x) {
  hlo_value size = hlo_abs(h, x);
  hlo_value t = hlo_div(h, K(x, 4), hlo_add(h, K(x, 4), size));
  hlo_value y = hlo_mul(h, t, PJ_CHEBYSHEV(h, t, 0, 1, ERFCX));
  hlo_value mirrored = hlo_sub(h, hlo_mul(h, K(x, 2), hlo_exp(h, pj_square(h, x))), y);
  return hlo_select(h, hlo_lt(h, x, K(x, 0)), mirrored, y);
}

// log of the normal distribution function; in the left tail by erfcx, which does not underflow
static hlo_value log_ndtr(hlo *h, hlo_value x) {
  hlo_value t = hlo_mul(h, x, K(x, M_SQRT1_2));
  hlo_value tail = hlo_min(h, t, K(x, 0));
  hlo_value left = hlo_sub(h, hlo_log(h, hlo_mul(h, K(x, 0.5), erfcx(h, hlo_neg(h, tail)))), pj_square(h, tail));
  hlo_value right = hlo_log1p(h, hlo_mul(h, K(x, -0.5), hlo_erfc(h, t)));
  return hlo_select(h, hlo_lt(h, x, K(x, -1)), left, right);
}

// The quantile of the normal distribution: erf_inv in the middle, a series in r = sqrt(-2 log p) in the tails.
static hlo_value ndtri(hlo *h, hlo_value p) {
  hlo_value rest = hlo_sub(h, K(p, 1), p);
  hlo_value tail = hlo_min(h, p, rest);
  hlo_value r = hlo_sqrt(h, hlo_mul(h, K(p, -2), hlo_log(h, tail)));
  hlo_value near = PJ_CHEBYSHEV(h, hlo_min(h, r, K(r, 6)), 1.5, 6, NDTRI_NEAR);
  hlo_value far = PJ_CHEBYSHEV(h, hlo_div(h, K(r, 1), hlo_max(h, r, K(r, 6))), 1.0 / 40, 1.0 / 6, NDTRI_FAR);
  hlo_value below = hlo_sub(h, hlo_select(h, hlo_lt(h, r, K(r, 6)), near, far), r);
  hlo_value outer = hlo_select(h, hlo_lt(h, p, rest), below, hlo_neg(h, below));
  hlo_value middle = hlo_mul(h, K(p, M_SQRT2), hlo_erf_inv(h, hlo_sub(h, hlo_mul(h, K(p, 2), p), K(p, 1))));
  hlo_value y = hlo_select(h, hlo_gt(h, tail, K(p, 0.2)), middle, outer);
  y = hlo_select(h, hlo_eq(h, p, K(p, 0)), K(p, -INFINITY), y);
  return hlo_select(h, hlo_eq(h, p, K(p, 1)), K(p, INFINITY), y);
}

// ---- one operand ----------------------------------------------------------------------------------------------------

// -x log x, 0 at 0, -inf below
static hlo_value entr(hlo *h, hlo_value x) {
  hlo_value y = hlo_neg(h, hlo_mul(h, x, hlo_log(h, x)));
  y = hlo_select(h, hlo_eq(h, x, K(x, 0)), K(x, 0), y);
  return hlo_select(h, hlo_lt(h, x, K(x, 0)), K(x, -INFINITY), y);
}

// sin(pi x) / (pi x)
static hlo_value sinc(hlo *h, hlo_value x) {
  hlo_value z = hlo_mul(h, x, K(x, M_PI));
  return hlo_select(h, hlo_eq(h, x, K(x, 0)), K(x, 1), hlo_div(h, hlo_sin(h, z), z));
}

// At +-0 PyTorch gives the infinity of the side.
static hlo_value digamma(hlo *h, hlo_value x) {
  hlo_value pole = pj_copysign(h, K(x, INFINITY), hlo_neg(h, x));
  return hlo_select(h, hlo_eq(h, x, K(x, 0)), pole, hlo_digamma(h, x));
}

// X(lowering, formula, ATen name, prims name or the ATen name again)
#define OPS(X) \
  X(erf, hlo_erf, "aten::erf", "prims::erf") X(erfc, hlo_erfc, "aten::erfc", "prims::erfc") \
  X(erfinv, hlo_erf_inv, "aten::erfinv", "prims::erf_inv") \
  X(erfcx, erfcx, "aten::special_erfcx", "prims::erfcx") \
  X(lgamma, hlo_lgamma, "aten::lgamma", "prims::lgamma") X(digamma, digamma, "aten::digamma", "prims::digamma") \
  X(log_ndtr, log_ndtr, "aten::special_log_ndtr", "aten::special_log_ndtr") \
  X(ndtri, ndtri, "aten::special_ndtri", "prims::ndtri") X(entr, entr, "aten::special_entr", "aten::special_entr") \
  X(sinc, sinc, "aten::sinc", "aten::sinc")

#define DEFINE(name, formula, aten, prims) \
  static void lower_##name(pj_lowering *l) { pj_return(l, 0, formula(l->h, pj_as(l, 0, pj_result_math(l, 0)))); }
OPS(DEFINE)

// state: s, q, sum
static void any_negative(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  (void)context;
  hlo_value low = hlo_and(h, hlo_lt(h, state[1], K(state[1], 0)), hlo_gt(h, state[1], K(state[1], -MOST_TERMS)));
  results[0] = hlo_reduce_all(h, HLO_OR, low);
}

static void move_right(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  (void)context;
  hlo_value s = state[0], q = state[1], low = hlo_lt(h, q, K(q, 0));
  results[0] = s;
  results[1] = hlo_select(h, low, hlo_add(h, q, K(q, 1)), q);
  results[2] = hlo_add(h, state[2], hlo_select(h, low, hlo_pow(h, q, hlo_neg(h, s)), K(q, 0)));
}

// The Hurwitz zeta function for whole s and any q: terms with negative q are added one by one, since chlo.zeta takes
// only positive q. Infinite at the poles s = 1 and q = 0, -1, ..., undefined for s < 1.
static hlo_value zeta(hlo *h, hlo_value s, hlo_value q) {
  hlo_value state[3] = {s, q, hlo_broadcast_like(h, K(q, 0), q)}, ends[3];
  hlo_while(h, state, 3, any_negative, move_right, NULL, ends);
  hlo_value pole = hlo_and(h, hlo_le(h, q, K(q, 0)), hlo_eq(h, hlo_floor(h, q), q));
  hlo_value y = hlo_add(h, ends[2], hlo_zeta(h, s, ends[1]));
  hlo_value whole = hlo_or(h, hlo_gt(h, q, K(q, 0)), hlo_eq(h, hlo_floor(h, s), s));
  y = hlo_select(h, pole, K(q, INFINITY), hlo_select(h, whole, y, K(q, NAN)));
  return hlo_select(h, hlo_eq(h, s, K(s, 1)), K(q, INFINITY), hlo_select(h, hlo_lt(h, s, K(s, 1)), K(q, NAN), y));
}

// aten::polygamma(n, self): (-1)^(n+1) n! zeta(n + 1, x); n = 1 is reflected for x < 1/2
static void lower_polygamma(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_as(l, 1, pj_result_math(l, 0));
  double n = (double)pj_int(l, 0);
  if (!pj_require(l, n >= 0, PJ_INVALID_ARGUMENT, "polygamma(n, x) does not support negative n.")) return;
  if (n == 0) return pj_return(l, 0, digamma(h, x));
  hlo_value order = hlo_broadcast_like(h, K(x, n + 1), x);
  if (n == 1) {
    hlo_value mirror = hlo_lt(h, x, K(x, 0.5));
    hlo_value z = hlo_zeta(h, order, hlo_select(h, mirror, hlo_sub(h, K(x, 1), x), x));
    hlo_value sine = hlo_div(h, K(x, M_PI), hlo_sin(h, hlo_mul(h, K(x, M_PI), x)));
    return pj_return(l, 0, hlo_select(h, mirror, hlo_sub(h, pj_square(h, sine), z), z));
  }
  double factor = tgamma(n + 1) * (fmod(n, 2) != 0 ? 1 : -1);
  pj_return(l, 0, hlo_mul(h, K(x, factor), zeta(h, order, x)));
}

// aten::special_zeta(self, other): Hurwitz zeta function
static void lower_zeta(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  pj_type type = pj_result_type(l, 0);
  hlo_value x = hlo_broadcast_to(h, pj_as(l, 0, dtype), type.rank, type.dims);
  pj_return(l, 0, zeta(h, x, hlo_broadcast_to(h, pj_as(l, 1, dtype), type.rank, type.dims)));
}

// ---- incomplete gamma functions -------------------------------------------------------------------------------------

#define PRECISION 1e-16

// Whether any element still changes: state[0] is the last change relative to the sum, state[1] the term's number.
static void goes_on(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  (void)context;
  hlo_value open = hlo_reduce_all(h, HLO_OR, hlo_gt(h, state[0], K(state[0], PRECISION)));
  results[0] = hlo_and(h, open, hlo_lt(h, state[1], K(state[1], MOST_TERMS)));
}

// state: change, k, term, sum, a, x
static void series_step(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  (void)context;
  hlo_value k = hlo_add(h, state[1], K(state[1], 1));
  hlo_value term = hlo_mul(h, state[2], hlo_div(h, state[5], hlo_add(h, state[4], k)));
  results[1] = k;
  results[2] = term;
  results[3] = hlo_add(h, state[3], term);
  results[0] = hlo_div(h, term, results[3]);
  results[4] = state[4];
  results[5] = state[5];
}

// state: change, k, c, d, fraction, a, x (Lentz's algorithm)
static void fraction_step(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  (void)context;
  hlo_value k = hlo_add(h, state[1], K(state[1], 1)), a = state[5], x = state[6];
  hlo_value numerator = hlo_mul(h, k, hlo_sub(h, a, k));
  hlo_value b = hlo_add(h, hlo_sub(h, x, a), hlo_add(h, hlo_add(h, k, k), K(k, 1)));
  hlo_value d = hlo_div(h, K(k, 1), hlo_add(h, hlo_mul(h, numerator, state[3]), b));
  hlo_value c = hlo_add(h, b, hlo_div(h, numerator, state[2]));
  hlo_value factor = hlo_mul(h, c, d);
  results[0] = hlo_abs(h, hlo_sub(h, factor, K(k, 1)));
  results[1] = k;
  results[2] = c;
  results[3] = d;
  results[4] = hlo_mul(h, state[4], factor);
  results[5] = a;
  results[6] = x;
}

// The regularized incomplete gamma function, lower or upper: the power series where x <= max(1, a), the continued
// fraction elsewhere. In float64: exp(a log x - x - lgamma(a)) loses digits with growing a.
static hlo_value incomplete_gamma(hlo *h, hlo_value a, hlo_value x, bool upper) {
  hlo_value one = hlo_broadcast_like(h, K(x, 1), x);
  hlo_value ordinary = hlo_and(h, hlo_and(h, hlo_gt(h, a, K(a, 0)), hlo_gt(h, x, K(x, 0))),
                               hlo_and(h, hlo_is_finite(h, a), hlo_is_finite(h, x)));
  hlo_value by_series = hlo_or(h, hlo_le(h, x, a), hlo_le(h, x, one));
  hlo_value prefix = hlo_exp(h, hlo_sub(h, hlo_sub(h, hlo_mul(h, a, hlo_log(h, x)), x), hlo_lgamma(h, a)));
  // Elements that a form is not used for stand still at a = x = 1 (series) or a = 1, x = 2 (fraction).
  hlo_value use = hlo_and(h, ordinary, by_series);
  hlo_value first[6] = {one, K(x, 0), one, one, hlo_select(h, use, a, one), hlo_select(h, use, x, one)}, last[7];
  hlo_while(h, first, 6, goes_on, series_step, NULL, last);
  hlo_value lower = hlo_div(h, hlo_mul(h, prefix, last[3]), a);
  use = hlo_and(h, ordinary, hlo_not(h, by_series));
  hlo_value fa = hlo_select(h, use, a, one), fx = hlo_select(h, use, x, hlo_add(h, one, one));
  hlo_value start = hlo_div(h, one, hlo_add(h, hlo_sub(h, fx, fa), one));
  hlo_value begin[7] = {one, K(x, 0), hlo_broadcast_like(h, K(x, 1e300), x), start, start, fa, fx};
  hlo_while(h, begin, 7, goes_on, fraction_step, NULL, last);
  hlo_value higher = hlo_mul(h, prefix, last[4]);
  hlo_value y = upper ? hlo_select(h, by_series, hlo_sub(h, one, lower), higher)
                      : hlo_select(h, by_series, lower, hlo_sub(h, one, higher));
  // Limits: all the mass lies below x when a = 0 or x = inf, and above it when x = 0 or a = inf.
  hlo_value none = hlo_or(h, hlo_eq(h, x, K(x, 0)), pj_is_inf(h, a));
  hlo_value all = hlo_or(h, hlo_eq(h, a, K(a, 0)), pj_is_inf(h, x));
  y = hlo_select(h, none, K(x, upper ? 1 : 0), y);
  y = hlo_select(h, all, K(x, upper ? 0 : 1), y);
  hlo_value outside = hlo_or(h, hlo_lt(h, x, K(x, 0)), hlo_lt(h, a, K(a, 0)));
  hlo_value missing = hlo_or(h, hlo_is_nan(h, x), hlo_is_nan(h, a));
  hlo_value undefined = hlo_or(h, hlo_or(h, outside, missing), hlo_and(h, none, all));
  return hlo_select(h, undefined, K(x, NAN), y);
}

static void lower_incomplete(pj_lowering *l, bool upper) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  hlo_value a = hlo_broadcast_to(h, pj_as(l, 0, PJ_F64), type.rank, type.dims);
  hlo_value x = hlo_broadcast_to(h, pj_as(l, 1, PJ_F64), type.rank, type.dims);
  pj_return(l, 0, incomplete_gamma(h, a, x, upper));
}

// aten::igamma(self, other)
static void lower_igamma(pj_lowering *l) { lower_incomplete(l, false); }

// aten::igammac(self, other)
static void lower_igammac(pj_lowering *l) { lower_incomplete(l, true); }

#define ENTRY(name, formula, aten, prims) {aten, lower_##name}, {prims, lower_##name},

PJ_LOWERINGS(special_lowerings) = {
    OPS(ENTRY)
    {"aten::polygamma", lower_polygamma},
    {"aten::special_zeta", lower_zeta},
    {"aten::special_zeta.self_scalar", lower_zeta},
    {"aten::special_zeta.other_scalar", lower_zeta},
    {"prims::zeta", lower_zeta},
    {"aten::igamma", lower_igamma},
    {"aten::igammac", lower_igammac},
    {"prims::igamma", lower_igamma},
    {"prims::igammac", lower_igammac},
    {0},
};
