#include "ops/program.h"

#include <stdlib.h>

#include "ops/room.h"

typedef struct writer {
  hlo *h;
  const pj_graph *graph;
  hlo_value *values;        // one a graph value
  hlo_value *numbers;       // one a graph number, 0-d
  hlo_value *flags;         // 1-d of one element, one a checked node
  uint32_t *checked_nodes;
  uint32_t checked_count;
} writer;

// One element of a vector of numbers, 0-d.
static hlo_value element(hlo *h, hlo_value vector, int64_t i) {
  return hlo_reshape(h, hlo_slice_dim(h, vector, 0, i, i + 1), 0, NULL);
}

static void write_numbers(writer *w) {
  const pj_graph *g = w->graph;
  int64_t floats = 0, ints = 0;
  for (uint32_t i = 0; i < g->number_count; ++i)
    *(pj_dtype_is_float(g->numbers[i]) || pj_dtype_is_complex(g->numbers[i]) ? &floats : &ints) +=
        pj_dtype_is_complex(g->numbers[i]) ? 2 : 1;
  hlo_value float_vector = {.id = -1}, int_vector = {.id = -1};
  if (floats) float_vector = hlo_parameter(w->h, PJ_F64, 1, &floats, -1);
  if (ints) int_vector = hlo_parameter(w->h, PJ_S64, 1, &ints, -1);
  int64_t f = 0, n = 0;
  for (uint32_t i = 0; i < g->number_count; ++i) switch (g->numbers[i]) {
      case PJ_F64: w->numbers[i] = element(w->h, float_vector, f++); break;
      case PJ_C128:
        w->numbers[i] = hlo_complex(w->h, element(w->h, float_vector, f), element(w->h, float_vector, f + 1));
        f += 2;
        break;
      case PJ_PRED: w->numbers[i] = hlo_convert(w->h, element(w->h, int_vector, n++), PJ_PRED); break;
      default: w->numbers[i] = element(w->h, int_vector, n++);
    }
}

static hlo_value write_constant(hlo *h, const pj_constant *c) {
  switch (c->dtype) {
    case PJ_F64: return hlo_constant(h, PJ_F64, c->real);
    case PJ_C128: return hlo_complex(h, hlo_constant(h, PJ_F64, c->real), hlo_constant(h, PJ_F64, c->imag));
    default: return hlo_constant_int(h, c->dtype, c->integer);
  }
}

static hlo_value resolve(writer *w, pj_ref ref) {
  switch (ref.kind) {
    case PJ_REF_VALUE: return w->values[ref.index];
    case PJ_REF_NUMBER: return w->numbers[ref.index];
    default: return write_constant(w->h, &w->graph->constants[ref.index]);
  }
}

// The smallest size of a dimension with room; 0: there is none.
static int64_t least_room(const pj_signature *s) {
  int64_t least = 0;
  for (uint32_t i = 0; i < s->operand_count; ++i) {
    const pj_operand *o = &s->operands[i];
    if (o->room >= 0 && (!least || o->view.sizes[o->room] < least)) least = o->view.sizes[o->room];
  }
  return least;
}

// The beginning of a value that has room for the type (pj_type_has_room_for).
static hlo_value fitted(hlo *h, hlo_value x, const pj_type *type) {
  const int64_t zeros[PJ_MAX_RANK] = {0};
  bool fits = true;
  for (int d = 0; d < x.rank; ++d) fits = fits && x.dims[d] == type->dims[d];
  return fits || x.id < 0 ? x : hlo_slice(h, x, zeros, type->dims, NULL);
}

static pj_status write_node(writer *w, uint32_t index) {
  const pj_node *node = &w->graph->nodes[index];
  const pj_signature *s = node->signature;
  const pj_lowering_entry *entry = pj_lowering_find(s->name);
  if (!entry) return pj_error(PJ_UNIMPLEMENTED, "%s has no lowering", s->name);
  hlo_value *operands = malloc((s->operand_count + 1) * sizeof *operands);
  bool *returned = calloc(s->result_count + 1, sizeof *returned);
  pj_status status = NULL;
  if (operands && returned) {
    for (uint32_t i = 0; i < s->operand_count; ++i)
      operands[i] = s->operands[i].has_value ? fitted(w->h, resolve(w, w->graph->refs[node->first_ref + i]), &s->operands[i].base)
                                             : (hlo_value){.id = -1};
    pj_lowering l = {.h = w->h, .signature = s, .operands = operands, .results = w->values + node->first_value,
                     .returned = returned, .index_error = {.id = -1}};
    int64_t least = least_room(s);
    const pj_room_rule *rule = least ? pj_room_find(s->name) : NULL;
    if (rule) l.room_fill = (int)rule->fill;
    if (rule && rule->joins) l.room_size = least;
    entry->lower(&l);
    for (uint32_t i = 0; i < s->result_count && !hlo_failed(w->h); ++i)
      if (!returned[i]) status = pj_error(PJ_INTERNAL, "the lowering of %s does not give result %u", s->name, i);
    if (l.index_error.id >= 0) {
      int64_t one = 1;
      w->flags[w->checked_count] = hlo_reshape(w->h, l.index_error, 1, &one);
      w->checked_nodes[w->checked_count++] = index;
    }
  } else {
    status = pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  }
  free(operands);
  free(returned);
  return status;
}

static pj_status write_all(writer *w, const pj_program_spec *spec, pj_program_text *out) {
  const pj_graph *g = w->graph;
  hlo_set_precision(w->h, spec->precision);
  for (uint32_t i = 0; i < g->input_count; ++i)
    w->values[i] = hlo_parameter(w->h, g->inputs[i].dtype, g->inputs[i].rank, g->inputs[i].dims,
                                 spec->aliases ? spec->aliases[i] : -1);
  write_numbers(w);
  for (uint32_t i = 0; i < g->node_count && !hlo_failed(w->h); ++i) PJ_TRY(write_node(w, i));
  hlo_value *results = malloc((spec->output_count + 1) * sizeof *results);
  if (!results) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  for (uint32_t i = 0; i < spec->output_count; ++i) results[i] = w->values[spec->outputs[i]];
  uint32_t count = spec->output_count;
  if (spec->index_checks && w->checked_count && !hlo_failed(w->h))
    results[count++] = hlo_concatenate(w->h, w->flags, (int)w->checked_count, 0);
  const char *text;
  pj_status status = hlo_finish(w->h, results, count, &text, &out->size);
  free(results);
  PJ_TRY(status);
  out->text = malloc(out->size + 1);
  if (!out->text) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  memcpy(out->text, text, out->size);
  out->text[out->size] = 0;
  return NULL;
}

pj_status pj_program_write(const pj_graph *graph, const pj_program_spec *spec, pj_program_text *out_program) {
  *out_program = (pj_program_text){0};
  writer w = {.h = hlo_create(), .graph = graph};
  w.values = calloc(graph->value_count + 1, sizeof *w.values);
  w.numbers = calloc(graph->number_count + 1, sizeof *w.numbers);
  w.flags = calloc(graph->node_count + 1, sizeof *w.flags);
  w.checked_nodes = calloc(graph->node_count + 1, sizeof *w.checked_nodes);
  pj_status status = w.values && w.numbers && w.flags && w.checked_nodes
                         ? write_all(&w, spec, out_program)
                         : pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  if (!status && spec->index_checks && w.checked_count) {
    out_program->checked_nodes = w.checked_nodes;
    out_program->checked_count = w.checked_count;
    w.checked_nodes = NULL;
  }
  free(w.values);
  free(w.numbers);
  free(w.flags);
  free(w.checked_nodes);
  hlo_destroy(w.h);
  return status;
}

void pj_program_text_free(pj_program_text *program) {
  free(program->text);
  free(program->checked_nodes);
  *program = (pj_program_text){0};
}
