#include "ops/reduce.h"

// ---- order ----------------------------------------------------------------------------------------------------------
// PyTorch orders NaN after every number, and before every number when descending.

static void ascending(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)context;
  hlo_value a = arguments[0], b = arguments[1];
  hlo_value last = hlo_and(h, hlo_is_nan(h, b), hlo_not(h, hlo_is_nan(h, a)));
  results[0] = hlo_or(h, hlo_lt(h, a, b), last);
}

static void descending(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)context;
  hlo_value a = arguments[0], b = arguments[1];
  hlo_value first = hlo_and(h, hlo_is_nan(h, a), hlo_not(h, hlo_is_nan(h, b)));
  results[0] = hlo_or(h, hlo_gt(h, a, b), first);
}

typedef struct sorted {
  hlo_value values, places;  // places: s32
} sorted;

static sorted sort_along(hlo *h, hlo_value x, int dim, hlo_body order) {
  hlo_value operands[] = {x, hlo_iota(h, PJ_S32, x.rank, x.dims, dim)}, results[2];
  hlo_sort(h, operands, 2, dim, true, order, NULL, results);
  return (sorted){results[0], results[1]};
}

static void sort(pj_lowering *l, int dim, bool is_descending) {
  hlo_value x = pj_at_least_1d(l->h, pj_tensor(l, 0));
  sorted s = sort_along(l->h, x, pj_dim(l, dim, x.rank), is_descending ? descending : ascending);
  pj_return_reshaped(l, 0, s.values);
  pj_return_reshaped(l, 1, s.places);
}

// aten::sort(self, dim, descending): stable too
static void lower_sort(pj_lowering *l) { sort(l, 1, pj_bool(l, 2)); }

// aten::sort.stable(self, *, stable, dim, descending)
static void lower_sort_stable(pj_lowering *l) { sort(l, 2, pj_bool(l, 3)); }

// ---- top k ----------------------------------------------------------------------------------------------------------

// Reverses the order of all values, and NaN stays where PyTorch wants it: chlo.top_k orders by sign and magnitude, so
// the NaN that is greatest becomes, negated, the least.
static hlo_value reversed_order(hlo *h, hlo_value x) {
  return pj_dtype_is_float(x.dtype) ? hlo_neg(h, x) : hlo_not(h, x);
}

static hlo_value with_positive_nan(hlo *h, hlo_value x) {
  return pj_dtype_is_float(x.dtype) ? hlo_select(h, hlo_is_nan(h, x), pj_full_like(h, x, __builtin_nan("")), x) : x;
}

// aten::topk(self, k, dim, largest, sorted): always sorted
static void lower_topk(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_at_least_1d(h, pj_tensor(l, 0));
  int dim = pj_dim(l, 2, x.rank);
  int64_t k = pj_int(l, 1);
  bool largest = pj_bool(l, 3);
  if (!pj_require(l, k >= 0 && k <= x.dims[dim], PJ_INVALID_ARGUMENT, "selected index k out of range")) return;
  x = with_positive_nan(h, hlo_swap(h, x, dim, -1));
  hlo_value values, places;
  hlo_top_k(h, largest ? x : reversed_order(h, x), k, &values, &places);
  if (!largest) values = reversed_order(h, values);
  pj_return_reshaped(l, 0, hlo_swap(h, values, dim, -1));
  pj_return_reshaped(l, 1, hlo_swap(h, places, dim, -1));
}

// ---- order statistics -----------------------------------------------------------------------------------------------

// x at `place` along `dim`, one place for every other position: exact, since all other terms of the sum are 0.
static hlo_value pick(hlo *h, hlo_value x, hlo_value place, int dim) {
  pj_axes axis = pj_axes_one(dim);
  hlo_value here = hlo_eq(h, hlo_iota(h, PJ_S32, x.rank, x.dims, dim), pj_spread(h, place, x, &axis));
  return hlo_reduce_sum(h, hlo_select(h, here, x, pj_full_like(h, x, 0)), dim);
}

static void return_picked(pj_lowering *l, sorted s, hlo_value place, int dim) {
  pj_return_reshaped(l, 0, pick(l->h, s.values, place, dim));
  if (pj_wanted(l, 1)) pj_return_reshaped(l, 1, pick(l->h, s.places, place, dim));
}

// aten::kthvalue(self, k, dim, keepdim): the k-th smallest, counted from 1
static void lower_kthvalue(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_at_least_1d(h, pj_tensor(l, 0));
  int dim = pj_dim(l, 2, x.rank);
  int64_t k = pj_int(l, 1);
  if (!pj_require(l, k >= 1 && k <= x.dims[dim], PJ_INVALID_ARGUMENT,
                  "kthvalue(): selected number k out of range for dimension %d", dim)) return;
  sorted s = sort_along(h, x, dim, ascending);
  pj_return_reshaped(l, 0, hlo_slice_dim(h, s.values, dim, k - 1, k));
  pj_return_reshaped(l, 1, hlo_slice_dim(h, s.places, dim, k - 1, k));
}

static hlo_value count_numbers(hlo *h, hlo_value x, int dim) {
  return hlo_reduce_sum(h, hlo_convert(h, hlo_not(h, hlo_is_nan(h, x)), PJ_S32), dim);
}

// The lower median of n numbers is number (n - 1) / 2 in order. median: the first NaN when there is one (it comes right
// after the numbers). nanmedian: NaN are not counted.
static hlo_value median_place(hlo *h, hlo_value x, int dim, bool ignores_nan) {
  hlo_value numbers = count_numbers(h, x, dim), one = hlo_constant_int(h, PJ_S32, 1),
            two = hlo_constant_int(h, PJ_S32, 2);
  hlo_value middle = hlo_div(h, hlo_max(h, hlo_sub(h, numbers, one), hlo_constant_int(h, PJ_S32, 0)), two);
  if (ignores_nan) return middle;
  return hlo_select(h, hlo_lt(h, numbers, hlo_constant_int(h, PJ_S32, x.dims[dim])), numbers, middle);
}

static void median(pj_lowering *l, hlo_value x, int dim, bool ignores_nan) {
  return_picked(l, sort_along(l->h, x, dim, ascending), median_place(l->h, x, dim, ignores_nan), dim);
}

static void median_all(pj_lowering *l, bool ignores_nan) {
  hlo_value x = hlo_flatten(l->h, pj_tensor(l, 0));
  if (hlo_size(x) > 0) {
    median(l, x, 0, ignores_nan);
  } else {  // NaN of nothing; integers give their lowest, as PyTorch's CPU kernel does
    bool is_float = pj_dtype_is_float(x.dtype);
    pj_return(l, 0, is_float ? hlo_constant(l->h, x.dtype, __builtin_nan("")) : hlo_lowest(l->h, x.dtype));
  }
}

static void median_dim(pj_lowering *l, bool ignores_nan) {
  hlo_value x = pj_at_least_1d(l->h, pj_tensor(l, 0));
  int dim = pj_dim(l, 1, x.rank);
  if (pj_require(l, x.dims[dim] > 0, PJ_OUT_OF_RANGE,
                 "median(): Expected reduction dim %d to have non-zero size.", dim)) median(l, x, dim, ignores_nan);
}

static void lower_median(pj_lowering *l) { median_all(l, false); }
static void lower_nanmedian(pj_lowering *l) { median_all(l, true); }
static void lower_median_dim(pj_lowering *l) { median_dim(l, false); }
static void lower_nanmedian_dim(pj_lowering *l) { median_dim(l, true); }

// aten::mode(self, dim, keepdim): the smallest of the most frequent values, at its last place. In order, equal values
// form runs; the element that ends the longest run is the one.
static void lower_mode(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_at_least_1d(h, pj_tensor(l, 0));
  int dim = pj_dim(l, 1, x.rank);
  int64_t n = x.dims[dim];
  if (!pj_require(l, n > 0, PJ_OUT_OF_RANGE, "mode(): Expected reduction dim %d to have non-zero size.", dim)) return;
  sorted s = sort_along(h, x, dim, ascending);
  hlo_value place = hlo_iota(h, PJ_S32, x.rank, x.dims, dim);
  // a run starts at the first element and at each that differs from the one before it
  hlo_value first = hlo_slice_dim(h, place, dim, 0, 1);
  hlo_value differs = hlo_ne(h, hlo_slice_dim(h, s.values, dim, 1, n), hlo_slice_dim(h, s.values, dim, 0, n - 1));
  hlo_value later = hlo_slice_dim(h, place, dim, 1, n);
  later = hlo_select(h, differs, later, hlo_constant_int(h, PJ_S32, 0));
  hlo_value start = hlo_scan(h, HLO_MAX, hlo_concatenate(h, (hlo_value[]){first, later}, 2, dim), dim);
  hlo_value length = hlo_sub(h, place, start);
  return_picked(l, s, pj_arg_extreme(h, length, hlo_reduce_max(h, length, dim), dim), dim);
}

PJ_LOWERINGS(sort_lowerings) = {
    {"aten::sort", lower_sort},
    {"aten::sort.stable", lower_sort_stable},
    {"aten::topk", lower_topk},
    {"aten::kthvalue", lower_kthvalue},
    {"aten::median", lower_median},
    {"aten::nanmedian", lower_nanmedian},
    {"aten::median.dim", lower_median_dim},
    {"aten::nanmedian.dim", lower_nanmedian_dim},
    {"aten::mode", lower_mode},
    {0},
};
