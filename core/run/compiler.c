#include "run/compiler.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "pj/cache.h"
#include "run/disk_cache.h"
#include "run/program_key.h"
#include "run/worker_pool.h"

_Static_assert((int)PJ_KEY_SIZE == (int)PJ_DISK_KEY_SIZE, "a program's key is the cache's key");

enum { DEFAULT_WORKER_COUNT = 2, DEFAULT_TIMEOUT_MS = 600000 };

// A program that killed or outran a worker.
typedef struct bad_program {
  uint8_t key[PJ_KEY_SIZE];
  pj_status status;
} bad_program;

struct pj_compiler {
  pj_client *client;
  int timeout_ms;
  pid_t owner;             // the process whose workers these are
  pj_disk_cache *cache;    // NULL: none
  pj_disk_cache *shared;   // only read; NULL: none
  uint8_t environment[PJ_KEY_SIZE];
  pj_worker_pool *pool;    // NULL: none asked for
  pthread_mutex_t mutex;   // guards what follows
  char *own_process;       // why workers are not used; NULL while they are
  bool foreign_refused;    // the plugin cannot load what another process compiled, so the disk is of no use
  bad_program *bad;
  size_t bad_count;
};

static pj_status out_of_memory(void) { return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory"); }

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

// ---- making ---------------------------------------------------------------------------------------------------------

// The plugin file's digest, from the cache (NULL: none) when the file has not changed since it was read.
static pj_status plugin_digest(pj_plugin *plugin, pj_disk_cache *cache, uint8_t out_digest[32]) {
  uint8_t key[PJ_KEY_SIZE], *bytes;
  size_t size;
  if (!cache) return pj_plugin_digest(plugin, out_digest);
  PJ_TRY(pj_plugin_file_key(plugin, key));
  if (pj_disk_cache_load(cache, key, &bytes, &size)) {
    bool whole = size == 32;
    if (whole) memcpy(out_digest, bytes, 32);
    free(bytes);
    if (whole) return NULL;
  }
  PJ_TRY(pj_plugin_digest(plugin, out_digest));
  pj_disk_cache_store(cache, key, out_digest, 32);
  return NULL;
}

// Says why a cache is not used. Frees the status.
static void go_on_without(pj_status status) {
  if (status) pj_log(PJ_LOG_WARNING, "%s; going on without it", pj_status_text(status));
  pj_status_free(status);
}

static void open_caches(pj_compiler *compiler, const pj_compiler_options *options) {
  const char *own = options->cache_directory, *shared = options->shared_cache_directory;
  uint64_t limit = options->cache_limit_bytes ? options->cache_limit_bytes : pj_cache_default_limit();
  if (own && *own) go_on_without(pj_disk_cache_open(own, limit, &compiler->cache));
  if (shared && *shared) go_on_without(pj_disk_cache_open_shared(shared, &compiler->shared));
  if (!compiler->cache && !compiler->shared) return;
  uint8_t digest[32];
  pj_status status = plugin_digest(pj_client_plugin(compiler->client), compiler->cache, digest);
  if (!status) {
    pj_environment_key(compiler->client, digest, compiler->environment);
    return;
  }
  go_on_without(status);
  pj_disk_cache_close(compiler->cache);
  pj_disk_cache_close(compiler->shared);
  compiler->cache = compiler->shared = NULL;
}

static pj_status make_pool(pj_compiler *compiler, const pj_compiler_options *options) {
  if (access(options->worker_path, X_OK))
    return pj_error(PJ_NOT_FOUND, "no compile worker: %s is not a program that can be run", options->worker_path);
  pj_worker_settings settings = {
      .memory_bytes = options->worker_memory_bytes,
      .topology = options->worker_topology,
      .options = options->worker_options,
      .option_count = options->worker_option_count,
  };
  uint8_t *bytes;
  size_t size;
  PJ_TRY(pj_worker_settings_encode(&settings, &bytes, &size));
  int count = options->worker_count ? options->worker_count : DEFAULT_WORKER_COUNT;
  pj_status status = pj_worker_pool_create(options->worker_path, pj_plugin_path(pj_client_plugin(compiler->client)),
                                           bytes, size, count, &compiler->pool);
  free(bytes);
  return status;
}

pj_status pj_compiler_create(pj_client *client, const pj_compiler_options *options, pj_compiler **out_compiler) {
  if (options->worker_count < 0 || options->timeout_ms < 0)
    return pj_error(PJ_INVALID_ARGUMENT, "worker_count %d and timeout_ms %d must not be negative",
                    options->worker_count, options->timeout_ms);
  pj_compiler *compiler = calloc(1, sizeof *compiler);
  if (!compiler) return out_of_memory();
  compiler->client = client;
  compiler->timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
  compiler->owner = getpid();
  pthread_mutex_init(&compiler->mutex, NULL);
  pj_status status = options->worker_path && *options->worker_path ? make_pool(compiler, options) : NULL;
  if (status) {
    pj_compiler_destroy(compiler);
    return status;
  }
  open_caches(compiler, options);
  *out_compiler = compiler;
  return NULL;
}

void pj_compiler_destroy(pj_compiler *compiler) {
  if (!compiler) return;
  if (compiler->owner != getpid()) pj_compiler_after_fork(compiler);
  pj_worker_pool_destroy(compiler->pool);
  pj_disk_cache_close(compiler->cache);
  pj_disk_cache_close(compiler->shared);
  pthread_mutex_destroy(&compiler->mutex);
  for (size_t i = 0; i < compiler->bad_count; ++i) pj_status_free(compiler->bad[i].status);
  free(compiler->bad);
  free(compiler->own_process);
  free(compiler);
}

void pj_compiler_after_fork(pj_compiler *compiler) {
  compiler->owner = getpid();
  pthread_mutex_init(&compiler->mutex, NULL);  // another thread of the parent may have held it
  if (compiler->pool) pj_worker_pool_after_fork(compiler->pool);
}

// ---- what is known of programs and of the plugin --------------------------------------------------------------------

static pj_status find_bad(pj_compiler *compiler, const uint8_t key[PJ_KEY_SIZE]) {
  pj_status found = NULL;
  pthread_mutex_lock(&compiler->mutex);
  for (size_t i = 0; i < compiler->bad_count && !found; ++i)
    if (!memcmp(compiler->bad[i].key, key, PJ_KEY_SIZE)) found = pj_status_copy(compiler->bad[i].status);
  pthread_mutex_unlock(&compiler->mutex);
  return found;
}

static void remember_bad(pj_compiler *compiler, const uint8_t key[PJ_KEY_SIZE], pj_status status) {
  pthread_mutex_lock(&compiler->mutex);
  bad_program *moved = realloc(compiler->bad, (compiler->bad_count + 1) * sizeof *moved);
  if (moved) {
    compiler->bad = moved;
    memcpy(moved[compiler->bad_count].key, key, PJ_KEY_SIZE);
    moved[compiler->bad_count++].status = pj_status_copy(status);
  }
  pthread_mutex_unlock(&compiler->mutex);
}

const char *pj_compiler_own_process_reason(pj_compiler *compiler) {
  pthread_mutex_lock(&compiler->mutex);
  const char *reason = compiler->own_process;
  pthread_mutex_unlock(&compiler->mutex);
  return reason;
}

// From now on all compiles run in the own process. Frees the status that says why.
static void use_own_process(pj_compiler *compiler, pj_log_level level, bool foreign_refused, pj_status why) {
  pthread_mutex_lock(&compiler->mutex);
  bool first = !compiler->own_process;
  if (first) compiler->own_process = strdup(pj_status_text(why));
  compiler->foreign_refused |= foreign_refused;
  pthread_mutex_unlock(&compiler->mutex);
  if (first) pj_log(level, "%s; programs are compiled in the own process from here on", pj_status_text(why));
  pj_status_free(why);
}

static bool loads_foreign(pj_compiler *compiler) {
  pthread_mutex_lock(&compiler->mutex);
  bool loads = !compiler->foreign_refused;
  pthread_mutex_unlock(&compiler->mutex);
  return loads;
}

// ---- the ways -------------------------------------------------------------------------------------------------------

typedef struct request {
  pj_compiler *compiler;
  const char *code;
  size_t code_size;
  const uint8_t *options;
  size_t options_size;
  pj_patience patience;
  uint8_t program[PJ_KEY_SIZE];
  uint8_t on_disk[PJ_KEY_SIZE];
  pj_compile_report report;
} request;

static pj_status load(const request *r, const uint8_t *bytes, size_t size, pj_executable **out_executable) {
  return pj_executable_load(r->compiler->client, bytes, size, r->options, r->options_size, out_executable);
}

// Each way sets `*out_executable` or leaves it NULL with no error, which means: the next way.
static pj_status from(pj_disk_cache *cache, request *r, pj_executable **out_executable) {
  uint8_t *bytes;
  size_t size;
  if (!cache || !loads_foreign(r->compiler) || !pj_disk_cache_load(cache, r->on_disk, &bytes, &size)) return NULL;
  pj_status status = load(r, bytes, size, out_executable);
  free(bytes);
  if (status) {
    *out_executable = NULL;
    status = pj_status_context(status, "cannot be loaded by the plugin");
    pj_disk_cache_drop(cache, r->on_disk, pj_status_text(status));
    pj_status_free(status);
    return NULL;
  }
  r->report.by = PJ_LOADED_FROM_DISK;
  return NULL;
}

static pj_status from_disk(request *r, pj_executable **out_executable) {
  return from(r->compiler->cache, r, out_executable);
}

static pj_status from_shared(request *r, pj_executable **out_executable) {
  return from(r->compiler->shared, r, out_executable);
}

static void keep(request *r, const uint8_t *bytes, size_t size) {
  pj_disk_cache *cache = r->compiler->cache;
  if (cache && loads_foreign(r->compiler)) pj_disk_cache_store(cache, r->on_disk, bytes, size);
}

static pj_status from_worker(request *r, pj_executable **out_executable) {
  pj_compiler *compiler = r->compiler;
  if (!compiler->pool || pj_compiler_own_process_reason(compiler)) return NULL;
  pj_worker_outcome outcome;
  uint8_t *bytes;
  size_t size;
  pj_status status = pj_worker_pool_compile(compiler->pool, r->code, r->code_size, r->options, r->options_size,
                                            &r->patience, &bytes, &size, &outcome);
  if (outcome == PJ_WORKER_UNUSABLE) {
    use_own_process(compiler, PJ_LOG_WARNING, false, status);
    return NULL;
  }
  if (outcome == PJ_WORKER_DIED) {
    ++r->report.worker_failures;
    if (pj_status_code(status) != PJ_CANCELLED) remember_bad(compiler, r->program, status);
  }
  if (status) return status;
  status = load(r, bytes, size, out_executable);
  if (status) {
    *out_executable = NULL;
    free(bytes);
    status = pj_status_context(status, "this plugin cannot load what a compile worker compiled");
    use_own_process(compiler, PJ_LOG_INFO, true, status);
    return NULL;
  }
  r->report.by = PJ_COMPILED_BY_WORKER;
  keep(r, bytes, size);
  free(bytes);
  return NULL;
}

static pj_status in_process(request *r, pj_executable **out_executable) {
  pj_compiler *compiler = r->compiler;
  PJ_TRY(pj_compile(compiler->client, r->code, r->code_size, r->options, r->options_size, out_executable));
  r->report.by = PJ_COMPILED_IN_PROCESS;
  if (!compiler->cache || !loads_foreign(compiler)) return NULL;
  uint8_t *bytes;
  size_t size;
  pj_status status = pj_executable_serialize(*out_executable, &bytes, &size);
  if (status) {
    status = pj_status_context(status, "this plugin cannot serialize what it compiled");
    use_own_process(compiler, PJ_LOG_INFO, true, status);
    return NULL;
  }
  keep(r, bytes, size);
  free(bytes);
  return NULL;
}

pj_status pj_compiler_get(pj_compiler *compiler, const char *code, size_t code_size, const uint8_t *options,
                          size_t options_size, bool (*cancelled)(void *), void *context, pj_executable **out_executable,
                          pj_compile_report *out_report) {
  static pj_status (*const WAYS[])(request *, pj_executable **) = {from_disk, from_shared, from_worker, in_process};
  if (compiler->owner != getpid())
    return pj_error(PJ_FAILED_PRECONDITION, "the compiler is process %d's; call pj_compiler_after_fork in this one",
                    (int)compiler->owner);
  double start = now_ms();
  request r = {.compiler = compiler,
               .code = code,
               .code_size = code_size,
               .options = options,
               .options_size = options_size,
               .patience = {compiler->timeout_ms, cancelled, context}};
  pj_program_key(code, code_size, options, options_size, r.program);
  pj_disk_key(compiler->environment, r.program, r.on_disk);
  pj_executable *executable = NULL;
  pj_status status = find_bad(compiler, r.program);
  for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS && !status && !executable; ++i) status = WAYS[i](&r, &executable);
  r.report.milliseconds = now_ms() - start;
  if (out_report) *out_report = r.report;
  if (status) return status;
  *out_executable = executable;
  return NULL;
}
