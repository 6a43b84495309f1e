// Batches of matrices, [batch, rows, columns]: what the linear algebra lowerings share.
#ifndef PJ_OPS_MATRIX_H_
#define PJ_OPS_MATRIX_H_

#include "ops/reduce.h"

// Tensor argument [.., m, n] as [batch, m, n].
hlo_value pj_matrices(pj_lowering *l, int argument);
hlo_value pj_as_matrices(hlo *h, hlo_value x);
hlo_value pj_transposed(hlo *h, hlo_value x);
hlo_value pj_adjoint(hlo *h, hlo_value x);

hlo_value pj_row_of(hlo *h, hlo_value x);     // s32 of the dims of x: the row, the column of each element
hlo_value pj_column_of(hlo *h, hlo_value x);
hlo_value pj_eye(hlo *h, pj_dtype dtype, int64_t batch, int64_t rows, int64_t columns);
hlo_value pj_lower(hlo *h, hlo_value x);      // zero above the diagonal
hlo_value pj_upper(hlo *h, hlo_value x);      // zero below the diagonal
// The Hermitian matrix of which x gives one triangle; the other is not read, nor the imaginary part of the diagonal.
hlo_value pj_hermitian(hlo *h, hlo_value x, bool upper);
hlo_value pj_diagonal(hlo *h, hlo_value x);   // [batch, min(m, n)]
hlo_value pj_block(hlo *h, hlo_value x, int64_t rows, int64_t columns);    // the upper left block
hlo_value pj_enlarged(hlo *h, hlo_value x, int64_t rows, int64_t columns); // zeros below and to the right
// x[b, places[b, i], :]; places are s32 [batch, count].
hlo_value pj_take_rows(hlo *h, hlo_value x, hlo_value places);

// Results of a computation on nothing (a size is 0): filled with a number, with the dimensions that PyTorch expects.
void pj_return_fill(pj_lowering *l, int result, double fill);
void pj_return_fills(pj_lowering *l, const double *fills, int count);

// ---- LU -------------------------------------------------------------------------------------------------------------

typedef struct pj_lu {
  hlo_value factors;      // [batch, m, n]: U on and above the diagonal, L below it
  hlo_value pivots;       // s32 [batch, min(m, n)]: step k exchanged rows k and pivots[k] (from 0)
  hlo_value permutation;  // s32 [batch, m]: row i of L U is row permutation[i] of the matrix
  hlo_value info;         // s32 [batch]: 0, or the number (from 1) of the first pivot that is zero
} pj_lu;

pj_lu pj_lu_factor(hlo *h, hlo_value x, bool pivot);
hlo_value pj_lu_permutation(hlo *h, hlo_value pivots, int64_t rows);  // from pivots, counted from 0
hlo_value pj_inverse_permutation(hlo *h, hlo_value permutation);
// op(A) X = B with A = P L U
hlo_value pj_lu_solve(hlo *h, hlo_value factors, hlo_value permutation, hlo_value b, hlo_transpose_kind op);

// ---- QR -------------------------------------------------------------------------------------------------------------

typedef struct pj_reflectors {
  hlo_value a, tau;  // [batch, m, n]: R above, the reflectors' tails below the diagonal; [batch, min(m, n)]
} pj_reflectors;

pj_reflectors pj_qr(hlo *h, hlo_value x);
hlo_value pj_qr_product(hlo *h, pj_reflectors r, int64_t columns);  // the first columns of Q, columns <= m

// ---- singular values ------------------------------------------------------------------------------------------------

typedef struct pj_svd {
  hlo_value u, s, v;  // A = u diag(s) v^H, the largest s first; u and v are invalid unless asked for
} pj_svd;

typedef enum pj_svd_parts { PJ_SVD_VALUES, PJ_SVD_REDUCED, PJ_SVD_FULL } pj_svd_parts;

pj_svd pj_svd_of(hlo *h, hlo_value a, pj_svd_parts parts);

#endif
