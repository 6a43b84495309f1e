#include "ops/elementwise.h"

#include <math.h>
#include <string.h>

#define K(x, value) pj_constant_like(h, (x), (value))

static void unary(pj_lowering *l, pj_unary formula) {
  pj_return(l, 0, formula(l->h, pj_as(l, 0, pj_result_math(l, 0))));
}

// A gradient formula of (grad_output, self or output).
static void backward(pj_lowering *l, pj_binary formula) {
  pj_dtype dtype = pj_result_math(l, 0);
  pj_return(l, 0, formula(l->h, pj_as(l, 0, dtype), pj_as(l, 1, dtype)));
}

// ---- without parameters ---------------------------------------------------------------------------------------------

static hlo_value silu(hlo *h, hlo_value x) { return hlo_mul(h, x, pj_sigmoid(h, x)); }

// grad * s * (1 + x (1 - s)), s = sigmoid(x)
static hlo_value silu_backward(hlo *h, hlo_value grad, hlo_value x) {
  hlo_value s = pj_sigmoid(h, x);
  hlo_value slope = hlo_add(h, K(x, 1), hlo_mul(h, x, hlo_sub(h, K(x, 1), s)));
  return hlo_mul(h, grad, hlo_mul(h, s, slope));
}

// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))
static hlo_value log1p_exp(hlo *h, hlo_value x) {
  return hlo_add(h, pj_relu(h, x), hlo_log1p(h, hlo_exp(h, hlo_neg(h, hlo_abs(h, x)))));
}

static hlo_value mish(hlo *h, hlo_value x) { return hlo_mul(h, x, hlo_tanh(h, log1p_exp(h, x))); }

// grad * (t + x s (1 - t^2)), t = tanh(log1p(exp(x))), s = sigmoid(x)
static hlo_value mish_backward(hlo *h, hlo_value grad, hlo_value x) {
  hlo_value t = hlo_tanh(h, log1p_exp(h, x));
  hlo_value rest = hlo_sub(h, K(x, 1), pj_square(h, t));
  return hlo_mul(h, grad, hlo_add(h, t, hlo_mul(h, hlo_mul(h, x, hlo_logistic(h, x)), rest)));
}

static hlo_value relu6(hlo *h, hlo_value x) { return hlo_min(h, pj_relu(h, x), K(x, 6)); }
static hlo_value hardsigmoid(hlo *h, hlo_value x) { return hlo_div(h, relu6(h, hlo_add(h, x, K(x, 3))), K(x, 6)); }

static hlo_value hardswish(hlo *h, hlo_value x) {
  return hlo_div(h, hlo_mul(h, x, relu6(h, hlo_add(h, x, K(x, 3)))), K(x, 6));
}

// grad / 6 inside (-3, 3), 0 outside
static hlo_value hardsigmoid_backward(hlo *h, hlo_value grad, hlo_value x) {
  hlo_value inside = hlo_and(h, hlo_gt(h, x, K(x, -3)), hlo_lt(h, x, K(x, 3)));
  return hlo_select(h, inside, hlo_mul(h, grad, K(x, 1.0 / 6)), K(x, 0));
}

// 0 up to -3, grad from 3 on, grad * (x / 3 + 1 / 2) between
static hlo_value hardswish_backward(hlo *h, hlo_value grad, hlo_value x) {
  hlo_value middle = hlo_mul(h, grad, hlo_add(h, hlo_div(h, x, K(x, 3)), K(x, 0.5)));
  hlo_value upper = hlo_select(h, hlo_lt(h, x, K(x, 3)), middle, grad);
  return hlo_select(h, hlo_le(h, x, K(x, -3)), K(x, 0), upper);
}

static hlo_value conjugate(hlo *h, hlo_value x) { return pj_dtype_is_complex(x.dtype) ? hlo_conj(h, x) : x; }

// grad * y (1 - y)
static hlo_value sigmoid_backward(hlo *h, hlo_value grad, hlo_value y) {
  y = conjugate(h, y);
  return hlo_mul(h, grad, hlo_mul(h, y, hlo_sub(h, K(y, 1), y)));
}

// grad * (1 - y^2)
static hlo_value tanh_backward(hlo *h, hlo_value grad, hlo_value y) {
  return hlo_mul(h, grad, hlo_sub(h, K(y, 1), pj_square(h, conjugate(h, y))));
}

// grad * sigmoid(-x)
static hlo_value log_sigmoid_backward(hlo *h, hlo_value grad, hlo_value x) {
  return hlo_mul(h, grad, hlo_logistic(h, hlo_neg(h, x)));
}

static hlo_value prelu(hlo *h, hlo_value x, hlo_value weight) {
  return hlo_select(h, hlo_gt(h, x, K(x, 0)), x, hlo_mul(h, weight, x));
}

// X(ATen name, formula, how)
#define OPS(X) \
  X(relu, pj_relu, unary) X(silu, silu, unary) X(mish, mish, unary) X(hardsigmoid, hardsigmoid, unary) \
  X(hardswish, hardswish, unary) X(silu_backward, silu_backward, backward) X(mish_backward, mish_backward, backward) \
  X(hardsigmoid_backward, hardsigmoid_backward, backward) X(hardswish_backward, hardswish_backward, backward) \
  X(sigmoid_backward, sigmoid_backward, backward) X(tanh_backward, tanh_backward, backward) \
  X(log_sigmoid_backward, log_sigmoid_backward, backward) X(_prelu_kernel, prelu, backward)

#define DEFINE(name, formula, how) static void lower_##name(pj_lowering *l) { how(l, formula); }
OPS(DEFINE)

// aten::log_sigmoid_forward(self): min(x, 0) - log1p(exp(-|x|)), and the CPU's buffer exp(-|x|) where one is asked for
static void lower_log_sigmoid_forward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_as(l, 0, pj_result_math(l, 0));
  hlo_value z = hlo_exp(h, hlo_neg(h, hlo_abs(h, x)));
  pj_return(l, 0, hlo_sub(h, hlo_min(h, x, K(x, 0)), hlo_log1p(h, z)));
  pj_type buffer = pj_result_type(l, 1);
  pj_return(l, 1, pj_type_elements(&buffer) ? z : hlo_full(h, buffer.dtype, buffer.rank, buffer.dims, 0));
}

// aten::_prelu_kernel_backward(grad_output, self, weight): gradients of self and of the broadcast weight
static void lower_prelu_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = pj_as(l, 0, dtype), x = pj_as(l, 1, dtype), weight = pj_as(l, 2, dtype);
  hlo_value positive = hlo_gt(h, x, K(x, 0));
  pj_return(l, 0, hlo_select(h, positive, grad, hlo_mul(h, weight, grad)));
  pj_return(l, 1, hlo_select(h, positive, K(x, 0), hlo_mul(h, x, grad)));
}

// ---- GELU -----------------------------------------------------------------------------------------------------------

static bool is_tanh(pj_lowering *l, int argument) {
  const char *approximate = pj_string(l, argument);
  pj_require(l, !strcmp(approximate, "none") || !strcmp(approximate, "tanh"), PJ_INVALID_ARGUMENT,
             "approximate argument must be either none or tanh.");
  return !strcmp(approximate, "tanh");
}

// sqrt(2 / pi) (x + 0.044715 x^3)
static hlo_value gelu_inner(hlo *h, hlo_value x) {
  hlo_value cubic = hlo_mul(h, K(x, 0.044715), hlo_mul(h, pj_square(h, x), x));
  return hlo_mul(h, K(x, M_2_SQRTPI * M_SQRT1_2), hlo_add(h, x, cubic));
}

static hlo_value normal_cdf(hlo *h, hlo_value x) {
  return hlo_mul(h, K(x, 0.5), hlo_add(h, K(x, 1), hlo_erf(h, hlo_mul(h, x, K(x, M_SQRT1_2)))));
}

// aten::gelu(self, approximate): x cdf(x), or x (1 + tanh(inner)) / 2
static void lower_gelu(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_as(l, 0, pj_result_math(l, 0));
  hlo_value gate = is_tanh(l, 1) ? hlo_mul(h, K(x, 0.5), hlo_add(h, K(x, 1), hlo_tanh(h, gelu_inner(h, x))))
                                 : normal_cdf(h, x);
  pj_return(l, 0, hlo_mul(h, x, gate));
}

// aten::gelu_backward(grad_output, self, approximate): grad * (gate + x * d gate / dx)
static void lower_gelu_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = pj_as(l, 0, dtype), x = pj_as(l, 1, dtype), slope;
  if (is_tanh(l, 2)) {
    hlo_value t = hlo_tanh(h, gelu_inner(h, x));
    hlo_value gate = hlo_mul(h, K(x, 0.5), hlo_add(h, K(x, 1), t));
    hlo_value inner_slope = hlo_mul(h, K(x, M_2_SQRTPI * M_SQRT1_2),
                                    hlo_add(h, K(x, 1), hlo_mul(h, K(x, 3 * 0.044715), pj_square(h, x))));
    hlo_value gate_slope = hlo_mul(h, hlo_mul(h, K(x, 0.5), hlo_sub(h, K(x, 1), pj_square(h, t))), inner_slope);
    slope = hlo_add(h, gate, hlo_mul(h, x, gate_slope));
  } else {
    hlo_value density = hlo_mul(h, K(x, M_2_SQRTPI * M_SQRT1_2 * 0.5),
                                hlo_exp(h, hlo_mul(h, K(x, -0.5), pj_square(h, x))));
    slope = hlo_add(h, normal_cdf(h, x), hlo_mul(h, x, density));
  }
  pj_return(l, 0, hlo_mul(h, grad, slope));
}

// ---- with parameters ------------------------------------------------------------------------------------------------

// aten::leaky_relu(self, negative_slope)
static void lower_leaky_relu(pj_lowering *l) {
  pj_dtype dtype = pj_result_math(l, 0);
  pj_return(l, 0, prelu(l->h, pj_as(l, 0, dtype), pj_number(l, 1, dtype)));
}

// aten::leaky_relu_backward(grad_output, self, negative_slope, self_is_result)
static void lower_leaky_relu_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = pj_as(l, 0, dtype), x = pj_as(l, 1, dtype), slope = pj_number(l, 2, dtype);
  pj_return(l, 0, hlo_select(h, hlo_gt(h, x, K(x, 0)), grad, hlo_mul(h, grad, slope)));
}

// aten::elu(self, alpha, scale, input_scale): scale * (x > 0 ? x : alpha * expm1(input_scale * x))
static void lower_elu(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value x = pj_as(l, 0, dtype), alpha = pj_number(l, 1, dtype), scale = pj_number(l, 2, dtype);
  hlo_value negative = hlo_mul(h, alpha, hlo_expm1(h, hlo_mul(h, pj_number(l, 3, dtype), x)));
  pj_return(l, 0, hlo_mul(h, scale, hlo_select(h, hlo_gt(h, x, K(x, 0)), x, negative)));
}

// aten::elu_backward(grad_output, alpha, scale, input_scale, is_result, self_or_result)
static void lower_elu_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = pj_as(l, 0, dtype), x = pj_as(l, 5, dtype);
  hlo_value alpha = pj_number(l, 1, dtype), scale = pj_number(l, 2, dtype), input_scale = pj_number(l, 3, dtype);
  hlo_value alpha_scale = hlo_mul(h, alpha, scale);
  hlo_value slope = pj_bool(l, 4) ? hlo_add(h, x, alpha_scale)
                                  : hlo_mul(h, alpha_scale, hlo_exp(h, hlo_mul(h, input_scale, x)));
  hlo_value negative = hlo_mul(h, input_scale, slope);
  pj_return(l, 0, hlo_mul(h, grad, hlo_select(h, hlo_gt(h, x, K(x, 0)), scale, negative)));
}

// aten::celu(self, alpha): x > 0 ? x : alpha * expm1(x / alpha)
static void lower_celu(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value x = pj_as(l, 0, dtype), alpha = pj_number(l, 1, dtype);
  pj_return(l, 0, hlo_select(h, hlo_gt(h, x, K(x, 0)), x, hlo_mul(h, alpha, hlo_expm1(h, hlo_div(h, x, alpha)))));
}

// aten::softplus(self, beta, threshold): x beta > threshold ? x : log1p(exp(x beta)) / beta
static void lower_softplus(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value x = pj_as(l, 0, dtype), beta = pj_number(l, 1, dtype), threshold = pj_number(l, 2, dtype);
  hlo_value z = hlo_mul(h, x, beta);
  hlo_value soft = hlo_div(h, hlo_log1p(h, hlo_exp(h, z)), beta);
  pj_return(l, 0, hlo_select(h, hlo_gt(h, z, threshold), x, soft));
}

// aten::softplus_backward(grad_output, self, beta, threshold): x beta > threshold ? grad : grad * sigmoid(x beta)
static void lower_softplus_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = pj_as(l, 0, dtype), z = hlo_mul(h, pj_as(l, 1, dtype), pj_number(l, 2, dtype));
  pj_return(l, 0, hlo_select(h, hlo_gt(h, z, pj_number(l, 3, dtype)), grad, hlo_mul(h, grad, hlo_logistic(h, z))));
}

// aten::hardtanh(self, min_val, max_val)
static void lower_hardtanh(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  pj_return(l, 0, hlo_min(h, hlo_max(h, pj_as(l, 0, dtype), pj_number(l, 1, dtype)), pj_number(l, 2, dtype)));
}

// aten::hardtanh_backward(grad_output, self, min_val, max_val): grad strictly inside
static void lower_hardtanh_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = pj_as(l, 0, dtype), x = pj_as(l, 1, dtype);
  hlo_value outside = hlo_or(h, hlo_le(h, x, pj_number(l, 2, dtype)), hlo_ge(h, x, pj_number(l, 3, dtype)));
  pj_return(l, 0, hlo_select(h, outside, K(x, 0), grad));
}

// aten::threshold(self, threshold, value): x <= threshold ? value : x
static void lower_threshold(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value x = pj_as(l, 0, dtype);
  pj_return(l, 0, hlo_select(h, hlo_le(h, x, pj_number(l, 1, dtype)), pj_number(l, 2, dtype), x));
}

// aten::threshold_backward(grad_output, self, threshold): x <= threshold ? 0 : grad
static void lower_threshold_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = pj_as(l, 0, dtype), x = pj_as(l, 1, dtype);
  pj_return(l, 0, hlo_select(h, hlo_le(h, x, pj_number(l, 2, dtype)), K(x, 0), grad));
}

static hlo_value within(hlo *h, hlo_value x, hlo_value limit) {
  return hlo_and(h, hlo_ge(h, x, hlo_neg(h, limit)), hlo_le(h, x, limit));
}

// aten::hardshrink(self, lambd): 0 within [-lambd, lambd]
static void lower_hardshrink(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value x = pj_as(l, 0, dtype);
  pj_return(l, 0, hlo_select(h, within(h, x, pj_number(l, 1, dtype)), K(x, 0), x));
}

// aten::softshrink(self, lambd): x moved by lambd towards 0, NaN stays
static void lower_softshrink(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value x = pj_as(l, 0, dtype), limit = pj_number(l, 1, dtype);
  hlo_value moved = hlo_select(h, hlo_gt(h, x, K(x, 0)), hlo_sub(h, x, limit), hlo_add(h, x, limit));
  pj_return(l, 0, hlo_select(h, within(h, x, limit), K(x, 0), moved));
}

// aten::hardshrink_backward and softshrink_backward(grad_output, self, lambd): 0 within [-lambd, lambd]
static void lower_shrink_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = pj_as(l, 0, dtype), x = pj_as(l, 1, dtype);
  pj_return(l, 0, hlo_select(h, within(h, x, pj_number(l, 2, dtype)), K(x, 0), grad));
}

// aten::rrelu_with_noise_backward(grad_output, self, noise, lower, upper, training, self_is_result): the slope is the
// noise in training (unless it is all but 1), else the middle of the range
static void lower_rrelu_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = pj_as(l, 0, dtype), x = pj_as(l, 1, dtype);
  hlo_value low = pj_number(l, 3, dtype), high = pj_number(l, 4, dtype);
  hlo_value middle = hlo_mul(h, hlo_add(h, low, high), K(x, 0.5));
  hlo_value leaky = hlo_select(h, hlo_gt(h, x, K(x, 0)), grad, hlo_mul(h, grad, middle));
  if (pj_bool(l, 5)) {
    hlo_value is_range = hlo_gt(h, hlo_sub(h, high, low), K(x, 1e-6));
    leaky = hlo_select(h, is_range, hlo_mul(h, grad, pj_as(l, 2, dtype)), leaky);
  }
  pj_return(l, 0, leaky);
}

// ---- logit ----------------------------------------------------------------------------------------------------------

// aten::logit(self, eps): log(z / (1 - z)), z = x clamped to [eps, 1 - eps] when eps is given
static void lower_logit(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value z = pj_as(l, 0, pj_result_math(l, 0));
  if (pj_present(l, 1)) {
    hlo_value eps = pj_number(l, 1, z.dtype);
    z = hlo_min(h, hlo_max(h, z, eps), hlo_sub(h, K(z, 1), eps));
  }
  pj_return(l, 0, hlo_log(h, hlo_div(h, z, hlo_sub(h, K(z, 1), z))));
}

// aten::logit_backward(grad_output, self, eps): grad / (x (1 - x)); outside the range 0 with eps, NaN without
static void lower_logit_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = pj_as(l, 0, dtype), x = pj_as(l, 1, dtype);
  hlo_value eps = pj_present(l, 2) ? pj_number(l, 2, dtype) : K(x, 0);
  hlo_value outside = hlo_or(h, hlo_lt(h, x, eps), hlo_gt(h, x, hlo_sub(h, K(x, 1), eps)));
  hlo_value slope = hlo_div(h, grad, hlo_mul(h, x, hlo_sub(h, K(x, 1), x)));
  pj_return(l, 0, hlo_select(h, outside, K(x, pj_present(l, 2) ? 0 : NAN), slope));
}

// ---- GLU ------------------------------------------------------------------------------------------------------------

// The two halves of x along `dim`.
static bool halves(pj_lowering *l, hlo_value x, int dim, hlo_value *out_a, hlo_value *out_b) {
  if (hlo_failed(l->h)) return false;
  if (!pj_require(l, x.rank > 0, PJ_INVALID_ARGUMENT, "glu does not support 0-dimensional tensors")) return false;
  int64_t size = x.dims[dim];
  if (!pj_require(l, size % 2 == 0, PJ_INVALID_ARGUMENT,
                  "Halving dimension must be even, but dimension %d is size %lld",
                  dim, (long long)size))
    return false;
  *out_a = hlo_slice_dim(l->h, x, dim, 0, size / 2);
  *out_b = hlo_slice_dim(l->h, x, dim, size / 2, size);
  return true;
}

// aten::glu(self, dim): a * sigmoid(b)
static void lower_glu(pj_lowering *l) {
  hlo_value x = pj_as(l, 0, pj_result_math(l, 0)), a, b;
  if (halves(l, x, pj_dim(l, 1, x.rank), &a, &b)) pj_return(l, 0, hlo_mul(l->h, a, hlo_logistic(l->h, b)));
}

// aten::glu_backward(grad_output, self, dim): (grad s, grad a s (1 - s)), s = sigmoid(b)
static void lower_glu_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = pj_as(l, 0, dtype), x = pj_as(l, 1, dtype), a, b;
  int dim = pj_dim(l, 2, x.rank);
  if (!halves(l, x, dim, &a, &b)) return;
  hlo_value s = hlo_logistic(h, b);
  hlo_value grad_a = hlo_mul(h, grad, s);
  hlo_value grad_b = hlo_mul(h, hlo_mul(h, grad_a, a), hlo_sub(h, K(s, 1), s));
  pj_return(l, 0, hlo_concatenate(h, (const hlo_value[]){grad_a, grad_b}, 2, dim));
}

// aten::glu_jvp(glu, x, dx, dim): da s + glu (1 - s) db
static void lower_glu_jvp(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value glu = pj_as(l, 0, dtype), x = pj_as(l, 1, dtype), dx = pj_as(l, 2, dtype), a, b, da, db;
  int dim = pj_dim(l, 3, x.rank);
  if (!halves(l, x, dim, &a, &b) || !halves(l, dx, dim, &da, &db)) return;
  hlo_value s = hlo_logistic(h, b);
  pj_return(l, 0, hlo_add(h, hlo_mul(h, da, s), hlo_mul(h, glu, hlo_mul(h, hlo_sub(h, K(s, 1), s), db))));
}

#define ENTRY(name, formula, how) {"aten::" #name, lower_##name},

PJ_LOWERINGS(activation_lowerings) = {
    OPS(ENTRY)
    {"aten::log_sigmoid_forward", lower_log_sigmoid_forward},
    {"aten::_prelu_kernel_backward", lower_prelu_backward},
    {"aten::gelu", lower_gelu},
    {"aten::gelu_backward", lower_gelu_backward},
    {"aten::leaky_relu", lower_leaky_relu},
    {"aten::leaky_relu_backward", lower_leaky_relu_backward},
    {"aten::elu", lower_elu},
    {"aten::elu_backward", lower_elu_backward},
    {"aten::celu", lower_celu},
    {"aten::softplus", lower_softplus},
    {"aten::softplus_backward", lower_softplus_backward},
    {"aten::hardtanh", lower_hardtanh},
    {"aten::hardtanh_backward", lower_hardtanh_backward},
    {"aten::threshold", lower_threshold},
    {"aten::threshold_backward", lower_threshold_backward},
    {"aten::hardshrink", lower_hardshrink},
    {"aten::hardshrink_backward", lower_shrink_backward},
    {"aten::softshrink", lower_softshrink},
    {"aten::softshrink_backward", lower_shrink_backward},
    {"aten::rrelu_with_noise_backward", lower_rrelu_backward},
    {"aten::logit", lower_logit},
    {"aten::logit_backward", lower_logit_backward},
    {"aten::glu", lower_glu},
    {"aten::glu_backward", lower_glu_backward},
    {"aten::glu_jvp", lower_glu_jvp},
    {0},
};
