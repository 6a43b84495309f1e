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

// The number of the bin of each x (1-d): bin i holds edges[i] <= x < edges[i + 1], the last one its upper edge too. What
// lies in none counts as bin number `bins`, which a scatter drops.
static hlo_value bin_of(hlo *h, hlo_value x, hlo_value edges) {
  int64_t bins = edges.dims[0] - 1;
  hlo_value not_below = hlo_ge(h, hlo_keep(h, x, 1), hlo_keep(h, edges, 0));
  hlo_value bin = hlo_sub(h, hlo_reduce_sum(h, hlo_convert(h, not_below, PJ_S32), 1), hlo_constant_int(h, PJ_S32, 1));
  hlo_value last = hlo_reshape(h, hlo_slice_dim(h, edges, 0, bins, bins + 1), 0, NULL);
  bin = hlo_select(h, hlo_eq(h, x, last), hlo_constant_int(h, PJ_S32, bins - 1), bin);
  return hlo_select(h, hlo_lt(h, bin, hlo_constant_int(h, PJ_S32, 0)), hlo_constant_int(h, PJ_S32, bins), bin);
}

static hlo_value widths_of(hlo *h, hlo_value edges) {
  return hlo_sub(h, hlo_slice_dim(h, edges, 0, 1, edges.dims[0]), hlo_slice_dim(h, edges, 0, 0, edges.dims[0] - 1));
}

// Results: (sums, edges).
static void return_histogram(pj_lowering *l, hlo_value x, hlo_value edges, int weight, bool density) {
  hlo *h = l->h;
  int64_t bins = edges.dims[0] - 1;
  hlo_value bin = bin_of(h, x, edges);
  hlo_value weights = hlo_constant(h, x.dtype, 1);
  if (pj_present(l, weight)) {
    weights = hlo_flatten(h, hlo_convert(h, pj_tensor(l, weight), x.dtype));
    if (!pj_require(l, weights.dims[0] == x.dims[0], PJ_INVALID_ARGUMENT,
                    "torch.histogram(): if weight tensor is provided it "
                    "should have the same shape as the input tensor"))
      return;
  }
  hlo_value sums = sum_in_bins(l, bin, weights, bins);
  if (density) sums = hlo_div(h, sums, hlo_mul(h, hlo_reduce_all(h, HLO_ADD, sums), widths_of(h, edges)));
  pj_return(l, 0, sums);
  pj_return(l, 1, edges);
}

// The edges of `bins` equal bins from low to high, or over the range of x (1-d) where they are equal.
static hlo_value equal_bins(pj_lowering *l, hlo_value x, int64_t bins, double low, double high) {
  hlo *h = l->h;
  hlo_value range[2];
  range_of(l, x, low, high, 0.5, range);
  int64_t size = bins + 1;
  // As torch.linspace: the lower half counts up from the start, the upper half down from the end.
  hlo_value i = hlo_iota(h, x.dtype, 1, &size, 0);
  hlo_value step = hlo_div(h, hlo_sub(h, range[1], range[0]), hlo_constant(h, x.dtype, (double)bins));
  hlo_value up = hlo_add(h, range[0], hlo_mul(h, step, i));
  hlo_value down = hlo_sub(h, range[1], hlo_mul(h, step, hlo_sub(h, hlo_constant(h, x.dtype, (double)bins), i)));
  hlo_value first = hlo_lt(h, i, hlo_constant(h, x.dtype, (double)(size / 2)));
  return hlo_select(h, first, up, down);
}

// aten::histogram.bin_ct(self, bins, *, range, weight, density): `bins` equal bins
static void lower_histogram(pj_lowering *l) {
  hlo_value x = hlo_flatten(l->h, pj_tensor(l, 0));
  int64_t bins = pj_int(l, 1);
  int count;
  const double *given = pj_floats(l, 2, &count);
  double low = count == 2 ? given[0] : 0, high = count == 2 ? given[1] : 0;
  if (require_bins(l, bins, low, high)) return_histogram(l, x, equal_bins(l, x, bins, low, high), 3, pj_bool(l, 4));
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

// ---- of points of several dimensions --------------------------------------------------------------------------------

// Self [.., dimensions] as [points, dimensions], with `bins` lists of them.
static bool read_points(pj_lowering *l, int64_t bins, hlo_value *out) {
  hlo_value x = pj_tensor(l, 0);
  if (!pj_require(l, pj_dtype_is_float(x.dtype), PJ_INVALID_ARGUMENT, "\"histogramdd\" not implemented for '%s'",
                  pj_dtype_name(x.dtype)) ||
      !pj_require(l, x.rank >= 2, PJ_INVALID_ARGUMENT,
                  "torch.histogramdd: input tensor should have at least 2 dimensions"))
    return false;
  int64_t dimensions = x.dims[x.rank - 1];
  if (!pj_require(l, dimensions <= PJ_MAX_RANK, PJ_INVALID_ARGUMENT,
                  "torch.histogramdd: a histogram has at most %d dimensions on this device", PJ_MAX_RANK) ||
      !pj_require(l, bins == dimensions, PJ_INVALID_ARGUMENT, "torch.histogramdd: expected %lld sequences of bin edges "
                  "for a %lld-dimensional histogram but got %lld", (long long)dimensions, (long long)dimensions,
                  (long long)bins))
    return false;
  *out = hlo_reshape(l->h, x, 2, (int64_t[]){dimensions ? hlo_size(x) / dimensions : 0, dimensions});
  return true;
}

static hlo_value coordinate(hlo *h, hlo_value points, int d) { return hlo_drop(h, hlo_slice_dim(h, points, 1, d, d + 1), 1); }

// Edges of equal bins in every dimension; `range` is a list of low and high of each.
static bool equal_bins_of_points(pj_lowering *l, hlo_value *out_points, hlo_value out_edges[PJ_MAX_RANK]) {
  int count, numbers;
  const int64_t *bins = pj_ints(l, 1, &count);
  const double *range = pj_floats(l, 2, &numbers);
  if (!read_points(l, count, out_points) ||
      !pj_require(l, !pj_present(l, 2) || numbers == 2 * count, PJ_INVALID_ARGUMENT, "torch.histogramdd: for a "
                  "%d-dimensional histogram range should have %d elements, but got %d", count, 2 * count, numbers))
    return false;
  for (int d = 0; d < count; ++d) {
    double low = numbers ? range[2 * d] : 0, high = numbers ? range[2 * d + 1] : 0;
    if (!pj_require(l, bins[d] > 0, PJ_INVALID_ARGUMENT, "torch.histogram(): bins must be > 0, but got %lld for dimension %d",
                    (long long)bins[d], d) ||
        !pj_require(l, low - low == 0 && high - high == 0, PJ_INVALID_ARGUMENT, "torch.histogramdd: dimension %d's range "
                    "[%g, %g] is not finite", d, low, high) ||
        !pj_require(l, low <= high, PJ_INVALID_ARGUMENT, "torch.histogramdd: min should not exceed max, but got min %g max "
                    "%g for dimension %d", low, high, d))
      return false;
    hlo_value x = coordinate(l->h, *out_points, d);
    // Without points the bins share [0, 1].
    out_edges[d] = equal_bins(l, x, bins[d], low, !numbers && hlo_size(x) == 0 ? 1 : high);
  }
  return true;
}

// aten::_histogramdd_bin_edges(self, bins, *, range, weight, density)
static void lower_histogramdd_edges(pj_lowering *l) {
  hlo_value points, edges[PJ_MAX_RANK];
  if (!equal_bins_of_points(l, &points, edges)) return;
  for (int d = 0; d < points.dims[1]; ++d) pj_return(l, d, edges[d]);
}

// The sums of the weights, or numbers, of points in the boxes between the edges.
static void return_boxes(pj_lowering *l, hlo_value points, const hlo_value *edges, int weight, bool density) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  int64_t boxes = pj_type_elements(&type);
  hlo_value box = hlo_full(h, PJ_S32, 1, points.dims, 0), outside = hlo_full(h, PJ_PRED, 1, points.dims, 0);
  for (int d = 0; d < type.rank; ++d) {
    hlo_value bin = bin_of(h, coordinate(h, points, d), edges[d]), bins = hlo_constant_int(h, PJ_S32, type.dims[d]);
    outside = hlo_or(h, outside, hlo_ge(h, bin, bins));
    box = hlo_add(h, hlo_mul(h, box, bins), bin);
  }
  box = hlo_select(h, outside, hlo_constant_int(h, PJ_S32, boxes), box);
  hlo_value weights = hlo_constant(h, points.dtype, 1);
  if (pj_present(l, weight)) {
    weights = hlo_flatten(h, hlo_convert(h, pj_tensor(l, weight), points.dtype));
    if (!pj_require(l, weights.dims[0] == points.dims[0], PJ_INVALID_ARGUMENT, "torch.histogramdd: if weight tensor is "
                    "provided it should have the same shape as the input tensor excluding its innermost dimension"))
      return;
  }
  hlo_value sums = hlo_reshape(h, sum_in_bins(l, box, weights, boxes), type.rank, type.dims);
  if (density) {
    sums = hlo_div(h, sums, hlo_reduce_all(h, HLO_ADD, sums));
    for (int d = 0; d < type.rank; ++d)
      sums = hlo_div(h, sums, hlo_broadcast_in_dim(h, widths_of(h, edges[d]), type.rank, type.dims, &d));
  }
  pj_return(l, 0, sums);
}

// aten::_histogramdd_from_bin_cts(self, bins, *, range, weight, density)
static void lower_histogramdd(pj_lowering *l) {
  hlo_value points, edges[PJ_MAX_RANK];
  if (equal_bins_of_points(l, &points, edges)) return_boxes(l, points, edges, 3, pj_bool(l, 4));
}

// aten::_histogramdd_from_bin_tensors(self, bins, *, weight, density): bins are the edges
static void lower_histogramdd_between(pj_lowering *l) {
  hlo_value points, edges[PJ_MAX_RANK];
  if (!read_points(l, pj_list_count(l, 1), &points)) return;
  for (int d = 0; d < points.dims[1]; ++d) {
    edges[d] = pj_list_tensor(l, 1, d);
    if (!pj_require(l, edges[d].rank == 1 && edges[d].dims[0] > 1, PJ_INVALID_ARGUMENT, "torch.histogramdd: bins tensor "
                    "should have one dimension and more than one element") ||
        !pj_require(l, edges[d].dtype == points.dtype, PJ_INVALID_ARGUMENT,
                    "torch.histogramdd: input tensor and bins tensors should have the same dtype"))
      return;
  }
  return_boxes(l, points, edges, 2, pj_bool(l, 3));
}

PJ_LOWERINGS(histogram_lowerings) = {
    {.name = "aten::histc", .lower = lower_histc, .statics = PJ_STATIC(2) | PJ_STATIC(3)},
    {.name = "aten::histogram.bin_ct", .lower = lower_histogram, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::histogram.bins_tensor", .lower = lower_histogram_edges, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::_histogramdd_bin_edges", .lower = lower_histogramdd_edges, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::_histogramdd_from_bin_cts", .lower = lower_histogramdd, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::_histogramdd_from_bin_tensors", .lower = lower_histogramdd_between, .flags = PJ_OP_DYNAMIC},
    {0},
};
