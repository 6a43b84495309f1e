#include <math.h>

#include "ops/reduce.h"

// Where an op has no dim argument: pj_axes_argument takes it as absent.
enum { NO_DIM = -1 };

static pj_axes axes_of(pj_lowering *l, int argument, hlo_value x) {
  return argument == NO_DIM ? pj_axes_all(x.rank) : pj_axes_argument(l, argument, x.rank);
}

// self as the result's dtype, which is what PyTorch's reductions add up; half types accumulate in float32.
static hlo_value as_result(pj_lowering *l) {
  pj_dtype dtype = pj_result_type(l, 0).dtype;
  hlo_value x = hlo_convert(l->h, pj_tensor(l, 0), dtype);
  return pj_at_least_1d(l->h, hlo_convert(l->h, x, pj_math_dtype(dtype)));
}

static void fold(pj_lowering *l, hlo_op op, hlo_value x, int dim_argument) {
  pj_axes axes = axes_of(l, dim_argument, x);
  pj_return_reshaped(l, 0, pj_reduce(l->h, op, x, &axes));
}

// ---- sums and products ----------------------------------------------------------------------------------------------

static void lower_sum(pj_lowering *l) { fold(l, HLO_ADD, as_result(l), NO_DIM); }
static void lower_sum_dim(pj_lowering *l) { fold(l, HLO_ADD, as_result(l), 1); }
static void lower_prod(pj_lowering *l) { fold(l, HLO_MUL, as_result(l), NO_DIM); }
static void lower_prod_dim(pj_lowering *l) { fold(l, HLO_MUL, as_result(l), 1); }

// aten::nansum: sum(isnan(self) ? 0 : self)
static void lower_nansum(pj_lowering *l) {
  hlo_value x = as_result(l);
  fold(l, HLO_ADD, hlo_select(l->h, hlo_is_nan(l->h, x), pj_full_like(l->h, x, 0), x), 1);
}

static void average(pj_lowering *l, int dim_argument) {
  hlo_value x = as_result(l);
  pj_axes axes = axes_of(l, dim_argument, x);
  pj_return_reshaped(l, 0, pj_mean(l->h, x, &axes));
}

static void lower_mean(pj_lowering *l) { average(l, NO_DIM); }
static void lower_mean_dim(pj_lowering *l) { average(l, 1); }

// aten::trace: sum of self[i, i]
static void lower_trace(pj_lowering *l) {
  hlo_value x = as_result(l);
  if (!pj_require(l, x.rank == 2, PJ_INVALID_ARGUMENT, "trace: expected a matrix, but got tensor with dim %d", x.rank))
    return;
  hlo_value on = hlo_eq(l->h, hlo_iota(l->h, PJ_S32, 2, x.dims, 0), hlo_iota(l->h, PJ_S32, 2, x.dims, 1));
  fold(l, HLO_ADD, hlo_select(l->h, on, x, pj_full_like(l->h, x, 0)), NO_DIM);
}

static void count_nonzero(pj_lowering *l, int dim_argument) {
  hlo_value set = hlo_convert(l->h, pj_tensor(l, 0), PJ_PRED);
  fold(l, HLO_ADD, pj_at_least_1d(l->h, hlo_convert(l->h, set, PJ_S64)), dim_argument);
}

static void lower_count_nonzero(pj_lowering *l) { count_nonzero(l, 1); }

// ---- logical --------------------------------------------------------------------------------------------------------

static hlo_value truth(pj_lowering *l) { return pj_at_least_1d(l->h, hlo_convert(l->h, pj_tensor(l, 0), PJ_PRED)); }

static void lower_all(pj_lowering *l) { fold(l, HLO_AND, truth(l), NO_DIM); }
static void lower_all_dim(pj_lowering *l) { fold(l, HLO_AND, truth(l), 1); }
static void lower_any(pj_lowering *l) { fold(l, HLO_OR, truth(l), NO_DIM); }
static void lower_any_dim(pj_lowering *l) { fold(l, HLO_OR, truth(l), 1); }

// all.dims and any.dims reduce over nothing when the list is empty, unlike every other reduction.
static void truth_over_dims(pj_lowering *l, hlo_op op) {
  if (pj_present(l, 1) && pj_list_count(l, 1) == 0) pj_return_reshaped(l, 0, truth(l));
  else fold(l, op, truth(l), 1);
}

static void lower_all_dims(pj_lowering *l) { truth_over_dims(l, HLO_AND); }
static void lower_any_dims(pj_lowering *l) { truth_over_dims(l, HLO_OR); }

// ---- hash -----------------------------------------------------------------------------------------------------------

static void exclusive_or(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_xor(h, arguments[0], arguments[1]);
}

// aten::hash_tensor(self, dim, *, keepdim, mode): the exclusive or of the elements' 64 bits: of floats as float64, of
// integers as int64
static void lower_hash(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_at_least_1d(h, pj_tensor(l, 0)), sum, zero = hlo_constant_int(h, PJ_U64, 0);
  pj_axes axes = axes_of(l, 1, x);
  if (!pj_require(l, pj_int(l, 3) == 0, PJ_INVALID_ARGUMENT, "Unknown hash_tensor mode: %lld", (long long)pj_int(l, 3)) ||
      !pj_require(l, !pj_dtype_is_complex(x.dtype), PJ_INVALID_ARGUMENT, "hash_tensor takes no complex numbers"))
    return;
  x = hlo_bitcast(h, hlo_convert(h, x, pj_dtype_is_float(x.dtype) ? PJ_F64 : PJ_S64), PJ_U64);
  hlo_reduce_many(h, &x, &zero, 1, axes.dims, axes.count, exclusive_or, NULL, &sum);
  pj_return_reshaped(l, 0, sum);
}

// ---- extremes -------------------------------------------------------------------------------------------------------
// stablehlo.maximum and minimum propagate NaN, as PyTorch does.

static hlo_value self_1d(pj_lowering *l) { return pj_at_least_1d(l->h, pj_tensor(l, 0)); }

// Nothing has no extreme: neither a dimension that was named, nor all of them.
static bool require_elements(pj_lowering *l, const char *op, int dim_argument, hlo_value x, const pj_axes *axes) {
  bool named = dim_argument != NO_DIM && (pj_kind(l, dim_argument) == PJ_ARG_INT || pj_list_count(l, dim_argument) > 0);
  for (int i = 0; named && i < axes->count; ++i)
    if (!pj_require(l, x.dims[axes->dims[i]] != 0, PJ_OUT_OF_RANGE, "%s: Expected reduction dim %d to have non-zero size.",
                    op, axes->dims[i]))
      return false;
  return pj_require(l, pj_axes_size(x, axes) != 0, PJ_INVALID_ARGUMENT, "%s: Expected reduction dim to be specified for "
                    "input.numel() == 0. Specify the reduction dim with the 'dim' argument.", op);
}

static void extreme(pj_lowering *l, const char *name, hlo_op op, int dim_argument) {
  hlo_value x = self_1d(l);
  pj_axes axes = axes_of(l, dim_argument, x);
  if (require_elements(l, name, dim_argument, x, &axes)) pj_return_reshaped(l, 0, pj_reduce(l->h, op, x, &axes));
}

static void lower_amax(pj_lowering *l) { extreme(l, "amax()", HLO_MAX, 1); }
static void lower_amin(pj_lowering *l) { extreme(l, "amin()", HLO_MIN, 1); }
static void lower_max(pj_lowering *l) { extreme(l, "max()", HLO_MAX, NO_DIM); }
static void lower_min(pj_lowering *l) { extreme(l, "min()", HLO_MIN, NO_DIM); }

static void extremes(pj_lowering *l, int dim_argument) {
  hlo_value x = self_1d(l);
  pj_axes axes = axes_of(l, dim_argument, x);
  if (!require_elements(l, "aminmax", dim_argument, x, &axes)) return;
  pj_return_reshaped(l, 0, pj_reduce(l->h, HLO_MIN, x, &axes));
  pj_return_reshaped(l, 1, pj_reduce(l->h, HLO_MAX, x, &axes));
}

static void lower_aminmax(pj_lowering *l) { extremes(l, 1); }
static void lower_aminmax_all(pj_lowering *l) { extremes(l, NO_DIM); }

static void extreme_with_index(pj_lowering *l, const char *name, hlo_op op) {
  hlo_value x = self_1d(l);
  pj_axes axes = pj_axes_argument(l, 1, x.rank);
  if (!require_elements(l, name, 1, x, &axes)) return;
  hlo_value value = pj_reduce(l->h, op, x, &axes);
  pj_return_reshaped(l, 0, value);
  pj_return_reshaped(l, 1, pj_arg_extreme(l->h, x, value, axes.dims[0]));
}

static void lower_max_dim(pj_lowering *l) { extreme_with_index(l, "max()", HLO_MAX); }
static void lower_min_dim(pj_lowering *l) { extreme_with_index(l, "min()", HLO_MIN); }

// aten::argmax(self, dim, keepdim): over the flat tensor when dim is None
static void arg_extreme(pj_lowering *l, const char *name, hlo_op op) {
  hlo_value x = pj_present(l, 1) ? self_1d(l) : hlo_flatten(l->h, pj_tensor(l, 0));
  pj_axes axes = pj_axes_argument(l, 1, x.rank);
  if (!require_elements(l, name, 1, x, &axes)) return;
  pj_return_reshaped(l, 0, pj_arg_extreme(l->h, x, pj_reduce(l->h, op, x, &axes), axes.dims[0]));
}

static void lower_argmax(pj_lowering *l) { arg_extreme(l, "argmax()", HLO_MAX); }
static void lower_argmin(pj_lowering *l) { arg_extreme(l, "argmin()", HLO_MIN); }

// ---- norms ----------------------------------------------------------------------------------------------------------

// aten::logsumexp: log(sum(exp(x - m))) + m with m = max(real(x)), and 0 where that is infinite
static void lower_logsumexp(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = as_result(l);
  pj_axes axes = axes_of(l, 1, x);
  hlo_value real = hlo_real(h, x);
  hlo_value most = pj_reduce(h, HLO_MAX, real, &axes);
  hlo_value infinite = hlo_eq(h, hlo_abs(h, most), pj_full_like(h, most, INFINITY));
  most = hlo_convert(h, hlo_select(h, infinite, pj_full_like(h, most, 0), most), x.dtype);
  hlo_value sum = pj_reduce(h, HLO_ADD, hlo_exp(h, hlo_sub(h, x, pj_spread(h, most, x, &axes))), &axes);
  pj_return_reshaped(l, 0, hlo_add(h, hlo_log(h, sum), most));
}

// |x|^p; 0^0 counts as 0, so that p = 0 counts what is not zero.
static hlo_value abs_power(hlo *h, hlo_value x, double p) {
  hlo_value size = hlo_abs(h, x);
  if (p == 0) return hlo_convert(h, hlo_ne(h, size, pj_full_like(h, size, 0)), size.dtype);
  if (p == 1) return size;
  if (p != 2) return hlo_pow(h, size, pj_full_like(h, size, p));
  if (!pj_dtype_is_complex(x.dtype)) return hlo_mul(h, x, x);
  hlo_value real = hlo_real(h, x), imag = hlo_imag(h, x);
  return hlo_add(h, hlo_mul(h, real, real), hlo_mul(h, imag, imag));
}

// (sum |x|^p)^(1/p), and the limits of that for p = 0 and +-inf
hlo_value pj_vector_norm(hlo *h, hlo_value x, double p, const pj_axes *axes) {
  if (isinf(p)) return pj_reduce(h, p > 0 ? HLO_MAX : HLO_MIN, hlo_abs(h, x), axes);
  hlo_value sum = pj_reduce(h, HLO_ADD, abs_power(h, x, p), axes);
  if (p == 0 || p == 1) return sum;
  return p == 2 ? hlo_sqrt(h, sum) : hlo_pow(h, sum, pj_full_like(h, sum, 1 / p));
}

// self in the dtype that a norm is computed in: the dtype argument if there is one, made wide enough for half types.
static hlo_value norm_operand(pj_lowering *l, int dtype_argument) {
  hlo_value x = pj_tensor(l, 0);
  pj_dtype dtype = dtype_argument == NO_DIM ? x.dtype : pj_dtype_argument(l, dtype_argument, x.dtype);
  x = hlo_convert(l->h, x, dtype);
  return pj_at_least_1d(l->h, hlo_convert(l->h, x, pj_math_dtype(dtype)));
}

static double norm_order(pj_lowering *l) { return pj_present(l, 1) ? pj_float(l, 1) : 2; }

static void norm(pj_lowering *l, int dim_argument, int dtype_argument) {
  hlo_value x = norm_operand(l, dtype_argument);
  pj_axes axes = axes_of(l, dim_argument, x);
  double p = norm_order(l);
  if (pj_require(l, pj_axes_size(x, &axes) != 0 || (p >= 0 && isfinite(p)), PJ_INVALID_ARGUMENT,
                 "linalg.vector_norm cannot compute the %g norm on an empty tensor because the operation does not have "
                 "an identity",
                 p))
    pj_return_reshaped(l, 0, pj_vector_norm(l->h, x, p, &axes));
}

static void lower_vector_norm(pj_lowering *l) { norm(l, 2, 4); }
static void lower_norm_scalar(pj_lowering *l) { norm(l, NO_DIM, NO_DIM); }
static void lower_norm_dim(pj_lowering *l) { norm(l, 2, NO_DIM); }
static void lower_norm_dim_dtype(pj_lowering *l) { norm(l, 2, 4); }
static void lower_norm_dtype(pj_lowering *l) { norm(l, NO_DIM, 2); }

// aten::linalg__powsum: sum |x|^p
static void lower_powsum(pj_lowering *l) {
  hlo_value x = norm_operand(l, 4);
  pj_axes axes = axes_of(l, 2, x);
  pj_return_reshaped(l, 0, pj_reduce(l->h, HLO_ADD, abs_power(l->h, x, norm_order(l)), &axes));
}

PJ_LOWERINGS(reduction_lowerings) = {
    {"aten::sum", lower_sum},
    {"aten::sum.dim_IntList", lower_sum_dim},
    {"aten::prod", lower_prod},
    {"aten::prod.dim_int", lower_prod_dim},
    {"aten::nansum", lower_nansum},
    {"aten::mean", lower_mean},
    {"aten::mean.dim", lower_mean_dim},
    {"aten::trace", lower_trace},
    {"aten::count_nonzero", lower_count_nonzero},
    {"aten::count_nonzero.dim_IntList", lower_count_nonzero},
    {"aten::all", lower_all},
    {"aten::all.dim", lower_all_dim},
    {"aten::all.dims", lower_all_dims},
    {"aten::any", lower_any},
    {"aten::any.dim", lower_any_dim},
    {"aten::any.dims", lower_any_dims},
    {"aten::amax", lower_amax},
    {"aten::amin", lower_amin},
    {"aten::max", lower_max},
    {"aten::min", lower_min},
    {"aten::max.dim", lower_max_dim},
    {"aten::min.dim", lower_min_dim},
    {"aten::hash_tensor", lower_hash},
    {"aten::aminmax", lower_aminmax},
    {"aten::_aminmax", lower_aminmax_all},
    {"aten::_aminmax.dim", lower_aminmax},
    {"aten::argmax", lower_argmax},
    {"aten::argmin", lower_argmin},
    {"aten::logsumexp", lower_logsumexp},
    {"aten::linalg_vector_norm", lower_vector_norm, .statics = PJ_STATIC(1)},
    {"aten::norm.Scalar", lower_norm_scalar, .statics = PJ_STATIC(1)},
    {"aten::norm.ScalarOpt_dim", lower_norm_dim, .statics = PJ_STATIC(1)},
    {"aten::norm.ScalarOpt_dim_dtype", lower_norm_dim_dtype, .statics = PJ_STATIC(1)},
    {"aten::norm.ScalarOpt_dtype", lower_norm_dtype, .statics = PJ_STATIC(1)},
    {"aten::linalg__powsum", lower_powsum, .statics = PJ_STATIC(1)},
    {0},
};
