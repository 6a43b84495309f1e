// Overloads that draw random numbers. Preconditions on run-time numbers (0 < p < 1, std >= 0 ...) are the caller's: a
// program sees their dtype, never their value.
#include "ops/random.h"

#include <math.h>

#include "ops/elementwise.h"

#define K(x, value) pj_constant_like(h, (x), (value))

static hlo_value uniform(pj_lowering *l, pj_dtype dtype) {
  pj_type type = pj_result_type(l, 0);
  return pj_random_uniform(l->h, pj_random_begin(l), dtype, type.rank, type.dims);
}

static hlo_value open_uniform(pj_lowering *l) {
  pj_type type = pj_result_type(l, 0);
  pj_dtype dtype = type.dtype == PJ_F64 ? PJ_F64 : PJ_F32;
  return pj_random_open(l->h, pj_random_begin(l), dtype, type.rank, type.dims);
}

static hlo_value normal(pj_lowering *l) {
  pj_type type = pj_result_type(l, 0);
  return pj_random_normal(l->h, pj_random_begin(l), type.dtype, type.rank, type.dims);
}

// ---- uniform and normal ---------------------------------------------------------------------------------------------

// aten::rand(size, ...), rand_like(self, ...); complex types draw each part
static void lower_rand(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  if (!pj_dtype_is_complex(type.dtype)) return pj_return(l, 0, uniform(l, type.dtype));
  pj_dtype real = pj_real_dtype(type.dtype);
  pj_random random = pj_random_begin(l);
  hlo_value parts[2];
  for (uint32_t i = 0; i < 2; ++i)
    parts[i] = pj_random_uniform(h, pj_random_stream(l, random, i), real, type.rank, type.dims);
  pj_return(l, 0, hlo_complex(h, parts[0], parts[1]));
}

static void uniform_between(pj_lowering *l, int from, int to) {
  hlo *h = l->h;
  hlo_value u = uniform(l, pj_result_type(l, 0).dtype);
  hlo_value low = pj_number(l, from, u.dtype), high = pj_number(l, to, u.dtype);
  pj_return(l, 0, hlo_add(h, low, hlo_mul(h, u, hlo_sub(h, high, low))));
}

// aten::uniform(self, from, to, generator), prims::uniform(shape, low, high, ...)
static void lower_uniform(pj_lowering *l) { uniform_between(l, 1, 2); }

// aten::randn(size, ...), randn_like(self, ...)
static void lower_randn(pj_lowering *l) { pj_return(l, 0, normal(l)); }

// A mean that is a number is that of both parts of a complex result, a tensor's one of the whole.
static hlo_value normal_with(pj_lowering *l, int mean, int std) {
  hlo *h = l->h;
  hlo_value n = normal(l), center = pj_as(l, mean, n.dtype);
  if (pj_dtype_is_complex(n.dtype) && pj_kind(l, mean) != PJ_ARG_TENSOR)
    center = hlo_complex(h, hlo_real(h, center), hlo_real(h, center));
  return hlo_add(h, center, hlo_mul(h, pj_as(l, std, n.dtype), n));
}

// aten::normal.Tensor_Tensor(mean, std, generator)
static void lower_normal(pj_lowering *l) { pj_return(l, 0, normal_with(l, 0, 1)); }

// aten::normal_functional(self, mean, std, generator), prims::normal(shape, mean, std, ...)
static void lower_normal_functional(pj_lowering *l) { pj_return(l, 0, normal_with(l, 1, 2)); }

// ---- other continuous distributions ---------------------------------------------------------------------------------

// aten::log_normal(self, mean, std, generator): exp(normal)
static void lower_log_normal(pj_lowering *l) { pj_return(l, 0, hlo_exp(l->h, normal_with(l, 1, 2))); }

// aten::exponential(self, lambd, generator): -log(u) / lambd, never 0
static void lower_exponential(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value u = open_uniform(l);
  pj_return(l, 0, hlo_div(h, hlo_neg(h, hlo_log(h, u)), pj_number(l, 1, u.dtype)));
}

// aten::cauchy(self, median, sigma, generator): median + sigma tan(pi (u - 1/2))
static void lower_cauchy(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value u = open_uniform(l);
  hlo_value t = hlo_tan(h, hlo_mul(h, K(u, M_PI), hlo_sub(h, u, K(u, 0.5))));
  pj_return(l, 0, hlo_add(h, pj_number(l, 1, u.dtype), hlo_mul(h, pj_number(l, 2, u.dtype), t)));
}

// ---- discrete distributions -----------------------------------------------------------------------------------------

// aten::geometric(self, p, generator): ceil(log(u) / log(1 - p))
static void lower_geometric(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value u = open_uniform(l);
  hlo_value log_rest = hlo_log1p(h, hlo_neg(h, pj_number(l, 1, u.dtype)));
  pj_return(l, 0, hlo_ceil(h, hlo_div(h, hlo_log(h, u), log_rest)));
}

static hlo_value bernoulli(pj_lowering *l, int p) { return hlo_lt(l->h, uniform(l, PJ_F32), pj_as(l, p, PJ_F32)); }

// aten::bernoulli(self, generator): self holds the probabilities
static void lower_bernoulli(pj_lowering *l) { pj_return(l, 0, bernoulli(l, 0)); }

// aten::bernoulli.p(self, p, generator)
static void lower_bernoulli_p(pj_lowering *l) { pj_return(l, 0, bernoulli(l, 1)); }

// Uniform integers in [from, from + range), range 0 meaning 2^64. 32 bits are enough for a small range (PyTorch takes
// the remainder of 32 or 64 bits too).
static void return_integers(pj_lowering *l, int64_t from, uint64_t range) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  hlo_value bits[2], x;
  pj_random_bits(h, pj_random_begin(l), pj_type_elements(&type), bits);
  if (range && range <= UINT32_MAX) {
    x = hlo_convert(h, hlo_rem(h, bits[0], hlo_constant_int(h, PJ_U32, (int64_t)range)), PJ_S64);
  } else {
    hlo_value high = hlo_shl(h, hlo_convert(h, bits[0], PJ_U64), hlo_constant_int(h, PJ_U64, 32));
    x = hlo_or(h, high, hlo_convert(h, bits[1], PJ_U64));
    if (range) x = hlo_rem(h, x, hlo_constant_int(h, PJ_U64, (int64_t)range));
    x = hlo_convert(h, x, PJ_S64);
  }
  if (from) x = hlo_add(h, x, hlo_constant_int(h, PJ_S64, from));
  pj_return(l, 0, hlo_reshape(h, x, type.rank, type.dims));
}

static void integers_between(pj_lowering *l, int64_t from, int64_t to) {
  if (pj_require(l, from < to, PJ_INVALID_ARGUMENT,
                 "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
                 (long long)from, (long long)to))
    return_integers(l, from, (uint64_t)to - (uint64_t)from);
}

// The largest integer up to which a dtype holds all: what random_() without bounds draws from, inclusively.
static int64_t largest(pj_dtype dtype) {
  switch (dtype) {
    case PJ_PRED: return 1;
    case PJ_BF16: return 1 << 8;
    case PJ_F16: return 1 << 11;
    case PJ_F32: return 1 << 24;
    case PJ_F64: return (int64_t)1 << 53;
    default: break;
  }
  int bits = (int)pj_dtype_size(dtype) * 8 - (pj_dtype_is_signed(dtype) ? 1 : 0);
  return bits > 62 ? INT64_MAX : ((int64_t)1 << bits) - 1;
}

// aten::random(self, generator)
static void lower_random(pj_lowering *l) { return_integers(l, 0, (uint64_t)largest(pj_result_type(l, 0).dtype) + 1); }

// aten::random.to(self, to, generator), randint_like(self, high, ...)
static void lower_random_to(pj_lowering *l) { integers_between(l, 0, pj_int(l, 1)); }

// aten::random.from(self, from, to, generator): up to the dtype's largest integer without `to`
static void lower_random_from(pj_lowering *l) {
  int64_t from = pj_int(l, 1);
  if (pj_present(l, 2)) return integers_between(l, from, pj_int(l, 2));
  return_integers(l, from, (uint64_t)largest(pj_result_type(l, 0).dtype) - (uint64_t)from + 1);
}

// aten::randint(high, size, ...)
static void lower_randint(pj_lowering *l) { integers_between(l, 0, pj_int(l, 0)); }

// aten::randint.low(low, high, size, ...)
static void lower_randint_low(pj_lowering *l) { integers_between(l, pj_int(l, 0), pj_int(l, 1)); }

// aten::randint_like.low_dtype(self, low, high, ...)
static void lower_randint_like_low(pj_lowering *l) { integers_between(l, pj_int(l, 1), pj_int(l, 2)); }

static void first_is_less(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_lt(h, arguments[0], arguments[1]);
}

// aten::randperm(n, ...): the order of n random 64-bit numbers
static void lower_randperm(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  hlo_value bits[2];
  pj_random_bits(h, pj_random_begin(l), type.dims[0], bits);
  hlo_value high = hlo_shl(h, hlo_convert(h, bits[0], PJ_U64), hlo_constant_int(h, PJ_U64, 32));
  hlo_value operands[2] = {hlo_or(h, high, hlo_convert(h, bits[1], PJ_U64)), hlo_iota(h, PJ_S64, 1, type.dims, 0)};
  hlo_value sorted[2];
  hlo_sort(h, operands, 2, 0, false, first_is_less, NULL, sorted);
  pj_return(l, 0, sorted[1]);
}

// ---- dropout and noise ----------------------------------------------------------------------------------------------

// aten::native_dropout(input, p, train): input * mask / (1 - p), and the mask of what is kept
static void lower_dropout(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value x = pj_as(l, 0, dtype);
  if (pj_present(l, 2) && !pj_bool(l, 2)) {
    pj_return(l, 0, x);
    return pj_return(l, 1, hlo_full(h, PJ_PRED, x.rank, x.dims, 1));
  }
  hlo_value keep = hlo_sub(h, hlo_constant(h, PJ_F32, 1), pj_number(l, 1, PJ_F32));
  hlo_value mask = hlo_lt(h, uniform(l, PJ_F32), keep);
  hlo_value scale = hlo_select(h, hlo_eq(h, keep, K(keep, 0)), K(keep, 0), hlo_div(h, K(keep, 1), keep));
  pj_return(l, 0, hlo_mul(h, hlo_mul(h, x, hlo_convert(h, mask, dtype)), hlo_convert(h, scale, dtype)));
  pj_return(l, 1, mask);
}

// aten::native_dropout_backward(grad_output, mask, scale), _masked_scale(self, mask, scale)
static void lower_dropout_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value masked = hlo_mul(h, pj_as(l, 0, dtype), pj_as(l, 1, dtype));
  pj_return(l, 0, hlo_mul(h, masked, pj_number(l, 2, dtype)));
}

// aten::rrelu_with_noise_functional(self, noise, lower, upper, training, generator): the slope of negative elements is
// uniform in [lower, upper) in training, else its middle; the noise is the slope used
static void lower_rrelu(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  hlo_value x = pj_as(l, 0, pj_result_math(l, 0));
  hlo_value low = pj_number(l, 2, x.dtype), high = pj_number(l, 3, x.dtype), one = K(x, 1);
  hlo_value negative = hlo_le(h, x, K(x, 0));
  if (!pj_bool(l, 4)) {
    pj_return(l, 0, hlo_select(h, negative, hlo_mul(h, x, hlo_mul(h, hlo_add(h, low, high), K(x, 0.5))), x));
    return pj_return(l, 1, pj_tensor(l, 1));
  }
  hlo_value slope = hlo_add(h, low, hlo_mul(h, uniform(l, type.dtype), hlo_sub(h, high, low)));
  hlo_value noise = hlo_select(h, negative, slope, one);
  pj_return(l, 0, hlo_mul(h, x, noise));
  pj_return(l, 1, noise);
}

#define RANDOM(name, lower) {name, lower, .flags = PJ_OP_RANDOM}
#define RANDOM_IN_PLACE(name, lower) {name, lower, .flags = PJ_OP_RANDOM, .shape_only = PJ_SHAPE_ONLY(0)}

PJ_LOWERINGS(random_lowerings) = {
    RANDOM("aten::rand", lower_rand),
    RANDOM("aten::rand.generator", lower_rand),
    RANDOM_IN_PLACE("aten::rand_like", lower_rand),
    RANDOM_IN_PLACE("aten::rand_like.generator", lower_rand),
    RANDOM_IN_PLACE("aten::uniform", lower_uniform),
    RANDOM("prims::uniform", lower_uniform),
    RANDOM("aten::randn", lower_randn),
    RANDOM("aten::randn.generator", lower_randn),
    RANDOM_IN_PLACE("aten::randn_like", lower_randn),
    RANDOM_IN_PLACE("aten::randn_like.generator", lower_randn),
    RANDOM("aten::normal.Tensor_Tensor", lower_normal),
    RANDOM("aten::normal.Tensor_float", lower_normal),
    RANDOM("aten::normal.float_Tensor", lower_normal),
    RANDOM("aten::normal.float_float", lower_normal),
    RANDOM_IN_PLACE("aten::normal_functional", lower_normal_functional),
    RANDOM("prims::normal", lower_normal_functional),
    RANDOM_IN_PLACE("aten::log_normal", lower_log_normal),
    RANDOM_IN_PLACE("aten::exponential", lower_exponential),
    RANDOM_IN_PLACE("aten::cauchy", lower_cauchy),
    RANDOM_IN_PLACE("aten::geometric", lower_geometric),
    RANDOM("aten::bernoulli", lower_bernoulli),
    RANDOM_IN_PLACE("aten::bernoulli.p", lower_bernoulli_p),
    RANDOM_IN_PLACE("aten::bernoulli.Tensor", lower_bernoulli_p),
    RANDOM_IN_PLACE("aten::random", lower_random),
    RANDOM_IN_PLACE("aten::random.to", lower_random_to),
    RANDOM_IN_PLACE("aten::random.from", lower_random_from),
    RANDOM("aten::randint", lower_randint),
    RANDOM("aten::randint.generator", lower_randint),
    RANDOM("aten::randint.low", lower_randint_low),
    RANDOM("aten::randint.low_generator", lower_randint_low),
    RANDOM_IN_PLACE("aten::randint_like", lower_random_to),
    RANDOM_IN_PLACE("aten::randint_like.generator", lower_random_to),
    RANDOM_IN_PLACE("aten::randint_like.low_dtype", lower_randint_like_low),
    RANDOM_IN_PLACE("aten::randint_like.low_generator_dtype", lower_randint_like_low),
    RANDOM("aten::randperm", lower_randperm),
    RANDOM("aten::randperm.generator", lower_randperm),
    RANDOM("aten::native_dropout", lower_dropout),
    {"aten::native_dropout_backward", lower_dropout_backward},
    {"aten::_masked_scale", lower_dropout_backward},
    RANDOM("aten::rrelu_with_noise_functional", lower_rrelu),
    {0},
};
