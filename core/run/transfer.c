// Between host and device.
#include <stdlib.h>

#include "base/text.h"
#include "run/internal.h"

enum { MOST_NUMBER_BUFFERS = 4096 };

// ---- run-time numbers -----------------------------------------------------------------------------------------------

void pj_numbers_clear(pj_device *device) {
  pj_map *numbers = &device->numbers;
  for (size_t i = 0; i < numbers->capacity; ++i)
    if (numbers->entries[i].key) pj_buffer_destroy(device->runtime->client, numbers->entries[i].value);
  pj_map_clear(numbers, NULL);
}

void pj_numbers_trim(pj_device *device) {
  if (device->numbers.count >= MOST_NUMBER_BUFFERS) pj_numbers_clear(device);
}

pj_status pj_device_numbers(pj_device *device, pj_dtype dtype, const void *data, uint32_t count, pj_buffer **out_buffer) {
  pj_reserve(&device->scratch, 0, count + 1, &device->scratch_capacity, sizeof *device->scratch);
  device->scratch[0] = (uint64_t)dtype;
  memcpy(device->scratch + 1, data, count * sizeof *device->scratch);
  uint64_t hash = pj_hash_words(device->scratch, count + 1);
  *out_buffer = pj_map_find(&device->numbers, hash, device->scratch, count + 1);
  if (*out_buffer) return NULL;
  int64_t size = count;
  PJ_TRY(pj_buffer_from_host(device->runtime->client, device->index, data, dtype, 1, &size, PJ_HOST_COPY, NULL, out_buffer));
  if (pj_map_add(&device->numbers, hash, device->scratch, count + 1, *out_buffer)) return NULL;
  pj_buffer_destroy(device->runtime->client, *out_buffer);
  return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
}

// ---- values ---------------------------------------------------------------------------------------------------------

static void end_transfer(pj_runtime *runtime, pj_span *span, const pj_type *type, const char *line) {
  char what[200];
  pj_text text = pj_text_begin(what, sizeof what);
  pj_text_add_type(&text, type->dtype, type->rank, type->dims);
  span->text = pj_trace_text(&runtime->trace, what);
  span->line = line;
  span->bytes = pj_type_bytes(type);
  pj_trace_end(&runtime->trace, span);
}

pj_status pj_value_from_host(pj_device *device, const void *data, pj_dtype dtype, int rank, const int64_t *dims,
                             pj_value **out_value) {
  pj_runtime *runtime = device->runtime;
  PJ_TRY(pj_runtime_check(runtime));
  pj_type type = {.dtype = dtype, .rank = rank};
  memcpy(type.dims, dims, (size_t)rank * sizeof *dims);
  size_t bytes = pj_type_bytes(&type);
  bool collects = pj_trace_collects(&runtime->trace);
  const char *line = collects ? pj_trace_line(runtime) : "";
  pthread_mutex_lock(&device->lock);
  pj_device_drain(device);
  pj_status status = pj_device_reserve_memory(device, bytes);
  pthread_mutex_unlock(&device->lock);
  PJ_TRY(status);
  pj_buffer *buffer;
  pj_span span = collects ? pj_trace_begin(PJ_SPAN_TO_DEVICE, device) : (pj_span){0};
  PJ_TRY(pj_buffer_from_host(runtime->client, device->index, data, dtype, rank, dims, PJ_HOST_COPY, NULL, &buffer));
  if (collects) end_transfer(runtime, &span, &type, line);
  pj_count(&runtime->counters.bytes_to_device, bytes);
  pthread_mutex_lock(&device->lock);
  *out_value = pj_value_create_ready(device, &type, &type, -1, buffer);
  pthread_mutex_unlock(&device->lock);
  return NULL;
}

// Makes sure that the value's buffer exists: runs the queue if the value is in it. The lock is held.
static pj_status compute(pj_device *device, pj_value *value) {
  pj_status status = NULL;
  if (!value->buffer && !value->error) status = pj_device_cut(device, "a value is read");
  if (value->error) {
    pj_status_free(status);
    pj_status_free(pj_device_take_failure(device));
    return pj_status_copy(value->error);
  }
  PJ_TRY(status);
  return value->buffer ? NULL : pj_error(PJ_INTERNAL, "a value was read after its memory had been donated");
}

// What counts of a value lies in its array in `count` pieces of `bytes`, one every `step` bytes.
typedef struct pieces { size_t count, bytes, step; } pieces;

static pieces pieces_of(const pj_value *value) {
  pieces p = {.count = 1, .bytes = value->bytes, .step = value->bytes};
  for (int d = 0; d < value->room; ++d) p.count *= (size_t)value->type->dims[d];
  if (value->room < 0 || !p.count) return p;
  p.bytes /= p.count;
  p.step = value->array_bytes / p.count;
  return p;
}

// The value is there, or is waited for.
static pj_status read_array(pj_runtime *runtime, const pj_value *value, void *data) {
  void *array = value->room >= 0 ? malloc(value->array_bytes) : data;
  if (!array) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  pj_status status = value->ready ? pj_buffer_to_host_ready(runtime->client, value->buffer, array, value->array_bytes)
                                  : pj_buffer_to_host(runtime->client, value->buffer, array, value->array_bytes);
  if (array == data) return status;
  pieces p = pieces_of(value);
  for (size_t i = 0; i < p.count && !status; ++i) memcpy((char *)data + i * p.bytes, (char *)array + i * p.step, p.bytes);
  free(array);
  return status;
}

pj_status pj_value_to_host(pj_device *device, pj_value *value, void *data) {
  pj_runtime *runtime = device->runtime;
  PJ_TRY(pj_runtime_check(runtime));
  pthread_mutex_lock(&device->lock);
  pj_device_drain(device);
  pj_status status = compute(device, value);
  bool checks = device->check_count || device->deferred;
  pthread_mutex_unlock(&device->lock);
  PJ_TRY(status);
  pj_count(&runtime->counters.host_reads, 1);
  pj_count(&runtime->counters.bytes_to_host, value->bytes);
  bool collects = pj_trace_collects(&runtime->trace);
  const char *line = collects ? pj_trace_line(runtime) : "";
  if (value->bytes) {
    // A ready value is copied at once; only a wait or a large copy is worth giving up the GIL for.
    bool ready = value->ready || pj_buffer_is_ready(runtime->client, value->buffer);
    bool long_wait = value->array_bytes > 65536 || !ready;
    void *token = long_wait ? pj_block(runtime) : NULL;
    if (long_wait) status = pj_buffer_wait_unless(runtime->client, value->buffer, runtime->hooks.interrupted);
    pj_span span = collects ? pj_trace_begin(PJ_SPAN_TO_HOST, device) : (pj_span){0};
    if (!status) status = read_array(runtime, value, data);
    if (long_wait) pj_unblock(runtime, token);
    if (collects && !status) end_transfer(runtime, &span, value->type, line);
    PJ_TRY(pj_value_keep_error(device, value, status));
  }
  atomic_store_explicit(&value->ready, true, memory_order_release);
  if (!checks) return NULL;
  pthread_mutex_lock(&device->lock);
  status = pj_device_check_indices(device, true);
  pthread_mutex_unlock(&device->lock);
  return status;
}

pj_status pj_value_host_pointer(pj_device *device, pj_value *value, const void **out_pointer) {
  pj_runtime *runtime = device->runtime;
  *out_pointer = NULL;
  PJ_TRY(pj_runtime_check(runtime));
  if (pieces_of(value).count > 1)
    return pj_error(PJ_UNIMPLEMENTED, "the value lies in pieces, with room to grow between them");
  if (strcmp(pj_client_platform(runtime->client), "cpu") != 0)
    return pj_error(PJ_UNIMPLEMENTED, "the memory of a %s device cannot be read in place",
                    pj_client_platform(runtime->client));
  pthread_mutex_lock(&device->lock);
  pj_device_drain(device);
  pj_status status = compute(device, value);
  pthread_mutex_unlock(&device->lock);
  PJ_TRY(status);
  void *token = pj_block(runtime);
  status = pj_buffer_wait_unless(runtime->client, value->buffer, runtime->hooks.interrupted);
  pj_unblock(runtime, token);
  PJ_TRY(pj_value_keep_error(device, value, status));
  value->ready = true;
  uintptr_t address;
  PJ_TRY(pj_buffer_pointer(runtime->client, value->buffer, &address));
  *out_pointer = (const void *)address;
  return NULL;
}

pj_status pj_value_to_device(pj_device *from, pj_value *value, pj_device *to, pj_value **out_value) {
  pj_runtime *runtime = from->runtime;
  PJ_TRY(pj_runtime_check(runtime));
  pthread_mutex_lock(&from->lock);
  pj_status status = compute(from, value);
  pthread_mutex_unlock(&from->lock);
  PJ_TRY(status);
  pthread_mutex_lock(&to->lock);
  pj_device_drain(to);
  status = pj_device_reserve_memory(to, value->array_bytes);
  pthread_mutex_unlock(&to->lock);
  PJ_TRY(status);
  pj_buffer *buffer;
  PJ_TRY(pj_buffer_copy_to_device(runtime->client, value->buffer, to->index, &buffer));
  pthread_mutex_lock(&to->lock);
  *out_value = pj_value_create_ready(to, value->type, value->array, value->room, buffer);
  pthread_mutex_unlock(&to->lock);
  return NULL;
}
