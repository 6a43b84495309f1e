#include "view/chain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// splitmix64 (Steele, Lea and Flood 2014)
uint64_t chain_next(chain_random *random) {
  uint64_t z = random->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

int64_t chain_below(chain_random *random, int64_t bound) {
  return bound > 1 ? (int64_t)(chain_next(random) % (uint64_t)bound) : 0;
}

// ---- operations: each changes the view if it applies ----------------------------------------------------------------

static void insert_dim(pj_view *view, int at, int64_t size, int64_t stride) {
  if (view->rank >= 7) return;
  memmove(&view->sizes[at + 1], &view->sizes[at], sizeof(int64_t) * (size_t)(view->rank - at));
  memmove(&view->strides[at + 1], &view->strides[at], sizeof(int64_t) * (size_t)(view->rank - at));
  view->sizes[at] = size;
  view->strides[at] = stride;
  view->rank++;
}

static void remove_dim(pj_view *view, int at) {
  view->rank--;
  memmove(&view->sizes[at], &view->sizes[at + 1], sizeof(int64_t) * (size_t)(view->rank - at));
  memmove(&view->strides[at], &view->strides[at + 1], sizeof(int64_t) * (size_t)(view->rank - at));
}

static void slice(chain_random *random, pj_view *view, int dim) {
  int64_t start = chain_below(random, view->sizes[dim] + 1), step = 1 + chain_below(random, 3);
  int64_t stop = start + chain_below(random, view->sizes[dim] - start + 1);
  if (chain_below(random, 2)) stop = view->sizes[dim];
  view->offset += start * view->strides[dim];
  view->sizes[dim] = (stop - start + step - 1) / step;
  view->strides[dim] *= step;
}

static void select_one(chain_random *random, pj_view *view, int dim) {
  if (view->sizes[dim] == 0) return;
  view->offset += chain_below(random, view->sizes[dim]) * view->strides[dim];
  remove_dim(view, dim);
}

static void swap(chain_random *random, pj_view *view, int a) {
  int b = (int)chain_below(random, view->rank);
  int64_t size = view->sizes[a], stride = view->strides[a];
  view->sizes[a] = view->sizes[b];
  view->strides[a] = view->strides[b];
  view->sizes[b] = size;
  view->strides[b] = stride;
}

static void expand(chain_random *random, pj_view *view, int dim) {
  if (view->sizes[dim] == 1) {
    view->sizes[dim] = chain_below(random, 4);
    view->strides[dim] = 0;
  } else {
    insert_dim(view, 0, chain_below(random, 4), 0);
  }
}

static void split(chain_random *random, pj_view *view, int dim) {
  int64_t inner = 1 + chain_below(random, view->sizes[dim]);
  if (view->sizes[dim] % inner || view->sizes[dim] == 0) return;
  int64_t size = view->sizes[dim], stride = view->strides[dim];
  int rank = view->rank;
  insert_dim(view, dim + 1, inner, stride);
  if (view->rank == rank) return;
  view->sizes[dim] = size / inner;
  view->strides[dim] = stride * inner;
}

static void merge(pj_view *view, int dim) {
  if (dim + 1 == view->rank || view->strides[dim] != view->sizes[dim + 1] * view->strides[dim + 1]) return;
  view->sizes[dim + 1] *= view->sizes[dim];
  remove_dim(view, dim);
}

static void unfold(chain_random *random, pj_view *view, int dim) {
  int64_t size = chain_below(random, view->sizes[dim] + 1), step = 1 + chain_below(random, 3);
  int rank = view->rank;
  insert_dim(view, rank, size, view->strides[dim]);
  if (view->rank == rank) return;
  view->sizes[dim] = (view->sizes[dim] - size) / step + 1;
  view->strides[dim] *= step;
}

static void diagonal(chain_random *random, pj_view *view, int a) {
  int b = (int)chain_below(random, view->rank);
  if (a == b) return;
  int64_t shift = chain_below(random, view->sizes[b] + 1);
  int64_t stride = view->strides[a] + view->strides[b], size = view->sizes[b] - shift;
  if (size > view->sizes[a]) size = view->sizes[a];
  if (size > 0) view->offset += shift * view->strides[b];
  remove_dim(view, a > b ? a : b);
  remove_dim(view, a > b ? b : a);
  insert_dim(view, view->rank, size, stride);
}

static const pj_dtype DTYPES[] = {PJ_S8, PJ_BF16, PJ_F32, PJ_F64, PJ_C64, PJ_C128, PJ_U8, PJ_F16, PJ_S32, PJ_S64};
enum { DTYPES_COUNT = sizeof DTYPES / sizeof *DTYPES };

// Any elements of the storage; also of another dtype, as set_ on an untyped storage gives.
static void as_strided(chain_random *random, const pj_type *base, pj_view *view) {
  pj_dtype dtype = view->dtype;
  if (!view->conj && !view->neg && chain_below(random, 2)) dtype = DTYPES[chain_below(random, DTYPES_COUNT)];
  int64_t room = (int64_t)(pj_type_bytes(base) / pj_dtype_size(dtype));
  if (room == 0) return;
  view->dtype = dtype;
  view->offset = chain_below(random, room);
  int64_t last = view->offset;
  view->rank = (int)chain_below(random, 4);
  for (int i = 0; i < view->rank; ++i) {
    view->strides[i] = chain_below(random, 12);
    int64_t most = view->strides[i] ? (room - 1 - last) / view->strides[i] + 1 : 4;
    view->sizes[i] = 1 + chain_below(random, most > 8 ? 8 : most);
    last += (view->sizes[i] - 1) * view->strides[i];
  }
}

// PyTorch's view(dtype): the last dimension is scaled by the sizes' ratio.
static void view_dtype(chain_random *random, pj_view *view) {
  pj_dtype dtype = DTYPES[chain_below(random, DTYPES_COUNT)];
  int64_t from = (int64_t)pj_dtype_size(view->dtype), to = (int64_t)pj_dtype_size(dtype);
  if (view->conj || view->neg) return;
  if (from != to && (view->rank == 0 || view->strides[view->rank - 1] != 1)) return;
  int last = view->rank - 1;
  if (from < to) {
    int64_t k = to / from;
    if (view->sizes[last] % k || view->offset % k) return;
    for (int i = 0; i < last; ++i) {
      if (view->strides[i] % k) return;
    }
    for (int i = 0; i < last; ++i) view->strides[i] /= k;
    view->sizes[last] /= k;
    view->offset /= k;
  } else if (from > to) {
    int64_t k = from / to;
    for (int i = 0; i < last; ++i) view->strides[i] *= k;
    view->sizes[last] *= k;
    view->offset *= k;
  }
  view->dtype = dtype;
}

static void view_as_real(pj_view *view) {
  if (!pj_dtype_is_complex(view->dtype) || view->conj || view->rank >= 7) return;
  for (int i = 0; i < view->rank; ++i) view->strides[i] *= 2;
  view->offset *= 2;
  view->dtype = pj_real_dtype(view->dtype);
  insert_dim(view, view->rank, 2, 1);
}

// imag of a conjugate is how PyTorch comes to the negative bit.
static void imag(pj_view *view) {
  if (!pj_dtype_is_complex(view->dtype)) return;
  for (int i = 0; i < view->rank; ++i) view->strides[i] *= 2;
  view->offset = view->offset * 2 + 1;
  view->dtype = pj_real_dtype(view->dtype);
  view->neg ^= view->conj;
  view->conj = false;
}

static void change(chain_random *random, const pj_type *base, pj_view *view) {
  int64_t which = chain_below(random, 16);
  int dim = (int)chain_below(random, view->rank);
  if (which >= 12) {
    if (which == 12) as_strided(random, base, view);
    if (which == 13) view_dtype(random, view);
    if (which == 14 && chain_below(random, 4) == 0) view_as_real(view);
    if (which == 14 && pj_dtype_is_complex(view->dtype)) view->conj = !view->conj;
    if (which == 15) imag(view);
    return;
  }
  if (which == 11 || view->rank == 0) {
    insert_dim(view, (int)chain_below(random, view->rank + 1), 1, chain_below(random, 9));
    return;
  }
  switch (which) {
    case 0: case 1: case 2: slice(random, view, dim); break;
    case 3: select_one(random, view, dim); break;
    case 4: case 5: swap(random, view, dim); break;
    case 6: expand(random, view, dim); break;
    case 7: split(random, view, dim); break;
    case 8: merge(view, dim); break;
    case 9: unfold(random, view, dim); break;
    default: diagonal(random, view, dim); break;
  }
}

void chain_make(chain_random *random, pj_type *out_base, pj_view *out_view) {
  pj_type base = {.dtype = DTYPES[chain_below(random, DTYPES_COUNT)], .rank = (int)chain_below(random, 5)};
  pj_view view = {.dtype = base.dtype, .rank = base.rank};
  for (int i = 0; i < base.rank; ++i) {
    base.dims[i] = chain_below(random, 30) ? 1 + chain_below(random, i == base.rank - 1 ? 12 : 6) : 0;
  }
  memcpy(view.sizes, base.dims, sizeof view.sizes);
  int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.sizes[i] > 1 ? view.sizes[i] : 1;
  }
  for (int64_t i = chain_below(random, 7); i > 0; --i) change(random, &base, &view);
  *out_base = base;
  *out_view = view;
}

// ---- the truth ------------------------------------------------------------------------------------------------------

char *chain_bytes(chain_random *random, const pj_type *type) {
  size_t count = pj_type_bytes(type);
  char *bytes = malloc(count + 1);
  if (!bytes) abort();
  for (size_t i = 0; i < count; ++i) bytes[i] = (char)(chain_next(random) & (type->dtype == PJ_PRED ? 1 : 0xff));
  return bytes;
}

pj_type chain_type(const pj_view *view) {
  pj_type type = {.dtype = view->dtype, .rank = view->rank};
  memcpy(type.dims, view->sizes, sizeof type.dims);
  return type;
}

// Address, in elements, of the view's `at`-th element in row-major order.
static int64_t address(const pj_view *view, int64_t at) {
  int64_t address = view->offset;
  for (int i = view->rank - 1; i >= 0; --i) {
    address += at % view->sizes[i] * view->strides[i];
    at /= view->sizes[i];
  }
  return address;
}

// One element with the bits applied. Numbers are little-endian.
static void copy_with_bits(const pj_view *view, char *to, const char *from) {
  size_t size = pj_dtype_size(view->dtype), part = pj_dtype_size(pj_real_dtype(view->dtype));
  memcpy(to, from, size);
  if (pj_dtype_is_integer(view->dtype)) {
    int64_t number = 0;
    memcpy(&number, from, size);
    number = view->neg ? -number : number;
    memcpy(to, &number, size);
    return;
  }
  if (view->neg) to[part - 1] = (char)(to[part - 1] ^ 0x80);
  if (size > part && view->neg != view->conj) to[size - 1] = (char)(to[size - 1] ^ 0x80);
}

char *chain_read(const pj_view *view, const char *base) {
  pj_type type = chain_type(view);
  size_t size = pj_dtype_size(view->dtype);
  char *result = malloc(pj_type_bytes(&type) + 1);
  if (!result) abort();
  for (int64_t i = 0; i < pj_type_elements(&type); ++i) {
    copy_with_bits(view, result + (size_t)i * size, base + (size_t)address(view, i) * size);
  }
  return result;
}

void chain_write(const pj_view *view, char *base, const char *source) {
  pj_type type = chain_type(view);
  size_t size = pj_dtype_size(view->dtype);
  for (int64_t i = 0; i < pj_type_elements(&type); ++i) {
    copy_with_bits(view, base + (size_t)address(view, i) * size, source + (size_t)i * size);
  }
}

static int print_numbers(char *to, int rank, const int64_t *numbers) {
  int length = sprintf(to, "[");
  for (int i = 0; i < rank; ++i) length += sprintf(to + length, i ? ",%lld" : "%lld", (long long)numbers[i]);
  return length + sprintf(to + length, "]");
}

const char *chain_text(const pj_type *base, const pj_view *view) {
  static char text[2048];
  int at = sprintf(text, "%s ", pj_dtype_name(base->dtype));
  at += print_numbers(text + at, base->rank, base->dims);
  at += sprintf(text + at, " -> %s sizes ", pj_dtype_name(view->dtype));
  at += print_numbers(text + at, view->rank, view->sizes);
  at += sprintf(text + at, " strides ");
  at += print_numbers(text + at, view->rank, view->strides);
  sprintf(text + at, " offset %lld%s%s", (long long)view->offset, view->conj ? " conj" : "", view->neg ? " neg" : "");
  return text;
}
