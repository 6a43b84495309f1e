// Orthogonal polynomials p_n(x), by their three-term recurrences up to the largest n of all elements.
#include "ops/elementwise.h"

#define K(x, value) pj_constant_like(h, (x), (value))

typedef struct family {
  double slope, offset;   // p_1 = slope x + offset
  bool shifted;           // in 2 x - 1 instead of x
  hlo_value (*next)(hlo *h, hlo_value x, hlo_value k, hlo_value p, hlo_value q);  // p_(k+1) from p = p_(k-1), q = p_k
} family;

// 2 x q - p
static hlo_value chebyshev(hlo *h, hlo_value x, hlo_value k, hlo_value p, hlo_value q) {
  (void)k;
  return hlo_sub(h, hlo_mul(h, hlo_add(h, x, x), q), p);
}

// 2 x q - 2 k p
static hlo_value hermite_h(hlo *h, hlo_value x, hlo_value k, hlo_value p, hlo_value q) {
  return hlo_mul(h, K(x, 2), hlo_sub(h, hlo_mul(h, x, q), hlo_mul(h, k, p)));
}

// x q - k p
static hlo_value hermite_he(hlo *h, hlo_value x, hlo_value k, hlo_value p, hlo_value q) {
  return hlo_sub(h, hlo_mul(h, x, q), hlo_mul(h, k, p));
}

static hlo_value middle(hlo *h, hlo_value k) { return hlo_add(h, hlo_add(h, k, k), K(k, 1)); }

// ((2 k + 1 - x) q - k p) / (k + 1)
static hlo_value laguerre(hlo *h, hlo_value x, hlo_value k, hlo_value p, hlo_value q) {
  hlo_value top = hlo_sub(h, hlo_mul(h, hlo_sub(h, middle(h, k), x), q), hlo_mul(h, k, p));
  return hlo_div(h, top, hlo_add(h, k, K(k, 1)));
}

// ((2 k + 1) x q - k p) / (k + 1)
static hlo_value legendre(hlo *h, hlo_value x, hlo_value k, hlo_value p, hlo_value q) {
  hlo_value top = hlo_sub(h, hlo_mul(h, hlo_mul(h, middle(h, k), x), q), hlo_mul(h, k, p));
  return hlo_div(h, top, hlo_add(h, k, K(k, 1)));
}

// state: k, p, q, x, n, the largest n
static void more_degrees(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_lt(h, state[0], state[5]);
}

static void next_degree(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  const family *f = context;
  hlo_value k = state[0], p = state[1], q = state[2], x = state[3], n = state[4];
  hlo_value active = hlo_lt(h, k, n);
  results[0] = hlo_add(h, k, K(k, 1));
  results[1] = hlo_select(h, active, q, p);
  results[2] = hlo_select(h, active, f->next(h, x, k, p, q), q);
  for (int i = 3; i < 6; ++i) results[i] = state[i];
}

static void lower(pj_lowering *l, const family *f) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value x = hlo_broadcast_to(h, pj_as(l, 0, dtype), type.rank, type.dims);
  hlo_value n = pj_trunc(h, hlo_broadcast_to(h, pj_as(l, 1, dtype), type.rank, type.dims));
  if (f->shifted) x = hlo_sub(h, hlo_add(h, x, x), K(x, 1));
  hlo_value zeroth = hlo_broadcast_like(h, K(x, 1), x);
  hlo_value first = hlo_add(h, hlo_mul(h, K(x, f->slope), x), K(x, f->offset));
  hlo_value state[6] = {K(n, 1), zeroth, first, x, n, hlo_reduce_all(h, HLO_MAX, n)}, ends[6];
  hlo_while(h, state, 6, more_degrees, next_degree, (void *)f, ends);
  hlo_value y = hlo_select(h, hlo_eq(h, n, K(n, 0)), zeroth, ends[2]);
  pj_return(l, 0, hlo_select(h, hlo_lt(h, n, K(n, 0)), K(x, 0), y));
}

// X(ATen name without special_, slope, offset, shifted, recurrence)
#define FAMILIES(X) \
  X(chebyshev_polynomial_t, 1, 0, false, chebyshev) X(chebyshev_polynomial_u, 2, 0, false, chebyshev) \
  X(chebyshev_polynomial_v, 2, -1, false, chebyshev) X(chebyshev_polynomial_w, 2, 1, false, chebyshev) \
  X(shifted_chebyshev_polynomial_t, 1, 0, true, chebyshev) X(shifted_chebyshev_polynomial_u, 2, 0, true, chebyshev) \
  X(shifted_chebyshev_polynomial_v, 2, -1, true, chebyshev) X(shifted_chebyshev_polynomial_w, 2, 1, true, chebyshev) \
  X(hermite_polynomial_h, 2, 0, false, hermite_h) X(hermite_polynomial_he, 1, 0, false, hermite_he) \
  X(laguerre_polynomial_l, -1, 1, false, laguerre) X(legendre_polynomial_p, 1, 0, false, legendre)

#define DEFINE(name, slope, offset, shifted, next)                   \
  static void lower_##name(pj_lowering *l) {                         \
    static const family f = {slope, offset, shifted, next};          \
    lower(l, &f);                                                    \
  }
FAMILIES(DEFINE)

#define ENTRY(name, slope, offset, shifted, next) \
  {"aten::special_" #name, lower_##name}, {"aten::special_" #name ".n_scalar", lower_##name}, \
  {"aten::special_" #name ".x_scalar", lower_##name},

PJ_LOWERINGS(polynomial_lowerings) = {
    FAMILIES(ENTRY)
    {0},
};
