// One compile worker: a child process that runs core/worker, and the conversation with it. A worker is used by one
// thread at a time, which drives it with poll(); no thread of ours and no lock is behind it.
#ifndef PJ_RUN_WORKER_H_
#define PJ_RUN_WORKER_H_

#include "run/worker_protocol.h"

typedef struct pj_worker pj_worker;

// What a thread is ready to wait for.
typedef struct pj_patience {
  int timeout_ms;               // of the compile itself
  bool (*cancelled)(void *);    // polled every PJ_TICK_MS on the waiting thread; NULL: never
  void *context;
} pj_patience;

enum { PJ_TICK_MS = 20 };

typedef enum pj_worker_outcome {
  PJ_WORKER_ANSWERED,   // with bytes, or with the compiler's own error
  PJ_WORKER_DIED,       // of this program, or was stopped because of it; it can only be ended
  PJ_WORKER_UNUSABLE,   // no worker can be had, or this plugin cannot serialize; the error says why
  PJ_WORKER_NOT_ASKED,  // cancelled while waiting for a worker
} pj_worker_outcome;

bool pj_cancelled(const pj_patience *patience);

// Milliseconds of the monotonic clock.
int64_t pj_now_ms(void);

// Starts the program `path` and tells it to load the plugin; returns without waiting for that. The caller ends the
// worker.
pj_status pj_worker_start(const char *path, const char *plugin_path, const uint8_t *settings, size_t settings_size,
                          pj_worker **out_worker);

// Waits up to `timeout_ms` for a started worker to be ready. Errors: what it said (no such plugin, no client), or how
// it died; the worker can then only be ended.
pj_status pj_worker_greet(pj_worker *worker, int timeout_ms, bool *out_ready);

// Whether a ready worker that should be idle still is: alive and silent.
bool pj_worker_is_idle(const pj_worker *worker);

// Compiles; the executable's bytes are malloc'ed and the caller's. Errors are those of pj_compiler_get.
pj_status pj_worker_compile(pj_worker *worker, const char *code, size_t code_size, const uint8_t *options,
                            size_t options_size, const pj_patience *patience, uint8_t **out_bytes, size_t *out_size,
                            pj_worker_outcome *out_outcome);

// Kills the process and frees the worker. NULL is allowed.
void pj_worker_end(pj_worker *worker);

// In a child after fork: frees the worker and leaves the process to the parent.
void pj_worker_forget(pj_worker *worker);

#endif
