// Counts of values in bins.
#include "ops/index.h"
#include "ops/reduce.h"

// Sums of `weights` (1-d or 0-d) at the bins of the values; bins outside [0, bins) are dropped.
static hlo_value sum_in_bins(pj_lowering *l, hlo_value bin, hlo_value weights, int64_t bins) {
  int64_t size = bins + 1;  // the last one is for what lies outside: a write to a dimension of one element always hits it
  hlo_value zeros = hlo_full(l->h, weights.dtype, 1, &size, 0);
  pj_target whole = pj_target_whole(zeros);
  pj_positions at = {.rank = 1, .indexed = {true}, .indices = {bin}};
  return hlo_slice_dim(l->h, pj_positions_write(l, HLO_ADD, &whole, &at, weights), 0, 0, bins);
}

// The range to count in: the given one, or that of the data where low == high; a single point is widened by `margin`.
static void range_of(pj_lowering *l, hlo_value x, double low, double high, double margin, hlo_value out[2]) {
  hlo *h = l->h;
  out[0] = hlo_constant(h, x.dtype, low);
  out[1] = hlo_constant(h, x.dtype, high);
  if (low == high && hlo_size(x)) {
    out[0] = hlo_reduce_all(h, HLO_MIN, x);
    out[1] = hlo_reduce_all(h, HLO_MAX, x);
  }
  hlo_value same = hlo_eq(h, out[0], out[1]), more = hlo_constant(h, x.dtype, margin);
  hlo_value lower = hlo_sub(h, out[0], more), higher = hlo_add(h, out[1], more);
  out[0] = hlo_select(h, same, lower, out[0]);
  out[1] = hlo_select(h, same, higher, out[1]);
}

static bool require_bins(pj_lowering *l, int64_t bins, double low, double high) {
  return pj_require(l, bins > 0, PJ_INVALID_ARGUMENT, "bins must be > 0, but got %lld", (long long)bins) &&
         pj_require(l, low - low == 0 && high - high == 0, PJ_INVALID_ARGUMENT, "range of [%g, %g] is not finite", low,
                    high) &&
         pj_require(l, low <= high, PJ_INVALID_ARGUMENT, "max must be larger than min");
}

// aten::histc(self, bins, min, max): bin int((x - min) / (max - min) * bins) for min <= x <= max. The CPU has no kernel
// for integers; CUDA's multiplies before it divides, in 64 bits.
static void lower_histc(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = hlo_flatten(h, pj_tensor(l, 0)), range[2];
  int64_t bins = pj_int(l, 1);
  double low = pj_float(l, 2), high = pj_float(l, 3);
  if (!require_bins(l, bins, low, high)) return;
  bool integer = pj_dtype_is_integer(x.dtype);
  x = hlo_convert(h, x, integer ? PJ_S64 : pj_math_dtype(x.dtype));
  range_of(l, x, low, high, 1, range);
  hlo_value above = hlo_sub(h, x, range[0]), width = hlo_sub(h, range[1], range[0]);
  hlo_value count = hlo_constant(h, x.dtype, (double)bins);
  hlo_value bin = integer ? hlo_div(h, hlo_mul(h, above, count), width) : hlo_mul(h, hlo_div(h, above, width), count);
  bin = hlo_convert(h, bin, PJ_S32);
  bin = hlo_min(h, bin, hlo_constant_int(h, PJ_S32, bins - 1));
  hlo_value inside = hlo_and(h, hlo_ge(h, x, range[0]), hlo_le(h, x, range[1]));   // not for NaN
  bin = hlo_select(h, inside, bin, hlo_constant_int(h, PJ_S32, bins));
  pj_return(l, 0, sum_in_bins(l, bin, hlo_constant(h, x.dtype, 1), bins));
}

// Bin i holds edges[i] <= x < edges[i + 1], the last one its upper edge too. Results: (sums, edges).
static void return_histogram(pj_lowering *l, hlo_value x, hlo_value edges, int weight, bool density) {
  hlo *h = l->h;
  int64_t bins = edges.dims[0] - 1;
  hlo_value not_below = hlo_ge(h, hlo_keep(h, x, 1), hlo_keep(h, edges, 0));
  hlo_value bin = hlo_sub(h, hlo_reduce_sum(h, hlo_convert(h, not_below, PJ_S32), 1), hlo_constant_int(h, PJ_S32, 1));
  hlo_value last = hlo_reshape(h, hlo_slice_dim(h, edges, 0, bins, bins + 1), 0, NULL);
  bin = hlo_select(h, hlo_eq(h, x, last), hlo_constant_int(h, PJ_S32, bins - 1), bin);
  // A scatter drops what lies outside; -1 would count from nowhere.
  bin = hlo_select(h, hlo_lt(h, bin, hlo_constant_int(h, PJ_S32, 0)), hlo_constant_int(h, PJ_S32, bins), bin);
  hlo_value weights = hlo_constant(h, x.dtype, 1);
  if (pj_present(l, weight)) {
    weights = hlo_flatten(h, hlo_convert(h, pj_tensor(l, weight), x.dtype));
    if (!pj_require(l, weights.dims[0] == x.dims[0], PJ_INVALID_ARGUMENT,
                    "torch.histogram(): if weight tensor is provided it "
                    "should have the same shape as the input tensor"))
      return;
  }
  hlo_value sums = sum_in_bins(l, bin, weights, bins);
  if (density) {
    hlo_value width = hlo_sub(h, hlo_slice_dim(h, edges, 0, 1, bins + 1), hlo_slice_dim(h, edges, 0, 0, bins));
    sums = hlo_div(h, sums, hlo_mul(h, hlo_reduce_all(h, HLO_ADD, sums), width));
  }
  pj_return(l, 0, sums);
  pj_return(l, 1, edges);
}

// aten::histogram.bin_ct(self, bins, *, range, weight, density): `bins` equal bins
static void lower_histogram(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = hlo_flatten(h, pj_tensor(l, 0)), range[2];
  int64_t bins = pj_int(l, 1);
  int count;
  const double *given = pj_floats(l, 2, &count);
  double low = count == 2 ? given[0] : 0, high = count == 2 ? given[1] : 0;
  if (!require_bins(l, bins, low, high)) return;
  range_of(l, x, low, high, 0.5, range);
  int64_t size = bins + 1;
  // As torch.linspace: the lower half counts up from the start, the upper half down from the end.
  hlo_value i = hlo_iota(h, x.dtype, 1, &size, 0);
  hlo_value step = hlo_div(h, hlo_sub(h, range[1], range[0]), hlo_constant(h, x.dtype, (double)bins));
  hlo_value up = hlo_add(h, range[0], hlo_mul(h, step, i));
  hlo_value down = hlo_sub(h, range[1], hlo_mul(h, step, hlo_sub(h, hlo_constant(h, x.dtype, (double)bins), i)));
  hlo_value first = hlo_lt(h, i, hlo_constant(h, x.dtype, (double)(size / 2)));
  return_histogram(l, x, hlo_select(h, first, up, down), 3, pj_bool(l, 4));
}

// aten::histogram.bins_tensor(self, bins, *, weight, density): between the given edges
static void lower_histogram_edges(pj_lowering *l) {
  hlo_value x = hlo_flatten(l->h, pj_tensor(l, 0)), edges = pj_tensor(l, 1);
  if (pj_require(l, edges.rank == 1 && edges.dims[0] > 1, PJ_INVALID_ARGUMENT,
                 "torch.histogram(): bins tensor should have one "
                 "dimension and more than one element") &&
      pj_require(l, edges.dtype == x.dtype, PJ_INVALID_ARGUMENT,
                 "torch.histogram(): input tensor and bins tensors should have "
                 "the same dtype"))
    return_histogram(l, x, edges, 2, pj_bool(l, 3));
}

PJ_LOWERINGS(histogram_lowerings) = {
    {.name = "aten::histc", .lower = lower_histc, .statics = PJ_STATIC(2) | PJ_STATIC(3)},
    {.name = "aten::histogram.bin_ct", .lower = lower_histogram, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::histogram.bins_tensor", .lower = lower_histogram_edges, .flags = PJ_OP_DYNAMIC},
    {0},
};
