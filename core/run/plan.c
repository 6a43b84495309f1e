// Plans: what was learnt of one call key, made once and found again by the words of the call.
#include <stdlib.h>

#include "ops/program.h"
#include "run/internal.h"

static uint32_t write_key(pj_device *device, const pj_call *call) {
  pj_reserve(&device->scratch, 0, call->word_count + 1, &device->scratch_capacity, sizeof *device->scratch);
  device->scratch[0] = call->op->id | (uint64_t)call->writes_base << 32 | (uint64_t)call->room << 33;
  memcpy(device->scratch + 1, call->words, call->word_count * sizeof *call->words);
  return call->word_count + 1;
}

const pj_plan *pj_plan_lookup(pj_device *device, const pj_call *call) {
  uint32_t words = write_key(device, call);
  return pj_map_find(&device->plans, pj_hash_words(device->scratch, words), device->scratch, words);
}

const pj_plan *pj_plan_find(pj_device *device, pj_call *call) {
  const pj_plan *plan = pj_plan_lookup(device, call);
  if (plan || !call->op->entry || call->op->entry->flags & PJ_OP_STORAGE || !pj_call_release_starts(call)) return plan;
  plan = pj_plan_lookup(device, call);
  if (!plan && pj_device_compiles_start(device, device->scratch, call->word_count + 1)) pj_call_fix_starts(call);
  return plan;
}

void pj_plan_destroy(void *argument) {
  pj_plan *plan = argument;
  if (!plan) return;
  for (uint32_t i = 0; i < plan->signature_count; ++i) pj_signature_destroy(plan->signatures[i]);
  free(plan->signatures);
  free(plan->outputs);
  free(plan->results);
  free(plan->rooms);
  free(plan->line);
  pj_graph_clear(&plan->graph);
  free(plan);
}

// ---- why a key is new -----------------------------------------------------------------------------------------------

static bool same_dims(int rank_a, const int64_t *a, int rank_b, const int64_t *b) {
  return rank_a == rank_b && !memcmp(a, b, (size_t)rank_a * sizeof *a);
}

// Operands without the starts of views and arguments, which stand behind all others.
static uint32_t visible_operands(const pj_signature *s) {
  uint32_t count = s->operand_count;
  for (uint32_t i = 0; i < s->operand_count; ++i) count -= (uint32_t)(s->operands[i].start >= 0) + (s->operands[i].length >= 0);
  for (uint32_t i = 0; i < s->argument_count; ++i) count -= s->arguments[i].start >= 0;
  return count;
}

static const char *difference(const pj_signature *old, const pj_signature *new) {
  uint32_t count = visible_operands(new);
  if (visible_operands(old) != count) return "new number of tensors";
  for (uint32_t i = 0; i < count; ++i)
    if (old->operands[i].own != new->operands[i].own) return "new dtype";
  for (uint32_t i = 0; i < count; ++i)
    if (!same_dims(old->operands[i].view.rank, old->operands[i].view.sizes, new->operands[i].view.rank,
                   new->operands[i].view.sizes))
      return "new shape";
  for (uint32_t i = 0; i < count; ++i) {
    const pj_operand *a = &old->operands[i], *b = &new->operands[i];
    if (!same_dims(a->base.rank, a->base.dims, b->base.rank, b->base.dims) || a->view.offset != b->view.offset ||
        (a->start >= 0) != (b->start >= 0) ||
        memcmp(a->view.strides, b->view.strides, (size_t)a->view.rank * sizeof(int64_t)))
      return "new layout";
  }
  return "new constant";
}

// ---- making ---------------------------------------------------------------------------------------------------------

static pj_status out_of_memory(void) { return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory"); }

static pj_result *to_results(const pj_tensor_spec *specs, size_t count) {
  pj_result *results = calloc(count + 1, sizeof *results);
  if (!results) return NULL;
  for (size_t i = 0; i < count; ++i) {
    results[i].room = -1;
    results[i].logical.dtype = specs[i].dtype;
    results[i].logical.rank = specs[i].rank;
    if (specs[i].rank < 0 || specs[i].rank > PJ_MAX_RANK) continue;  // told by pj_signature_create
    memcpy(results[i].logical.dims, specs[i].sizes, (size_t)specs[i].rank * sizeof(int64_t));
    memcpy(results[i].strides, specs[i].strides, (size_t)specs[i].rank * sizeof(int64_t));
  }
  return results;
}

// Adds the operands and numbers of a call to an empty graph, and the ref of each operand of its signature.
static pj_status add_operands(pj_graph *graph, const pj_signature *s, pj_ref *out_refs) {
  for (uint32_t i = 0; i < s->operand_count; ++i) {
    const pj_operand *o = &s->operands[i];
    out_refs[i] = (pj_ref){o->is_number ? PJ_REF_NUMBER : PJ_REF_VALUE, 0};
    if (o->is_number) PJ_TRY(pj_graph_add_number(graph, o->base.dtype, &out_refs[i].index));
    else if (o->has_value) PJ_TRY(pj_graph_add_input(graph, &o->base, &out_refs[i].index));
  }
  return NULL;
}

static pj_status fill_results(pj_plan *plan) {
  plan->results = calloc(plan->result_count + 1, sizeof *plan->results);
  plan->rooms = calloc(plan->result_count + 1, sizeof *plan->rooms);
  if (!plan->results || !plan->rooms) return out_of_memory();
  for (uint32_t i = 0; i < plan->result_count; ++i) {
    plan->rooms[i] = -1;
    for (uint32_t n = 0; n < plan->graph.node_count; ++n) {
      const pj_node *node = &plan->graph.nodes[n];
      uint32_t k = plan->outputs[i] - node->first_value;
      if (plan->outputs[i] < node->first_value || k >= node->signature->result_count) continue;
      const pj_result *r = &node->signature->results[k];
      plan->results[i].dtype = r->logical.dtype;
      plan->results[i].rank = r->logical.rank;
      memcpy(plan->results[i].sizes, r->logical.dims, sizeof plan->results[i].sizes);
      memcpy(plan->results[i].strides, r->strides, sizeof plan->results[i].strides);
      for (int d = 0; d < r->value.rank && r->room >= 0; ++d)
        if (r->permutation[d] == r->room) plan->rooms[i] = d;
    }
  }
  return NULL;
}

// Lowers the plan once, so that its preconditions are told at the call.
static pj_status check(pj_plan *plan) {
  pj_program_spec spec = {.outputs = plan->outputs, .output_count = plan->result_count, .index_checks = true};
  pj_program_text text;
  PJ_TRY(pj_program_write(&plan->graph, &spec, &text));
  plan->checks_indices = text.checked_count;
  pj_program_text_free(&text);
  return fill_results(plan);
}

// Makes the plan known, unless another thread was first. Takes it over.
static pj_status publish(pj_device *device, const pj_call *call, pj_plan *plan) {
  pj_status status = plan->refused ? NULL : check(plan);
  if (status) {
    pj_plan_destroy(plan);
    return status;
  }
  char line[300] = "";
  if (device->runtime->hooks.source_line) device->runtime->hooks.source_line(line, sizeof line);
  if (!(plan->line = strdup(line))) {
    pj_plan_destroy(plan);
    return out_of_memory();
  }
  plan->op = call->op;
  for (uint32_t i = 0; i < plan->signature_count; ++i) {
    const pj_lowering_entry *entry = pj_lowering_find(plan->signatures[i]->name);
    plan->random = plan->random || (entry && (entry->flags & PJ_OP_RANDOM));
  }
  plan->id = atomic_fetch_add(&device->runtime->next_plan, 1);
  pthread_mutex_lock(&device->lock);
  uint32_t words = write_key(device, call);
  uint64_t hash = pj_hash_words(device->scratch, words);
  bool added = false, first = !pj_map_find(&device->plans, hash, device->scratch, words);
  if (first) {
    pj_op *op = (pj_op *)call->op;
    pthread_mutex_lock(&device->runtime->lock);
    plan->reason = call->room ? "new room"
                   : op->newest && op->newest->signature_count && plan->signature_count
                       ? difference(op->newest->signatures[0], plan->signatures[0])
                       : "new op";
    added = pj_map_add(&device->plans, hash, device->scratch, words, plan);
    if (added && !call->room) op->newest = plan;
    pthread_mutex_unlock(&device->runtime->lock);
    bool may_grow = !call->room && op->room && op->room->grows && plan->signature_count == 1;
    plan->grows = may_grow && pj_device_grows(device, op, plan->signatures[0]);
  }
  pthread_mutex_unlock(&device->lock);
  if (added) return NULL;
  pj_plan_destroy(plan);
  return first ? out_of_memory() : NULL;
}

static pj_status fill_single(pj_plan *plan, const pj_call *call, const pj_result *results, uint32_t count) {
  plan->signatures = calloc(1, sizeof *plan->signatures);
  if (!plan->signatures) return out_of_memory();
  PJ_TRY(pj_signature_create(call->op->name, call->words, call->word_count, call->writes_base, results, count,
                             &plan->signatures[0]));
  plan->signature_count = 1;
  const pj_signature *s = plan->signatures[0];
  pj_ref *refs = calloc(s->operand_count + 1, sizeof *refs);
  plan->outputs = calloc(s->result_count + 1, sizeof *plan->outputs);
  uint32_t first = 0;
  pj_status status = refs && plan->outputs ? add_operands(&plan->graph, s, refs) : out_of_memory();
  if (!status) status = pj_graph_add_node(&plan->graph, s, refs, &first);
  free(refs);
  PJ_TRY(status);
  plan->result_count = s->result_count;
  for (uint32_t i = 0; i < plan->result_count; ++i) plan->outputs[i] = first + i;
  return NULL;
}

pj_status pj_plan_create_single(pj_device *device, const pj_call *call, const pj_result *results, uint32_t count) {
  pj_plan *plan = calloc(1, sizeof *plan);
  if (!plan) return out_of_memory();
  plan->refused = !results;
  pj_status status = plan->refused ? NULL : fill_single(plan, call, results, count);
  if (!status) return publish(device, call, plan);
  pj_plan_destroy(plan);
  return status;
}

pj_status pj_plan_create(pj_device *device, const pj_call *call, const pj_tensor_spec *results, size_t count) {
  PJ_TRY(pj_runtime_check(device->runtime));
  if (!call->op->entry) return pj_error(PJ_UNIMPLEMENTED, "%s has no lowering", call->op->name);
  pj_tensor_spec by_rule[PJ_DYNAMIC_RESULTS];
  if (!results) {
    PJ_TRY(pj_dynamic_results(call, by_rule, &count));
    results = by_rule;
  }
  pj_result *decoded = to_results(results, count);
  if (!decoded) return out_of_memory();
  pj_status status = pj_plan_create_single(device, call, decoded, (uint32_t)count);
  free(decoded);
  return status;
}

size_t pj_plan_result_count(const pj_plan *plan) { return plan->result_count; }
const pj_tensor_spec *pj_plan_result(const pj_plan *plan, size_t i) { return &plan->results[i]; }

// ---- plans of several nodes -----------------------------------------------------------------------------------------

// The graph is the plan's from the start; `refs` says what each numbered value is in it.
struct pj_builder {
  pj_plan *plan;
  pj_ref *refs;
  uint32_t ref_count, ref_capacity, signature_capacity;
};

static void builder_ref(pj_builder *b, pj_ref ref) {
  pj_reserve(&b->refs, b->ref_count, 1, &b->ref_capacity, sizeof *b->refs);
  b->refs[b->ref_count++] = ref;
}

pj_status pj_builder_create(const pj_call *call, pj_builder **out_builder) {
  pj_builder *b = calloc(1, sizeof *b);
  if (!b || !(b->plan = calloc(1, sizeof *b->plan))) {
    free(b);
    return out_of_memory();
  }
  pj_signature *s = NULL;
  pj_status status = pj_signature_create(call->op->name, call->words, call->word_count, false, NULL, 0, &s);
  pj_ref *refs = status ? NULL : calloc(s->operand_count + 1, sizeof *refs);
  if (!status) status = refs ? add_operands(&b->plan->graph, s, refs) : out_of_memory();
  for (uint32_t i = 0; !status && i < s->operand_count; ++i) builder_ref(b, refs[i]);
  free(refs);
  pj_signature_destroy(s);
  if (status) pj_builder_destroy(b);
  else *out_builder = b;
  return status;
}

void pj_builder_destroy(pj_builder *b) {
  if (!b) return;
  pj_plan_destroy(b->plan);
  free(b->refs);
  free(b);
}

// The constant that operand `o` of `node` has; `floats` and `ints` count what earlier operands used.
static pj_constant take_constant(const pj_call *node, const pj_operand *o, uint32_t *floats, uint32_t *ints) {
  pj_constant c = {.dtype = o->base.dtype};
  if (c.dtype == PJ_F64 || c.dtype == PJ_C128) c.real = node->floats[(*floats)++];
  if (c.dtype == PJ_C128) c.imag = node->floats[(*floats)++];
  if (c.dtype == PJ_PRED || c.dtype == PJ_S64) c.integer = node->ints[(*ints)++];
  return c;
}

pj_status pj_builder_append(pj_builder *b, const pj_call *node, const uint32_t *operands, uint32_t operand_count,
                            const pj_tensor_spec *results, uint32_t result_count, uint32_t *out_first) {
  if (!node->op->entry) return pj_error(PJ_UNIMPLEMENTED, "%s has no lowering", node->op->name);
  pj_plan *plan = b->plan;
  pj_result *decoded = to_results(results, result_count);
  if (!decoded) return out_of_memory();
  pj_signature *s = NULL;
  pj_status status = pj_signature_create(node->op->name, node->words, node->word_count, node->writes_base, decoded,
                                         result_count, &s);
  free(decoded);
  PJ_TRY(status);
  pj_reserve(&plan->signatures, plan->signature_count, 1, &b->signature_capacity, sizeof(pj_signature *));
  plan->signatures[plan->signature_count++] = s;
  if (s->operand_count != operand_count)
    return pj_error(PJ_INVALID_ARGUMENT, "%s: %u operands were given for a call with %u", node->op->name, operand_count,
                    s->operand_count);
  pj_ref *refs = calloc(operand_count + 1, sizeof *refs);
  if (!refs) return out_of_memory();
  uint32_t floats = 0, ints = 0, first = 0;
  for (uint32_t i = 0; i < operand_count && !status; ++i) {
    const pj_operand *o = &s->operands[i];
    if (o->is_number && operands[i] == PJ_BUILDER_CONSTANT) {
      refs[i].kind = PJ_REF_CONSTANT;
      status = pj_graph_add_constant(&plan->graph, take_constant(node, o, &floats, &ints), &refs[i].index);
    } else if (o->has_value && operands[i] >= b->ref_count) {
      status = pj_error(PJ_INVALID_ARGUMENT, "%s: operand %u is value %u, which does not exist yet", node->op->name, i,
                        operands[i]);
    } else if (o->has_value) {
      refs[i] = b->refs[operands[i]];
    }
  }
  if (!status) status = pj_graph_add_node(&plan->graph, s, refs, &first);
  free(refs);
  PJ_TRY(status);
  *out_first = b->ref_count;
  for (uint32_t i = 0; i < result_count; ++i) builder_ref(b, (pj_ref){PJ_REF_VALUE, first + i});
  return NULL;
}

bool pj_builder_type(const pj_builder *b, uint32_t value, pj_dtype *out_dtype, int *out_rank,
                     int64_t out_dims[PJ_MAX_RANK]) {
  if (value >= b->ref_count || b->refs[value].kind != PJ_REF_VALUE) return false;
  const pj_type *type = &b->plan->graph.values[b->refs[value].index];
  *out_dtype = type->dtype;
  *out_rank = type->rank;
  memcpy(out_dims, type->dims, (size_t)type->rank * sizeof *out_dims);
  return true;
}

pj_status pj_plan_create_from(pj_device *device, const pj_call *call, pj_builder *b, const uint32_t *outputs,
                              uint32_t output_count) {
  pj_status status = pj_runtime_check(device->runtime);
  pj_plan *plan = b->plan;
  plan->outputs = calloc(output_count + 1, sizeof *plan->outputs);
  if (!plan->outputs && !status) status = out_of_memory();
  for (uint32_t i = 0; i < output_count && !status; ++i) {
    bool made = outputs[i] < b->ref_count && b->refs[outputs[i]].kind == PJ_REF_VALUE &&
                b->refs[outputs[i]].index >= plan->graph.input_count;
    if (made) plan->outputs[plan->result_count++] = b->refs[outputs[i]].index;
    else status = pj_error(PJ_INVALID_ARGUMENT, "%s: result %u of its graph is no node's", call->op->name, i);
  }
  if (!status) {
    b->plan = NULL;
    status = publish(device, call, plan);
  }
  pj_builder_destroy(b);
  return status;
}
