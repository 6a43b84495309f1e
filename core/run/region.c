// Regions: what is queued, and the key under which its program is found.
#include <stdlib.h>

#include "base/text.h"
#include "run/internal.h"

pj_region *pj_region_create(pj_device *device) {
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
      region->float_count = region->int_count = region->calls = region->done = 0;
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

void pj_region_give_back(pj_device *device, pj_region *region) {
  region_clear(region);
  if (device->spare) pj_region_destroy(region);
  else device->spare = region;
}

void pj_region_put_key(pj_region *region, uint64_t word) {
  pj_reserve(&region->key, region->key_count, 1, &region->key_capacity, sizeof *region->key);
  region->key[region->key_count++] = word;
}

static void put_ref(pj_region *region, uint32_t ref) {
  pj_reserve(&region->refs, region->ref_count, 1, &region->ref_capacity, sizeof *region->refs);
  region->refs[region->ref_count++] = ref;
  pj_region_put_key(region, ref);
}

// Of an input with room, whose array is not what the plans say that read what counts of it: told apart from plans and refs
// by its highest bit.
static void put_room(pj_region *region, const pj_value *value) {
  pj_region_put_key(region, 1ull << 63 | (uint64_t)value->room << 56 | (uint64_t)value->array->dims[value->room]);
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
  if (value->room >= 0) put_room(region, value);
  return value->ref = 2 * region->input_count++;
}

static void put_numbers(pj_region *region, const double *floats, uint32_t float_count, const int64_t *ints,
                        uint32_t int_count) {
  if (float_count) {
    pj_reserve(&region->floats, region->float_count, float_count, &region->float_capacity, sizeof *floats);
    memcpy(region->floats + region->float_count, floats, float_count * sizeof *floats);
    region->float_count += float_count;
  }
  if (int_count) {
    pj_reserve(&region->ints, region->int_count, int_count, &region->int_capacity, sizeof *ints);
    memcpy(region->ints + region->int_count, ints, int_count * sizeof *ints);
    region->int_count += int_count;
  }
}

static void put_plan(pj_region *region, const pj_plan *plan, pthread_t thread, const char *line) {
  pj_reserve(&region->queued, region->queued_count, 1, &region->queued_capacity, sizeof *region->queued);
  region->queued[region->queued_count++] = (pj_queued){plan, region->ref_count, region->output_count,
                                                      region->float_count, region->int_count, thread, line};
  pj_region_put_key(region, plan->id);
  region->random = region->random || plan->random;
  region->checks_indices = region->checks_indices || plan->checks_indices;
  pj_reserve(&region->outputs, region->output_count, plan->result_count, &region->output_capacity,
             sizeof *region->outputs);
}

static void put_output(pj_region *region, pj_value *value) {
  value->region = region->id;
  value->ref = 2 * region->output_count + 1;
  region->outputs[region->output_count++] = value;
}

pj_status pj_region_append(pj_device *device, pj_call *call, const pj_plan *plan, const pj_plan *queued, const char *line) {
  for (uint32_t i = 0; i < call->operand_count; ++i) {
    const pj_value *v = call->operands[i];
    if (v->device != device)
      return pj_error(PJ_INVALID_ARGUMENT, "%s: tensors of tpu:%d and tpu:%d in one op", call->op->name, v->device->index,
                      device->index);
    if (v->error) return pj_status_copy(v->error);
  }
  pj_region *region = device->region;
  put_plan(region, queued, pthread_self(), line);
  // The call keeps no reference to its operands: it would keep them from being donated.
  for (uint32_t i = 0; i < call->operand_count; ++i) put_ref(region, take_operand(region, call->operands[i]));
  call->operand_count = 0;
  put_numbers(region, call->floats, call->float_count, call->ints, call->int_count);
  pj_reserve(&call->results, call->result_count, plan->result_count, &call->result_capacity, sizeof *call->results);
  for (uint32_t i = 0; i < plan->result_count; ++i) {
    pj_value *v = pj_value_create(device, &plan->graph.values[plan->outputs[i]],
                                  &queued->graph.values[queued->outputs[i]], queued->rooms[i], /*refs=*/2);
    put_output(region, v);
    call->results[call->result_count++] = v;
  }
  return NULL;
}

static pj_value **slot_of(const pj_region *region, uint32_t ref) {
  return ref & 1 ? &region->outputs[ref / 2] : &region->inputs[ref / 2];
}

void pj_region_take_op(pj_region *one, pj_region *from, uint32_t q, const uint32_t *last) {
  const pj_queued *queued = &from->queued[q], *next = q + 1 < from->queued_count ? queued + 1 : NULL;
  const pj_plan *plan = queued->plan;
  uint32_t refs = (next ? next->first_ref : from->ref_count) - queued->first_ref;
  put_plan(one, plan, queued->thread, queued->line);
  for (uint32_t i = 0; i < refs; ++i) {
    pj_value *v = *slot_of(from, from->refs[queued->first_ref + i]);
    pj_value_retain(v);
    put_ref(one, take_operand(one, v));
  }
  put_numbers(one, from->floats + queued->first_float, (next ? next->first_float : from->float_count) - queued->first_float,
              from->ints + queued->first_int, (next ? next->first_int : from->int_count) - queued->first_int);
  for (uint32_t i = 0; i < plan->result_count; ++i) {
    pj_value *v = from->outputs[queued->first_output + i];
    pj_value_retain(v);
    put_output(one, v);
  }
  // What no later op uses is held by `one` alone.
  for (uint32_t i = 0; last && i < refs + plan->result_count; ++i) {
    uint32_t ref = i < refs ? from->refs[queued->first_ref + i] : 2 * (queued->first_output + i - refs) + 1;
    pj_value **slot = slot_of(from, ref);
    if (last[ref] > q || !*slot) continue;
    pj_value_release(*slot);
    *slot = NULL;
  }
}

static void put_into_slot(pj_value **slot, pj_value *value) {
  if (*slot) return;
  pj_value_retain(value);
  *slot = value;
}

void pj_region_return_op(pj_region *one, pj_region *from, uint32_t q) {
  const pj_queued *queued = &from->queued[q];
  for (uint32_t i = 0; i < one->ref_count; ++i)
    put_into_slot(slot_of(from, from->refs[queued->first_ref + i]), *slot_of(one, one->refs[i]));
  for (uint32_t i = 0; i < one->output_count; ++i) put_into_slot(&from->outputs[queued->first_output + i], one->outputs[i]);
}

void pj_region_put_back(pj_device *device, pj_region *region) {
  pj_region *since = device->region, *whole = pj_region_create(device);
  for (uint32_t q = region->done; q < region->queued_count; ++q) pj_region_take_op(whole, region, q, NULL);
  for (uint32_t q = 0; q < since->queued_count; ++q) pj_region_take_op(whole, since, q, NULL);
  pj_region_move_undo(whole, region);
  pj_region_move_undo(whole, since);
  whole->calls = region->calls + since->calls;
  device->region = whole;
  pj_region_give_back(device, region);
  pj_region_give_back(device, since);
}

// The region as one graph. `out_values` (room for the region's outputs) gets the value number of each output.
pj_status pj_region_graph(const pj_region *region, pj_graph *graph, uint32_t *out_values) {
  uint32_t number = 0;
  for (uint32_t i = 0; i < region->input_count; ++i) PJ_TRY(pj_graph_add_input(graph, region->inputs[i]->array, &number));
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

// "name(f32[3,4], s64[3]) of 12 ops"
static void graph_text(const pj_plan *plan, char *out, size_t size) {
  enum { SHOWN = 8 };
  const pj_graph *graph = &plan->graph;
  pj_text text = pj_text_begin(out, size);
  pj_text_add(&text, "%s(", plan->op->name);
  for (uint32_t i = 0; i < graph->input_count && i < SHOWN; ++i) {
    if (i) pj_text_add(&text, ", ");
    pj_text_add_type(&text, graph->inputs[i].dtype, graph->inputs[i].rank, graph->inputs[i].dims);
  }
  if (graph->input_count > SHOWN) pj_text_add(&text, ", ... %u more", graph->input_count - SHOWN);
  pj_text_add(&text, ") of %u ops", graph->node_count);
}

void pj_region_text(const pj_region *region, char *out, size_t size) {
  const pj_plan *first = region->queued[0].plan;
  if (region->queued_count == 1 && first->signature_count == 1) {
    pj_signature_text(first->signatures[0], out, size);
    return;
  }
  if (region->queued_count == 1) {
    graph_text(first, out, size);
    return;
  }
  pj_text text = pj_text_begin(out, size);
  for (uint32_t q = 0; q < region->queued_count; ++q)
    pj_text_add(&text, q ? " + %s" : "%s", region->queued[q].plan->op->name);
}
