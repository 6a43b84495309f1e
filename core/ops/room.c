#include "ops/room.h"

#include <string.h>

// ---- rules ----------------------------------------------------------------------------------------------------------

static bool has_room(const pj_operand *o) { return o->room >= 0; }

static void give_room(pj_result *result, int dim, int64_t size) {
  result->logical.dims[dim] = size;
  result->room = dim;
}

// The operand of a tensor argument; NULL: None, or no tensor.
static const pj_operand *operand_of(const pj_signature *s, uint32_t argument) {
  if (argument >= s->argument_count || s->arguments[argument].kind != PJ_ARG_TENSOR) return NULL;
  return &s->operands[s->arguments[argument].first];
}

static int wrapped(int64_t dim, int rank) { return (int)(dim < 0 ? dim + rank : dim); }

// Results broadcast from operands. All room lies in one dimension of theirs.
static bool broadcast_room(const pj_operand *operands, uint32_t operand_count, pj_result *results, uint32_t count) {
  int from_end = -1;
  int64_t size = 0;
  for (const pj_operand *o = operands; o < operands + operand_count; ++o) {
    if (!has_room(o)) continue;
    int at = o->view.rank - 1 - o->room;
    if (size && at != from_end) return false;
    from_end = at;
    if (!size || o->view.sizes[o->room] < size) size = o->view.sizes[o->room];
  }
  if (!size) return true;
  for (const pj_operand *o = operands; o < operands + operand_count; ++o)
    if (!o->is_number && !has_room(o) && o->view.rank > from_end && o->view.sizes[o->view.rank - 1 - from_end] != 1) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (results[i].logical.rank <= from_end) return false;
    give_room(&results[i], results[i].logical.rank - 1 - from_end, size);
  }
  return true;
}

static bool fit_pointwise(const pj_signature *s, pj_result *results, uint32_t count) {
  return broadcast_room(s->operands, s->operand_count, results, count);
}

// Argument 0 with room, and nothing else; results have its dimensions.
static bool fit_like(const pj_signature *s, pj_result *results, uint32_t count) {
  const pj_operand *x = operand_of(s, 0);
  if (!x || !has_room(x)) return false;
  for (uint32_t i = 0; i < s->operand_count; ++i)
    if (has_room(&s->operands[i]) && &s->operands[i] != x) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (results[i].logical.rank != x->view.rank) return false;
    give_room(&results[i], x->room, x->view.sizes[x->room]);
  }
  return true;
}

// Argument 1 says over which dimensions argument 0 is reduced: None or absent, over all.
static bool fit_reduction(const pj_signature *s, pj_result *results, uint32_t count) {
  const pj_operand *x = operand_of(s, 0);
  if (!x || !has_room(x)) return false;
  const pj_argument none = {.kind = PJ_ARG_NONE}, *a = s->argument_count > 1 ? &s->arguments[1] : &none;
  uint32_t reduced = 0;  // a bit a dimension
  if (a->kind == PJ_ARG_INT && a->start < 0) reduced = 1u << wrapped(a->integer, x->view.rank);
  else if (a->kind == PJ_ARG_INTS && a->count)
    for (uint32_t i = 0; i < a->count; ++i) reduced |= 1u << wrapped(a->ints[i], x->view.rank);
  else if (a->kind == PJ_ARG_NONE || a->kind == PJ_ARG_INTS || a->kind == PJ_ARG_DTYPE) reduced = (1u << x->view.rank) - 1;
  else return false;
  if (reduced >> x->room & 1) return true;
  for (uint32_t i = 0; i < count; ++i) {
    bool keeps = results[i].logical.rank == x->view.rank;
    uint32_t before = 0;
    for (int d = 0; d < x->room && !keeps; ++d) before += reduced >> d & 1;
    give_room(&results[i], x->room - (int)before, x->view.sizes[x->room]);
  }
  return true;
}

// The same with one dimension: without one, the place in the flat tensor is asked.
static bool fit_place(const pj_signature *s, pj_result *results, uint32_t count) {
  return s->argument_count > 1 && s->arguments[1].kind == PJ_ARG_INT && fit_reduction(s, results, count);
}

// [.., m, k] and [.., k, n]
static bool fit_product(const pj_signature *s, pj_result *results, uint32_t count) {
  const pj_operand *a = operand_of(s, 0), *b = operand_of(s, 1);
  int rank = a && b ? a->view.rank : 0;
  if (rank < 2 || b->view.rank != rank || count != 1) return false;
  bool inner_a = a->room == rank - 1, inner_b = b->room == rank - 2;
  if (inner_a || inner_b) return inner_a && inner_b;
  if (has_room(a) && has_room(b)) return false;
  if (has_room(a) && a->room == rank - 2) give_room(&results[0], rank - 2, a->view.sizes[rank - 2]);
  else if (has_room(b) && b->room == rank - 1) give_room(&results[0], rank - 1, b->view.sizes[rank - 1]);
  else return false;
  return true;
}

// aten::index_select(self, dim, index) along another dimension
static bool fit_selection(const pj_signature *s, pj_result *results, uint32_t count) {
  const pj_operand *x = operand_of(s, 0);
  return x && s->arguments[1].kind == PJ_ARG_INT && wrapped(s->arguments[1].integer, x->view.rank) != x->room &&
         fit_like(s, results, count);
}

// Keys and values with room at their length; a bias with room beside them, or the same for all of them.
static bool fit_attention(const pj_signature *s, pj_result *results, uint32_t count) {
  (void)results, (void)count;
  const pj_operand *q = operand_of(s, 0), *k = operand_of(s, 1), *v = operand_of(s, 2), *bias = operand_of(s, 3);
  if (!q || !k || !v || has_room(q) || k->room < 0 || k->room != k->view.rank - 2 || v->room != k->room) return false;
  return !bias || !bias->view.rank || bias->view.sizes[bias->view.rank - 1] == 1 || bias->room == bias->view.rank - 1;
}

// The first tensor grows; what joins it is as long as it says.
static bool fit_growth(const pj_signature *s, pj_result *results, uint32_t count) {
  int dim = pj_room_growth(s);
  if (dim < 0 || count != 1 || !pj_room_is_growth(s, dim)) return false;
  const pj_argument *list = &s->arguments[0];
  for (uint32_t i = 1; i < list->count; ++i)
    if (has_room(&s->operands[s->elements[list->first + i]])) return false;
  const pj_operand *first = &s->operands[s->elements[list->first]];
  if (first->view.sizes[dim] < results[0].logical.dims[dim]) return false;
  give_room(&results[0], dim, first->view.sizes[dim]);
  return true;
}

bool pj_room_is_growth(const pj_signature *s, int dim) { return s->operands[s->elements[s->arguments[0].first]].room == dim; }

// aten::arange: how long the result is, is all that matters of the last argument
static bool fit_range(const pj_signature *s, pj_result *results, uint32_t count) {
  const pj_argument *length = s->argument_count ? &s->arguments[s->argument_count - 1] : NULL;
  if (count != 1 || !length || length->kind != PJ_ARG_FLOAT) return false;
  give_room(&results[0], 0, (int64_t)length->number);
  return true;
}

// aten::index.Tensor(self, indices), where every dimension is indexed: the result has the shape of the indices
static bool fit_places(const pj_signature *s, pj_result *results, uint32_t count) {
  const pj_operand *x = operand_of(s, 0);
  const pj_argument *list = &s->arguments[1];
  if (!x || list->kind != PJ_ARG_TENSORS || (int)list->count != x->view.rank) return false;
  for (uint32_t i = 0; i < list->count; ++i) {
    int32_t element = s->elements[list->first + i];
    if (element < 0 || !pj_dtype_is_integer(s->operands[element].view.dtype)) return false;
  }
  int64_t size = 0;
  for (uint32_t i = 1; i < s->operand_count; ++i) {
    const pj_operand *o = &s->operands[i];
    if (!has_room(o)) continue;
    if (size && size != o->view.sizes[o->room]) return false;
    size = o->view.sizes[o->room];
  }
  return broadcast_room(s->operands + 1, s->operand_count - 1, results, count);
}

// pj::grow(self, dim, size)
static bool fit_grow(const pj_signature *s, pj_result *results, uint32_t count) {
  (void)count;
  const pj_operand *x = operand_of(s, 0);
  int dim = (int)s->arguments[1].integer;
  if (has_room(x) && x->room != dim) return false;
  give_room(&results[0], dim, s->arguments[2].integer);
  return true;
}

int pj_room_growth(const pj_signature *s) {
  if (s->argument_count < 2 || s->arguments[0].kind != PJ_ARG_TENSORS || s->arguments[1].kind != PJ_ARG_INT) return -1;
  const pj_argument *list = &s->arguments[0];
  if (list->count < 2) return -1;
  const pj_operand *first = NULL;
  for (uint32_t i = 0; i < list->count; ++i) {
    int32_t element = s->elements[list->first + i];
    if (element < 0 || !s->operands[element].has_value) return -1;
    if (!i) first = &s->operands[element];
    else if (s->operands[element].view.rank != first->view.rank) return -1;
  }
  int dim = wrapped(s->arguments[1].integer, first->view.rank);
  return first->view.rank && dim >= 0 && dim < first->view.rank ? dim : -1;
}

// Little waste where there is little to waste: at least LEAST_BYTES, else the next power of two.
int64_t pj_room_size(int64_t length, uint64_t bytes) {
  enum { LEAST_BYTES = 65536 };
  int64_t size = 1;
  while (size < length || (uint64_t)size * bytes < LEAST_BYTES) size *= 2;
  return size;
}

// ---- the table ------------------------------------------------------------------------------------------------------

#define POINTWISE(name) {name, fit_pointwise, PJ_ROOM_ANYTHING, .joins = true}
#define TENSOR_OR_SCALAR(name) POINTWISE(name ".Tensor"), POINTWISE(name ".Scalar")
#define DIM_AND_DIMS(name, fill) {name, fit_reduction, fill}, {name ".dim", fit_reduction, fill}, \
  {name ".dims", fit_reduction, fill}

static const pj_room_rule RULES[] = {
    {"aten::cat", fit_growth, PJ_ROOM_ANYTHING, .grows = true},
    {"aten::arange", fit_range, PJ_ROOM_ANYTHING, .says_length = true, .grows = true},
    {"aten::arange.start", fit_range, PJ_ROOM_ANYTHING, .says_length = true, .grows = true},
    {"aten::arange.start_step", fit_range, PJ_ROOM_ANYTHING, .says_length = true, .grows = true},
    {"pj::grow", fit_grow, PJ_ROOM_ANYTHING, .begins = true},
    {"aten::_scaled_dot_product_fused_attention_overrideable", fit_attention, PJ_ROOM_ANYTHING, .joins = true},

    {"aten::mm", fit_product, PJ_ROOM_ZERO, .joins = true},
    {"aten::bmm", fit_product, PJ_ROOM_ZERO, .joins = true},
    {"aten::_softmax", fit_like, PJ_ROOM_LOWEST},
    {"aten::_log_softmax", fit_like, PJ_ROOM_LOWEST},
    {"aten::cumsum", fit_like, PJ_ROOM_ANYTHING},
    {"aten::index.Tensor", fit_places, PJ_ROOM_ZERO},
    {"aten::index_select", fit_selection, PJ_ROOM_ANYTHING},

    {"aten::sum", fit_reduction, PJ_ROOM_ZERO},
    {"aten::sum.dim_IntList", fit_reduction, PJ_ROOM_ZERO},
    {"aten::amax", fit_reduction, PJ_ROOM_LOWEST},
    {"aten::amin", fit_reduction, PJ_ROOM_HIGHEST},
    {"aten::max", fit_reduction, PJ_ROOM_LOWEST},
    {"aten::min", fit_reduction, PJ_ROOM_HIGHEST},
    {"aten::max.dim", fit_place, PJ_ROOM_LOWEST},
    {"aten::min.dim", fit_place, PJ_ROOM_HIGHEST},
    {"aten::argmax", fit_place, PJ_ROOM_LOWEST},
    {"aten::argmin", fit_place, PJ_ROOM_HIGHEST},
    DIM_AND_DIMS("aten::any", PJ_ROOM_ZERO),
    DIM_AND_DIMS("aten::all", PJ_ROOM_ONE),

    {"pj::copy", fit_pointwise, PJ_ROOM_ANYTHING, .says_results = true},
    POINTWISE("aten::_to_copy"),
    POINTWISE("prims::convert_element_type"),
    TENSOR_OR_SCALAR("aten::add"),
    TENSOR_OR_SCALAR("aten::sub"),
    TENSOR_OR_SCALAR("aten::mul"),
    TENSOR_OR_SCALAR("aten::div"),
    TENSOR_OR_SCALAR("aten::eq"),
    TENSOR_OR_SCALAR("aten::ne"),
    TENSOR_OR_SCALAR("aten::lt"),
    TENSOR_OR_SCALAR("aten::le"),
    TENSOR_OR_SCALAR("aten::gt"),
    TENSOR_OR_SCALAR("aten::ge"),
    TENSOR_OR_SCALAR("aten::bitwise_and"),
    TENSOR_OR_SCALAR("aten::bitwise_or"),
    POINTWISE("aten::bitwise_not"),
    POINTWISE("aten::logical_and"),
    POINTWISE("aten::logical_or"),
    POINTWISE("aten::logical_not"),
    POINTWISE("aten::where.self"),
    POINTWISE("aten::masked_fill.Scalar"),
    POINTWISE("aten::masked_fill.Tensor"),
    POINTWISE("aten::maximum"),
    POINTWISE("aten::minimum"),
    POINTWISE("aten::clamp"),
    POINTWISE("aten::neg"),
    POINTWISE("aten::abs"),
    POINTWISE("aten::exp"),
    POINTWISE("aten::log"),
    POINTWISE("aten::sqrt"),
    POINTWISE("aten::rsqrt"),
    POINTWISE("aten::sin"),
    POINTWISE("aten::cos"),
    POINTWISE("aten::tanh"),
    POINTWISE("aten::sigmoid"),
    POINTWISE("aten::relu"),
    POINTWISE("aten::gelu"),
    POINTWISE("aten::silu"),
    {0},
};

const pj_room_rule *pj_room_find(const char *name) {
  for (const pj_room_rule *rule = RULES; rule->name; ++rule)
    if (!strcmp(rule->name, name)) return rule;
  return NULL;
}

// ---- lowering -------------------------------------------------------------------------------------------------------

static hlo_value filling(hlo *h, pj_dtype dtype, pj_room_fill fill) {
  switch (fill) {
    case PJ_ROOM_LOWEST: return hlo_lowest(h, dtype);
    case PJ_ROOM_HIGHEST: return hlo_highest(h, dtype);
    default: return pj_dtype_is_integer(dtype) || dtype == PJ_PRED ? hlo_constant_int(h, dtype, fill == PJ_ROOM_ONE)
                                                                  : hlo_constant(h, dtype, fill == PJ_ROOM_ONE);
  }
}

hlo_value pj_room_counts(pj_lowering *l, const pj_operand *o, int rank, const int64_t *dims, int dim) {
  if (!has_room(o)) return (hlo_value){.id = -1};
  return hlo_lt(l->h, hlo_iota(l->h, PJ_S64, rank, dims, dim), l->operands[o->length]);
}

hlo_value pj_room_filled(pj_lowering *l, const pj_operand *o, hlo_value x, pj_room_fill fill) {
  hlo *h = l->h;
  if (hlo_failed(h) || fill == PJ_ROOM_ANYTHING || !has_room(o)) return x;
  hlo_value counts = pj_room_counts(l, o, x.rank, x.dims, o->room);
  return hlo_select(h, counts, x, filling(h, x.dtype, fill));
}
