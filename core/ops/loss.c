#include "ops/elementwise.h"
#include "ops/index.h"

#define K(x, value) pj_constant_like(h, (x), (value))

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };  // at::Reduction

// Result 0 from the loss of each element.
static void return_reduced(pj_lowering *l, hlo_value loss, int64_t reduction) {
  hlo *h = l->h;
  if (reduction == REDUCE_NONE) return pj_return(l, 0, loss);
  hlo_value sum = hlo_reduce_all(h, HLO_ADD, loss);
  pj_return(l, 0, reduction == REDUCE_MEAN ? hlo_div(h, sum, K(sum, (double)hlo_size(loss))) : sum);
}

// grad_output as it reaches each of `count` elements.
static hlo_value share(pj_lowering *l, hlo_value grad, int64_t reduction, int64_t count) {
  return reduction == REDUCE_MEAN ? hlo_div(l->h, grad, pj_constant_like(l->h, grad, (double)count)) : grad;
}

static int64_t result_size(pj_lowering *l) {
  pj_type type = pj_result_type(l, 0);
  return pj_type_elements(&type);
}

// ---- losses of (self, target) pairs ---------------------------------------------------------------------------------

static hlo_value difference(pj_lowering *l, int self, pj_dtype dtype) {
  return hlo_sub(l->h, pj_as(l, self, dtype), pj_as(l, self + 1, dtype));
}

// aten::mse_loss(self, target, reduction): (self - target)^2
static void lower_mse(pj_lowering *l) {
  return_reduced(l, pj_square(l->h, difference(l, 0, pj_result_math(l, 0))), pj_int(l, 2));
}

// aten::mse_loss_backward(grad_output, self, target, reduction): 2 (self - target) grad
static void lower_mse_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = share(l, pj_as(l, 0, dtype), pj_int(l, 3), result_size(l)), x = difference(l, 1, dtype);
  pj_return(l, 0, hlo_mul(h, hlo_mul(h, K(x, 2), x), grad));
}

// aten::smooth_l1_loss(self, target, reduction, beta): z < beta ? z^2 / (2 beta) : z - beta / 2, z = |self - target|
static void lower_smooth_l1(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value z = hlo_abs(h, difference(l, 0, pj_result_math(l, 0))), beta = pj_number(l, 3, z.dtype);
  hlo_value inner = hlo_div(h, hlo_mul(h, K(z, 0.5), pj_square(h, z)), beta);
  hlo_value outer = hlo_sub(h, z, hlo_mul(h, K(z, 0.5), beta));
  return_reduced(l, hlo_select(h, hlo_lt(h, z, beta), inner, outer), pj_int(l, 2));
}

// The slope `inner` within (-limit, limit), -outer below and outer above.
static hlo_value two_sided(hlo *h, hlo_value x, hlo_value limit, hlo_value inner, hlo_value outer) {
  hlo_value upper = hlo_select(h, hlo_ge(h, x, limit), outer, inner);
  return hlo_select(h, hlo_le(h, x, hlo_neg(h, limit)), hlo_neg(h, outer), upper);
}

// aten::smooth_l1_loss_backward(grad_output, self, target, reduction, beta)
static void lower_smooth_l1_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = share(l, pj_as(l, 0, dtype), pj_int(l, 3), result_size(l));
  hlo_value x = difference(l, 1, dtype), beta = pj_number(l, 4, dtype);
  pj_return(l, 0, hlo_mul(h, two_sided(h, x, beta, hlo_div(h, x, beta), K(x, 1)), grad));
}

// aten::huber_loss(self, target, reduction, delta): z <= delta ? z^2 / 2 : delta (z - delta / 2), z = |self - target|
static void lower_huber(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value z = hlo_abs(h, difference(l, 0, pj_result_math(l, 0))), delta = pj_number(l, 3, z.dtype);
  hlo_value inner = hlo_mul(h, K(z, 0.5), pj_square(h, z));
  hlo_value outer = hlo_mul(h, delta, hlo_sub(h, z, hlo_mul(h, K(z, 0.5), delta)));
  return_reduced(l, hlo_select(h, hlo_le(h, z, delta), inner, outer), pj_int(l, 2));
}

// aten::huber_loss_backward(grad_output, self, target, reduction, delta)
static void lower_huber_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = share(l, pj_as(l, 0, dtype), pj_int(l, 3), result_size(l));
  hlo_value x = difference(l, 1, dtype), delta = pj_number(l, 4, dtype);
  pj_return(l, 0, hlo_mul(h, two_sided(h, x, delta, x, delta), grad));
}

// aten::soft_margin_loss(self, target, reduction): log(1 + exp(-target self))
static void lower_soft_margin(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value z = hlo_neg(h, hlo_mul(h, pj_as(l, 0, dtype), pj_as(l, 1, dtype)));
  hlo_value loss = pj_dtype_is_complex(dtype)
                       ? hlo_log1p(h, hlo_exp(h, z))
                       : hlo_add(h, pj_relu(h, z), hlo_log1p(h, hlo_exp(h, hlo_neg(h, hlo_abs(h, z)))));
  return_reduced(l, loss, pj_int(l, 2));
}

// aten::soft_margin_loss_backward(grad_output, self, target, reduction): -target sigmoid(-target self) grad
static void lower_soft_margin_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = share(l, pj_as(l, 0, dtype), pj_int(l, 3), result_size(l));
  hlo_value target = hlo_neg(h, pj_as(l, 2, dtype));
  hlo_value slope = hlo_mul(h, target, hlo_logistic(h, hlo_mul(h, target, pj_as(l, 1, dtype))));
  pj_return(l, 0, hlo_mul(h, slope, grad));
}

// aten::binary_cross_entropy(self, target, weight, reduction): -(t log x + (1 - t) log(1 - x)), logs not below -100
static void lower_bce(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value x = pj_as(l, 0, dtype), t = pj_as(l, 1, dtype);
  hlo_value log_x = hlo_max(h, hlo_log(h, x), K(x, -100));
  hlo_value log_rest = hlo_max(h, hlo_log1p(h, hlo_neg(h, x)), K(x, -100));
  hlo_value loss = hlo_sub(h, hlo_mul(h, hlo_sub(h, t, K(t, 1)), log_rest), hlo_mul(h, t, log_x));
  if (pj_present(l, 2)) loss = hlo_mul(h, loss, pj_as(l, 2, dtype));
  return_reduced(l, loss, pj_int(l, 3));
}

// aten::binary_cross_entropy_backward(grad_output, self, target, weight, reduction):
// (x - t) / max(x (1 - x), 1e-12) grad
static void lower_bce_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value grad = share(l, pj_as(l, 0, dtype), pj_int(l, 4), result_size(l));
  hlo_value x = pj_as(l, 1, dtype), t = pj_as(l, 2, dtype);
  hlo_value spread = hlo_max(h, hlo_mul(h, x, hlo_sub(h, K(x, 1), x)), K(x, 1e-12));
  hlo_value slope = hlo_div(h, hlo_mul(h, grad, hlo_sub(h, x, t)), spread);
  if (pj_present(l, 3)) slope = hlo_mul(h, slope, pj_as(l, 3, dtype));
  pj_return(l, 0, slope);
}

// aten::binary_cross_entropy_with_logits(self, target, weight, pos_weight, reduction):
// (1 - t) x + (1 + (pos_weight - 1) t) log(1 + exp(-x))
static void lower_bce_logits(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  hlo_value x = pj_as(l, 0, dtype), t = pj_as(l, 1, dtype);
  hlo_value soft = hlo_sub(h, hlo_log1p(h, hlo_exp(h, hlo_neg(h, hlo_abs(h, x)))), hlo_min(h, x, K(x, 0)));
  if (pj_present(l, 3)) {
    hlo_value positive = hlo_sub(h, pj_as(l, 3, dtype), K(x, 1));
    soft = hlo_mul(h, soft, hlo_add(h, K(x, 1), hlo_mul(h, positive, t)));
  }
  hlo_value loss = hlo_add(h, hlo_mul(h, hlo_sub(h, K(t, 1), t), x), soft);
  if (pj_present(l, 2)) loss = hlo_mul(h, loss, pj_as(l, 2, dtype));
  return_reduced(l, loss, pj_int(l, 4));
}

// ---- class losses ---------------------------------------------------------------------------------------------------

// Scores of classes and the class of each sample.
typedef struct classes {
  hlo_value x;        // scores
  int dim;            // of the classes
  hlo_value target;   // without `dim`
  hlo_value ignored;  // PRED, samples whose target is ignore_index
  hlo_value is_class; // PRED, of x's dims: the target's place. Nothing is ever read at a wrong target
} classes;

static bool read_classes(pj_lowering *l, int self, int64_t ignore_index, pj_dtype dtype, classes *out) {
  hlo *h = l->h;
  pj_dtype kind = pj_tensor_type(l, self + 1).dtype;
  pj_require(l, kind == PJ_S64 || kind == PJ_U8, PJ_INVALID_ARGUMENT, "expected classes of type Long or Byte, but found %s",
             pj_dtype_name(kind));
  hlo_value x = pj_as(l, self, dtype), target = pj_as(l, self + 1, PJ_S64);
  if (hlo_failed(h)) return false;
  if (x.rank == 0) x = hlo_keep(h, x, 0);
  int dim = x.rank == 1 ? 0 : 1;
  if (x.rank == 1 && target.rank == 1) target = hlo_reshape(h, target, 0, NULL);
  hlo_value ignored = hlo_eq(h, target, hlo_constant_int(h, PJ_S64, ignore_index));
  hlo_value safe = hlo_select(h, ignored, K(target, 0), target);
  if (hlo_size(target) > 0 && x.dims[dim] > 0) safe = pj_index_check_from_zero(l, safe, x.dims[dim]);
  hlo_value place = hlo_iota(h, safe.dtype, x.rank, x.dims, dim);
  *out = (classes){.x = x, .dim = dim, .target = safe, .ignored = ignored,
                   .is_class = hlo_eq(h, place, hlo_keep(h, safe, dim))};
  return !hlo_failed(h);
}

// Of a value per class and place, the one at each sample's class.
static hlo_value at_class(pj_lowering *l, const classes *c) {
  hlo *h = l->h;
  if (!hlo_size(c->target) || !c->x.dims[c->dim]) return hlo_full(h, c->x.dtype, c->target.rank, c->target.dims, 0);
  hlo_value index = hlo_keep(h, c->target, c->dim);
  return hlo_reshape(h, pj_take_along(l, c->x, index, c->dim), c->target.rank, c->target.dims);
}

// An optional 1-d tensor argument: a weight per class. Ones when it is absent.
static hlo_value weights(pj_lowering *l, int argument, const classes *c) {
  hlo *h = l->h;
  int64_t count = c->x.dims[c->dim];
  if (!pj_present(l, argument)) return hlo_full(h, c->x.dtype, 1, &count, 1);
  hlo_value weight = hlo_flatten(h, pj_as(l, argument, c->x.dtype));
  pj_require(l, hlo_failed(h) || weight.dims[0] == count, PJ_INVALID_ARGUMENT,
             "weight tensor should be defined either for all %lld classes or no classes but got weight tensor of shape: "
             "[%lld]", (long long)count, (long long)weight.dims[0]);
  return weight;
}

// The weights, laid along the classes' dimension of x.
static hlo_value class_weight(pj_lowering *l, int argument, const classes *c) {
  return hlo_broadcast_in_dim(l->h, weights(l, argument, c), c->x.rank, c->x.dims, &c->dim);
}

// The weight of each sample's class.
static hlo_value weight_at_class(pj_lowering *l, int argument, const classes *c) {
  hlo_value w = weights(l, argument, c);
  if (!pj_present(l, argument) || hlo_failed(l->h) || !hlo_size(c->target) || !hlo_size(w))
    return hlo_full(l->h, w.dtype, c->target.rank, c->target.dims, 1);
  return hlo_take(l->h, w, c->target, 0);
}

// aten::nll_loss_forward(self, target, weight, reduction, ignore_index): -w[t] x[t], and the sum of the w[t]
static void lower_nll(pj_lowering *l) {
  hlo *h = l->h;
  classes c;
  if (!read_classes(l, 0, pj_int(l, 4), pj_result_math(l, 0), &c)) return;
  hlo_value weight = weight_at_class(l, 2, &c), zero = K(c.x, 0);
  hlo_value loss = hlo_select(h, c.ignored, zero, hlo_neg(h, hlo_mul(h, at_class(l, &c), weight)));
  if (pj_int(l, 3) == REDUCE_NONE) {
    pj_return(l, 0, loss);
    return pj_return(l, 1, zero);
  }
  hlo_value total = hlo_reduce_all(h, HLO_ADD, hlo_select(h, c.ignored, zero, weight));
  hlo_value sum = hlo_reduce_all(h, HLO_ADD, loss);
  pj_return(l, 0, pj_int(l, 3) == REDUCE_MEAN ? hlo_div(h, sum, total) : sum);
  pj_return(l, 1, total);
}

// aten::nll_loss_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight): -w[t] grad at t
static void lower_nll_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  classes c;
  if (!read_classes(l, 1, pj_int(l, 5), dtype, &c)) return;
  hlo_value grad = hlo_neg(h, pj_as(l, 0, dtype)), used;
  if (pj_int(l, 4) == REDUCE_MEAN) grad = hlo_div(h, grad, hlo_reshape(h, pj_as(l, 6, dtype), 0, NULL));
  if (pj_int(l, 4) == REDUCE_NONE && grad.rank < c.x.rank)
    grad = hlo_keep(h, hlo_reshape(h, grad, c.target.rank, c.target.dims), c.dim);
  used = hlo_and(h, c.is_class, hlo_not(h, hlo_keep(h, c.ignored, c.dim)));
  hlo_value slope = hlo_broadcast_like(h, hlo_mul(h, grad, class_weight(l, 3, &c)), c.x);
  pj_return(l, 0, hlo_select(h, used, slope, K(c.x, 0)));
}

// The hinge margin - x[t] + x[j] of every other class j, and 0 at t, in *out_z; w[t] / classes, kept along the classes'
// dimension, in *out_scale.
static void margins(pj_lowering *l, const classes *c, int margin, int weight, hlo_value *out_z, hlo_value *out_scale) {
  hlo *h = l->h;
  hlo_value target_score = hlo_keep(h, at_class(l, c), c->dim);
  hlo_value z = hlo_add(h, hlo_sub(h, pj_number(l, margin, c->x.dtype), target_score), c->x);
  *out_z = hlo_select(h, c->is_class, K(z, 0), pj_relu(h, z));
  hlo_value used = weight_at_class(l, weight, c);
  *out_scale = hlo_keep(h, hlo_div(h, used, K(z, (double)c->x.dims[c->dim])), c->dim);
}

static bool margin_power(pj_lowering *l, int argument, double *out_p) {
  *out_p = pj_float(l, argument);
  return pj_require(l, *out_p == 1 || *out_p == 2, PJ_INVALID_ARGUMENT, "only p == 1 and p == 2 supported");
}

// aten::multi_margin_loss(self, target, p, margin, weight, reduction): sum over j != t of
// w[t] max(0, margin - x[t] + x[j])^p / classes
static void lower_multi_margin(pj_lowering *l) {
  hlo *h = l->h;
  classes c;
  double p;
  hlo_value z, scale;
  if (!margin_power(l, 2, &p) || !read_classes(l, 0, -1, pj_result_math(l, 0), &c)) return;
  margins(l, &c, 3, 4, &z, &scale);
  hlo_value loss = hlo_reduce_sum(h, hlo_mul(h, pj_pow_constant(h, z, p), scale), c.dim);
  pj_type type = pj_result_type(l, 0);
  if (pj_int(l, 5) == REDUCE_NONE) return pj_return(l, 0, hlo_reshape(h, loss, type.rank, type.dims));
  return_reduced(l, loss, pj_int(l, 5));
}

// aten::multi_margin_loss_backward(grad_output, self, target, p, margin, weight, reduction)
static void lower_multi_margin_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  classes c;
  double p;
  hlo_value z, scale;
  if (!margin_power(l, 3, &p) || !read_classes(l, 1, -1, dtype, &c)) return;
  margins(l, &c, 4, 5, &z, &scale);
  hlo_value active = hlo_convert(h, hlo_gt(h, z, K(z, 0)), dtype);
  hlo_value slope = hlo_mul(h, p == 1 ? active : hlo_mul(h, K(z, 2), z), scale);
  slope = hlo_select(h, c.is_class, hlo_neg(h, hlo_keep(h, hlo_reduce_sum(h, slope, c.dim), c.dim)), slope);
  int64_t samples = hlo_size(c.target);
  hlo_value grad = share(l, pj_as(l, 0, dtype), pj_int(l, 6), samples);
  if (pj_int(l, 6) == REDUCE_NONE) grad = hlo_keep(h, hlo_reshape(h, grad, c.target.rank, c.target.dims), c.dim);
  pj_type type = pj_result_type(l, 0);
  pj_return(l, 0, hlo_reshape(h, hlo_mul(h, slope, grad), type.rank, type.dims));
}

// The multilabel losses' [samples, labels k, classes j] table of hinges 1 - x[t_k] + x[j], 0 where k is past the first
// -1 or j is itself a label; `is_label` [samples, labels, classes] tells t_k == j.
typedef struct multilabel {
  int64_t samples, count;
  hlo_value is_label, is_target, hinge;
} multilabel;

static bool read_multilabel(pj_lowering *l, int self, pj_dtype dtype, multilabel *out) {
  hlo *h = l->h;
  hlo_value x = pj_as(l, self, dtype), target = pj_as(l, self + 1, PJ_S64);
  if (hlo_failed(h)) return false;
  if (!pj_require(l, x.rank <= 2, PJ_INVALID_ARGUMENT,
                  "Expected non-empty vector or matrix with optional 0-dim batch size"))
    return false;
  int64_t count = x.rank ? x.dims[x.rank - 1] : 1, samples = x.rank == 2 ? x.dims[0] : 1;
  if (!pj_require(l, hlo_size(target) == hlo_size(x), PJ_INVALID_ARGUMENT, "inconsistent target size")) return false;
  const int64_t flat[] = {samples, count}, table[] = {samples, count, count};
  x = hlo_reshape(h, x, 2, flat);
  target = hlo_reshape(h, target, 2, flat);
  hlo_value valid = hlo_scan(h, HLO_AND, hlo_ge(h, target, K(target, 0)), 1);
  hlo_value label = hlo_select(h, valid, target, K(target, 0));
  if (samples && count) label = pj_index_check_from_zero(l, label, count);
  hlo_value is_label = hlo_and(h, hlo_eq(h, hlo_keep(h, label, 2), hlo_iota(h, label.dtype, 3, table, 2)),
                               hlo_keep(h, valid, 2));
  hlo_value is_target = hlo_reduce(h, HLO_OR, is_label, (const int[]){1}, 1);
  hlo_value scores = hlo_keep(h, x, 1);
  hlo_value label_score = hlo_reduce_sum(h, hlo_select(h, is_label, scores, K(x, 0)), 2);
  hlo_value hinge = pj_relu(h, hlo_add(h, hlo_sub(h, K(x, 1), hlo_keep(h, label_score, 2)), scores));
  hlo_value used = hlo_and(h, hlo_keep(h, valid, 2), hlo_not(h, hlo_keep(h, is_target, 1)));
  *out = (multilabel){samples, count, is_label, is_target, hlo_select(h, used, hinge, K(x, 0))};
  return !hlo_failed(h);
}

// aten::multilabel_margin_loss_forward(self, target, reduction): sum of the hinges / classes, and which are labels
static void lower_multilabel_margin(pj_lowering *l) {
  hlo *h = l->h;
  multilabel m;
  if (!read_multilabel(l, 0, pj_result_math(l, 0), &m)) return;
  hlo_value sum = hlo_reduce(h, HLO_ADD, m.hinge, (const int[]){1, 2}, 2);
  hlo_value loss = hlo_div(h, sum, K(sum, (double)m.count));
  pj_type output = pj_result_type(l, 0), is_target = pj_result_type(l, 1);
  if (pj_int(l, 2) == REDUCE_NONE)
    pj_return(l, 0, hlo_reshape(h, loss, output.rank, output.dims));
  else
    return_reduced(l, loss, pj_int(l, 2));
  pj_return(l, 1, hlo_reshape(h, m.is_target, is_target.rank, is_target.dims));
}

// aten::multilabel_margin_loss_backward(grad_output, self, target, reduction, is_target): each active hinge pulls its
// label down and its class up
static void lower_multilabel_margin_backward(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_math(l, 0);
  multilabel m;
  if (!read_multilabel(l, 1, dtype, &m)) return;
  hlo_value active = hlo_convert(h, hlo_gt(h, m.hinge, K(m.hinge, 0)), dtype);
  hlo_value per_label = hlo_keep(h, hlo_reduce_sum(h, active, 2), 2);
  hlo_value down = hlo_reduce_sum(h, hlo_select(h, m.is_label, per_label, K(active, 0)), 1);
  hlo_value slope = hlo_sub(h, hlo_reduce_sum(h, active, 1), down);
  hlo_value grad = share(l, pj_as(l, 0, dtype), pj_int(l, 3), m.samples);
  if (pj_int(l, 3) == REDUCE_NONE) grad = hlo_reshape(h, grad, 2, (const int64_t[]){m.samples, 1});
  pj_type type = pj_result_type(l, 0);
  hlo_value scaled = hlo_mul(h, hlo_div(h, slope, K(slope, (double)m.count)), grad);
  pj_return(l, 0, hlo_reshape(h, scaled, type.rank, type.dims));
}

PJ_LOWERINGS(loss_lowerings) = {
    {"aten::mse_loss", lower_mse},
    {"aten::mse_loss_backward", lower_mse_backward},
    {"aten::smooth_l1_loss", lower_smooth_l1},
    {"aten::smooth_l1_loss_backward", lower_smooth_l1_backward},
    {"aten::huber_loss", lower_huber},
    {"aten::huber_loss_backward", lower_huber_backward},
    {"aten::soft_margin_loss", lower_soft_margin},
    {"aten::soft_margin_loss_backward", lower_soft_margin_backward},
    {"aten::binary_cross_entropy", lower_bce},
    {"aten::binary_cross_entropy_backward", lower_bce_backward},
    {"aten::binary_cross_entropy_with_logits", lower_bce_logits},
    {"aten::nll_loss_forward", lower_nll},
    {"aten::nll_loss_backward", lower_nll_backward},
    {"aten::nll_loss2d_forward", lower_nll},
    {"aten::nll_loss2d_backward", lower_nll_backward},
    {"aten::multi_margin_loss", lower_multi_margin, .statics = PJ_STATIC(2)},
    {"aten::multi_margin_loss_backward", lower_multi_margin_backward, .flags = PJ_OP_DYNAMIC, .statics = PJ_STATIC(3)},
    {"aten::multilabel_margin_loss_forward", lower_multilabel_margin},
    {"aten::multilabel_margin_loss_backward", lower_multilabel_margin_backward, .flags = PJ_OP_DYNAMIC},
    {0},
};
