// Distributions whose samples take a loop or a choice among categories. Each call draws from streams of its own
// (pj_random_stream), since the number of blocks that it uses is not that of its results.
#include <math.h>

#include "ops/elementwise.h"
#include "ops/random.h"
#include "ops/reduce.h"

#define K(x, value) pj_constant_like(h, (x), (value))

// ---- categories -----------------------------------------------------------------------------------------------------

static void larger_first(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_gt(h, arguments[0], arguments[1]);
}

// Without replacement: the categories in the order of p / e, e exponential, which is that of drawing one after another.
static hlo_value draw_distinct(hlo *h, pj_random random, hlo_value p, int64_t samples) {
  hlo_value e = hlo_neg(h, hlo_log(h, pj_random_open(h, random, p.dtype, p.rank, p.dims)));
  hlo_value score = hlo_div(h, p, e);
  if (samples == 1) return hlo_keep(h, pj_arg_extreme(h, score, hlo_reduce_max(h, score, 1), 1), 1);
  hlo_value operands[2] = {score, hlo_iota(h, PJ_S32, p.rank, p.dims, 1)}, sorted[2];
  hlo_sort(h, operands, 2, 1, false, larger_first, NULL, sorted);
  return hlo_slice_dim(h, sorted[1], 1, 0, samples);
}

// With replacement: how many of the cumulated probabilities lie at or below u times their sum. Rounding may put u there
// after the last possible category, so that is the limit.
static hlo_value draw_independent(hlo *h, pj_random random, hlo_value p, int64_t samples) {
  const int64_t dims[] = {p.dims[0], samples};
  hlo_value cumulated = hlo_scan(h, HLO_ADD, p, 1);
  hlo_value total = hlo_keep(h, hlo_reduce_sum(h, p, 1), 1);
  hlo_value u = hlo_mul(h, pj_random_uniform(h, random, p.dtype, 2, dims), total);
  hlo_value passed = hlo_le(h, hlo_keep(h, cumulated, 1), hlo_keep(h, u, 2));
  hlo_value count = hlo_reduce_sum(h, hlo_convert(h, passed, PJ_S32), 2);
  hlo_value index = hlo_iota(h, PJ_S32, 2, p.dims, 1);
  hlo_value last = hlo_reduce_max(h, hlo_select(h, hlo_gt(h, p, K(p, 0)), index, K(index, 0)), 1);
  return hlo_min(h, count, hlo_keep(h, last, 1));
}

// aten::multinomial(self, num_samples, replacement, generator)
static void lower_multinomial(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value p = pj_tensor(l, 0);
  int64_t samples = pj_int(l, 1);
  bool replacement = pj_bool(l, 2);
  if (hlo_failed(h)) return;
  int64_t categories = p.rank ? p.dims[p.rank - 1] : 0;
  if (!pj_require(l, p.rank == 1 || p.rank == 2, PJ_INVALID_ARGUMENT, "prob_dist must be 1 or 2 dim") ||
      !pj_require(l, pj_dtype_is_float(p.dtype), PJ_INVALID_ARGUMENT,
                  "multinomial only supports floating-point dtypes for input, got: %s", pj_dtype_name(p.dtype)) ||
      !pj_require(l, samples > 0, PJ_INVALID_ARGUMENT, "cannot sample n_sample <= 0 samples") ||
      !pj_require(l, replacement || samples <= categories, PJ_INVALID_ARGUMENT,
                  "cannot sample n_sample > prob_dist.size(-1) samples without replacement") ||
      !pj_require(l, categories <= 1 << 24, PJ_INVALID_ARGUMENT, "number of categories cannot exceed 2^24"))
    return;
  pj_type type = pj_result_type(l, 0);
  if (pj_type_elements(&type) == 0) return pj_return(l, 0, hlo_full(h, type.dtype, type.rank, type.dims, 0));
  const int64_t dims[] = {p.rank == 2 ? p.dims[0] : 1, categories};
  p = hlo_reshape(h, hlo_convert(h, p, pj_math_dtype(p.dtype)), 2, dims);
  pj_random random = pj_random_stream(l, pj_random_begin(l), 0);
  hlo_value drawn = replacement && samples > 1 ? draw_independent(h, random, p, samples)
                                               : draw_distinct(h, random, p, samples);
  pj_return(l, 0, hlo_reshape(h, drawn, type.rank, type.dims));
}

// ---- search: small means --------------------------------------------------------------------------------------------

// The smallest k with u below the distribution function, by adding up probabilities. state: k, probability, sum, u, and
// two parameters of the recurrence.
// probability(k) / probability(k - 1)
typedef hlo_value (*ratio)(hlo *h, hlo_value k, hlo_value first, hlo_value second);

static void still_below(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  (void)context;
  hlo_value open = hlo_and(h, hlo_ge(h, state[3], state[2]), hlo_gt(h, state[1], K(state[1], 0)));
  results[0] = hlo_reduce_all(h, HLO_OR, open);
}

static void add_next(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  ratio next_ratio = *(const ratio *)context;
  hlo_value open = hlo_and(h, hlo_ge(h, state[3], state[2]), hlo_gt(h, state[1], K(state[1], 0)));
  hlo_value k = hlo_add(h, state[0], K(state[0], 1));
  hlo_value probability = hlo_mul(h, state[1], next_ratio(h, k, state[4], state[5]));
  results[0] = hlo_select(h, open, k, state[0]);
  results[1] = hlo_select(h, open, probability, state[1]);
  results[2] = hlo_select(h, open, hlo_add(h, state[2], probability), state[2]);
  for (int i = 3; i < 6; ++i) results[i] = state[i];
}

static hlo_value search(hlo *h, pj_random random, hlo_value at_zero, hlo_value first, hlo_value second, ratio next) {
  hlo_value u = pj_random_uniform(h, random, PJ_F32, at_zero.rank, at_zero.dims), ends[6];
  hlo_value state[6] = {hlo_broadcast_like(h, K(u, 0), u), at_zero, at_zero, u, first, second};
  hlo_while(h, state, 6, still_below, add_next, &next, ends);
  return ends[0];
}

// ---- rejection: large means, gamma ----------------------------------------------------------------------------------

enum { MOST_PARAMETERS = 6 };

// One proposal for every element, from two blocks of random numbers: the sample and whether it is accepted.
typedef struct proposal {
  void (*propose)(hlo *h, const struct proposal *p, const hlo_value *parameters, hlo_value *out_sample,
                  hlo_value *out_accepted);
  pj_random random;  // its counter is that of the iteration
  int rank;
  const int64_t *dims;
  int parameters;
} proposal;

// state: counter, done, sample, parameters
static void some_open(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_not(h, hlo_reduce_all(h, HLO_AND, state[1]));
}

static void try_again(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  proposal p = *(const proposal *)context;
  p.random.counter = state[0];
  hlo_value sample, accepted;
  p.propose(h, &p, state + 3, &sample, &accepted);
  results[0] = hlo_add(h, state[0], hlo_constant_int(h, PJ_U64, 2 * hlo_size(state[1])));
  results[1] = hlo_or(h, state[1], accepted);
  results[2] = hlo_select(h, state[1], state[2], sample);
  for (int i = 0; i < p.parameters; ++i) results[3 + i] = state[3 + i];
}

// Repeats until every element has an accepted sample. Nothing is drawn where `skip` is set, which it must be wherever a
// parameter is such that no proposal is ever accepted (NaN, infinite, out of range).
static hlo_value reject(hlo *h, proposal *p, hlo_value skip, const hlo_value *parameters) {
  hlo_value state[3 + MOST_PARAMETERS] = {p->random.counter, skip, hlo_broadcast_like(h, K(parameters[0], 0), skip)};
  hlo_value ends[3 + MOST_PARAMETERS];
  for (int i = 0; i < p->parameters; ++i) state[3 + i] = parameters[i];
  p->rank = skip.rank;
  p->dims = skip.dims;
  hlo_while(h, state, 3 + p->parameters, some_open, try_again, p, ends);
  return ends[2];
}

// The second block of an iteration.
static pj_random second_block(hlo *h, const proposal *p) {
  pj_random random = p->random;
  int64_t count = 1;
  for (int i = 0; i < p->rank; ++i) count *= p->dims[i];
  random.counter = hlo_add(h, random.counter, hlo_constant_int(h, PJ_U64, count));
  return random;
}

// Of Hoermann's transformed rejection (1993): u in (-1/2, 1/2), us = 1/2 - |u|, v in (0, 1),
// k = floor((2 a / us + b) u + c).
typedef struct transformed { hlo_value us, v, k; } transformed;

static transformed propose_transformed(hlo *h, const proposal *p, hlo_value a, hlo_value b, hlo_value c) {
  hlo_value u = hlo_sub(h, pj_random_open(h, p->random, PJ_F32, p->rank, p->dims), K(a, 0.5));
  transformed t = {.us = hlo_sub(h, K(u, 0.5), hlo_abs(h, u)),
                   .v = pj_random_open(h, second_block(h, p), PJ_F32, p->rank, p->dims)};
  t.us = hlo_max(h, t.us, K(u, 1e-7));
  hlo_value slope = hlo_add(h, hlo_div(h, hlo_mul(h, K(a, 2), a), t.us), b);
  t.k = hlo_floor(h, hlo_add(h, hlo_mul(h, slope, u), c));
  return t;
}

// Accepted at once in the middle, else by the density: log(v alpha / (a / us^2 + b)) <= log density.
static hlo_value accept_transformed(hlo *h, transformed t, hlo_value a, hlo_value b, hlo_value alpha, hlo_value vr,
                                    hlo_value allowed, hlo_value log_density) {
  hlo_value quick = hlo_and(h, hlo_ge(h, t.us, K(a, 0.07)), hlo_le(h, t.v, vr));
  hlo_value hat = hlo_add(h, hlo_div(h, a, pj_square(h, t.us)), b);
  hlo_value slow = hlo_le(h, hlo_log(h, hlo_div(h, hlo_mul(h, t.v, alpha), hat)), log_density);
  return hlo_or(h, quick, hlo_and(h, allowed, slow));
}

static hlo_value log_factorial(hlo *h, hlo_value x) { return hlo_lgamma(h, hlo_add(h, x, K(x, 1))); }

// ---- Poisson --------------------------------------------------------------------------------------------------------

static hlo_value poisson_ratio(hlo *h, hlo_value k, hlo_value rate, hlo_value unused) {
  (void)unused;
  return hlo_div(h, rate, k);
}

// parameters: rate
static void propose_poisson(hlo *h, const proposal *p, const hlo_value *parameters, hlo_value *out_sample,
                            hlo_value *out_accepted) {
  hlo_value rate = parameters[0];
  hlo_value b = hlo_add(h, K(rate, 0.931), hlo_mul(h, K(rate, 2.53), hlo_sqrt(h, rate)));
  hlo_value a = hlo_add(h, K(rate, -0.059), hlo_mul(h, K(rate, 0.02483), b));
  hlo_value alpha = hlo_add(h, K(rate, 1.1239), hlo_div(h, K(rate, 1.1328), hlo_sub(h, b, K(b, 3.4))));
  hlo_value vr = hlo_sub(h, K(rate, 0.9277), hlo_div(h, K(rate, 3.6224), hlo_sub(h, b, K(b, 2))));
  transformed t = propose_transformed(h, p, a, b, hlo_add(h, rate, K(rate, 0.43)));
  hlo_value narrow = hlo_and(h, hlo_lt(h, t.us, K(a, 0.013)), hlo_gt(h, t.v, t.us));
  hlo_value allowed = hlo_and(h, hlo_ge(h, t.k, K(a, 0)), hlo_not(h, narrow));
  hlo_value density = hlo_sub(h, hlo_sub(h, hlo_mul(h, t.k, hlo_log(h, rate)), rate), log_factorial(h, t.k));
  *out_sample = t.k;
  *out_accepted = accept_transformed(h, t, a, b, alpha, vr, allowed, density);
}

// aten::poisson(self, generator)
static void lower_poisson(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value rate = pj_as(l, 0, PJ_F32);
  pj_random random = pj_random_begin(l);
  hlo_value large = hlo_and(h, hlo_ge(h, rate, K(rate, 10)), hlo_is_finite(h, rate)), small = hlo_not(h, large);
  hlo_value low = hlo_select(h, small, rate, K(rate, 0)), high = hlo_select(h, small, K(rate, 10), rate);
  hlo_value searched = search(h, pj_random_stream(l, random, 0), hlo_exp(h, hlo_neg(h, low)), low, low, poisson_ratio);
  proposal p = {.propose = propose_poisson, .random = pj_random_stream(l, random, 1), .parameters = 1};
  pj_return(l, 0, hlo_select(h, small, searched, reject(h, &p, small, &high)));
}

// ---- binomial -------------------------------------------------------------------------------------------------------

// (n - k + 1) / k * odds
static hlo_value binomial_ratio(hlo *h, hlo_value k, hlo_value n, hlo_value odds) {
  hlo_value left = hlo_max(h, hlo_add(h, hlo_sub(h, n, k), K(k, 1)), K(k, 0));
  return hlo_mul(h, hlo_div(h, left, k), odds);
}

// parameters: n, probability (at most 1/2)
static void propose_binomial(hlo *h, const proposal *p, const hlo_value *parameters, hlo_value *out_sample,
                             hlo_value *out_accepted) {
  hlo_value n = parameters[0], q = parameters[1], rest = hlo_sub(h, K(q, 1), q), mean = hlo_mul(h, n, q);
  hlo_value deviation = hlo_sqrt(h, hlo_mul(h, mean, rest));
  hlo_value b = hlo_add(h, K(q, 1.15), hlo_mul(h, K(q, 2.53), deviation));
  hlo_value a = hlo_add(h, hlo_add(h, K(q, -0.0873), hlo_mul(h, K(q, 0.0248), b)), hlo_mul(h, K(q, 0.01), q));
  hlo_value alpha = hlo_mul(h, hlo_add(h, K(q, 2.83), hlo_div(h, K(q, 5.1), b)), deviation);
  hlo_value vr = hlo_sub(h, K(q, 0.92), hlo_div(h, K(q, 4.2), b));
  transformed t = propose_transformed(h, p, a, b, hlo_add(h, mean, K(q, 0.5)));
  hlo_value allowed = hlo_and(h, hlo_ge(h, t.k, K(q, 0)), hlo_le(h, t.k, n));
  hlo_value k = hlo_clamp(h, hlo_broadcast_like(h, K(q, 0), n), t.k, n);
  hlo_value mode = hlo_floor(h, hlo_mul(h, hlo_add(h, n, K(n, 1)), q));
  hlo_value at_mode = hlo_add(h, log_factorial(h, mode), log_factorial(h, hlo_sub(h, n, mode)));
  hlo_value at_k = hlo_add(h, log_factorial(h, k), log_factorial(h, hlo_sub(h, n, k)));
  hlo_value odds = hlo_mul(h, hlo_sub(h, k, mode), hlo_log(h, hlo_div(h, q, rest)));
  hlo_value quick_allowed = hlo_eq(h, k, t.k);
  *out_sample = k;
  *out_accepted = hlo_and(h, quick_allowed, accept_transformed(h, t, a, b, alpha, vr, allowed,
                                                               hlo_add(h, hlo_sub(h, at_mode, at_k), odds)));
}

// aten::binomial(count, prob, generator): drawn for the rarer outcome
static void lower_binomial(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  if (!pj_require(l, pj_dtype_is_float(type.dtype), PJ_INVALID_ARGUMENT,
                  "binomial only supports floating-point dtypes for count, got: %s", pj_dtype_name(type.dtype)))
    return;
  hlo_value n = hlo_broadcast_to(h, pj_as(l, 0, PJ_F32), type.rank, type.dims);
  hlo_value given = hlo_broadcast_to(h, pj_as(l, 1, PJ_F32), type.rank, type.dims);
  hlo_value flipped = hlo_gt(h, given, K(given, 0.5));
  hlo_value q = hlo_select(h, flipped, hlo_sub(h, K(given, 1), given), given);
  pj_random random = pj_random_begin(l);
  hlo_value mean = hlo_mul(h, n, q);
  hlo_value large = hlo_and(h, hlo_ge(h, mean, K(n, 10)), hlo_is_finite(h, mean)), small = hlo_not(h, large);
  hlo_value low_n = hlo_select(h, small, n, K(n, 0)), low_q = hlo_select(h, small, q, K(q, 0));
  hlo_value none = hlo_exp(h, hlo_mul(h, low_n, hlo_log1p(h, hlo_neg(h, low_q))));
  hlo_value odds = hlo_div(h, low_q, hlo_sub(h, K(q, 1), low_q));
  hlo_value searched = search(h, pj_random_stream(l, random, 0), none, low_n, odds, binomial_ratio);
  proposal p = {.propose = propose_binomial, .random = pj_random_stream(l, random, 1), .parameters = 2};
  const hlo_value parameters[] = {hlo_select(h, small, K(n, 100), n), hlo_select(h, small, K(q, 0.5), q)};
  hlo_value drawn = hlo_select(h, small, searched, reject(h, &p, small, parameters));
  pj_return(l, 0, hlo_select(h, flipped, hlo_sub(h, n, drawn), drawn));
}

// ---- gamma ----------------------------------------------------------------------------------------------------------

// Marsaglia and Tsang (2000). parameters: d = shape - 1/3
static void propose_gamma(hlo *h, const proposal *p, const hlo_value *parameters, hlo_value *out_sample,
                          hlo_value *out_accepted) {
  hlo_value d = parameters[0], x = pj_random_normal(h, p->random, PJ_F32, p->rank, p->dims);
  hlo_value u = pj_random_open(h, second_block(h, p), PJ_F32, p->rank, p->dims);
  hlo_value root = hlo_add(h, K(d, 1), hlo_div(h, x, hlo_sqrt(h, hlo_mul(h, K(d, 9), d))));
  hlo_value v = hlo_mul(h, pj_square(h, root), root);
  hlo_value positive = hlo_gt(h, v, K(v, 0));
  hlo_value log_v = hlo_log(h, hlo_select(h, positive, v, K(v, 1)));
  hlo_value limit = hlo_add(h, hlo_mul(h, K(x, 0.5), pj_square(h, x)),
                            hlo_mul(h, d, hlo_add(h, hlo_sub(h, K(v, 1), v), log_v)));
  *out_sample = hlo_mul(h, d, v);
  *out_accepted = hlo_and(h, positive, hlo_lt(h, hlo_log(h, u), limit));
}

// Shapes below 1 are drawn with shape + 1 and scaled by u^(1 / shape). `log` gives the logarithm,
// which does not underflow.
static hlo_value gamma_sample(pj_lowering *l, hlo_value shape, bool log) {
  hlo *h = l->h;
  pj_random random = pj_random_begin(l);
  hlo_value small = hlo_lt(h, shape, K(shape, 1));
  hlo_value d = hlo_sub(h, hlo_select(h, small, hlo_add(h, shape, K(shape, 1)), shape), K(shape, 1.0 / 3));
  proposal p = {.propose = propose_gamma, .random = pj_random_stream(l, random, 0), .parameters = 1};
  hlo_value skip = hlo_not(h, hlo_and(h, hlo_gt(h, d, K(d, 0)), hlo_is_finite(h, d)));
  hlo_value sample = reject(h, &p, skip, &d);
  hlo_value u = pj_random_open(h, pj_random_stream(l, random, 1), PJ_F32, shape.rank, shape.dims);
  sample = hlo_select(h, skip, shape, sample);
  hlo_value log_boost = hlo_select(h, small, hlo_div(h, hlo_log(h, u), shape), K(shape, 0));
  return log ? hlo_add(h, hlo_log(h, sample), log_boost) : hlo_mul(h, sample, hlo_exp(h, log_boost));
}

static double smallest(pj_dtype dtype) { return dtype == PJ_F64 ? 0x1p-1022 : dtype == PJ_F16 ? 0x1p-14 : 0x1p-126; }

// aten::_standard_gamma(self, generator): never below the smallest normal number
static void lower_gamma(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value sample = hlo_convert(h, gamma_sample(l, pj_as(l, 0, PJ_F32), false), pj_result_math(l, 0));
  pj_return(l, 0, hlo_max(h, sample, K(sample, smallest(pj_result_type(l, 0).dtype))));
}

// aten::_sample_dirichlet(self, generator): gammas divided by their sum
static void lower_dirichlet(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value shape = pj_as(l, 0, PJ_F32);
  if (!pj_require(l, hlo_failed(h) || shape.rank > 0, PJ_INVALID_ARGUMENT,
                  "dirichlet wants at least one dimension"))
    return;
  int dim = shape.rank - 1;
  hlo_value log_sample = gamma_sample(l, shape, true);
  hlo_value e = hlo_exp(h, hlo_sub(h, log_sample, hlo_keep(h, hlo_reduce_max(h, log_sample, dim), dim)));
  pj_return(l, 0, hlo_div(h, e, hlo_keep(h, hlo_reduce_sum(h, e, dim), dim)));
}

#define RANDOM(name, lower) {name, lower, .flags = PJ_OP_RANDOM}

PJ_LOWERINGS(sampling_lowerings) = {
    RANDOM("aten::multinomial", lower_multinomial),
    RANDOM("aten::poisson", lower_poisson),
    RANDOM("aten::binomial", lower_binomial),
    RANDOM("aten::_standard_gamma", lower_gamma),
    RANDOM("aten::_sample_dirichlet", lower_dirichlet),
    {0},
};
