// From a region to its program: what it must compute and may overwrite, its StableHLO, its executable.
#include <stdio.h>
#include <stdlib.h>

#include "run/internal.h"

// Donating a small buffer gains nothing, and whether an input can be donated is part of a program's key.
enum { LEAST_DONATED_BYTES = 4096 };

// What XLA:CPU may run on threads of its own; other devices run everything beside the host.
enum { LEAST_LONG_BYTES = 65536 };

// XLA:CPU maps each program's code in two to dozens of pieces, and Linux lets a process have 65,530 (vm.max_map_count): with
// more it ends. Pieces are counted now and then, since counting takes as long as a load.
enum { MOST_LOADED = 4096, MOST_MAPS = 32768, COUNTED_EVERY = 64 };

static uint64_t memory_maps(void) {
  FILE *file = fopen("/proc/self/maps", "r");
  if (!file) return 0;
  uint64_t lines = 0;
  char text[65536];
  for (size_t n; (n = fread(text, 1, sizeof text, file));)
    for (size_t i = 0; i < n; ++i) lines += text[i] == '\n';
  fclose(file);
  return lines;
}

static bool is_full(const pj_runtime *runtime) {
  uint32_t loaded = atomic_load(&runtime->loaded);
  return loaded >= MOST_LOADED || (loaded && loaded % COUNTED_EVERY == 0 && memory_maps() > MOST_MAPS);
}

static bool is_long(const pj_runtime *runtime, const pj_region *region) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < region->input_count; ++i) bytes += region->inputs[i]->array_bytes;
  for (uint32_t i = 0; i < region->output_count; ++i) bytes += region->outputs[i]->array_bytes;
  return bytes >= LEAST_LONG_BYTES || strcmp(pj_client_platform(runtime->client), "cpu") != 0;
}

// Fills `out`, whose arrays have room, and appends what it found to the key.
void pj_region_look_outside(pj_region *region, pj_outside *out) {
  for (uint32_t i = 0; i < region->output_count; ++i) {
    if (held_by_region_only(region->outputs[i])) continue;
    pj_region_put_key(region, i);
    out->bytes += region->outputs[i]->array_bytes;
    out->live[out->live_count++] = i;
  }
  pj_region_put_key(region, UINT64_MAX);
  for (uint32_t i = 0; i < region->input_count; ++i) {
    const pj_value *input = region->inputs[i];
    out->aliases[i] = -1;
    if (input->array_bytes < LEAST_DONATED_BYTES || !held_by_region_only(input)) continue;
    for (uint32_t k = 0; k < out->live_count && out->aliases[i] < 0; ++k) {
      if (!pj_type_equal(region->outputs[out->live[k]]->array, input->array)) continue;
      bool taken = false;
      for (uint32_t j = 0; j < i && !taken; ++j) taken = out->aliases[j] == (int32_t)k;
      if (!taken) out->aliases[i] = (int32_t)k;
    }
    if (out->aliases[i] < 0) continue;
    ++out->donated;
    out->bytes -= input->array_bytes;
    pj_region_put_key(region, (uint64_t)i << 32 | (uint32_t)out->aliases[i]);
  }
}

void pj_program_destroy(void *argument) {
  pj_program *p = argument;
  if (!p) return;
  for (uint32_t i = 0; i < p->check_count; ++i) free(p->checks[i]);
  free(p->checks);
  free(p->live);
  free(p->donated);
  pj_executable_destroy(p->executable);
  free(p);
}

void pj_programs_clear(pj_map *programs) { pj_map_clear(programs, pj_program_destroy); }

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

static pj_status lower(pj_runtime *runtime, const pj_region *region, const pj_outside *o, pj_graph *graph, uint32_t *values,
                       uint32_t *outputs, pj_lowered *out) {
  pj_program *program = out->program;
  PJ_TRY(pj_region_graph(region, graph, values));
  for (uint32_t k = 0; k < o->live_count; ++k) outputs[k] = values[o->live[k]];
  if (o->live_count) memcpy(program->live, o->live, o->live_count * sizeof *o->live);
  program->live_count = o->live_count;
  for (uint32_t i = 0; i < region->input_count; ++i)
    if (o->aliases[i] >= 0) program->donated[program->donated_count++] = i;
  program->is_long = is_long(runtime, region);
  program->has_floats = region->float_count > 0;
  program->has_ints = region->int_count > 0;
  pj_program_spec spec = {.outputs = outputs,
                          .output_count = o->live_count,
                          .aliases = o->aliases,
                          .precision = (hlo_precision)atomic_load(&runtime->precision),
                          .index_checks = atomic_load(&runtime->index_mode) != PJ_INDEX_OFF};
  PJ_TRY(pj_program_write(graph, &spec, &out->text));
  return keep_checks(program, graph, &out->text);
}

pj_status pj_program_lower(pj_runtime *runtime, const pj_region *region, const pj_outside *o, pj_lowered *out_lowered) {
  *out_lowered = (pj_lowered){.program = calloc(1, sizeof *out_lowered->program)};
  pj_program *program = out_lowered->program;
  if (!program) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  pj_graph graph = {0};
  uint32_t *values = malloc((region->output_count + 1) * sizeof *values);
  uint32_t *outputs = malloc((o->live_count + 1) * sizeof *outputs);
  program->live = malloc((o->live_count + 1) * sizeof *program->live);
  program->donated = malloc((o->donated + 1) * sizeof *program->donated);
  pj_status status = values && outputs && program->live && program->donated
                         ? lower(runtime, region, o, &graph, values, outputs, out_lowered)
                         : pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  pj_graph_clear(&graph);
  free(values);
  free(outputs);
  if (status) {
    pj_lowered_free(out_lowered);
    return status;
  }
  pj_region_text(region, out_lowered->what, sizeof out_lowered->what);
  program->what = pj_trace_text(&runtime->trace, out_lowered->what);
  out_lowered->reason = "new region";
  if (region->queued_count == 1) {
    out_lowered->plan = (pj_plan *)region->queued[0].plan;
    out_lowered->reason = out_lowered->plan->compiled ? "new aliasing" : out_lowered->plan->reason;
  }
  if (out_lowered->plan && !out_lowered->plan->compiled)
    snprintf(out_lowered->line, sizeof out_lowered->line, "%s", out_lowered->plan->line);
  else if (runtime->hooks.source_line) runtime->hooks.source_line(out_lowered->line, sizeof out_lowered->line);
  return NULL;
}

void pj_lowered_free(pj_lowered *lowered) {
  pj_program_text_free(&lowered->text);
  pj_program_destroy(lowered->program);
  lowered->program = NULL;
}

static int by_use(const void *a, const void *b) {
  const pj_program *x = *(pj_program *const *)a, *y = *(pj_program *const *)b;
  return (x->used > y->used) - (x->used < y->used);
}

// Unloads the programs of the device that were not used for longest, when the process has as many as it may have.
static void make_room(pj_device *device) {
  pj_runtime *runtime = device->runtime;
  if (!is_full(runtime)) return;
  const pj_map *map = &device->programs;
  pj_program **loaded = malloc((map->count + 1) * sizeof *loaded);
  if (!loaded) return;
  size_t count = 0;
  for (size_t i = 0; i < map->capacity; ++i) {
    pj_program *p = map->entries[i].key ? map->entries[i].value : NULL;
    if (p && p->executable) loaded[count++] = p;
  }
  qsort(loaded, count, sizeof *loaded, by_use);
  uint64_t running = device->run_count ? device->runs[0].point : UINT64_MAX;  // the first run that may not be finished
  for (size_t i = 0; i < (count + 3) / 4 && loaded[i]->used < device->point && loaded[i]->used < running; ++i) {
    pj_executable_destroy(loaded[i]->executable);
    loaded[i]->executable = NULL;
    loaded[i]->unloaded = true;
    atomic_fetch_sub(&runtime->loaded, 1);
  }
  free(loaded);
}

pj_program *pj_program_keep(pj_device *device, uint64_t hash, const uint64_t *key, uint32_t words, pj_lowered *lowered) {
  pj_program *kept = pj_map_find(&device->programs, hash, key, words);
  if (kept && (kept->executable || !lowered->program->executable)) return kept;
  bool loaded = lowered->program->executable != NULL;
  if (loaded) make_room(device);
  lowered->program->used = device->point;
  if (kept) {  // one that could not be compiled before, or was unloaded
    pj_program program = *kept;
    *kept = *lowered->program;
    *lowered->program = program;
  } else {
    if (!pj_map_add(&device->programs, hash, key, words, lowered->program)) return NULL;
    kept = lowered->program;
    lowered->program = NULL;
  }
  atomic_fetch_add(&device->runtime->loaded, loaded);
  return kept;
}

pj_status pj_program_compile(pj_runtime *runtime, pj_lowered *lowered, bool (*cancelled)(void *), void *context) {
  const pj_program_text *text = &lowered->text;
  pj_executable **executable = &lowered->program->executable;
  if (runtime->dump) fprintf(stderr, "// %s\n%s\n", lowered->what, text->text);
  pj_compile_report report = {0};
  pj_span span = pj_trace_begin(PJ_SPAN_COMPILE, NULL);
  pj_status status = pj_compiler_get(runtime->compiler, text->text, text->size, runtime->compile_options,
                                     runtime->compile_options_size, cancelled, context, executable, &report);
  pj_count(&runtime->counters.worker_failures, (uint64_t)report.worker_failures);
  if (status) return pj_status_context(status, "%s could not be compiled", lowered->what);
  bool from_disk = report.by == PJ_LOADED_FROM_DISK;
  pj_count(from_disk ? &runtime->counters.cache_loads : &runtime->counters.compiles, 1);
  if (!from_disk) pj_count(&runtime->counters.compile_us, (uint64_t)(report.milliseconds * 1000));
  if (lowered->plan) lowered->plan->compiled = true;
  pj_compiled_memory memory = {.temp = -1};
  pj_status_free(pj_executable_memory(*executable, &memory));
  span.end = span.begin + (int64_t)(report.milliseconds * 1e6);
  if (from_disk) span.kind = PJ_SPAN_LOAD;
  span.text = lowered->program->what;
  span.line = pj_trace_text(&runtime->trace, lowered->line);
  span.reason = lowered->reason;
  pj_runtime_explained(runtime, &span, memory.temp);
  return NULL;
}

void pj_program_refused(pj_runtime *runtime, const pj_lowered *lowered) {
  pj_span span = pj_trace_begin(PJ_SPAN_REFUSED, NULL);
  span.end = span.begin;
  span.text = lowered->program->what;
  span.line = pj_trace_text(&runtime->trace, lowered->line);
  span.reason = "not compiled";
  pj_runtime_explained(runtime, &span, -1);
}
