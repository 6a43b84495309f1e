// Padding with a constant, by reflection and by replication, and the gradients of the latter two.
#include "ops/lowering.h"

// aten::constant_pad_nd(self, pad, value): (low, high) pairs from the last dimension on; negative ones cut
static void lower_constant_pad(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int count;
  const int64_t *pad = pj_ints(l, 1, &count);
  if (!pj_require(l, count % 2 == 0, PJ_INVALID_ARGUMENT, "Length of pad must be even but instead it equals %d",
                  count) ||
      !pj_require(l, count / 2 <= x.rank, PJ_INVALID_ARGUMENT,
                  "Length of pad should be no more than twice the number of "
                  "dimensions of the input. Pad length is %d while the input has %d dimensions.",
                  count, x.rank))
    return;
  int64_t low[PJ_MAX_RANK] = {0}, high[PJ_MAX_RANK] = {0};
  for (int i = 0; i < count / 2; ++i) {
    int d = x.rank - 1 - i;
    low[d] = pad[2 * i];
    high[d] = pad[2 * i + 1];
    if (!pj_require(
            l, x.dims[d] + low[d] + high[d] >= 0, PJ_INVALID_ARGUMENT,
            "The input size %lld, plus negative padding "
            "%lld and %lld resulted in a negative output size, which is invalid. Check dimension %d of your input.",
            (long long)x.dims[d], (long long)low[d], (long long)high[d], d))
      return;
  }
  pj_return(l, 0, hlo_pad(l->h, x, pj_number(l, 2, x.dtype), low, high, NULL));
}

// ---- one dimension at a time ----------------------------------------------------------------------------------------

static hlo_value cut(pj_lowering *l, hlo_value x, int dim, int64_t low, int64_t high) {
  return hlo_slice_dim(l->h, x, dim, low < 0 ? -low : 0, x.dims[dim] + (high < 0 ? high : 0));
}

static hlo_value reversed(pj_lowering *l, hlo_value x, int dim) { return hlo_reverse(l->h, x, &dim, 1); }

static hlo_value reflect(pj_lowering *l, hlo_value x, int dim, int64_t low, int64_t high) {
  hlo *h = l->h;
  int64_t size = x.dims[dim];
  if (!pj_require(l, low < size && high < size, PJ_INVALID_ARGUMENT,
                  "Padding size should be less than the corresponding "
                  "input dimension, but got: padding (%lld, %lld) at dimension %d of input of size %lld",
                  (long long)low, (long long)high, dim, (long long)size))
    return x;
  hlo_value parts[3];
  int count = 0;
  if (low > 0) parts[count++] = reversed(l, hlo_slice_dim(h, x, dim, 1, low + 1), dim);
  parts[count++] = cut(l, x, dim, low, high);
  if (high > 0) parts[count++] = reversed(l, hlo_slice_dim(h, x, dim, size - 1 - high, size - 1), dim);
  return hlo_concatenate(h, parts, count, dim);
}

static hlo_value replicate(pj_lowering *l, hlo_value x, int dim, int64_t low, int64_t high) {
  hlo *h = l->h;
  int64_t size = x.dims[dim];
  if (!pj_require(l, size > 0, PJ_INVALID_ARGUMENT, "replication padding of an empty dimension %d", dim)) return x;
  hlo_value parts[3];
  int count = 0;
  int64_t dims[PJ_MAX_RANK];
  for (int d = 0; d < x.rank; ++d) dims[d] = x.dims[d];
  if (low > 0) {
    dims[dim] = low;
    parts[count++] = hlo_broadcast_to(h, hlo_slice_dim(h, x, dim, 0, 1), x.rank, dims);
  }
  parts[count++] = cut(l, x, dim, low, high);
  if (high > 0) {
    dims[dim] = high;
    parts[count++] = hlo_broadcast_to(h, hlo_slice_dim(h, x, dim, size - 1, size), x.rank, dims);
  }
  return hlo_concatenate(h, parts, count, dim);
}

// x in a dimension of `size` from `start` on, zeros elsewhere.
static hlo_value placed(pj_lowering *l, hlo_value x, int dim, int64_t start, int64_t size) {
  int64_t low[PJ_MAX_RANK] = {0}, high[PJ_MAX_RANK] = {0};
  low[dim] = start;
  high[dim] = size - start - x.dims[dim];
  return hlo_pad(l->h, x, hlo_constant(l->h, x.dtype, 0), low, high, NULL);
}

// The gradient of the part of x that is not padding.
static hlo_value inner(pj_lowering *l, hlo_value grad, int dim, int64_t size, int64_t low, int64_t high) {
  int64_t start = low > 0 ? low : 0, end = grad.dims[dim] - (high > 0 ? high : 0);
  return placed(l, hlo_slice_dim(l->h, grad, dim, start, end), dim, low < 0 ? -low : 0, size);
}

static hlo_value reflect_backward(pj_lowering *l, hlo_value grad, int dim, int64_t size, int64_t low, int64_t high) {
  hlo *h = l->h;
  int64_t end = grad.dims[dim];
  hlo_value sum = inner(l, grad, dim, size, low, high);
  if (low > 0) sum = hlo_add(h, sum, placed(l, reversed(l, hlo_slice_dim(h, grad, dim, 0, low), dim), dim, 1, size));
  if (high > 0)
    sum = hlo_add(
        h, sum, placed(l, reversed(l, hlo_slice_dim(h, grad, dim, end - high, end), dim), dim, size - 1 - high, size));
  return sum;
}

static hlo_value replicate_backward(pj_lowering *l, hlo_value grad, int dim, int64_t size, int64_t low, int64_t high) {
  hlo *h = l->h;
  int64_t end = grad.dims[dim];
  hlo_value sum = inner(l, grad, dim, size, low, high);
  if (low > 0) {
    hlo_value edge = hlo_keep(h, hlo_reduce_sum(h, hlo_slice_dim(h, grad, dim, 0, low), dim), dim);
    sum = hlo_add(h, sum, placed(l, edge, dim, 0, size));
  }
  if (high > 0) {
    hlo_value edge = hlo_keep(h, hlo_reduce_sum(h, hlo_slice_dim(h, grad, dim, end - high, end), dim), dim);
    sum = hlo_add(h, sum, placed(l, edge, dim, size - 1, size));
  }
  return sum;
}

// ---- all dimensions -------------------------------------------------------------------------------------------------

static void lower_padding(pj_lowering *l, hlo_value (*pad_dim)(pj_lowering *, hlo_value, int, int64_t, int64_t)) {
  hlo_value x = pj_tensor(l, 0);
  int count;
  const int64_t *pad = pj_ints(l, 1, &count);
  if (!pj_require(l, count % 2 == 0 && count / 2 <= x.rank, PJ_INVALID_ARGUMENT, "padding: wrong number of sizes (%d)",
                  count))
    return;
  for (int i = 0; i < count / 2 && !hlo_failed(l->h); ++i)
    x = pad_dim(l, x, x.rank - 1 - i, pad[2 * i], pad[2 * i + 1]);
  pj_return(l, 0, x);
}

// (grad_output, self, padding), summed in float32 for half types
static void lower_padding_backward(pj_lowering *l,
                                   hlo_value (*pad_dim)(pj_lowering *, hlo_value, int, int64_t, int64_t, int64_t)) {
  hlo_value grad = pj_tensor(l, 0);
  grad = hlo_convert(l->h, grad, pj_math_dtype(grad.dtype));
  pj_type x = pj_tensor_type(l, 1);
  int count;
  const int64_t *pad = pj_ints(l, 2, &count);
  bool fits = count % 2 == 0 && count / 2 <= x.rank && grad.rank == x.rank;
  for (int d = 0; fits && d < x.rank; ++d) {
    int i = x.rank - 1 - d;
    fits = grad.dims[d] == x.dims[d] + (i < count / 2 ? pad[2 * i] + pad[2 * i + 1] : 0);
  }
  if (!pj_require(l, fits, PJ_INVALID_ARGUMENT, "padding: grad_output has unexpected sizes")) return;
  for (int i = 0; i < count / 2 && !hlo_failed(l->h); ++i) {
    int d = x.rank - 1 - i;
    grad = pad_dim(l, grad, d, x.dims[d], pad[2 * i], pad[2 * i + 1]);
  }
  pj_return(l, 0, grad);
}

static void lower_reflection_pad(pj_lowering *l) { lower_padding(l, reflect); }
static void lower_replication_pad(pj_lowering *l) { lower_padding(l, replicate); }
static void lower_reflection_pad_backward(pj_lowering *l) { lower_padding_backward(l, reflect_backward); }
static void lower_replication_pad_backward(pj_lowering *l) { lower_padding_backward(l, replicate_backward); }

PJ_LOWERINGS(padding_lowerings) = {
    {.name = "aten::constant_pad_nd", .lower = lower_constant_pad},
    {.name = "aten::reflection_pad1d", .lower = lower_reflection_pad},
    {.name = "aten::reflection_pad2d", .lower = lower_reflection_pad},
    {.name = "aten::reflection_pad3d", .lower = lower_reflection_pad},
    {.name = "aten::replication_pad1d", .lower = lower_replication_pad},
    {.name = "aten::replication_pad2d", .lower = lower_replication_pad},
    {.name = "aten::replication_pad3d", .lower = lower_replication_pad},
    {.name = "aten::reflection_pad1d_backward", .lower = lower_reflection_pad_backward, .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::reflection_pad2d_backward", .lower = lower_reflection_pad_backward, .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::reflection_pad3d_backward", .lower = lower_reflection_pad_backward, .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::replication_pad1d_backward",
     .lower = lower_replication_pad_backward,
     .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::replication_pad2d_backward",
     .lower = lower_replication_pad_backward,
     .shape_only = PJ_SHAPE_ONLY(1)},
    {.name = "aten::replication_pad3d_backward",
     .lower = lower_replication_pad_backward,
     .shape_only = PJ_SHAPE_ONLY(1)},
    {0},
};
