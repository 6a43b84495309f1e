// Pooling with a fixed kernel: the largest or the mean of windows of the last one to three dimensions.
#include "ops/index.h"
#include "ops/patches.h"
#include "ops/pooling.h"
#include "ops/reduce.h"

typedef struct pool {
  int spatial;
  int64_t kernel[PJ_MAX_SPATIAL], stride[PJ_MAX_SPATIAL], padding[PJ_MAX_SPATIAL], dilation[PJ_MAX_SPATIAL];
} pool;

// An argument of one number a dimension, or one for all; an empty list (a stride) is `otherwise`.
static bool read_sizes(pj_lowering *l, int argument, int spatial, int64_t least, const int64_t *otherwise,
                       const char *what, int64_t *out) {
  int count;
  const int64_t *values = pj_ints(l, argument, &count);
  if (!pj_require(l, count == 1 || count == spatial || (!count && otherwise), PJ_INVALID_ARGUMENT,
                  "pooling: %s must either be a single int, or a tuple of %d ints", what, spatial))
    return false;
  for (int d = 0; d < spatial; ++d) {
    out[d] = count ? values[count == 1 ? 0 : d] : otherwise[d];
    if (!pj_require(l, out[d] >= least, PJ_INVALID_ARGUMENT, "pooling: %s should be %s, but got %lld", what,
                    least ? "greater than zero" : "non-negative", (long long)out[d]))
      return false;
  }
  return true;
}

// kernel_size, stride, padding and, unless `dilation` is -1, dilation, from argument `first` on.
static bool read_pool(pj_lowering *l, int first, int dilation, int spatial, pool *p) {
  p->spatial = spatial;
  for (int d = 0; d < spatial; ++d) p->dilation[d] = 1;
  if (!read_sizes(l, first, spatial, 1, NULL, "kernel_size", p->kernel) ||
      !read_sizes(l, first + 1, spatial, 1, p->kernel, "stride", p->stride) ||
      !read_sizes(l, first + 2, spatial, 0, NULL, "padding", p->padding) ||
      (dilation >= 0 && !read_sizes(l, dilation, spatial, 1, NULL, "dilation", p->dilation)))
    return false;
  for (int d = 0; d < spatial; ++d)
    if (!pj_require(l, p->padding[d] <= p->kernel[d] / 2, PJ_INVALID_ARGUMENT,
                    "pad should be at most half of effective kernel "
                    "size, but got pad=%lld, kernel_size=%lld",
                    (long long)p->padding[d], (long long)p->kernel[d]))
      return false;
  return true;
}

// The windows over the last dimensions of x that give an output of `sizes` in these dimensions.
static hlo_window window_of(const pool *p, int rank, const int64_t *in, const int64_t *out) {
  hlo_window w = hlo_window_ones();
  for (int d = 0; d < p->spatial; ++d) {
    int at = rank - p->spatial + d;
    w.size[at] = p->kernel[d];
    w.stride[at] = p->stride[d];
    w.dilation[at] = p->dilation[d];
    w.pad_low[at] = p->padding[d];
    w.pad_high[at] = (out[at] - 1) * p->stride[d] + p->dilation[d] * (p->kernel[d] - 1) + 1 - in[at] - p->padding[d];
  }
  return w;
}

// ---- the largest ----------------------------------------------------------------------------------------------------

void pj_larger_of_pairs(hlo *h, const hlo_value *a, hlo_value *out, void *context) {
  (void)context;
  hlo_value nan0 = hlo_is_nan(h, a[0]), nan1 = hlo_is_nan(h, a[2]);
  hlo_value later_nan = hlo_and(h, nan1, hlo_or(h, hlo_not(h, nan0), hlo_gt(h, a[3], a[1])));
  hlo_value earlier_equal = hlo_and(h, hlo_eq(h, a[2], a[0]), hlo_lt(h, a[3], a[1]));
  hlo_value second = hlo_or(h, hlo_gt(h, a[2], a[0]), hlo_or(h, later_nan, earlier_equal));
  out[0] = hlo_select(h, second, a[2], a[0]);
  out[1] = hlo_select(h, second, a[3], a[1]);
}

hlo_value pj_flat_places(pj_lowering *l, hlo_value x, int spatial) {
  hlo *h = l->h;
  hlo_value places = hlo_iota(h, PJ_S32, x.rank, x.dims, x.rank - 1);
  int64_t stride = x.dims[x.rank - 1];
  for (int d = x.rank - 2; d >= x.rank - spatial; --d) {
    hlo_value steps = hlo_mul(h, hlo_iota(h, PJ_S32, x.rank, x.dims, d), hlo_constant_int(h, PJ_S32, stride));
    places = hlo_add(h, places, steps);
    stride *= x.dims[d];
  }
  return places;
}

// aten::max_pool<n>d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode): (values, places in the
// plane)
static void max_pool(pj_lowering *l, int spatial) {
  hlo *h = l->h;
  hlo_value x = pj_wide(l, 0);
  pool p;
  if (!read_pool(l, 1, 4, spatial, &p) || pj_returned_empty(l)) return;
  if (!pj_require(l, x.rank >= spatial + 1 && hlo_size(x), PJ_INVALID_ARGUMENT,
                  "max_pool: expected a non-empty tensor with "
                  "%d spatial dimensions",
                  spatial))
    return;
  hlo_window w = window_of(&p, x.rank, x.dims, pj_result_type(l, 0).dims);
  hlo_value operands[] = {x, pj_flat_places(l, x, spatial)}, out[2];
  hlo_value starts[] = {hlo_lowest(h, x.dtype), hlo_constant_int(h, PJ_S32, INT32_MAX)};
  hlo_reduce_window_many(h, operands, starts, 2, &w, pj_larger_of_pairs, NULL, out);
  pj_return(l, 0, out[0]);
  pj_return(l, 1, out[1]);
}

// aten::max_pool<n>d_with_indices_backward(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode,
// indices): every tap of every window takes the gradient if the window's largest was there; the taps are then summed
// back over x.
static void max_pool_backward(pj_lowering *l, int spatial) {
  hlo *h = l->h;
  hlo_value grad = pj_wide(l, 0), indices = pj_tensor(l, 7);
  pj_type x = pj_tensor_type(l, 1);
  pool p;
  if (!read_pool(l, 2, 5, spatial, &p) || pj_returned_empty(l)) return;
  if (!pj_require(l, grad.rank == x.rank && hlo_same_dims(grad, indices), PJ_INVALID_ARGUMENT,
                  "max_pool backward: grad_output and indices must have the output's sizes"))
    return;
  // (..., out) to (..., taps, out) for each spatial dimension.
  int lead = grad.rank - spatial, rank = lead + 2 * spatial, map[PJ_MAX_RANK];
  int64_t dims[PJ_MAX_RANK];
  for (int d = 0; d < lead; ++d) {
    dims[d] = grad.dims[d];
    map[d] = d;
  }
  for (int d = 0; d < spatial; ++d) {
    dims[lead + 2 * d] = p.kernel[d];
    dims[lead + 2 * d + 1] = grad.dims[lead + d];
    map[lead + d] = lead + 2 * d + 1;
  }
  if (!pj_require(l, rank <= PJ_MAX_RANK, PJ_INVALID_ARGUMENT, "max_pool backward: too many dimensions")) return;
  hlo_value place = hlo_constant_int(h, PJ_S32, 0);
  for (int d = 0; d < spatial; ++d) {
    hlo_value tap = hlo_iota(h, PJ_S32, rank, dims, lead + 2 * d),
              window = hlo_iota(h, PJ_S32, rank, dims, lead + 2 * d + 1);
    hlo_value from = hlo_sub(h, hlo_mul(h, window, hlo_constant_int(h, PJ_S32, p.stride[d])),
                             hlo_constant_int(h, PJ_S32, p.padding[d]));
    hlo_value along = hlo_add(h, from, hlo_mul(h, tap, hlo_constant_int(h, PJ_S32, p.dilation[d])));
    // A tap in the padding has no place: without this it would look like one of the next row.
    hlo_value inside = hlo_and(h, hlo_ge(h, along, hlo_constant_int(h, PJ_S32, 0)),
                               hlo_lt(h, along, hlo_constant_int(h, PJ_S32, x.dims[lead + d])));
    along = hlo_select(h, inside, along, hlo_constant_int(h, PJ_S32, INT32_MIN / 2));
    place = hlo_add(h, hlo_mul(h, place, hlo_constant_int(h, PJ_S32, x.dims[lead + d])), along);
    place = hlo_select(h, inside, place, hlo_constant_int(h, PJ_S32, -1));
  }
  hlo_value chosen = hlo_broadcast_in_dim(h, hlo_convert(h, indices, PJ_S32), rank, dims, map);
  hlo_value spread = hlo_broadcast_in_dim(h, grad, rank, dims, map);
  hlo_value y = hlo_select(h, hlo_eq(h, chosen, place), spread, hlo_constant(h, grad.dtype, 0));
  for (int d = spatial - 1; d >= 0; --d) {
    pj_patches taps = {.taps = p.kernel[d], .stride = p.stride[d], .dilation = p.dilation[d], .padding = p.padding[d]};
    y = pj_patches_sum(l, y, lead + 2 * d, x.dims[lead + d], &taps);
  }
  pj_return(l, 0, y);
}

static void lower_max_pool2d(pj_lowering *l) { max_pool(l, 2); }
static void lower_max_pool3d(pj_lowering *l) { max_pool(l, 3); }
static void lower_max_pool2d_backward(pj_lowering *l) { max_pool_backward(l, 2); }
static void lower_max_pool3d_backward(pj_lowering *l) { max_pool_backward(l, 3); }

// ---- the mean -------------------------------------------------------------------------------------------------------

// What the sum of each window is divided by, over the last dimensions of an output of `rank` dimensions `out`. Windows
// that reach beyond the padding (ceil_mode) count only what lies inside it.
static hlo_value divisors(pj_lowering *l, const pool *p, int first, int rank, const int64_t *in, const int64_t *out,
                          pj_dtype dtype) {
  hlo *h = l->h;
  bool include_padding = pj_bool(l, first + 4);
  if (pj_present(l, first + 5)) {
    pj_require(l, pj_int(l, first + 5) != 0, PJ_INVALID_ARGUMENT, "divisor must be not zero");
    return hlo_constant(h, dtype, (double)pj_int(l, first + 5));
  }
  hlo_value product = hlo_constant(h, dtype, 1);
  for (int d = 0; d < p->spatial; ++d) {
    int at = rank - p->spatial + d;
    int64_t low = include_padding ? -p->padding[d] : 0, high = in[at] + (include_padding ? p->padding[d] : 0);
    hlo_value begin = hlo_iota(h, PJ_S32, 1, &out[at], 0);
    begin = hlo_sub(h, hlo_mul(h, begin, hlo_constant_int(h, PJ_S32, p->stride[d])),
                    hlo_constant_int(h, PJ_S32, p->padding[d]));
    hlo_value end = hlo_add(h, begin, hlo_constant_int(h, PJ_S32, p->kernel[d]));
    hlo_value count = hlo_sub(h, hlo_min(h, end, hlo_constant_int(h, PJ_S32, high)),
                              hlo_max(h, begin, hlo_constant_int(h, PJ_S32, low)));
    product = hlo_mul(h, product, hlo_broadcast_in_dim(h, hlo_convert(h, count, dtype), rank, out, &at));
  }
  return product;
}

// aten::avg_pool<n>d(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
static void avg_pool(pj_lowering *l, int spatial) {
  hlo *h = l->h;
  hlo_value x = pj_wide(l, 0);
  pool p;
  if (!read_pool(l, 1, -1, spatial, &p) || pj_returned_empty(l)) return;
  pj_type out = pj_result_type(l, 0);
  if (!pj_require(l, x.rank >= spatial + 1 && x.rank == out.rank && hlo_size(x), PJ_INVALID_ARGUMENT,
                  "avg_pool: expected a non-empty tensor with %d spatial dimensions", spatial))
    return;
  hlo_window w = window_of(&p, x.rank, x.dims, out.dims);
  pj_return(l, 0,
            hlo_div(h, hlo_reduce_window(h, HLO_ADD, x, &w), divisors(l, &p, 1, x.rank, x.dims, out.dims, x.dtype)));
}

// aten::avg_pool<n>d_backward(grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad,
// divisor_override): an element takes the share of every window that it lies in, a window sum over the stretched
// gradient
static void avg_pool_backward(pj_lowering *l, int spatial) {
  hlo *h = l->h;
  hlo_value grad = pj_wide(l, 0);
  pj_type x = pj_tensor_type(l, 1);
  pool p;
  if (!read_pool(l, 2, -1, spatial, &p) || pj_returned_empty(l)) return;
  if (!pj_require(l, grad.rank == x.rank && hlo_size(grad), PJ_INVALID_ARGUMENT,
                  "avg_pool backward: grad_output must have the output's sizes"))
    return;
  grad = hlo_div(h, grad, divisors(l, &p, 2, x.rank, x.dims, grad.dims, grad.dtype));
  hlo_window w = hlo_window_ones();
  for (int d = 0; d < spatial; ++d) {
    int at = x.rank - spatial + d;
    int64_t stretched = (grad.dims[at] - 1) * p.stride[d] + 1;
    w.size[at] = p.kernel[d];
    w.base_dilation[at] = p.stride[d];
    w.pad_low[at] = p.kernel[d] - 1 - p.padding[d];
    w.pad_high[at] = x.dims[at] - stretched + p.padding[d];
  }
  pj_return(l, 0, hlo_reduce_window(h, HLO_ADD, grad, &w));
}

static void lower_avg_pool2d(pj_lowering *l) { avg_pool(l, 2); }
static void lower_avg_pool3d(pj_lowering *l) { avg_pool(l, 3); }
static void lower_avg_pool2d_backward(pj_lowering *l) { avg_pool_backward(l, 2); }
static void lower_avg_pool3d_backward(pj_lowering *l) { avg_pool_backward(l, 3); }

PJ_LOWERINGS(pooling_lowerings) = {
    {.name = "aten::max_pool2d_with_indices", .lower = lower_max_pool2d},
    {.name = "aten::max_pool3d_with_indices", .lower = lower_max_pool3d},
    {.name = "aten::max_pool2d_with_indices_backward",
     .lower = lower_max_pool2d_backward,
     .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::max_pool3d_with_indices_backward",
     .lower = lower_max_pool3d_backward,
     .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::avg_pool2d", .lower = lower_avg_pool2d},
    {.name = "aten::avg_pool3d", .lower = lower_avg_pool3d},
    {.name = "aten::avg_pool2d_backward", .lower = lower_avg_pool2d_backward, .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::avg_pool3d_backward", .lower = lower_avg_pool3d_backward, .shape_only = PJ_SHAPE_ONLY(1)},
    {0},
};
