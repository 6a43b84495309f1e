#include "ops/softmax.h"

hlo_value pj_softmax(hlo *h, hlo_value x, int dim) {
  pj_axes axis = pj_axes_one(dim);
  hlo_value e = hlo_exp(h, hlo_sub(h, x, pj_spread(h, pj_reduce(h, HLO_MAX, x, &axis), x, &axis)));
  return hlo_div(h, e, pj_spread(h, pj_reduce(h, HLO_ADD, e, &axis), e, &axis));
}

hlo_value pj_softmax_backward(hlo *h, hlo_value grad, hlo_value y, int dim) {
  pj_axes axis = pj_axes_one(dim);
  hlo_value weighted = hlo_mul(h, grad, y);
  hlo_value sum = pj_spread(h, pj_reduce(h, HLO_ADD, weighted, &axis), y, &axis);
  return hlo_sub(h, weighted, hlo_mul(h, y, sum));
}

static hlo_value wide_1d(pj_lowering *l, int argument) {
  hlo_value x = pj_tensor(l, argument);
  return pj_at_least_1d(l->h, hlo_convert(l->h, x, pj_math_dtype(x.dtype)));
}

// aten::_softmax(self, dim, half_to_float): exp(x - max(x)) / sum(exp(x - max(x)))
static void lower_softmax(pj_lowering *l) {
  hlo_value x = wide_1d(l, 0);
  pj_return_reshaped(l, 0, pj_softmax(l->h, x, pj_dim(l, 1, x.rank)));
}

// aten::_log_softmax(self, dim, half_to_float): (x - max(x)) - log(sum(exp(x - max(x))))
static void lower_log_softmax(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = wide_1d(l, 0);
  pj_axes axis = pj_axes_one(pj_dim(l, 1, x.rank));
  hlo_value shifted = hlo_sub(h, x, pj_spread(h, pj_reduce(h, HLO_MAX, x, &axis), x, &axis));
  hlo_value sum = pj_reduce(h, HLO_ADD, hlo_exp(h, shifted), &axis);
  pj_return_reshaped(l, 0, hlo_sub(h, shifted, pj_spread(h, hlo_log(h, sum), x, &axis)));
}

// aten::_softmax_backward_data(grad_output, output, dim, input_dtype): y * (g - sum(g * y))
static void lower_softmax_backward(pj_lowering *l) {
  hlo_value grad = wide_1d(l, 0), y = wide_1d(l, 1);
  pj_return_reshaped(l, 0, pj_softmax_backward(l->h, grad, y, pj_dim(l, 2, y.rank)));
}

// aten::_log_softmax_backward_data(grad_output, output, dim, input_dtype): g - exp(y) * sum(g)
static void lower_log_softmax_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = wide_1d(l, 0), y = wide_1d(l, 1);
  pj_axes axis = pj_axes_one(pj_dim(l, 2, y.rank));
  hlo_value sum = pj_spread(h, pj_reduce(h, HLO_ADD, grad, &axis), y, &axis);
  pj_return_reshaped(l, 0, hlo_sub(h, grad, hlo_mul(h, hlo_exp(h, y), sum)));
}

// aten::_safe_softmax(self, dim, dtype): softmax, and 0 for rows that are all -inf
static void lower_safe_softmax(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  x = hlo_convert(h, x, pj_dtype_argument(l, 2, x.dtype));
  x = pj_at_least_1d(h, hlo_convert(h, x, pj_math_dtype(x.dtype)));
  pj_axes axis = pj_axes_one(pj_dim(l, 1, x.rank));
  hlo_value masked = hlo_eq(h, pj_reduce(h, HLO_MAX, x, &axis), hlo_lowest(h, x.dtype));
  hlo_value y = pj_softmax(h, x, axis.dims[0]);
  pj_return_reshaped(l, 0, hlo_select(h, pj_spread(h, masked, x, &axis), pj_full_like(h, y, 0), y));
}

// The mask of _masked_softmax at the rank of self: mask_type 0 is [L, L], 1 is [B, L], 2 has the dimensions of self.
static hlo_value softmax_mask(pj_lowering *l, int argument, int mask_type, hlo_value x) {
  hlo_value mask = pj_at_least_1d(l->h, hlo_convert(l->h, pj_tensor(l, argument), PJ_PRED));
  if (mask_type != 1 || mask.rank == x.rank) return mask;
  int64_t dims[PJ_MAX_RANK];
  for (int d = 0; d < x.rank; ++d) dims[d] = 1;
  dims[0] = mask.dims[0];
  dims[x.rank - 1] = mask.dims[1];
  return hlo_reshape(l->h, mask, x.rank, dims);
}

static int last_dim_or(pj_lowering *l, int argument, int rank) {
  return pj_present(l, argument) ? pj_dim(l, argument, rank) : rank - 1;
}

// aten::_masked_softmax(self, mask, dim, mask_type): softmax of self with -inf where the mask is true
static void lower_masked_softmax(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = wide_1d(l, 0);
  int mask_type = pj_present(l, 3) ? (int)pj_int(l, 3) : 2;
  hlo_value mask = softmax_mask(l, 1, mask_type, x);
  hlo_value masked = hlo_select(h, hlo_broadcast_like(h, mask, x), hlo_lowest(h, x.dtype), x);
  pj_return_reshaped(l, 0, pj_softmax(h, masked, last_dim_or(l, 2, x.rank)));
}

// aten::_masked_softmax_backward(grad_output, output, mask, dim): 0 where the mask is true
static void lower_masked_softmax_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = wide_1d(l, 0), y = wide_1d(l, 1), zero = pj_full_like(h, y, 0);
  hlo_value mask = hlo_broadcast_like(h, softmax_mask(l, 2, 2, y), y);
  y = hlo_select(h, mask, zero, y);
  pj_return_reshaped(l, 0, pj_softmax_backward(h, hlo_select(h, mask, zero, grad), y, last_dim_or(l, 3, y.rank)));
}

PJ_LOWERINGS(softmax_lowerings) = {
    {"aten::_softmax", lower_softmax},
    {"aten::_log_softmax", lower_log_softmax},
    {"aten::_softmax_backward_data", lower_softmax_backward},
    {"aten::_log_softmax_backward_data", lower_log_softmax_backward},
    {"aten::_safe_softmax", lower_safe_softmax},
    {"aten::_masked_softmax", lower_masked_softmax},
    {"aten::_masked_softmax_backward", lower_masked_softmax_backward},
    {0},
};
