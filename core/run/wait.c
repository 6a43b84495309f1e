// Waiting: for values, for runs whose results nobody holds any more, for flags of indices.
#include <stdlib.h>

#include "run/internal.h"

// ---- flags of indices -----------------------------------------------------------------------------------------------

// PyTorch's gather and scatter say RuntimeError where its other index ops say IndexError.
static pj_code code_of(const char *op) {
  bool plain = !strncmp(op, "aten::gather", 12) || !strncmp(op, "aten::scatter", 13);
  return plain ? PJ_INVALID_ARGUMENT : PJ_OUT_OF_RANGE;
}

static pj_status read_check(pj_runtime *runtime, const pj_check *check) {
  bool flags[256];
  bool *many = check->program->check_count > sizeof flags ? malloc(check->program->check_count) : NULL;
  bool *read = many ? many : flags;
  pj_status status = pj_buffer_to_host(runtime->client, check->flags, read, check->program->check_count);
  for (uint32_t i = 0; i < check->program->check_count && !status; ++i)
    if (read[i])
      status = pj_error(code_of(check->program->checks[i]), "index out of range in %s", check->program->checks[i]);
  free(many);
  return status;
}

pj_status pj_device_check_indices(pj_device *device, bool wait) {
  pj_runtime *runtime = device->runtime;
  pj_check *checks = device->checks;
  uint32_t count = device->check_count;
  pj_status error = device->deferred;
  device->deferred = NULL;
  device->checks = NULL;
  device->check_count = device->check_capacity = 0;
  pthread_mutex_unlock(&device->lock);
  void *token = wait ? pj_block(runtime) : NULL;
  uint32_t left = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (!wait && !pj_buffer_is_ready(runtime->client, checks[i].flags)) {
      checks[left++] = checks[i];
      continue;
    }
    pj_status status = read_check(runtime, &checks[i]);
    pj_buffer_destroy(runtime->client, checks[i].flags);
    if (error) pj_status_free(status);
    else error = status;
  }
  if (wait) pj_unblock(runtime, token);
  pthread_mutex_lock(&device->lock);
  for (uint32_t i = 0; i < left; ++i) {
    pj_reserve(&device->checks, device->check_count, 1, &device->check_capacity, sizeof *device->checks);
    device->checks[device->check_count++] = checks[i];
  }
  free(checks);
  return error;
}

pj_status pj_value_keep_error(pj_device *device, pj_value *value, pj_status status) {
  if (!status || pj_status_code(status) == PJ_CANCELLED) return status;
  pthread_mutex_lock(&device->lock);
  if (!value->error) value->error = pj_status_copy(status);
  pthread_mutex_unlock(&device->lock);
  return status;
}

// ---- values and runs ------------------------------------------------------------------------------------------------

// Live values of runs up to `point` that are not known to be computed, retained. The lock is held.
static pj_value **unready(pj_device *device, uint64_t point, uint32_t *out_count) {
  pj_value **values = NULL;
  uint32_t count = 0, capacity = 0;
  for (pj_value *v = device->live.next; v != &device->live; v = v->next) {
    if (!v->buffer || v->ready || v->point > point || !pj_value_retain_live(v)) continue;
    pj_reserve(&values, count, 1, &capacity, sizeof *values);
    values[count++] = v;
  }
  *out_count = count;
  return values;
}

void pj_run_started(pj_device *device, pj_buffer *result) {
  pj_client *client = device->runtime->client;
  uint32_t done = 0;  // the first ones end first: what is not in order is kept a little longer
  while (done < device->run_count && pj_event_is_ready(client, device->runs[done].end))
    pj_event_destroy(client, device->runs[done++].end);
  device->run_count -= done;
  if (done) memmove(device->runs, device->runs + done, device->run_count * sizeof *device->runs);
  pj_event *end;
  pj_status status = pj_buffer_ready_event(client, result, &end);
  pj_status_free(status);  // the results have it too
  if (status) return;
  pj_reserve(&device->runs, device->run_count, 1, &device->run_capacity, sizeof *device->runs);
  device->runs[device->run_count++] = (pj_run){end, device->point};
}

// The runs up to `point`, taken off the device, in order. The lock is held.
static pj_run *take_runs(pj_device *device, uint64_t point, uint32_t *out_count) {
  pj_run *runs = NULL;
  uint32_t count = 0, capacity = 0;
  while (count < device->run_count && device->runs[count].point <= point) ++count;
  pj_reserve(&runs, 0, count, &capacity, sizeof *runs);
  if (count) memcpy(runs, device->runs, count * sizeof *runs);
  device->run_count -= count;
  if (count) memmove(device->runs, device->runs + count, device->run_count * sizeof *device->runs);
  *out_count = count;
  return runs;
}

// Puts runs that were not waited for back in front.
static void return_runs(pj_device *device, const pj_run *runs, uint32_t count) {
  if (!count) return;
  pthread_mutex_lock(&device->lock);
  pj_reserve(&device->runs, device->run_count, count, &device->run_capacity, sizeof *device->runs);
  memmove(device->runs + count, device->runs, device->run_count * sizeof *device->runs);
  memcpy(device->runs, runs, count * sizeof *runs);
  device->run_count += count;
  pthread_mutex_unlock(&device->lock);
}

// The first error, but CANCELLED before all others.
static void add_error(pj_status *error, pj_status status) {
  if (*error && pj_status_code(status) != PJ_CANCELLED) {
    pj_status_free(status);
    return;
  }
  pj_status_free(*error);
  *error = status;
}

static pj_status wait_for(pj_device *device, uint64_t point) {
  pj_runtime *runtime = device->runtime;
  pj_client *client = runtime->client;
  pthread_mutex_lock(&device->lock);
  pj_device_drain(device);
  uint32_t count, run_count;
  pj_value **values = unready(device, point, &count);
  pj_run *runs = take_runs(device, point, &run_count);
  pthread_mutex_unlock(&device->lock);
  pj_status error = NULL;
  bool cancelled = false;
  void *token = count || run_count ? pj_block(runtime) : NULL;
  for (uint32_t i = 0; i < count; ++i) {
    if (!cancelled) {
      pj_status status = pj_buffer_wait_unless(client, values[i]->buffer, runtime->hooks.interrupted);
      status = pj_value_keep_error(device, values[i], status);
      cancelled = pj_status_code(status) == PJ_CANCELLED;
      if (!cancelled) values[i]->ready = true;
      if (status) add_error(&error, status);
    }
    pj_value_release(values[i]);
  }
  uint32_t waited = 0;
  for (; waited < run_count && !cancelled; ++waited) {
    pj_status status = pj_event_wait_unless(client, runs[waited].end, runtime->hooks.interrupted);
    cancelled = pj_status_code(status) == PJ_CANCELLED;
    if (status) add_error(&error, status);
    if (cancelled) break;
    pj_event_destroy(client, runs[waited].end);
  }
  if (count || run_count) pj_unblock(runtime, token);
  return_runs(device, runs + waited, run_count - waited);
  free(values);
  free(runs);
  return error;
}

// ---- the device -----------------------------------------------------------------------------------------------------

pj_status pj_device_synchronize(pj_device *device, bool wait) {
  PJ_TRY(pj_runtime_check(device->runtime));
  pthread_mutex_lock(&device->lock);
  pj_status status = pj_device_cut(device, wait ? "the device is synchronized" : "a step has ended");
  pthread_mutex_unlock(&device->lock);
  PJ_TRY(status);
  if (!wait) return NULL;
  PJ_TRY(wait_for(device, UINT64_MAX));
  pthread_mutex_lock(&device->lock);
  pj_device_drain(device);
  status = pj_device_check_indices(device, true);
  pthread_mutex_unlock(&device->lock);
  return status;
}

static const char EVENT[] = "an event is waited for";

uint64_t pj_device_record(pj_device *device) {
  pthread_mutex_lock(&device->lock);
  uint64_t point = device->point + (device->region->queued_count ? 1 : 0);
  pthread_mutex_unlock(&device->lock);
  return point;
}

pj_status pj_device_wait(pj_device *device, uint64_t point) {
  PJ_TRY(pj_runtime_check(device->runtime));
  pthread_mutex_lock(&device->lock);
  bool later = point > device->point || (point == device->point && device->running);
  pj_status status = later ? pj_device_cut(device, EVENT) : NULL;
  pthread_mutex_unlock(&device->lock);
  PJ_TRY(status);
  return wait_for(device, point);
}

bool pj_device_reached(pj_device *device, uint64_t point) {
  if (atomic_load(&device->runtime->forked)) return false;
  pthread_mutex_lock(&device->lock);
  if (point > device->point || (point == device->point && device->running)) pj_device_cut_quietly(device, EVENT);
  pj_device_drain(device);
  uint32_t count;
  pj_value **values = unready(device, point, &count);
  bool reached = true;
  for (uint32_t i = 0; i < device->run_count && device->runs[i].point <= point && reached; ++i)
    reached = pj_event_is_ready(device->runtime->client, device->runs[i].end);
  pthread_mutex_unlock(&device->lock);
  for (uint32_t i = 0; i < count; ++i) {
    if (pj_buffer_is_ready(device->runtime->client, values[i]->buffer)) values[i]->ready = true;
    else reached = false;
    pj_value_release(values[i]);
  }
  free(values);
  return reached;
}
