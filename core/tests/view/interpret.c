#include "view/interpret.h"

#include <stdlib.h>
#include <string.h>

// Counts through the places of an array in row-major order; false after the last.
static bool next_place(int rank, const int64_t *dims, int64_t *place) {
  for (int i = rank - 1; i >= 0; --i) {
    if (++place[i] < dims[i]) return true;
    place[i] = 0;
  }
  return false;
}

static int64_t flat(int rank, const int64_t *dims, const int64_t *place) {
  int64_t at = 0;
  for (int i = 0; i < rank; ++i) {
    if (place[i] < 0 || place[i] >= dims[i]) abort();
    at = at * dims[i] + place[i];
  }
  return at;
}

static char *array_create(const pj_type *type) {
  char *bytes = calloc(1, pj_type_bytes(type) + 1);
  if (!bytes) abort();
  return bytes;
}

static void copy_element(char *to, int64_t to_at, const char *from, int64_t from_at, size_t size) {
  memcpy(to + (size_t)to_at * size, from + (size_t)from_at * size, size);
}

// Negates in place as an integer or by the sign bit; of complex elements the parts that `parts` selects.
static void negate(char *bytes, const pj_type *type, int parts) {
  pj_dtype real = pj_real_dtype(type->dtype);
  size_t size = pj_dtype_size(real), count = pj_type_bytes(type) / size;
  for (size_t i = 0; i < count; ++i) {
    if (real != type->dtype && !(parts >> (i % 2) & 1)) continue;
    uint64_t bits = 0;
    memcpy(&bits, bytes + i * size, size);
    bits = pj_dtype_is_integer(real) ? 0 - bits : bits ^ (uint64_t)1 << (8 * size - 1);
    memcpy(bytes + i * size, &bits, size);
  }
}

// Element `element` of window `window`: the place in the array.
static int64_t window_element(const view_windows *w, const int64_t *window, const int64_t *element) {
  int64_t start = w->offset, stride = 1, at = 0;
  for (int j = 0; j < w->index_rank; ++j) start += window[j] * w->strides[j];
  for (int d = w->rank - 1; d >= 0; --d) {
    int64_t place = start % w->dims[d] + element[d];
    if (place >= w->dims[d]) abort();  // XLA would move the window to where it fits
    at += place * stride;
    start /= w->dims[d];
    stride *= w->dims[d];
  }
  return at;
}

// Copies between an array and its windows, laid one after the other.
static void copy_windows(const view_windows *w, char *array, char *windows, size_t size,
                         void (*copy)(char *array, int64_t at, char *windows, int64_t window_at, size_t size)) {
  int64_t window[PJ_MAX_RANK] = {0}, at = 0;
  do {
    int64_t element[PJ_MAX_RANK] = {0};
    do {
      copy(array, window_element(w, window, element), windows, at++, size);
    } while (next_place(w->rank, w->size, element));
  } while (next_place(w->index_rank, w->index_sizes, window));
}

static void copy_in(char *array, int64_t at, char *windows, int64_t window_at, size_t size) {
  copy_element(array, at, windows, window_at, size);
}

static void copy_out(char *array, int64_t at, char *windows, int64_t window_at, size_t size) {
  copy_element(windows, window_at, array, at, size);
}

// Which element of the operand goes to `place` of the result; -1 for the padding.
static int64_t operand_element(const view_step *step, int64_t start, const pj_type *in, const int64_t *place) {
  int64_t from[PJ_MAX_RANK];
  memcpy(from, place, sizeof from);
  switch (step->kind) {
    case VIEW_SLICE:
      for (int i = 0; i < in->rank; ++i) from[i] = step->slice.start[i] + place[i] * step->slice.step[i];
      for (int i = in->rank - 1; step->slice.moves && i >= 0; --i) {
        from[i] += start % in->dims[i];
        start /= in->dims[i];
      }
      break;
    case VIEW_PAD:
      from[in->rank - 1] = place[in->rank - 1] - step->pad.low;
      if (from[in->rank - 1] < 0 || from[in->rank - 1] >= in->dims[in->rank - 1]) return -1;
      break;
    case VIEW_TRANSPOSE:
      for (int i = 0; i < in->rank; ++i) from[step->permutation[i]] = place[i];
      break;
    case VIEW_BROADCAST:
      for (int i = 0; i < in->rank; ++i) from[i] = in->dims[i] == 1 ? 0 : place[step->result_dims[i]];
      break;
    default:
      return flat(step->type.rank, step->type.dims, place);
  }
  return flat(in->rank, in->dims, from);
}

static char *interpret_step(const view_step *step, int64_t start, const pj_type *in, char *x) {
  char *result = array_create(&step->type);
  size_t size = pj_dtype_size(in->dtype);
  switch (step->kind) {
    case VIEW_ZEROS:
      break;
    case VIEW_GATHER:
      copy_windows(&step->windows, x, result, size, copy_out);
      break;
    case VIEW_SLICE:
    case VIEW_PAD:
    case VIEW_TRANSPOSE:
    case VIEW_BROADCAST: {
      int64_t place[PJ_MAX_RANK] = {0}, at = 0;
      do {
        int64_t from = operand_element(step, start, in, place);
        if (from >= 0) copy_element(result, at, x, from, size);
        ++at;
      } while (next_place(step->type.rank, step->type.dims, place));
      break;
    }
    default:  // the same bytes, in the same order
      if (pj_type_bytes(in) != pj_type_bytes(&step->type)) abort();
      memcpy(result, x, pj_type_bytes(in));
      if (step->kind == VIEW_CONJ) negate(result, &step->type, 2);
      if (step->kind == VIEW_NEG) negate(result, &step->type, 3);
  }
  return result;
}

void *interpret_program(const view_program *program, int64_t start, const void *in) {
  char *x = array_create(&program->in);
  memcpy(x, in, pj_type_bytes(&program->in));
  const pj_type *type = &program->in;
  for (int i = 0; i < program->count; ++i) {
    char *next = interpret_step(&program->steps[i], start, type, x);
    type = &program->steps[i].type;
    free(x);
    x = next;
  }
  return x;
}

// The box as windows of one element each.
static view_windows windows_of_elements(const view_box *box) {
  view_windows windows = {.rank = box->rank, .index_rank = box->rank};
  int64_t stride = 1;
  for (int i = box->rank - 1; i >= 0; --i) {
    if (box->start[i] + (box->size[i] - 1) * box->step[i] >= box->dims[i]) abort();
    windows.dims[i] = box->dims[i];
    windows.size[i] = 1;
    windows.index_sizes[i] = box->size[i];
    windows.strides[i] = box->step[i] * stride;
    windows.offset += box->start[i] * stride;
    stride *= box->dims[i];
  }
  return windows;
}

void *interpret_write(const view_write *write, int64_t start, const void *base, const void *source) {
  char *target = interpret_program(&write->base, 0, base);
  char *update = interpret_program(&write->source, 0, source);
  size_t size = pj_dtype_size(write->base.out.dtype);
  view_windows elements;
  switch (write->kind) {
    case VIEW_KEEP:
      break;
    case VIEW_REPLACE:
      memcpy(target, update, pj_type_bytes(&write->source.out));
      break;
    case VIEW_UPDATE:
    case VIEW_MERGE:
      elements = windows_of_elements(&write->box);
      elements.offset += start;
      copy_windows(&elements, target, update, size, copy_in);
      break;
    case VIEW_SCATTER:
      elements = write->windows;
      elements.offset += start;
      copy_windows(&elements, target, update, size, copy_in);
      break;
  }
  char *result = interpret_program(&write->result, 0, target);
  if (write->head) {
    char *whole = array_create(&write->base.in);
    memcpy(whole, base, pj_type_bytes(&write->base.in));
    memcpy(whole, result, pj_type_bytes(&write->result.out));
    free(result);
    result = whole;
  }
  free(target);
  free(update);
  return result;
}
