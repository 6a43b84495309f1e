// QR factorisations by Householder reflectors, and eigenvalues of Hermitian matrices, through custom calls that XLA
// expands itself on every platform (QrExpander, HouseholderReflector..., EighExpander): no LAPACK is needed.
#include "ops/matrix.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static hlo_value typed(pj_dtype dtype, int rank, const int64_t *dims) {
  hlo_value type = {.id = -1, .dtype = dtype, .rank = rank};
  memcpy(type.dims, dims, (size_t)rank * sizeof *dims);
  return type;
}

pj_reflectors pj_qr(hlo *h, hlo_value x) {
  hlo_value results[] = {typed(x.dtype, 3, x.dims),
                         typed(x.dtype, 2, (int64_t[]){x.dims[0], least(x.dims[1], x.dims[2])})};
  hlo_custom_call(h, "Qr", NULL, &x, 1, results, 2);
  return (pj_reflectors){results[0], results[1]};
}

hlo_value pj_qr_product(hlo *h, pj_reflectors r, int64_t columns) {
  int64_t m = r.a.dims[1], n = r.a.dims[2], known = r.tau.dims[1];
  hlo_value a = columns > n ? pj_enlarged(h, r.a, m, columns) : pj_block(h, r.a, m, columns);
  hlo_value tau = r.tau;  // a reflector with tau 0 is the identity
  if (columns > known)
    tau = hlo_pad(h, tau, pj_full_like(h, tau, 0), (int64_t[]){0, 0}, (int64_t[]){0, columns - known}, NULL);
  else tau = hlo_slice_dim(h, tau, 1, 0, columns);
  hlo_value operands[] = {a, tau}, q = typed(a.dtype, 3, a.dims);
  hlo_custom_call(h, "ProductOfElementaryHouseholderReflectors", NULL, operands, 2, &q, 1);
  return q;
}

// aten::linalg_qr(A, mode): Q, R; mode "reduced", "complete" or "r" (Q is empty)
static void lower_qr(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value a = pj_matrices(l, 0);
  const char *mode = pj_string(l, 1);
  bool reduced = !strcmp(mode, "reduced"), complete = !strcmp(mode, "complete"), r_only = !strcmp(mode, "r");
  if (!pj_require(l, reduced || complete || r_only, PJ_INVALID_ARGUMENT, "qr received unrecognized mode '%s' "
                  "but expected one of 'reduced' (default), 'r', or 'complete'", mode)) return;
  int64_t m = a.dims[1], n = a.dims[2], k = complete ? m : least(m, n);
  if (hlo_size(a) == 0) {
    pj_return_fills(l, (double[]){0, 0}, 2);
    if (complete && a.dims[0] && m) pj_return_reshaped(l, 0, pj_eye(h, a.dtype, a.dims[0], m, m));
    return;
  }
  pj_reflectors r = pj_qr(h, a);
  if (r_only) pj_return_fill(l, 0, 0);
  else pj_return_reshaped(l, 0, pj_qr_product(h, r, k));
  pj_return_reshaped(l, 1, pj_upper(h, pj_block(h, r.a, k, n)));
}

// aten::geqrf(self): a, tau
static void lower_geqrf(pj_lowering *l) {
  hlo_value a = pj_matrices(l, 0);
  if (hlo_size(a) == 0) {
    pj_return_fills(l, (double[]){0, 0}, 2);
    return;
  }
  pj_reflectors r = pj_qr(l->h, a);
  pj_return_reshaped(l, 0, r.a);
  pj_return_reshaped(l, 1, r.tau);
}

static pj_reflectors reflectors_arguments(pj_lowering *l, int a, int tau) {
  pj_reflectors r = {pj_matrices(l, a), pj_tensor(l, tau)};
  int64_t k = r.tau.rank ? r.tau.dims[r.tau.rank - 1] : 0;
  r.tau = hlo_reshape(l->h, r.tau, 2, (int64_t[]){r.a.dims[0], k});
  return r;
}

// aten::linalg_householder_product(input, tau)
static void lower_householder_product(pj_lowering *l) {
  pj_reflectors r = reflectors_arguments(l, 0, 1);
  if (hlo_size(r.a) == 0) pj_return_fill(l, 0, 0);
  else pj_return_reshaped(l, 0, pj_qr_product(l->h, r, r.a.dims[2]));
}

// aten::ormqr(self, input2, input3, left, transpose): Q or Q^H of the reflectors, times input3 from the left or right
static void lower_ormqr(pj_lowering *l) {
  hlo *h = l->h;
  pj_reflectors r = reflectors_arguments(l, 0, 1);
  hlo_value other = pj_matrices(l, 2);
  if (hlo_size(other) == 0 || r.tau.dims[1] == 0) {
    pj_return(l, 0, pj_tensor(l, 2));
    return;
  }
  hlo_value q = pj_qr_product(h, r, r.a.dims[1]);
  if (pj_bool(l, 4)) q = pj_adjoint(h, q);
  pj_return_reshaped(l, 0, pj_bool(l, 3) ? hlo_matmul(h, q, other, q.dtype) : hlo_matmul(h, other, q, q.dtype));
}

// XLA's Jacobi sweeps stop at a fixed tolerance that leaves errors of 1e-8 in the vectors: for 32 bits only.
static void eigh_by_compiler(hlo *h, hlo_value a, bool lower, hlo_value *out_values, hlo_value *out_vectors) {
  const char *config = lower ? "1,1,100,1e-6" : "0,1,100,1e-6";  // lower, sorted, most sweeps, tolerance
  hlo_value results[] = {typed(a.dtype, 3, a.dims), typed(pj_real_dtype(a.dtype), 2, a.dims)};
  hlo_custom_call(h, "Eigh", config, &a, 1, results, 2);
  *out_vectors = results[0];
  *out_values = results[1];
}

// A + c I with c >= |A| has no negative eigenvalue, so its singular vectors are eigenvectors, of A too; the values are
// then the quotients x^H A x, which no shift has rounded.
static void eigh_by_svd(hlo *h, hlo_value a, hlo_value *out_values, hlo_value *out_vectors) {
  hlo_value norm = hlo_reduce_max(h, hlo_reduce_sum(h, hlo_abs(h, a), 2), 1);
  hlo_value shift = hlo_reshape(h, hlo_convert(h, norm, a.dtype), 3, (int64_t[]){a.dims[0], 1, 1});
  hlo_value unit = pj_eye(h, a.dtype, a.dims[0], a.dims[1], a.dims[1]);
  pj_svd d = pj_svd_of(h, hlo_add(h, a, hlo_mul(h, unit, shift)), PJ_SVD_REDUCED);
  hlo_value x = hlo_reverse(h, d.v, (int[]){2}, 1);   // the smallest first
  hlo_value products = hlo_mul(h, hlo_conj(h, x), hlo_matmul(h, a, x, a.dtype));
  *out_vectors = x;
  *out_values = hlo_reduce_sum(h, hlo_real(h, products), 1);
}

// aten::_linalg_eigh(A, UPLO, compute_v): eigenvalues in ascending order, eigenvectors (empty unless asked for)
static void lower_eigh(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value a = pj_matrices(l, 0);
  const char *uplo = pj_string(l, 1);
  bool lower = *uplo == 'L' || *uplo == 'l';
  if (!pj_require(l, lower || *uplo == 'U' || *uplo == 'u', PJ_INVALID_ARGUMENT,
                  "Expected UPLO argument to be 'L' or 'U', but got %s", uplo)) return;
  if (hlo_size(a) == 0) {
    pj_return_fills(l, (double[]){0, 0}, 2);
    return;
  }
  hlo_value values, vectors;
  if (pj_real_dtype(a.dtype) == PJ_F64) eigh_by_svd(h, pj_hermitian(h, a, !lower), &values, &vectors);
  else eigh_by_compiler(h, a, lower, &values, &vectors);
  pj_return_reshaped(l, 0, values);
  if (pj_bool(l, 2)) pj_return_reshaped(l, 1, vectors);
  else pj_return_fill(l, 1, 0);
}

PJ_LOWERINGS(orthogonal_lowerings) = {
    {"aten::linalg_qr", lower_qr},
    {"aten::geqrf", lower_geqrf, .flags = PJ_OP_DYNAMIC},
    {"aten::linalg_householder_product", lower_householder_product},
    {"aten::ormqr", lower_ormqr},
    {"aten::_linalg_eigh", lower_eigh},
    {0},
};
