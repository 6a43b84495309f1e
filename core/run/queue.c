// The queue: ops are appended, a cut finds or makes the program of what is queued and runs it.
#include <stdio.h>
#include <stdlib.h>

#include "base/tick.h"
#include "ops/program.h"
#include "run/internal.h"

// Donating a small buffer gains nothing, and whether an input can be donated is part of a program's key.
enum { LEAST_DONATED_BYTES = 4096, ARGUMENTS_ON_STACK = 64 };

// ---- regions --------------------------------------------------------------------------------------------------------

static pj_region *region_create(pj_device *device) {
  pj_region *region = device->spare;
  device->spare = NULL;
  if (!region) {
    uint32_t none = 0;
    pj_reserve(&region, 0, 1, &none, sizeof *region);
    memset(region, 0, sizeof *region);
  }
  region->id = ++device->next_region;
  return region;
}

static void region_clear(pj_region *region) {
  for (uint32_t i = 0; i < region->input_count; ++i) pj_value_release(region->inputs[i]);
  for (uint32_t i = 0; i < region->output_count; ++i) pj_value_release(region->outputs[i]);
  region->key_count = region->queued_count = region->ref_count = region->input_count = region->output_count =
      region->float_count = region->int_count = region->calls = 0;
  region->random = region->checks_indices = region->due = false;
}

void pj_region_destroy(pj_region *region) {
  if (!region) return;
  region_clear(region);
  free(region->key);
  free(region->queued);
  free(region->refs);
  free(region->inputs);
  free(region->outputs);
  free(region->floats);
  free(region->ints);
  free(region->undo);
  free(region);
}

static void region_give_back(pj_device *device, pj_region *region) {
  region_clear(region);
  if (device->spare) pj_region_destroy(region);
  else device->spare = region;
}

static void put_key(pj_region *region, uint64_t word) {
  pj_reserve(&region->key, region->key_count, 1, &region->key_capacity, sizeof *region->key);
  region->key[region->key_count++] = word;
}

static void put_ref(pj_region *region, uint32_t ref) {
  pj_reserve(&region->refs, region->ref_count, 1, &region->ref_capacity, sizeof *region->refs);
  region->refs[region->ref_count++] = ref;
  put_key(region, ref);
}

// The ref of a value in the region, which takes the reference over: it is what keeps its inputs from being donated.
static uint32_t take_operand(pj_region *region, pj_value *value) {
  if (value->region == region->id) {
    uint32_t ref = value->ref;
    pj_value_release(value);  // the region holds it already
    return ref;
  }
  pj_reserve(&region->inputs, region->input_count, 1, &region->input_capacity, sizeof *region->inputs);
  region->inputs[region->input_count] = value;
  value->region = region->id;
  return value->ref = 2 * region->input_count++;
}

pj_status pj_region_append(pj_device *device, pj_call *call, const pj_plan *plan) {
  for (uint32_t i = 0; i < call->operand_count; ++i) {
    const pj_value *v = call->operands[i];
    if (v->device != device)
      return pj_error(PJ_INVALID_ARGUMENT, "%s: tensors of tpu:%d and tpu:%d in one op", call->op->name, v->device->index,
                      device->index);
    if (v->error) return pj_status_copy(v->error);
  }
  pj_region *region = device->region;
  pj_reserve(&region->queued, region->queued_count, 1, &region->queued_capacity, sizeof *region->queued);
  region->queued[region->queued_count++] = (pj_queued){plan, region->ref_count, region->output_count,
                                                            pthread_self()};
  put_key(region, plan->id);
  // The call keeps no reference to its operands: it would keep them from being donated.
  for (uint32_t i = 0; i < call->operand_count; ++i) put_ref(region, take_operand(region, call->operands[i]));
  call->operand_count = 0;
  if (call->float_count) {
    pj_reserve(&region->floats, region->float_count, call->float_count, &region->float_capacity, sizeof *region->floats);
    memcpy(region->floats + region->float_count, call->floats, call->float_count * sizeof *call->floats);
    region->float_count += call->float_count;
  }
  if (call->int_count) {
    pj_reserve(&region->ints, region->int_count, call->int_count, &region->int_capacity, sizeof *region->ints);
    memcpy(region->ints + region->int_count, call->ints, call->int_count * sizeof *call->ints);
    region->int_count += call->int_count;
  }
  region->random = region->random || plan->random;
  region->checks_indices = region->checks_indices || plan->checks_indices;
  pj_reserve(&region->outputs, region->output_count, plan->result_count, &region->output_capacity,
             sizeof *region->outputs);
  pj_reserve(&call->results, call->result_count, plan->result_count, &call->result_capacity, sizeof *call->results);
  for (uint32_t i = 0; i < plan->result_count; ++i) {
    pj_value *v = pj_value_create(device, &plan->graph.values[plan->outputs[i]], /*refs=*/2);
    v->region = region->id;
    v->ref = 2 * region->output_count + 1;
    region->outputs[region->output_count++] = v;
    call->results[call->result_count++] = v;
  }
  return NULL;
}

// ---- the program of a region ----------------------------------------------------------------------------------------

// What the run of a region looks like from outside: which outputs somebody still holds, and which inputs may be overwritten.
typedef struct outside {
  uint32_t *live;       // indices of the outputs to compute
  uint32_t live_count;
  int32_t *aliases;     // one an input: the live output (index into `live`) that takes its buffer, or -1
  uint32_t donated;
  uint64_t bytes;       // of the live outputs that need new memory
} outside;

static bool held_by_region_only(const pj_value *v) { return atomic_load_explicit(&v->refs, memory_order_acquire) == 1; }

// Fills `out`, whose arrays have room, and appends what it found to the key.
static void look_outside(pj_region *region, outside *out) {
  for (uint32_t i = 0; i < region->output_count; ++i) {
    if (held_by_region_only(region->outputs[i])) continue;
    put_key(region, i);
    out->bytes += region->outputs[i]->bytes;
    out->live[out->live_count++] = i;
  }
  put_key(region, UINT64_MAX);
  for (uint32_t i = 0; i < region->input_count; ++i) {
    const pj_value *input = region->inputs[i];
    out->aliases[i] = -1;
    if (input->bytes < LEAST_DONATED_BYTES || !held_by_region_only(input)) continue;
    for (uint32_t k = 0; k < out->live_count && out->aliases[i] < 0; ++k) {
      if (!pj_type_equal(region->outputs[out->live[k]]->type, input->type)) continue;
      bool taken = false;
      for (uint32_t j = 0; j < i && !taken; ++j) taken = out->aliases[j] == (int32_t)k;
      if (!taken) out->aliases[i] = (int32_t)k;
    }
    if (out->aliases[i] < 0) continue;
    ++out->donated;
    out->bytes -= input->bytes;
    put_key(region, (uint64_t)i << 32 | (uint32_t)out->aliases[i]);
  }
}

// The region as one graph. `out_values` (room for the region's outputs) gets the value number of each output.
static pj_status region_graph(const pj_region *region, pj_graph *graph, uint32_t *out_values) {
  uint32_t number = 0;
  for (uint32_t i = 0; i < region->input_count; ++i) PJ_TRY(pj_graph_add_input(graph, region->inputs[i]->type, &number));
  for (uint32_t q = 0; q < region->queued_count; ++q) {
    const pj_queued *queued = &region->queued[q];
    const pj_graph *part = &queued->plan->graph;
    uint32_t *values = calloc(part->value_count + 1, sizeof *values);
    uint32_t *numbers = malloc((part->number_count + 1) * sizeof *numbers);
    pj_status status = values && numbers ? NULL : pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
    for (uint32_t i = 0; i < part->input_count && !status; ++i) {
      uint32_t ref = region->refs[queued->first_ref + i];
      values[i] = ref & 1 ? out_values[ref / 2] : ref / 2;
    }
    for (uint32_t i = 0; i < part->number_count && !status; ++i)
      status = pj_graph_add_number(graph, part->numbers[i], &numbers[i]);
    for (uint32_t n = 0; n < part->node_count && !status; ++n) {
      const pj_node *node = &part->nodes[n];
      uint32_t operands = node->signature->operand_count, first;
      pj_ref *refs = malloc((operands + 1) * sizeof *refs);
      if (!refs) status = pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
      for (uint32_t i = 0; i < operands && !status; ++i) {
        refs[i] = part->refs[node->first_ref + i];
        if (refs[i].kind == PJ_REF_NUMBER) refs[i].index = numbers[refs[i].index];
        else if (refs[i].kind == PJ_REF_VALUE) refs[i].index = values[refs[i].index];
        else if (refs[i].kind == PJ_REF_CONSTANT)
          status = pj_graph_add_constant(graph, part->constants[refs[i].index], &refs[i].index);
      }
      if (!status) status = pj_graph_add_node(graph, node->signature, refs, &first);
      free(refs);
      for (uint32_t i = 0; i < node->signature->result_count && !status; ++i) values[node->first_value + i] = first + i;
    }
    for (uint32_t i = 0; i < queued->plan->result_count && !status; ++i)
      out_values[queued->first_output + i] = values[queued->plan->outputs[i]];
    free(values);
    free(numbers);
    PJ_TRY(status);
  }
  return NULL;
}

static void region_text(const pj_region *region, char *out, size_t size) {
  if (region->queued_count == 1 && region->queued[0].plan->signature_count == 1) {
    pj_signature_text(region->queued[0].plan->signatures[0], out, size);
    return;
  }
  size_t at = 0;
  *out = 0;
  for (uint32_t q = 0; q < region->queued_count && at < size; ++q) {
    int written = snprintf(out + at, size - at, q ? " + %s" : "%s", region->queued[q].plan->op->name);
    at += written > 0 ? (size_t)written : 0;
  }
}

static void program_destroy(void *argument) {
  pj_program *p = argument;
  if (!p) return;
  for (uint32_t i = 0; i < p->check_count; ++i) free(p->checks[i]);
  free(p->checks);
  free(p->live);
  free(p->donated);
  pj_executable_destroy(p->executable);
  free(p);
}

void pj_programs_clear(pj_map *programs) { pj_map_clear(programs, program_destroy); }

static bool interrupted(void *context) {
  const pj_runtime *runtime = context;
  return runtime->hooks.interrupted && runtime->hooks.interrupted();
}

static pj_status compile(pj_runtime *runtime, const pj_region *region, const pj_program_text *text, pj_executable **out) {
  char what[400];
  region_text(region, what, sizeof what);
  if (runtime->dump) fprintf(stderr, "// %s\n%s\n", what, text->text);
  pj_compile_report report = {0};
  pj_status status = pj_compiler_get(runtime->compiler, text->text, text->size, runtime->compile_options,
                                     runtime->compile_options_size, interrupted, runtime, out, &report);
  pj_count(&runtime->counters.worker_failures, (uint64_t)report.worker_failures);
  if (status) return pj_status_context(status, "%s could not be compiled", what);
  bool from_disk = report.by == PJ_LOADED_FROM_DISK;
  pj_count(from_disk ? &runtime->counters.cache_loads : &runtime->counters.compiles, 1);
  if (!from_disk) pj_count(&runtime->counters.compile_us, (uint64_t)(report.milliseconds * 1000));
  const char *reason = "new region";
  if (region->queued_count == 1) {
    pj_plan *plan = (pj_plan *)region->queued[0].plan;
    reason = plan->compiled ? "new aliasing" : plan->reason;
    plan->compiled = true;
  }
  pj_compiled_memory memory = {.temp = -1};
  pj_status_free(pj_executable_memory(*out, &memory));
  pj_runtime_explained(runtime, what, reason, report.milliseconds, from_disk, memory.temp);
  return NULL;
}

static pj_status keep_checks(pj_program *program, const pj_graph *graph, const pj_program_text *text) {
  if (!text->checked_count) return NULL;
  program->checks = calloc(text->checked_count, sizeof *program->checks);
  if (!program->checks) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  for (uint32_t i = 0; i < text->checked_count; ++i) {
    char what[300];
    pj_signature_text(graph->nodes[text->checked_nodes[i]].signature, what, sizeof what);
    program->checks[program->check_count++] = strdup(what);
  }
  return NULL;
}

// Lowers and compiles the region. No lock is held.
static pj_status make_program(pj_runtime *runtime, const pj_region *region, const outside *o, pj_program *program) {
  pj_graph graph = {0};
  pj_program_text text = {0};
  uint32_t *values = malloc((region->output_count + 1) * sizeof *values);
  uint32_t *outputs = malloc((o->live_count + 1) * sizeof *outputs);
  program->live = malloc((o->live_count + 1) * sizeof *program->live);
  program->donated = malloc((o->donated + 1) * sizeof *program->donated);
  pj_status status = values && outputs && program->live && program->donated
                         ? region_graph(region, &graph, values)
                         : pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  if (!status) {
    for (uint32_t k = 0; k < o->live_count; ++k) outputs[k] = values[o->live[k]];
    memcpy(program->live, o->live, o->live_count * sizeof *o->live);
    program->live_count = o->live_count;
    for (uint32_t i = 0; i < region->input_count; ++i)
      if (o->aliases[i] >= 0) program->donated[program->donated_count++] = i;
    program->has_floats = region->float_count > 0;
    program->has_ints = region->int_count > 0;
    pj_program_spec spec = {.outputs = outputs,
                            .output_count = o->live_count,
                            .aliases = o->aliases,
                            .precision = (hlo_precision)atomic_load(&runtime->precision),
                            .index_checks = atomic_load(&runtime->index_mode) != PJ_INDEX_OFF};
    status = pj_program_write(&graph, &spec, &text);
  }
  if (!status) status = keep_checks(program, &graph, &text);
  if (!status) status = compile(runtime, region, &text, &program->executable);
  pj_program_text_free(&text);
  pj_graph_clear(&graph);
  free(values);
  free(outputs);
  return status;
}

// ---- running --------------------------------------------------------------------------------------------------------

// A signal handler or finalizer that uses the device while its thread compiles: waiting would be for ever.
static bool runs_here(const pj_device *device) {
  return device->running && pthread_equal(device->runner, pthread_self());
}

static bool is_running(const pj_device *device) { return device->running; }

// Its ops are complete, and their thread waits to run them. Another op in it would be another program.
static bool is_due(const pj_device *device) { return device->region->due; }

// CANCELLED when the user interrupts the wait; the other thread goes on.
static pj_status wait_while(pj_device *device, bool (*condition)(const pj_device *)) {
  pj_hooks *hooks = &device->runtime->hooks;
  bool stop = false;
  while (!stop && condition(device) && !runs_here(device)) {
    pthread_mutex_unlock(&device->lock);
    void *token = hooks->block_begin ? hooks->block_begin() : NULL;
    pthread_mutex_lock(&device->lock);
    while (!stop && condition(device)) {
      pj_wait_a_tick(&device->idle, &device->lock);
      if (!hooks->interrupted || !condition(device)) continue;
      pthread_mutex_unlock(&device->lock);
      stop = hooks->interrupted();
      pthread_mutex_lock(&device->lock);
    }
    pthread_mutex_unlock(&device->lock);
    if (hooks->block_end) hooks->block_end(token);
    pthread_mutex_lock(&device->lock);
  }
  return stop ? pj_error(PJ_CANCELLED, "the wait for another thread's compile was interrupted") : NULL;
}

pj_status pj_device_wait_until_idle(pj_device *device) { return wait_while(device, is_running); }

// Donated inputs have no memory any more, before the outputs that took it are counted.
static void forget_donated(pj_device *device, pj_region *region, const pj_program *program) {
  pj_count(&device->runtime->counters.donations, program->donated_count);
  for (uint32_t i = 0; i < program->donated_count; ++i) pj_value_free_buffer(region->inputs[program->donated[i]]);
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
  if (!status) status = pj_execute(program->executable, device->index, arguments, count, buffers);
  if (!status) {
    ++device->point;
    pj_count(&runtime->counters.executions, 1);
    if (program->donated_count) forget_donated(device, region, program);
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

static void fail_outputs(pj_region *region, pj_status status) {
  for (uint32_t i = 0; i < region->output_count; ++i)
    if (!region->outputs[i]->buffer) region->outputs[i]->error = pj_status_copy(status);
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
  for (uint32_t q = 0; q < region->queued_count; ++q) {
    pthread_t thread = region->queued[q].thread;
    if (pthread_equal(thread, pthread_self()) || find_failure(device, thread)) continue;
    pj_reserve(&device->failures, device->failure_count, 1, &device->failure_capacity, sizeof *device->failures);
    device->failures[device->failure_count++] = (pj_failure){thread, pj_status_copy(status)};
  }
}

// Finds or makes the program of the region and runs it. The lock is held, and given up while compiling.
static pj_status run_region(pj_device *device, pj_region *region) {
  pj_runtime *runtime = device->runtime;
  uint32_t few[ARGUMENTS_ON_STACK];
  int32_t few_aliases[ARGUMENTS_ON_STACK];
  outside o = {.live = few, .aliases = few_aliases};
  void *many = NULL;
  if (region->output_count > ARGUMENTS_ON_STACK || region->input_count > ARGUMENTS_ON_STACK) {
    uint32_t none = 0;
    pj_reserve(&many, 0, region->output_count + region->input_count, &none, sizeof(uint32_t));
    o.live = many;
    o.aliases = (int32_t *)many + region->output_count;
  }
  look_outside(region, &o);
  put_key(region, (uint64_t)atomic_load_explicit(&runtime->precision, memory_order_relaxed) << 8 |
                      (uint64_t)atomic_load_explicit(&runtime->index_mode, memory_order_relaxed));
  pj_status status = NULL;
  if (o.live_count || (region->checks_indices && atomic_load(&runtime->index_mode) != PJ_INDEX_OFF)) {
    status = pj_device_reserve_memory(device, o.bytes);
    uint64_t hash = pj_hash_words(region->key, region->key_count);
    pj_program *program = pj_map_find(&device->programs, hash, region->key, region->key_count);
    if (!status && !program) {
      pthread_mutex_unlock(&device->lock);
      void *token = runtime->hooks.block_begin ? runtime->hooks.block_begin() : NULL;
      program = calloc(1, sizeof *program);
      status = program ? make_program(runtime, region, &o, program) : pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
      if (runtime->hooks.block_end) runtime->hooks.block_end(token);
      pthread_mutex_lock(&device->lock);
      if (!status && !pj_map_add(&device->programs, hash, region->key, region->key_count, program))
        status = pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
      if (status) program_destroy(program);
    }
    if (!status) status = execute(device, region, program);
  }
  free(many);
  return status;
}

pj_status pj_device_cut(pj_device *device) {
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
  device->region = region_create(device);
  device->running = true;
  device->runner = pthread_self();
  pj_count(&device->runtime->counters.queue_cuts, 1);
  pj_status status = run_region(device, region);
  if (status) fail_outputs(region, status);
  if (status && atomic_load(&device->runtime->queue_length) == 1) tell_other_threads(device, region, status);
  pj_region_settle(region, status != NULL);
  region_give_back(device, region);
  device->running = false;
  pthread_cond_broadcast(&device->idle);
  if (!status && device->check_count && atomic_load(&device->runtime->index_mode) == PJ_INDEX_STRICT)
    status = pj_device_check_indices(device, true);
  return status;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

static pj_status end_op(pj_device *device) {
  if (runs_here(device)) return NULL;  // runs with the next op
  pj_region *region = device->region;
  pj_status status = NULL;
  if (++region->calls >= (uint32_t)atomic_load_explicit(&device->runtime->queue_length, memory_order_relaxed)) {
    region->due = true;
    uint64_t id = region->id;
    status = pj_device_wait_until_idle(device);
    if (status && device->region->id == id) {  // interrupted: the op runs with the next one
      region->due = false;
      pthread_cond_broadcast(&device->idle);
    } else if (!status && device->region->id == id) {  // else a reader on another thread ran it
      status = pj_device_cut(device);
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

pj_status pj_submit(pj_device *device, pj_call *call, const pj_plan **out_plan) {
  PJ_TRY(pj_runtime_check(device->runtime));
  pthread_mutex_lock(&device->lock);
  pj_status status = is_due(device) ? wait_while(device, is_due) : NULL;
  pj_device_drain(device);
  const pj_plan *plan = status ? NULL : pj_plan_find(device, call);
  if (plan) status = pj_region_append(device, call, plan);
  if (status) pj_status_free(pj_device_take_failure(device));
  if (plan && !status && !call->hold) status = end_op(device);
  pthread_mutex_unlock(&device->lock);
  *out_plan = plan;
  return status;
}

pj_status pj_device_end_op(pj_device *device) {
  PJ_TRY(pj_runtime_check(device->runtime));
  pthread_mutex_lock(&device->lock);
  pj_status status = end_op(device);
  pthread_mutex_unlock(&device->lock);
  return status;
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
