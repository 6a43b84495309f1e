// Writing through a view: which kind of write, and what goes before and after it.
#include <string.h>

#include "view/program.h"

// A box with steps is merged with what lies between its elements when at most this many elements are passed for each
// one written; else its rows or elements are scattered one by one. A merge keeps a TPU's layout of the base, where a
// scatter that steps in the minor dimension makes it rearrange the whole base (libtpu 0.0.52 for v6e: 1.9 against
// 258 MiB accessed to write x[5:21, ::2] into 64 MiB).
enum { MERGE_SPARSITY = 8 };

static bool is_worth_merging(const view_box *box) {
  double written = 1, region = 1;
  for (int i = 0; i < box->rank; ++i) {
    written *= (double)box->size[i];
    region *= (double)((box->size[i] - 1) * box->step[i] + 1);
  }
  return region <= MERGE_SPARSITY * written;
}

// One window for each place of the dimensions with steps, over all the elements of the others. `out_order`: the box's
// dimensions, those with steps first.
static void windows_of_box(const view_box *box, view_windows *out_windows, int out_order[PJ_MAX_RANK]) {
  view_windows windows = {.rank = box->rank, .sorted = true};
  memcpy(windows.dims, box->dims, sizeof windows.dims);
  int64_t stride = 1;
  for (int i = box->rank - 1; i >= 0; --i) {
    windows.size[i] = box->step[i] == 1 ? box->size[i] : 1;
    windows.offset += box->start[i] * stride;
    windows.strides[i] = box->step[i] * stride;
    stride *= box->dims[i];
  }
  int ordered = 0;
  for (int i = 0; i < box->rank; ++i) {
    if (box->step[i] == 1) continue;
    windows.index_sizes[windows.index_rank] = box->size[i];
    windows.strides[windows.index_rank++] = windows.strides[i];
    out_order[ordered++] = i;
  }
  for (int i = 0; i < box->rank; ++i) {
    if (box->step[i] == 1) out_order[ordered++] = i;
  }
  *out_windows = windows;
}

// The kind of write into `typed`, a base of the view's dtype, and the box that is written; rank 0 with a scatter of a
// view that is no box. Other dimensions than the base's own are the second choice: where they change the minor
// dimension, a TPU rearranges the whole base for them. pj_view_rebase does that once for a flat base.
static view_write_kind find_kind(const view_runs *runs, int64_t offset, const pj_type *typed, view_box *out_box) {
  for (view_box_style style = VIEW_BOX_NATURAL; style <= VIEW_BOX_UNIT_STEPS; ++style) {
    if (!view_box_find(runs, offset, typed, style, out_box)) continue;
    if (view_box_is_whole(out_box)) return VIEW_REPLACE;
    if (view_box_has_unit_steps(out_box)) return VIEW_UPDATE;
    if (is_worth_merging(out_box)) return VIEW_MERGE;
    bool own_dims = typed->rank > 1 && out_box->dims[out_box->rank - 1] == typed->dims[typed->rank - 1];
    if (own_dims && out_box->rank < PJ_MAX_RANK) return VIEW_SCATTER;  // a scatter needs one dimension more
  }
  out_box->rank = 0;
  return VIEW_SCATTER;
}

void view_write_program(const pj_type *base, const pj_view *view, view_write *out_write) {
  view_write *write = out_write;
  pj_type source = {.dtype = view->dtype, .rank = view->rank};
  memcpy(source.dims, view->sizes, sizeof source.dims);
  view_program_start(&write->source, &source);
  view_program_start(&write->base, base);
  view_program_start(&write->result, base);
  write->head = 0;
  write->kind = VIEW_KEEP;
  if (pj_type_elements(&source) == 0) return;

  pj_type typed = view_base_type(base, view->dtype);
  view_runs runs;
  view_runs_find(view, &runs);
  write->kind = find_kind(&runs, view->offset, &typed, &write->box);
  bool boxed = write->kind != VIEW_SCATTER || write->box.rank > 0;
  int order[PJ_MAX_RANK];  // of a scatter's box
  if (!boxed) view_windows_of_runs(&runs, view->offset, &typed, &write->windows);
  else if (write->kind == VIEW_SCATTER) windows_of_box(&write->box, &write->windows, order);
  view_program_retype(&write->base, &typed);
  view_program_reshape(&write->base, boxed ? write->box.rank : write->windows.rank,
                       boxed ? write->box.dims : write->windows.dims);
  pj_type target = write->base.out;

  // From the order of the view to the order of memory.
  int64_t sizes[PJ_MAX_RANK];
  int permutation[PJ_MAX_RANK], rank = 0;
  view_program_bits(&write->source, view);
  for (int i = 0; i < view->rank; ++i) {
    for (int j = 0; j < runs.moving_rank; ++j) {
      if (runs.moving[j] != i) continue;
      permutation[j] = rank;
      sizes[rank++] = view->sizes[i];
    }
  }
  view_program_reshape(&write->source, rank, sizes);
  view_program_transpose(&write->source, permutation);
  if (boxed) view_program_reshape(&write->source, write->box.rank, write->box.size);
  if (write->kind == VIEW_SCATTER) {
    if (boxed) view_program_transpose(&write->source, order);
    int64_t dims[PJ_MAX_RANK] = {view_windows_count(&write->windows)};
    memcpy(dims + 1, write->windows.size, sizeof(int64_t) * (size_t)write->windows.rank);
    view_program_reshape(&write->source, write->windows.rank + 1, dims);
  }

  view_program_start(&write->result, &target);
  size_t bytes = pj_type_bytes(&target);
  if (bytes == pj_type_bytes(base)) {
    view_program_retype(&write->result, base);
  } else {
    write->head = (int64_t)(bytes / pj_dtype_size(base->dtype));
    pj_type head = {.dtype = base->dtype, .rank = 1, .dims = {write->head}};
    view_program_retype(&write->result, &head);
  }
}

bool pj_view_rebase(const pj_view *view, const pj_type *base, pj_type *out_type) {
  int64_t elements = 1;
  for (int i = 0; i < view->rank; ++i) elements *= view->sizes[i];
  pj_type typed = view_base_type(base, view->dtype);
  if (elements == 0 || pj_type_bytes(&typed) != pj_type_bytes(base)) return false;
  view_runs runs;
  view_box box;
  view_runs_find(view, &runs);
  find_kind(&runs, view->offset, &typed, &box);
  *out_type = typed;
  if (box.rank) {
    out_type->rank = box.rank;
    memcpy(out_type->dims, box.dims, sizeof out_type->dims);
  }
  // A base that has dimensions got them from the tensor that made it, and keeps them: bringing it to the box's costs
  // nothing where the minor dimension stays, and changing it back and forth would cost more than the write.
  if (base->dtype == view->dtype && (base->rank > 1 || out_type->rank <= 1)) return false;
  // Bytes of s64[1, 8] become u8[64], in which the view may be a box of more dimensions.
  pj_type better;
  if (pj_view_rebase(view, out_type, &better)) *out_type = better;
  return true;
}
