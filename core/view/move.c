// Views that differ only in where they start, as one program that is told the start when it runs.
#include <string.h>

#include "view/box.h"
#include "view/program.h"

static bool same_shape(const view_box *a, const view_box *b) {
  size_t bytes = sizeof(int64_t) * (size_t)a->rank;
  return a->rank == b->rank && !memcmp(a->dims, b->dims, bytes) && !memcmp(a->size, b->size, bytes) &&
         !memcmp(a->step, b->step, bytes);
}

// Whether `offset` elements further on, the farthest element is still in the same rows of every dimension of the array.
static bool stays_in_rows(const pj_type *array, int64_t offset, int64_t reach) {
  for (int d = array->rank - 1; d >= 0; --d) {
    if (offset % array->dims[d] + reach % array->dims[d] >= array->dims[d]) return false;
    offset /= array->dims[d];
    reach /= array->dims[d];
  }
  return true;
}

bool pj_view_moves(const pj_view *view, const pj_type *base) {
  pj_type typed = view_base_type(base, view->dtype);
  for (int i = 0; i < view->rank; ++i)
    if (!view->sizes[i]) return false;
  if (pj_type_bytes(&typed) != pj_type_bytes(base)) return false;
  view_runs runs;
  view_runs_find(view, &runs);
  bool any = false;
  for (view_box_style style = VIEW_BOX_NATURAL; style <= VIEW_BOX_UNIT_STEPS; ++style) {
    view_box here, first;
    bool found = view_box_find(&runs, view->offset, &typed, style, &here);
    if (found != view_box_find(&runs, 0, &typed, style, &first) || (found && !same_shape(&here, &first))) return false;
    any |= found;
  }
  int64_t reach = 0;
  for (int i = 0; i < runs.rank; ++i) reach += (runs.sizes[i] - 1) * runs.strides[i];
  return any && stays_in_rows(&typed, view->offset, reach);
}
