#include <stdlib.h>
#include <string.h>

#include "run/internal.h"

enum { MOST_EXPLANATIONS = 100000 };

// The first address that stands for a storage: not canonical on x86-64, so that a stray read faults at once.
static const uint64_t FIRST_TOKEN = UINT64_C(1) << 48;

// XLA:CPU's defaults that break PyTorch's semantics: its maximum and minimum drop NaN, and roundings to a half type
// between two ops of one program may be left out.
static const char *const CPU_FLAGS[] = {"xla_cpu_enable_fast_min_max=false", "xla_allow_excess_precision=false"};

static pj_status out_of_memory(void) { return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory"); }

static void device_init(pj_device *device, pj_runtime *runtime, int index) {
  device->runtime = runtime;
  device->index = index;
  pthread_mutex_init(&device->lock, NULL);
  pthread_cond_init(&device->idle, NULL);
  device->live.next = device->live.previous = &device->live;
  uint32_t none = 0;
  pj_reserve(&device->region, 0, 1, &none, sizeof *device->region);
  memset(device->region, 0, sizeof *device->region);
  device->region->id = ++device->next_region;
}

static void set_eager(pj_runtime *runtime, pj_eager eager, int queue_length) {
  bool queues = eager == PJ_EAGER_FUSED || eager == PJ_EAGER_ADAPTIVE;
  atomic_store(&runtime->queue_length, queues && queue_length > 1 ? queue_length : 1);
  atomic_store(&runtime->eager, (int)eager);
}

pj_status pj_runtime_create(const pj_runtime_options *options, pj_runtime **out_runtime) {
  pj_runtime *runtime = calloc(1, sizeof *runtime);
  if (!runtime) return out_of_memory();
  runtime->hooks = options->hooks;
  const char *dump = getenv("PJ_DUMP");
  runtime->dump = dump && strcmp(dump, "0") != 0;
  set_eager(runtime, options->eager, options->queue_length);
  atomic_init(&runtime->precision, (int)HLO_PRECISION_HIGHEST);
  atomic_init(&runtime->next_token, FIRST_TOKEN);
  atomic_init(&runtime->next_plan, 1);
  runtime->storages_busy = (atomic_flag)ATOMIC_FLAG_INIT;
  runtime->storages.next = runtime->storages.previous = &runtime->storages;
  pthread_mutex_init(&runtime->lock, NULL);
  pj_trace_init(&runtime->trace);
  pj_plugin *plugin;
  pj_status status = pj_plugin_load(options->plugin_path, &plugin);
  if (!status) status = pj_client_create(plugin, options->client_options, options->client_option_count, &runtime->client);
  pj_compiler_options compiler = {.cache_directory = options->cache_directory,
                                  .shared_cache_directory = options->shared_cache_directory,
                                  .cache_limit_bytes = options->cache_limit_bytes,
                                  .worker_path = options->worker_path,
                                  .worker_count = options->worker_count,
                                  .timeout_ms = options->compile_timeout_ms,
                                  .worker_memory_bytes = options->worker_memory_bytes,
                                  .worker_options = options->client_options,
                                  .worker_option_count = options->client_option_count};
  if (!status) status = pj_compiler_create(runtime->client, &compiler, &runtime->compiler);
  // One program for every device of the client: which one is chosen at execution.
  pj_compile_options compile = {.portable = true};
  if (!status && !strcmp(pj_client_platform(runtime->client), "cpu")) {
    compile.flags = CPU_FLAGS;
    compile.flag_count = sizeof CPU_FLAGS / sizeof *CPU_FLAGS;
  }
  if (!status)
    status = pj_compile_options_encode(&compile, &runtime->compile_options, &runtime->compile_options_size);
  if (!status) {
    runtime->device_count = pj_client_device_count(runtime->client);
    runtime->devices = calloc((size_t)runtime->device_count + 1, sizeof *runtime->devices);
    if (!runtime->devices) status = out_of_memory();
  }
  for (int i = 0; i < runtime->device_count && !status; ++i) device_init(&runtime->devices[i], runtime, i);
  if (status) {
    pj_compiler_destroy(runtime->compiler);
    pj_client_destroy(runtime->client);
    free(runtime->compile_options);
    free(runtime);
    return status;
  }
  *out_runtime = runtime;
  return NULL;
}

static void op_destroy(void *argument) {
  pj_op *op = argument;
  free(op->name);
  free(op);
}

static void device_destroy(pj_device *device) {
  pj_region_settle(device->region, false);
  pj_region_destroy(device->region);
  pj_region_destroy(device->spare);
  for (uint32_t i = 0; i < device->check_count; ++i) pj_buffer_destroy(device->runtime->client, device->checks[i].flags);
  free(device->checks);
  for (uint32_t i = 0; i < device->run_count; ++i) pj_event_destroy(device->runtime->client, device->runs[i].end);
  free(device->runs);
  pj_status_free(device->deferred);
  for (uint32_t i = 0; i < device->failure_count; ++i) pj_status_free(device->failures[i].status);
  free(device->failures);
  pj_device_drain(device);
  pj_numbers_clear(device);
  pj_programs_clear(&device->programs);
  pj_map_clear(&device->plans, pj_plan_destroy);
  pj_map_clear(&device->starts, free);
  pj_map_clear(&device->growths, free);
  pj_call_destroy(&device->room_call);
  pj_map_clear(&device->sightings, free);
  pj_map_clear(&device->shapes, free);
  free(device->scratch);
  pthread_mutex_destroy(&device->lock);
  pthread_cond_destroy(&device->idle);
}

void pj_runtime_destroy(pj_runtime *runtime) {
  if (!runtime || runtime->forked) return;  // after a fork the client is the parent's
  pj_runtime_stop_compiles(runtime);
  for (int i = 0; i < runtime->device_count; ++i) device_destroy(&runtime->devices[i]);
  pj_trace_clear(&runtime->trace);
  free(runtime->devices);
  pj_compiler_destroy(runtime->compiler);
  pj_client_destroy(runtime->client);
  pj_map_clear(&runtime->ops, op_destroy);
  free(runtime->explained);
  free(runtime->compile_options);
  pthread_mutex_destroy(&runtime->lock);
  free(runtime);
}

pj_status pj_runtime_check(const pj_runtime *runtime) {
  if (!atomic_load_explicit(&runtime->forked, memory_order_relaxed)) return NULL;
  return pj_error(PJ_FAILED_PRECONDITION,
                  "the tpu device was already in use when this process was forked, and cannot be used in the child. Use "
                  "the 'spawn' start method of multiprocessing, or do not touch the device before the fork");
}

void pj_runtime_after_fork(pj_runtime *runtime) {
  atomic_store(&runtime->forked, true);
  // Threads of the parent, which the child does not have, may have held any of the locks.
  pthread_mutex_init(&runtime->lock, NULL);
  for (int i = 0; i < runtime->device_count; ++i) {
    pthread_mutex_init(&runtime->devices[i].lock, NULL);
    pthread_cond_init(&runtime->devices[i].idle, NULL);
    runtime->devices[i].running = false;
  }
  for (pj_storage *s = runtime->storages.next; s != &runtime->storages; s = s->next) atomic_flag_clear(&s->busy);
  atomic_flag_clear(&runtime->storages_busy);
  pj_compiler_after_fork(runtime->compiler);
  pj_trace_after_fork(&runtime->trace);
}

int pj_runtime_device_count(const pj_runtime *runtime) { return runtime->device_count; }

pj_device *pj_runtime_device(pj_runtime *runtime, int index) {
  return index >= 0 && index < runtime->device_count ? &runtime->devices[index] : NULL;
}

pj_client *pj_runtime_client(pj_runtime *runtime) { return runtime->client; }
const char *pj_runtime_own_process_reason(pj_runtime *runtime) {
  return pj_compiler_own_process_reason(runtime->compiler);
}
int pj_device_index(const pj_device *device) { return device->index; }
pj_runtime *pj_device_runtime(const pj_device *device) { return device->runtime; }

int pj_runtime_queue_length(const pj_runtime *runtime) { return atomic_load(&runtime->queue_length); }

pj_eager pj_runtime_eager(const pj_runtime *runtime) { return (pj_eager)atomic_load(&runtime->eager); }

void pj_runtime_set_eager(pj_runtime *runtime, pj_eager eager, int queue_length) {
  for (int i = 0; i < runtime->device_count && !atomic_load(&runtime->forked); ++i) {
    pthread_mutex_lock(&runtime->devices[i].lock);
    pj_device_cut_quietly(&runtime->devices[i], "the eager mode changes");
    pthread_mutex_unlock(&runtime->devices[i].lock);
  }
  set_eager(runtime, eager, queue_length);
}

void pj_runtime_set_matmul_precision(pj_runtime *runtime, int precision) { atomic_store(&runtime->precision, precision); }
void pj_runtime_set_index_mode(pj_runtime *runtime, pj_index_mode mode) { atomic_store(&runtime->index_mode, (int)mode); }

// ---- ops ------------------------------------------------------------------------------------------------------------

const pj_op *pj_runtime_op(pj_runtime *runtime, const char *overload) {
  uint64_t key[32] = {0};
  size_t length = strlen(overload), words = (length + 8) / 8;
  if (words > sizeof key / sizeof *key) words = sizeof key / sizeof *key;
  memcpy(key, overload, length < sizeof key ? length : sizeof key);
  uint64_t hash = pj_hash_words(key, words);
  pthread_mutex_lock(&runtime->lock);
  pj_op *op = pj_map_find(&runtime->ops, hash, key, (uint32_t)words);
  if (!op && (op = calloc(1, sizeof *op))) {
    op->runtime = runtime;
    op->name = strdup(overload);
    op->entry = pj_lowering_find(overload);
    op->room = pj_room_find(overload);
    op->id = ++runtime->op_count;
    if (!op->name || !pj_map_add(&runtime->ops, hash, key, (uint32_t)words, op)) {
      op_destroy(op);
      op = NULL;
    }
  }
  pthread_mutex_unlock(&runtime->lock);
  return op;
}

const char *pj_op_name(const pj_op *op) { return op->name; }
bool pj_op_has_lowering(const pj_op *op) { return op->entry != NULL; }
uint32_t pj_op_flags(const pj_op *op) { return op->entry ? op->entry->flags : 0; }
uint32_t pj_op_statics(const pj_op *op) { return op->entry ? op->entry->statics : UINT32_MAX; }
uint32_t pj_op_specials(const pj_op *op) { return op->entry ? op->entry->specials : 0; }
uint32_t pj_op_lengths(const pj_op *op) { return op->entry ? op->entry->lengths : 0; }

bool pj_number_is_special(double number) {
  static const double SPECIAL[] = {0, 1, -1, 2, -2, 3, 0.5, -0.5};
  for (size_t i = 0; i < sizeof SPECIAL / sizeof *SPECIAL; ++i)
    if (number == SPECIAL[i]) return true;
  return false;
}

uint32_t pj_op_dtype_only(const pj_op *op) { return op->entry ? op->entry->dtype_only : 0; }
uint32_t pj_op_shape_only(const pj_op *op) { return op->entry ? op->entry->shape_only : 0; }

// ---- counters and explanations --------------------------------------------------------------------------------------

// X(counter): each is read and reset alike.
#define COUNTERS(X) \
  X(compiles) X(compile_us) X(worker_failures) X(cache_loads) X(executions) X(host_reads) X(bytes_to_device) \
  X(bytes_to_host) X(donations) X(fallback_calls) X(decompositions) X(queue_cuts)

void pj_runtime_counters(const pj_runtime *runtime, pj_counters *out_counters) {
#define READ(name) out_counters->name = atomic_load_explicit(&runtime->counters.name, memory_order_relaxed);
  COUNTERS(READ)
#undef READ
}

void pj_runtime_reset_counters(pj_runtime *runtime) {
#define RESET(name) atomic_store_explicit(&runtime->counters.name, 0, memory_order_relaxed);
  COUNTERS(RESET)
#undef RESET
}

void pj_runtime_count_fallback(pj_runtime *runtime) { pj_count(&runtime->counters.fallback_calls, 1); }
void pj_runtime_count_decomposition(pj_runtime *runtime) { pj_count(&runtime->counters.decompositions, 1); }

void pj_runtime_explained(pj_runtime *runtime, const pj_span *compile, int64_t temp_bytes) {
  pj_trace *trace = &runtime->trace;
  pthread_mutex_lock(&runtime->lock);
  if (runtime->explained_count < MOST_EXPLANATIONS) {
    if (runtime->explained_count == runtime->explained_capacity) {
      size_t capacity = runtime->explained_capacity ? 2 * runtime->explained_capacity : 64;
      pj_explained *grown = realloc(runtime->explained, capacity * sizeof *grown);
      if (grown) {
        runtime->explained = grown;
        runtime->explained_capacity = capacity;
      }
    }
    if (runtime->explained_count < runtime->explained_capacity)
      runtime->explained[runtime->explained_count++] = (pj_explained){*compile, temp_bytes};
  }
  pthread_mutex_unlock(&runtime->lock);
  if (compile->kind != PJ_SPAN_REFUSED) pj_trace_collect(trace, compile);
  if (pj_trace_tells(trace, compile->kind)) runtime->hooks.told(compile);
}

size_t pj_runtime_explain(const pj_runtime *runtime, pj_explanation *out_items, size_t capacity) {
  pj_runtime *r = (pj_runtime *)runtime;
  pthread_mutex_lock(&r->lock);
  size_t count = r->explained_count;
  for (size_t i = 0; i < count && i < capacity; ++i) {
    const pj_span *compile = &r->explained[i].compile;
    out_items[i] = (pj_explanation){compile->text, compile->line, compile->reason,
                                    (double)(compile->end - compile->begin) / 1e6, compile->kind == PJ_SPAN_LOAD,
                                    r->explained[i].temp_bytes};
  }
  pthread_mutex_unlock(&r->lock);
  return count;
}
