// Rows of differing lengths: [total, ...] one after the other, row b from offsets[b] to offsets[b + 1], and padded to
// [rows, length, ...]. One jagged dimension, as PyTorch's own kernels.
#include "ops/reduce.h"

// The offsets, s32 [rows + 1]; false with an error when there are more lists of them, or a longer one is malformed.
static bool read_offsets(pj_lowering *l, hlo_value *out_offsets) {
  if (!pj_require(l, pj_list_count(l, 1) == 1, PJ_INVALID_ARGUMENT, "Only one jagged dim is supported, got %d offsets",
                  pj_list_count(l, 1)))
    return false;
  hlo_value offsets = pj_list_tensor(l, 1, 0);
  if (!pj_require(l, offsets.rank == 1 && offsets.dims[0] > 0, PJ_INVALID_ARGUMENT,
                  "offsets must be a vector of at least one element"))
    return false;
  *out_offsets = hlo_convert(l->h, offsets, PJ_S32);
  return !hlo_failed(l->h);
}

// [count] PRED as PRED [count, 1, ...] of the rank of x.
static hlo_value over_rows(hlo *h, hlo_value mask, hlo_value x) {
  while (mask.rank < x.rank && !hlo_failed(h)) mask = hlo_keep(h, mask, -1);
  return hlo_broadcast_like(h, mask, x);
}

// aten::_jagged_to_padded_dense_forward(values, offsets, max_lengths, padding_value): what is longer is cut off
static void lower_jagged_to_padded(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value values = pj_tensor(l, 0), offsets;
  pj_type type = pj_result_type(l, 0);
  if (!read_offsets(l, &offsets)) return;
  int64_t rows = type.dims[0], places = rows * type.dims[1];
  hlo_value padding = pj_number(l, 3, values.dtype);
  if (!hlo_size(values) || !places) {
    pj_return(l, 0, hlo_broadcast_to(h, padding, type.rank, type.dims));
    return;
  }
  hlo_value begin = hlo_keep(h, hlo_slice_dim(h, offsets, 0, 0, rows), 1);
  hlo_value end = hlo_keep(h, hlo_slice_dim(h, offsets, 0, 1, rows + 1), 1);
  hlo_value place = hlo_add(h, begin, hlo_iota(h, PJ_S32, 2, type.dims, 1));
  hlo_value inside = hlo_flatten(h, hlo_lt(h, place, end));
  place = hlo_select(h, inside, hlo_flatten(h, place), hlo_constant_int(h, PJ_S32, 0));
  hlo_value taken = hlo_take(h, values, place, 0);
  pj_return_reshaped(l, 0, hlo_select(h, over_rows(h, inside, taken), taken, padding));
}

// aten::_padded_dense_to_jagged_forward(dense, offsets, total_L): 0 where a row is longer than dense
static void lower_padded_to_jagged(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value dense = pj_tensor(l, 0), offsets;
  pj_type type = pj_result_type(l, 0);
  if (!pj_require(l, pj_present(l, 2), PJ_UNIMPLEMENTED,
                  "_padded_dense_to_jagged_forward needs total_L on this device: give the sum of the rows' lengths") ||
      !pj_require(l, dense.rank > 1, PJ_INVALID_ARGUMENT, "dense needs at least 2 dimensions, not %d", dense.rank) ||
      !read_offsets(l, &offsets))
    return;
  int64_t rows = dense.dims[0], length = dense.dims[1], total = type.dims[0];
  if (!pj_require(l, offsets.dims[0] == rows + 1, PJ_INVALID_ARGUMENT, "dense has %lld rows, and offsets cut %lld",
                  (long long)rows, (long long)offsets.dims[0] - 1))
    return;
  if (!hlo_size(dense) || !total) {
    pj_return_zeros(l, 0);
    return;
  }
  hlo_value item = hlo_iota(h, PJ_S32, 2, (int64_t[]){total, rows}, 0);
  hlo_value ends = hlo_keep(h, hlo_slice_dim(h, offsets, 0, 1, rows + 1), 0);
  hlo_value row = hlo_reduce_sum(h, hlo_convert(h, hlo_le(h, ends, item), PJ_S32), 1);  // total when beyond the last
  hlo_value place = hlo_sub(h, hlo_iota(h, PJ_S32, 1, &total, 0), hlo_take(h, offsets, row, 0));
  hlo_value most = hlo_constant_int(h, PJ_S32, length);
  hlo_value inside = hlo_and(h, hlo_lt(h, place, most), hlo_lt(h, row, hlo_constant_int(h, PJ_S32, rows)));
  hlo_value at = hlo_select(h, inside, hlo_add(h, hlo_mul(h, row, most), place), hlo_constant_int(h, PJ_S32, 0));
  int64_t flat[PJ_MAX_RANK] = {rows * length};
  for (int d = 2; d < dense.rank; ++d) flat[d - 1] = dense.dims[d];
  hlo_value taken = hlo_take(h, hlo_reshape(h, dense, dense.rank - 1, flat), at, 0);
  pj_return(l, 0, hlo_select(h, over_rows(h, inside, taken), taken, pj_full_like(h, taken, 0)));
}

PJ_LOWERINGS(jagged_lowerings) = {
    {.name = "aten::_jagged_to_padded_dense_forward", .lower = lower_jagged_to_padded},
    {.name = "aten::_padded_dense_to_jagged_forward", .lower = lower_padded_to_jagged},
    {0},
};
