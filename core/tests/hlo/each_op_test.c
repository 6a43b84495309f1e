// One small module for each operation and the element types that it takes: the writer accepts it, and so does the
// compiler of the plugin that PJ_PLUGIN names.
#include "hlo/plugin.h"

#include "hlo/internal.h"

#define MAX_RESULTS 64

#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#define INTS(...) (int64_t[]){__VA_ARGS__}
#define DIM_LIST(...) (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))
#define CASE(name) static void case_##name(hlo *h, hlo_value *r, int *count)

static hlo_value in(hlo *h, pj_dtype dtype, int rank, const int64_t *dims) {
  return hlo_parameter(h, dtype, rank, dims, -1);
}
static void give(hlo_value *r, int *count, hlo_value x) { r[(*count)++] = x; }

// ---- elementwise: every element type that the op takes --------------------------------------------------------------

typedef hlo_value (*unary_function)(hlo *h, hlo_value x);
typedef hlo_value (*binary_function)(hlo *h, hlo_value a, hlo_value b);

static bool takes(unary_function unary, binary_function binary, pj_dtype dtype) {
  hlo *probe = hlo_create();
  hlo_value x = in(probe, dtype, DIMS(2));
  if (unary) unary(probe, x);
  if (binary) binary(probe, x, x);
  bool ok = !hlo_failed(probe);
  hlo_destroy(probe);
  return ok;
}

static void each_dtype(hlo *h, hlo_value *r, int *count, unary_function unary, binary_function binary) {
  for (int i = PJ_PRED; i <= PJ_C128; ++i) {
    pj_dtype dtype = (pj_dtype)i;
    if (!takes(unary, binary, dtype)) continue;
    hlo_value x = in(h, dtype, DIMS(3, 2));
    give(r, count, unary ? unary(h, x) : binary(h, x, in(h, dtype, DIMS(2))));
  }
}

#define UNARY_CASE(name, op) CASE(name) { each_dtype(h, r, count, hlo_##name, NULL); }
#define BINARY_CASE(name, op) CASE(name) { each_dtype(h, r, count, NULL, hlo_##name); }
#define MORE_UNARY(X) X(atan, ) X(abs, ) X(sign, ) X(is_nan, ) X(is_finite, ) X(real, ) X(imag, ) \
  X(conj, ) X(optimization_barrier, )
#define MORE_BINARY(X) X(atan2, ) X(shr, ) X(eq, ) X(ne, ) X(lt, ) X(le, ) X(gt, ) X(ge, ) X(lt_total, ) X(complex, )
HLO_UNARY_OPS(UNARY_CASE)
MORE_UNARY(UNARY_CASE)
HLO_BINARY_OPS(BINARY_CASE)
MORE_BINARY(BINARY_CASE)

static hlo_value select_self(hlo *h, hlo_value a, hlo_value b) { return hlo_select(h, hlo_ne(h, a, b), a, b); }
static hlo_value select_scalar(hlo *h, hlo_value a, hlo_value b) {
  return hlo_select(h, hlo_constant(h, PJ_PRED, 1), a, b);
}
static hlo_value clamp(hlo *h, hlo_value a, hlo_value b) { return hlo_clamp(h, hlo_constant(h, a.dtype, 0), a, b); }
CASE(select) { each_dtype(h, r, count, NULL, select_self); each_dtype(h, r, count, NULL, select_scalar); }
CASE(clamp) { each_dtype(h, r, count, NULL, clamp); }

// From one element type to all others.
static void convert_from(hlo *h, hlo_value *r, int *count, pj_dtype from) {
  hlo_value x = in(h, from, DIMS(4));
  for (int to = PJ_PRED; to < PJ_DTYPE_COUNT; ++to)
    if (to != (int)from) give(r, count, hlo_convert(h, x, (pj_dtype)to));
}
CASE(convert_pred) { convert_from(h, r, count, PJ_PRED); }
CASE(convert_s64) { convert_from(h, r, count, PJ_S64); }
CASE(convert_u8) { convert_from(h, r, count, PJ_U8); }
CASE(convert_f32) { convert_from(h, r, count, PJ_F32); }
CASE(convert_bf16) { convert_from(h, r, count, PJ_BF16); }
CASE(convert_f64) { convert_from(h, r, count, PJ_F64); }
CASE(convert_c64) { convert_from(h, r, count, PJ_C64); }
CASE(convert_f8) { convert_from(h, r, count, PJ_F8E4M3FN); }

// 16 bytes of each type as each other type.
static void bitcast_from(hlo *h, hlo_value *r, int *count, pj_dtype from) {
  hlo_value x = in(h, from, DIMS(3, 16 / (int64_t)pj_dtype_size(from)));
  for (int to = PJ_PRED; to < PJ_DTYPE_COUNT; ++to) {
    int64_t group = (int64_t)pj_dtype_size((pj_dtype)to) / (int64_t)pj_dtype_size(from);
    hlo_value grouped = group > 1 ? hlo_reshape(h, x, DIMS(3, x.dims[1] / group, group)) : x;
    if (to != (int)from) give(r, count, hlo_bitcast(h, grouped, (pj_dtype)to));
  }
}
CASE(bitcast_pred) { bitcast_from(h, r, count, PJ_PRED); }
CASE(bitcast_u8) { bitcast_from(h, r, count, PJ_U8); }
CASE(bitcast_s16) { bitcast_from(h, r, count, PJ_S16); }
CASE(bitcast_f32) { bitcast_from(h, r, count, PJ_F32); }
CASE(bitcast_s64) { bitcast_from(h, r, count, PJ_S64); }
CASE(bitcast_c64) { bitcast_from(h, r, count, PJ_C64); }
CASE(bitcast_c128) { bitcast_from(h, r, count, PJ_C128); }

// ---- constants ------------------------------------------------------------------------------------------------------

CASE(constants) {
  for (int i = PJ_PRED; i < PJ_DTYPE_COUNT; ++i) {
    pj_dtype dtype = (pj_dtype)i;
    give(r, count, hlo_constant(h, dtype, 1));
    give(r, count, hlo_full(h, dtype, DIMS(3, 0), 1));
    if (!pj_dtype_is_complex(dtype)) give(r, count, hlo_add(h, hlo_lowest(h, dtype), hlo_highest(h, dtype)));
  }
}
CASE(constant_lists) {
  give(r, count, hlo_constant_ints(h, PJ_S64, INTS(INT64_MIN, -1, INT64_MAX), 3));
  give(r, count, hlo_constant_ints(h, PJ_U64, INTS(-1, 0, 7), 3));
  give(r, count, hlo_constant_ints(h, PJ_PRED, INTS(1, 0), 2));
  give(r, count, hlo_constant_ints(h, PJ_S32, NULL, 0));
  give(r, count, hlo_constant_floats(h, PJ_BF16, (double[]){0.1, 1e300, -0.0, 1.0 / 0.0, 0.0 / 0.0}, 5));
  give(r, count, hlo_constant_floats(h, PJ_C64, (double[]){0.1, -1.0 / 0.0}, 2));
  give(r, count, hlo_constant_floats(h, PJ_F64, NULL, 0));
}
CASE(iota) {
  for (int i = PJ_PRED; i <= PJ_C128; ++i) give(r, count, hlo_iota(h, (pj_dtype)i, DIMS(2, 3), -1));
  give(r, count, hlo_iota(h, PJ_S32, DIMS(0, 3), 0));
}

// ---- shape ----------------------------------------------------------------------------------------------------------

CASE(shape) {
  hlo_value x = in(h, PJ_F32, DIMS(2, 3, 4)), empty = in(h, PJ_S32, DIMS(2, 0)), scalar = in(h, PJ_PRED, 0, NULL);
  give(r, count, hlo_reshape(h, x, DIMS(4, 6)));
  give(r, count, hlo_reshape(h, empty, DIMS(0, 5, 7)));
  give(r, count, hlo_reshape(h, scalar, DIMS(1, 1)));
  give(r, count, hlo_transpose(h, x, (int[]){2, 0, 1}));
  give(r, count, hlo_swap(h, empty, 0, -1));
  give(r, count, hlo_broadcast_to(h, hlo_slice_dim(h, x, 1, 0, 1), DIMS(5, 2, 3, 4)));
  give(r, count, hlo_broadcast_to(h, empty, DIMS(3, 2, 0)));
  give(r, count, hlo_broadcast_in_dim(h, x, DIMS(4, 2, 3), (int[]){1, 2, 0}));
  give(r, count, hlo_keep(h, x, -1));
  give(r, count, hlo_drop(h, hlo_keep(h, scalar, 0), 0));
  give(r, count, hlo_flatten(h, x));
  give(r, count, hlo_flatten(h, scalar));
  give(r, count, hlo_slice(h, x, INTS(0, 0, 1), INTS(2, 3, 4), INTS(1, 2, 3)));
  give(r, count, hlo_slice(h, x, INTS(0, 1, 1), INTS(2, 1, 4), NULL));
  hlo_value zero = hlo_constant_int(h, PJ_S32, 0), pad = hlo_constant(h, PJ_F32, 7);
  give(r, count, hlo_dynamic_slice(h, x, (hlo_value[]){zero, zero, zero}, INTS(1, 0, 4)));
  give(r, count, hlo_dynamic_slice(h, x, (hlo_value[]){zero, zero, zero}, INTS(1, 2, 4)));
  give(r, count, hlo_dynamic_slice(h, scalar, NULL, NULL));
  give(r, count, hlo_dynamic_update_slice(h, x, hlo_slice_dim(h, x, 0, 1, 2), (hlo_value[]){zero, zero, zero}));
  give(r, count, hlo_dynamic_update_slice(h, x, hlo_slice_dim(h, x, 0, 1, 1), (hlo_value[]){zero, zero, zero}));
  give(r, count, hlo_pad(h, x, pad, INTS(1, -1, 0), INTS(0, 2, -3), INTS(0, 1, 2)));
  give(r, count, hlo_pad(h, empty, zero, INTS(0, 3), NULL, NULL));
  give(r, count, hlo_reverse(h, x, DIM_LIST(0, 2)));
  give(r, count, hlo_concatenate(h, (hlo_value[]){x, x, hlo_slice_dim(h, x, -1, 0, 0)}, 3, -1));
}

// ---- contractions ---------------------------------------------------------------------------------------------------

CASE(dot_general) {
  static const pj_dtype dtypes[] = {PJ_PRED, PJ_S8,  PJ_S32, PJ_S64, PJ_U8,  PJ_F16,
                                    PJ_BF16, PJ_F32, PJ_F64, PJ_C64, PJ_C128};
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; ++i) {
    hlo_value a = in(h, dtypes[i], DIMS(2, 3, 4)), b = in(h, dtypes[i], DIMS(2, 4, 5));
    give(r, count, hlo_matmul(h, a, b, dtypes[i]));
    give(r, count, hlo_dot_general(h, a, b, (int[]){0}, (int[]){0}, 1, NULL, NULL, 0, dtypes[i]));
  }
  hlo_value f16 = in(h, PJ_F16, DIMS(3, 4)), bf16 = in(h, PJ_BF16, DIMS(4, 4)), f32 = in(h, PJ_F32, DIMS(4, 0));
  give(r, count, hlo_matmul(h, f16, hlo_swap(h, f16, 0, 1), PJ_F32));
  give(r, count, hlo_matmul(h, bf16, bf16, PJ_F32));
  give(r, count, hlo_matmul(h, hlo_convert(h, bf16, PJ_S8), hlo_convert(h, bf16, PJ_S8), PJ_S32));
  hlo_set_precision(h, HLO_PRECISION_HIGHEST);
  give(r, count, hlo_matmul(h, f32, hlo_swap(h, f32, 0, 1), PJ_F32));
  hlo_set_precision(h, HLO_PRECISION_HIGH);
  give(r, count, hlo_matmul(h, hlo_swap(h, f32, 0, 1), f32, PJ_F32));
}

// NCHW by OIHW, or its 0- to 3-d sisters.
static hlo_convolution_spec plain_convolution(int spatial) {
  hlo_convolution_spec s = {.spatial = spatial, .input_batch = 0, .input_feature = 1, .kernel_output_feature = 0,
                            .kernel_input_feature = 1, .output_batch = 0, .output_feature = 1, .feature_groups = 1,
                            .batch_groups = 1};
  for (int i = 0; i < spatial; ++i) {
    s.input_spatial[i] = s.kernel_spatial[i] = s.output_spatial[i] = i + 2;
    s.stride[i] = s.lhs_dilation[i] = s.rhs_dilation[i] = 1;
  }
  return s;
}
CASE(convolution) {
  hlo_convolution_spec none = plain_convolution(0), one = plain_convolution(1), two = plain_convolution(2),
                       three = plain_convolution(3);
  give(r, count, hlo_convolution(h, in(h, PJ_F32, DIMS(2, 3)), in(h, PJ_F32, DIMS(4, 3)), &none, PJ_F32));
  one.feature_groups = 2, one.stride[0] = 2, one.pad_low[0] = 1;
  give(r, count, hlo_convolution(h, in(h, PJ_BF16, DIMS(2, 6, 9)), in(h, PJ_BF16, DIMS(4, 3, 3)), &one, PJ_F32));
  two.rhs_dilation[1] = 2, two.lhs_dilation[0] = 2, two.reverse[0] = true, two.pad_high[1] = 3, two.pad_low[0] = -1;
  hlo_set_precision(h, HLO_PRECISION_HIGHEST);
  give(r, count, hlo_convolution(h, in(h, PJ_F32, DIMS(2, 3, 9, 8)), in(h, PJ_F32, DIMS(4, 3, 3, 2)), &two, PJ_F32));
  give(r, count, hlo_convolution(h, in(h, PJ_F64, DIMS(0, 3, 9, 8)), in(h, PJ_F64, DIMS(4, 3, 3, 2)), &two, PJ_F64));
  three.batch_groups = 2;
  give(r, count,
       hlo_convolution(h, in(h, PJ_F32, DIMS(4, 3, 5, 5, 5)), in(h, PJ_F32, DIMS(4, 3, 2, 2, 2)), &three, PJ_F32));
}
CASE(convolution_int) {
  hlo_convolution_spec two = plain_convolution(2);
  give(r, count, hlo_convolution(h, in(h, PJ_S32, DIMS(2, 3, 9, 8)), in(h, PJ_S32, DIMS(4, 3, 3, 2)), &two, PJ_S32));
  give(r, count, hlo_convolution(h, in(h, PJ_S64, DIMS(2, 3, 9, 8)), in(h, PJ_S64, DIMS(4, 3, 3, 2)), &two, PJ_S64));
}
CASE(convolution_complex) {
  hlo_convolution_spec two = plain_convolution(2);
  give(r, count, hlo_convolution(h, in(h, PJ_C64, DIMS(2, 3, 9, 8)), in(h, PJ_C64, DIMS(4, 3, 3, 2)), &two, PJ_C64));
}

// ---- reductions and windows -----------------------------------------------------------------------------------------

static const pj_dtype REDUCED[] = {PJ_PRED, PJ_S32, PJ_S64, PJ_U8, PJ_BF16, PJ_F32, PJ_F64};
static const int REDUCED_COUNT = sizeof REDUCED / sizeof REDUCED[0];

CASE(reduce) {
  for (int i = 0; i < REDUCED_COUNT; ++i)
    for (int op = HLO_ADD; op <= (pj_dtype_is_float(REDUCED[i]) ? HLO_MIN : HLO_OR); ++op)
      give(r, count, hlo_reduce(h, (hlo_op)op, in(h, REDUCED[i], DIMS(2, 3, 4)), DIM_LIST(2, 0)));
  hlo_value x = in(h, PJ_C64, DIMS(2, 3)), empty = in(h, PJ_F32, DIMS(2, 0));
  give(r, count, hlo_reduce_all(h, HLO_MUL, x));
  give(r, count, hlo_reduce_sum(h, x, -1));
  give(r, count, hlo_reduce_max(h, empty, 1));
  give(r, count, hlo_reduce_sum(h, empty, 0));
}

// The larger value with its position, of equal ones the first.
static void larger(hlo *h, const hlo_value *a, hlo_value *results, void *context) {
  (void)context;
  hlo_value first = hlo_ge(h, a[0], a[2]);
  results[0] = hlo_select(h, first, a[0], a[2]);
  results[1] = hlo_select(h, first, a[1], a[3]);
}
static void with_positions(hlo *h, hlo_value operands[2], hlo_value starts[2]) {
  operands[0] = in(h, PJ_F32, DIMS(4, 9));
  operands[1] = hlo_iota(h, PJ_S64, DIMS(4, 9), 1);
  starts[0] = hlo_lowest(h, PJ_F32);
  starts[1] = hlo_constant_int(h, PJ_S64, 0);
}
CASE(reduce_many) {
  hlo_value operands[2], starts[2];
  with_positions(h, operands, starts);
  hlo_reduce_many(h, operands, starts, 2, DIM_LIST(1), larger, NULL, r);
  *count = 2;
}
CASE(reduce_window) {
  hlo_window w = hlo_window_ones();
  w.size[1] = 3, w.stride[1] = 2, w.pad_low[1] = 1, w.dilation[0] = 2, w.size[0] = 2, w.base_dilation[1] = 2;
  for (int i = 0; i < REDUCED_COUNT; ++i)
    for (int op = HLO_ADD; op <= HLO_MIN; ++op)
      give(r, count, hlo_reduce_window(h, (hlo_op)op, in(h, REDUCED[i], DIMS(5, 7)), &w));
}
CASE(reduce_window_many) {
  hlo_value operands[2], starts[2];
  hlo_window w = hlo_window_ones();
  w.size[0] = 2, w.size[1] = 3;
  with_positions(h, operands, starts);
  hlo_reduce_window_many(h, operands, starts, 2, &w, larger, NULL, r);
  *count = 2;
}
CASE(scan) {
  for (int i = 0; i < REDUCED_COUNT; ++i)
    for (int op = HLO_ADD; op <= HLO_MIN; ++op)
      give(r, count, hlo_scan(h, (hlo_op)op, in(h, REDUCED[i], DIMS(3, 40)), 1));
  give(r, count, hlo_scan(h, HLO_ADD, in(h, PJ_C64, DIMS(5, 3)), 0));
  give(r, count, hlo_scan(h, HLO_ADD, in(h, PJ_F32, DIMS(0)), 0));
  give(r, count, hlo_scan(h, HLO_ADD, in(h, PJ_F32, DIMS(0, 5)), 1));
}
CASE(scan_many) {
  hlo_value operands[2], starts[2];
  with_positions(h, operands, starts);
  hlo_scan_many(h, operands, starts, 2, -1, larger, NULL, r);
  *count = 2;
}
CASE(select_and_scatter_max) {
  static const pj_dtype dtypes[] = {PJ_F32, PJ_BF16, PJ_F64};
  hlo_window w = hlo_window_ones();
  w.size[1] = 3, w.stride[1] = 2, w.pad_low[1] = 1;
  for (int i = 0; i < 3; ++i)
    give(r, count, hlo_select_and_scatter_max(h, in(h, dtypes[i], DIMS(2, 8)), in(h, dtypes[i], DIMS(2, 4)),
                                              hlo_constant(h, dtypes[i], 0), &w));
}

// ---- indexing -------------------------------------------------------------------------------------------------------

CASE(gather) {
  hlo_value x = in(h, PJ_F32, DIMS(3, 5, 4));
  hlo_gather_spec batched = {.offset_dims = {2}, .offset_count = 1, .collapsed = {1}, .collapsed_count = 1,
                             .operand_batching = {0}, .indices_batching = {0}, .batching_count = 1,
                             .start_index_map = {1}, .start_count = 1, .index_vector_dim = 2, .slice_sizes = {1, 1, 4}};
  give(r, count, hlo_gather(h, x, in(h, PJ_S64, DIMS(3, 7)), &batched));
  hlo_gather_spec points = {.collapsed = {0, 1, 2},
                            .collapsed_count = 3,
                            .start_index_map = {0, 1, 2},
                            .start_count = 3,
                            .index_vector_dim = 0,
                            .slice_sizes = {1, 1, 1},
                            .sorted = true};
  give(r, count, hlo_gather(h, x, in(h, PJ_S32, DIMS(3, 9)), &points));
  give(r, count, hlo_take(h, x, in(h, PJ_S64, DIMS(2, 6)), -2));
  give(r, count, hlo_take(h, x, in(h, PJ_S64, 0, NULL), 0));
  give(r, count, hlo_take(h, x, in(h, PJ_U8, DIMS(0)), 0));
  give(r, count, hlo_take(h, in(h, PJ_F32, DIMS(3, 0)), in(h, PJ_S32, DIMS(2)), 0));
  give(r, count, hlo_take(h, in(h, PJ_PRED, DIMS(3)), in(h, PJ_S32, DIMS(2)), 0));
}
CASE(scatter) {
  hlo_scatter_spec rows = {.update_window = {1}, .update_window_count = 1, .inserted = {0}, .inserted_count = 1,
                           .scatter_dims = {0}, .scatter_count = 1, .index_vector_dim = 1};
  for (int i = 0; i < REDUCED_COUNT; ++i)
    for (int op = HLO_ADD; op <= HLO_SECOND; ++op) {
      if (pj_dtype_is_float(REDUCED[i]) && (op == HLO_AND || op == HLO_OR)) continue;
      hlo_value x = in(h, REDUCED[i], DIMS(5, 4)), updates = in(h, REDUCED[i], DIMS(3, 4));
      give(r, count, hlo_scatter(h, (hlo_op)op, x, in(h, PJ_S64, DIMS(3)), updates, &rows));
    }
  hlo_value x = in(h, PJ_F32, DIMS(3, 5, 4));
  hlo_scatter_spec batched = {.update_window = {2},
                              .update_window_count = 1,
                              .inserted = {1},
                              .inserted_count = 1,
                              .operand_batching = {0},
                              .indices_batching = {0},
                              .batching_count = 1,
                              .scatter_dims = {1},
                              .scatter_count = 1,
                              .index_vector_dim = 2,
                              .unique = true,
                              .sorted = true};
  give(r, count, hlo_scatter(h, HLO_SECOND, x, in(h, PJ_S32, DIMS(3, 2)), in(h, PJ_F32, DIMS(3, 2, 4)), &batched));
  give(r, count, hlo_scatter(h, HLO_SECOND, x, in(h, PJ_S32, DIMS(3, 0)), in(h, PJ_F32, DIMS(3, 0, 2)), &batched));
}

// ---- sort, loops, the rest ------------------------------------------------------------------------------------------

static void ascending(hlo *h, const hlo_value *a, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_lt_total(h, a[0], a[1]);
}
CASE(sort) {
  for (int i = 0; i < REDUCED_COUNT; ++i) {
    hlo_value x[2] = {in(h, REDUCED[i], DIMS(3, 8)), hlo_iota(h, PJ_S64, DIMS(3, 8), 1)};
    hlo_sort(h, x, 2, -1, true, ascending, NULL, x);
    give(r, count, x[0]);
    give(r, count, x[1]);
  }
  hlo_value alone = in(h, PJ_F32, DIMS(9)), empty = in(h, PJ_F32, DIMS(2, 0));
  hlo_sort(h, &alone, 1, 0, false, ascending, NULL, &alone);
  hlo_sort(h, &empty, 1, 1, true, ascending, NULL, &empty);
  give(r, count, alone);
  give(r, count, empty);
}
CASE(top_k) {
  static const pj_dtype dtypes[] = {PJ_F32, PJ_BF16, PJ_S32, PJ_S64, PJ_U8, PJ_F64};
  for (int i = 0; i < 6; ++i, *count += 2) hlo_top_k(h, in(h, dtypes[i], DIMS(3, 8)), 3, &r[*count], &r[*count + 1]);
}

static void below_limit(hlo *h, const hlo_value *a, hlo_value *results, void *limit) {
  results[0] = hlo_lt(h, a[0], *(const hlo_value *)limit);
}
static void step(hlo *h, const hlo_value *a, hlo_value *results, void *limit) {
  (void)limit;
  results[0] = hlo_add(h, a[0], hlo_constant_int(h, PJ_S32, 1));
  results[1] = hlo_mul(h, a[1], hlo_full(h, PJ_F32, a[1].rank, a[1].dims, 2));
}
CASE(while) {
  hlo_value limit = in(h, PJ_S32, 0, NULL), starts[2] = {hlo_constant_int(h, PJ_S32, 0), in(h, PJ_F32, DIMS(4))};
  hlo_while(h, starts, 2, below_limit, step, &limit, r);
  *count = 2;
}

static void doubled(hlo *h, const hlo_value *a, hlo_value *results, void *x) {
  (void)a;
  results[0] = hlo_add(h, *(const hlo_value *)x, *(const hlo_value *)x);
  results[1] = hlo_constant(h, PJ_S32, 2);
}
static void same(hlo *h, const hlo_value *a, hlo_value *results, void *x) {
  (void)a;
  results[0] = *(const hlo_value *)x;
  results[1] = hlo_reduce_all(h, HLO_ADD, hlo_convert(h, *(const hlo_value *)x, PJ_S32));
}
CASE(if) {
  hlo_value x = in(h, PJ_F32, DIMS(4));
  hlo_if(h, in(h, PJ_PRED, 0, NULL), doubled, same, 2, &x, r);
  *count = 2;
}
CASE(fft) {
  hlo_value c64 = in(h, PJ_C64, DIMS(2, 8, 6)), c128 = in(h, PJ_C128, DIMS(2, 8, 6)),
            f32 = in(h, PJ_F32, DIMS(2, 8, 6));
  give(r, count, hlo_fft(h, HLO_FFT, c64, INTS(8, 6), 2));
  give(r, count, hlo_fft(h, HLO_IFFT, c128, INTS(6), 1));
  give(r, count, hlo_fft(h, HLO_RFFT, f32, INTS(2, 8, 6), 3));
  give(r, count, hlo_fft(h, HLO_RFFT, in(h, PJ_F64, DIMS(5)), INTS(5), 1));
  give(r, count, hlo_fft(h, HLO_IRFFT, c64, INTS(8, 10), 2));
  give(r, count, hlo_fft(h, HLO_IRFFT, c128, INTS(11), 1));
}
CASE(linear_algebra) {
  static const pj_dtype dtypes[] = {PJ_F32, PJ_F64, PJ_C64, PJ_C128};
  for (int i = 0; i < 4; ++i) {
    hlo_value a = in(h, dtypes[i], DIMS(2, 3, 3)), b = in(h, dtypes[i], DIMS(2, 3, 5));
    give(r, count, hlo_cholesky(h, a, i % 2));
    give(r, count, hlo_triangular_solve(h, a, b, true, true, false, (hlo_transpose_kind)(i % 3)));
    give(r, count, hlo_triangular_solve(h, a, hlo_swap(h, b, 1, 2), false, false, true, HLO_NO_TRANSPOSE));
  }
}
CASE(custom_call) {
  hlo_value a = in(h, PJ_F32, DIMS(2, 4, 3));
  r[0] = hlo_type(PJ_F32, DIMS(2, 4, 3));
  r[1] = hlo_type(PJ_F32, DIMS(2, 3));
  hlo_custom_call(h, "Qr", "", &a, 1, r, 2);
  *count = 2;
}
CASE(donation) {
  hlo_value x = hlo_parameter(h, PJ_F32, DIMS(4), 0);
  give(r, count, hlo_add(h, x, x));
}

#define ENTRY(name, op) {#name, case_##name},
static const struct {
  const char *name;
  void (*build)(hlo *h, hlo_value *results, int *count);
} CASES[] = {
    HLO_UNARY_OPS(ENTRY) MORE_UNARY(ENTRY) HLO_BINARY_OPS(ENTRY) MORE_BINARY(ENTRY)
    ENTRY(select, ) ENTRY(clamp, ) ENTRY(convert_pred, ) ENTRY(convert_s64, ) ENTRY(convert_u8, ) ENTRY(convert_f32, )
    ENTRY(convert_bf16, ) ENTRY(convert_f64, ) ENTRY(convert_c64, ) ENTRY(convert_f8, ) ENTRY(bitcast_pred, )
    ENTRY(bitcast_u8, ) ENTRY(bitcast_s16, ) ENTRY(bitcast_f32, ) ENTRY(bitcast_s64, ) ENTRY(bitcast_c64, )
    ENTRY(bitcast_c128, ) ENTRY(constants, ) ENTRY(constant_lists, ) ENTRY(iota, ) ENTRY(shape, ) ENTRY(dot_general, )
    ENTRY(convolution, ) ENTRY(convolution_int, ) ENTRY(convolution_complex, ) ENTRY(reduce, ) ENTRY(reduce_many, )
    ENTRY(reduce_window, ) ENTRY(reduce_window_many, ) ENTRY(scan, ) ENTRY(scan_many, ) ENTRY(select_and_scatter_max, )
    ENTRY(gather, ) ENTRY(scatter, ) ENTRY(sort, ) ENTRY(top_k, ) ENTRY(while, ) ENTRY(if, ) ENTRY(fft, )
    ENTRY(linear_algebra, ) ENTRY(custom_call, ) ENTRY(donation, )};

static void build(size_t i, void (*use)(const char *name, const char *text, size_t size)) {
  hlo *h = hlo_create();
  hlo_value results[MAX_RESULTS];
  int count = 0;
  const char *text = NULL;
  size_t size = 0;
  CASES[i].build(h, results, &count);
  CHECK(count > 0 && count <= MAX_RESULTS);
  pj_status status = pj_status_context(hlo_finish(h, results, (size_t)count, &text, &size), "%s", CASES[i].name);
  if (!status && use) use(CASES[i].name, text, size);
  CHECK_OK(status);
  hlo_destroy(h);
}

static void the_writer_accepts_every_operation(void) {
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; ++i) build(i, NULL);
}

static void compile_case(const char *name, const char *text, size_t size) {
  pj_executable *executable = NULL;
  CHECK_OK(pj_status_context(plugin_compile(text, size, &executable), "%s", name));
  pj_executable_destroy(executable);
}

static void the_compiler_accepts_every_operation(void) {
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; ++i) build(i, compile_case);
}

int main(void) {
  RUN(the_writer_accepts_every_operation);
  if (plugin_open()) RUN(the_compiler_accepts_every_operation);
  plugin_close();
  return test_end();
}
