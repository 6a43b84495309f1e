// Pooling with windows of varying place: adaptive and fractional pooling, and the inverse of max pooling.
#include "ops/index.h"
#include "ops/pooling.h"
#include "ops/reduce.h"

// ---- adaptive windows -----------------------------------------------------------------------------------------------
// Window o of `out` over `in` elements is [o in / out, ceil((o + 1) in / out)).

static int64_t begin_of(int64_t o, int64_t in, int64_t out) { return o * in / out; }
static int64_t end_of(int64_t o, int64_t in, int64_t out) { return ((o + 1) * in + out - 1) / out; }

static int64_t longest(int64_t in, int64_t out) {
  int64_t most = 0;
  for (int64_t o = 0; o < out; ++o) {
    int64_t length = end_of(o, in, out) - begin_of(o, in, out);
    if (length > most) most = length;
  }
  return most;
}

// begin and length of each window; s32 (out).
static hlo_value begins(pj_lowering *l, int64_t in, int64_t out) {
  hlo *h = l->h;
  hlo_value scaled = hlo_mul(h, hlo_iota(h, PJ_S64, 1, &out, 0), hlo_constant_int(h, PJ_S64, in));
  return hlo_convert(h, hlo_div(h, scaled, hlo_constant_int(h, PJ_S64, out)), PJ_S32);
}

static hlo_value lengths(pj_lowering *l, int64_t in, int64_t out) {
  hlo *h = l->h;
  hlo_value next = hlo_add(h, hlo_iota(h, PJ_S64, 1, &out, 0), hlo_constant_int(h, PJ_S64, 1));
  hlo_value up = hlo_add(h, hlo_mul(h, next, hlo_constant_int(h, PJ_S64, in)), hlo_constant_int(h, PJ_S64, out - 1));
  hlo_value end = hlo_convert(h, hlo_div(h, up, hlo_constant_int(h, PJ_S64, out)), PJ_S32);
  return hlo_sub(h, end, begins(l, in, out));
}

// x with `dim` replaced by (taps, out): the elements of each window; taps beyond a window's end read as `fill`.
static hlo_value windows(pj_lowering *l, hlo_value x, int dim, int64_t out, hlo_value fill) {
  hlo *h = l->h;
  int64_t in = x.dims[dim], dims[] = {longest(in, out), out};
  hlo_value tap = hlo_iota(h, PJ_S32, 2, dims, 0);
  hlo_value read = hlo_take(h, x, hlo_add(h, tap, begins(l, in, out)), dim);
  hlo_value valid =
      hlo_broadcast_in_dim(h, hlo_lt(h, tap, lengths(l, in, out)), read.rank, read.dims, (int[]){dim, dim + 1});
  return hlo_select(h, valid, read, fill);
}

// aten::_adaptive_avg_pool<n>d(self, output_size)
static void adaptive_avg_pool(pj_lowering *l, int spatial) {
  hlo *h = l->h;
  hlo_value x = pj_wide(l, 0);
  pj_type type = pj_result_type(l, 0);
  if (pj_returned_empty(l)) return;
  if (!pj_require(l, x.rank == type.rank && x.rank > spatial && hlo_size(x), PJ_INVALID_ARGUMENT,
                  "adaptive_avg_pool%dd: expected a non-empty tensor", spatial))
    return;
  double size = 1;
  for (int d = x.rank - 1; d >= x.rank - spatial; --d) {
    int64_t in = x.dims[d], out = type.dims[d];
    if (out == 1) {
      x = hlo_keep(h, hlo_reduce_sum(h, x, d), d);
      size *= (double)in;
    } else if (in != out) {
      hlo_value sum = hlo_reduce_sum(h, windows(l, x, d, out, hlo_constant(h, x.dtype, 0)), d);
      hlo_value count = hlo_convert(h, lengths(l, in, out), x.dtype);
      x = hlo_div(h, sum, hlo_broadcast_in_dim(h, count, sum.rank, sum.dims, &d));
    }
  }
  pj_return(l, 0, size == 1 ? x : hlo_div(h, x, hlo_constant(h, x.dtype, size)));
}

// aten::_adaptive_avg_pool<n>d_backward(grad_output, self): each element takes the share of the windows that it lies
// in, a product with the matrix that says in which
static void adaptive_avg_pool_backward(pj_lowering *l, int spatial) {
  hlo *h = l->h;
  hlo_value grad = pj_wide(l, 0);
  pj_type x = pj_tensor_type(l, 1);
  if (pj_returned_empty(l)) return;
  if (!pj_require(l, grad.rank == x.rank && x.rank > spatial && hlo_size(grad), PJ_INVALID_ARGUMENT,
                  "adaptive_avg_pool%dd_backward: expected a non-empty grad_output", spatial))
    return;
  for (int d = x.rank - 1; d >= x.rank - spatial; --d) {
    int64_t in = x.dims[d], out = grad.dims[d], dims[] = {out, in};
    if (in == out) continue;
    hlo_value count = hlo_convert(h, lengths(l, in, out), grad.dtype);
    grad = hlo_div(h, grad, hlo_broadcast_in_dim(h, count, grad.rank, grad.dims, &d));
    if (out == 1) {
      int64_t full[PJ_MAX_RANK];
      for (int k = 0; k < grad.rank; ++k) full[k] = k == d ? in : grad.dims[k];
      grad = hlo_broadcast_to(h, grad, grad.rank, full);
      continue;
    }
    hlo_value place = hlo_iota(h, PJ_S32, 2, dims, 1), begin = hlo_keep(h, begins(l, in, out), 1);
    hlo_value end = hlo_add(h, begin, hlo_keep(h, lengths(l, in, out), 1));
    hlo_value inside = hlo_convert(h, hlo_and(h, hlo_ge(h, place, begin), hlo_lt(h, place, end)), grad.dtype);
    grad = hlo_swap(h, grad, d, -1);
    grad = hlo_dot_general(h, grad, inside, NULL, NULL, 0, (int[]){grad.rank - 1}, (int[]){0}, 1, grad.dtype);
    grad = hlo_swap(h, grad, d, -1);
  }
  pj_return(l, 0, grad);
}

// aten::adaptive_max_pool<n>d(self, output_size): (values, places in the plane)
static void adaptive_max_pool(pj_lowering *l, int spatial) {
  hlo *h = l->h;
  hlo_value x = pj_wide(l, 0);
  pj_type type = pj_result_type(l, 0);
  if (pj_returned_empty(l)) return;
  if (!pj_require(l, x.rank == type.rank && x.rank > spatial && hlo_size(x), PJ_INVALID_ARGUMENT,
                  "adaptive_max_pool%dd: expected a non-empty tensor", spatial))
    return;
  hlo_value starts[] = {hlo_lowest(h, x.dtype), hlo_constant_int(h, PJ_S32, INT32_MAX)}, out[2];
  hlo_value operands[] = {x, pj_flat_places(l, x, spatial)};
  int taps[PJ_MAX_SPATIAL], lead = x.rank - spatial;
  for (int d = spatial - 1; d >= 0; --d) {
    operands[0] = windows(l, operands[0], lead + d, type.dims[lead + d], starts[0]);
    operands[1] = windows(l, operands[1], lead + d, type.dims[lead + d], starts[1]);
    taps[d] = lead + 2 * d;
  }
  hlo_reduce_many(h, operands, starts, 2, taps, spatial, pj_larger_of_pairs, NULL, out);
  pj_return(l, 0, out[0]);
  pj_return(l, 1, out[1]);
}

// ---- planes ---------------------------------------------------------------------------------------------------------

// x with its last `spatial` dimensions flattened, and all before them.
static hlo_value planes(pj_lowering *l, hlo_value x, int spatial) {
  int64_t lead = 1, plane = 1;
  for (int d = 0; d < x.rank; ++d) *(d < x.rank - spatial ? &lead : &plane) *= x.dims[d];
  return hlo_reshape(l->h, x, 2, (int64_t[]){lead, plane});
}

// Writes `values` to `places` of planes of zeros by `op`, in the result's sizes.
static void return_placed(pj_lowering *l, hlo_op op, hlo_value values, hlo_value places, int spatial) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  if (pj_returned_empty(l)) return;
  if (!pj_require(l, hlo_same_dims(values, places), PJ_INVALID_ARGUMENT,
                  "expected the indices to have the sizes of the values"))
    return;
  hlo_value base = planes(l, hlo_full(h, values.dtype, type.rank, type.dims, 0), spatial);
  values = planes(l, values, spatial);
  if (hlo_failed(h) || !pj_require(l, values.dims[0] == base.dims[0], PJ_INVALID_ARGUMENT,
                                   "expected as many planes as the "
                                   "result has"))
    return;
  places = pj_index_check_from_zero(l, planes(l, places, spatial), base.dims[1]);
  pj_positions at = pj_positions_along(l, places, 1);
  pj_target whole = pj_target_whole(base);
  pj_return_reshaped(l, 0, pj_positions_write(l, op, &whole, &at, values));
}

// (grad_output, self, indices), and of fractional pooling with kernel_size and output_size before the indices
static void lower_adaptive_max_pool2d_backward(pj_lowering *l) {
  return_placed(l, HLO_ADD, pj_wide(l, 0), pj_tensor(l, 2), 2);
}
static void lower_adaptive_max_pool3d_backward(pj_lowering *l) {
  return_placed(l, HLO_ADD, pj_wide(l, 0), pj_tensor(l, 2), 3);
}
static void lower_fractional_max_pool2d_backward(pj_lowering *l) {
  return_placed(l, HLO_ADD, pj_wide(l, 0), pj_tensor(l, 4), 2);
}
static void lower_fractional_max_pool3d_backward(pj_lowering *l) {
  return_placed(l, HLO_ADD, pj_wide(l, 0), pj_tensor(l, 4), 3);
}

// aten::max_unpool<n>d(self, indices, output_size, ...): each value at its place in a plane of zeros
static void lower_max_unpool2d(pj_lowering *l) { return_placed(l, HLO_SECOND, pj_tensor(l, 0), pj_tensor(l, 1), 2); }
static void lower_max_unpool3d(pj_lowering *l) { return_placed(l, HLO_SECOND, pj_tensor(l, 0), pj_tensor(l, 1), 3); }

static void lower_adaptive_avg_pool2d(pj_lowering *l) { adaptive_avg_pool(l, 2); }
static void lower_adaptive_avg_pool3d(pj_lowering *l) { adaptive_avg_pool(l, 3); }
static void lower_adaptive_avg_pool2d_backward(pj_lowering *l) { adaptive_avg_pool_backward(l, 2); }
static void lower_adaptive_avg_pool3d_backward(pj_lowering *l) { adaptive_avg_pool_backward(l, 3); }
static void lower_adaptive_max_pool2d(pj_lowering *l) { adaptive_max_pool(l, 2); }
static void lower_adaptive_max_pool3d(pj_lowering *l) { adaptive_max_pool(l, 3); }

// ---- fractional -----------------------------------------------------------------------------------------------------

// Where the windows of one dimension begin, from a random number a plane: begin(o) = int((o + u) a) - int(u a) with
// a = (in - kernel) / (out - 1), and in - kernel for the last. s32 (planes, out).
static hlo_value fractional_begins(pj_lowering *l, hlo_value sample, int64_t in, int64_t out, int64_t kernel) {
  hlo *h = l->h;
  int64_t dims[] = {sample.dims[0], out};
  pj_dtype dtype = sample.dtype;
  hlo_value last = hlo_constant_int(h, PJ_S32, in - kernel);
  hlo_value step = hlo_constant(h, dtype, out > 1 ? (double)(in - kernel) / (double)(out - 1) : 0);
  // The constant in the planes' own type, as PyTorch computes it.
  if (out > 1)
    step = hlo_div(h, hlo_constant(h, dtype, (double)(in - kernel)), hlo_constant(h, dtype, (double)(out - 1)));
  hlo_value u = hlo_keep(h, sample, 1), window = hlo_iota(h, PJ_S32, 2, dims, 1);
  hlo_value at = hlo_convert(h, hlo_mul(h, hlo_add(h, hlo_convert(h, window, dtype), u), step), PJ_S32);
  hlo_value begin = hlo_sub(h, at, hlo_convert(h, hlo_mul(h, u, step), PJ_S32));
  return hlo_select(h, hlo_eq(h, window, hlo_constant_int(h, PJ_S32, out - 1)), last, begin);
}

// aten::fractional_max_pool<n>d(self, kernel_size, output_size, random_samples): (values, places in the plane)
static void fractional_max_pool(pj_lowering *l, int spatial) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0), samples = pj_tensor(l, 3);
  pj_type type = pj_result_type(l, 0);
  int kernels, outs;
  const int64_t *kernel = pj_ints(l, 1, &kernels), *out = pj_ints(l, 2, &outs);
  if (pj_returned_empty(l)) return;
  int64_t in[PJ_MAX_SPATIAL];
  bool fits = x.rank > spatial && samples.rank == 3 && samples.dims[2] == spatial &&
              (kernels == spatial || kernels == 1) && outs == spatial;
  for (int d = 0; fits && d < spatial; ++d) {
    in[d] = x.dims[x.rank - spatial + d];
    fits = out[d] > 0 && kernel[kernels == 1 ? 0 : d] > 0 && out[d] + kernel[kernels == 1 ? 0 : d] - 1 <= in[d];
  }
  x = planes(l, x, spatial);
  fits = fits && samples.dims[0] * samples.dims[1] == x.dims[0];
  if (!pj_require(l, fits, PJ_INVALID_ARGUMENT,
                  "fractional_max_pool%dd: kernel_size and output_size do not fit the input", spatial))
    return;
  samples = hlo_reshape(h, samples, 2, (int64_t[]){x.dims[0], spatial});

  // Places of every tap of every window: (planes, out..., taps...).
  int64_t dims[1 + 2 * PJ_MAX_SPATIAL] = {x.dims[0]};
  int rank = 1 + 2 * spatial;
  for (int d = 0; d < spatial; ++d) {
    dims[1 + d] = out[d];
    dims[1 + spatial + d] = kernel[kernels == 1 ? 0 : d];
  }
  hlo_value place = hlo_constant_int(h, PJ_S32, 0);
  for (int d = 0; d < spatial; ++d) {
    // PyTorch's random samples are in the order (width, height) and (time, height, width).
    int sample = spatial == 2 ? 1 - d : d;
    hlo_value u = hlo_drop(h, hlo_slice_dim(h, samples, 1, sample, sample + 1), 1);
    hlo_value begin = fractional_begins(l, u, in[d], out[d], kernel[kernels == 1 ? 0 : d]);
    begin = hlo_broadcast_in_dim(h, begin, rank, dims, (int[]){0, 1 + d});
    hlo_value along = hlo_add(h, begin, hlo_iota(h, PJ_S32, rank, dims, 1 + spatial + d));
    place = hlo_add(h, hlo_mul(h, place, hlo_constant_int(h, PJ_S32, in[d])), along);
  }
  if (hlo_failed(h)) return;
  hlo_value flat = hlo_reshape(h, place, 2, (int64_t[]){x.dims[0], hlo_size(place) / x.dims[0]});
  x = hlo_convert(h, x, pj_math_dtype(x.dtype));
  hlo_value operands[] = {hlo_reshape(h, pj_take_along(l, x, flat, 1), rank, dims), place}, results[2];
  hlo_value starts[] = {hlo_lowest(h, x.dtype), hlo_constant_int(h, PJ_S32, INT32_MAX)};
  int taps[PJ_MAX_SPATIAL];
  for (int d = 0; d < spatial; ++d) taps[d] = 1 + spatial + d;
  hlo_reduce_many(h, operands, starts, 2, taps, spatial, pj_larger_of_pairs, NULL, results);
  pj_return(l, 0, hlo_reshape(h, results[0], type.rank, type.dims));
  pj_return(l, 1, hlo_reshape(h, results[1], type.rank, type.dims));
}

static void lower_fractional_max_pool2d(pj_lowering *l) { fractional_max_pool(l, 2); }
static void lower_fractional_max_pool3d(pj_lowering *l) { fractional_max_pool(l, 3); }

PJ_LOWERINGS(adaptive_lowerings) = {
    {.name = "aten::_adaptive_avg_pool2d", .lower = lower_adaptive_avg_pool2d},
    {.name = "aten::_adaptive_avg_pool3d", .lower = lower_adaptive_avg_pool3d},
    {.name = "aten::_adaptive_avg_pool2d_backward",
     .lower = lower_adaptive_avg_pool2d_backward,
     .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::_adaptive_avg_pool3d_backward",
     .lower = lower_adaptive_avg_pool3d_backward,
     .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::adaptive_max_pool2d", .lower = lower_adaptive_max_pool2d},
    {.name = "aten::adaptive_max_pool3d", .lower = lower_adaptive_max_pool3d},
    {.name = "aten::adaptive_max_pool2d_backward",
     .lower = lower_adaptive_max_pool2d_backward,
     .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::adaptive_max_pool3d_backward",
     .lower = lower_adaptive_max_pool3d_backward,
     .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::max_unpool2d", .lower = lower_max_unpool2d},
    {.name = "aten::max_unpool3d", .lower = lower_max_unpool3d},
    {.name = "aten::fractional_max_pool2d", .lower = lower_fractional_max_pool2d},
    {.name = "aten::fractional_max_pool3d", .lower = lower_fractional_max_pool3d},
    {.name = "aten::fractional_max_pool2d_backward",
     .lower = lower_fractional_max_pool2d_backward,
     .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::fractional_max_pool3d_backward",
     .lower = lower_fractional_max_pool3d_backward,
     .flags = PJ_OP_DYNAMIC,
     .shape_only = PJ_SHAPE_ONLY(1)},
    {0},
};
