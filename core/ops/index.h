// Indices as PyTorch counts them, and reads and writes at indexed positions.
#ifndef PJ_OPS_INDEX_H_
#define PJ_OPS_INDEX_H_

#include "ops/lowering.h"

// Indices into a dimension of `size`, counted from the start, in s32 where `size` allows (TPUs emulate 64-bit
// integers). Negative ones count from the end; those outside [-size, size) are recorded as this program's index error.
hlo_value pj_index_check(pj_lowering *l, hlo_value indices, int64_t size);

// The same for ops that refuse negative indices (gather, scatter, index_select, embedding): outside [0, size) is an
// error.
hlo_value pj_index_check_from_zero(pj_lowering *l, hlo_value indices, int64_t size);

// Positions in a tensor: each dimension is either indexed (valid indices[d], checked, all of one shape) or whole.
typedef struct pj_positions {
  int rank;
  bool indexed[PJ_MAX_RANK];
  hlo_value indices[PJ_MAX_RANK];
} pj_positions;

// A view of a 0-d tensor as one of a single element: the index ops accept both.
void pj_view_at_least_1d(pj_view *view);

// Positions with every dimension of a tensor of `rank` whole.
pj_positions pj_positions_all(int rank);

// The index list of aten::index and aten::index_put (argument `list`, indexing a tensor of these sizes): None and
// missing dimensions are whole; negative indices wrap; the index tensors are broadcast against each other.
pj_positions pj_positions_of_list(pj_lowering *l, int list, int rank, const int64_t *sizes);

// Positions index[i0, i1, ...] along `dim` and i0, i1, ... elsewhere: what gather and scatter address. Every dimension
// is indexed, with the shape of `index` (of checked indices).
pj_positions pj_positions_along(pj_lowering *l, hlo_value index, int dim);

// Where PyTorch puts the indices' dimensions in x[positions]: before the whole dimensions, or in the place of the
// indexed ones when these are adjacent. Gives the number of whole dimensions in front of them.
int pj_positions_front(const pj_positions *at);

// x[positions]: whole dimensions in order, the indices' dimensions where pj_positions_front says.
hlo_value pj_positions_read(pj_lowering *l, hlo_value x, const pj_positions *at);

// torch.take_along_dim: x[i0, ..., index[i0, i1, ...], ...] with the (checked) index in place `dim`; index is no larger
// than x in the other dimensions.
hlo_value pj_take_along(pj_lowering *l, hlo_value x, hlo_value index, int dim);

// Combines `updates` into the positions of what is written by `op` and gives the new base. `updates` has the
// dimensions of the indices first, then the whole ones in order; a dimension of 1 stretches. What is written is all
// that it costs when the base is donated. Order of repeated positions: any.
hlo_value pj_positions_write(pj_lowering *l, hlo_op op, const pj_target *target, const pj_positions *at,
                             hlo_value updates);

// For every element of a mask, in flat order, how many true ones come before it: 1-d, s32.
hlo_value pj_true_before(hlo *h, hlo_value mask);

// The elements of `values` (1-d) where `kept` (1-d) is true, packed to the front of `size` elements; the rest is `fill`
// (0-d).
hlo_value pj_pack(pj_lowering *l, hlo_value values, hlo_value kept, int64_t size, hlo_value fill);

#endif
