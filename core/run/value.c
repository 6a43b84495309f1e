#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "run/internal.h"

static void copy_type(pj_type *to, const pj_type *from) {
  memcpy(to, from, offsetof(pj_type, dims) + (size_t)from->rank * sizeof from->dims[0]);
}

pj_value *pj_value_create(pj_device *device, const pj_type *type, const pj_type *array, int room, unsigned refs) {
  pj_value *v = malloc(sizeof *v + (room < 0 ? 1 : 2) * sizeof *v->type);
  if (!v) {
    fputs("torch-pjrt: out of host memory\n", stderr);
    abort();
  }
  atomic_init(&v->refs, refs);
  v->device = device;
  v->type = v->array = (pj_type *)(v + 1);
  copy_type(v->type, type);
  if (room >= 0) copy_type(++v->array, array);
  v->room = room;
  v->bytes = pj_type_bytes(type);
  v->array_bytes = room < 0 ? v->bytes : pj_type_bytes(array);
  v->buffer = NULL;
  v->error = NULL;
  v->region = 0;
  v->ref = 0;
  atomic_init(&v->ready, false);
  v->point = 0;
  v->next_dead = NULL;
  v->next = device->live.next;
  v->previous = &device->live;
  v->next->previous = v;
  device->live.next = v;
  return v;
}

static void take(pj_memory_count *count, uint64_t amount) {
  count->current += amount;
  count->allocated += amount;
  if (count->current > count->peak) count->peak = count->current;
}

static void give(pj_memory_count *count, uint64_t amount) {
  count->current -= amount;
  count->freed += amount;
}

void pj_value_set_buffer(pj_value *v, pj_buffer *buffer) {
  pj_device *device = v->device;
  v->buffer = buffer;
  v->point = device->point;
  take(&device->bytes, v->array_bytes);
  take(&device->values, 1);
}

void pj_value_free_buffer(pj_value *v) {
  pj_device *device = v->device;
  pj_buffer_destroy(device->runtime->client, v->buffer);
  v->buffer = NULL;
  give(&device->bytes, v->array_bytes);
  give(&device->values, 1);
}

pj_value *pj_value_create_ready(pj_device *device, const pj_type *type, const pj_type *array, int room, pj_buffer *buffer) {
  pj_value *v = pj_value_create(device, type, array, room, 1);
  pj_value_set_buffer(v, buffer);
  return v;
}

void pj_value_retain(pj_value *v) { atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed); }

bool pj_value_retain_live(pj_value *v) {
  unsigned refs = atomic_load_explicit(&v->refs, memory_order_relaxed);
  while (refs && !atomic_compare_exchange_weak_explicit(&v->refs, &refs, refs + 1, memory_order_relaxed, memory_order_relaxed)) {
  }
  return refs;
}

void pj_value_release(pj_value *v) {
  if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1) return;
  pj_device *device = v->device;
  pj_value *head = atomic_load_explicit(&device->dead, memory_order_relaxed);
  do v->next_dead = head;
  while (!atomic_compare_exchange_weak_explicit(&device->dead, &head, v, memory_order_release, memory_order_relaxed));
}

void pj_device_drain(pj_device *device) {
  if (!atomic_load_explicit(&device->dead, memory_order_relaxed) || atomic_load(&device->runtime->forked)) return;
  pj_value *v = atomic_exchange_explicit(&device->dead, NULL, memory_order_acquire);
  while (v) {
    pj_value *next = v->next_dead;
    v->previous->next = v->next;
    v->next->previous = v->previous;
    if (v->buffer) pj_value_free_buffer(v);
    pj_status_free(v->error);
    free(v);
    v = next;
  }
}

pj_dtype pj_value_dtype(const pj_value *v) { return v->type->dtype; }
int pj_value_rank(const pj_value *v) { return v->type->rank; }
const int64_t *pj_value_dims(const pj_value *v) { return v->type->dims; }
size_t pj_value_bytes(const pj_value *v) { return v->bytes; }

// ---- memory ---------------------------------------------------------------------------------------------------------

enum { LARGEST = 5 };

pj_status pj_device_reserve_memory(pj_device *device, uint64_t bytes) {
  if (!device->limit || device->bytes.current + bytes <= device->limit) return NULL;
  device->refusals += 1;
  const pj_value *largest[LARGEST] = {0};
  for (const pj_value *v = device->live.next; v != &device->live; v = v->next) {
    if (!v->buffer) continue;
    const pj_value *candidate = v;
    for (int i = 0; i < LARGEST; ++i)
      if (!largest[i] || candidate->array_bytes > largest[i]->array_bytes) {
        const pj_value *smaller = largest[i];
        largest[i] = candidate;
        candidate = smaller;
        if (!candidate) break;
      }
  }
  char list[600];
  pj_text text = pj_text_begin(list, sizeof list);
  for (int i = 0; i < LARGEST && largest[i]; ++i) {
    const pj_type *type = largest[i]->array;
    if (i) pj_text_add(&text, ", ");
    pj_text_add_type(&text, type->dtype, type->rank, type->dims);
    pj_text_add(&text, " %.2f MiB", (double)largest[i]->array_bytes / 1048576.0);
  }
  return pj_error(PJ_RESOURCE_EXHAUSTED,
                  "tpu:%d out of memory: tried to allocate %.2f MiB; %.2f MiB of the limit of %.2f MiB are in use. The "
                  "largest live tensors: %s. Free some of them, or raise the limit with "
                  "torch.tpu.set_per_process_memory_fraction",
                  device->index, (double)bytes / 1048576.0, (double)device->bytes.current / 1048576.0,
                  (double)device->limit / 1048576.0, *list ? list : "none");
}

static uint64_t total_memory(const pj_device *device) {
  if (atomic_load(&device->runtime->forked)) return 0;
  pj_memory_stats stats;
  pj_status untold = pj_client_memory_stats(device->runtime->client, device->index, &stats);
  bool told = !untold && stats.limit > 0;
  pj_status_free(untold);
  return told ? (uint64_t)stats.limit : (uint64_t)sysconf(_SC_PAGESIZE) * (uint64_t)sysconf(_SC_PHYS_PAGES);
}

// What is queued has no memory yet.
static void run_queued(pj_device *device) {
  if (atomic_load(&device->runtime->forked)) return;
  pthread_mutex_lock(&device->lock);
  pj_device_cut_quietly(device, "memory is counted");
  pthread_mutex_unlock(&device->lock);
}

void pj_device_memory_info(pj_device *device, pj_device_memory *out_memory) {
  run_queued(device);
  pthread_mutex_lock(&device->lock);
  pj_device_drain(device);
  *out_memory = (pj_device_memory){.bytes = device->bytes, .values = device->values, .refusals = device->refusals,
                                   .limit = device->limit, .total = total_memory(device)};
  pthread_mutex_unlock(&device->lock);
}

void pj_device_reset_peak_memory(pj_device *device) {
  run_queued(device);
  pthread_mutex_lock(&device->lock);
  pj_device_drain(device);
  device->bytes.peak = device->bytes.current;
  device->values.peak = device->values.current;
  pthread_mutex_unlock(&device->lock);
}

void pj_device_reset_memory_sums(pj_device *device) {
  run_queued(device);
  pthread_mutex_lock(&device->lock);
  pj_device_drain(device);
  device->bytes.allocated = device->bytes.freed = 0;
  device->values.allocated = device->values.freed = 0;
  device->refusals = 0;
  pthread_mutex_unlock(&device->lock);
}

size_t pj_device_live_values(pj_device *device, pj_live_value *out_values, size_t capacity) {
  size_t count = 0;
  pthread_mutex_lock(&device->lock);
  pj_device_drain(device);
  for (const pj_value *v = device->live.next; v != &device->live; v = v->next) {
    if (!v->buffer) continue;
    if (count < capacity) {
      pj_live_value *out = &out_values[count];
      *out = (pj_live_value){.dtype = v->type->dtype, .rank = v->type->rank, .bytes = v->array_bytes};
      memcpy(out->dims, v->type->dims, (size_t)v->type->rank * sizeof v->type->dims[0]);
    }
    count += 1;
  }
  pthread_mutex_unlock(&device->lock);
  return count;
}

void pj_device_set_memory_limit(pj_device *device, uint64_t bytes) {
  pthread_mutex_lock(&device->lock);
  device->limit = bytes;
  pthread_mutex_unlock(&device->lock);
}
