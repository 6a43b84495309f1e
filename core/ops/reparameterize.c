// The gradient of a sample with respect to a parameter of its distribution, by implicit reparameterization (Figurnov,
// Mohamed and Mnih, 2018): -(dF / dparameter) / (dF / dx), F the distribution function. F is a power times a continued
// fraction (DLMF 8.9 and 8.17), which is computed with its derivative, in float64: near the mean the parts nearly cancel.
#include <math.h>

#include "ops/elementwise.h"

#define K(x, value) pj_constant_like(h, (x), (value))
#define PRECISION 1e-15

enum { MOST_STEPS = 1000 /* enough for parameters up to 1e6 */, MOST_PARAMETERS = 5 };

// A value and its derivative with respect to the parameter.
typedef struct dual { hlo_value value, slope; } dual;

static dual add(hlo *h, dual a, dual b) {
  return (dual){hlo_add(h, a.value, b.value), hlo_add(h, a.slope, b.slope)};
}

static dual mul(hlo *h, dual a, dual b) {
  hlo_value left = hlo_mul(h, a.slope, b.value), right = hlo_mul(h, a.value, b.slope);
  return (dual){hlo_mul(h, a.value, b.value), hlo_add(h, left, right)};
}

static dual divide(hlo *h, dual a, dual b) {
  hlo_value value = hlo_div(h, a.value, b.value);
  return (dual){value, hlo_div(h, hlo_sub(h, a.slope, hlo_mul(h, value, b.slope)), b.value)};
}

static dual fixed(hlo *h, hlo_value x) { return (dual){x, hlo_broadcast_like(h, K(x, 0), x)}; }

static dual plus(hlo *h, dual a, hlo_value x) { return (dual){hlo_add(h, a.value, x), a.slope}; }

static dual scaled(hlo *h, dual a, hlo_value x) { return (dual){hlo_mul(h, a.value, x), hlo_mul(h, a.slope, x)}; }

static dual choose(hlo *h, hlo_value which, dual a, dual b) {
  return (dual){hlo_select(h, which, a.value, b.value), hlo_select(h, which, a.slope, b.slope)};
}

// ---- continued fractions --------------------------------------------------------------------------------------------

// Terms 2 m and 2 m + 1, m = 1, 2, ...: numerators and denominators.
typedef struct fraction {
  void (*terms)(hlo *h, hlo_value m, const hlo_value *parameters, dual out_numerators[2], dual out_denominators[2]);
  int parameters;
} fraction;

// state: change, m, c, d, fraction (duals), parameters
enum { CHANGE, STEP, C, D = C + 2, SUM = D + 2, PARAMETERS = SUM + 2 };

static dual of_state(const hlo_value *state, int i) { return (dual){state[i], state[i + 1]}; }

static void some_change(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  (void)context;
  hlo_value open = hlo_reduce_all(h, HLO_OR, hlo_gt(h, state[CHANGE], K(state[CHANGE], PRECISION)));
  results[0] = hlo_and(h, open, hlo_lt(h, state[STEP], K(state[STEP], MOST_STEPS)));
}

static hlo_value relative_change(hlo *h, hlo_value from, hlo_value to) {
  hlo_value change = hlo_abs(h, hlo_sub(h, to, from));
  return hlo_select(h, hlo_eq(h, change, K(change, 0)), change, hlo_div(h, change, hlo_abs(h, to)));
}

// Two steps of Lentz's algorithm.
static void two_terms(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  const fraction *f = context;
  dual numerators[2], denominators[2], one = fixed(h, hlo_broadcast_like(h, K(state[C], 1), state[C]));
  dual c = of_state(state, C), d = of_state(state, D), sum = of_state(state, SUM);
  f->terms(h, state[STEP], state + PARAMETERS, numerators, denominators);
  for (int i = 0; i < 2; ++i) {
    d = divide(h, one, add(h, denominators[i], mul(h, numerators[i], d)));
    c = add(h, denominators[i], divide(h, numerators[i], c));
    sum = mul(h, sum, mul(h, c, d));
  }
  results[CHANGE] = hlo_max(h, relative_change(h, state[SUM], sum.value),
                            relative_change(h, state[SUM + 1], sum.slope));
  results[STEP] = hlo_add(h, state[STEP], K(state[STEP], 1));
  const dual next[] = {c, d, sum};
  for (int i = 0; i < 3; ++i) {
    results[C + 2 * i] = next[i].value;
    results[C + 2 * i + 1] = next[i].slope;
  }
  for (int i = 0; i < f->parameters; ++i) results[PARAMETERS + i] = state[PARAMETERS + i];
}

// 1 / (first + numerator / (denominator + ...)), `terms` giving what follows `first`.
static dual sum_fraction(hlo *h, const fraction *f, dual first, const hlo_value *parameters) {
  hlo_value state[PARAMETERS + MOST_PARAMETERS], ends[PARAMETERS + MOST_PARAMETERS];
  hlo_value one = hlo_broadcast_like(h, K(first.value, 1), first.value);
  dual begin = divide(h, fixed(h, one), first), far = fixed(h, hlo_broadcast_like(h, K(one, INFINITY), one));
  const dual starts[] = {far, begin, begin};
  state[CHANGE] = one;
  state[STEP] = K(one, 1);
  for (int i = 0; i < 3; ++i) {
    state[C + 2 * i] = starts[i].value;
    state[C + 2 * i + 1] = starts[i].slope;
  }
  for (int i = 0; i < f->parameters; ++i) state[PARAMETERS + i] = parameters[i];
  hlo_while(h, state, PARAMETERS + f->parameters, some_change, two_terms, (void *)f, ends);
  return of_state(ends, SUM);
}

// Of F = power * sum, where d log(power) / dparameter is `growth`, or of 1 minus it (`above`).
static hlo_value gradient(hlo *h, hlo_value x, hlo_value growth, dual sum, hlo_value above) {
  hlo_value y = hlo_mul(h, x, hlo_add(h, hlo_mul(h, growth, sum.value), sum.slope));
  return hlo_select(h, above, y, hlo_neg(h, y));
}

// ---- gamma ----------------------------------------------------------------------------------------------------------

// parameters: a, x, above. The lower function's fraction, or where x > max(1, a) the upper one's.
static void gamma_terms(hlo *h, hlo_value m, const hlo_value *parameters, dual *out_numerators,
                        dual *out_denominators) {
  hlo_value x = parameters[1], above = parameters[2], twice = hlo_add(h, m, m);
  dual a = {parameters[0], hlo_broadcast_like(h, K(x, 1), x)}, minus_a = scaled(h, a, K(x, -1));
  dual below[2] = {scaled(h, plus(h, a, hlo_sub(h, m, K(m, 1))), hlo_neg(h, x)), fixed(h, hlo_mul(h, m, x))};
  for (int i = 0; i < 2; ++i) {
    hlo_value before = hlo_add(h, twice, K(m, i - 1));  // the term's number less 1
    hlo_value odd = hlo_add(h, hlo_add(h, before, before), K(m, 1));
    dual upper = scaled(h, plus(h, a, hlo_neg(h, before)), before);
    out_numerators[i] = choose(h, above, upper, below[i]);
    out_denominators[i] = choose(h, above, plus(h, minus_a, hlo_add(h, x, odd)), plus(h, a, before));
  }
}

// By the normal quantile that Wilson and Hilferty's cube root (1931) gives, for a large shape: there the fraction takes
// steps by the root of a, and this is within 1e-7.
static hlo_value large_gamma_gradient(hlo *h, hlo_value a, hlo_value x) {
  hlo_value root = hlo_cbrt(h, hlo_div(h, x, a)), square = pj_square(h, root);
  hlo_value less = hlo_sub(h, hlo_div(h, K(a, 1.0 / 6), a), hlo_mul(h, K(a, 1.5), hlo_sub(h, root, K(a, 1))));
  return hlo_mul(h, square, hlo_add(h, root, less));
}

// aten::_standard_gamma_grad(self, output): self is the shape parameter, output the sample
static void lower_gamma_grad(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  hlo_value a = hlo_broadcast_to(h, pj_as(l, 0, PJ_F64), type.rank, type.dims);
  hlo_value x = hlo_broadcast_to(h, pj_as(l, 1, PJ_F64), type.rank, type.dims);
  hlo_value large = hlo_gt(h, a, K(a, 1e5)), by_root = large_gamma_gradient(h, a, x);
  hlo_value one = hlo_broadcast_like(h, K(a, 1), a);
  a = hlo_select(h, large, one, a);
  x = hlo_select(h, large, one, x);
  hlo_value above = hlo_gt(h, x, hlo_max(h, a, one));
  dual own = {a, one}, first = choose(h, above, (dual){hlo_sub(h, hlo_add(h, x, one), a), hlo_neg(h, one)}, own);
  dual sum = sum_fraction(h, &(fraction){gamma_terms, 3}, first, (hlo_value[]){a, x, above});
  hlo_value growth = hlo_sub(h, hlo_log(h, x), hlo_digamma(h, a)), y = gradient(h, x, growth, sum, above);
  y = hlo_select(h, large, by_root, y);
  pj_return(l, 0, hlo_select(h, hlo_eq(h, x, K(x, 0)), K(x, 0), y));
}

// ---- beta -----------------------------------------------------------------------------------------------------------

// parameters: a, b, x, and the derivatives of a and b
static void beta_terms(hlo *h, hlo_value m, const hlo_value *parameters, dual *out_numerators,
                       dual *out_denominators) {
  dual a = {parameters[0], parameters[3]}, b = {parameters[1], parameters[4]};
  hlo_value x = parameters[2], twice = hlo_add(h, m, m), last = hlo_sub(h, twice, K(m, 1));
  hlo_value before = hlo_sub(h, m, K(m, 1));
  dual middle = plus(h, a, last);
  dual odd = scaled(h, mul(h, plus(h, a, before), plus(h, add(h, a, b), before)), hlo_neg(h, x));
  dual even = scaled(h, plus(h, scaled(h, b, K(m, 1)), hlo_neg(h, m)), hlo_mul(h, m, x));
  out_numerators[0] = divide(h, odd, mul(h, plus(h, a, hlo_sub(h, last, K(m, 1))), middle));
  out_numerators[1] = divide(h, even, mul(h, middle, plus(h, a, twice)));
  for (int i = 0; i < 2; ++i) out_denominators[i] = fixed(h, hlo_broadcast_like(h, K(x, 1), x));
}

// aten::_dirichlet_grad(x, alpha, total): x is a sample of Beta(alpha, total - alpha); the gradient with respect to
// alpha, over 1 - x. Where x is large by 1 - F, which is the distribution function of 1 - x with exchanged parameters.
static void lower_dirichlet_grad(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  hlo_value arguments[3];
  for (int i = 0; i < 3; ++i) arguments[i] = hlo_broadcast_to(h, pj_as(l, i, PJ_F64), type.rank, type.dims);
  hlo_value x = arguments[0], a = arguments[1], total = arguments[2], b = hlo_sub(h, total, a);
  hlo_value one = hlo_broadcast_like(h, K(x, 1), x), zero = hlo_broadcast_like(h, K(x, 0), x);
  hlo_value above = hlo_gt(h, hlo_mul(h, x, hlo_add(h, total, K(x, 2))), hlo_add(h, a, one));
  hlo_value own = hlo_select(h, above, b, a), slope = hlo_select(h, above, zero, one);
  hlo_value parameters[] = {own, hlo_select(h, above, a, b), hlo_select(h, above, hlo_sub(h, one, x), x), slope,
                            hlo_sub(h, one, slope)};
  dual sum = sum_fraction(h, &(fraction){beta_terms, 5}, fixed(h, one), parameters);
  sum = divide(h, sum, (dual){own, slope});
  hlo_value growth = hlo_add(h, hlo_sub(h, hlo_log(h, x), hlo_digamma(h, a)), hlo_digamma(h, total));
  hlo_value y = gradient(h, x, growth, sum, above);
  pj_return(l, 0, hlo_select(h, hlo_eq(h, x, zero), zero, y));
}

PJ_LOWERINGS(reparameterize_lowerings) = {
    {"aten::_standard_gamma_grad", lower_gamma_grad},
    {"aten::_dirichlet_grad", lower_dirichlet_grad},
    {0},
};
