// At most `count` compile workers, started on first need and shared by any number of threads.
#ifndef PJ_RUN_WORKER_POOL_H_
#define PJ_RUN_WORKER_POOL_H_

#include "run/worker.h"

typedef struct pj_worker_pool pj_worker_pool;

// Copies all that it is given. `settings` are encoded (run/worker_protocol.h).
pj_status pj_worker_pool_create(const char *worker_path, const char *plugin_path, const uint8_t *settings,
                                size_t settings_size, int count, pj_worker_pool **out_pool);

// Ends the workers; no compile may be under way. NULL is allowed.
void pj_worker_pool_destroy(pj_worker_pool *pool);

// As pj_worker_compile, with a worker of the pool; a worker that died is replaced on the next need.
pj_status pj_worker_pool_compile(pj_worker_pool *pool, const char *code, size_t code_size, const uint8_t *options,
                                 size_t options_size, const pj_patience *patience, uint8_t **out_bytes,
                                 size_t *out_size, pj_worker_outcome *out_outcome);

// In a child after fork: forgets the workers, which stay the parent's.
void pj_worker_pool_after_fork(pj_worker_pool *pool);

#endif
