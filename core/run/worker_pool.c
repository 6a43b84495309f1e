#include "run/worker_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Loading a plugin takes 0.1 to 0.3 s from a warm disk; a cold network disk may need a minute for its 200 MB.
enum { START_LIMIT_MS = 120000 };

typedef struct slot {
  pj_worker *worker;  // NULL: none started
  bool busy;          // owned by the thread that set it
  bool ready;         // has loaded the plugin
  int64_t started_ms;
} slot;

struct pj_worker_pool {
  char *worker_path;
  char *plugin_path;
  uint8_t *settings;
  size_t settings_size;
  pthread_mutex_t mutex;  // guards `busy`, and all of a slot that is not busy
  pthread_cond_t freed;
  int count;
  slot slots[];
};

static void make_locks(pj_worker_pool *pool) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->freed, &attributes);
  pthread_condattr_destroy(&attributes);
}

pj_status pj_worker_pool_create(const char *worker_path, const char *plugin_path, const uint8_t *settings,
                                size_t settings_size, int count, pj_worker_pool **out_pool) {
  pj_worker_pool *pool = calloc(1, sizeof *pool + (size_t)count * sizeof *pool->slots);
  if (!pool) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  pool->count = count;
  make_locks(pool);
  pool->worker_path = strdup(worker_path);
  pool->plugin_path = strdup(plugin_path);
  pool->settings = malloc(settings_size);
  if (!pool->worker_path || !pool->plugin_path || !pool->settings) {
    pj_worker_pool_destroy(pool);
    return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  }
  memcpy(pool->settings, settings, settings_size);
  pool->settings_size = settings_size;
  *out_pool = pool;
  return NULL;
}

void pj_worker_pool_destroy(pj_worker_pool *pool) {
  if (!pool) return;
  for (int i = 0; i < pool->count; ++i) pj_worker_end(pool->slots[i].worker);
  pthread_cond_destroy(&pool->freed);
  pthread_mutex_destroy(&pool->mutex);
  free(pool->worker_path);
  free(pool->plugin_path);
  free(pool->settings);
  free(pool);
}

void pj_worker_pool_after_fork(pj_worker_pool *pool) {
  for (int i = 0; i < pool->count; ++i) {
    if (pool->slots[i].worker) pj_worker_forget(pool->slots[i].worker);
    pool->slots[i] = (slot){0};
  }
  make_locks(pool);  // another thread of the parent may have held them; it does not exist here
}

// Takes a slot that is not busy: a ready worker first, then one that is still loading, then an empty place.
static slot *take(pj_worker_pool *pool, bool only_ready) {
  slot *best = NULL;
  for (int i = 0; i < pool->count; ++i) {
    slot *s = &pool->slots[i];
    if (s->busy) continue;
    if (s->ready) {
      best = s;
      break;
    }
    if (!only_ready && (!best || (s->worker && !best->worker))) best = s;
  }
  if (best) best->busy = true;
  return best;
}

static void give_back(pj_worker_pool *pool, slot *s) {
  pthread_mutex_lock(&pool->mutex);
  s->busy = false;
  pthread_cond_signal(&pool->freed);
  pthread_mutex_unlock(&pool->mutex);
}

static void clear(slot *s) {
  pj_worker_end(s->worker);
  s->worker = NULL;
  s->ready = false;
}

// Waits one tick for the worker of a slot that we own, starting it where there is none.
static pj_status prepare(pj_worker_pool *pool, slot *s) {
  if (s->ready && pj_worker_is_idle(s->worker)) return NULL;
  if (s->ready) clear(s);  // it died, or was killed, while nobody used it
  if (!s->worker) {
    PJ_TRY(pj_worker_start(pool->worker_path, pool->plugin_path, pool->settings, pool->settings_size, &s->worker));
    s->started_ms = pj_now_ms();
  }
  pj_status status = pj_worker_greet(s->worker, PJ_TICK_MS, &s->ready);
  if (!status && !s->ready && pj_now_ms() - s->started_ms > START_LIMIT_MS)
    status = pj_error(PJ_DEADLINE_EXCEEDED, "cannot start a compile worker: it was not ready after %d ms",
                      START_LIMIT_MS);
  if (status) clear(s);
  return status;
}

static void wait_for_a_slot(pj_worker_pool *pool) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += PJ_TICK_MS * 1000000L;
  if (until.tv_nsec >= 1000000000L) {
    until.tv_nsec -= 1000000000L;
    ++until.tv_sec;
  }
  pthread_cond_timedwait(&pool->freed, &pool->mutex, &until);
}

// Gives a slot with a ready worker, owned by the caller. While its own worker loads, the caller also looks for one that
// becomes free; the loading one is then left for whoever comes next.
static pj_status acquire(pj_worker_pool *pool, const pj_patience *patience, slot **out_slot,
                         pj_worker_outcome *out_outcome) {
  slot *own = NULL;
  for (;;) {
    pthread_mutex_lock(&pool->mutex);
    slot *taken = take(pool, own != NULL);
    if (!taken && !own) {
      wait_for_a_slot(pool);
      taken = take(pool, false);
    }
    pthread_mutex_unlock(&pool->mutex);
    if (taken) {
      if (own) give_back(pool, own);
      own = taken;
    }
    if (own) {
      pj_status status = prepare(pool, own);
      if (!status && own->ready) {
        *out_slot = own;
        return NULL;
      }
      if (status) {
        give_back(pool, own);
        *out_outcome = PJ_WORKER_UNUSABLE;
        return status;
      }
    }
    if (pj_cancelled(patience)) {
      if (own) give_back(pool, own);
      *out_outcome = PJ_WORKER_NOT_ASKED;
      return pj_error(PJ_CANCELLED, "the compile was cancelled");
    }
  }
}

pj_status pj_worker_pool_compile(pj_worker_pool *pool, const char *code, size_t code_size, const uint8_t *options,
                                 size_t options_size, const pj_patience *patience, uint8_t **out_bytes,
                                 size_t *out_size, pj_worker_outcome *out_outcome) {
  slot *own = NULL;
  PJ_TRY(acquire(pool, patience, &own, out_outcome));
  pj_status status = pj_worker_compile(own->worker, code, code_size, options, options_size, patience, out_bytes,
                                       out_size, out_outcome);
  if (*out_outcome == PJ_WORKER_DIED) clear(own);
  give_back(pool, own);
  return status;
}
