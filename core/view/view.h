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

// The view's elements, dims = view sizes, dtype = view dtype; conj and neg are applied.
hlo_value pj_view_read(hlo *h, hlo_value base, const pj_view *view);

// The new base after source (dims = view sizes, dtype = view dtype) was written through the view. Costs what is written
// when the base is donated: dynamic_update_slice where the view is a box of the base, else a scatter; where a view
// steps over a few elements, it is merged with them. Never a pass over the base, except when the dtypes differ (see
// pj_view_rebase). INVALID_ARGUMENT when the view overlaps itself.
hlo_value pj_view_write(hlo *h, hlo_value base, const pj_view *view, hlo_value source);

// The type to which a base must be brought once, so that writes through `view` cost what they write: the view's dtype
// and the dims in which it is written. Returns false when `base` is already such a type (it has the dtype and, unless
// it is flat and the view is not, dims of its own), and when its bytes are no whole number of the view's elements.
bool pj_view_rebase(const pj_view *view, const pj_type *base, pj_type *out_type);

// The base's bytes as another type of equal size in bytes (bitcast and reshape).
hlo_value pj_view_as_type(hlo *h, hlo_value base, const pj_type *type);

#endif
