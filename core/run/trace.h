// Collecting and telling of spans (pj/trace.h) within run/.
#ifndef PJ_RUN_TRACE_H_
#define PJ_RUN_TRACE_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/map.h"
#include "pj/pjrt.h"
#include "pj/trace.h"

typedef struct pj_device pj_device;

enum { PJ_TRACE_COLLECTS = 1 << PJ_SPAN_KINDS };

typedef struct pj_trace {
  atomic_uint on;              // kinds that are told, and PJ_TRACE_COLLECTS
  pthread_mutex_t lock;        // guards what follows; a leaf
  pthread_cond_t changed;      // signalled when `running` falls
  pj_span *spans;
  size_t count, capacity, limit;
  uint64_t dropped;
  uint32_t start;              // number of the last start: an execution that began before it is not collected
  uint32_t running;            // executions whose end the plugin is to tell
  pj_map texts;                // the strings of spans and explanations, each once
} pj_trace;

void pj_trace_init(pj_trace *trace);
// Waits for the executions that are under way: the plugin calls back into the trace.
void pj_trace_clear(pj_trace *trace);
// In a child after fork: nothing is recorded any more.
void pj_trace_after_fork(pj_trace *trace);

static inline bool pj_trace_collects(const pj_trace *trace) {
  return atomic_load_explicit(&trace->on, memory_order_relaxed) & PJ_TRACE_COLLECTS;
}

static inline bool pj_trace_tells(const pj_trace *trace, pj_span_kind kind) {
  return atomic_load_explicit(&trace->on, memory_order_relaxed) & 1u << kind;
}

// The same text, which lives as long as the runtime; "" for NULL and without host memory.
const char *pj_trace_text(pj_trace *trace, const char *text);
// The user's source line. Asks a hook, so no lock may be held.
const char *pj_trace_line(pj_runtime *runtime);

// A span of the calling thread that begins now, of the host unless `device` says otherwise.
pj_span pj_trace_begin(pj_span_kind kind, const pj_device *device);
// Collects a span that has ended, while spans are collected.
void pj_trace_collect(pj_trace *trace, const pj_span *span);
// It ends now, and is collected.
void pj_trace_end(pj_trace *trace, pj_span *span);
// The call has returned; the execution ends when `result` is computed. Where the plugin cannot call back, now.
void pj_trace_end_when_ready(pj_device *device, pj_span *span, pj_buffer *result);

#endif
