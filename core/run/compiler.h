// From StableHLO text to a loaded executable, by the cheapest way: the disk cache, a compile worker, the own process.
//
// The compiler runs in processes of its own (core/worker): XLA's compilers abort on some valid programs, and an abort,
// a hang or a compile that exceeds its memory must cost one exception, never the user's process.
#ifndef PJ_RUN_COMPILER_H_
#define PJ_RUN_COMPILER_H_

#include "pj/pjrt.h"

typedef struct pj_compiler pj_compiler;

typedef struct pj_compiler_options {
  const char *cache_directory;   // NULL or "": no disk cache
  const char *shared_cache_directory;  // for programs that the cache does not hold; only read. NULL or "": none
  uint64_t cache_limit_bytes;    // oldest entries go when the directory exceeds it; 0 = 4 GiB
  const char *worker_path;       // the program pj-worker; NULL or "": compile in the own process
  int worker_count;              // at most this many at once, started on first need; 0 = 2
  int timeout_ms;                // of one compile; 0 = 600 000
  uint64_t worker_memory_bytes;  // limit of a worker's writable memory beyond what it has after loading; 0 = none
  const char *worker_topology;   // workers compile for this topology of the plugin; NULL or "": for a client of their
                                 // own, which a plugin whose devices belong to one process (libtpu) cannot give them
  const pj_option *worker_options;  // of the workers' client or topology
  size_t worker_option_count;
} pj_compiler_options;

typedef enum pj_compiled_by { PJ_COMPILED_BY_WORKER, PJ_COMPILED_IN_PROCESS, PJ_LOADED_FROM_DISK } pj_compiled_by;

typedef struct pj_compile_report {
  pj_compiled_by by;
  double milliseconds;   // wall time of the whole request
  int worker_failures;   // workers that died or were killed for this request
} pj_compile_report;

// `client` must outlive the compiler; of `options` all is copied. Errors: NOT_FOUND (no program at worker_path),
// INVALID_ARGUMENT (a negative count or limit).
pj_status pj_compiler_create(pj_client *client, const pj_compiler_options *options, pj_compiler **out_compiler);

// Ends the workers; no pj_compiler_get may be under way. NULL is allowed.
void pj_compiler_destroy(pj_compiler *compiler);

// Gives the executable of this program and these encoded compile options; blocks, any number of threads at once.
// `cancelled` (may be NULL) is polled about every 20 ms on the calling thread while a worker starts or compiles; true
// ends the wait with PJ_CANCELLED, and the compile with it. `out_report` may be NULL; it is filled on errors too.
// Errors: the compiler's own (its sentence kept), ABORTED (the worker died: says the signal and quotes the end of its
// stderr), DEADLINE_EXCEEDED (the limit and how to raise it), RESOURCE_EXHAUSTED (the worker's memory), CANCELLED,
// FAILED_PRECONDITION (in a forked child that has not called pj_compiler_after_fork). A program that killed or outran
// a worker is remembered as bad for this process: asking again fails at once with the same sentence. Trouble with the
// cache directory (full, unwritable, foreign owner, damaged entry) is never an error: it is logged once and the
// compile goes on without it.
pj_status pj_compiler_get(pj_compiler *compiler, const char *code, size_t code_size, const uint8_t *options,
                          size_t options_size, bool (*cancelled)(void *), void *context, pj_executable **out_executable,
                          pj_compile_report *out_report);

// Why programs are compiled in the own process although there is a worker_path (a worker cannot start, or this plugin
// cannot load what another process compiled); NULL when that is not so. Owned by the compiler.
const char *pj_compiler_own_process_reason(pj_compiler *compiler);

// In a child after fork, before any other use: forgets the workers without touching them; the child starts its own.
void pj_compiler_after_fork(pj_compiler *compiler);

#endif
