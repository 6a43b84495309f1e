// Least squares: the X of least norm that makes A X - B least.
#include <float.h>

#include "ops/matrix.h"

// What the drivers of LAPACK differ in for their caller.
typedef struct driver {
  const char *name;
  bool full_rank;  // the rank is taken for granted, not found
  bool values;     // singular values are returned, and residuals where every matrix has full rank
} driver;

static const driver DRIVERS[] = {{"", false, false}, {"gelsy", false, false}, {"gels", true, false},
                                 {"gelsd", false, true}, {"gelss", false, true}};

static const driver *driver_of(pj_lowering *l) {
  const char *name = pj_string(l, 3);
  for (size_t i = 0; i < sizeof DRIVERS / sizeof *DRIVERS; ++i)
    if (!strcmp(DRIVERS[i].name, name)) return &DRIVERS[i];
  pj_require(l, false, PJ_INVALID_ARGUMENT, "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, "
             "gelss), but got %s", name);
  return &DRIVERS[0];
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// [batch, 1] of whether each value is above rcond times the largest; rcond is epsilon * max(m, n) unless given.
static hlo_value values_kept(pj_lowering *l, hlo_value a, hlo_value s) {
  hlo *h = l->h;
  double epsilon = s.dtype == PJ_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
  hlo_value rcond = pj_present(l, 2) ? pj_number(l, 2, s.dtype)
                                     : hlo_constant(h, s.dtype, epsilon * (double)larger(a.dims[1], a.dims[2]));
  return hlo_gt(h, s, hlo_mul(h, rcond, hlo_slice_dim(h, s, 1, 0, 1)));
}

static hlo_value rank_of(hlo *h, hlo_value kept) { return hlo_reduce_sum(h, hlo_convert(h, kept, PJ_S64), 1); }

// B as matrices [batch, m, columns]: a vector a matrix where its dimensions are those of A without the last, as in
// linalg.solve.
static bool read_arguments(pj_lowering *l, hlo_value *out_a, hlo_value *out_b) {
  hlo *h = l->h;
  hlo_value a = pj_tensor(l, 0), b = pj_tensor(l, 1);
  if (!pj_require(l, a.rank >= 2, PJ_INVALID_ARGUMENT, "torch.linalg.lstsq: input must have at least 2 dimensions.") ||
      !pj_require(l, b.rank >= 1, PJ_INVALID_ARGUMENT, "torch.linalg.lstsq: other must have at least 1 dimension.") ||
      !pj_require(l, a.dtype == b.dtype, PJ_INVALID_ARGUMENT, "torch.linalg.lstsq: Expected input and other to have the "
                  "same dtype, but got input's dtype %s and other's dtype %s", pj_dtype_name(a.dtype),
                  pj_dtype_name(b.dtype)) ||
      !pj_require(l, b.rank == a.rank || b.rank == a.rank - 1, PJ_INVALID_ARGUMENT, "torch.linalg.lstsq: input.dim() must "
                  "be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1"))
    return false;
  if (b.rank < a.rank) b = hlo_keep(h, b, -1);
  bool batches = true;
  for (int d = 0; d < a.rank - 2; ++d) batches = batches && a.dims[d] == b.dims[d];
  if (!pj_require(l, batches && a.dims[a.rank - 2] == b.dims[b.rank - 2], PJ_INVALID_ARGUMENT, "torch.linalg.lstsq: "
                  "input.size(-2) should match other's rows, and the batch dimensions must be equal"))
    return false;
  *out_a = pj_as_matrices(h, a);
  *out_b = pj_as_matrices(h, b);
  return !hlo_failed(h);
}

// pj::lstsq_count(self, b, rcond, driver): whether residuals are returned, 0 or 1
static void lower_count(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value a, b;
  const driver *d = driver_of(l);
  if (!read_arguments(l, &a, &b)) return;
  hlo_value full = hlo_constant_int(h, PJ_S64, a.dims[1] > a.dims[2] && (d->full_rank || d->values));
  if (d->values && hlo_size(a)) {
    hlo_value rank = rank_of(h, values_kept(l, a, pj_svd_of(h, a, PJ_SVD_VALUES).s));
    hlo_value all = hlo_reduce_all(h, HLO_AND, hlo_eq(h, rank, hlo_constant_int(h, PJ_S64, a.dims[2])));
    full = hlo_mul(h, full, hlo_convert(h, all, PJ_S64));
  }
  pj_return(l, 0, hlo_reshape(h, full, 1, (int64_t[]){1}));
}

// A = Q R: X = R^-1 Q^H B. Of a wide A with A^H = Q R the shortest is X = Q R^-H B.
static hlo_value solve_by_qr(hlo *h, hlo_value a, hlo_value b) {
  bool tall = a.dims[1] >= a.dims[2];
  int64_t k = tall ? a.dims[2] : a.dims[1];
  pj_reflectors r = pj_qr(h, tall ? a : pj_adjoint(h, a));
  hlo_value q = pj_qr_product(h, r, k), upper = pj_block(h, r.a, k, k);
  if (tall) return hlo_triangular_solve(h, upper, hlo_matmul(h, pj_adjoint(h, q), b, b.dtype), true, false, false,
                                        HLO_NO_TRANSPOSE);
  return hlo_matmul(h, q, hlo_triangular_solve(h, upper, b, true, false, false, HLO_ADJOINT), b.dtype);
}

// A = u diag(s) v^H: X = v diag(1 / s) u^H B over the values that are kept
static hlo_value solve_by_svd(hlo *h, pj_svd d, hlo_value kept, hlo_value b) {
  hlo_value one = pj_full_like(h, d.s, 1);
  hlo_value inverse = hlo_select(h, kept, hlo_div(h, one, hlo_select(h, kept, d.s, one)), pj_full_like(h, d.s, 0));
  hlo_value parts = hlo_matmul(h, pj_adjoint(h, d.u), b, b.dtype);
  parts = hlo_mul(h, parts, hlo_convert(h, hlo_keep(h, inverse, 2), b.dtype));
  return hlo_matmul(h, d.v, parts, b.dtype);
}

// pj::lstsq(self, b, rcond, driver, count): solution, residuals, rank, singular_values; what a driver does not give is
// empty
static void lower_lstsq(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value a, b, x;
  const driver *d = driver_of(l);
  if (!read_arguments(l, &a, &b)) return;
  for (int i = 0; i < 4; ++i) pj_return_fill(l, i, 0);
  if (hlo_size(a) == 0 || hlo_size(b) == 0) {
    x = hlo_full(h, b.dtype, 3, (int64_t[]){b.dims[0], a.dims[2], b.dims[2]}, 0);
  } else if (d->full_rank) {
    x = solve_by_qr(h, a, b);
  } else {
    pj_svd svd = pj_svd_of(h, a, PJ_SVD_REDUCED);
    hlo_value kept = values_kept(l, a, svd.s);
    x = solve_by_svd(h, svd, kept, b);
    pj_return_reshaped(l, 2, rank_of(h, kept));
    if (d->values) pj_return_reshaped(l, 3, svd.s);
  }
  pj_return_reshaped(l, 0, x);
  if (!pj_int(l, 4) || (d->full_rank && hlo_size(a) == 0)) return;   // LAPACK's gels is not asked about nothing
  hlo_value rest = hlo_abs(h, a.dims[2] ? hlo_sub(h, hlo_matmul(h, a, x, b.dtype), b) : b);
  pj_return_reshaped(l, 1, hlo_reduce_sum(h, hlo_mul(h, rest, rest), 1));
}

PJ_LOWERINGS(least_squares_lowerings) = {
    {.name = "pj::lstsq_count", .lower = lower_count},
    {.name = "pj::lstsq", .lower = lower_lstsq},
    {0},
};
