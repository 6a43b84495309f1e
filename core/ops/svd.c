// Singular values by one-sided Jacobi rotations after a QR factorisation: rotations of pairs of columns make R V
// orthogonal, and the columns' lengths are then the singular values. Small ones are as exact as large ones (Demmel and
// Veselic, "Jacobi's method is more accurate than QR", 1992). All pairs of one round of a tournament are disjoint and
// rotated at once.
#include <float.h>

#include "ops/matrix.h"

enum { MOST_SWEEPS = 40 };

// Loop state. The columns stand in two halves; column i of `top` meets column i of `bottom`. Above, R V; below, V.
enum { COUNT, TOP, BOTTOM, WORST, STATE };

typedef struct jacobi {
  int64_t n, half;   // columns, an even number; half of them
  double tolerance;  // of the cosine between two columns
} jacobi;

static void rounds_left(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  results[0] = hlo_lt(h, s[COUNT], hlo_constant_int(h, PJ_S32, ((const jacobi *)context)->n - 1));
}

static void sweeps_left(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  hlo_value enough = pj_full_like(h, s[WORST], ((const jacobi *)context)->tolerance);
  hlo_value open = hlo_lt(h, s[COUNT], hlo_constant_int(h, PJ_S32, MOST_SWEEPS));
  results[0] = hlo_and(h, open, hlo_gt(h, s[WORST], enough));
}

// sum over the rows of R V of conj(x) y, [batch, 1, half]
static hlo_value inner(hlo *h, const jacobi *j, hlo_value x, hlo_value y) {
  hlo_value product = hlo_mul(h, hlo_conj(h, x), y);
  return hlo_keep(h, hlo_reduce_sum(h, hlo_slice_dim(h, product, 1, 0, j->n), 1), 1);
}

static hlo_value columns(hlo *h, hlo_value x, int64_t from, int64_t to) { return hlo_slice_dim(h, x, 2, from, to); }

// The next round: all but the first column move on by one place, round the two halves.
static void move_on(hlo *h, int64_t half, hlo_value top, hlo_value bottom, hlo_value *results) {
  results[TOP] = top;
  results[BOTTOM] = bottom;
  if (half == 1) return;
  hlo_value new_top[] = {columns(h, top, 0, 1), columns(h, bottom, 0, 1), columns(h, top, 1, half - 1)};
  hlo_value new_bottom[] = {columns(h, bottom, 1, half), columns(h, top, half - 1, half)};
  results[TOP] = hlo_concatenate(h, new_top, half == 2 ? 2 : 3, 2);
  results[BOTTOM] = hlo_concatenate(h, new_bottom, 2, 2);
}

// With g = p^H q = |g| phase: t^2 + 2 zeta t - 1 = 0 for zeta = (|q|^2 - |p|^2) / 2|g|, c = 1 / sqrt(1 + t^2), s = c t;
// p' = c p - s conj(phase) q and q' = s p + c conj(phase) q are orthogonal.
static void rotate(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  const jacobi *j = context;
  hlo_value p = s[TOP], q = s[BOTTOM];
  hlo_value a = hlo_real(h, inner(h, j, p, p)), b = hlo_real(h, inner(h, j, q, q)), g = inner(h, j, p, q);
  hlo_value size = hlo_abs(h, g), one = pj_full_like(h, size, 1), zero = pj_full_like(h, size, 0);
  hlo_value lengths = hlo_mul(h, hlo_sqrt(h, a), hlo_sqrt(h, b));
  hlo_value turns = hlo_gt(h, size, pj_scale(h, lengths, j->tolerance));
  hlo_value divisor = hlo_select(h, turns, size, one);
  hlo_value zeta = hlo_div(h, hlo_sub(h, b, a), pj_scale(h, divisor, 2));
  hlo_value root = hlo_sqrt(h, hlo_add(h, one, hlo_mul(h, zeta, zeta)));
  hlo_value t = hlo_div(h, hlo_select(h, hlo_ge(h, zeta, zero), one, pj_full_like(h, one, -1)),
                        hlo_add(h, hlo_abs(h, zeta), root));
  t = hlo_select(h, turns, t, zero);
  hlo_value c = hlo_rsqrt(h, hlo_add(h, one, hlo_mul(h, t, t)));
  hlo_value sine = hlo_convert(h, hlo_mul(h, c, t), p.dtype);
  hlo_value phase = hlo_select(h, turns, hlo_div(h, g, hlo_convert(h, divisor, g.dtype)), pj_full_like(h, g, 1));
  c = hlo_convert(h, c, p.dtype);
  q = hlo_mul(h, q, hlo_conj(h, phase));
  hlo_value turned_p = hlo_sub(h, hlo_mul(h, c, p), hlo_mul(h, sine, q));
  hlo_value turned_q = hlo_add(h, hlo_mul(h, sine, p), hlo_mul(h, c, q));
  move_on(h, j->half, turned_p, turned_q, results);
  results[COUNT] = hlo_add(h, s[COUNT], hlo_constant_int(h, PJ_S32, 1));
  hlo_value cosine = hlo_select(h, turns, hlo_div(h, size, hlo_select(h, turns, lengths, one)), zero);
  results[WORST] = hlo_max(h, s[WORST], hlo_reduce_all(h, HLO_MAX, cosine));
}

static void sweep(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  hlo_value starts[] = {hlo_constant_int(h, PJ_S32, 0), s[TOP], s[BOTTOM], pj_full_like(h, s[WORST], 0)};
  hlo_while(h, starts, STATE, rounds_left, rotate, context, results);
  results[COUNT] = hlo_add(h, s[COUNT], hlo_constant_int(h, PJ_S32, 1));
}

static void larger(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_gt(h, arguments[0], arguments[1]);
}

// R = U diag(values) V^H of square matrices; `rotated` is R V. The columns are sorted, largest first.
typedef struct decomposition {
  hlo_value rotated, v, values;
} decomposition;

static decomposition decompose(hlo *h, hlo_value r) {
  int64_t batch = r.dims[0], n = r.dims[1], even = n + n % 2;
  pj_dtype real = pj_real_dtype(r.dtype);
  jacobi j = {.n = even, .half = even / 2, .tolerance = real == PJ_F64 ? DBL_EPSILON : (double)FLT_EPSILON};
  hlo_value both[] = {pj_enlarged(h, r, even, even), pj_eye(h, r.dtype, batch, even, even)};
  hlo_value stacked = hlo_concatenate(h, both, 2, 1);
  hlo_value starts[] = {hlo_constant_int(h, PJ_S32, 0), columns(h, stacked, 0, j.half),
                        columns(h, stacked, j.half, even), hlo_constant(h, real, 1)},
            found[STATE];
  hlo_while(h, starts, STATE, sweeps_left, sweep, &j, found);
  stacked = hlo_concatenate(h, (hlo_value[]){found[TOP], found[BOTTOM]}, 2, 2);
  hlo_value rotated = hlo_slice_dim(h, stacked, 1, 0, even), v = hlo_slice_dim(h, stacked, 1, even, 2 * even);
  hlo_value values = hlo_sqrt(h, hlo_reduce_sum(h, hlo_real(h, hlo_mul(h, rotated, hlo_conj(h, rotated))), 1));
  // the column that made n even never turned: it is the only one with something in the last row of V, and goes last
  if (even != n) {
    hlo_value last = hlo_reshape(h, hlo_slice_dim(h, v, 1, n, even), 2, (int64_t[]){batch, even});
    hlo_value added = hlo_ne(h, last, pj_full_like(h, last, 0));
    values = hlo_select(h, added, pj_full_like(h, values, -1), values);
  }
  hlo_value operands[] = {values, hlo_iota(h, PJ_S32, 2, values.dims, 1)}, sorted[2];
  hlo_sort(h, operands, 2, 1, true, larger, NULL, sorted);
  hlo_value order = hlo_slice_dim(h, sorted[1], 1, 0, n);
  rotated = pj_transposed(h, pj_take_rows(h, pj_transposed(h, rotated), order));
  v = pj_transposed(h, pj_take_rows(h, pj_transposed(h, v), order));
  return (decomposition){pj_block(h, rotated, n, n), pj_block(h, v, n, n), hlo_slice_dim(h, sorted[0], 1, 0, n)};
}

// The left vectors: the columns' directions, and an orthonormal completion where the value is 0. A QR factorisation
// gives both: its R is diagonal, and only the phases of that diagonal are to be put back.
static hlo_value directions(hlo *h, hlo_value rotated, hlo_value values) {
  int64_t n = rotated.dims[1];
  hlo_value length = hlo_keep(h, hlo_select(h, hlo_gt(h, values, pj_full_like(h, values, 0)), values,
                                            pj_full_like(h, values, 1)), 1);
  pj_reflectors r = pj_qr(h, hlo_div(h, rotated, hlo_convert(h, length, rotated.dtype)));
  hlo_value phase = hlo_sign(h, pj_diagonal(h, r.a)), zero = pj_full_like(h, phase, 0);
  phase = hlo_select(h, hlo_eq(h, phase, zero), pj_full_like(h, phase, 1), phase);
  return hlo_mul(h, pj_qr_product(h, r, n), hlo_keep(h, phase, 1));
}

// Of matrices with at least as many rows as columns.
static pj_svd svd_of_tall(hlo *h, hlo_value a, pj_svd_parts parts) {
  int64_t batch = a.dims[0], m = a.dims[1], n = a.dims[2];
  // squares of the elements must not overflow
  hlo_value size = hlo_reduce(h, HLO_MAX, hlo_abs(h, a), (int[]){1, 2}, 2);
  size = hlo_select(h, hlo_eq(h, size, pj_full_like(h, size, 0)), pj_full_like(h, size, 1), size);
  a = hlo_div(h, a, hlo_convert(h, hlo_reshape(h, size, 3, (int64_t[]){batch, 1, 1}), a.dtype));
  // nor underflow inside the compiler's QR: what is this much smaller than the largest element is lost in the rounding
  hlo_value lost = hlo_lt(h, hlo_abs(h, a), pj_full_like(h, size, pj_real_dtype(a.dtype) == PJ_F64 ? 1e-130 : 1e-14));
  a = hlo_select(h, lost, pj_full_like(h, a, 0), a);
  pj_reflectors qr = pj_qr(h, a);
  decomposition d = decompose(h, pj_upper(h, pj_block(h, qr.a, n, n)));
  pj_svd result = {.u = {.id = -1}, .s = hlo_mul(h, d.values, hlo_keep(h, size, 1)), .v = {.id = -1}};
  if (parts == PJ_SVD_VALUES) return result;
  hlo_value q = pj_qr_product(h, qr, parts == PJ_SVD_FULL ? m : n);
  result.u = hlo_matmul(h, columns(h, q, 0, n), directions(h, d.rotated, d.values), a.dtype);
  if (parts == PJ_SVD_FULL && m > n) result.u = hlo_concatenate(h, (hlo_value[]){result.u, columns(h, q, n, m)}, 2, 2);
  result.v = d.v;
  return result;
}

// A^H = u s v^H is A = v s u^H.
pj_svd pj_svd_of(hlo *h, hlo_value a, pj_svd_parts parts) {
  if (a.dims[1] >= a.dims[2]) return svd_of_tall(h, a, parts);
  pj_svd d = svd_of_tall(h, pj_adjoint(h, a), parts);
  return (pj_svd){.u = d.v, .s = d.s, .v = d.u};
}

// aten::_linalg_svd(A, full_matrices, compute_uv, driver): U, S, Vh; U and Vh are empty unless asked for
static void lower_svd(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value a = pj_matrices(l, 0);
  bool full = pj_bool(l, 1), vectors = pj_bool(l, 2);
  int64_t batch = a.dims[0], rows = a.dims[1], width = a.dims[2];
  if (hlo_size(a) == 0) {
    for (int i = 0; i < 3; ++i) pj_return_fill(l, i, 0);
    if (vectors && full && batch && rows) pj_return_reshaped(l, 0, pj_eye(h, a.dtype, batch, rows, rows));
    if (vectors && full && batch && width) pj_return_reshaped(l, 2, pj_eye(h, a.dtype, batch, width, width));
    return;
  }
  pj_svd d = pj_svd_of(h, a, !vectors ? PJ_SVD_VALUES : full ? PJ_SVD_FULL : PJ_SVD_REDUCED);
  pj_return_reshaped(l, 1, d.s);
  if (vectors) {
    pj_return_reshaped(l, 0, d.u);
    pj_return_reshaped(l, 2, pj_adjoint(h, d.v));
  } else {
    pj_return_fill(l, 0, 0);
    pj_return_fill(l, 2, 0);
  }
}

// A tolerance argument, one a matrix, as [batch, 1].
static hlo_value tolerance(pj_lowering *l, int argument, pj_dtype dtype, pj_type matrices) {
  hlo_value x = hlo_convert(l->h, pj_tensor(l, argument), dtype);
  x = hlo_broadcast_to(l->h, x, matrices.rank - 2, matrices.dims);
  return hlo_reshape(l->h, x, 2, (int64_t[]){hlo_size(x), 1});
}

// aten::linalg_pinv.atol_rtol_tensor(self, *, atol, rtol, hermitian): v diag(1 / s) u^H, where values s not above
// max(atol, rtol * largest s) count as 0. rtol is max(m, n) * epsilon unless given, and 0 when atol > 0 is.
static void lower_pinv(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_tensor_type(l, 0);
  hlo_value a = pj_matrices(l, 0);
  if (hlo_size(a) == 0) {
    pj_return_fill(l, 0, 0);
    return;
  }
  if (pj_bool(l, 3)) a = pj_hermitian(h, a, false);
  pj_svd d = pj_svd_of(h, a, PJ_SVD_REDUCED);
  pj_dtype real = d.s.dtype;
  double epsilon = real == PJ_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
  hlo_value zero = hlo_constant(h, real, 0), none = hlo_full(h, real, 2, (int64_t[]){a.dims[0], 1}, 0);
  hlo_value atol = pj_present(l, 1) ? tolerance(l, 1, real, type) : none;
  hlo_value usual = hlo_constant(h, real, epsilon * (double)(a.dims[1] > a.dims[2] ? a.dims[1] : a.dims[2]));
  hlo_value rtol = pj_present(l, 2) ? tolerance(l, 2, real, type) : hlo_select(h, hlo_gt(h, atol, zero), none, usual);
  hlo_value least = hlo_max(h, atol, hlo_mul(h, rtol, hlo_slice_dim(h, d.s, 1, 0, 1)));
  hlo_value kept = hlo_gt(h, d.s, least), one = hlo_constant(h, real, 1);
  hlo_value inverse = hlo_select(h, kept, hlo_div(h, one, hlo_select(h, kept, d.s, one)), zero);
  hlo_value scaled = hlo_mul(h, d.v, hlo_convert(h, hlo_keep(h, inverse, 1), a.dtype));
  pj_return_reshaped(l, 0, hlo_matmul(h, scaled, pj_adjoint(h, d.u), a.dtype));
}

PJ_LOWERINGS(svd_lowerings) = {
    {"aten::_linalg_svd", lower_svd},
    {"aten::linalg_pinv.atol_rtol_tensor", lower_pinv},
    {0},
};
