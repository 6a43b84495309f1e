#include "ops/matrix.h"

hlo_value pj_as_matrices(hlo *h, hlo_value x) {
  int64_t batch = 1;
  for (int d = 0; d < x.rank - 2; ++d) batch *= x.dims[d];
  return hlo_reshape(h, x, 3, (int64_t[]){batch, x.dims[x.rank - 2], x.dims[x.rank - 1]});
}

hlo_value pj_matrices(pj_lowering *l, int argument) {
  hlo_value x = pj_tensor(l, argument);
  if (!pj_require(l, x.rank >= 2, PJ_INVALID_ARGUMENT, "%s: the input must have at least 2 dimensions, but it has %d",
                  l->signature->name, x.rank)) return hlo_full(l->h, PJ_F32, 3, (int64_t[]){0, 0, 0}, 0);
  return pj_as_matrices(l->h, x);
}

hlo_value pj_transposed(hlo *h, hlo_value x) { return hlo_swap(h, x, -1, -2); }
hlo_value pj_adjoint(hlo *h, hlo_value x) { return hlo_conj(h, pj_transposed(h, x)); }

hlo_value pj_row_of(hlo *h, hlo_value x) { return hlo_iota(h, PJ_S32, 3, x.dims, 1); }
hlo_value pj_column_of(hlo *h, hlo_value x) { return hlo_iota(h, PJ_S32, 3, x.dims, 2); }

hlo_value pj_eye(hlo *h, pj_dtype dtype, int64_t batch, int64_t rows, int64_t columns) {
  hlo_value shape = {.dtype = PJ_S32, .rank = 3, .dims = {batch, rows, columns}};
  return hlo_convert(h, hlo_eq(h, pj_row_of(h, shape), pj_column_of(h, shape)), dtype);
}

static hlo_value masked(hlo *h, hlo_value mask, hlo_value x) { return hlo_select(h, mask, x, pj_full_like(h, x, 0)); }

hlo_value pj_lower(hlo *h, hlo_value x) { return masked(h, hlo_ge(h, pj_row_of(h, x), pj_column_of(h, x)), x); }
hlo_value pj_upper(hlo *h, hlo_value x) { return masked(h, hlo_le(h, pj_row_of(h, x), pj_column_of(h, x)), x); }

hlo_value pj_hermitian(hlo *h, hlo_value x, bool upper) {
  if (upper) x = pj_adjoint(h, x);
  hlo_value row = pj_row_of(h, x), column = pj_column_of(h, x);
  x = hlo_select(h, hlo_ge(h, row, column), x, pj_adjoint(h, x));
  if (!pj_dtype_is_complex(x.dtype)) return x;
  return hlo_select(h, hlo_eq(h, row, column), hlo_convert(h, hlo_real(h, x), x.dtype), x);
}

hlo_value pj_diagonal(hlo *h, hlo_value x) {
  int64_t k = x.dims[1] < x.dims[2] ? x.dims[1] : x.dims[2];
  x = pj_block(h, x, k, k);
  return hlo_reduce_sum(h, masked(h, hlo_eq(h, pj_row_of(h, x), pj_column_of(h, x)), x), 2);
}

hlo_value pj_block(hlo *h, hlo_value x, int64_t rows, int64_t columns) {
  return hlo_slice(h, x, (int64_t[]){0, 0, 0}, (int64_t[]){x.dims[0], rows, columns}, NULL);
}

hlo_value pj_enlarged(hlo *h, hlo_value x, int64_t rows, int64_t columns) {
  return hlo_pad(h, x, pj_full_like(h, x, 0), (int64_t[]){0, 0, 0},
                 (int64_t[]){0, rows - x.dims[1], columns - x.dims[2]}, NULL);
}

hlo_value pj_take_rows(hlo *h, hlo_value x, hlo_value places) {
  hlo_gather_spec spec = {.offset_dims = {2}, .offset_count = 1, .collapsed = {1}, .collapsed_count = 1,
                          .operand_batching = {0}, .indices_batching = {0}, .batching_count = 1, .start_index_map = {1},
                          .start_count = 1, .index_vector_dim = 2, .slice_sizes = {1, 1, x.dims[2]}};
  return hlo_gather(h, x, places, &spec);
}

void pj_return_fill(pj_lowering *l, int result, double fill) {
  pj_type type = pj_result_type(l, result);
  pj_return(l, result, hlo_full(l->h, type.dtype, type.rank, type.dims, fill));
}

void pj_return_fills(pj_lowering *l, const double *fills, int count) {
  for (int i = 0; i < count; ++i) pj_return_fill(l, i, fills[i]);
}
