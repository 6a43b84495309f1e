// Entry points for the comparison with PyTorch (tests/view/test_view_chains.py), to be called through ctypes.
#include <stdlib.h>
#include <string.h>

#include "view/interpret.h"

static pj_type base_of(int dtype, int rank, const int64_t *dims) {
  pj_type base = {.dtype = (pj_dtype)dtype, .rank = rank};
  memcpy(base.dims, dims, sizeof(int64_t) * (size_t)rank);
  return base;
}

static pj_view view_of(int dtype, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset, int conj,
                       int neg) {
  pj_view view = {.dtype = (pj_dtype)dtype, .rank = rank, .offset = offset, .conj = conj, .neg = neg};
  memcpy(view.sizes, sizes, sizeof(int64_t) * (size_t)rank);
  memcpy(view.strides, strides, sizeof(int64_t) * (size_t)rank);
  return view;
}

static int accepted(const pj_view *view, const pj_type *base) {
  pj_status status = pj_view_check(view, base);
  int accepted = !status;
  pj_status_free(status);
  return accepted;
}

// Fills `out` with the view's elements. 0: the view was refused.
PJ_EXPORT int pj_view_reference_read(int base_dtype, int base_rank, const int64_t *base_dims, const void *base_bytes,
                                     int dtype, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset,
                                     int conj, int neg, void *out) {
  pj_type base = base_of(base_dtype, base_rank, base_dims);
  pj_view view = view_of(dtype, rank, sizes, strides, offset, conj, neg);
  if (!accepted(&view, &base)) return 0;
  view_program program;
  view_read_program(&base, &view, false, &program);
  void *result = interpret_program(&program, 0, base_bytes);
  memcpy(out, result, pj_type_bytes(&program.out));
  free(result);
  return 1;
}

// Fills `out` with the base after the write. 0: the view was refused or overlaps itself.
PJ_EXPORT int pj_view_reference_write(int base_dtype, int base_rank, const int64_t *base_dims, const void *base_bytes,
                                      int dtype, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset,
                                      int conj, int neg, const void *source, void *out) {
  pj_type base = base_of(base_dtype, base_rank, base_dims);
  pj_view view = view_of(dtype, rank, sizes, strides, offset, conj, neg);
  if (!accepted(&view, &base) || pj_view_overlaps_itself(&view)) return 0;
  view_write write;
  view_write_program(&base, &view, &write);
  void *result = interpret_write(&write, 0, base_bytes, source);
  memcpy(out, result, pj_type_bytes(&base));
  free(result);
  return 1;
}

// What the view's numbers say: 1 overlaps itself, 2 covers the base, 4 is the base.
PJ_EXPORT int pj_view_reference_facts(int base_dtype, int base_rank, const int64_t *base_dims, int dtype, int rank,
                                      const int64_t *sizes, const int64_t *strides, int64_t offset) {
  pj_type base = base_of(base_dtype, base_rank, base_dims);
  pj_view view = view_of(dtype, rank, sizes, strides, offset, 0, 0);
  return pj_view_overlaps_itself(&view) | pj_view_covers(&view, pj_type_bytes(&base)) << 1 |
         pj_view_is_identity(&view, &base) << 2;
}
