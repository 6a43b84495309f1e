// Jagged tensors: sequences of rows, one after the other; `offsets` says where each begins, and where the last ends.
#include "ops/index.h"

static hlo_value s32(hlo *h, int64_t value) { return hlo_constant_int(h, PJ_S32, value); }

static bool offsets_of(pj_lowering *l, int argument, hlo_value *out_offsets) {
  bool one = pj_list_count(l, argument) == 1;
  if (!pj_require(l, one, PJ_INVALID_ARGUMENT, "only one dimension of a tensor can be jagged, not %d",
                  pj_list_count(l, argument)))
    return false;
  *out_offsets = hlo_convert(l->h, pj_list_tensor(l, argument, 0), PJ_S32);
  return pj_require(l, out_offsets->rank == 1 && out_offsets->dims[0] > 1, PJ_INVALID_ARGUMENT,
                    "the offsets of a jagged tensor must be a vector of at least two numbers");
}

// aten::_jagged_to_padded_dense_forward(values, offsets, max_lengths, padding_value): what is longer is cut
static void lower_to_padded(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value values = pj_tensor(l, 0), offsets;
  if (!offsets_of(l, 1, &offsets)) return;
  pj_type type = pj_result_type(l, 0);
  hlo_value padding = hlo_broadcast_to(h, pj_number(l, 3, type.dtype), type.rank, type.dims);
  if (!values.dims[0] || !type.dims[1]) return pj_return(l, 0, padding);
  int64_t batch = type.dims[0];
  hlo_value begin = hlo_keep(h, hlo_slice_dim(h, offsets, 0, 0, batch), 1);
  hlo_value row = hlo_add(h, begin, hlo_iota(h, PJ_S32, 2, type.dims, 1));
  hlo_value inside = hlo_lt(h, row, hlo_keep(h, hlo_slice_dim(h, offsets, 0, 1, batch + 1), 1));
  hlo_value taken = hlo_take(h, values, hlo_clamp(h, s32(h, 0), row, s32(h, values.dims[0] - 1)), 0);
  inside = hlo_broadcast_in_dim(h, inside, type.rank, type.dims, (int[]){0, 1});
  pj_return(l, 0, hlo_select(h, inside, taken, padding));
}

// aten::_padded_dense_to_jagged_forward(dense, offsets, total_L): a sequence that is longer than the padded ones is an index
// error
static void lower_from_padded(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value dense = pj_tensor(l, 0), offsets;
  if (!pj_require(l, dense.rank > 1, PJ_INVALID_ARGUMENT, "dense needs at least 2 dimensions, not %d", dense.rank) ||
      !offsets_of(l, 1, &offsets) ||
      !pj_require(l, offsets.dims[0] == dense.dims[0] + 1, PJ_INVALID_ARGUMENT, "dense has %lld rows, and offsets cut %lld",
                  (long long)dense.dims[0], (long long)offsets.dims[0] - 1))
    return;
  pj_type type = pj_result_type(l, 0);
  int64_t total = type.dims[0], batch = dense.dims[0], longest = dense.dims[1];
  if (pj_type_elements(&type) == 0) return pj_return(l, 0, hlo_full(h, type.dtype, type.rank, type.dims, 0));
  if (!pj_require(l, longest > 0, PJ_INVALID_ARGUMENT, "a padded tensor without columns has no rows for a jagged one"))
    return;
  // The sequence of a row is how many sequences after the first have begun: a 1 where each does, summed up.
  hlo_value begun = hlo_full(h, PJ_S32, 1, &total, 0);
  pj_target whole = pj_target_whole(begun);
  hlo_value inner = hlo_slice_dim(h, offsets, 0, 1, batch);
  // A sequence that no row follows marks nothing.
  hlo_value follows = hlo_lt(h, inner, s32(h, total)), marks = hlo_convert(h, follows, PJ_S32);
  pj_positions at = {.rank = 1, .indexed = {true}, .indices = {hlo_select(h, follows, inner, s32(h, 0))}};
  if (batch > 1) begun = pj_positions_write(l, HLO_ADD, &whole, &at, marks);
  hlo_value sequence = hlo_scan(h, HLO_ADD, begun, 0);
  hlo_value position = hlo_sub(h, hlo_iota(h, PJ_S32, 1, &total, 0), hlo_take(h, offsets, sequence, 0));
  position = pj_index_check_from_zero(l, position, longest);
  hlo_value place = hlo_add(h, hlo_mul(h, sequence, s32(h, longest)), position);
  int64_t dims[PJ_MAX_RANK] = {batch * longest};
  for (int d = 2; d < dense.rank; ++d) dims[d - 1] = dense.dims[d];
  pj_return(l, 0, hlo_take(h, hlo_reshape(h, dense, dense.rank - 1, dims), place, 0));
}

PJ_LOWERINGS(jagged_lowerings) = {
    {"aten::_jagged_to_padded_dense_forward", lower_to_padded},
    {"aten::_padded_dense_to_jagged_forward", lower_from_padded},
    {0},
};
