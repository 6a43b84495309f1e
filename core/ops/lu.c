// LU factorisation with partial pivoting, one column a step, and what is made of it: linalg_lu*, solve, inverse,
// determinant. (XLA has a custom call for LU only on TPU and, through LAPACK, in jaxlib.)
#include <math.h>

#include "ops/matrix.h"

// ---- factorisation --------------------------------------------------------------------------------------------------

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// A column [batch, m] of numbers at [batch, m, 1] or, for `across`, a row at [batch, 1, n].
static hlo_value down(hlo *h, hlo_value x) { return hlo_keep(h, x, 2); }
static hlo_value across(hlo *h, hlo_value x) { return hlo_keep(h, x, 1); }

// x[b, place[b]] of [batch, m]: one-hot, exact
static hlo_value at(hlo *h, hlo_value x, hlo_value place) {
  hlo_value index = hlo_iota(h, PJ_S32, 2, x.dims, 1);
  return hlo_reduce_sum(h, hlo_select(h, hlo_eq(h, index, hlo_keep(h, place, 1)), x, pj_full_like(h, x, 0)), 1);
}

// x with x[b, i] and x[b, j] exchanged; x is [batch, m] or, row-wise, [batch, m, n]
static hlo_value exchanged(hlo *h, hlo_value x, hlo_value i, hlo_value j, hlo_value x_i, hlo_value x_j) {
  int64_t dims[] = {x.dims[0], x.dims[1], 1};
  hlo_value index = hlo_iota(h, PJ_S32, x.rank, dims, 1);
  for (int d = 1; d < x.rank; ++d) {
    i = hlo_keep(h, i, i.rank);
    j = hlo_keep(h, j, j.rank);
  }
  x = hlo_select(h, hlo_eq(h, index, i), hlo_keep(h, x_j, 1), x);
  return hlo_select(h, hlo_eq(h, index, j), hlo_keep(h, x_i, 1), x);
}

typedef struct lu_loop {
  int64_t steps;
  bool pivot;
} lu_loop;

enum { STEP, FACTORS, PERMUTATION, PIVOTS, INFO, LU_STATE };

static void lu_unfinished(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  results[0] = hlo_lt(h, s[STEP], hlo_constant_int(h, PJ_S32, ((const lu_loop *)context)->steps));
}

static hlo_value row_at(hlo *h, hlo_value x, hlo_value place) {
  return hlo_reshape(h, pj_take_rows(h, x, hlo_keep(h, place, 1)), 2, (int64_t[]){x.dims[0], x.dims[2]});
}

// What LAPACK compares pivots by: |x|, and |re| + |im| for complex numbers (i?amax).
static hlo_value pivot_size(hlo *h, hlo_value x) {
  if (!pj_dtype_is_complex(x.dtype)) return hlo_abs(h, x);
  return hlo_add(h, hlo_abs(h, hlo_real(h, x)), hlo_abs(h, hlo_imag(h, x)));
}

// Step k: exchange row k with that of the largest x[i, k], i >= k; divide column k below the diagonal by the pivot;
// subtract its product with row k from what is below and to the right. A zero pivot divides nothing, as in LAPACK.
static void lu_step(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  const lu_loop *loop = context;
  hlo_value x = s[FACTORS], k = s[STEP], zero = hlo_constant_int(h, PJ_S32, 0), one = hlo_constant_int(h, PJ_S32, 1);
  int64_t batch = x.dims[0], m = x.dims[1], n = x.dims[2];
  hlo_value here = hlo_broadcast_to(h, k, 1, (int64_t[]){batch});
  hlo_value rows = hlo_iota(h, PJ_S32, 2, (int64_t[]){batch, m}, 1);
  hlo_value there = here;
  if (loop->pivot) {
    hlo_value column = hlo_dynamic_slice(h, x, (hlo_value[]){zero, zero, k}, (int64_t[]){batch, m, 1});
    hlo_value size = pivot_size(h, hlo_reshape(h, column, 2, (int64_t[]){batch, m}));
    size = hlo_select(h, hlo_ge(h, rows, k), size, pj_full_like(h, size, -1));
    there = pj_arg_extreme(h, size, hlo_reduce_max(h, size, 1), 1);
    x = exchanged(h, x, here, there, row_at(h, x, here), row_at(h, x, there));
  }
  hlo_value column = hlo_dynamic_slice(h, x, (hlo_value[]){zero, zero, k}, (int64_t[]){batch, m, 1});
  hlo_value row = hlo_dynamic_slice(h, x, (hlo_value[]){zero, k, zero}, (int64_t[]){batch, 1, n});
  hlo_value pivot = hlo_dynamic_slice(h, row, (hlo_value[]){zero, zero, k}, (int64_t[]){batch, 1, 1});
  hlo_value singular = hlo_eq(h, pivot, pj_full_like(h, pivot, 0));
  hlo_value below = down(h, hlo_gt(h, rows, k));
  hlo_value scaled = hlo_div(h, column, hlo_select(h, singular, pj_full_like(h, pivot, 1), pivot));
  column = hlo_select(h, below, scaled, column);
  hlo_value right = across(h, hlo_gt(h, hlo_iota(h, PJ_S32, 2, (int64_t[]){batch, n}, 1), k));
  hlo_value updated = hlo_sub(h, x, hlo_mul(h, column, row));
  x = hlo_select(h, hlo_and(h, below, right), updated, x);
  results[STEP] = hlo_add(h, k, one);
  results[FACTORS] = hlo_dynamic_update_slice(h, x, column, (hlo_value[]){zero, zero, k});
  hlo_value permutation = s[PERMUTATION];
  if (loop->pivot)
    permutation = exchanged(h, permutation, here, there, at(h, permutation, here), at(h, permutation, there));
  results[PERMUTATION] = permutation;
  results[PIVOTS] = hlo_dynamic_update_slice(h, s[PIVOTS], hlo_keep(h, there, 1), (hlo_value[]){zero, k});
  hlo_value first = hlo_and(h, hlo_reshape(h, singular, 1, &batch), hlo_eq(h, s[INFO], zero));
  results[INFO] = hlo_select(h, first, hlo_add(h, here, one), s[INFO]);
}

pj_lu pj_lu_factor(hlo *h, hlo_value x, bool pivot) {
  int64_t batch = x.dims[0], m = x.dims[1], k = least(m, x.dims[2]);
  lu_loop loop = {.steps = k, .pivot = pivot};
  hlo_value starts[LU_STATE], found[LU_STATE];
  starts[STEP] = hlo_constant_int(h, PJ_S32, 0);
  starts[FACTORS] = x;
  starts[PERMUTATION] = hlo_iota(h, PJ_S32, 2, (int64_t[]){batch, m}, 1);
  starts[PIVOTS] = hlo_full(h, PJ_S32, 2, (int64_t[]){batch, k}, 0);
  starts[INFO] = hlo_full(h, PJ_S32, 1, &batch, 0);
  hlo_while(h, starts, LU_STATE, lu_unfinished, lu_step, &loop, found);
  return (pj_lu){found[FACTORS], found[PIVOTS], found[PERMUTATION], found[INFO]};
}

// ---- permutations ---------------------------------------------------------------------------------------------------

static void exchanges_left(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  results[0] = hlo_lt(h, s[0], hlo_constant_int(h, PJ_S32, *(const int64_t *)context));
}

static void exchange(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  (void)context;
  hlo_value k = s[0], permutation = s[1], pivots = s[2], zero = hlo_constant_int(h, PJ_S32, 0);
  int64_t batch = permutation.dims[0];
  hlo_value here = hlo_broadcast_to(h, k, 1, &batch);
  hlo_value there =
      hlo_reshape(h, hlo_dynamic_slice(h, pivots, (hlo_value[]){zero, k}, (int64_t[]){batch, 1}), 1, &batch);
  results[0] = hlo_add(h, k, hlo_constant_int(h, PJ_S32, 1));
  results[1] = exchanged(h, permutation, here, there, at(h, permutation, here), at(h, permutation, there));
  results[2] = pivots;
}

hlo_value pj_lu_permutation(hlo *h, hlo_value pivots, int64_t rows) {
  int64_t count = pivots.dims[1];
  hlo_value start = hlo_iota(h, PJ_S32, 2, (int64_t[]){pivots.dims[0], rows}, 1);
  hlo_value starts[] = {hlo_constant_int(h, PJ_S32, 0), start, pivots}, found[3];
  hlo_while(h, starts, 3, exchanges_left, exchange, &count, found);
  return found[1];
}

static void by_first(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_lt(h, arguments[0], arguments[1]);
}

hlo_value pj_inverse_permutation(hlo *h, hlo_value permutation) {
  hlo_value operands[] = {permutation, hlo_iota(h, PJ_S32, 2, permutation.dims, 1)}, sorted[2];
  hlo_sort(h, operands, 2, 1, false, by_first, NULL, sorted);
  return sorted[1];
}

hlo_value pj_lu_solve(hlo *h, hlo_value factors, hlo_value permutation, hlo_value b, hlo_transpose_kind op) {
  if (op == HLO_NO_TRANSPOSE) {
    b = pj_take_rows(h, b, permutation);
    b = hlo_triangular_solve(h, factors, b, true, true, true, HLO_NO_TRANSPOSE);
    return hlo_triangular_solve(h, factors, b, true, false, false, HLO_NO_TRANSPOSE);
  }
  b = hlo_triangular_solve(h, factors, b, true, false, false, op);
  b = hlo_triangular_solve(h, factors, b, true, true, true, op);
  return pj_take_rows(h, b, pj_inverse_permutation(h, permutation));
}

// ---- linalg_lu* -----------------------------------------------------------------------------------------------------

// Raising needs a read of info on the host: the CPU fallback does that.
static bool require_no_check(pj_lowering *l, int argument) {
  return pj_require(l, !pj_bool(l, argument), PJ_UNIMPLEMENTED, "%s with check_errors has no lowering",
                    l->signature->name);
}

static bool is_empty(hlo_value x) { return hlo_size(x) == 0; }

static hlo_value from_one(hlo *h, hlo_value pivots) { return hlo_add(h, pivots, hlo_constant_int(h, PJ_S32, 1)); }

// aten::linalg_lu_factor_ex(A, *, pivot, check_errors): LU, pivots (from 1), info
static void lower_lu_factor(pj_lowering *l) {
  hlo_value a = pj_matrices(l, 0);
  if (!require_no_check(l, 2)) return;
  if (is_empty(a)) {
    pj_return_fills(l, (double[]){0, 0, 0}, 3);
    return;
  }
  pj_lu lu = pj_lu_factor(l->h, a, pj_bool(l, 1));
  pj_return_reshaped(l, 0, lu.factors);
  pj_return_reshaped(l, 1, from_one(l->h, lu.pivots));
  pj_return_reshaped(l, 2, lu.info);
}

// P with A = P L U: column i of P has its 1 in row permutation[i]
static hlo_value permutation_matrix(hlo *h, hlo_value permutation, pj_dtype dtype) {
  int64_t batch = permutation.dims[0], m = permutation.dims[1];
  hlo_value rows = hlo_iota(h, PJ_S32, 3, (int64_t[]){batch, m, m}, 1);
  return hlo_convert(h, hlo_eq(h, rows, across(h, permutation)), dtype);
}

static void return_unpacked(pj_lowering *l, hlo_value factors) {
  hlo *h = l->h;
  int64_t m = factors.dims[1], n = factors.dims[2], k = least(m, n);
  hlo_value below = pj_lower(h, pj_block(h, factors, m, k)), unit = pj_eye(h, factors.dtype, factors.dims[0], m, k);
  hlo_value on_diagonal = hlo_ne(h, unit, pj_full_like(h, unit, 0));
  pj_return_reshaped(l, 1, hlo_select(h, on_diagonal, unit, below));
  pj_return_reshaped(l, 2, pj_upper(h, pj_block(h, factors, k, n)));
}

// aten::linalg_lu(A, *, pivot): P, L, U; P is empty without pivoting
static void lower_lu(pj_lowering *l) {
  hlo_value a = pj_matrices(l, 0);
  bool pivot = pj_bool(l, 1);
  if (!is_empty(a)) {
    pj_lu lu = pj_lu_factor(l->h, a, pivot);
    if (pivot) pj_return_reshaped(l, 0, permutation_matrix(l->h, lu.permutation, a.dtype));
    else pj_return_fill(l, 0, 0);
    return_unpacked(l, lu.factors);
    return;
  }
  pj_return_fills(l, (double[]){0, 0, 0}, 3);
  if (pivot && a.dims[0]) pj_return_reshaped(l, 0, pj_eye(l->h, a.dtype, a.dims[0], a.dims[1], a.dims[1]));
  if (a.dims[0]) pj_return_reshaped(l, 1, pj_eye(l->h, a.dtype, a.dims[0], a.dims[1], least(a.dims[1], a.dims[2])));
}

static hlo_value pivots_argument(pj_lowering *l, int argument) {
  hlo_value pivots = hlo_convert(l->h, pj_tensor(l, argument), PJ_S32);
  int64_t k = pivots.dims[pivots.rank - 1];
  pivots = hlo_reshape(l->h, pivots, 2, (int64_t[]){k ? hlo_size(pivots) / k : 0, k});
  return hlo_sub(l->h, pivots, hlo_constant_int(l->h, PJ_S32, 1));
}

// aten::lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots): P, L, U; what is not asked for is empty
static void lower_lu_unpack(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value factors = pj_matrices(l, 0);
  if (!pj_require(l, pj_tensor_type(l, 1).dtype == PJ_S32, PJ_INVALID_ARGUMENT,
                  "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.")) return;
  pj_return_fills(l, (double[]){0, 0, 0}, 3);
  if (is_empty(factors)) {
    if (pj_bool(l, 3) && factors.dims[0])
      pj_return_reshaped(l, 0, pj_eye(h, factors.dtype, factors.dims[0], factors.dims[1], factors.dims[1]));
    return;
  }
  if (pj_bool(l, 2)) return_unpacked(l, factors);
  if (pj_bool(l, 3)) {
    hlo_value permutation = pj_lu_permutation(h, pivots_argument(l, 1), factors.dims[1]);
    pj_return_reshaped(l, 0, permutation_matrix(h, permutation, factors.dtype));
  }
}

// ---- solving --------------------------------------------------------------------------------------------------------

// X of A X = B, of X A = B (not left), of A^H X = B or X A^H = B (adjoint), for A = P L U. Right sides are solved
// transposed: X A = B is A^T X^T = B^T, and X A^H = B is A conj(X^T) = conj(B^T).
static hlo_value lu_solve(hlo *h, hlo_value factors, hlo_value permutation, hlo_value b, bool left, bool adjoint) {
  if (left) return pj_lu_solve(h, factors, permutation, b, adjoint ? HLO_ADJOINT : HLO_NO_TRANSPOSE);
  if (!adjoint) return pj_transposed(h, pj_lu_solve(h, factors, permutation, pj_transposed(h, b), HLO_TRANSPOSE));
  return pj_adjoint(h, pj_lu_solve(h, factors, permutation, pj_adjoint(h, b), HLO_NO_TRANSPOSE));
}

// x with its leading dimensions broadcast to those of the result (rank and dims of `like` but the last `own`).
static hlo_value broadcast_batch(hlo *h, hlo_value x, pj_type like, int own) {
  int64_t dims[PJ_MAX_RANK];
  int leading = like.rank - 2;
  memcpy(dims, like.dims, (size_t)leading * sizeof *dims);
  for (int d = 0; d < own; ++d) dims[leading + d] = x.dims[x.rank - own + d];
  return hlo_broadcast_to(h, x, leading + own, dims);
}

// aten::linalg_lu_solve(LU, pivots, B, *, left, adjoint)
static void lower_lu_solve(pj_lowering *l) {
  hlo *h = l->h;
  pj_type result = pj_result_type(l, 0);
  hlo_value factors = pj_as_matrices(h, broadcast_batch(h, pj_tensor(l, 0), result, 2));
  hlo_value pivots = broadcast_batch(h, hlo_convert(h, pj_tensor(l, 1), PJ_S32), result, 1);
  hlo_value b = pj_as_matrices(h, broadcast_batch(h, pj_tensor(l, 2), result, 2));
  if (is_empty(b) || hlo_failed(h)) {
    pj_return_fill(l, 0, 0);
    return;
  }
  int64_t n = factors.dims[1];
  pivots = hlo_sub(h, hlo_reshape(h, pivots, 2, (int64_t[]){factors.dims[0], n}), hlo_constant_int(h, PJ_S32, 1));
  hlo_value permutation = pj_lu_permutation(h, pivots, n);
  pj_return_reshaped(l, 0, lu_solve(h, factors, permutation, b, pj_bool(l, 3), pj_bool(l, 4)));
}

// aten::_linalg_solve_ex(A, B, *, left, check_errors): result, LU, pivots, info
static void lower_solve(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value a = pj_matrices(l, 0), b = pj_tensor(l, 1);
  pj_type a_type = pj_tensor_type(l, 0), result = pj_result_type(l, 0), lu_type = pj_result_type(l, 1);
  if (!require_no_check(l, 3)) return;
  bool left = pj_bool(l, 2);
  // B is a vector, or a batch of them, when its dims are those of A without the last (linalg_solve_is_vector_rhs)
  bool vector = b.rank == 1 || (b.rank == a_type.rank - 1);
  for (int d = 0; vector && b.rank > 1 && d < b.rank; ++d) vector = b.dims[d] == a_type.dims[d];
  if (is_empty(a)) {
    pj_return_fills(l, (double[]){0, 0, 0, 0}, 4);
    return;
  }
  pj_lu lu = pj_lu_factor(h, a, true);
  pj_return_reshaped(l, 1, lu.factors);
  pj_return_reshaped(l, 2, from_one(h, lu.pivots));
  pj_return_reshaped(l, 3, lu.info);
  if (hlo_size(b) == 0) {
    pj_return_fill(l, 0, 0);
    return;
  }
  if (vector) {
    b = hlo_keep(h, b, b.rank);
    result.dims[result.rank++] = 1;
  }
  b = pj_as_matrices(h, broadcast_batch(h, b, result, 2));
  hlo_value factors = hlo_reshape(h, lu.factors, lu_type.rank, lu_type.dims);
  factors = pj_as_matrices(h, broadcast_batch(h, factors, result, 2));
  int64_t n = a.dims[1], dims[PJ_MAX_RANK];
  memcpy(dims, lu_type.dims, sizeof dims);
  hlo_value permutation = hlo_reshape(h, lu.permutation, lu_type.rank - 1, dims);
  permutation = hlo_reshape(h, broadcast_batch(h, permutation, result, 1), 2, (int64_t[]){b.dims[0], n});
  pj_return_reshaped(l, 0, lu_solve(h, factors, permutation, b, left, false));
}

// aten::linalg_inv_ex(A, *, check_errors): inverse, info
static void lower_inverse(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value a = pj_matrices(l, 0);
  if (!require_no_check(l, 1)) return;
  if (is_empty(a)) {
    pj_return_fills(l, (double[]){0, 0}, 2);
    return;
  }
  pj_lu lu = pj_lu_factor(h, a, true);
  hlo_value unit = pj_eye(h, a.dtype, a.dims[0], a.dims[1], a.dims[1]);
  pj_return_reshaped(l, 0, pj_lu_solve(h, lu.factors, lu.permutation, unit, HLO_NO_TRANSPOSE));
  pj_return_reshaped(l, 1, lu.info);
}

// ---- determinants ---------------------------------------------------------------------------------------------------

// (-1)^(number of exchanges that moved something)
static hlo_value permutation_sign(hlo *h, hlo_value pivots, pj_dtype dtype) {
  hlo_value moved = hlo_ne(h, pivots, hlo_iota(h, PJ_S32, 2, pivots.dims, 1));
  hlo_value odd = hlo_and(h, hlo_reduce_sum(h, hlo_convert(h, moved, PJ_S32), 1), hlo_constant_int(h, PJ_S32, 1));
  return hlo_select(h, hlo_convert(h, odd, PJ_PRED), hlo_constant(h, dtype, -1), hlo_constant(h, dtype, 1));
}

// For determinants PyTorch factors A^T instead of A when A is contiguous and real, and its autograd formulas expect
// that of the LU they get (linalg_det_backward in torch/csrc/autograd/FunctionsManual.cpp).
static bool factors_transpose(pj_lowering *l) {
  const pj_view *view = &l->signature->operands[l->signature->arguments[0].first].view;
  int64_t stride = 1;
  for (int d = view->rank - 1; d >= 0; --d) {
    if (view->sizes[d] != 1 && view->strides[d] != stride) return false;
    stride *= view->sizes[d];
  }
  return !pj_dtype_is_complex(view->dtype);
}

// Returns the factors, as results `first` and `first + 1`.
static pj_lu factored(pj_lowering *l, hlo_value a, int first) {
  pj_lu lu = pj_lu_factor(l->h, factors_transpose(l) ? pj_transposed(l->h, a) : a, true);
  pj_return_reshaped(l, first, lu.factors);
  pj_return_reshaped(l, first + 1, from_one(l->h, lu.pivots));
  return lu;
}

// aten::_linalg_det(A): result, LU, pivots
static void lower_det(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value a = pj_matrices(l, 0);
  if (is_empty(a)) {
    pj_return_fills(l, (double[]){1, 0, 0}, 3);
    return;
  }
  pj_lu lu = factored(l, a, 1);
  hlo_value product = hlo_reduce(h, HLO_MUL, pj_diagonal(h, lu.factors), (int[]){1}, 1);
  pj_return_reshaped(l, 0, hlo_mul(h, product, permutation_sign(h, lu.pivots, a.dtype)));
}

// aten::_linalg_slogdet(A): sign, logabsdet, LU, pivots
static void lower_slogdet(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value a = pj_matrices(l, 0);
  if (is_empty(a)) {
    pj_return_fills(l, (double[]){1, 0, 0, 0}, 4);
    return;
  }
  pj_lu lu = factored(l, a, 2);
  hlo_value diagonal = pj_diagonal(h, lu.factors);
  hlo_value sign = hlo_reduce(h, HLO_MUL, hlo_sign(h, diagonal), (int[]){1}, 1);
  pj_return_reshaped(l, 0, hlo_mul(h, sign, permutation_sign(h, lu.pivots, a.dtype)));
  pj_return_reshaped(l, 1, hlo_reduce_sum(h, hlo_log(h, hlo_abs(h, diagonal)), 1));
}

PJ_LOWERINGS(lu_lowerings) = {
    {"aten::linalg_lu_factor_ex", lower_lu_factor},
    {"aten::linalg_lu", lower_lu},
    {"aten::lu_unpack", lower_lu_unpack},
    {"aten::linalg_lu_solve", lower_lu_solve},
    {"aten::_linalg_solve_ex", lower_solve},
    {"aten::linalg_inv_ex", lower_inverse},
    {"aten::_linalg_det", lower_det},
    {"aten::_linalg_slogdet", lower_slogdet},
    {0},
};
