#include <stdio.h>
#include <stdlib.h>

#include "run/internal.h"

void pj_grow(void *array, uint32_t count, uint32_t more, uint32_t *capacity, size_t item) {
  void **items = array;
  uint32_t wanted = *capacity ? 2 * *capacity : 16;
  if (wanted - count < more) wanted = count + more;
  void *grown = realloc(*items, wanted * item);
  if (!grown) {
    fputs("torch-pjrt: out of host memory\n", stderr);
    abort();
  }
  *items = grown;
  *capacity = wanted;
}

void pj_call_grow(pj_call *c, uint32_t words) {
  pj_reserve(&c->words, c->word_count, words, &c->word_capacity, sizeof *c->words);
  pj_reserve(&c->operands, c->operand_count, 1, &c->operand_capacity, sizeof *c->operands);
  pj_reserve(&c->floats, c->float_count, 2, &c->float_capacity, sizeof *c->floats);
  pj_reserve(&c->ints, c->int_count, 1, &c->int_capacity, sizeof *c->ints);
}

void pj_call_clear(pj_call *c) {
  for (uint32_t i = 0; i < c->operand_count; ++i) pj_value_release(c->operands[i]);
  for (uint32_t i = 0; i < c->result_count; ++i) pj_value_release(c->results[i]);
  pj_value_release(c->grown);
  c->grown = NULL;
  c->word_count = c->operand_count = c->float_count = c->int_count = c->result_count = 0;
  c->writes_base = c->room = c->hold = false;
}

void pj_call_destroy(pj_call *c) {
  pj_call_clear(c);
  free(c->words);
  free(c->operands);
  free(c->floats);
  free(c->ints);
  free(c->results);
  *c = (pj_call){0};
}

static uint64_t tensor_word(pj_argument_kind kind, pj_dtype dtype, int rank, pj_dtype base_dtype, int base_rank,
                            unsigned flags) {
  return (uint64_t)kind | (uint64_t)dtype << 8 | (uint64_t)rank << 16 | (uint64_t)base_dtype << 24 |
         (uint64_t)base_rank << 32 | (uint64_t)flags << 40;
}

static bool is_identity(const pj_type *base, pj_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                        int64_t offset, unsigned flags) {
  if (base->rank != rank || base->dtype != dtype || offset || flags) return false;
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (base->dims[i] != sizes[i]) return false;
    if (sizes[i] == 1) continue;
    if (strides[i] != stride) return false;
    stride *= sizes[i] ? sizes[i] : 1;
  }
  return true;
}

static void put_tensor(pj_call *call, const pj_type *base, pj_dtype dtype, int rank, const int64_t *sizes,
                       const int64_t *strides, int64_t offset, unsigned flags) {
  bool identity = is_identity(base, dtype, rank, sizes, strides, offset, flags);
  uint32_t base_rank = (uint32_t)base->rank, r = (uint32_t)rank;
  uint64_t *at = pj_call_take(call, 1 + base_rank + (identity ? 0 : 2 * r + 1));
  *at++ = tensor_word(PJ_ARG_TENSOR, dtype, rank, base->dtype, base->rank, identity ? PJ_TENSOR_IDENTITY : flags);
  for (uint32_t i = 0; i < base_rank; ++i) *at++ = (uint64_t)base->dims[i];
  if (identity) return;
  for (uint32_t i = 0; i < r; ++i) *at++ = (uint64_t)sizes[i];
  for (uint32_t i = 0; i < r; ++i) *at++ = (uint64_t)strides[i];
  *at = (uint64_t)offset;
}

void pj_call_shape(pj_call *call, pj_dtype dtype, int rank, const int64_t *sizes) {
  uint64_t *at = pj_call_take(call, 1 + (uint32_t)rank);
  *at++ = tensor_word(PJ_ARG_SHAPE, dtype, rank, dtype, rank, PJ_TENSOR_IDENTITY);
  for (int i = 0; i < rank; ++i) *at++ = (uint64_t)sizes[i];
}

void pj_call_graph_tensor(pj_call *call, pj_dtype base_dtype, int base_rank, const int64_t *base_dims, pj_dtype dtype,
                          int rank, const int64_t *sizes, const int64_t *strides, int64_t offset, unsigned flags) {
  pj_type base = {.dtype = base_dtype, .rank = base_rank};
  memcpy(base.dims, base_dims, (size_t)base_rank * sizeof *base_dims);
  put_tensor(call, &base, dtype, rank, sizes, strides, offset, flags);
}

// The value of a storage that nobody wrote: zeros, in the simplest type that the view can be read from.
static pj_value *materialize(pj_storage *storage, pj_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                             int64_t offset) {
  pj_view view = {.dtype = dtype, .rank = rank, .offset = offset};
  memcpy(view.sizes, sizes, (size_t)rank * sizeof *sizes);
  memcpy(view.strides, strides, (size_t)rank * sizeof *strides);
  size_t item = pj_dtype_size(dtype);
  pj_tensor_spec zeros = {.dtype = storage->nbytes % item ? PJ_U8 : dtype, .rank = 1, .strides = {1}};
  zeros.sizes[0] = (int64_t)(storage->nbytes / (storage->nbytes % item ? 1 : item));
  pj_type flat = {.dtype = zeros.dtype, .rank = 1, .dims = {zeros.sizes[0]}}, natural;
  int permutation[PJ_MAX_RANK];
  pj_status beyond = pj_view_check(&view, &flat);  // told when the call becomes a plan
  bool covers = !beyond && pj_view_covers(&view, storage->nbytes);
  if (covers) pj_view_memory_order(&view, &natural, permutation);
  if (covers || (!beyond && zeros.dtype == dtype && pj_view_rebase(&view, &flat, &natural))) {
    natural.dtype = zeros.dtype;
    zeros = pj_dense_spec(&natural);
  }
  pj_status_free(beyond);
  pj_call call = {.op = pj_runtime_op(storage->device->runtime, "pj::zeros"), .hold = true};
  pj_status status = pj_submit_own(storage->device, &call, &zeros, 1);
  pj_value *value = NULL;
  if (!status) {
    // Another thread may have written the storage meanwhile.
    pj_storage_set_first(storage, call.results[0]);
    value = pj_storage_value(storage);
  }
  pj_status_free(status);
  pj_call_destroy(&call);
  return value;
}

void pj_call_tensor(pj_call *call, pj_storage *storage, pj_dtype dtype, int rank, const int64_t *sizes,
                    const int64_t *strides, int64_t offset, unsigned flags) {
  pj_value *value = pj_storage_value(storage);
  if (!value) value = materialize(storage, dtype, rank, sizes, strides, offset);
  if (!value) {
    // Only without memory: the words then describe an operand that pj_submit cannot find.
    pj_call_shape(call, dtype, rank, sizes);
    return;
  }
  put_tensor(call, value->type, dtype, rank, sizes, strides, offset, flags);
  call->operands[call->operand_count++] = value;
}
