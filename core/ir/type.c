#include "ir/type.h"

#include <string.h>

static bool countable(int rank, const int64_t *sizes, size_t item) {
  int64_t bytes = (int64_t)item;
  for (int i = 0; i < rank; ++i)
    if (__builtin_mul_overflow(bytes, sizes[i] ? sizes[i] : 1, &bytes)) return false;
  return true;
}

pj_status pj_type_check(const pj_type *type) {
  if (!pj_dtype_size(type->dtype)) return pj_error(PJ_INVALID_ARGUMENT, "%d is no element type", (int)type->dtype);
  if (type->rank < 0 || type->rank > PJ_MAX_RANK)
    return pj_error(PJ_INVALID_ARGUMENT, "tensors on this device have at most %d dimensions, not %d", PJ_MAX_RANK,
                    (int)type->rank);
  for (int i = 0; i < type->rank; ++i)
    if (type->dims[i] < 0)
      return pj_error(PJ_INVALID_ARGUMENT, "dimension %d has size %lld; it must not be negative", i,
                      (long long)type->dims[i]);
  if (!countable(type->rank, type->dims, pj_dtype_size(type->dtype)))
    return pj_error(PJ_INVALID_ARGUMENT, "an array has more bytes than can be counted");
  return NULL;
}

bool pj_type_equal(const pj_type *a, const pj_type *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; ++i)
    if (a->dims[i] != b->dims[i]) return false;
  return true;
}

bool pj_type_has_room_for(const pj_type *array, const pj_type *type) {
  bool fits = array->dtype == type->dtype && array->rank == type->rank;
  for (int d = 0; fits && d < type->rank; ++d) fits = array->dims[d] >= type->dims[d];
  return fits;
}

void pj_row_major_strides(int rank, const int64_t *dims, int64_t *out_strides) {
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    out_strides[i] = stride;
    stride *= dims[i] > 0 ? dims[i] : 1;
  }
}

int64_t pj_type_elements(const pj_type *type) {
  int64_t count = 1;
  for (int i = 0; i < type->rank; ++i) count *= type->dims[i];
  return count;
}

size_t pj_type_bytes(const pj_type *type) { return (size_t)pj_type_elements(type) * pj_dtype_size(type->dtype); }

static int64_t view_elements(const pj_view *view) {
  int64_t count = 1;
  for (int i = 0; i < view->rank; ++i) count *= view->sizes[i];
  return count;
}

// Whether the strides are those of a row-major array; the stride of a dimension of size 1 says nothing.
static bool is_row_major(const pj_view *view) {
  int64_t stride = 1;
  for (int i = view->rank - 1; i >= 0; --i) {
    if (view->sizes[i] != 1 && view->strides[i] != stride) return false;
    stride *= view->sizes[i];
  }
  return true;
}

bool pj_view_is_identity(const pj_view *view, const pj_type *base) {
  if (view->dtype != base->dtype || view->rank != base->rank || view->conj || view->neg) return false;
  if (memcmp(view->sizes, base->dims, sizeof(int64_t) * (size_t)view->rank)) return false;
  return view_elements(view) == 0 || (view->offset == 0 && is_row_major(view));
}

// The view's dimensions, largest stride first. A dimension of size 1 stays behind the one it follows in the view, so
// that a contiguous view keeps its order.
static void memory_order(const pj_view *view, int out_order[PJ_MAX_RANK]) {
  int64_t key[PJ_MAX_RANK];
  for (int i = 0; i < view->rank; ++i) {
    key[i] = view->sizes[i] != 1 ? view->strides[i] : i > 0 ? key[i - 1] : INT64_MAX;
    int at = i;
    for (; at > 0 && key[out_order[at - 1]] < key[i]; --at) out_order[at] = out_order[at - 1];
    out_order[at] = i;
  }
}

bool pj_view_covers(const pj_view *view, size_t nbytes) {
  int64_t count = view_elements(view);
  if ((size_t)count * pj_dtype_size(view->dtype) != nbytes) return false;
  if (count == 0) return true;
  if (view->offset) return false;
  pj_view sorted = *view;
  int order[PJ_MAX_RANK];
  memory_order(view, order);
  for (int i = 0; i < view->rank; ++i) {
    sorted.sizes[i] = view->sizes[order[i]];
    sorted.strides[i] = view->strides[order[i]];
  }
  return is_row_major(&sorted);
}

void pj_view_memory_order(const pj_view *view, pj_type *out_type, int out_permutation[PJ_MAX_RANK]) {
  memory_order(view, out_permutation);
  out_type->dtype = view->dtype;
  out_type->rank = view->rank;
  for (int i = 0; i < view->rank; ++i) out_type->dims[i] = view->sizes[out_permutation[i]];
}

pj_status pj_view_check(const pj_view *view, const pj_type *base) {
  size_t size = pj_dtype_size(view->dtype);
  if (!size || !pj_dtype_size(base->dtype)) {
    return pj_error(PJ_INVALID_ARGUMENT, "a view of dtype %s cannot be taken of a value of dtype %s",
                    pj_dtype_name(view->dtype), pj_dtype_name(base->dtype));
  }
  if (view->rank < 0 || view->rank > PJ_MAX_RANK) {
    return pj_error(PJ_INVALID_ARGUMENT, "a view has %d dimensions; the device takes at most %d", view->rank,
                    PJ_MAX_RANK);
  }
  if (view->conj && !pj_dtype_is_complex(view->dtype)) {
    return pj_error(PJ_INVALID_ARGUMENT, "a view of dtype %s cannot be conjugated", pj_dtype_name(view->dtype));
  }
  if (view->neg && view->dtype == PJ_PRED) return pj_error(PJ_INVALID_ARGUMENT, "a view of dtype i1 cannot be negated");
  if (view->offset < 0) {
    return pj_error(PJ_INVALID_ARGUMENT, "a view's offset is %lld; it must not be negative", (long long)view->offset);
  }
  bool overflow = false, empty = false;
  int64_t last = view->offset;  // the element with the highest address
  for (int i = 0; i < view->rank; ++i) {
    if (view->sizes[i] < 0 || view->strides[i] < 0) {
      return pj_error(PJ_INVALID_ARGUMENT,
                      "a view's dimension %d has size %lld and stride %lld; neither may be negative", i,
                      (long long)view->sizes[i], (long long)view->strides[i]);
    }
    int64_t reach = 0;
    empty |= view->sizes[i] == 0;
    overflow |= __builtin_mul_overflow(view->sizes[i] - 1, view->strides[i], &reach);
    overflow |= __builtin_add_overflow(last, reach, &last);
  }
  size_t bytes = pj_type_bytes(base);
  if (!empty && (overflow || (uint64_t)last >= bytes / size)) {
    return pj_error(PJ_INVALID_ARGUMENT, "a view reaches element %lld of dtype %s; the storage holds %zu bytes",
                    overflow ? (long long)INT64_MAX : (long long)last, pj_dtype_name(view->dtype), bytes);
  }
  if (!countable(view->rank, view->sizes, size))
    return pj_error(PJ_INVALID_ARGUMENT, "a view has more bytes than can be counted");
  return NULL;
}

// ---- overlap --------------------------------------------------------------------------------------------------------

// The most partial sums that the search below tries; a view that needs more counts as overlapping.
enum { OVERLAP_BUDGET = 1 << 20 };

typedef struct overlap_search {
  int rank;
  int64_t sizes[PJ_MAX_RANK], strides[PJ_MAX_RANK];
  int64_t reach[PJ_MAX_RANK + 1];  // reach[i]: the farthest that dimensions i and up can move
  int budget;
} overlap_search;

static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static int64_t ceil_divide(int64_t a, int64_t b) { return a / b + (a % b > 0); }

// Two elements share memory when their index differences d, not all zero, give sum(d[i] * strides[i]) == 0. Tries them
// from the largest stride down, and only those that the smaller strides can still bring back to zero.
static bool can_cancel(overlap_search *search, int dim, int64_t sum, bool moved) {
  if (--search->budget < 0) return true;
  if (dim == search->rank) return moved && sum == 0;
  int64_t stride = search->strides[dim], most = search->sizes[dim] - 1, rest = search->reach[dim + 1];
  // The differences d for which |sum + d * stride| <= rest; of the first that is not zero only the positive ones, since
  // the negative ones are their mirror image.
  int64_t low = moved ? ceil_divide(-rest - sum, stride) : 0, high = floor_divide(rest - sum, stride);
  if (low < -most) low = -most;
  if (high > most) high = most;
  for (int64_t d = low; d <= high; ++d) {
    if (can_cancel(search, dim + 1, sum + d * stride, moved || d)) return true;
  }
  return false;
}

bool pj_view_overlaps_itself(const pj_view *view) {
  if (view_elements(view) == 0) return false;
  int order[PJ_MAX_RANK];
  memory_order(view, order);
  overlap_search search = {.budget = OVERLAP_BUDGET};
  for (int i = 0; i < view->rank; ++i) {
    int64_t size = view->sizes[order[i]], stride = view->strides[order[i]];
    if (size == 1) continue;
    if (stride == 0) return true;
    search.sizes[search.rank] = size;
    search.strides[search.rank++] = stride;
  }
  bool nested = true;  // each stride steps over all that the smaller ones reach
  for (int i = search.rank - 1; i >= 0; --i) {
    nested &= search.strides[i] > search.reach[i + 1];
    search.reach[i] = search.reach[i + 1] + (search.sizes[i] - 1) * search.strides[i];
  }
  return !nested && can_cancel(&search, 0, 0, false);
}
