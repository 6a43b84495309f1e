#include "objects.h"

#include <time.h>

fake_state state = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .default_devices = 2,
                    .platform = "fake"};

void sleep_ms(int ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
  if (ms > 0) nanosleep(&time, NULL);
}

void count(int *counter, int by) {
  pthread_mutex_lock(&state.lock);
  *counter += by;
  pthread_mutex_unlock(&state.lock);
}

PJRT_Error *error_new(int code, const char *text) {
  PJRT_Error *error = calloc(1, sizeof *error);
  error->code = code;
  snprintf(error->text, sizeof error->text, "%s", text);
  count(&state.counts.errors, 1);
  return error;
}

completion *completion_new(void) {
  completion *c = calloc(1, sizeof *c);
  c->refs = 1;
  return c;
}

void completion_release_locked(completion *c) {
  if (--c->refs) return;
  free(c);
}

void complete(completion *c, int code, const char *text) {
  pthread_mutex_lock(&state.lock);
  c->done = true;
  c->code = code;
  if (code) snprintf(c->text, sizeof c->text, "%s", text);
  listener *first = c->listeners;
  c->listeners = NULL;
  pthread_cond_broadcast(&state.changed);
  pthread_mutex_unlock(&state.lock);
  while (first) {
    listener *next = first->next;
    first->callback(code ? error_new(code, text) : NULL, first->user_arg);
    free(first);
    first = next;
  }
}

storage *storage_new(size_t size) {
  pthread_mutex_lock(&state.lock);
  bool fits = !state.memory_limit || state.counts.bytes + (int64_t)size <= state.memory_limit;
  if (fits) state.counts.bytes += (int64_t)size;
  pthread_mutex_unlock(&state.lock);
  if (!fits) return NULL;
  storage *s = calloc(1, sizeof *s);
  s->refs = 1;
  s->size = size;
  s->bytes = malloc(size ? size : 1);
  s->ready = completion_new();
  return s;
}

PJRT_Error *out_of_memory(size_t size) {
  char text[160];
  snprintf(text, sizeof text, "Out of memory allocating %zu bytes on the fake device", size);
  return error_new(PJ_RESOURCE_EXHAUSTED, text);
}

void storage_release_locked(storage *s) {
  if (!s || --s->refs) return;
  state.counts.bytes -= (int64_t)s->size;
  completion_release_locked(s->ready);
  free(s->bytes);
  free(s);
}

void storage_release(storage *s) {
  pthread_mutex_lock(&state.lock);
  storage_release_locked(s);
  pthread_mutex_unlock(&state.lock);
}

void program_release(fake_program *p) {
  pthread_mutex_lock(&state.lock);
  bool last = !--p->refs;
  pthread_mutex_unlock(&state.lock);
  if (last) fake_program_free(p);
}

PJRT_Event *event_new(completion *c) {
  PJRT_Event *event = calloc(1, sizeof *event);
  pthread_mutex_lock(&state.lock);
  ++c->refs;
  ++state.counts.events;
  pthread_mutex_unlock(&state.lock);
  event->completion = c;
  return event;
}

PJRT_Buffer *buffer_new(storage *s, pj_dtype dtype, size_t rank, const int64_t *dims, PJRT_Device *device) {
  PJRT_Buffer *buffer = calloc(1, sizeof *buffer);
  *buffer = (PJRT_Buffer){.storage = s, .dtype = dtype, .rank = rank, .device = device};
  if (rank) memcpy(buffer->dims, dims, rank * sizeof *dims);
  count(&state.counts.buffers, 1);
  return buffer;
}
