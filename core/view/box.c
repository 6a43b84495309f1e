#include "view/box.h"

#include <string.h>

void view_runs_find(const pj_view *view, view_runs *out_runs) {
  view_runs runs = {0};
  for (int i = 0; i < view->rank; ++i) {
    if (view->sizes[i] == 1 || view->strides[i] == 0) continue;
    int at = runs.moving_rank++;
    for (; at > 0 && view->strides[runs.moving[at - 1]] < view->strides[i]; --at) runs.moving[at] = runs.moving[at - 1];
    runs.moving[at] = i;
  }
  for (int i = 0; i < runs.moving_rank; ++i) {
    int64_t size = view->sizes[runs.moving[i]], stride = view->strides[runs.moving[i]];
    if (runs.rank && runs.strides[runs.rank - 1] == size * stride) {
      runs.sizes[runs.rank - 1] *= size;
      runs.strides[runs.rank - 1] = stride;
    } else {
      runs.sizes[runs.rank] = size;
      runs.strides[runs.rank++] = stride;
    }
  }
  int64_t reach = 0;
  for (int i = runs.rank - 1; i >= 0; --i) {
    runs.reach[i] = reach;
    reach += (runs.sizes[i] - 1) * runs.strides[i];
  }
  *out_runs = runs;
}

bool view_runs_are_nested(const view_runs *runs) {
  for (int i = 0; i < runs->rank; ++i) {
    if (runs->strides[i] <= runs->reach[i]) return false;
  }
  return true;
}

static int64_t greatest_common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static bool box_push(view_box *box, int64_t dim, int64_t start, int64_t size, int64_t step) {
  if (box->rank == PJ_MAX_RANK) return false;
  box->dims[box->rank] = dim;
  box->start[box->rank] = start;
  box->size[box->rank] = size;
  box->step[box->rank++] = step;
  return true;
}

// The length of the blocks that a run steps through: a divisor of its stride and of the block it lies in, in which the
// rest of the view fits. The greatest common divisor fits whenever any does, here and for the smaller strides.
static int64_t block_length(int64_t stride, int64_t reach, int64_t offset, int64_t block, const pj_type *base,
                            view_box_style style) {
  int64_t common = greatest_common_divisor(stride, block), natural = pj_type_elements(base);
  for (int i = 0; i < base->rank && style == VIEW_BOX_NATURAL; ++i) {
    natural /= base->dims[i];
    if (common % natural == 0 && offset % natural + reach < natural) return natural;
  }
  return offset % common + reach < common ? common : 0;
}

// Splits the box where the base has a boundary between two of its dimensions, when the result is still a box:
// `row` elements of the base's inner dimensions, counted in the box dimension's own elements.
static void box_split(view_box *box, int at, int64_t row) {
  int64_t start = box->start[at], size = box->size[at], step = box->step[at];
  int64_t per_row = row / step;
  int64_t outer, inner;
  if (start % row + (size - 1) * step < row) {
    outer = 1;
    inner = size;
  } else if (row % step == 0 && start % row < step && size % per_row == 0) {
    outer = size / per_row;
    inner = per_row;
  } else {
    return;
  }
  if (!box_push(box, 0, 0, 0, 0)) return;
  size_t moved = sizeof(int64_t) * (size_t)(box->rank - 2 - at);
  memmove(&box->dims[at + 2], &box->dims[at + 1], moved);
  memmove(&box->start[at + 2], &box->start[at + 1], moved);
  memmove(&box->size[at + 2], &box->size[at + 1], moved);
  memmove(&box->step[at + 2], &box->step[at + 1], moved);
  box->dims[at + 1] = row;
  box->start[at + 1] = start % row;
  box->size[at + 1] = inner;
  box->step[at + 1] = step;
  box->dims[at] /= row;
  box->start[at] = start / row;
  box->size[at] = outer;
  box->step[at] = 1;
}

// Brings the base's own dimensions back into the box, as far as they allow.
static void box_split_at_base(view_box *box, const pj_type *base) {
  int64_t boundary = pj_type_elements(base);
  for (int i = 0; i + 1 < base->rank; ++i) {
    boundary /= base->dims[i];
    int64_t inner = 1;
    for (int at = box->rank - 1; at >= 0; --at) {
      int64_t outer = inner * box->dims[at];
      if (inner < boundary && boundary < outer && boundary % inner == 0 && outer % boundary == 0) {
        box_split(box, at, boundary / inner);
        break;
      }
      inner = outer;
    }
  }
}

bool view_box_find(const view_runs *runs, int64_t offset, const pj_type *base, view_box_style style,
                   view_box *out_box) {
  view_box box = {0};
  int64_t block = pj_type_elements(base);
  if (!block) return false;
  for (int i = 0; i < runs->rank; ++i) {
    int64_t length = block_length(runs->strides[i], runs->reach[i], offset, block, base, style);
    if (!length) return false;
    if (!box_push(&box, block / length, offset / length, runs->sizes[i], runs->strides[i] / length)) return false;
    offset %= length;
    block = length;
  }
  if (block > 1 && !box_push(&box, block, offset, 1, 1)) return false;
  box_split_at_base(&box, base);
  *out_box = box;
  return true;
}

bool view_box_is_whole(const view_box *box) {
  return !memcmp(box->size, box->dims, sizeof(int64_t) * (size_t)box->rank);
}

bool view_box_has_unit_steps(const view_box *box) {
  for (int i = 0; i < box->rank; ++i) {
    if (box->step[i] != 1) return false;
  }
  return true;
}
