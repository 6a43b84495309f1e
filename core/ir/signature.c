#include "ir/signature.h"

#include <stdlib.h>

#include "base/text.h"

// The most of anything that one call can have; words may come from outside, and counts in them are believed only below this.
enum { MOST_ITEMS = 1 << 20 };

// In the field `start` until add_starts says which.
enum { STARTS = 0 };

typedef struct reader {
  const uint64_t *words;
  uint32_t count, at;
  pj_signature *signature;
  uint32_t element_count;
  pj_status status;
} reader;

static uint64_t next(reader *r) {
  if (r->at < r->count) return r->words[r->at++];
  if (!r->status) r->status = pj_error(PJ_INVALID_ARGUMENT, "%s: the words of the call end too early", r->signature->name);
  return 0;
}

static void fail(reader *r, const char *what) {
  if (!r->status) r->status = pj_error(PJ_INVALID_ARGUMENT, "%s: malformed call: %s", r->signature->name, what);
}

static uint32_t list_count(reader *r, uint64_t word) {
  uint64_t count = word >> 8;
  if (count > MOST_ITEMS || count > r->count) {
    fail(r, "a list longer than the call");
    return 0;
  }
  return (uint32_t)count;
}

static void read_dims(reader *r, int rank, int64_t *out) {
  for (int i = 0; i < rank; ++i) out[i] = (int64_t)next(r);
}

static void contiguous_view(const pj_type *type, pj_view *out_view) {
  *out_view = (pj_view){.dtype = type->dtype, .rank = type->rank};
  for (int i = 0; i < type->rank; ++i) out_view->sizes[i] = type->dims[i];
  pj_row_major_strides(type->rank, type->dims, out_view->strides);
}

static pj_operand *new_operand(reader *r) {
  pj_signature *s = r->signature;
  // Capacity doubles at powers of two.
  if ((s->operand_count & (s->operand_count - 1)) == 0) {
    size_t capacity = s->operand_count ? 2 * (size_t)s->operand_count : 1;
    pj_operand *grown = realloc(s->operands, capacity * sizeof *grown);
    if (!grown) {
      if (!r->status) r->status = pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
      return NULL;
    }
    s->operands = grown;
  }
  pj_operand *operand = &s->operands[s->operand_count];
  *operand = (pj_operand){.start = -1, .room = -1, .length = -1};
  return operand;
}

static void read_tensor(reader *r, uint64_t word, bool has_value) {
  pj_operand *o = new_operand(r);
  if (!o) return;
  int rank = (int)(word >> 16 & 0xff), base_rank = (int)(word >> 32 & 0xff);
  unsigned flags = (unsigned)(word >> 40 & 0xff);
  pj_dtype dtype = (pj_dtype)(word >> 8 & 0xff), base_dtype = (pj_dtype)(word >> 24 & 0xff);
  if (rank > PJ_MAX_RANK || base_rank > PJ_MAX_RANK || (!has_value && !(flags & PJ_TENSOR_IDENTITY))) {
    fail(r, "a tensor's rank or flags");
    return;
  }
  o->base.dtype = base_dtype;
  o->base.rank = base_rank;
  read_dims(r, base_rank, o->base.dims);
  if (!r->status) r->status = pj_type_check(&o->base);
  if (r->status) return;
  o->identity = flags & PJ_TENSOR_IDENTITY;
  if (o->identity) {
    contiguous_view(&o->base, &o->view);
  } else {
    o->view.dtype = dtype;
    o->view.rank = rank;
    read_dims(r, rank, o->view.sizes);
    read_dims(r, rank, o->view.strides);
    o->view.offset = (int64_t)next(r);
    o->view.conj = flags & PJ_TENSOR_CONJ;
    o->view.neg = flags & PJ_TENSOR_NEG;
    if (!r->status) r->status = pj_view_check(&o->view, &o->base);
    o->start = flags & PJ_TENSOR_MOVES ? STARTS : -1;
    if (o->start >= 0 && o->view.offset) fail(r, "a view that moves and has an offset");
  }
  if (flags & PJ_TENSOR_ROOM) {
    o->room = (int32_t)(word >> 48 & 0xff);
    if (!has_value || o->room >= o->view.rank) fail(r, "the dimension of a tensor that has room");
  }
  o->has_value = has_value;
  o->own = o->view.dtype;
  o->weight = o->view.rank ? PJ_WEIGHT_TENSOR : PJ_WEIGHT_ZERO_DIM;
  if (!r->status) ++r->signature->operand_count;
}

static void add_start(reader *r, int32_t *start) {
  if (*start < 0) return;
  *start = (int32_t)r->signature->operand_count;
  pj_operand *o = new_operand(r);
  if (!o) return;
  o->base.dtype = o->view.dtype = o->own = PJ_S64;
  o->identity = o->is_number = o->has_value = true;
  ++r->signature->operand_count;
}

// Starts are numbers of their own behind all others: those of views first, then those of arguments, in order. Behind them
// are the lengths of what has room.
static void add_starts(reader *r) {
  pj_signature *s = r->signature;
  uint32_t tensors = s->operand_count;
  for (uint32_t i = 0; i < tensors && !r->status; ++i) {
    int32_t start = s->operands[i].start;
    add_start(r, &start);  // may move the operands
    s->operands[i].start = start;
  }
  for (uint32_t i = 0; i < s->argument_count && !r->status; ++i) add_start(r, &s->arguments[i].start);
  for (uint32_t i = 0; i < tensors && !r->status; ++i) {
    if (s->operands[i].room < 0) continue;
    int32_t length = STARTS;
    add_start(r, &length);
    s->operands[i].length = length;
  }
}

static void read_number(reader *r, uint64_t word) {
  pj_operand *o = new_operand(r);
  if (!o) return;
  pj_dtype dtype = (pj_dtype)(word >> 8 & 0xff);
  o->own = (pj_dtype)(word >> 16 & 0xff);
  o->weight = (uint8_t)(word >> 24 & 0xff);
  if ((dtype != PJ_PRED && dtype != PJ_S64 && dtype != PJ_F64 && dtype != PJ_C128) || !pj_dtype_size(o->own) ||
      o->weight > PJ_WEIGHT_TENSOR) {
    fail(r, "a number's dtype or weight");
    return;
  }
  o->base.dtype = dtype;
  o->view.dtype = dtype;
  o->identity = o->is_number = o->has_value = true;
  ++r->signature->operand_count;
}

static void *copied(reader *r, uint32_t count) {
  if (r->count - r->at < count) {
    fail(r, "a list longer than the call");
    return NULL;
  }
  int64_t *items = malloc(((size_t)count + 1) * sizeof *items);
  if (!items) {
    if (!r->status) r->status = pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
    return NULL;
  }
  memcpy(items, r->words + r->at, count * sizeof *items);
  items[count] = 0;
  r->at += count;
  return items;
}

static void read_argument(reader *r, pj_argument *a) {
  uint64_t word = next(r);
  a->kind = (pj_argument_kind)(word & 0xff);
  a->first = r->signature->operand_count;
  switch (a->kind) {
    case PJ_ARG_NONE: break;
    case PJ_ARG_TENSOR: read_tensor(r, word, true); break;
    case PJ_ARG_SHAPE: read_tensor(r, word, false); break;
    case PJ_ARG_NUMBER: read_number(r, word); break;
    case PJ_ARG_TENSORS:
    case PJ_ARG_NUMBERS: {
      uint32_t count = list_count(r, word);
      pj_signature *s = r->signature;
      int32_t *grown = realloc(s->elements, ((size_t)r->element_count + count + 1) * sizeof *grown);
      if (!grown) {
        if (!r->status) r->status = pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
        return;
      }
      s->elements = grown;
      a->first = r->element_count;
      for (uint32_t i = 0; i < count && !r->status; ++i) {
        uint64_t element = next(r);
        pj_argument_kind kind = (pj_argument_kind)(element & 0xff);
        s->elements[r->element_count++] = kind == PJ_ARG_NONE ? -1 : (int32_t)s->operand_count;
        if (kind == PJ_ARG_TENSOR || kind == PJ_ARG_SHAPE) read_tensor(r, element, kind == PJ_ARG_TENSOR);
        else if (kind == PJ_ARG_NUMBER) read_number(r, element);
        else if (kind != PJ_ARG_NONE) fail(r, "an element of a tensor list");
      }
      a->count = count;
      break;
    }
    case PJ_ARG_INT:
      a->integer = (int64_t)next(r);
      a->start = word >> 8 & PJ_INT_RELEASED ? STARTS : -1;
      break;
    case PJ_ARG_BOOL: a->integer = word >> 8 != 0; break;
    case PJ_ARG_DTYPE:
      a->integer = (int64_t)(word >> 8);
      if (a->integer >= PJ_DTYPE_COUNT) fail(r, "an unknown dtype");
      break;
    case PJ_ARG_FLOAT: {
      uint64_t bits = next(r);
      memcpy(&a->number, &bits, sizeof bits);
      break;
    }
    case PJ_ARG_INTS:
    case PJ_ARG_BOOLS:
      a->count = list_count(r, word);
      a->ints = copied(r, a->count);
      break;
    case PJ_ARG_FLOATS:
      a->count = list_count(r, word);
      a->floats = copied(r, a->count);
      break;
    case PJ_ARG_STRING:
      if (word >> 8 > MOST_ITEMS) {
        fail(r, "a string's length");
        return;
      }
      a->count = (uint32_t)(word >> 8);
      a->text = copied(r, (a->count + 7) / 8);
      if (a->text) ((char *)a->text)[a->count] = '\0';
      break;
    default: fail(r, "an unknown kind of argument");
  }
}

static pj_status derive_result(const pj_signature *s, uint32_t i) {
  pj_result *result = &s->results[i];
  if (result->logical.rank < 0 || result->logical.rank > PJ_MAX_RANK)
    return pj_error(PJ_UNIMPLEMENTED, "%s: a result has %d dimensions; tensors on this device have at most %d", s->name,
                    (int)result->logical.rank, PJ_MAX_RANK);
  PJ_TRY(pj_type_check(&result->logical));
  pj_view view = {.dtype = result->logical.dtype, .rank = result->logical.rank};
  memcpy(view.sizes, result->logical.dims, sizeof view.sizes);
  memcpy(view.strides, result->strides, sizeof view.strides);
  // Strides with holes or repeats describe no array of their own: such a result is row-major.
  if (!pj_view_covers(&view, pj_type_bytes(&result->logical))) {
    contiguous_view(&result->logical, &view);
    memcpy(result->strides, view.strides, sizeof view.strides);
  }
  pj_view_memory_order(&view, &result->value, result->permutation);
  return NULL;
}

static pj_status decode(pj_signature *s, reader *r, const pj_result *results, uint32_t result_count) {
  uint32_t capacity = 0;
  while (r->at < r->count && !r->status) {
    if (s->argument_count == capacity) {
      capacity = capacity ? 2 * capacity : 8;
      pj_argument *grown = realloc(s->arguments, capacity * sizeof *grown);
      if (!grown) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
      s->arguments = grown;
    }
    s->arguments[s->argument_count] = (pj_argument){.start = -1};
    read_argument(r, &s->arguments[s->argument_count++]);
  }
  add_starts(r);
  PJ_TRY(r->status);
  s->results = calloc(result_count + 1, sizeof *s->results);
  if (!s->results) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  if (result_count) memcpy(s->results, results, result_count * sizeof *results);
  s->result_count = result_count;
  for (uint32_t i = 0; i < result_count; ++i) PJ_TRY(derive_result(s, i));
  if (s->writes_base) {
    if (!s->argument_count || s->arguments[0].kind != PJ_ARG_TENSOR || !result_count)
      return pj_error(PJ_INVALID_ARGUMENT, "%s: only an op with a tensor as first argument can write its base", s->name);
    pj_result *base = &s->results[0];
    base->logical = base->value = s->operands[s->arguments[0].first].base;
    for (int i = 0; i < PJ_MAX_RANK; ++i) base->permutation[i] = i;
    pj_view view;
    contiguous_view(&base->logical, &view);
    memcpy(base->strides, view.strides, sizeof base->strides);
  }
  return NULL;
}

pj_status pj_signature_create(const char *name, const uint64_t *words, uint32_t count, bool writes_base,
                              const pj_result *results, uint32_t result_count, pj_signature **out_signature) {
  pj_signature *s = calloc(1, sizeof *s);
  if (!s) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  s->name = name;
  s->writes_base = writes_base;
  reader r = {.words = words, .count = count, .signature = s};
  pj_status status = decode(s, &r, results, result_count);
  if (status) {
    if (status != r.status) pj_status_free(r.status);
    pj_signature_destroy(s);
    return status;
  }
  *out_signature = s;
  return NULL;
}

void pj_signature_destroy(pj_signature *signature) {
  if (!signature) return;
  for (uint32_t i = 0; i < signature->argument_count; ++i) {
    free((void *)signature->arguments[i].ints);
    free((void *)signature->arguments[i].floats);
    free((void *)signature->arguments[i].text);
  }
  free(signature->arguments);
  free(signature->operands);
  free(signature->elements);
  free(signature->results);
  free(signature);
}

void pj_signature_text(const pj_signature *s, char *out_text, size_t size) {
  pj_text text = pj_text_begin(out_text, size);
  pj_text_add(&text, "%s(", s->name);
  for (uint32_t i = 0; i < s->operand_count; ++i) {
    if (i) pj_text_add(&text, ", ");
    if (i == 8 && s->operand_count > 9) {
      pj_text_add(&text, "... %u more", s->operand_count - i);
      break;
    }
    const pj_operand *o = &s->operands[i];
    if (o->is_number) pj_text_add(&text, "number");
    else pj_text_add_type(&text, o->view.dtype, o->view.rank, o->view.sizes);
  }
  pj_text_add(&text, ")");
}
