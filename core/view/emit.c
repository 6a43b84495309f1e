// View programs as StableHLO.
#include <string.h>

#include "view/program.h"

static pj_type type_of_value(hlo_value value) {
  pj_type type = {.dtype = value.dtype, .rank = value.rank};
  memcpy(type.dims, value.dims, sizeof type.dims);
  return type;
}

static int64_t elements_of(int rank, const int64_t *dims) {
  int64_t elements = 1;
  for (int d = 0; d < rank; ++d) elements *= dims[d];
  return elements;
}

static pj_dtype place_dtype(int64_t elements) { return elements <= INT32_MAX ? PJ_S32 : PJ_S64; }

void pj_view_place(hlo *h, hlo_value element, int rank, const int64_t *dims, hlo_value *out_place) {
  int64_t row = elements_of(rank, dims);
  pj_dtype dtype = place_dtype(row);
  element = hlo_convert(h, element, dtype);
  for (int d = 0; d < rank; ++d) {
    row /= dims[d];
    out_place[d] = row == 1 ? element : hlo_div(h, element, hlo_constant_int(h, dtype, row));
    if (d < rank - 1) element = hlo_rem(h, element, hlo_constant_int(h, dtype, row));
  }
}

// Where a box starts: its own start, or that of the view at run time. Where it spans a dimension it starts at 0.
static void emit_box_start(hlo *h, int rank, const int64_t *dims, const int64_t *start, const int64_t *span,
                           hlo_value moved, hlo_value *out_start) {
  if (moved.id >= 0) pj_view_place(h, moved, rank, dims, out_start);
  pj_dtype dtype = moved.id >= 0 ? place_dtype(elements_of(rank, dims)) : PJ_S64;
  for (int d = 0; d < rank; ++d)
    if (moved.id < 0 || span[d] == dims[d]) out_start[d] = hlo_constant_int(h, dtype, start[d]);
}

// The start of each window in each dimension of the array: count x rank. Computed from iotas, so that no table of
// indices becomes a constant of the program.
static hlo_value emit_starts(hlo *h, const view_windows *windows, hlo_value moved) {
  int64_t elements = elements_of(windows->rank, windows->dims), count = view_windows_count(windows);
  pj_dtype dtype = place_dtype(elements);
  hlo_value start = hlo_constant_int(h, dtype, windows->offset);
  if (moved.id >= 0) start = hlo_add(h, start, hlo_convert(h, moved, dtype));
  start = hlo_broadcast_to(h, start, windows->index_rank, windows->index_sizes);
  for (int j = 0; j < windows->index_rank; ++j) {
    hlo_value place = hlo_iota(h, dtype, windows->index_rank, windows->index_sizes, j);
    start = hlo_add(h, start, hlo_mul(h, place, hlo_constant_int(h, dtype, windows->strides[j])));
  }
  start = hlo_reshape(h, start, 2, (int64_t[]){count, 1});
  hlo_value columns[PJ_MAX_RANK];
  for (int d = 0; d < windows->rank; ++d) {
    elements /= windows->dims[d];
    columns[d] = hlo_div(h, start, hlo_constant_int(h, dtype, elements));
    start = hlo_rem(h, start, hlo_constant_int(h, dtype, elements));
  }
  return hlo_concatenate(h, columns, windows->rank, 1);
}

static hlo_value emit_gather(hlo *h, hlo_value x, const view_windows *windows) {  // gathered views do not move
  hlo_gather_spec spec = {.offset_count = windows->rank, .start_count = windows->rank, .index_vector_dim = 1,
                          .sorted = windows->sorted};
  for (int d = 0; d < windows->rank; ++d) {
    spec.offset_dims[d] = d + 1;
    spec.start_index_map[d] = d;
    spec.slice_sizes[d] = windows->size[d];
  }
  return hlo_gather(h, x, emit_starts(h, windows, PJ_VIEW_AT_OFFSET), &spec);
}

static hlo_value emit_scatter(hlo *h, hlo_value target, const view_windows *windows, hlo_value moved, hlo_value source) {
  hlo_scatter_spec spec = {.update_window_count = windows->rank, .scatter_count = windows->rank, .index_vector_dim = 1,
                           .sorted = windows->sorted, .unique = true};
  for (int d = 0; d < windows->rank; ++d) {
    spec.update_window[d] = d + 1;
    spec.scatter_dims[d] = d;
  }
  hlo_value starts = emit_starts(h, windows, moved);
  return hlo_written(h, target, source, hlo_scatter(h, HLO_SECOND, target, starts, source, &spec));
}

static hlo_value emit_moving_slice(hlo *h, hlo_value x, const view_step *step, hlo_value moved) {
  hlo_value start[PJ_MAX_RANK];
  int64_t span[PJ_MAX_RANK], none[PJ_MAX_RANK] = {0};
  for (int d = 0; d < x.rank; ++d) span[d] = step->slice.limit[d] - step->slice.start[d];
  emit_box_start(h, x.rank, x.dims, step->slice.start, span, moved, start);
  return hlo_slice(h, hlo_dynamic_slice(h, x, start, span), none, span, step->slice.step);
}

static hlo_value emit_step(hlo *h, hlo_value x, const view_step *step, hlo_value moved) {
  const pj_type *type = &step->type;
  int64_t low[PJ_MAX_RANK] = {0}, high[PJ_MAX_RANK] = {0};
  switch (step->kind) {
    case VIEW_ZEROS: return hlo_full(h, type->dtype, type->rank, type->dims, 0);
    case VIEW_BITCAST: return hlo_bitcast(h, x, type->dtype);
    case VIEW_RESHAPE: return hlo_reshape(h, x, type->rank, type->dims);
    case VIEW_SLICE:
      if (step->slice.moves) return emit_moving_slice(h, x, step, moved);
      return hlo_slice(h, x, step->slice.start, step->slice.limit, step->slice.step);
    case VIEW_PAD:
      low[x.rank - 1] = step->pad.low;
      high[x.rank - 1] = step->pad.high;
      return hlo_pad(h, x, hlo_constant_int(h, x.dtype, 0), low, high, NULL);
    case VIEW_TRANSPOSE: return hlo_transpose(h, x, step->permutation);
    case VIEW_BROADCAST: return hlo_broadcast_in_dim(h, x, type->rank, type->dims, step->result_dims);
    case VIEW_GATHER: return emit_gather(h, x, &step->windows);
    case VIEW_CONJ: return hlo_conj(h, x);
    case VIEW_NEG: return hlo_neg(h, x);
  }
  return hlo_fail(h, PJ_INTERNAL, "a view program has a step of kind %d", (int)step->kind);
}

static hlo_value emit_program(hlo *h, hlo_value x, const view_program *program, hlo_value moved) {
  for (int i = 0; i < program->count; ++i) x = emit_step(h, x, &program->steps[i], moved);
  return x;
}

static hlo_value emit_update(hlo *h, hlo_value target, hlo_value update, const int64_t *start, hlo_value moved) {
  hlo_value starts[PJ_MAX_RANK];
  emit_box_start(h, target.rank, target.dims, start, update.dims, moved, starts);
  return hlo_written(h, target, update, hlo_dynamic_update_slice(h, target, update, starts));
}

// Where the steps of the box lead, in the region that it spans. One row of marks for each dimension with steps.
static hlo_value emit_reached(hlo *h, const view_box *box, const int64_t *span) {
  hlo_value reached = {.rank = 0};
  bool first = true;
  for (int d = 0; d < box->rank; ++d) {
    if (box->step[d] == 1) continue;
    pj_dtype dtype = span[d] <= INT32_MAX ? PJ_S32 : PJ_S64;
    hlo_value rest = hlo_rem(h, hlo_iota(h, dtype, 1, &span[d], 0), hlo_constant_int(h, dtype, box->step[d]));
    hlo_value marks = hlo_eq(h, rest, hlo_constant_int(h, dtype, 0));
    marks = hlo_broadcast_in_dim(h, marks, box->rank, span, &d);
    reached = first ? marks : hlo_and(h, reached, marks);
    first = false;
  }
  return reached;
}

// The region that the box spans, with the source in the places that the steps reach.
static hlo_value emit_merge(hlo *h, hlo_value target, const view_box *box, hlo_value moved, hlo_value source) {
  int64_t interior[PJ_MAX_RANK], span[PJ_MAX_RANK], none[PJ_MAX_RANK] = {0};
  hlo_value start[PJ_MAX_RANK];
  for (int d = 0; d < box->rank; ++d) {
    span[d] = (box->size[d] - 1) * box->step[d] + 1;
    interior[d] = box->step[d] - 1;
  }
  hlo_value spread = hlo_pad(h, source, hlo_constant_int(h, source.dtype, 0), none, none, interior);
  emit_box_start(h, box->rank, box->dims, box->start, span, moved, start);
  hlo_value between = hlo_dynamic_slice(h, target, start, span);
  hlo_value merged = hlo_select(h, emit_reached(h, box, span), spread, between);
  merged = hlo_small_update(h, target, merged);
  return hlo_written(h, target, merged, hlo_dynamic_update_slice(h, target, merged, start));
}

static hlo_value emit_write(hlo *h, hlo_value target, const view_write *write, hlo_value moved, hlo_value source) {
  switch (write->kind) {
    case VIEW_KEEP: return target;
    case VIEW_REPLACE: return source;
    case VIEW_UPDATE: return emit_update(h, target, source, write->box.start, moved);
    case VIEW_MERGE: return emit_merge(h, target, &write->box, moved, source);
    case VIEW_SCATTER: return emit_scatter(h, target, &write->windows, moved, source);
  }
  return hlo_fail(h, PJ_INTERNAL, "a view has a write of kind %d", (int)write->kind);
}

static bool check_value(hlo *h, hlo_value base, const pj_view *view, hlo_value start) {
  if (hlo_failed(h)) return false;
  pj_type type = type_of_value(base);
  pj_status status = pj_view_check(view, &type);
  if (!status && start.id >= 0 && (view->offset || !pj_view_moves(view, &type)))
    status = pj_error(PJ_INVALID_ARGUMENT, "a view that lies in its base in a way of its own cannot start elsewhere");
  if (!status) return true;
  hlo_fail(h, pj_status_code(status), "%s", pj_status_text(status));
  pj_status_free(status);
  return false;
}

hlo_value pj_view_read(hlo *h, hlo_value base, const pj_view *view, hlo_value start) {
  if (!check_value(h, base, view, start)) return hlo_fail(h, PJ_INTERNAL, "a view cannot be read");
  pj_type type = type_of_value(base);
  view_program program;
  view_read_program(&type, view, start.id >= 0, &program);
  return emit_program(h, base, &program, start);
}

hlo_value pj_view_write(hlo *h, hlo_value base, const pj_view *view, hlo_value start, hlo_value source) {
  if (!check_value(h, base, view, start)) return hlo_fail(h, PJ_INTERNAL, "a view cannot be written");
  if (source.dtype != view->dtype || source.rank != view->rank ||
      memcmp(source.dims, view->sizes, sizeof(int64_t) * (size_t)view->rank)) {
    return hlo_fail(h, PJ_INTERNAL, "what is written through a view has another dtype or other sizes than the view");
  }
  if (pj_view_overlaps_itself(view)) {
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "a view of which several elements share memory cannot be written");
  }
  pj_type type = type_of_value(base);
  view_write write;
  view_write_program(&type, view, &write);
  hlo_value target = emit_program(h, base, &write.base, PJ_VIEW_AT_OFFSET);
  source = emit_program(h, source, &write.source, PJ_VIEW_AT_OFFSET);
  hlo_value written = emit_write(h, target, &write, start, source);
  hlo_value result = emit_program(h, written, &write.result, PJ_VIEW_AT_OFFSET);
  if (!write.head) return result;
  result = emit_update(h, hlo_flatten(h, base), result, (int64_t[]){0}, PJ_VIEW_AT_OFFSET);
  return hlo_reshape(h, result, type.rank, type.dims);
}

hlo_value pj_view_as_type(hlo *h, hlo_value base, const pj_type *type) {
  if (hlo_failed(h)) return base;
  pj_type from = type_of_value(base);
  if (pj_type_bytes(&from) != pj_type_bytes(type)) {
    return hlo_fail(h, PJ_INTERNAL, "a value of %zu bytes cannot be taken as one of %zu bytes", pj_type_bytes(&from),
                    pj_type_bytes(type));
  }
  view_program program;
  view_program_start(&program, &from);
  view_program_retype(&program, type);
  return emit_program(h, base, &program, PJ_VIEW_AT_OFFSET);
}
