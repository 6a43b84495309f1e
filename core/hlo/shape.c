#include <inttypes.h>
#include <string.h>

#include "hlo/internal.h"

hlo_value hlo_reshape(hlo *h, hlo_value x, int rank, const int64_t *dims) {
  hlo_value result = hlo_type(x.dtype, rank, dims);
  if (!hlo_usable(h, "stablehlo.reshape", &x, 1)) return hlo_invalid();
  if (rank < 0 || rank > PJ_MAX_RANK || hlo_size(result) != hlo_size(x))
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "stablehlo.reshape: %s to %s", TYPE(x), TYPE(result));
  if (hlo_same_dims(x, result)) return x;
  return hlo_simple(h, "stablehlo.reshape", &x, 1, result);
}

hlo_value hlo_transpose(hlo *h, hlo_value x, const int *permutation) {
  const char *op = "stablehlo.transpose";
  bool seen[PJ_MAX_RANK] = {false}, moved = false;
  if (!hlo_usable(h, op, &x, 1) || !hlo_dim_set(h, op, "permutation", x, permutation, x.rank, seen))
    return hlo_invalid();
  hlo_value result = x;
  for (int i = 0; i < x.rank; ++i) {
    result.dims[i] = x.dims[permutation[i]];
    moved |= permutation[i] != i;
  }
  if (!moved) return x;
  if (!hlo_begin(h, op, &x, 1, &result, 1)) return result;
  hlo_attribute_dims(h, "permutation", permutation, x.rank);
  hlo_end(h, &x, 1, &result, 1);
  return result;
}

hlo_value hlo_swap(hlo *h, hlo_value x, int a, int b) {
  int permutation[PJ_MAX_RANK];
  if (!hlo_usable(h, "swap", &x, 1) || !hlo_normal_dim(h, "swap", x, &a) || !hlo_normal_dim(h, "swap", x, &b))
    return hlo_invalid();
  for (int i = 0; i < x.rank; ++i) permutation[i] = i == a ? b : i == b ? a : i;
  return hlo_transpose(h, x, permutation);
}

hlo_value hlo_broadcast_to(hlo *h, hlo_value x, int rank, const int64_t *dims) {
  int map[PJ_MAX_RANK];
  if (!hlo_usable(h, "broadcast", &x, 1)) return hlo_invalid();
  if (rank < x.rank || rank > PJ_MAX_RANK)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "broadcast: %s to %d dimensions", TYPE(x), rank);
  for (int i = 0; i < x.rank; ++i) map[i] = rank - x.rank + i;
  return hlo_broadcast_in_dim(h, x, rank, dims, map);
}

hlo_value hlo_broadcast_like(hlo *h, hlo_value x, hlo_value like) {
  return hlo_broadcast_to(h, x, like.rank, like.dims);
}

hlo_value hlo_broadcast_in_dim(hlo *h, hlo_value x, int rank, const int64_t *dims, const int *dims_map) {
  const char *op = "stablehlo.broadcast_in_dim";
  hlo_value result = hlo_type(x.dtype, rank, dims);
  bool seen[PJ_MAX_RANK] = {false};
  if (!hlo_usable(h, op, &x, 1)) return hlo_invalid();
  if (rank < 0 || rank > PJ_MAX_RANK)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s to %d dimensions", op, TYPE(x), rank);
  if (!hlo_dim_set(h, op, "dimensions map", result, dims_map, x.rank, seen)) return hlo_invalid();
  for (int i = 0; i < x.rank; ++i)
    if (x.dims[i] != 1 && x.dims[i] != dims[dims_map[i]])
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: dimension %d of %s to dimension %d of %s", op, i, TYPE(x),
                      dims_map[i], TYPE(result));
  bool in_order = true;
  for (int i = 0; i < x.rank; ++i) in_order &= dims_map[i] == i;
  if (in_order && hlo_same_dims(x, result)) return x;
  if (!hlo_begin(h, op, &x, 1, &result, 1)) return result;
  hlo_attribute_dims(h, "broadcast_dimensions", dims_map, x.rank);
  hlo_end(h, &x, 1, &result, 1);
  return result;
}

hlo_value hlo_keep(hlo *h, hlo_value x, int dim) {
  if (!hlo_usable(h, "keep", &x, 1)) return hlo_invalid();
  int at = dim < 0 ? dim + x.rank + 1 : dim;
  if (at < 0 || at > x.rank || x.rank == PJ_MAX_RANK)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "keep: cannot insert dimension %d into %s", dim, TYPE(x));
  int64_t dims[PJ_MAX_RANK];
  for (int i = 0; i <= x.rank; ++i) dims[i] = i == at ? 1 : x.dims[i - (i > at)];
  return hlo_reshape(h, x, x.rank + 1, dims);
}

hlo_value hlo_drop(hlo *h, hlo_value x, int dim) {
  if (!hlo_usable(h, "drop", &x, 1) || !hlo_normal_dim(h, "drop", x, &dim)) return hlo_invalid();
  if (x.dims[dim] != 1)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "drop: dimension %d of %s is not of size 1", dim, TYPE(x));
  int64_t dims[PJ_MAX_RANK];
  for (int i = 0; i < x.rank - 1; ++i) dims[i] = x.dims[i + (i >= dim)];
  return hlo_reshape(h, x, x.rank - 1, dims);
}

hlo_value hlo_flatten(hlo *h, hlo_value x) {
  if (!hlo_usable(h, "flatten", &x, 1)) return hlo_invalid();
  return hlo_reshape(h, x, 1, (int64_t[]){hlo_size(x)});
}

hlo_value hlo_slice(hlo *h, hlo_value x, const int64_t *start, const int64_t *limit, const int64_t *stride) {
  const char *op = "stablehlo.slice";
  if (!hlo_usable(h, op, &x, 1)) return hlo_invalid();
  hlo_value result = x;
  int64_t strides[PJ_MAX_RANK];
  for (int i = 0; i < x.rank; ++i) {
    strides[i] = stride ? stride[i] : 1;
    if (start[i] < 0 || start[i] > limit[i] || limit[i] > x.dims[i] || strides[i] < 1)
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %" PRId64 ":%" PRId64 ":%" PRId64 " of dimension %d of %s", op,
                      start[i], limit[i], strides[i], i, TYPE(x));
    result.dims[i] = limit[i] == start[i] ? 0 : (limit[i] - start[i] - 1) / strides[i] + 1;
  }
  if (hlo_same_dims(x, result)) return x;
  if (!hlo_begin(h, op, &x, 1, &result, 1)) return result;
  hlo_attribute_ints(h, "start_indices", start, x.rank);
  hlo_attribute_ints(h, "limit_indices", limit, x.rank);
  hlo_attribute_ints(h, "strides", strides, x.rank);
  hlo_end(h, &x, 1, &result, 1);
  return result;
}

hlo_value hlo_slice_dim(hlo *h, hlo_value x, int dim, int64_t start, int64_t limit) {
  if (!hlo_usable(h, "stablehlo.slice", &x, 1) || !hlo_normal_dim(h, "stablehlo.slice", x, &dim)) return hlo_invalid();
  int64_t starts[PJ_MAX_RANK] = {0}, limits[PJ_MAX_RANK];
  memcpy(limits, x.dims, sizeof limits);
  starts[dim] = start;
  limits[dim] = limit;
  return hlo_slice(h, x, starts, limits, NULL);
}

// The 0-d start indices of a dynamic slice: as many as dimensions, of one integer type.
static bool check_starts(hlo *h, const char *op, hlo_value x, const hlo_value *start) {
  if (!hlo_usable(h, op, start, x.rank)) return false;
  for (int i = 0; i < x.rank; ++i)
    if (start[i].rank || !(hlo_kind(start[i].dtype) & KIND_INTEGER) || start[i].dtype != start[0].dtype)
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: start index %d of %s is %s", op, i, TYPE(x), TYPE(start[i])), false;
  return true;
}

hlo_value hlo_dynamic_slice(hlo *h, hlo_value x, const hlo_value *start, const int64_t *sizes) {
  const char *op = "stablehlo.dynamic_slice";
  if (!hlo_usable(h, op, &x, 1) || !check_starts(h, op, x, start)) return hlo_invalid();
  hlo_value result = hlo_type(x.dtype, x.rank, sizes);
  for (int i = 0; i < x.rank; ++i)
    if (sizes[i] < 0 || sizes[i] > x.dims[i])
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s from %s", op, TYPE(result), TYPE(x));
  if (hlo_same_dims(x, result)) return x;  // the start is clamped to 0
  hlo_value operands[PJ_MAX_RANK + 1] = {x};
  memcpy(operands + 1, start, (size_t)x.rank * sizeof *start);
  if (!hlo_begin(h, op, operands, x.rank + 1, &result, 1)) return result;
  hlo_attribute_ints(h, "slice_sizes", sizes, x.rank);
  hlo_end(h, operands, x.rank + 1, &result, 1);
  return result;
}

hlo_value hlo_dynamic_update_slice(hlo *h, hlo_value x, hlo_value update, const hlo_value *start) {
  const char *op = "stablehlo.dynamic_update_slice";
  hlo_value operands[PJ_MAX_RANK + 2] = {x, update};
  if (!hlo_usable(h, op, operands, 2) || !check_starts(h, op, x, start)) return hlo_invalid();
  bool fits = x.dtype == update.dtype && x.rank == update.rank;
  for (int i = 0; fits && i < x.rank; ++i) fits = update.dims[i] <= x.dims[i];
  if (!fits) return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s into %s", op, TYPE(update), TYPE(x));
  if (hlo_same_dims(x, update)) return update;
  memcpy(operands + 2, start, (size_t)x.rank * sizeof *start);
  return hlo_simple(h, op, operands, x.rank + 2, hlo_retyped(x, x.dtype));
}

hlo_value hlo_pad(hlo *h, hlo_value x, hlo_value value, const int64_t *low, const int64_t *high,
                  const int64_t *interior) {
  const char *op = "stablehlo.pad";
  static const int64_t zeros[PJ_MAX_RANK];
  hlo_value operands[2] = {x, value}, result = x;
  if (!hlo_usable(h, op, operands, 2)) return hlo_invalid();
  if (value.rank || value.dtype != x.dtype)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s with %s", op, TYPE(x), TYPE(value));
  low = low ? low : zeros, high = high ? high : zeros, interior = interior ? interior : zeros;
  bool padded = false;
  for (int i = 0; i < x.rank; ++i) {
    if (interior[i] == INT64_MAX || !hlo_dilated_size(x.dims[i], interior[i] + 1, low[i], high[i], &result.dims[i]))
      return hlo_fail(h, PJ_INVALID_ARGUMENT,
                      "%s: dimension %d of %s by %" PRId64 ", %" PRId64 " and %" PRId64 " between", op, i, TYPE(x),
                      low[i], high[i], interior[i]);
    padded |= low[i] || high[i] || interior[i];
  }
  if (!padded) return x;
  if (!hlo_begin(h, op, operands, 2, &result, 1)) return result;
  hlo_attribute_ints(h, "edge_padding_low", low, x.rank);
  hlo_attribute_ints(h, "edge_padding_high", high, x.rank);
  hlo_attribute_ints(h, "interior_padding", interior, x.rank);
  hlo_end(h, operands, 2, &result, 1);
  return result;
}

hlo_value hlo_reverse(hlo *h, hlo_value x, const int *dims, int count) {
  const char *op = "stablehlo.reverse";
  bool seen[PJ_MAX_RANK] = {false};
  if (!hlo_usable(h, op, &x, 1) || !hlo_dim_set(h, op, "dims", x, dims, count, seen)) return hlo_invalid();
  if (!count) return x;
  hlo_value result = x;
  if (!hlo_begin(h, op, &x, 1, &result, 1)) return result;
  hlo_attribute_dims(h, "dimensions", dims, count);
  hlo_end(h, &x, 1, &result, 1);
  return result;
}

hlo_value hlo_concatenate(hlo *h, const hlo_value *values, int count, int dim) {
  const char *op = "stablehlo.concatenate";
  if (count < 1) return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: of nothing", op);
  if (!hlo_usable(h, op, values, count) || !hlo_normal_dim(h, op, values[0], &dim)) return hlo_invalid();
  hlo_value result = values[0];
  for (int i = 1; i < count; ++i) {
    hlo_value expected = values[0];
    if (values[i].rank == expected.rank) expected.dims[dim] = values[i].dims[dim];
    if (!hlo_same_type(expected, values[i]))
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s and %s along dimension %d", op, TYPE(values[0]), TYPE(values[i]),
                      dim);
    if (__builtin_add_overflow(result.dims[dim], values[i].dims[dim], &result.dims[dim]))
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: the size of dimension %d overflows", op, dim);
  }
  if (count == 1) return values[0];
  if (!hlo_begin(h, op, values, count, &result, 1)) return result;
  hlo_attribute_int(h, "dimension", dim);
  hlo_end(h, values, count, &result, 1);
  return result;
}
