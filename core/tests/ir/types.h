// Array types and views written down in one line.
#ifndef PJ_TESTS_IR_TYPES_H_
#define PJ_TESTS_IR_TYPES_H_

#include <string.h>

#include "ir/type.h"

static inline pj_type array(pj_dtype dtype, int rank, const int64_t *dims) {
  pj_type type = {.dtype = dtype, .rank = rank};
  memcpy(type.dims, dims, sizeof(int64_t) * (size_t)rank);
  return type;
}

static inline pj_view strided(pj_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset) {
  pj_view view = {.dtype = dtype, .rank = rank, .offset = offset};
  memcpy(view.sizes, sizes, sizeof(int64_t) * (size_t)rank);
  memcpy(view.strides, strides, sizeof(int64_t) * (size_t)rank);
  return view;
}

#define N(...) (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#define S(...) (int64_t[]){__VA_ARGS__}

#endif
