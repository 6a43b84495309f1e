#include <string.h>

#include "hlo/internal.h"

// n operands of the same dimensions and n 0-d starts of their element types, copied to `out`: operands, then starts.
static bool gather_operands(hlo *h, const char *op, const hlo_value *operands, const hlo_value *starts, int n,
                            hlo_value out[2 * HLO_MAX_VALUES]) {
  if (n < 1 || n > HLO_MAX_VALUES) return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: of %d operands", op, n), false;
  if (!hlo_usable(h, op, operands, n) || !hlo_usable(h, op, starts, n)) return false;
  for (int i = 0; i < n; ++i)
    if (!hlo_same_dims(operands[i], operands[0]) || starts[i].rank || starts[i].dtype != operands[i].dtype)
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: operands %s and %s with start %s", op, TYPE(operands[0]),
                      TYPE(operands[i]), TYPE(starts[i])), false;
  memcpy(out, operands, (size_t)n * sizeof *out);
  memcpy(out + n, starts, (size_t)n * sizeof *out);
  return true;
}

static void fail_all(hlo_value *results, int n) {
  for (int i = 0; i < n; ++i) results[i] = hlo_invalid();
}

// The region of a reduction: 2n scalars in, n out.
static void put_reducer(hlo *h, const char *op, const hlo_value *starts, int n, hlo_body body, void *context) {
  hlo_value arguments[2 * HLO_MAX_VALUES], results[HLO_MAX_VALUES];
  for (int i = 0; i < n; ++i) arguments[i] = arguments[n + i] = results[i] = hlo_type(starts[i].dtype, 0, NULL);
  hlo_put(h, " (");
  hlo_region(h, op, true, arguments, 2 * n, body, context, results, n);
  hlo_put(h, ")");
}

// ---- reduce ---------------------------------------------------------------------------------------------------------

void hlo_reduce_many(hlo *h, const hlo_value *operands, const hlo_value *starts, int n, const int *dims, int count,
                     hlo_body body, void *context, hlo_value *out_results) {
  const char *op = "stablehlo.reduce";
  hlo_value all[2 * HLO_MAX_VALUES], results[HLO_MAX_VALUES];
  bool reduced[PJ_MAX_RANK] = {false};
  if (!gather_operands(h, op, operands, starts, n, all) ||
      !hlo_dim_set(h, op, "dims", operands[0], dims, count, reduced)) {
    fail_all(out_results, n);
    return;
  }
  for (int i = 0; i < n; ++i) {
    results[i] = hlo_type(all[i].dtype, 0, NULL);
    for (int d = 0; d < all[i].rank; ++d)
      if (!reduced[d]) results[i].dims[results[i].rank++] = all[i].dims[d];
  }
  if (hlo_begin(h, op, all, 2 * n, results, n)) {
    put_reducer(h, op, all + n, n, body, context);
    hlo_attribute_dims(h, "dimensions", dims, count);
    hlo_end(h, all, 2 * n, results, n);
  }
  memcpy(out_results, results, (size_t)n * sizeof *results);
}

hlo_value hlo_reduce(hlo *h, hlo_op op, hlo_value x, const int *dims, int count) {
  if (!count || !hlo_usable(h, "stablehlo.reduce", &x, 1)) return x;
  hlo_value start = hlo_identity(h, op, x.dtype), result;
  hlo_reduce_many(h, &x, &start, 1, dims, count, hlo_apply_body, &op, &result);
  return result;
}

static hlo_value reduce_dim(hlo *h, hlo_op op, hlo_value x, int dim) {
  if (!hlo_usable(h, "stablehlo.reduce", &x, 1) || !hlo_normal_dim(h, "stablehlo.reduce", x, &dim))
    return hlo_invalid();
  return hlo_reduce(h, op, x, &dim, 1);
}

hlo_value hlo_reduce_sum(hlo *h, hlo_value x, int dim) { return reduce_dim(h, HLO_ADD, x, dim); }
hlo_value hlo_reduce_max(hlo *h, hlo_value x, int dim) { return reduce_dim(h, HLO_MAX, x, dim); }

hlo_value hlo_reduce_all(hlo *h, hlo_op op, hlo_value x) {
  int dims[PJ_MAX_RANK];
  for (int i = 0; i < PJ_MAX_RANK; ++i) dims[i] = i;
  return hlo_reduce(h, op, x, dims, x.rank);
}

// ---- windows --------------------------------------------------------------------------------------------------------

hlo_window hlo_window_ones(void) {
  hlo_window window = {0};
  for (int i = 0; i < PJ_MAX_RANK; ++i)
    window.size[i] = window.stride[i] = window.dilation[i] = window.base_dilation[i] = 1;
  return window;
}

// The number of window positions in each dimension.
static bool window_dims(hlo *h, const char *op, hlo_value x, const hlo_window *w, hlo_value *out_type) {
  *out_type = hlo_retyped(x, x.dtype);
  for (int i = 0; i < x.rank; ++i) {
    int64_t size, window;
    if (w->size[i] < 1 || w->stride[i] < 1 || !hlo_dilated_size(w->size[i], w->dilation[i], 0, 0, &window) ||
        !hlo_dilated_size(x.dims[i], w->base_dilation[i], w->pad_low[i], w->pad_high[i], &size))
      return hlo_fail(h, PJ_INVALID_ARGUMENT,
                      "%s: window size, stride or dilation below 1, or padding that cuts more than "
                      "dimension %d of %s",
                      op, i, TYPE(x)),
             false;
    out_type->dims[i] = window > size ? 0 : (size - window) / w->stride[i] + 1;
  }
  return true;
}

void hlo_reduce_window_many(hlo *h, const hlo_value *operands, const hlo_value *starts, int n, const hlo_window *window,
                            hlo_body body, void *context, hlo_value *out_results) {
  const char *op = "stablehlo.reduce_window";
  hlo_value all[2 * HLO_MAX_VALUES], results[HLO_MAX_VALUES], type;
  if (!gather_operands(h, op, operands, starts, n, all) || !window_dims(h, op, all[0], window, &type)) {
    fail_all(out_results, n);
    return;
  }
  for (int i = 0; i < n; ++i) results[i] = hlo_retyped(type, all[i].dtype);
  if (hlo_begin(h, op, all, 2 * n, results, n)) {
    put_reducer(h, op, all + n, n, body, context);
    hlo_attribute_ints(h, "window_dimensions", window->size, type.rank);
    hlo_attribute_ints(h, "window_strides", window->stride, type.rank);
    hlo_attribute_ints(h, "base_dilations", window->base_dilation, type.rank);
    hlo_attribute_ints(h, "window_dilations", window->dilation, type.rank);
    hlo_attribute_pairs(h, "padding", window->pad_low, window->pad_high, type.rank);
    hlo_end(h, all, 2 * n, results, n);
  }
  memcpy(out_results, results, (size_t)n * sizeof *results);
}

hlo_value hlo_reduce_window(hlo *h, hlo_op op, hlo_value x, const hlo_window *window) {
  if (!hlo_usable(h, "stablehlo.reduce_window", &x, 1)) return hlo_invalid();
  hlo_value start = hlo_identity(h, op, x.dtype), result;
  hlo_reduce_window_many(h, &x, &start, 1, window, hlo_apply_body, &op, &result);
  return result;
}

// Pooling's gradient, PyTorch's rule: of equal values the first in the window gets it, and NaN wins.
static void select_larger(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_ge(h, arguments[0], arguments[1]);
}

hlo_value hlo_select_and_scatter_max(hlo *h, hlo_value operand, hlo_value source, hlo_value start,
                                     const hlo_window *window) {
  const char *op = "stablehlo.select_and_scatter";
  hlo_value operands[3] = {operand, source, start}, result = hlo_retyped(operand, operand.dtype), positions;
  if (!hlo_usable(h, op, operands, 3) || !hlo_want_kind(h, op, operand, KIND_REAL) ||
      !window_dims(h, op, operand, window, &positions))
    return hlo_invalid();
  if (!hlo_same_type(source, positions) || start.rank || start.dtype != operand.dtype)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: source %s and start %s, the window of %s has %s positions", op,
                    TYPE(source), TYPE(start), TYPE(operand), TYPE(positions));
  for (int i = 0; i < operand.rank; ++i)
    if (window->dilation[i] != 1 || window->base_dilation[i] != 1)
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: cannot be dilated", op);
  if (!hlo_begin(h, op, operands, 3, &result, 1)) return result;
  hlo_value scalars[2] = {hlo_type(operand.dtype, 0, NULL), hlo_type(operand.dtype, 0, NULL)};
  hlo_value chosen = hlo_type(PJ_PRED, 0, NULL), sum = scalars[0];
  hlo_op add = HLO_ADD;
  hlo_put(h, " (");
  hlo_region(h, op, true, scalars, 2, select_larger, NULL, &chosen, 1);
  hlo_put(h, ", ");
  hlo_region(h, op, true, scalars, 2, hlo_apply_body, &add, &sum, 1);
  hlo_put(h, ")");
  hlo_attribute_ints(h, "window_dimensions", window->size, operand.rank);
  hlo_attribute_ints(h, "window_strides", window->stride, operand.rank);
  hlo_attribute_pairs(h, "padding", window->pad_low, window->pad_high, operand.rank);
  hlo_end(h, operands, 3, &result, 1);
  return result;
}

// ---- scans ----------------------------------------------------------------------------------------------------------

// One window that reaches from the first element to each. XLA rewrites it to a tree of small windows (its pass
// ReduceWindowRewriter). Against doubling by shifted adds on XLA:CPU (API 0.115), 8 x 65536: s64 0.8 ms to 27 ms, f32
// 0.7 ms to 4 ms, and half the compile time; equal at 8 x 16 and 8 x 1024.
static void scan_window(hlo *h, const hlo_value *x, const hlo_value *starts, int n, int dim, hlo_body body,
                        void *context, hlo_value *out_results) {
  hlo_window window = hlo_window_ones();
  window.size[dim] = x[0].dims[dim];
  window.pad_low[dim] = window.size[dim] - 1;
  hlo_reduce_window_many(h, x, starts, n, &window, body, context, out_results);
}

// Each step combines what is `distance` before with what is here, and doubles the distance. One small loop, in which the
// body is computed log2(size) times for each element. The tree of windows needs 16 times that for bodies of many ops
// (logcumsumexp of 1024 x 1024 took 1.3 s on XLA:CPU, API 0.115), and of several results it gives all the type of the
// first, or ends the process (API 0.81 and 0.115). Halving instead of doubling computes the body only twice for each
// element, but such a program compiles for seconds.
typedef struct doubling {
  const hlo_value *starts;
  int n, dim;
  hlo_body body;
  void *context;
} doubling;

static void reaches_in(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  const doubling *d = context;
  results[0] = hlo_lt(h, state[0], hlo_constant_int(h, state[0].dtype, state[1].dims[d->dim]));
}

static void combine_at_distance(hlo *h, const hlo_value *state, hlo_value *results, void *context) {
  const doubling *d = context;
  hlo_value distance = state[0], pairs[2 * HLO_MAX_VALUES] = {0}, at[PJ_MAX_RANK];
  for (int i = 0; i < d->n; ++i) {
    hlo_value x = state[1 + i];
    hlo_value front = hlo_broadcast_like(h, d->starts[i], x), padded = hlo_concatenate(h, (hlo_value[]){front, x}, 2, d->dim);
    for (int k = 0; k < x.rank; ++k) at[k] = hlo_constant_int(h, distance.dtype, 0);
    at[d->dim] = hlo_sub(h, hlo_constant_int(h, distance.dtype, x.dims[d->dim]), distance);
    pairs[i] = hlo_dynamic_slice(h, padded, at, x.dims);
    pairs[d->n + i] = x;
  }
  d->body(h, pairs, results + 1, d->context);
  // Not distance + distance: XLA (API 0.81) takes what a loop's counter is added to for a constant, and ends the process.
  results[0] = hlo_mul(h, distance, hlo_constant_int(h, distance.dtype, 2));
}

static void scan_doubling(hlo *h, const hlo_value *x, doubling *d, hlo_value *out_results) {
  hlo_value state[1 + HLO_MAX_VALUES] = {hlo_constant_int(h, PJ_S64, 1)}, ends[1 + HLO_MAX_VALUES] = {0};
  memcpy(state + 1, x, (size_t)d->n * sizeof *x);
  hlo_while(h, state, 1 + d->n, reaches_in, combine_at_distance, d, ends);
  memcpy(out_results, ends + 1, (size_t)d->n * sizeof *x);
}

static bool begin_scan(hlo *h, const hlo_value *operands, const hlo_value *starts, int n, int *dim, hlo_value *all,
                       hlo_value *out_results) {
  if (!gather_operands(h, "scan", operands, starts, n, all) || !hlo_normal_dim(h, "scan", operands[0], dim)) {
    fail_all(out_results, n);
    return false;
  }
  bool trivial = hlo_size(all[0]) == 0 || all[0].dims[*dim] == 1;
  if (trivial) memcpy(out_results, all, (size_t)n * sizeof *all);
  return !trivial;
}

void hlo_scan_many(hlo *h, const hlo_value *operands, const hlo_value *starts, int n, int dim, hlo_body body,
                   void *context, hlo_value *out_results) {
  hlo_value all[2 * HLO_MAX_VALUES] = {0};
  if (!begin_scan(h, operands, starts, n, &dim, all, out_results)) return;
  scan_doubling(h, all, &(doubling){all + n, n, dim, body, context}, out_results);
}

hlo_value hlo_scan(hlo *h, hlo_op op, hlo_value x, int dim) {
  if (!hlo_usable(h, "scan", &x, 1)) return hlo_invalid();
  hlo_value start = hlo_identity(h, op, x.dtype), all[2] = {0}, result;
  if (begin_scan(h, &x, &start, 1, &dim, all, &result)) scan_window(h, all, all + 1, 1, dim, hlo_apply_body, &op, &result);
  return result;
}
