#include <stdio.h>
#include <stdlib.h>

#include "run/internal.h"

static void take(atomic_flag *flag) {
  while (atomic_flag_test_and_set_explicit(flag, memory_order_acquire)) {
  }
}

static void give(atomic_flag *flag) { atomic_flag_clear_explicit(flag, memory_order_release); }

enum { TOKEN_ALIGNMENT = 512 };

static uint64_t new_token(pj_runtime *runtime, size_t nbytes) {
  uint64_t span = ((uint64_t)nbytes + TOKEN_ALIGNMENT) / TOKEN_ALIGNMENT * TOKEN_ALIGNMENT;
  return atomic_fetch_add_explicit(&runtime->next_token, span, memory_order_relaxed);
}

static pj_storage *create(pj_device *device, pj_value *value, size_t nbytes) {
  pj_storage *s = malloc(sizeof *s);
  if (!s) {
    fputs("torch-pjrt: out of host memory\n", stderr);
    abort();
  }
  pj_runtime *runtime = device->runtime;
  atomic_init(&s->refs, 1);
  s->busy = (atomic_flag)ATOMIC_FLAG_INIT;
  s->device = device;
  s->value = value;
  s->nbytes = nbytes;
  atomic_init(&s->token, nbytes ? new_token(runtime, nbytes) : 0);
  take(&runtime->storages_busy);
  s->next = runtime->storages.next;
  s->previous = &runtime->storages;
  s->next->previous = s;
  runtime->storages.next = s;
  give(&runtime->storages_busy);
  return s;
}

pj_storage *pj_storage_create(pj_device *device, size_t nbytes) { return create(device, NULL, nbytes); }

pj_storage *pj_storage_create_with(pj_device *device, pj_value *value) { return create(device, value, value->bytes); }

static void drop(pj_storage *s) {
  if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
  free(s);
}

void pj_storage_release(pj_storage *s) {
  pj_runtime *runtime = s->device->runtime;
  if (atomic_load_explicit(&runtime->forked, memory_order_relaxed)) return;
  take(&runtime->storages_busy);
  s->previous->next = s->next;
  s->next->previous = s->previous;
  give(&runtime->storages_busy);
  if (atomic_load_explicit(&s->refs, memory_order_acquire) == 1) {
    pj_value_release(s->value);
    free(s);
    return;
  }
  take(&s->busy);  // an undo record has it too
  pj_value *value = s->value;
  s->value = NULL;
  give(&s->busy);
  pj_value_release(value);
  drop(s);
}

pj_device *pj_storage_device(const pj_storage *s) { return s->device; }
size_t pj_storage_nbytes(const pj_storage *s) { return s->nbytes; }

uint64_t pj_storage_token(const pj_storage *storage) {
  return atomic_load_explicit(&storage->token, memory_order_relaxed);
}

pj_storage *pj_storage_find(pj_runtime *runtime, uint64_t address, size_t *out_offset) {
  pj_storage *found = NULL;
  take(&runtime->storages_busy);
  for (pj_storage *s = runtime->storages.next; s != &runtime->storages && !found; s = s->next) {
    uint64_t token = s->token;
    if (!token || address < token || address - token >= s->nbytes) continue;
    found = s;
    *out_offset = (size_t)(address - token);
  }
  give(&runtime->storages_busy);
  return found;
}

pj_value *pj_storage_value(pj_storage *s) {
  take(&s->busy);
  pj_value *value = s->value;
  if (value) pj_value_retain(value);
  give(&s->busy);
  return value;
}

void pj_storage_set(pj_storage *s, pj_value *value) {
  if (value) pj_value_retain(value);
  take(&s->busy);
  pj_value *old = s->value;
  s->value = value;
  give(&s->busy);
  pj_value_release(old);
}

bool pj_storage_set_first(pj_storage *s, pj_value *value) {
  take(&s->busy);
  bool first = !s->value;
  if (first) {
    pj_value_retain(value);
    s->value = value;
  }
  give(&s->busy);
  return first;
}

// Replaces the value as part of an op. The region remembers the old one, which comes back if its program cannot be had.
// Old values that the region reads or makes are remembered without a reference of their own, so that they can be donated
// and need not be computed. Another thread may have run the op's program already: then its error is told here.
static pj_status set_undoable(pj_storage *s, pj_value *value) {
  pj_device *device = s->device;
  pthread_mutex_lock(&device->lock);
  pj_status status = pj_device_wait_until_idle(device);
  if (status || value->error) {
    if (!status) status = pj_status_copy(value->error);
    pj_status_free(pj_device_take_failure(device));
    pthread_mutex_unlock(&device->lock);
    return status;
  }
  pj_value_retain(value);
  take(&s->busy);
  pj_value *old = s->value;
  s->value = value;
  give(&s->busy);
  pj_region *region = device->region;
  if (region->queued_count) {
    pj_reserve(&region->undo, region->undo_count, 1, &region->undo_capacity, sizeof *region->undo);
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    bool borrowed = old && old->region == region->id;  // the region holds it
    region->undo[region->undo_count++] = (struct pj_undo){s, old, value, borrowed};
    if (!borrowed) old = NULL;  // its reference moves to the record
  }
  pthread_mutex_unlock(&device->lock);
  pj_value_release(old);
  return NULL;
}

void pj_region_settle(pj_region *region, bool failed) {
  for (uint32_t i = region->undo_count; i-- > 0;) {
    struct pj_undo *u = &region->undo[i];
    pj_value *surplus = u->borrowed ? NULL : u->old_value;
    if (failed) {
      take(&u->storage->busy);
      if (u->storage->value == u->new_value && u->new_value->error) {
        if (u->borrowed) pj_value_retain(u->old_value);
        u->storage->value = u->old_value;
        surplus = u->new_value;
      }
      give(&u->storage->busy);
    }
    pj_value_release(surplus);
    drop(u->storage);
  }
  region->undo_count = 0;
}

void pj_region_move_undo(pj_region *to, pj_region *from) {
  uint32_t first = from->done < from->queued_count ? from->queued[from->done].first_output : from->output_count;
  for (uint32_t i = 0; i < from->undo_count; ++i) {
    struct pj_undo u = from->undo[i];
    bool waits = false;
    for (uint32_t k = first; k < from->output_count && !waits; ++k) waits = from->outputs[k] == u.new_value;
    if (!waits) {  // its op has run
      if (!u.borrowed) pj_value_release(u.old_value);
      drop(u.storage);
      continue;
    }
    if (u.borrowed && u.old_value->region != to->id) {
      pj_value_retain(u.old_value);
      u.borrowed = false;
    }
    pj_reserve(&to->undo, to->undo_count, 1, &to->undo_capacity, sizeof *to->undo);
    to->undo[to->undo_count++] = u;
  }
  from->undo_count = 0;
}

static pj_view make_view(pj_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset,
                         unsigned flags) {
  pj_view view = {.dtype = dtype, .rank = rank, .offset = offset, .conj = flags & PJ_TENSOR_CONJ, .neg = flags & PJ_TENSOR_NEG};
  memcpy(view.sizes, sizes, (size_t)rank * sizeof *sizes);
  memcpy(view.strides, strides, (size_t)rank * sizeof *strides);
  return view;
}

static bool same_strides(int rank, const int64_t *sizes, const int64_t *a, const int64_t *b) {
  for (int i = 0; i < rank; ++i)
    if (sizes[i] > 1 && a[i] != b[i]) return false;
  return true;
}

// Appends a value seen through sizes and strides as tensor argument.
static void call_value(pj_call *call, pj_value *value, pj_dtype dtype, int rank, const int64_t *sizes,
                       const int64_t *strides, int64_t offset, unsigned flags) {
  pj_call_graph_tensor(call, value->type->dtype, value->type->rank, value->type->dims, dtype, rank, sizes, strides, offset,
                       flags);
  pj_value_retain(value);
  call->operands[call->operand_count++] = value;
}

// Of elements that share their memory by a stride of 0 a loop leaves the last: only that one is written. Gives its offset in
// the source.
static int64_t keep_last(pj_view *view, const int64_t *source_strides) {
  int64_t offset = 0;
  for (int i = 0; i < view->rank; ++i) {
    if (view->strides[i] || view->sizes[i] <= 1) continue;
    offset += (view->sizes[i] - 1) * source_strides[i];
    view->sizes[i] = 1;
  }
  return offset;
}

static pj_status write_whole(pj_storage *s, pj_value *source, const int64_t *source_strides, int64_t source_offset,
                             const pj_view *view) {
  if (same_strides(view->rank, view->sizes, source_strides, view->strides) && !view->conj && !view->neg &&
      source->bytes == s->nbytes) {
    return set_undoable(s, source);
  }
  pj_tensor_spec type = {.dtype = view->dtype, .rank = view->rank};
  memcpy(type.sizes, view->sizes, sizeof type.sizes);
  memcpy(type.strides, view->strides, sizeof type.strides);
  pj_call call = {.op = pj_runtime_op(s->device->runtime, "pj::copy"), .hold = true};
  unsigned flags = (view->conj ? PJ_TENSOR_CONJ : 0u) | (view->neg ? PJ_TENSOR_NEG : 0u);
  call_value(&call, source, view->dtype, view->rank, view->sizes, source_strides, source_offset, flags);
  pj_status status = pj_submit_own(s->device, &call, &type, 1);
  if (!status) status = set_undoable(s, call.results[0]);
  pj_call_destroy(&call);
  return status;
}

pj_status pj_storage_write(pj_storage *s, pj_value *source, const int64_t *source_strides, pj_dtype dtype, int rank,
                           const int64_t *sizes, const int64_t *strides, int64_t offset, unsigned flags) {
  PJ_TRY(pj_runtime_check(s->device->runtime));
  if (rank > PJ_MAX_RANK)
    return pj_error(PJ_UNIMPLEMENTED, "tensors on this device have at most %d dimensions, not %d", PJ_MAX_RANK, rank);
  pj_view view = make_view(dtype, rank, sizes, strides, offset, flags);
  for (int i = 0; i < rank; ++i)
    if (!sizes[i]) return NULL;
  int64_t source_offset = keep_last(&view, source_strides);
  if (pj_view_covers(&view, s->nbytes)) return write_whole(s, source, source_strides, source_offset, &view);
  if (!pj_view_overlaps_itself(&view)) PJ_TRY(pj_storage_rebase(s, dtype, rank, view.sizes, strides, offset));
  pj_call call = {.op = pj_runtime_op(s->device->runtime, "pj::write"), .writes_base = true, .hold = true};
  pj_call_tensor(&call, s, dtype, rank, view.sizes, strides, offset, flags);
  call_value(&call, source, dtype, rank, view.sizes, source_strides, source_offset, 0);
  pj_tensor_spec base = {.dtype = dtype};
  pj_status status = pj_submit_own(s->device, &call, &base, 1);
  if (!status) status = set_undoable(s, call.results[0]);
  pj_call_destroy(&call);
  return status;
}

static pj_status as_type(pj_storage *s, pj_value *value, const pj_type *type) {
  pj_tensor_spec result = pj_dense_spec(type);
  int64_t strides[PJ_MAX_RANK];
  pj_row_major_strides(value->type->rank, value->type->dims, strides);
  pj_call call = {.op = pj_runtime_op(s->device->runtime, "pj::as_type"), .hold = true};
  call_value(&call, value, value->type->dtype, value->type->rank, value->type->dims, strides, 0, 0);
  pj_status status = pj_submit_own(s->device, &call, &result, 1);
  if (!status) status = set_undoable(s, call.results[0]);
  pj_call_destroy(&call);
  return status;
}

pj_status pj_storage_rebase(pj_storage *s, pj_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                            int64_t offset) {
  pj_view view = make_view(dtype, rank, sizes, strides, offset, 0);
  pj_value *value = pj_storage_value(s);
  if (!value) return NULL;  // it will be made in the right type when it is first read
  pj_type type;
  pj_status status = pj_view_check(&view, value->type);
  if (!status && pj_view_rebase(&view, value->type, &type)) status = as_type(s, value, &type);
  pj_value_release(value);
  return status;
}

pj_status pj_storage_compact(pj_storage *s) {
  PJ_TRY(pj_runtime_check(s->device->runtime));
  pj_value *value = pj_storage_value(s);
  bool has_room = value && value->room >= 0;
  pj_status status = has_room ? as_type(s, value, value->type) : NULL;
  pj_value_release(value);
  return !has_room || status ? status : pj_device_end_op(s->device);
}

// The bytes of `value`: the first `nbytes` of them, or all of them written into zeros.
static pj_status resize_value(pj_storage *s, pj_value *value, size_t nbytes) {
  int64_t one = 1, old_size = (int64_t)value->bytes, new_size = (int64_t)nbytes;
  pj_type type = {.dtype = PJ_U8, .rank = 1, .dims = {old_size}};
  PJ_TRY(as_type(s, value, &type));
  pj_value *bytes = pj_storage_value(s);
  pj_status status = NULL;
  if (nbytes < s->nbytes) {
    pj_tensor_spec result = {.dtype = PJ_U8, .rank = 1, .sizes = {new_size}, .strides = {1}};
    pj_call call = {.op = pj_runtime_op(s->device->runtime, "pj::copy"), .hold = true};
    call_value(&call, bytes, PJ_U8, 1, &new_size, &one, 0, 0);
    status = pj_submit_own(s->device, &call, &result, 1);
    if (!status) pj_storage_set(s, call.results[0]);
    pj_call_destroy(&call);
  } else {
    pj_storage_set(s, NULL);
    s->nbytes = nbytes;
    status = pj_storage_write(s, bytes, &one, PJ_U8, 1, &old_size, &one, 0, 0);
  }
  pj_value_release(bytes);
  return status;
}

pj_status pj_storage_resize(pj_storage *s, size_t nbytes) {
  PJ_TRY(pj_runtime_check(s->device->runtime));
  size_t old_nbytes = s->nbytes;
  pj_value *old = pj_storage_value(s);
  pj_status status = NULL;
  if (nbytes == 0 || !old) pj_storage_set(s, NULL);
  else if (nbytes != old_nbytes) status = resize_value(s, old, nbytes);
  pj_status ended = pj_device_end_op(s->device);
  if (status) pj_status_free(ended);
  else status = ended;
  if (status) pj_storage_set(s, old);
  pj_value_release(old);
  take(&s->busy);
  s->nbytes = status ? old_nbytes : nbytes;
  // Another size is another address, as it is on CPU.
  if (!status) s->token = nbytes ? new_token(s->device->runtime, nbytes) : 0;
  give(&s->busy);
  return status;
}
