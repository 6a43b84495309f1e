#include "run/trace.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/tick.h"
#include "run/internal.h"

static _Thread_local uint64_t correlation_of_thread;

void pj_trace_correlate(uint64_t correlation) { correlation_of_thread = correlation; }

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void pj_trace_init(pj_trace *trace) {
  pthread_mutex_init(&trace->lock, NULL);
  pthread_cond_init(&trace->changed, NULL);
}

void pj_trace_clear(pj_trace *trace) {
  pthread_mutex_lock(&trace->lock);
  while (trace->running) pthread_cond_wait(&trace->changed, &trace->lock);
  pthread_mutex_unlock(&trace->lock);
  free(trace->spans);
  pj_map_clear(&trace->texts, free);
  pthread_mutex_destroy(&trace->lock);
  pthread_cond_destroy(&trace->changed);
}

void pj_trace_after_fork(pj_trace *trace) {
  atomic_store(&trace->on, 0);
  pj_trace_init(trace);
  trace->running = 0;
}

// ---- strings --------------------------------------------------------------------------------------------------------

const char *pj_trace_text(pj_trace *trace, const char *text) {
  enum { WORDS = 64 };
  if (!text || !*text) return "";
  uint64_t key[WORDS] = {0};
  size_t length = strnlen(text, sizeof key - 1), words = length / sizeof *key + 1;
  memcpy(key, text, length);
  uint64_t hash = pj_hash_words(key, words);
  pthread_mutex_lock(&trace->lock);
  char *kept = pj_map_find(&trace->texts, hash, key, (uint32_t)words);
  if (!kept && (kept = strndup(text, length)) && !pj_map_add(&trace->texts, hash, key, (uint32_t)words, kept)) {
    free(kept);
    kept = NULL;
  }
  pthread_mutex_unlock(&trace->lock);
  return kept ? kept : "";
}

const char *pj_trace_line(pj_runtime *runtime) {
  char line[300] = "";
  if (runtime->hooks.source_line) runtime->hooks.source_line(line, sizeof line);
  return pj_trace_text(&runtime->trace, line);
}

// ---- spans ----------------------------------------------------------------------------------------------------------

pj_span pj_trace_begin(pj_span_kind kind, const pj_device *device) {
  int64_t begin = now();
  return (pj_span){.kind = kind, .device = device ? device->index : -1, .thread = gettid(),
                   .correlation = correlation_of_thread, .begin = begin, .called = begin, .text = "", .line = "",
                   .reason = ""};
}

// The lock is held.
static void collect(pj_trace *trace, const pj_span *span) {
  if (trace->count == trace->capacity && trace->count < trace->limit) {
    size_t capacity = trace->capacity ? 2 * trace->capacity : 1024;
    if (capacity > trace->limit) capacity = trace->limit;
    pj_span *grown = realloc(trace->spans, capacity * sizeof *grown);
    if (grown) {
      trace->spans = grown;
      trace->capacity = capacity;
    }
  }
  if (trace->count < trace->capacity) trace->spans[trace->count++] = *span;
  else ++trace->dropped;
}

void pj_trace_collect(pj_trace *trace, const pj_span *span) {
  pthread_mutex_lock(&trace->lock);
  if (pj_trace_collects(trace)) collect(trace, span);
  pthread_mutex_unlock(&trace->lock);
}

void pj_trace_end(pj_trace *trace, pj_span *span) {
  span->end = span->returned = now();
  pj_trace_collect(trace, span);
}

typedef struct execution {
  pj_trace *trace;
  uint32_t start;
  pj_span span;
} execution;

static void execution_ended(pj_status failed, void *argument) {
  execution *e = argument;
  pj_trace *trace = e->trace;
  pj_status_free(failed);  // told to whoever reads the result
  e->span.end = now();
  pthread_mutex_lock(&trace->lock);
  if (e->start == trace->start) collect(trace, &e->span);
  --trace->running;
  pthread_cond_broadcast(&trace->changed);
  pthread_mutex_unlock(&trace->lock);
  free(e);
}

void pj_trace_end_when_ready(pj_device *device, pj_span *span, pj_buffer *result) {
  pj_trace *trace = &device->runtime->trace;
  execution *e = malloc(sizeof *e);
  if (!e) {
    pj_trace_end(trace, span);
    return;
  }
  span->returned = now();
  pthread_mutex_lock(&trace->lock);
  bool collects = pj_trace_collects(trace);
  *e = (execution){trace, trace->start, *span};
  trace->running += collects;
  pthread_mutex_unlock(&trace->lock);
  if (!collects) {
    free(e);
    return;
  }
  pj_client *client = device->runtime->client;
  pj_event *computed;
  pj_status status = pj_buffer_ready_event(client, result, &computed);
  if (!status) {
    status = pj_event_on_ready(client, computed, execution_ended, e);
    pj_event_destroy(client, computed);
  }
  if (status) execution_ended(status, e);  // the plugin cannot call back
}

// ---- start and stop -------------------------------------------------------------------------------------------------

void pj_trace_start(pj_runtime *runtime, size_t limit) {
  pj_trace *trace = &runtime->trace;
  pthread_mutex_lock(&trace->lock);
  free(trace->spans);
  trace->spans = NULL;
  trace->count = trace->capacity = 0;
  trace->limit = limit;
  trace->dropped = 0;
  ++trace->start;
  atomic_fetch_or(&trace->on, PJ_TRACE_COLLECTS);
  pthread_mutex_unlock(&trace->lock);
}

static int by_end(const void *a, const void *b) {
  const pj_span *x = a, *y = b;
  return (x->end > y->end) - (x->end < y->end);
}

// A device's work has one order: an execution that was asked for early begins when the one before it is done.
static void let_executions_follow(pj_trace *trace, int device_count) {
  int64_t *done = calloc((size_t)device_count, sizeof *done);
  if (trace->count) qsort(trace->spans, trace->count, sizeof *trace->spans, by_end);
  for (size_t i = 0; i < trace->count && done; ++i) {
    pj_span *span = &trace->spans[i];
    if (span->kind != PJ_SPAN_EXECUTE) continue;
    if (span->begin < done[span->device]) span->begin = done[span->device];
    done[span->device] = span->end;
  }
  free(done);
}

void pj_trace_stop(pj_runtime *runtime) {
  pj_trace *trace = &runtime->trace;
  const pj_hooks *hooks = &runtime->hooks;
  void *token = pj_block(runtime);
  pthread_mutex_lock(&trace->lock);
  atomic_fetch_and(&trace->on, ~(unsigned)PJ_TRACE_COLLECTS);
  while (trace->running) {
    pj_wait_a_tick(&trace->changed, &trace->lock);
    if (!trace->running || !hooks->interrupted) continue;
    pthread_mutex_unlock(&trace->lock);
    bool stop = hooks->interrupted();
    pthread_mutex_lock(&trace->lock);
    if (stop) break;
  }
  if (trace->running) ++trace->start;  // interrupted: they end while the spans are read
  let_executions_follow(trace, runtime->device_count);
  pthread_mutex_unlock(&trace->lock);
  pj_unblock(runtime, token);
}

const pj_span *pj_trace_spans(const pj_runtime *runtime, size_t *out_count, uint64_t *out_dropped) {
  *out_count = runtime->trace.count;
  *out_dropped = runtime->trace.dropped;
  return runtime->trace.spans;
}

// ---- telling --------------------------------------------------------------------------------------------------------

void pj_trace_tell(pj_runtime *runtime, uint32_t kinds) {
  pj_trace *trace = &runtime->trace;
  if (!runtime->hooks.told) return;
  pthread_mutex_lock(&trace->lock);
  unsigned collects = atomic_load(&trace->on) & PJ_TRACE_COLLECTS;
  atomic_store(&trace->on, collects | (kinds & (PJ_TRACE_COLLECTS - 1)));
  pthread_mutex_unlock(&trace->lock);
}

bool pj_trace_is_told(const pj_runtime *runtime, pj_span_kind kind) { return pj_trace_tells(&runtime->trace, kind); }

void pj_trace_fallback(pj_runtime *runtime, const char *text) {
  if (!pj_trace_tells(&runtime->trace, PJ_SPAN_FALLBACK)) return;
  pj_span span = pj_trace_begin(PJ_SPAN_FALLBACK, NULL);
  span.end = span.begin;
  span.text = pj_trace_text(&runtime->trace, text);
  span.line = pj_trace_line(runtime);
  runtime->hooks.told(&span);
}
