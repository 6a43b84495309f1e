// The queue: a cut finds or makes the program of what is queued and runs it.
#include <stdio.h>
#include <stdlib.h>

#include "base/tick.h"
#include "run/internal.h"

enum { ARGUMENTS_ON_STACK = 64 };

static bool interrupted(void *context) {
  const pj_runtime *runtime = context;
  return runtime->hooks.interrupted && runtime->hooks.interrupted();
}

// ---- running --------------------------------------------------------------------------------------------------------

// A signal handler or finalizer that uses the device while its thread compiles: waiting would be for ever.
static bool runs_here(const pj_device *device) {
  return device->running && pthread_equal(device->runner, pthread_self());
}

static bool is_running(const pj_device *device, const void *context) {
  (void)context;
  return device->running && !runs_here(device);
}

// Its ops are complete, and their thread waits to run them. Another op in it would be another program; but who has waited
// for many runs of others goes on, or threads that are never done would starve it.
enum { MOST_RUNS_AWAITED = 64 };

static bool is_due(const pj_device *device, const void *context) {
  const uint64_t *since = context;
  return device->region->due && !runs_here(device) && device->point - *since < MOST_RUNS_AWAITED;
}

pj_status pj_device_wait_while(pj_device *device, pj_condition *condition, const void *context, const char *what) {
  const pj_hooks *hooks = &device->runtime->hooks;
  bool stop = false;
  while (!stop && condition(device, context)) {
    pthread_mutex_unlock(&device->lock);
    void *token = pj_block(device->runtime);
    pthread_mutex_lock(&device->lock);
    while (!stop && condition(device, context)) {
      pj_wait_a_tick(&device->idle, &device->lock);
      if (!what || !hooks->interrupted || !condition(device, context)) continue;
      pthread_mutex_unlock(&device->lock);
      stop = hooks->interrupted();
      pthread_mutex_lock(&device->lock);
    }
    pthread_mutex_unlock(&device->lock);
    pj_unblock(device->runtime, token);
    pthread_mutex_lock(&device->lock);
  }
  return stop ? pj_error(PJ_CANCELLED, "the wait for %s was interrupted", what) : NULL;
}

static const char ANOTHER_COMPILE[] = "another thread's compile";

pj_status pj_device_wait_until_idle(pj_device *device) {
  return pj_device_wait_while(device, is_running, NULL, ANOTHER_COMPILE);
}

// Donated inputs have no memory any more, before the outputs that took it are counted.
static void forget_donated(pj_device *device, pj_region *region, const pj_program *program) {
  pj_count(&device->runtime->counters.donations, program->donated_count);
  for (uint32_t i = 0; i < program->donated_count; ++i) pj_value_free_buffer(region->inputs[program->donated[i]]);
}

static void trace_execution(pj_device *device, const pj_region *region, const pj_program *program, pj_span *span,
                            pj_buffer *result) {
  const char *line = region->queued[0].line;
  span->text = program->what;
  span->line = line ? line : "";  // NULL: queued before spans were collected
  span->reason = region->why;
  span->ops = region->queued_count;
  pj_trace_end_when_ready(device, span, result);
}

static pj_status execute(pj_device *device, pj_region *region, const pj_program *program) {
  pj_runtime *runtime = device->runtime;
  uint32_t results = program->live_count + (program->check_count ? 1 : 0);
  pj_buffer *few_arguments[ARGUMENTS_ON_STACK], *few_results[ARGUMENTS_ON_STACK];
  pj_buffer **arguments = few_arguments, **buffers = few_results, **many = NULL;
  if (region->input_count + 2 > ARGUMENTS_ON_STACK || results > ARGUMENTS_ON_STACK) {
    many = malloc((region->input_count + 2 + results) * sizeof *many);
    if (!many) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
    arguments = many;
    buffers = many + region->input_count + 2;
  }
  size_t count = 0;
  pj_buffer *own_ints = NULL;
  pj_numbers_trim(device);
  pj_status status = NULL;
  for (uint32_t i = 0; i < region->input_count && !status; ++i) {
    pj_value *v = region->inputs[i];
    if (v->error) status = pj_status_copy(v->error);
    arguments[count++] = v->buffer;
  }
  if (!status && program->has_floats)
    status = pj_device_numbers(device, PJ_F64, region->floats, region->float_count, &arguments[count++]);
  if (!status && program->has_ints && !region->random)
    status = pj_device_numbers(device, PJ_S64, region->ints, region->int_count, &arguments[count++]);
  if (!status && program->has_ints && region->random) {
    // Seed and offset differ each time: not worth a place in the cache.
    int64_t n = region->int_count;
    status = pj_buffer_from_host(runtime->client, device->index, region->ints, PJ_S64, 1, &n, PJ_HOST_COPY, NULL, &own_ints);
    arguments[count++] = own_ints;
  }
  bool collects = pj_trace_collects(&runtime->trace);
  pj_span span = collects ? pj_trace_begin(PJ_SPAN_EXECUTE, device) : (pj_span){0};
  if (!status) status = pj_execute(program->executable, device->index, arguments, count, buffers);
  if (!status) {
    pj_count(&runtime->counters.executions, 1);
    if (collects) trace_execution(device, region, program, &span, buffers[0]);
    if (program->donated_count) forget_donated(device, region, program);
    if (program->is_long) pj_run_started(device, buffers[0]);
    for (uint32_t k = 0; k < program->live_count; ++k) pj_value_set_buffer(region->outputs[program->live[k]], buffers[k]);
    if (program->check_count) {
      pj_reserve(&device->checks, device->check_count, 1, &device->check_capacity, sizeof *device->checks);
      device->checks[device->check_count++] = (pj_check){buffers[program->live_count], program};
    }
  }
  pj_buffer_destroy(runtime->client, own_ints);
  free(many);
  return status;
}

void pj_region_fail(pj_region *region, pj_status status) {
  for (uint32_t i = 0; i < region->output_count; ++i) {
    pj_value *v = region->outputs[i];
    if (v && !v->buffer && !v->error) v->error = pj_status_copy(status);
  }
}

static pj_failure *find_failure(pj_device *device, pthread_t thread) {
  for (uint32_t i = 0; i < device->failure_count; ++i)
    if (pthread_equal(device->failures[i].thread, thread)) return &device->failures[i];
  return NULL;
}

pj_status pj_device_take_failure(pj_device *device) {
  pj_failure *failure = device->failure_count ? find_failure(device, pthread_self()) : NULL;
  if (!failure) return NULL;
  pj_status status = failure->status;
  *failure = device->failures[--device->failure_count];
  return status;
}

// In strict eager an op says itself that it failed, also when its program was run by another thread, which came between a
// call with `hold` and the end of the op.
static void tell_other_threads(pj_device *device, const pj_region *region, pj_status status) {
  for (uint32_t q = region->done; q < region->queued_count; ++q) {
    pthread_t thread = region->queued[q].thread;
    if (pthread_equal(thread, pthread_self()) || find_failure(device, thread)) continue;
    pj_reserve(&device->failures, device->failure_count, 1, &device->failure_capacity, sizeof *device->failures);
    device->failures[device->failure_count++] = (pj_failure){thread, pj_status_copy(status)};
  }
}

// Makes the program of the region; *out_program is NULL, or it was unloaded. The lock is held, and given up while
// compiling. A region of several ops that cannot be compiled is remembered as a program without executable: from then on
// it runs op by op.
static pj_status make_program(pj_device *device, pj_region *region, const pj_outside *outside, uint64_t hash,
                              pj_program **out_program) {
  pj_runtime *runtime = device->runtime;
  bool again = *out_program != NULL;
  pthread_mutex_unlock(&device->lock);
  void *token = pj_block(runtime);
  pj_lowered lowered;
  pj_status status = pj_program_lower(runtime, region, outside, &lowered);
  if (again) lowered.reason = "not kept";
  if (!status) status = pj_program_compile(runtime, &lowered, interrupted, runtime);
  bool refused = status && lowered.program && region->queued_count > 1 && pj_status_code(status) != PJ_CANCELLED;
  if (refused) pj_program_refused(runtime, &lowered);
  pj_unblock(runtime, token);
  pthread_mutex_lock(&device->lock);
  if (!status || refused) {
    *out_program = pj_program_keep(device, hash, region->key, region->key_count, &lowered);
    if (!*out_program && !status) status = pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  }
  pj_lowered_free(&lowered);
  return status;
}

// A program that is about to run, and what it takes.
typedef struct donation {
  const pj_region *region;
  const pj_program *program;
} donation;

static bool is_held_elsewhere(const pj_device *device, const void *context) {
  (void)device;
  const donation *d = context;
  for (uint32_t i = 0; i < d->program->donated_count; ++i)
    if (!held_by_region_only(d->region->inputs[d->program->donated[i]])) return true;
  return false;
}

// That an input can be donated was found out before the lock was given up for a compile. A thread that waits for the
// device may hold it since; it lets go when the input is computed.
static void await_sole_holder(pj_device *device, const pj_region *region, const pj_program *program) {
  pj_status_free(pj_device_wait_while(device, is_held_elsewhere, &(donation){region, program}, NULL));
}

static pj_status run_whole(pj_device *device, pj_region *region, const pj_outside *outside, uint64_t hash,
                           pj_program *program) {
  PJ_TRY(pj_device_reserve_memory(device, outside->bytes));
  if (!program || program->unloaded) PJ_TRY(make_program(device, region, outside, hash, &program));
  program->used = device->point;
  await_sole_holder(device, region, program);
  return execute(device, region, program);
}

// Several ops run one by one when their program is not worth a compile yet (adaptive eager), cannot be had, or needs more
// memory than there is: then everything before the op that really fails is computed.
static pj_status run_several(pj_device *device, pj_region *region, const pj_outside *outside, uint64_t hash) {
  uint32_t *last = pj_region_last_uses(region);  // before the lock is given up: other threads may queue the same values
  if (!last) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  pj_program *program = NULL;
  pj_status status = NULL;
  bool whole;
  if (atomic_load_explicit(&device->runtime->eager, memory_order_relaxed) == PJ_EAGER_ADAPTIVE) {
    status = pj_adaptive_find(device, region, outside, hash, &program);
    whole = program != NULL;
  } else {
    program = pj_map_find(&device->programs, hash, region->key, region->key_count);
    whole = !program || program->executable || program->unloaded;
  }
  if (!status && whole) {
    status = run_whole(device, region, outside, hash, program);
    whole = !status;
  }
  if (!whole && pj_status_code(status) != PJ_CANCELLED) {
    pj_status_free(status);
    status = pj_run_each(device, region, last);
  }
  free(last);
  return status;
}

static pj_status find_and_run(pj_device *device, pj_region *region, pj_outside *outside) {
  pj_runtime *runtime = device->runtime;
  pj_region_look_outside(region, outside);
  pj_region_put_key(region, (uint64_t)atomic_load_explicit(&runtime->precision, memory_order_relaxed) << 8 |
                                (uint64_t)atomic_load_explicit(&runtime->index_mode, memory_order_relaxed));
  if (!outside->live_count && !(region->checks_indices && atomic_load(&runtime->index_mode) != PJ_INDEX_OFF)) return NULL;
  uint64_t hash = pj_hash_words(region->key, region->key_count);
  if (region->queued_count > 1) return run_several(device, region, outside, hash);
  return run_whole(device, region, outside, hash, pj_map_find(&device->programs, hash, region->key, region->key_count));
}

bool pj_is_put_back(const pj_device *device, pj_status status) {
  return pj_status_code(status) == PJ_CANCELLED &&
         atomic_load_explicit(&device->runtime->queue_length, memory_order_relaxed) > 1;
}

pj_status pj_region_run(pj_device *device, pj_region *region) {
  uint32_t few[ARGUMENTS_ON_STACK];
  int32_t few_aliases[ARGUMENTS_ON_STACK];
  pj_outside outside = {.live = few, .aliases = few_aliases};
  void *many = NULL;
  if (region->output_count > ARGUMENTS_ON_STACK || region->input_count > ARGUMENTS_ON_STACK) {
    uint32_t none = 0;
    pj_reserve(&many, 0, region->output_count + region->input_count, &none, sizeof(uint32_t));
    outside.live = many;
    outside.aliases = (int32_t *)many + region->output_count;
  }
  uint32_t key_count = region->key_count;
  pj_status status = find_and_run(device, region, &outside);
  region->key_count = key_count;
  if (status && !pj_is_put_back(device, status)) pj_region_fail(region, status);
  free(many);
  return status;
}

// No lock may be held while the hook runs.
static void tell_cut(pj_device *device, const pj_region *region) {
  pj_span cut = pj_trace_begin(PJ_SPAN_CUT, device);
  cut.end = cut.begin;
  cut.reason = region->why;
  cut.ops = region->queued_count;
  pthread_mutex_unlock(&device->lock);
  device->runtime->hooks.told(&cut);
  pthread_mutex_lock(&device->lock);
}

pj_status pj_device_cut(pj_device *device, const char *why) {
  if (runs_here(device))
    return pj_error(PJ_FAILED_PRECONDITION,
                    "tpu:%d can be neither read nor waited for here: a signal handler or finalizer of this thread runs in "
                    "the middle of an op's compile", device->index);
  PJ_TRY(pj_device_wait_until_idle(device));
  pj_region *region = device->region;
  if (!region->queued_count) {
    pj_region_settle(region, false);
    region->calls = 0;
    region->due = false;
    pthread_cond_broadcast(&device->idle);
    return NULL;
  }
  device->region = pj_region_create(device);
  device->running = true;
  device->runner = pthread_self();
  ++device->point;  // also of a region that runs op by op: an event waits for all of it
  pj_count(&device->runtime->counters.queue_cuts, 1);
  region->why = why;
  if (pj_trace_tells(&device->runtime->trace, PJ_SPAN_CUT)) tell_cut(device, region);
  pj_status status = pj_region_run(device, region);
  if (pj_is_put_back(device, status)) {
    pj_region_put_back(device, region);
  } else {
    if (status && atomic_load(&device->runtime->queue_length) == 1) tell_other_threads(device, region, status);
    pj_region_settle(region, status != NULL);
    pj_region_give_back(device, region);
  }
  device->running = false;
  pthread_cond_broadcast(&device->idle);
  if (!status && device->check_count && atomic_load(&device->runtime->index_mode) == PJ_INDEX_STRICT)
    status = pj_device_check_indices(device, true);
  return status;
}

void pj_device_cut_quietly(pj_device *device, const char *why) {
  pj_status status = pj_device_cut(device, why);
  if (device->deferred) pj_status_free(status);
  else device->deferred = status;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

// Why the region is to run now that another op was queued; NULL: it may wait.
static const char *why_now(const pj_device *device) {
  const pj_region *region = device->region;
  int length = atomic_load_explicit(&device->runtime->queue_length, memory_order_relaxed);
  if (length == 1) return "eager is strict";
  if (region->calls >= (uint32_t)length) return "the queue is full";
  bool at_once = region->checks_indices && atomic_load(&device->runtime->index_mode) == PJ_INDEX_STRICT;
  return at_once ? "indices are checked at once" : NULL;
}

static pj_status end_op(pj_device *device) {
  if (runs_here(device)) return NULL;  // runs with the next op
  pj_region *region = device->region;
  pj_status status = NULL;
  ++region->calls;
  const char *why = why_now(device);
  if (why) {
    region->due = true;
    uint64_t id = region->id;
    status = pj_device_wait_until_idle(device);
    if (status && device->region->id == id) {  // interrupted: the op runs with the next one
      region->due = false;
      pthread_cond_broadcast(&device->idle);
    } else if (!status && device->region->id == id) {  // else a reader on another thread ran it
      status = pj_device_cut(device, why);
    }
  }
  pj_status failure = pj_device_take_failure(device);
  if (!failure || pj_status_code(status) == PJ_CANCELLED) {
    pj_status_free(failure);
    return status;
  }
  pj_status_free(status);
  return failure;
}

static pj_status wait_if_blocking(pj_device *device) {
  bool blocking = atomic_load_explicit(&device->runtime->eager, memory_order_relaxed) == PJ_EAGER_BLOCKING;
  return blocking ? pj_device_synchronize(device, true) : NULL;
}

pj_status pj_submit(pj_device *device, pj_call *call, const pj_plan **out_plan) {
  PJ_TRY(pj_runtime_check(device->runtime));
  const char *line = pj_trace_collects(&device->runtime->trace) ? pj_trace_line(device->runtime) : NULL;
  pthread_mutex_lock(&device->lock);
  uint64_t since = device->point;
  const pj_plan *plan = NULL, *queued = NULL;
  pj_status status = NULL;
  while (!queued) {
    status = pj_device_wait_while(device, is_due, &since, ANOTHER_COMPILE);
    pj_device_drain(device);
    plan = status ? NULL : pj_plan_find(device, call);
    if (!plan) break;
    status = pj_room_plan(device, call, plan, &queued);
    if (status) break;
  }
  if (queued) status = pj_region_append(device, call, plan, queued, line);
  if (status) pj_status_free(pj_device_take_failure(device));
  bool ends = plan && !status && !call->hold;
  if (ends) status = end_op(device);
  pthread_mutex_unlock(&device->lock);
  *out_plan = plan;
  return ends && !status ? wait_if_blocking(device) : status;
}

pj_status pj_device_end_op(pj_device *device) {
  PJ_TRY(pj_runtime_check(device->runtime));
  pthread_mutex_lock(&device->lock);
  pj_status status = end_op(device);
  pthread_mutex_unlock(&device->lock);
  return status ? status : wait_if_blocking(device);
}

pj_status pj_submit_own(pj_device *device, pj_call *call, const pj_tensor_spec *results, size_t count) {
  // No meta kernel tells what these ops give: their results' types are arguments, and so part of the key.
  for (size_t i = 0; i < count; ++i) {
    pj_call_dtype(call, results[i].dtype);
    pj_call_ints(call, results[i].sizes, (uint32_t)results[i].rank);
    pj_call_ints(call, results[i].strides, (uint32_t)results[i].rank);
  }
  const pj_plan *plan;
  PJ_TRY(pj_submit(device, call, &plan));
  if (plan) return NULL;
  PJ_TRY(pj_plan_create(device, call, results, count));
  return pj_submit(device, call, &plan);
}