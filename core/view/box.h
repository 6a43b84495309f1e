// Where a view lies in memory, as a box of a reshaped base: each dimension of the view is then a slice with a step of
// one dimension of the reshaped base.
#ifndef PJ_VIEW_BOX_H_
#define PJ_VIEW_BOX_H_

#include "view/view.h"

// The dimensions of a view that move through memory (size > 1 and stride > 0), largest stride first.
typedef struct view_runs {
  int moving_rank;
  int moving[PJ_MAX_RANK];  // view dimensions in that order
  // The same with neighbours joined that are one dimension in memory.
  int rank;
  int64_t sizes[PJ_MAX_RANK], strides[PJ_MAX_RANK];
  int64_t reach[PJ_MAX_RANK];  // the farthest that the smaller strides can move
} view_runs;

void view_runs_find(const pj_view *view, view_runs *out_runs);

// Whether each run steps over all that the smaller ones reach, so that no two of them interleave or overlap.
bool view_runs_are_nested(const view_runs *runs);

// dims: the reshaped base. Of dimension i the view takes size[i] elements from start[i] on, step[i] apart; the box has
// the elements of the runs in their order.
typedef struct view_box {
  int rank;
  int64_t dims[PJ_MAX_RANK], start[PJ_MAX_RANK], size[PJ_MAX_RANK], step[PJ_MAX_RANK];
} view_box;

typedef enum view_box_style {
  VIEW_BOX_NATURAL,     // keeps the base's own dimensions where it can, and takes steps in them
  VIEW_BOX_UNIT_STEPS,  // splits dimensions so that steps become 1 where they can
} view_box_style;

// The box of the runs at `offset` in a base of the same dtype, not empty. False when there is none.
bool view_box_find(const view_runs *runs, int64_t offset, const pj_type *base, view_box_style style, view_box *out_box);

bool view_box_is_whole(const view_box *box);
bool view_box_has_unit_steps(const view_box *box);

#endif
