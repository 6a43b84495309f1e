// What the device does, and when: collected for a profiler, and told as it happens for a log. Off, each place where
// something may be recorded costs one relaxed atomic load.
#ifndef PJ_TRACE_H_
#define PJ_TRACE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pj/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pj_runtime pj_runtime;

typedef enum pj_span_kind {
  PJ_SPAN_EXECUTE,    // an execution of a program
  PJ_SPAN_COMPILE,    // a program was compiled
  PJ_SPAN_LOAD,       // a compiled program was loaded from the disk cache
  PJ_SPAN_TO_DEVICE,  // host bytes became a value
  PJ_SPAN_TO_HOST,    // a value was read; the wait for it is not part of the span
  PJ_SPAN_REFUSED,    // only told: a region that the compiler refused goes on op by op
  PJ_SPAN_CUT,        // only told: queued ops are about to run
  PJ_SPAN_FALLBACK,   // only told: an op runs on the host (pj_trace_fallback)
  PJ_SPAN_KINDS,
} pj_span_kind;

// Strings live as long as the runtime; none is NULL.
typedef struct pj_span {
  pj_span_kind kind;
  int device;                // index; -1: the host
  int thread;                // of the caller, as the system numbers it (gettid)
  uint64_t correlation;      // of the caller: pj_trace_correlate
  int64_t begin, end;        // nanoseconds since 1970 (CLOCK_REALTIME). Of an execution: from its call, or the end of
                             // the one before it on the device, until the device is done
  int64_t called, returned;  // EXECUTE: the host's call
  const char *text;          // the op with its tensors, the ops of a region, or the type of an array: "f32[3,4]"
  const char *line;          // "file.py:12" of the user's code, or ""; of a region, that of its first op
  const char *reason;        // COMPILE, LOAD, REFUSED: why a program was needed (pj_explanation); EXECUTE, CUT: why the
                             // queue was cut
  uint64_t bytes;            // TO_DEVICE, TO_HOST
  uint32_t ops;              // EXECUTE, CUT: ops of the region
} pj_span;

// Forgets the spans collected before, and collects from now on: `limit` spans at most.
PJ_EXPORT void pj_trace_start(pj_runtime *runtime, size_t limit);
// Collects no more, and waits for the executions that are under way; an interrupt (pj_hooks) ends the wait.
PJ_EXPORT void pj_trace_stop(pj_runtime *runtime);
// The spans after a stop, by their ends, and how many more there were than the limit. They stay until the next start.
PJ_EXPORT const pj_span *pj_trace_spans(const pj_runtime *runtime, size_t *out_count, uint64_t *out_dropped);

// From now on spans of these kinds (bits 1 << kind) are told to hooks.told; EXECUTE, TO_DEVICE and TO_HOST are only
// collected.
PJ_EXPORT void pj_trace_tell(pj_runtime *runtime, uint32_t kinds);
// Whether the kind is told: for callers of pj_trace_fallback, whose text costs something.
PJ_EXPORT bool pj_trace_is_told(const pj_runtime *runtime, pj_span_kind kind);
PJ_EXPORT void pj_trace_fallback(pj_runtime *runtime, const char *text);

// What the calling thread does from now on carries this number: the profiler's own, of the op that it is in.
PJ_EXPORT void pj_trace_correlate(uint64_t correlation);

#ifdef __cplusplus
}
#endif
#endif
