// Distances between vectors, cross products, and rows scaled to a norm.
#include <math.h>

#include "ops/reduce.h"

// aten::renorm(self, p, dim, maxnorm): slices along `dim` whose p-norm is above maxnorm are scaled down to it
static void lower_renorm(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  double p = pj_float(l, 1);
  if (!pj_require(l, p > 0, PJ_INVALID_ARGUMENT, "renorm: non-positive-norm not supported") ||
      !pj_require(l, x.rank > 1, PJ_INVALID_ARGUMENT, "renorm: input needs at least 2 dimensions, got %d dimensions",
                  x.rank))
    return;
  int dim = pj_dim(l, 2, x.rank);
  x = hlo_convert(h, x, pj_math_dtype(x.dtype));
  pj_axes others = {.count = 0};
  for (int d = 0; d < x.rank; ++d)
    if (d != dim) others.dims[others.count++] = d;
  hlo_value norm = pj_vector_norm(h, x, p, &others), most = pj_number(l, 3, norm.dtype);
  // The same guard against division by zero as PyTorch's.
  hlo_value scale = hlo_div(h, most, hlo_add(h, norm, pj_full_like(h, norm, 1e-7)));
  hlo_value one = hlo_broadcast_like(h, pj_full_like(h, norm, 1), norm);
  scale = hlo_select(h, hlo_gt(h, norm, most), scale, one);
  pj_return(l, 0, hlo_mul(h, x, pj_spread(h, hlo_convert(h, scale, x.dtype), x, &others)));
}

// aten::linalg_cross(self, other, *, dim): a[1] b[2] - a[2] b[1], and so on round
static void lower_cross(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  hlo_value a = pj_tensor(l, 0), b = pj_tensor(l, 1);
  int dim = pj_dim(l, 2, type.rank);
  if (!pj_require(l, type.rank > 0 && type.dims[dim] == 3, PJ_INVALID_ARGUMENT,
                  "linalg.cross: inputs dimension %d must have length 3.", dim))
    return;
  pj_dtype dtype = pj_math_dtype(type.dtype);
  a = hlo_broadcast_to(h, hlo_convert(h, a, dtype), type.rank, type.dims);
  b = hlo_broadcast_to(h, hlo_convert(h, b, dtype), type.rank, type.dims);
  hlo_value part[3];
  for (int i = 0; i < 3; ++i) {
    int j = (i + 1) % 3, k = (i + 2) % 3;
    part[i] = hlo_sub(h, hlo_mul(h, hlo_slice_dim(h, a, dim, j, j + 1), hlo_slice_dim(h, b, dim, k, k + 1)),
                      hlo_mul(h, hlo_slice_dim(h, a, dim, k, k + 1), hlo_slice_dim(h, b, dim, j, j + 1)));
  }
  pj_return(l, 0, hlo_concatenate(h, part, 3, dim));
}

// ---- distances ------------------------------------------------------------------------------------------------------

// a[..., i, None, :] - b[..., None, j, :] over the broadcast batch dimensions.
static hlo_value differences(pj_lowering *l, hlo_value a, hlo_value b) {
  return hlo_sub(l->h, hlo_keep(l->h, a, a.rank - 1), hlo_keep(l->h, b, b.rank - 2));
}

static bool require_rows(pj_lowering *l, hlo_value a, hlo_value b) {
  return pj_require(l, a.rank >= 2 && b.rank >= 2 && a.dims[a.rank - 1] == b.dims[b.rank - 1], PJ_INVALID_ARGUMENT,
                    "X1 and X2 must be at least 2D with the same number of columns");
}

static void return_distances(pj_lowering *l, hlo_value a, hlo_value b, double p) {
  hlo_value d = differences(l, a, b);
  pj_axes last = pj_axes_one(d.rank - 1);
  pj_return(l, 0, pj_vector_norm(l->h, d, p, &last));
}

// |a|^2 - 2 a b + |b|^2 of all pairs of rows: one matrix product, where the differences would be `columns` times larger.
static void return_euclidean(pj_lowering *l, hlo_value a, hlo_value b) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  int rank = type.rank, batch[PJ_MAX_RANK];
  int64_t dims[PJ_MAX_RANK];
  memcpy(dims, type.dims, sizeof dims);
  dims[rank - 1] = a.dims[a.rank - 1];
  a = hlo_broadcast_to(h, a, rank, dims);
  dims[rank - 2] = type.dims[rank - 1];
  b = hlo_broadcast_to(h, b, rank, dims);
  for (int d = 0; d < rank - 2; ++d) batch[d] = d;
  int last = rank - 1;
  hlo_value product = hlo_dot_general(h, a, b, batch, batch, rank - 2, &last, &last, 1, a.dtype);
  hlo_value aa = hlo_keep(h, hlo_reduce_sum(h, hlo_mul(h, a, a), last), last);
  hlo_value bb = hlo_keep(h, hlo_reduce_sum(h, hlo_mul(h, b, b), last), last - 1);
  hlo_value square = hlo_sub(h, hlo_add(h, hlo_broadcast_like(h, aa, product), hlo_broadcast_like(h, bb, product)),
                             hlo_mul(h, hlo_constant(h, a.dtype, 2), product));
  pj_return(l, 0, hlo_sqrt(h, hlo_max(h, square, hlo_full(h, a.dtype, rank, type.dims, 0))));
}

// PyTorch's rule: modes 0 (above 25 rows), 1 (always) and 2 (never) of a matrix product for p = 2.
static bool is_by_product(pj_lowering *l, hlo_value a, hlo_value b) {
  int64_t mode = pj_present(l, 3) ? pj_int(l, 3) : 0;
  bool many = a.dims[a.rank - 2] > 25 || b.dims[b.rank - 2] > 25;
  return pj_float(l, 2) == 2 && (mode == 1 || (mode == 0 && many));
}

// aten::_cdist_forward(x1, x2, p, compute_mode): p-norms of the differences of all pairs of rows
static void lower_cdist(pj_lowering *l) {
  hlo_value a = pj_wide(l, 0), b = pj_wide(l, 1);
  pj_type type = pj_result_type(l, 0);
  if (!require_rows(l, a, b) ||
      !pj_require(l, pj_float(l, 2) >= 0, PJ_INVALID_ARGUMENT, "cdist only supports non-negative p values"))
    return;
  if (!pj_type_elements(&type) || a.dims[a.rank - 1] == 0) {
    pj_return(l, 0, hlo_full(l->h, a.dtype, type.rank, type.dims, 0));
    return;
  }
  if (is_by_product(l, a, b)) return_euclidean(l, a, b);
  else return_distances(l, a, b, pj_float(l, 2));
}

// aten::_euclidean_dist(x1, x2)
static void lower_euclidean_dist(pj_lowering *l) {
  hlo_value a = pj_wide(l, 0), b = pj_wide(l, 1);
  if (require_rows(l, a, b)) return_euclidean(l, a, b);
}

// d distance / d difference, times grad: what PyTorch defines it to be where it is not smooth (0 for equal rows).
static hlo_value distance_gradient(pj_lowering *l, hlo_value grad, hlo_value difference, hlo_value distance, double p) {
  hlo *h = l->h;
  grad = hlo_broadcast_like(h, hlo_keep(h, grad, grad.rank), difference);
  distance = hlo_broadcast_like(h, hlo_keep(h, distance, distance.rank), difference);
  hlo_value zero = hlo_full(h, difference.dtype, difference.rank, difference.dims, 0), size = hlo_abs(h, difference);
  if (p == 0) return zero;
  hlo_value signed_grad = hlo_mul(h, grad, hlo_sign(h, difference));
  if (p == 1) return signed_grad;
  if (isinf(p)) return hlo_select(h, hlo_eq(h, size, distance), signed_grad, zero);
  hlo_value defined = hlo_ne(h, distance, zero), y;
  if (p == 2) {
    y = hlo_div(h, hlo_mul(h, grad, difference), distance);
  } else {
    if (p < 1) defined = hlo_and(h, defined, hlo_ne(h, difference, zero));
    hlo_value power = pj_full_like(h, size, p - 1);
    y = hlo_div(h, hlo_mul(h, signed_grad, hlo_pow(h, size, power)), hlo_pow(h, distance, power));
  }
  return hlo_select(h, defined, y, zero);
}

// aten::_cdist_backward(grad, x1, x2, p, cdist): the gradient in x1
static void lower_cdist_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = pj_wide(l, 0), a = pj_wide(l, 1), b = pj_wide(l, 2), distance = pj_wide(l, 4);
  pj_type type = pj_result_type(l, 0);
  if (!require_rows(l, a, b)) return;
  if (!pj_type_elements(&type) || !hlo_size(grad)) {
    pj_return(l, 0, hlo_full(h, a.dtype, type.rank, type.dims, 0));
    return;
  }
  hlo_value y = distance_gradient(l, grad, differences(l, a, b), distance, pj_float(l, 3));
  y = hlo_reduce_sum(h, y, y.rank - 2);
  for (int d = 0; d < y.rank - type.rank; ++d) y = hlo_reduce_sum(h, y, 0);
  for (int d = 0; d < type.rank; ++d)
    if (y.dims[d] != type.dims[d]) y = hlo_keep(h, hlo_reduce_sum(h, y, d), d);
  pj_return(l, 0, y);
}

// ---- pairs of rows of one matrix ------------------------------------------------------------------------------------
// pdist lists the pairs (i, j), i < j, row by row: pair k = n i - i (i + 1) / 2 + j - i - 1.

static hlo_value pair_of(pj_lowering *l, hlo_value i, hlo_value j, int64_t n) {
  hlo *h = l->h;
  hlo_value one = hlo_constant_int(h, i.dtype, 1), two = hlo_constant_int(h, i.dtype, 2);
  hlo_value before = hlo_div(h, hlo_mul(h, i, hlo_add(h, i, one)), two);
  hlo_value row = hlo_sub(h, hlo_mul(h, i, hlo_constant_int(h, i.dtype, n)), before);
  return hlo_add(h, row, hlo_sub(h, hlo_sub(h, j, i), one));
}

// aten::_pdist_forward(self, p)
static void lower_pdist(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_wide(l, 0);
  pj_type type = pj_result_type(l, 0);
  double p = pj_float(l, 1);
  if (!pj_require(l, x.rank == 2, PJ_INVALID_ARGUMENT, "_pdist_forward requires a 2D tensor") ||
      !pj_require(l, p >= 0, PJ_INVALID_ARGUMENT, "pdist only supports non-negative p values"))
    return;
  if (!type.dims[0] || !x.dims[1]) {
    pj_return(l, 0, hlo_full(h, x.dtype, 1, type.dims, 0));
    return;
  }
  // i from k by the root of the quadratic above, exact in float64 for every size that fits in memory.
  int64_t n = x.dims[0];
  double half = (double)n - 0.5;
  hlo_value k = hlo_iota(h, PJ_S64, 1, type.dims, 0), wide_k = hlo_convert(h, k, PJ_F64);
  hlo_value root = hlo_sub(h, hlo_constant(h, PJ_F64, half * half - 1), hlo_mul(h, wide_k, hlo_constant(h, PJ_F64, 2)));
  hlo_value i = hlo_convert(h, hlo_sub(h, hlo_constant(h, PJ_F64, half), hlo_sqrt(h, root)), PJ_S64);
  hlo_value first = pair_of(l, i, hlo_add(h, i, hlo_constant_int(h, PJ_S64, 1)), n);   // the pair (i, i + 1)
  hlo_value j = hlo_add(h, hlo_sub(h, k, first), hlo_add(h, i, hlo_constant_int(h, PJ_S64, 1)));
  hlo_value d = hlo_sub(h, hlo_take(h, x, i, 0), hlo_take(h, x, j, 0));
  pj_axes last = pj_axes_one(1);
  pj_return(l, 0, pj_vector_norm(h, d, p, &last));
}

// aten::_pdist_backward(grad, self, p, pdist)
static void lower_pdist_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = pj_wide(l, 0), x = pj_wide(l, 1), distance = pj_wide(l, 3);
  if (hlo_failed(h)) return;
  if (!hlo_size(grad) || !hlo_size(x)) {
    pj_return(l, 0, hlo_full(h, x.dtype, x.rank, x.dims, 0));
    return;
  }
  int64_t n = x.dims[0], dims[] = {n, n};
  hlo_value row = hlo_iota(h, PJ_S64, 2, dims, 0), column = hlo_iota(h, PJ_S64, 2, dims, 1);
  hlo_value pair = pair_of(l, hlo_min(h, row, column), hlo_max(h, row, column), n);
  hlo_value apart = hlo_ne(h, row, column), none = hlo_full(h, x.dtype, 2, dims, 0);
  pair = hlo_select(h, apart, pair, hlo_full(h, PJ_S64, 2, dims, 0));
  grad = hlo_select(h, apart, hlo_take(h, grad, pair, 0), none);
  distance = hlo_select(h, apart, hlo_take(h, distance, pair, 0), none);
  pj_return(l, 0, hlo_reduce_sum(h, distance_gradient(l, grad, differences(l, x, x), distance, pj_float(l, 2)), 1));
}

PJ_LOWERINGS(distance_lowerings) = {
    {.name = "aten::renorm", .lower = lower_renorm, .statics = PJ_STATIC(1)},
    {.name = "aten::linalg_cross", .lower = lower_cross},
    {.name = "aten::_cdist_forward", .lower = lower_cdist, .statics = PJ_STATIC(2)},
    {.name = "aten::_euclidean_dist", .lower = lower_euclidean_dist},
    {.name = "aten::_cdist_backward", .lower = lower_cdist_backward, .statics = PJ_STATIC(3)},
    {.name = "aten::_pdist_forward", .lower = lower_pdist, .statics = PJ_STATIC(1)},
    {.name = "aten::_pdist_backward", .lower = lower_pdist_backward, .statics = PJ_STATIC(2)},
    {0},
};
