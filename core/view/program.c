#include "view/program.h"

#include <assert.h>
#include <string.h>

static pj_type type_of(pj_dtype dtype, int rank, const int64_t *dims) {
  pj_type type = {.dtype = dtype, .rank = rank};
  memcpy(type.dims, dims, sizeof(int64_t) * (size_t)rank);
  return type;
}

static bool same_dims(const pj_type *type, int rank, const int64_t *dims) {
  return type->rank == rank && !memcmp(type->dims, dims, sizeof(int64_t) * (size_t)rank);
}

// ---- steps ----------------------------------------------------------------------------------------------------------

void view_program_start(view_program *program, const pj_type *type) {
  program->in = program->out = *type;
  program->count = 0;
}

static view_step *push(view_program *program, view_step_kind kind, const pj_type *type) {
  assert(program->count < VIEW_MAX_STEPS);
  view_step *step = &program->steps[program->count++];
  step->kind = kind;
  step->type = program->out = *type;
  return step;
}

void view_program_reshape(view_program *program, int rank, const int64_t *dims) {
  if (program->count && program->steps[program->count - 1].kind == VIEW_RESHAPE) {  // this one makes that one needless
    --program->count;
    program->out = program->count ? program->steps[program->count - 1].type : program->in;
  }
  if (same_dims(&program->out, rank, dims)) return;
  pj_type type = type_of(program->out.dtype, rank, dims);
  push(program, VIEW_RESHAPE, &type);
}

void view_program_transpose(view_program *program, const int *permutation) {
  pj_type type = program->out;
  bool changes = false;
  for (int i = 0; i < type.rank; ++i) {
    type.dims[i] = program->out.dims[permutation[i]];
    changes |= permutation[i] != i;
  }
  if (!changes) return;
  view_step *step = push(program, VIEW_TRANSPOSE, &type);
  memcpy(step->permutation, permutation, sizeof(int) * (size_t)type.rank);
}

static void push_slice(view_program *program, const int64_t *start, const int64_t *size, const int64_t *step,
                       bool moves) {
  if (same_dims(&program->out, program->out.rank, size)) return;
  pj_type type = type_of(program->out.dtype, program->out.rank, size);
  view_step *slice = push(program, VIEW_SLICE, &type);
  slice->slice.moves = moves;
  for (int i = 0; i < type.rank; ++i) {
    slice->slice.start[i] = start[i];
    slice->slice.limit[i] = start[i] + (size[i] - 1) * step[i] + 1;
    slice->slice.step[i] = step[i];
  }
}

// Makes the last dimension `length` elements from `start` on.
static void push_window(view_program *program, int64_t start, int64_t length) {
  pj_type type = program->out;
  int64_t *last = &type.dims[type.rank - 1], high = start + length - *last;
  if (start == 0 && high == 0) return;
  *last = length;
  view_step *step = push(program, VIEW_PAD, &type);
  step->pad.low = -start;
  step->pad.high = high;
}

static void push_broadcast(view_program *program, int rank, const int64_t *dims, const int *result_dims) {
  int operand_rank = program->out.rank;
  pj_type type = type_of(program->out.dtype, rank, dims);
  if (pj_type_elements(&type) == pj_type_elements(&program->out)) {
    view_program_reshape(program, rank, dims);
    return;
  }
  view_step *step = push(program, VIEW_BROADCAST, &type);
  memcpy(step->result_dims, result_dims, sizeof(int) * (size_t)operand_rank);
}

void view_program_bits(view_program *program, const pj_view *view) {
  pj_type type = program->out;
  if (view->conj) push(program, VIEW_CONJ, &type);
  if (view->neg) push(program, VIEW_NEG, &type);
}

// ---- dtypes ---------------------------------------------------------------------------------------------------------

pj_type view_base_type(const pj_type *base, pj_dtype dtype) {
  pj_type type = *base;
  type.dtype = dtype;
  int64_t from = (int64_t)pj_dtype_size(base->dtype), to = (int64_t)pj_dtype_size(dtype);
  if (from == to) return type;
  int64_t last = type.rank ? type.dims[type.rank - 1] : 1;
  if (type.rank && last * from % to == 0) {
    type.dims[type.rank - 1] = last * from / to;
  } else {
    type.dims[0] = pj_type_elements(base) * from / to;
    type.rank = 1;
  }
  return type;
}

// Reshapes to the dims of `type`, and one more of size `last` if that is more than 1. Where hlo_bitcast, which goes
// through the parts of complex numbers, would find no room for two dimensions more, the array becomes flat.
static void reshape_for_bitcast(view_program *program, const pj_type *type, int64_t last) {
  pj_type result = *type;
  if (result.rank + 2 > PJ_MAX_RANK) {
    result.dims[0] = pj_type_elements(type);
    result.rank = 1;
  }
  if (last > 1) result.dims[result.rank++] = last;
  view_program_reshape(program, result.rank, result.dims);
}

void view_program_retype(view_program *program, const pj_type *type) {
  int64_t from = (int64_t)pj_dtype_size(program->out.dtype), to = (int64_t)pj_dtype_size(type->dtype);
  int64_t elements = pj_type_elements(&program->out), kept = pj_type_elements(type) * to / from;
  if (kept != elements) {
    view_program_reshape(program, 1, &elements);
    push_slice(program, (int64_t[]){0}, &kept, (int64_t[]){1}, false);
  }
  if (program->out.dtype != type->dtype) {
    pj_type before = program->out;
    reshape_for_bitcast(program, from < to ? type : &before, to / from);
    pj_type cast = program->out;
    cast.dtype = type->dtype;
    if (from < to) cast.rank--;
    if (from > to) cast.dims[cast.rank++] = from / to;
    push(program, VIEW_BITCAST, &cast);
  }
  view_program_reshape(program, type->rank, type->dims);
}

// ---- windows --------------------------------------------------------------------------------------------------------

void view_windows_of_runs(const view_runs *runs, int64_t offset, const pj_type *base, view_windows *out_windows) {
  view_windows windows = {.offset = offset, .sorted = view_runs_are_nested(runs)};
  int64_t length = 1, row = base->dims[base->rank - 1];
  bool in_rows = true;
  for (int i = 0; i < runs->rank; ++i) {
    if (runs->strides[i] == 1 && i == runs->rank - 1) {
      length = runs->sizes[i];
    } else {
      in_rows &= runs->strides[i] % row == 0;
      windows.index_sizes[windows.index_rank] = runs->sizes[i];
      windows.strides[windows.index_rank++] = runs->strides[i];
    }
  }
  in_rows &= offset % row + length <= row;
  if ((length == 1 || in_rows) && base->rank < PJ_MAX_RANK) {  // gather and scatter need a dimension more
    windows.rank = base->rank;
    memcpy(windows.dims, base->dims, sizeof windows.dims);
  } else {
    windows.rank = 1;
    windows.dims[0] = pj_type_elements(base);
  }
  for (int i = 0; i < windows.rank; ++i) windows.size[i] = 1;
  windows.size[windows.rank - 1] = length;
  *out_windows = windows;
}

int64_t view_windows_count(const view_windows *windows) {
  int64_t count = 1;
  for (int i = 0; i < windows->index_rank; ++i) count *= windows->index_sizes[i];
  return count;
}

// ---- reading --------------------------------------------------------------------------------------------------------

static void read_box(view_program *program, const view_box *box, bool moves) {
  view_program_reshape(program, box->rank, box->dims);
  push_slice(program, box->start, box->size, box->step, moves);
}

// Nested runs that no box of the base holds: one run after the other, the last dimension is cut or padded to
// size * stride elements and split into (size, stride). The rest of the view then starts at one place of all stretches.
static void read_nested(view_program *program, const view_runs *runs, int64_t offset) {
  int64_t length = pj_type_elements(&program->out);
  view_program_reshape(program, 1, &length);
  for (int i = 0; i < runs->rank; ++i) {
    int64_t size = runs->sizes[i], stride = runs->strides[i];
    int64_t excess = offset + size * stride - length;  // at most stride - 1 - reach, as the view ends within `length`
    int64_t start = excess <= 0 ? offset : excess < offset ? offset - excess : 0;  // an earlier start saves the padding
    push_window(program, start, size * stride);
    pj_type split = program->out;
    split.dims[split.rank - 1] = size;
    split.dims[split.rank++] = stride;
    view_program_reshape(program, split.rank, split.dims);
    offset -= start;
    length = stride;
  }
  push_window(program, offset, 1);
}

static void read_windows(view_program *program, const view_windows *windows) {
  view_program_reshape(program, windows->rank, windows->dims);
  pj_type type = {.dtype = program->out.dtype, .rank = windows->rank + 1, .dims = {view_windows_count(windows)}};
  memcpy(type.dims + 1, windows->size, sizeof(int64_t) * (size_t)windows->rank);
  push(program, VIEW_GATHER, &type)->windows = *windows;
}

static void read_runs(view_program *program, const view_runs *runs, int64_t offset, bool moves) {
  view_box box;
  view_windows windows;
  if (view_box_find(runs, offset, &program->out, VIEW_BOX_NATURAL, &box) ||
      view_box_find(runs, offset, &program->out, VIEW_BOX_UNIT_STEPS, &box)) {
    read_box(program, &box, moves);
  } else if (view_runs_are_nested(runs) && runs->rank < PJ_MAX_RANK) {
    read_nested(program, runs, offset);
  } else {
    view_windows_of_runs(runs, offset, &program->out, &windows);
    read_windows(program, &windows);
  }
}

void view_read_program(const pj_type *base, const pj_view *view, bool moves, view_program *out_program) {
  pj_type type = type_of(view->dtype, view->rank, view->sizes);
  view_program_start(out_program, base);
  if (pj_type_elements(&type) == 0) {
    push(out_program, VIEW_ZEROS, &type);
    return;
  }
  pj_type typed = view_base_type(base, view->dtype);
  view_program_retype(out_program, &typed);

  view_runs runs;
  view_runs_find(view, &runs);
  read_runs(out_program, &runs, view->offset, moves);

  // From the order of memory to the order of the view.
  int64_t sizes[PJ_MAX_RANK];
  int permutation[PJ_MAX_RANK], result_dims[PJ_MAX_RANK], moved = 0;
  for (int i = 0; i < runs.moving_rank; ++i) sizes[i] = view->sizes[runs.moving[i]];
  view_program_reshape(out_program, runs.moving_rank, sizes);
  for (int i = 0; i < view->rank; ++i) {
    for (int j = 0; j < runs.moving_rank; ++j) {
      if (runs.moving[j] != i) continue;
      permutation[moved] = j;
      result_dims[moved++] = i;
    }
  }
  view_program_transpose(out_program, permutation);
  push_broadcast(out_program, view->rank, view->sizes, result_dims);
  view_program_bits(out_program, view);
}
