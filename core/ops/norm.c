#include <float.h>

#include "ops/reduce.h"

// Statistics are computed in float32 for half inputs; weights and biases may have another dtype than the input.
static hlo_value wide(pj_lowering *l, int argument) {
  hlo_value x = pj_tensor(l, argument);
  return hlo_convert(l->h, x, pj_math_dtype(x.dtype));
}

// An optional per-channel or per-element factor in the dtype of x, with x's rank: one dimension (`channel`) or, for
// channel < 0, aligned at the last.
static hlo_value factor(pj_lowering *l, int argument, hlo_value x, int channel) {
  hlo_value w = hlo_convert(l->h, pj_tensor(l, argument), x.dtype);
  return channel < 0 ? w : hlo_broadcast_in_dim(l->h, w, x.rank, x.dims, &channel);
}

// y * weight + bias, each optional
static hlo_value affine(pj_lowering *l, hlo_value y, int weight, int bias, int channel) {
  if (pj_present(l, weight)) y = hlo_mul(l->h, y, factor(l, weight, y, channel));
  if (pj_present(l, bias)) y = hlo_add(l->h, y, factor(l, bias, y, channel));
  return y;
}

typedef struct moments {
  hlo_value mean, variance, off;  // off: x - mean
} moments;

static moments moments_of(hlo *h, hlo_value x, const pj_axes *axes) {
  moments m;
  m.mean = pj_mean(h, x, axes);
  m.off = hlo_sub(h, x, pj_spread(h, m.mean, x, axes));
  m.variance = pj_mean(h, hlo_mul(h, m.off, m.off), axes);
  return m;
}

static hlo_value reciprocal_deviation(pj_lowering *l, hlo_value variance, int eps) {
  return hlo_rsqrt(l->h, hlo_add(l->h, variance, pj_number(l, eps, variance.dtype)));
}

// rstd * (g - mean(g) - y * mean(g * y)): the gradient through y = (x - mean) * rstd
static hlo_value normalized_backward(hlo *h, hlo_value g, hlo_value y, hlo_value rstd, const pj_axes *axes) {
  hlo_value mean = pj_spread(h, pj_mean(h, g, axes), g, axes);
  hlo_value slope = pj_spread(h, pj_mean(h, hlo_mul(h, g, y), axes), g, axes);
  return hlo_mul(h, hlo_sub(h, hlo_sub(h, g, mean), hlo_mul(h, y, slope)), rstd);
}

// ---- layer norm -----------------------------------------------------------------------------------------------------

static pj_axes normalized_axes(pj_lowering *l, int argument, int rank) {
  return pj_axes_from(rank - pj_list_count(l, argument), rank);
}

// aten::native_layer_norm(input, normalized_shape, weight, bias, eps): (x - mean) * rstd * weight + bias
static void lower_layer_norm(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = wide(l, 0);
  pj_axes axes = normalized_axes(l, 1, x.rank);
  moments m = moments_of(h, x, &axes);
  hlo_value rstd = reciprocal_deviation(l, m.variance, 4);
  pj_return(l, 0, affine(l, hlo_mul(h, m.off, pj_spread(h, rstd, x, &axes)), 2, 3, -1));
  pj_return_reshaped(l, 1, m.mean);
  pj_return_reshaped(l, 2, rstd);
}

// aten::native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
static void lower_layer_norm_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = wide(l, 0), x = wide(l, 1);
  hlo_value mean = hlo_convert(h, pj_tensor(l, 3), x.dtype), rstd = hlo_convert(h, pj_tensor(l, 4), x.dtype);
  pj_axes axes = normalized_axes(l, 2, x.rank), outer = pj_axes_from(0, x.rank - axes.count);
  hlo_value y = hlo_mul(h, hlo_sub(h, x, mean), rstd);
  int out = pj_gradient(l, 7, 0);
  if (out >= 0) {
    hlo_value g = pj_present(l, 5) ? hlo_mul(h, grad, factor(l, 5, x, -1)) : grad;
    pj_return(l, out, normalized_backward(h, g, y, rstd, &axes));
  }
  if ((out = pj_gradient(l, 7, 1)) >= 0) pj_return_reshaped(l, out, pj_reduce(h, HLO_ADD, hlo_mul(h, grad, y), &outer));
  if ((out = pj_gradient(l, 7, 2)) >= 0) pj_return_reshaped(l, out, pj_reduce(h, HLO_ADD, grad, &outer));
}

// ---- RMS norm -------------------------------------------------------------------------------------------------------

// aten::_fused_rms_norm(input, normalized_shape, weight, eps): x * rstd * weight, rstd = rsqrt(mean(x^2) + eps)
static void lower_rms_norm(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = wide(l, 0);
  pj_axes axes = normalized_axes(l, 1, x.rank);
  // PyTorch's default is the machine epsilon of the dtype that it computes in (float32 for half types).
  double epsilon = x.dtype == PJ_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
  hlo_value eps = pj_present(l, 3) ? pj_number(l, 3, x.dtype) : pj_full_like(h, x, epsilon);
  hlo_value rstd = hlo_rsqrt(h, hlo_add(h, pj_mean(h, hlo_mul(h, x, x), &axes), eps));
  pj_return(l, 0, affine(l, hlo_mul(h, x, pj_spread(h, rstd, x, &axes)), 2, -1, -1));
  pj_return_reshaped(l, 1, rstd);
}

// aten::_fused_rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, output_mask):
// rstd * (g - y * mean(g * y)) with g = grad * weight and y = x * rstd
static void lower_rms_norm_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = wide(l, 0), x = wide(l, 1), rstd = hlo_convert(h, pj_tensor(l, 3), x.dtype);
  pj_axes axes = normalized_axes(l, 2, x.rank), outer = pj_axes_from(0, x.rank - axes.count);
  hlo_value y = hlo_mul(h, x, rstd);
  int out = pj_gradient(l, 5, 0);
  if (out >= 0) {
    hlo_value g = pj_present(l, 4) ? hlo_mul(h, grad, factor(l, 4, x, -1)) : grad;
    hlo_value slope = pj_spread(h, pj_mean(h, hlo_mul(h, g, y), &axes), g, &axes);
    pj_return(l, out, hlo_mul(h, hlo_sub(h, g, hlo_mul(h, y, slope)), rstd));
  }
  if ((out = pj_gradient(l, 5, 1)) >= 0) pj_return_reshaped(l, out, pj_reduce(h, HLO_ADD, hlo_mul(h, grad, y), &outer));
}

// ---- group norm -----------------------------------------------------------------------------------------------------

// [N, C, *] as [N, group, C / group, HxW]
static hlo_value as_groups(hlo *h, hlo_value x, int64_t n, int64_t c, int64_t hxw, int64_t group) {
  return hlo_reshape(h, x, 4, (int64_t[]){n, group, c / group, hxw});
}

static hlo_value per_channel(pj_lowering *l, int argument, hlo_value grouped) {
  hlo_value w = hlo_convert(l->h, pj_tensor(l, argument), grouped.dtype);
  return hlo_reshape(l->h, w, 4, (int64_t[]){1, grouped.dims[1], grouped.dims[2], 1});
}

static const pj_axes WITHIN_GROUP = {.dims = {2, 3}, .count = 2};
static const pj_axes BATCH_AND_SPACE = {.dims = {0, 3}, .count = 2};

// aten::native_group_norm(input, weight, bias, N, C, HxW, group, eps)
static void lower_group_norm(pj_lowering *l) {
  hlo *h = l->h;
  int64_t group = pj_int(l, 6);
  if (!pj_require(l, group > 0 && pj_int(l, 4) % group == 0, PJ_INVALID_ARGUMENT,
                  "Expected number of channels in input to be divisible by num_groups")) return;
  hlo_value x = as_groups(h, wide(l, 0), pj_int(l, 3), pj_int(l, 4), pj_int(l, 5), group);
  moments m = moments_of(h, x, &WITHIN_GROUP);
  hlo_value rstd = reciprocal_deviation(l, m.variance, 7);
  hlo_value y = hlo_mul(h, m.off, pj_spread(h, rstd, x, &WITHIN_GROUP));
  if (pj_present(l, 1)) y = hlo_mul(h, y, per_channel(l, 1, x));
  if (pj_present(l, 2)) y = hlo_add(h, y, per_channel(l, 2, x));
  pj_return_reshaped(l, 0, y);
  pj_return(l, 1, m.mean);
  pj_return(l, 2, rstd);
}

// aten::native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
static void lower_group_norm_backward(pj_lowering *l) {
  hlo *h = l->h;
  int64_t n = pj_int(l, 5), c = pj_int(l, 6), hxw = pj_int(l, 7), group = pj_int(l, 8);
  if (!pj_require(l, group > 0 && c % group == 0, PJ_INVALID_ARGUMENT,
                  "Expected number of channels in input to be divisible by num_groups")) return;
  hlo_value grad = as_groups(h, wide(l, 0), n, c, hxw, group), x = as_groups(h, wide(l, 1), n, c, hxw, group);
  hlo_value mean = pj_spread(h, hlo_convert(h, pj_tensor(l, 2), x.dtype), x, &WITHIN_GROUP);
  hlo_value rstd = pj_spread(h, hlo_convert(h, pj_tensor(l, 3), x.dtype), x, &WITHIN_GROUP);
  hlo_value y = hlo_mul(h, hlo_sub(h, x, mean), rstd);
  int out = pj_gradient(l, 9, 0);
  if (out >= 0) {
    hlo_value g = pj_present(l, 4) ? hlo_mul(h, grad, per_channel(l, 4, x)) : grad;
    pj_return_reshaped(l, out, normalized_backward(h, g, y, rstd, &WITHIN_GROUP));
  }
  if ((out = pj_gradient(l, 9, 1)) >= 0)
    pj_return_reshaped(l, out, pj_reduce(h, HLO_ADD, hlo_mul(h, grad, y), &BATCH_AND_SPACE));
  if ((out = pj_gradient(l, 9, 2)) >= 0) pj_return_reshaped(l, out, pj_reduce(h, HLO_ADD, grad, &BATCH_AND_SPACE));
}

// ---- batch norm -----------------------------------------------------------------------------------------------------

enum { CHANNEL = 1 };

static pj_axes all_but_channel(int rank) {
  pj_axes axes = {.dims = {0}, .count = 1};
  for (int d = 2; d < rank; ++d) axes.dims[axes.count++] = d;
  return axes;
}

// (1 - momentum) * running + momentum * statistic
static hlo_value running(pj_lowering *l, int argument, hlo_value statistic, hlo_value momentum) {
  hlo *h = l->h;
  hlo_value old = hlo_convert(h, pj_tensor(l, argument), statistic.dtype);
  return hlo_add(h, hlo_mul(h, hlo_sub(h, pj_full_like(h, momentum, 1), momentum), old),
                 hlo_mul(h, momentum, statistic));
}

// Where the arguments and results of the batch norm overloads stand; NONE where there is none.
enum { NONE = -1 };
typedef struct batch_norm_places {
  int running_mean, running_var, momentum, eps, running_mean_out, running_var_out;
} batch_norm_places;

static void batch_norm(pj_lowering *l, bool training, const batch_norm_places *at) {
  hlo *h = l->h;
  hlo_value x = wide(l, 0);
  if (!pj_require(l, x.rank >= 2, PJ_INVALID_ARGUMENT, "batch_norm: expected at least 2 dimensions, got %d", x.rank))
    return;
  if (!pj_require(l, training || (pj_present(l, at->running_mean) && pj_present(l, at->running_var)),
                  PJ_INVALID_ARGUMENT, "Expected running_mean and running_var to be defined when training=False"))
    return;
  pj_axes axes = all_but_channel(x.rank);
  int64_t n = pj_axes_size(x, &axes);
  moments m;
  if (training) {
    m = moments_of(h, x, &axes);
  } else {
    m.mean = hlo_convert(h, pj_tensor(l, at->running_mean), x.dtype);
    m.variance = hlo_convert(h, pj_tensor(l, at->running_var), x.dtype);
    m.off = hlo_sub(h, x, pj_spread(h, m.mean, x, &axes));
  }
  hlo_value rstd = reciprocal_deviation(l, m.variance, at->eps);
  pj_return(l, 0, affine(l, hlo_mul(h, m.off, pj_spread(h, rstd, x, &axes)), 1, 2, CHANNEL));
  // CUDA's convention, which the meta kernels follow: in evaluation the saved statistics are those that were used.
  pj_return(l, 1, m.mean);
  pj_return(l, 2, rstd);
  if (at->running_mean_out == NONE || !pj_wanted(l, at->running_mean_out)) return;
  if (!training) {
    pj_return(l, at->running_mean_out, m.mean);
    pj_return(l, at->running_var_out, m.variance);
    return;
  }
  hlo_value momentum = pj_number(l, at->momentum, x.dtype);
  pj_return(l, at->running_mean_out, running(l, at->running_mean, m.mean, momentum));
  // the running variance is the unbiased one
  hlo_value unbiased = pj_scale(h, m.variance, (double)n / ((double)n - 1));
  pj_return(l, at->running_var_out, running(l, at->running_var, unbiased, momentum));
}

static const batch_norm_places FUNCTIONAL = {3, 4, 6, 7, 3, 4};
static const batch_norm_places NO_STATS = {NONE, NONE, 4, 5, NONE, NONE};
static const batch_norm_places NO_TRAINING = {3, 4, 5, 6, NONE, NONE};
static const batch_norm_places WITH_UPDATE = {3, 4, 5, 6, 4, 5};

// aten::_native_batch_norm_legit_functional(input, weight, bias, running_mean, running_var, training, momentum, eps)
static void lower_batch_norm(pj_lowering *l) { batch_norm(l, pj_bool(l, 5), &FUNCTIONAL); }

// aten::_native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps): always the batch's statistics
static void lower_batch_norm_no_stats(pj_lowering *l) { batch_norm(l, true, &NO_STATS); }

static void lower_batch_norm_no_training(pj_lowering *l) { batch_norm(l, false, &NO_TRAINING); }

// The byte that _batch_norm_with_update keeps for cuDNN; always empty here.
static void return_reserve(pj_lowering *l) {
  if (pj_wanted(l, 3)) pj_return(l, 3, hlo_full(l->h, PJ_U8, 1, (int64_t[]){0}, 0));
}

static void lower_batch_norm_no_update(pj_lowering *l) {
  batch_norm(l, !pj_present(l, 3), &NO_TRAINING);
  return_reserve(l);
}

static void lower_batch_norm_with_update(pj_lowering *l) {
  batch_norm(l, true, &WITH_UPDATE);
  return_reserve(l);
}

// grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps: the gradients of input,
// weight and bias
static void batch_norm_backward(pj_lowering *l, bool training) {
  hlo *h = l->h;
  hlo_value grad = wide(l, 0), x = wide(l, 1);
  pj_axes axes = all_but_channel(x.rank);
  hlo_value mean = hlo_convert(h, pj_tensor(l, training ? 5 : 3), x.dtype);
  hlo_value rstd = training ? hlo_convert(h, pj_tensor(l, 6), x.dtype)
                            : reciprocal_deviation(l, hlo_convert(h, pj_tensor(l, 4), x.dtype), 8);
  rstd = pj_spread(h, rstd, x, &axes);
  hlo_value y = hlo_mul(h, hlo_sub(h, x, pj_spread(h, mean, x, &axes)), rstd);
  int out = pj_gradient(l, 9, 0);
  if (out >= 0) {
    hlo_value g = pj_present(l, 2) ? hlo_mul(h, grad, factor(l, 2, x, CHANNEL)) : grad;
    pj_return(l, out, training ? normalized_backward(h, g, y, rstd, &axes) : hlo_mul(h, g, rstd));
  }
  if ((out = pj_gradient(l, 9, 1)) >= 0) pj_return(l, out, pj_reduce(h, HLO_ADD, hlo_mul(h, grad, y), &axes));
  if ((out = pj_gradient(l, 9, 2)) >= 0) pj_return(l, out, pj_reduce(h, HLO_ADD, grad, &axes));
}

static void lower_batch_norm_backward(pj_lowering *l) { batch_norm_backward(l, pj_bool(l, 7)); }

// ---- weight norm ----------------------------------------------------------------------------------------------------

static pj_axes all_but(int dim, int rank) {
  pj_axes axes = {.count = 0};
  for (int d = 0; d < rank; ++d)
    if (d != dim) axes.dims[axes.count++] = d;
  return axes;
}

// aten::_weight_norm_interface(v, g, dim): (v * g / norm, norm), the norm of v over all dimensions but `dim`
static void lower_weight_norm(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value v = wide(l, 0);
  pj_axes axes = all_but(pj_dim(l, 2, v.rank), v.rank);
  hlo_value norm = pj_vector_norm(h, v, 2, &axes);
  hlo_value g = hlo_reshape(h, wide(l, 1), norm.rank, norm.dims);
  pj_return(l, 0, hlo_mul(h, v, pj_spread(h, hlo_div(h, g, norm), v, &axes)));
  pj_return_reshaped(l, 1, norm);
}

// aten::_weight_norm_interface_backward(grad_w, saved_v, saved_g, saved_norms, dim):
// (g / norm * (grad - v * s / norm^2), s / norm) with s = sum(grad * v)
static void lower_weight_norm_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = wide(l, 0), v = wide(l, 1);
  pj_axes axes = all_but(pj_dim(l, 4, v.rank), v.rank);
  hlo_value sum = pj_reduce(h, HLO_ADD, hlo_mul(h, grad, v), &axes);
  hlo_value g = hlo_reshape(h, wide(l, 2), sum.rank, sum.dims);
  hlo_value norm = hlo_convert(h, hlo_reshape(h, pj_tensor(l, 3), sum.rank, sum.dims), sum.dtype);
  hlo_value along = pj_spread(h, hlo_div(h, sum, hlo_mul(h, norm, norm)), v, &axes);
  hlo_value scale = pj_spread(h, hlo_div(h, g, norm), v, &axes);
  pj_return(l, 0, hlo_mul(h, scale, hlo_sub(h, grad, hlo_mul(h, v, along))));
  pj_return_reshaped(l, 1, hlo_div(h, sum, norm));
}

PJ_LOWERINGS(norm_lowerings) = {
    {"aten::native_layer_norm", lower_layer_norm},
    {"aten::native_layer_norm_backward", lower_layer_norm_backward},
    {"aten::_fused_rms_norm", lower_rms_norm},
    {"aten::_fused_rms_norm_backward", lower_rms_norm_backward},
    {"aten::native_group_norm", lower_group_norm},
    {"aten::native_group_norm_backward", lower_group_norm_backward},
    {"aten::native_batch_norm", lower_batch_norm},
    {"aten::_native_batch_norm_legit", lower_batch_norm},
    {"aten::_native_batch_norm_legit_functional", lower_batch_norm},
    {"aten::_native_batch_norm_legit.no_stats", lower_batch_norm_no_stats},
    {"aten::_native_batch_norm_legit_no_training", lower_batch_norm_no_training},
    {"aten::_batch_norm_no_update", lower_batch_norm_no_update},
    {"aten::_batch_norm_with_update_functional", lower_batch_norm_with_update},
    {"aten::native_batch_norm_backward", lower_batch_norm_backward},
    {"aten::batch_norm_backward", lower_batch_norm_backward},
    {.name = "aten::_weight_norm_interface", .lower = lower_weight_norm, .flags = PJ_OP_DYNAMIC},
    {"aten::_weight_norm_interface_backward", lower_weight_norm_backward},
    {0},
};
