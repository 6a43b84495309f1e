#include "ops/dynamic.h"

#include <string.h>

#include "ops/index.h"
#include "ops/reduce.h"

// Count k of a value call with `counts` of them: they are its last arguments.
static int64_t count_of(const pj_signature *s, int counts, int k) {
  return s->arguments[(int)s->argument_count - counts + k].integer;
}

// ---- the count ------------------------------------------------------------------------------------------------------

static void return_count(pj_lowering *l, hlo_value count) {
  pj_return(l, 0, hlo_reshape(l->h, hlo_convert(l->h, count, PJ_S64), 1, (int64_t[]){1}));
}

static void return_true_count(pj_lowering *l, hlo_value mask) {
  return_count(l, hlo_reduce_all(l->h, HLO_ADD, hlo_convert(l->h, mask, PJ_S64)));
}

static int64_t given_count(pj_lowering *l) { return pj_int(l, (int)l->signature->argument_count - 1); }

// ---- nonzero --------------------------------------------------------------------------------------------------------

static hlo_value is_nonzero(pj_lowering *l) { return hlo_convert(l->h, pj_tensor(l, 0), PJ_PRED); }

// Coordinates of the true elements, one a row; rows beyond them are `fill`.
static hlo_value coordinates(pj_lowering *l, hlo_value mask, int64_t size, int64_t fill) {
  hlo *h = l->h;
  int64_t dims[] = {size, mask.rank};
  if (mask.rank == 0 || size == 0) return hlo_full(h, PJ_S64, 2, dims, 0);
  hlo_value flat = hlo_flatten(h, mask);
  hlo_value places = pj_pack(l, hlo_iota(h, PJ_S64, 1, flat.dims, 0), flat, size, hlo_constant_int(h, PJ_S64, -1));
  hlo_value filled = hlo_lt(h, places, hlo_constant_int(h, PJ_S64, 0)), columns[PJ_MAX_RANK], rest = places;
  for (int d = mask.rank - 1; d >= 0; --d) {
    hlo_value length = hlo_constant_int(h, PJ_S64, mask.dims[d] ? mask.dims[d] : 1);
    hlo_value column = d ? hlo_rem(h, rest, length) : rest;
    columns[d] = hlo_keep(h, hlo_select(h, filled, hlo_constant_int(h, PJ_S64, fill), column), 1);
    rest = hlo_div(h, rest, length);
  }
  return hlo_concatenate(h, columns, mask.rank, 1);
}

// pj::nonzero_count(self)
static void lower_nonzero_count(pj_lowering *l) { return_true_count(l, is_nonzero(l)); }

// pj::nonzero(self, count)
static void lower_nonzero(pj_lowering *l) { pj_return(l, 0, coordinates(l, is_nonzero(l), given_count(l), -1)); }

static int nonzero_types(const pj_signature *s, pj_type *out) {
  out[0] = (pj_type){.dtype = PJ_S64, .rank = 2, .dims = {count_of(s, 1, 0), pj_argument_type(s, 0).rank}};
  return 1;
}

// aten::nonzero_static(self, *, size, fill_value)
static void lower_nonzero_static(pj_lowering *l) {
  int64_t size = pj_int(l, 1);
  if (pj_require(l, size >= 0, PJ_INVALID_ARGUMENT, "nonzero_static: 'size' must be an non-negative integer"))
    pj_return(l, 0, coordinates(l, is_nonzero(l), size, pj_int(l, 2)));
}

// ---- masked_select --------------------------------------------------------------------------------------------------

static hlo_value broadcast_mask(pj_lowering *l, hlo_value *out_x) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0), mask = pj_tensor(l, 1);
  pj_require(l, mask.dtype == PJ_PRED, PJ_INVALID_ARGUMENT, "masked_select: expected BoolTensor for mask");
  hlo_value like = hlo_and(h, mask, hlo_broadcast_like(h, hlo_constant_int(h, PJ_PRED, 1), x));
  *out_x = hlo_broadcast_like(h, x, like);
  return like;
}

// pj::masked_select_count(self, mask)
static void lower_masked_select_count(pj_lowering *l) {
  hlo_value x, mask = broadcast_mask(l, &x);
  return_true_count(l, mask);
}

// pj::masked_select(self, mask, count)
static void lower_masked_select(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x, mask = broadcast_mask(l, &x);
  pj_return(l, 0, pj_pack(l, hlo_flatten(h, x), hlo_flatten(h, mask), given_count(l), hlo_constant(h, x.dtype, 0)));
}

static int masked_select_types(const pj_signature *s, pj_type *out) {
  out[0] = pj_vector_type(pj_argument_type(s, 0).dtype, count_of(s, 1, 0));
  return 1;
}

// ---- unique ---------------------------------------------------------------------------------------------------------
// Elements or slices in an order in which equal ones are neighbours; `first` marks the first of each run.

typedef struct runs {
  hlo_value values;   // (n) or (n, m): the sorted elements, or slices flattened
  hlo_value places;   // s32 (n): where each came from
  hlo_value first;    // PRED (n)
} runs;

static hlo_value starts_of_runs(pj_lowering *l, hlo_value values) {
  hlo *h = l->h;
  int64_t n = values.dims[0], one = 1;
  hlo_value begin = hlo_broadcast_to(h, hlo_constant_int(h, PJ_PRED, 1), 1, &one);
  if (n <= 1) return hlo_slice_dim(h, begin, 0, 0, n);
  hlo_value differs = hlo_ne(h, hlo_slice_dim(h, values, 0, 1, n), hlo_slice_dim(h, values, 0, 0, n - 1));
  if (values.rank == 2) differs = hlo_reduce(h, HLO_OR, differs, (int[]){1}, 1);
  hlo_value parts[] = {begin, differs};
  return hlo_concatenate(h, parts, 2, 0);
}

static hlo_value places_from(pj_lowering *l, int64_t n) { return hlo_iota(l->h, PJ_S32, 1, &n, 0); }

static void less_first(hlo *h, const hlo_value *a, hlo_value *out, void *context) {
  (void)context;
  out[0] = hlo_lt_total(h, a[0], a[1]);
}

static void sort_stably(hlo *h, hlo_value keys, hlo_value places, hlo_value out[2]) {
  hlo_value operands[] = {keys, places};
  // i1 has no order of its own; -0.0 and 0.0 are one element and must not be told apart by a total order.
  if (keys.dtype == PJ_PRED) operands[0] = hlo_convert(h, keys, PJ_S32);
  else if (pj_dtype_is_float(keys.dtype)) operands[0] = hlo_add(h, keys, hlo_constant(h, keys.dtype, 0));
  hlo_sort(h, operands, 2, 0, true, less_first, NULL, out);
  if (keys.dtype == PJ_PRED) out[0] = hlo_convert(h, out[0], PJ_PRED);
}

// Self flattened and, unless it is taken as it comes, sorted.
static runs element_runs(pj_lowering *l, bool sorted) {
  hlo *h = l->h;
  runs r = {.values = hlo_flatten(h, pj_tensor(l, 0))};
  pj_require(l, !pj_dtype_is_complex(r.values.dtype), PJ_UNIMPLEMENTED,
             "unique is not implemented for complex numbers");
  r.places = places_from(l, r.values.dims[0]);
  if (sorted && r.values.dims[0] > 1) {
    hlo_value out[2];
    sort_stably(h, r.values, r.places, out);
    r.values = out[0];
    r.places = out[1];
  }
  r.first = starts_of_runs(l, r.values);
  return r;
}

// One column after another, from the last, sorted stably: after all of them the rows are in lexicographic order.
typedef struct row_sort {
  hlo_value rows;
} row_sort;

static void more_columns(hlo *h, const hlo_value *a, hlo_value *out, void *context) {
  (void)context;
  out[0] = hlo_ge(h, a[0], hlo_constant_int(h, PJ_S32, 0));
}

static void sort_by_column(hlo *h, const hlo_value *a, hlo_value *out, void *context) {
  const row_sort *s = context;
  hlo_value start[] = {hlo_constant_int(h, PJ_S32, 0), a[0]}, sorted[2];
  hlo_value column = hlo_drop(h, hlo_dynamic_slice(h, s->rows, start, (int64_t[]){s->rows.dims[0], 1}), 1);
  sort_stably(h, hlo_take(h, column, a[1], 0), a[1], sorted);
  out[0] = hlo_sub(h, a[0], hlo_constant_int(h, PJ_S32, 1));
  out[1] = sorted[1];
}

// Self as one flattened slice a row, along argument `dim`; sorted unless taken as they come.
static runs slice_runs(pj_lowering *l, int dim_argument, bool sorted) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  int dim = pj_dim(l, dim_argument, x.rank), order[PJ_MAX_RANK] = {dim};
  if (!pj_require(l, x.rank > 0, PJ_INVALID_ARGUMENT, "unique_dim: expected a tensor with dimensions"))
    return (runs){0};
  for (int d = 0, next = 1; d < x.rank; ++d)
    if (d != dim) order[next++] = d;
  int64_t n = x.dims[dim], m = n ? hlo_size(x) / n : 0;
  runs r = {.values = hlo_reshape(h, hlo_transpose(h, x, order), 2, (int64_t[]){n, m}), .places = places_from(l, n)};
  if (sorted && n > 1 && m > 0) {
    row_sort s = {.rows = r.values};
    hlo_value starts[] = {hlo_constant_int(h, PJ_S32, m - 1), r.places}, out[2];
    hlo_while(h, starts, 2, more_columns, sort_by_column, &s, out);
    r.places = out[1];
    r.values = hlo_take(h, r.values, r.places, 0);
  }
  r.first = starts_of_runs(l, r.values);
  return r;
}

// The number of the run that each sorted element belongs to; s32.
static hlo_value run_numbers(pj_lowering *l, const runs *r) {
  hlo *h = l->h;
  hlo_value first = hlo_convert(h, r->first, PJ_S32);
  return hlo_size(first) ? hlo_sub(h, hlo_scan(h, HLO_ADD, first, 0), hlo_constant_int(h, PJ_S32, 1)) : first;
}

static hlo_value add_at(pj_lowering *l, hlo_op op, int64_t size, hlo_value places, hlo_value updates) {
  hlo_value zeros = hlo_full(l->h, updates.dtype, 1, &size, 0);
  if (!size) return zeros;
  pj_target whole = pj_target_whole(zeros);
  pj_positions at = {.rank = 1, .indexed = {true}, .indices = {places}};
  return pj_positions_write(l, op, &whole, &at, updates);
}

// Results `inverse` and `counts` (-1: the op has none), empty unless they are asked for.
static void return_run_tables(pj_lowering *l, const runs *r, int64_t size, int inverse, bool wants_inverse, int counts,
                              bool wants_counts) {
  hlo *h = l->h;
  hlo_value none = hlo_full(h, PJ_S64, 1, (int64_t[]){0}, 0);
  if (hlo_failed(h)) return;
  hlo_value numbers = run_numbers(l, r);
  if (inverse >= 0) {
    hlo_value table = none;
    if (wants_inverse) table = add_at(l, HLO_SECOND, numbers.dims[0], r->places, hlo_convert(h, numbers, PJ_S64));
    pj_return_reshaped(l, inverse, table);
  }
  if (counts >= 0)
    pj_return(l, counts, wants_counts ? add_at(l, HLO_ADD, size, numbers, hlo_constant_int(h, PJ_S64, 1)) : none);
}

static void return_unique_elements(pj_lowering *l, const runs *r, int64_t size) {
  pj_return(l, 0, pj_pack(l, r->values, r->first, size, hlo_constant(l->h, r->values.dtype, 0)));
}

static void return_unique_slices(pj_lowering *l, const runs *r, int dim_argument, int64_t size) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  if (hlo_failed(h)) return;
  int dim = pj_dim(l, dim_argument, type.rank), order[PJ_MAX_RANK];
  int64_t dims[PJ_MAX_RANK] = {size};
  for (int d = 0, next = 1; d < type.rank; ++d) {
    order[d] = d == dim ? 0 : next;
    if (d != dim) dims[next++] = type.dims[d];
  }
  hlo_value rows = pj_pack(l, places_from(l, r->values.dims[0]), r->first, size, hlo_constant_int(h, PJ_S32, 0));
  hlo_value slices = size && hlo_size(r->values) ? hlo_take(h, r->values, rows, 0)
                                                 : hlo_full(h, r->values.dtype, type.rank, dims, 0);
  pj_return(l, 0, hlo_transpose(h, hlo_reshape(h, slices, type.rank, dims), order));
}

static void count_runs(pj_lowering *l, runs r) {
  if (!hlo_failed(l->h)) return_true_count(l, r.first);
}

// pj::unique_count(self, ...), pj::unique_consecutive_count(self, return_inverse, return_counts, dim), and of slices
static void lower_unique_count(pj_lowering *l) { count_runs(l, element_runs(l, true)); }
static void lower_unique_dim_count(pj_lowering *l) { count_runs(l, slice_runs(l, 1, true)); }
static void lower_unique_dim_consecutive_count(pj_lowering *l) { count_runs(l, slice_runs(l, 1, false)); }
static void lower_unique_consecutive_count(pj_lowering *l) {
  count_runs(l, pj_present(l, 3) ? slice_runs(l, 3, false) : element_runs(l, false));
}

// pj::unique(self, sorted, return_inverse, count)
static void lower_unique(pj_lowering *l) {
  runs r = element_runs(l, true);
  return_unique_elements(l, &r, given_count(l));
  return_run_tables(l, &r, given_count(l), 1, pj_bool(l, 2), -1, false);
}

// pj::unique2(self, sorted, return_inverse, return_counts, count)
static void lower_unique2(pj_lowering *l) {
  runs r = element_runs(l, true);
  return_unique_elements(l, &r, given_count(l));
  return_run_tables(l, &r, given_count(l), 1, pj_bool(l, 2), 2, pj_bool(l, 3));
}

// pj::unique_consecutive(self, return_inverse, return_counts, dim, count)
static void lower_unique_consecutive(pj_lowering *l) {
  bool slices = pj_present(l, 3);
  runs r = slices ? slice_runs(l, 3, false) : element_runs(l, false);
  if (slices) return_unique_slices(l, &r, 3, given_count(l));
  else return_unique_elements(l, &r, given_count(l));
  return_run_tables(l, &r, given_count(l), 1, pj_bool(l, 1), 2, pj_bool(l, 2));
}

// pj::unique_dim(self, dim, sorted, return_inverse, return_counts, count)
static void lower_unique_dim(pj_lowering *l) {
  runs r = slice_runs(l, 1, true);
  return_unique_slices(l, &r, 1, given_count(l));
  return_run_tables(l, &r, given_count(l), 1, pj_bool(l, 3), 2, pj_bool(l, 4));
}

// pj::unique_dim_consecutive(self, dim, return_inverse, return_counts, count)
static void lower_unique_dim_consecutive(pj_lowering *l) {
  runs r = slice_runs(l, 1, false);
  return_unique_slices(l, &r, 1, given_count(l));
  return_run_tables(l, &r, given_count(l), 1, pj_bool(l, 2), 2, pj_bool(l, 3));
}

static pj_type inverse_type(const pj_signature *s, bool wanted) {
  pj_type type = pj_argument_type(s, 0);
  type.dtype = PJ_S64;
  return wanted ? type : pj_vector_type(PJ_S64, 0);
}

static pj_type counts_type(const pj_signature *s, bool wanted) {
  return pj_vector_type(PJ_S64, wanted ? count_of(s, 1, 0) : 0);
}

static int unique_types(const pj_signature *s, pj_type *out) {
  out[0] = pj_vector_type(pj_argument_type(s, 0).dtype, count_of(s, 1, 0));
  out[1] = inverse_type(s, s->arguments[2].integer);
  return 2;
}

static int unique2_types(const pj_signature *s, pj_type *out) {
  unique_types(s, out);
  out[2] = counts_type(s, s->arguments[3].integer);
  return 3;
}

static int slice_types(const pj_signature *s, int dim_argument, bool inverse, bool counts, pj_type *out) {
  out[0] = pj_argument_type(s, 0);
  int64_t dim = s->arguments[dim_argument].integer;
  if (dim < 0) dim += out[0].rank;
  if (dim >= 0 && dim < out[0].rank) {   // else the lowering tells
    out[1] = pj_vector_type(PJ_S64, inverse ? out[0].dims[dim] : 0);
    out[0].dims[dim] = count_of(s, 1, 0);
  } else {
    out[1] = pj_vector_type(PJ_S64, 0);
  }
  out[2] = counts_type(s, counts);
  return 3;
}

static int unique_consecutive_types(const pj_signature *s, pj_type *out) {
  bool inverse = s->arguments[1].integer, counts = s->arguments[2].integer;
  if (pj_argument_present(s, 3)) return slice_types(s, 3, inverse, counts, out);
  out[0] = pj_vector_type(pj_argument_type(s, 0).dtype, count_of(s, 1, 0));
  out[1] = inverse_type(s, inverse);
  out[2] = counts_type(s, counts);
  return 3;
}

static int unique_dim_types(const pj_signature *s, pj_type *out) {
  return slice_types(s, 1, s->arguments[3].integer, s->arguments[4].integer, out);
}

static int unique_dim_consecutive_types(const pj_signature *s, pj_type *out) {
  return slice_types(s, 1, s->arguments[2].integer, s->arguments[3].integer, out);
}

// ---- bincount -------------------------------------------------------------------------------------------------------

static bool require_bins(pj_lowering *l, hlo_value x) {
  return pj_require(l, x.rank == 1 && pj_dtype_is_integer(x.dtype), PJ_INVALID_ARGUMENT,
                    "bincount only supports 1-d non-negative integral inputs.") &&
         pj_require(l, pj_int(l, 2) >= 0, PJ_INVALID_ARGUMENT, "minlength should be >= 0");
}

// pj::bincount_count(self, weights, minlength): max(self) + 1, at least minlength
static void lower_bincount_count(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  if (!require_bins(l, x)) return;
  hlo_value least = hlo_constant_int(h, PJ_S64, pj_int(l, 2));
  if (!hlo_size(x)) {
    return_count(l, least);
    return;
  }
  x = hlo_convert(h, x, PJ_S64);
  hlo_value length = hlo_add(h, hlo_reduce_all(h, HLO_MAX, x), hlo_constant_int(h, PJ_S64, 1));
  return_count(l, hlo_max(h, length, least));
}

// pj::bincount(self, weights, minlength, count): how often each number occurs, or the sum of its weights
static void lower_bincount(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  pj_type type = pj_result_type(l, 0);
  if (!require_bins(l, x)) return;
  hlo_value updates = hlo_constant_int(h, PJ_S64, 1);
  if (pj_present(l, 1)) {
    updates = hlo_convert(h, pj_tensor(l, 1), type.dtype);
    if (!pj_require(l, updates.rank == 1 && updates.dims[0] == x.dims[0], PJ_INVALID_ARGUMENT,
                    "weights should be 1-d and have the same length as input"))
      return;
  }
  pj_return(l, 0, add_at(l, HLO_ADD, given_count(l), pj_index_check_from_zero(l, x, given_count(l)), updates));
}

static int bincount_types(const pj_signature *s, pj_type *out) {
  pj_dtype dtype = !pj_argument_present(s, 1) ? PJ_S64 : pj_argument_type(s, 1).dtype == PJ_F32 ? PJ_F32 : PJ_F64;
  out[0] = pj_vector_type(dtype, count_of(s, 1, 0));
  return 1;
}

// ---- repeat_interleave ----------------------------------------------------------------------------------------------

static bool require_repeats(pj_lowering *l, hlo_value repeats) {
  return pj_require(l, repeats.rank == 1, PJ_INVALID_ARGUMENT, "repeat_interleave only accept 1D vector as repeat") &&
         pj_require(l, repeats.dtype == PJ_S64 || repeats.dtype == PJ_S32, PJ_INVALID_ARGUMENT,
                    "repeats has to be Long or Int tensor");
}

// pj::repeat_interleave_count(repeats, output_size)
static void lower_repeat_interleave_count(pj_lowering *l) {
  hlo_value repeats = pj_tensor(l, 0);
  if (!require_repeats(l, repeats)) return;
  return_count(l, pj_present(l, 1) ? hlo_constant_int(l->h, PJ_S64, pj_int(l, 1))
                                   : hlo_reduce_all(l->h, HLO_ADD, hlo_convert(l->h, repeats, PJ_S64)));
}

// pj::repeat_interleave(repeats, output_size, count): index i repeats[i] times. A mark where each index begins, then
// their running count. Indices at the end that repeat no times begin one place after the last.
static void lower_repeat_interleave(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value repeats = pj_tensor(l, 0);
  if (!require_repeats(l, repeats)) return;
  int64_t size = given_count(l);
  pj_dtype dtype = pj_result_type(l, 0).dtype;
  if (!size || !repeats.dims[0]) {
    pj_return(l, 0, hlo_full(h, dtype, 1, &size, 0));
    return;
  }
  hlo_value begin = hlo_sub(h, hlo_scan(h, HLO_ADD, repeats, 0), repeats);
  hlo_value marks = add_at(l, HLO_ADD, size + 1, begin, hlo_constant_int(h, dtype, 1));
  hlo_value count = hlo_slice_dim(h, hlo_scan(h, HLO_ADD, marks, 0), 0, 0, size);
  pj_return(l, 0, hlo_sub(h, count, hlo_constant_int(h, dtype, 1)));
}

static int repeat_interleave_types(const pj_signature *s, pj_type *out) {
  out[0] = pj_vector_type(pj_argument_type(s, 0).dtype, count_of(s, 1, 0));
  return 1;
}

// ---- tables ---------------------------------------------------------------------------------------------------------

static const pj_dynamic_op DYNAMIC_OPS[] = {
    {"aten::nonzero", "pj::nonzero_count", "pj::nonzero", 1, nonzero_types, .by_column = true},
    {"aten::masked_select", "pj::masked_select_count", "pj::masked_select", 1, masked_select_types},
    {"aten::_unique", "pj::unique_count", "pj::unique", 1, unique_types},
    {"aten::_unique2", "pj::unique_count", "pj::unique2", 1, unique2_types},
    {"aten::unique_consecutive", "pj::unique_consecutive_count", "pj::unique_consecutive", 1, unique_consecutive_types},
    {"aten::unique_dim", "pj::unique_dim_count", "pj::unique_dim", 1, unique_dim_types},
    {"aten::unique_dim_consecutive", "pj::unique_dim_consecutive_count", "pj::unique_dim_consecutive", 1,
     unique_dim_consecutive_types},
    {"aten::bincount", "pj::bincount_count", "pj::bincount", 1, bincount_types},
    {"aten::repeat_interleave.Tensor", "pj::repeat_interleave_count", "pj::repeat_interleave", 1,
     repeat_interleave_types},
    {"aten::linalg_lstsq", "pj::lstsq_count", "pj::lstsq", 1, pj_lstsq_types},
    {"aten::_ctc_loss.Tensor", "pj::ctc_longest", "pj::ctc_loss", 1, pj_ctc_types},
};

const pj_dynamic_op *pj_dynamic_find(const char *name) {
  for (size_t i = 0; i < sizeof DYNAMIC_OPS / sizeof *DYNAMIC_OPS; ++i)
    if (!strcmp(DYNAMIC_OPS[i].name, name) || !strcmp(DYNAMIC_OPS[i].value, name)) return &DYNAMIC_OPS[i];
  return pj_typed_find(name);
}

// The overloads themselves are never lowered: the runtime turns their calls into calls of the ops above.
static void lower_unresolved(pj_lowering *l) {
  hlo_fail(l->h, PJ_INTERNAL, "the result sizes of %s depend on data: its call must be resolved first",
           l->signature->name);
}

PJ_LOWERINGS(dynamic_lowerings) = {
    {.name = "aten::nonzero", .lower = lower_unresolved, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::masked_select", .lower = lower_unresolved, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::_unique", .lower = lower_unresolved, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::_unique2", .lower = lower_unresolved, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::unique_consecutive", .lower = lower_unresolved, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::unique_dim", .lower = lower_unresolved, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::unique_dim_consecutive", .lower = lower_unresolved, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::bincount", .lower = lower_unresolved, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::repeat_interleave.Tensor", .lower = lower_unresolved, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::linalg_lstsq", .lower = lower_unresolved, .flags = PJ_OP_DYNAMIC},
    {.name = "aten::_ctc_loss.Tensor", .lower = lower_unresolved, .flags = PJ_OP_DYNAMIC},
    {.name = "pj::nonzero_count", .lower = lower_nonzero_count},
    {.name = "pj::nonzero", .lower = lower_nonzero},
    {.name = "aten::nonzero_static", .lower = lower_nonzero_static},
    {.name = "pj::masked_select_count", .lower = lower_masked_select_count},
    {.name = "pj::masked_select", .lower = lower_masked_select},
    {.name = "pj::unique_count", .lower = lower_unique_count},
    {.name = "pj::unique", .lower = lower_unique},
    {.name = "pj::unique2", .lower = lower_unique2},
    {.name = "pj::unique_consecutive_count", .lower = lower_unique_consecutive_count},
    {.name = "pj::unique_consecutive", .lower = lower_unique_consecutive},
    {.name = "pj::unique_dim_count", .lower = lower_unique_dim_count},
    {.name = "pj::unique_dim", .lower = lower_unique_dim},
    {.name = "pj::unique_dim_consecutive_count", .lower = lower_unique_dim_consecutive_count},
    {.name = "pj::unique_dim_consecutive", .lower = lower_unique_dim_consecutive},
    {.name = "pj::bincount_count", .lower = lower_bincount_count},
    {.name = "pj::bincount", .lower = lower_bincount},
    {.name = "pj::repeat_interleave_count", .lower = lower_repeat_interleave_count},
    {.name = "pj::repeat_interleave", .lower = lower_repeat_interleave},
    {0},
};
