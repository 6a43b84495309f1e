// Cholesky factors, triangular systems, and the matrix exponential.
#include <math.h>

#include "ops/matrix.h"

// ---- Cholesky -------------------------------------------------------------------------------------------------------

enum { STEP, REST, INFO };

static void minors_left(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  results[0] = hlo_lt(h, s[STEP], hlo_constant_int(h, PJ_S32, ((const hlo_value *)context)->dims[1]));
}

// Eliminates column k of the symmetric rest; info is the first k (from 1) whose pivot is not positive.
static void minor_step(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  const hlo_value *a = context;
  int64_t batch = a->dims[0], n = a->dims[1];
  hlo_value k = s[STEP], zero = hlo_constant_int(h, PJ_S32, 0), one = hlo_constant_int(h, PJ_S32, 1);
  hlo_value column = hlo_dynamic_slice(h, s[REST], (hlo_value[]){zero, zero, k}, (int64_t[]){batch, n, 1});
  hlo_value pivot = hlo_dynamic_slice(h, column, (hlo_value[]){zero, k, zero}, (int64_t[]){batch, 1, 1});
  hlo_value real = hlo_real(h, pivot);
  hlo_value positive = hlo_reshape(h, hlo_gt(h, real, pj_full_like(h, real, 0)), 1, &batch);
  results[STEP] = hlo_add(h, k, one);
  results[REST] = hlo_sub(h, s[REST], hlo_mul(h, column, hlo_div(h, pj_adjoint(h, column), pivot)));
  hlo_value first = hlo_and(h, hlo_not(h, positive), hlo_eq(h, s[INFO], zero));
  results[INFO] = hlo_select(h, first, hlo_broadcast_like(h, results[STEP], s[INFO]), s[INFO]);
}

typedef struct minors {
  hlo_value a, none;
} minors;

static void find_minor(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)arguments;
  minors *m = context;
  hlo_value starts[] = {hlo_constant_int(h, PJ_S32, 0), m->a, m->none}, found[3];
  hlo_while(h, starts, 3, minors_left, minor_step, &m->a, found);
  results[0] = found[INFO];
}

static void no_minor(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)h;
  (void)arguments;
  results[0] = ((minors *)context)->none;
}

// LAPACK's info: the order of the first leading minor that is not positive definite. The compiler's own factorisation
// only says by NaN that there is one, so the minor is looked for when there are.
static hlo_value first_bad_minor(hlo *h, hlo_value a, hlo_value factor) {
  minors m = {.a = a, .none = hlo_full(h, PJ_S32, 1, a.dims, 0)};
  hlo_value failed = hlo_reduce_all(h, HLO_OR, hlo_is_nan(h, factor)), info;
  hlo_if(h, failed, find_minor, no_minor, 1, &m, &info);
  return info;
}

// aten::linalg_cholesky_ex(self, *, upper, check_errors): L (or U = L^H), info
static void lower_cholesky(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value a = pj_matrices(l, 0);
  if (!pj_require(l, !pj_bool(l, 2), PJ_UNIMPLEMENTED, "linalg_cholesky_ex with check_errors has no lowering")) return;
  if (hlo_size(a) == 0) {
    pj_return_fills(l, (double[]){0, 0}, 2);
    return;
  }
  bool upper = pj_bool(l, 1);
  a = pj_hermitian(h, a, upper);
  hlo_value factor = pj_lower(h, hlo_cholesky(h, a, true));
  pj_return_reshaped(l, 0, upper ? pj_adjoint(h, factor) : factor);
  pj_return_reshaped(l, 1, first_bad_minor(h, a, factor));
}

// X of A X = B, A given by its triangular factor: L L^H or U^H U
static hlo_value cholesky_solve(hlo *h, hlo_value factor, hlo_value b, bool upper) {
  hlo_transpose_kind first = upper ? HLO_ADJOINT : HLO_NO_TRANSPOSE, second = upper ? HLO_NO_TRANSPOSE : HLO_ADJOINT;
  b = hlo_triangular_solve(h, factor, b, true, !upper, false, first);
  return hlo_triangular_solve(h, factor, b, true, !upper, false, second);
}

// aten::_cholesky_solve_helper(self, A, upper): A is the factor
static void lower_cholesky_solve(pj_lowering *l) {
  hlo_value b = pj_matrices(l, 0), factor = pj_matrices(l, 1);
  if (hlo_size(b) == 0) pj_return_fill(l, 0, 0);
  else pj_return_reshaped(l, 0, cholesky_solve(l->h, factor, b, pj_bool(l, 2)));
}

// aten::cholesky_inverse(self, upper): self is the factor
static void lower_cholesky_inverse(pj_lowering *l) {
  hlo_value factor = pj_matrices(l, 0);
  hlo_value unit = pj_eye(l->h, factor.dtype, factor.dims[0], factor.dims[1], factor.dims[1]);
  if (hlo_size(factor) == 0) pj_return_fill(l, 0, 0);
  else pj_return_reshaped(l, 0, cholesky_solve(l->h, factor, unit, pj_bool(l, 1)));
}

// ---- triangular systems ---------------------------------------------------------------------------------------------

// x with its leading dimensions broadcast to those of the result, as a batch of matrices.
static hlo_value broadcast_matrices(pj_lowering *l, int argument, pj_type result) {
  hlo_value x = pj_tensor(l, argument);
  result.dims[result.rank - 2] = x.dims[x.rank - 2];
  result.dims[result.rank - 1] = x.dims[x.rank - 1];
  return pj_as_matrices(l->h, hlo_broadcast_to(l->h, x, result.rank, result.dims));
}

static bool require_matrices(pj_lowering *l, int a, int b) {
  return pj_require(l, pj_tensor_type(l, a).rank >= 2 && pj_tensor_type(l, b).rank >= 2, PJ_INVALID_ARGUMENT,
                    "%s: the arguments must have at least 2 dimensions", l->signature->name);
}

// aten::linalg_solve_triangular(self, B, *, upper, left, unitriangular)
static void lower_solve_triangular(pj_lowering *l) {
  pj_type result = pj_result_type(l, 0);
  if (!require_matrices(l, 0, 1)) return;
  hlo_value a = broadcast_matrices(l, 0, result), b = broadcast_matrices(l, 1, result);
  if (hlo_size(b) == 0) pj_return_fill(l, 0, 0);
  else pj_return_reshaped(l, 0, hlo_triangular_solve(l->h, a, b, pj_bool(l, 3), !pj_bool(l, 2), pj_bool(l, 4),
                                                     HLO_NO_TRANSPOSE));
}

// aten::triangular_solve(self, A, upper, transpose, unitriangular): solution, A
static void lower_triangular_solve(pj_lowering *l) {
  pj_type result = pj_result_type(l, 0);
  if (!require_matrices(l, 0, 1)) return;
  hlo_value b = broadcast_matrices(l, 0, result), a = broadcast_matrices(l, 1, result);
  pj_return_reshaped(l, 1, a);
  hlo_transpose_kind transpose = pj_bool(l, 3) ? HLO_TRANSPOSE : HLO_NO_TRANSPOSE;
  if (hlo_size(b) == 0) pj_return_fill(l, 0, 0);
  else pj_return_reshaped(l, 0, hlo_triangular_solve(l->h, a, b, true, !pj_bool(l, 2), pj_bool(l, 4), transpose));
}

// ---- matrix exponential ---------------------------------------------------------------------------------------------

// exp(X) = exp(X / 2^s)^(2^s), with s so large that the 1-norm of X / 2^s is at most 1. There a Taylor polynomial of
// this degree has less than the rounding error: 1 / 13! = 2e-10 and 1 / 19! = 8e-18.
static int taylor_degree(pj_dtype dtype) { return pj_real_dtype(dtype) == PJ_F64 ? 18 : 12; }

enum { SQUARING, POWER, SQUARINGS };

static void squarings_left(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_lt(h, s[SQUARING], hlo_reduce_all(h, HLO_MAX, s[SQUARINGS]));
}

static void square(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  (void)context;
  hlo_value wanted = hlo_lt(h, s[SQUARING], s[SQUARINGS]);
  results[SQUARING] = hlo_add(h, s[SQUARING], hlo_constant_int(h, PJ_S32, 1));
  results[POWER] = hlo_select(h, wanted, hlo_matmul(h, s[POWER], s[POWER], s[POWER].dtype), s[POWER]);
  results[SQUARINGS] = s[SQUARINGS];
}

// aten::linalg_matrix_exp(self)
static void lower_matrix_exp(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_matrices(l, 0);
  if (hlo_size(x) == 0) {
    pj_return_fill(l, 0, 0);
    return;
  }
  x = hlo_convert(h, x, pj_math_dtype(x.dtype));
  int64_t batch = x.dims[0], n = x.dims[1];
  hlo_value norm = hlo_reduce_max(h, hlo_reduce_sum(h, hlo_abs(h, x), 1), 1);
  hlo_value halvings = hlo_ceil(h, hlo_div(h, hlo_log(h, norm), pj_full_like(h, norm, log(2))));
  // not less than 0 nor, for infinite norms, more than any finite norm takes; NaN counts as 0
  halvings = hlo_clamp(h, pj_full_like(h, norm, 0), halvings, pj_full_like(h, norm, 1030));
  halvings = hlo_select(h, hlo_is_nan(h, halvings), pj_full_like(h, norm, 0), halvings);
  halvings = hlo_reshape(h, halvings, 3, (int64_t[]){batch, 1, 1});
  hlo_value scale = hlo_exp(h, pj_scale(h, halvings, -log(2)));
  x = hlo_mul(h, x, hlo_convert(h, scale, x.dtype));
  hlo_value unit = pj_eye(h, x.dtype, batch, n, n), sum = unit;
  for (int k = taylor_degree(x.dtype); k > 0; --k)
    sum = hlo_add(h, unit, pj_scale(h, hlo_matmul(h, x, sum, x.dtype), 1.0 / k));
  hlo_value starts[] = {hlo_constant_int(h, PJ_S32, 0), sum, hlo_convert(h, halvings, PJ_S32)}, found[3];
  hlo_while(h, starts, 3, squarings_left, square, NULL, found);
  pj_return_reshaped(l, 0, found[POWER]);
}

PJ_LOWERINGS(linalg_lowerings) = {
    {"aten::linalg_cholesky_ex", lower_cholesky},
    {"aten::_cholesky_solve_helper", lower_cholesky_solve},
    {"aten::cholesky_inverse", lower_cholesky_inverse},
    {"aten::linalg_solve_triangular", lower_solve_triangular},
    {"aten::triangular_solve", lower_triangular_solve},
    {"aten::linalg_matrix_exp", lower_matrix_exp},
    {0},
};
