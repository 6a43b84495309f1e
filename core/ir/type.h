// What a dense array is, what a strided view of it is, and what can be said of a view from its numbers alone.
#ifndef PJ_IR_TYPE_H_
#define PJ_IR_TYPE_H_

#include "pj/dtype.h"

// Element type and dimensions of a dense array (row-major).
typedef struct pj_type {
  pj_dtype dtype;
  int32_t rank;
  int64_t dims[PJ_MAX_RANK];
} pj_type;

// Strides and offset count elements of `dtype`, as in PyTorch. Strides may be 0 or (after flip-like as_strided) repeat
// elements; they are never negative in PyTorch.
typedef struct pj_view {
  pj_dtype dtype;
  int32_t rank;
  int64_t sizes[PJ_MAX_RANK];
  int64_t strides[PJ_MAX_RANK];
  int64_t offset;
  bool conj;  // PyTorch's lazy conjugate and negative bits
  bool neg;
} pj_view;

// INVALID_ARGUMENT when it is no array that can be: an unknown dtype, a rank outside [0, PJ_MAX_RANK], a negative size, or
// more bytes than int64 counts (also when each size 0 were 1, so that no product of sizes overflows).
pj_status pj_type_check(const pj_type *type);

// The same dtype and the same dims.
bool pj_type_equal(const pj_type *a, const pj_type *b);

// The same dtype and rank, and no dim less: the first elements of each dim of `array` are a `type`, the rest is room.
bool pj_type_has_room_for(const pj_type *array, const pj_type *type);

// Strides in elements of a dense row-major array with these dims; a size of 0 counts as 1, as in PyTorch.
void pj_row_major_strides(int rank, const int64_t *dims, int64_t *out_strides);

int64_t pj_type_elements(const pj_type *type);
size_t pj_type_bytes(const pj_type *type);

// Whether the view is the whole base, in its order: same dtype, sizes equal to dims, row-major strides, offset 0, no bits.
bool pj_view_is_identity(const pj_view *view, const pj_type *base);

// Whether the view's elements are exactly the bytes [0, nbytes), each once: then a write replaces the whole value.
bool pj_view_covers(const pj_view *view, size_t nbytes);

// Whether two elements of the view share memory (a write through it would be ambiguous). Decided exactly for the
// shapes PyTorch makes; same rule as at::has_internal_overlap's "yes".
bool pj_view_overlaps_itself(const pj_view *view);

// INVALID_ARGUMENT when the view reaches outside the base's bytes, when its dtype cannot be read from it, or when it is no
// array that can be (pj_type_check).
pj_status pj_view_check(const pj_view *view, const pj_type *base);

// The array type that a storage gets when it is wholly written through `view` (dims in memory order, largest stride
// first), and `out_permutation`: value dim i is view dim out_permutation[i]. Only for views for which pj_view_covers.
void pj_view_memory_order(const pj_view *view, pj_type *out_type, int out_permutation[PJ_MAX_RANK]);

#endif
