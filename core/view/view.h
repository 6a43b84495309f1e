// Strided views over dense values: how PyTorch's (dtype, sizes, strides, offset) is read from, and written into, the
// n-d array that a storage holds.
//
// A view is first compiled to a short program of array steps (bitcast, reshape, slice, pad, transpose, broadcast; as a
// last resort one gather), and that program is then either emitted as StableHLO or, in tests, run on host memory by a
// reference interpreter. Writing is the inverse.
#ifndef PJ_VIEW_VIEW_H_
#define PJ_VIEW_VIEW_H_

#include "hlo/hlo.h"
#include "ir/type.h"

// Whether this view of the base and the one that starts at offset 0 can be read and written by one program, which is
// told at run time where the view starts.
bool pj_view_moves(const pj_view *view, const pj_type *base);

// For `start` below: the view starts at its offset.
#define PJ_VIEW_AT_OFFSET ((hlo_value){.id = -1})

// The view's elements, dims = view sizes, dtype = view dtype; conj and neg are applied. `start`: the view's first
// element, 0-d of an integer type, for a view at offset 0 for which pj_view_moves; else PJ_VIEW_AT_OFFSET.
hlo_value pj_view_read(hlo *h, hlo_value base, const pj_view *view, hlo_value start);

// The new base after source (dims = view sizes, dtype = view dtype) was written through the view. Costs what is written
// when the base is donated: dynamic_update_slice where the view is a box of the base, else a scatter; where a view
// steps over a few elements, it is merged with them. Never a pass over the base, except when the dtypes differ (see
// pj_view_rebase). INVALID_ARGUMENT when the view overlaps itself. `start`: as for pj_view_read.
hlo_value pj_view_write(hlo *h, hlo_value base, const pj_view *view, hlo_value start, hlo_value source);

// Where element `element` (0-d) of a row-major array lies in each of its dimensions: 0-d, all s32 where that holds every
// element's number, else s64.
void pj_view_place(hlo *h, hlo_value element, int rank, const int64_t *dims, hlo_value *out_place);

// The type to which a base must be brought once, so that writes through `view` cost what they write: the view's dtype
// and the dims in which it is written. Returns false when `base` is already such a type (it has the dtype and, unless
// it is flat and the view is not, dims of its own), and when its bytes are no whole number of the view's elements.
bool pj_view_rebase(const pj_view *view, const pj_type *base, pj_type *out_type);

// The base's bytes as another type of equal size in bytes (bitcast and reshape).
hlo_value pj_view_as_type(hlo *h, hlo_value base, const pj_type *type);

#endif
