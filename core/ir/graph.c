#include "ir/graph.h"

#include <stdlib.h>

// Room for `more` items after `count`; the array moves.
static pj_status reserve(void *array, uint32_t count, uint32_t more, uint32_t *capacity, size_t item) {
  void **items = array;
  if (count + more <= *capacity) return NULL;
  uint32_t wanted = *capacity ? 2 * *capacity : 8;
  if (wanted < count + more) wanted = count + more;
  void *grown = realloc(*items, wanted * item);
  if (!grown) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  *items = grown;
  *capacity = wanted;
  return NULL;
}

pj_status pj_graph_add_input(pj_graph *g, const pj_type *type, uint32_t *out_value) {
  if (g->node_count) return pj_error(PJ_INTERNAL, "an input was added to a graph after its first node");
  PJ_TRY(reserve(&g->inputs, g->input_count, 1, &g->input_capacity, sizeof *g->inputs));
  PJ_TRY(reserve(&g->values, g->value_count, 1, &g->value_capacity, sizeof *g->values));
  g->inputs[g->input_count++] = *type;
  *out_value = g->value_count;
  g->values[g->value_count++] = *type;
  return NULL;
}

pj_status pj_graph_add_number(pj_graph *g, pj_dtype dtype, uint32_t *out_number) {
  PJ_TRY(reserve(&g->numbers, g->number_count, 1, &g->number_capacity, sizeof *g->numbers));
  *out_number = g->number_count;
  g->numbers[g->number_count++] = dtype;
  return NULL;
}

pj_status pj_graph_add_constant(pj_graph *g, pj_constant constant, uint32_t *out_constant) {
  PJ_TRY(reserve(&g->constants, g->constant_count, 1, &g->constant_capacity, sizeof *g->constants));
  *out_constant = g->constant_count;
  g->constants[g->constant_count++] = constant;
  return NULL;
}

static pj_status check_ref(const pj_graph *g, const pj_signature *s, uint32_t i, pj_ref ref) {
  const pj_operand *o = &s->operands[i];
  bool fits = false;
  switch (ref.kind) {
    case PJ_REF_VALUE: fits = !o->is_number && ref.index < g->value_count && pj_type_has_room_for(&g->values[ref.index], &o->base); break;
    case PJ_REF_NUMBER: fits = o->is_number && ref.index < g->number_count && g->numbers[ref.index] == o->base.dtype; break;
    case PJ_REF_CONSTANT:
      fits = o->is_number && ref.index < g->constant_count && g->constants[ref.index].dtype == o->base.dtype;
      break;
  }
  return fits ? NULL : pj_error(PJ_INVALID_ARGUMENT, "%s: operand %u is not what the graph has at %u", s->name, i, ref.index);
}

pj_status pj_graph_add_node(pj_graph *g, const pj_signature *s, const pj_ref *refs, uint32_t *out_first_value) {
  for (uint32_t i = 0; i < s->operand_count; ++i)
    if (s->operands[i].has_value) PJ_TRY(check_ref(g, s, i, refs[i]));
  PJ_TRY(reserve(&g->refs, g->ref_count, s->operand_count, &g->ref_capacity, sizeof *g->refs));
  PJ_TRY(reserve(&g->values, g->value_count, s->result_count, &g->value_capacity, sizeof *g->values));
  PJ_TRY(reserve(&g->nodes, g->node_count, 1, &g->node_capacity, sizeof *g->nodes));
  g->nodes[g->node_count++] = (pj_node){s, g->ref_count, g->value_count};
  if (s->operand_count) memcpy(g->refs + g->ref_count, refs, s->operand_count * sizeof *refs);
  g->ref_count += s->operand_count;
  *out_first_value = g->value_count;
  for (uint32_t i = 0; i < s->result_count; ++i) g->values[g->value_count++] = s->results[i].value;
  return NULL;
}

void pj_graph_clear(pj_graph *g) {
  free(g->inputs);
  free(g->numbers);
  free(g->constants);
  free(g->nodes);
  free(g->refs);
  free(g->values);
  memset(g, 0, sizeof *g);
}
