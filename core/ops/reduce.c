#include "ops/reduce.h"

pj_axes pj_axes_from(int first, int rank) {
  pj_axes axes = {.count = 0};
  for (int d = first; d < rank; ++d) axes.dims[axes.count++] = d;
  return axes;
}

pj_axes pj_axes_all(int rank) { return pj_axes_from(0, rank); }

pj_axes pj_axes_one(int dim) { return (pj_axes){.dims = {dim}, .count = 1}; }

pj_axes pj_axes_argument(pj_lowering *l, int argument, int rank) {
  if (!pj_present(l, argument)) return pj_axes_all(rank);
  if (pj_kind(l, argument) == PJ_ARG_INT) return pj_axes_one(pj_dim(l, argument, rank));
  pj_axes axes;
  axes.count = pj_dims(l, argument, rank, true, axes.dims);
  return axes;
}

int64_t pj_axes_size(hlo_value x, const pj_axes *axes) {
  int64_t size = 1;
  for (int i = 0; i < axes->count; ++i) size *= x.dims[axes->dims[i]];
  return size;
}

hlo_value pj_at_least_1d(hlo *h, hlo_value x) {
  return x.rank == 0 ? hlo_reshape(h, x, 1, (int64_t[]){1}) : x;
}

hlo_value pj_reduce(hlo *h, hlo_op op, hlo_value x, const pj_axes *axes) {
  return axes->count == 0 ? x : hlo_reduce(h, op, x, axes->dims, axes->count);
}

hlo_value pj_spread(hlo *h, hlo_value reduced, hlo_value like, const pj_axes *axes) {
  int kept[PJ_MAX_RANK], count = 0;
  for (int d = 0; d < like.rank; ++d) {
    bool is_axis = false;
    for (int i = 0; i < axes->count; ++i) is_axis |= axes->dims[i] == d;
    if (!is_axis) kept[count++] = d;
  }
  return hlo_broadcast_in_dim(h, reduced, like.rank, like.dims, kept);
}

hlo_value pj_full_like(hlo *h, hlo_value x, double value) { return hlo_constant(h, x.dtype, value); }

hlo_value pj_scale(hlo *h, hlo_value x, double factor) { return hlo_mul(h, x, pj_full_like(h, x, factor)); }

hlo_value pj_mean(hlo *h, hlo_value x, const pj_axes *axes) {
  return hlo_div(h, pj_reduce(h, HLO_ADD, x, axes), pj_full_like(h, x, (double)pj_axes_size(x, axes)));
}

hlo_value pj_arg_extreme(hlo *h, hlo_value x, hlo_value extreme, int dim) {
  pj_axes axis = pj_axes_one(dim);
  hlo_value hit = hlo_or(h, hlo_eq(h, x, pj_spread(h, extreme, x, &axis)), hlo_is_nan(h, x));
  hlo_value place = hlo_iota(h, PJ_S32, x.rank, x.dims, dim);
  return hlo_reduce(h, HLO_MIN, hlo_select(h, hit, place, hlo_highest(h, PJ_S32)), &dim, 1);
}

void pj_return_reshaped(pj_lowering *l, int result, hlo_value value) {
  pj_type type = pj_result_type(l, result);
  pj_return(l, result, hlo_reshape(l->h, value, type.rank, type.dims));
}

void pj_return_zeros(pj_lowering *l, int result) {
  pj_type type = pj_result_type(l, result);
  pj_return(l, result, hlo_full(l->h, type.dtype, type.rank, type.dims, 0));
}

bool pj_returned_empty(pj_lowering *l) {
  pj_type first = pj_result_type(l, 0);
  if (pj_type_elements(&first)) return false;
  for (int r = 0; r < pj_result_count(l); ++r) pj_return_zeros(l, r);
  return true;
}

hlo_value pj_wide(pj_lowering *l, int argument) {
  hlo_value x = pj_tensor(l, argument);
  return hlo_convert(l->h, x, pj_math_dtype(x.dtype));
}

bool pj_wanted(const pj_lowering *l, int result) { return result >= 0 && result < pj_result_count(l); }

int pj_gradient(pj_lowering *l, int mask, int i) {
  int count, result = 0;
  const int64_t *asked = pj_ints(l, mask, &count);
  if (i >= count || !asked[i]) return -1;
  for (int k = 0; k < i; ++k) result += asked[k] != 0;
  return pj_wanted(l, result) ? result : -1;
}
