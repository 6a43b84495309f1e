#include "ops/lowering.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"
#include "ops/room.h"

static const pj_argument *argument(const pj_lowering *l, int i) {
  static const pj_argument absent = {.kind = PJ_ARG_NONE, .start = -1};
  return i >= 0 && (uint32_t)i < l->signature->argument_count ? &l->signature->arguments[i] : &absent;
}

static hlo_value wrong_kind(pj_lowering *l, int i, const char *wanted) {
  return hlo_fail(l->h, PJ_INTERNAL, "%s: argument %d is no %s (kind %d)", l->signature->name, i, wanted,
                  (int)argument(l, i)->kind);
}

pj_argument_kind pj_kind(const pj_lowering *l, int i) { return argument(l, i)->kind; }
bool pj_present(const pj_lowering *l, int i) { return pj_kind(l, i) != PJ_ARG_NONE; }

// Where a view starts that moves through its base; id < 0: at its offset.
static hlo_value start_of(const pj_lowering *l, const pj_operand *o) {
  return o->start < 0 ? PJ_VIEW_AT_OFFSET : l->operands[o->start];
}

static hlo_value operand_value(pj_lowering *l, uint32_t index) {
  const pj_operand *o = &l->signature->operands[index];
  if (!o->has_value)
    return hlo_fail(l->h, PJ_INTERNAL, "%s: the values of operand %u are not read (PJ_SHAPE_ONLY)", l->signature->name, index);
  if (o->is_number) return hlo_convert(l->h, l->operands[index], o->own);
  hlo_value x = o->identity ? l->operands[index] : pj_view_read(l->h, l->operands[index], &o->view, start_of(l, o));
  if (l->room_size && o->room >= 0 && x.dims[o->room] > l->room_size) x = hlo_slice_dim(l->h, x, o->room, 0, l->room_size);
  return pj_room_filled(l, o, x, (pj_room_fill)l->room_fill);
}

static pj_type operand_type(const pj_operand *o) {
  pj_type type = {.dtype = o->own, .rank = o->view.rank};
  memcpy(type.dims, o->view.sizes, sizeof type.dims);
  return type;
}

const pj_operand *pj_operand_of(const pj_lowering *l, int i) {
  const pj_argument *a = argument(l, i);
  bool has = a->kind == PJ_ARG_TENSOR || a->kind == PJ_ARG_SHAPE || a->kind == PJ_ARG_NUMBER;
  return has ? &l->signature->operands[a->first] : NULL;
}

hlo_value pj_tensor(pj_lowering *l, int i) {
  return pj_operand_of(l, i) ? operand_value(l, argument(l, i)->first) : wrong_kind(l, i, "tensor");
}

pj_type pj_tensor_type(pj_lowering *l, int i) {
  const pj_operand *o = pj_operand_of(l, i);
  if (o) return operand_type(o);
  wrong_kind(l, i, "tensor");
  return (pj_type){0};
}

int pj_list_count(const pj_lowering *l, int i) { return (int)argument(l, i)->count; }

static int32_t list_element(pj_lowering *l, int i, int k, pj_argument_kind kind) {
  const pj_argument *a = argument(l, i);
  if (a->kind != kind || k < 0 || (uint32_t)k >= a->count) {
    wrong_kind(l, i, "list of that length");
    return -1;
  }
  return l->signature->elements[a->first + (uint32_t)k];
}

bool pj_list_present(const pj_lowering *l, int i, int k) {
  const pj_argument *a = argument(l, i);
  return a->kind == PJ_ARG_TENSORS && k >= 0 && (uint32_t)k < a->count && l->signature->elements[a->first + (uint32_t)k] >= 0;
}

hlo_value pj_list_tensor(pj_lowering *l, int i, int k) {
  int32_t element = list_element(l, i, k, PJ_ARG_TENSORS);
  return element < 0 ? wrong_kind(l, i, "list with that element") : operand_value(l, (uint32_t)element);
}

hlo_value pj_list_number(pj_lowering *l, int i, int k, pj_dtype dtype) {
  const pj_argument *a = argument(l, i);
  if (a->kind == PJ_ARG_FLOATS && k >= 0 && (uint32_t)k < a->count) return hlo_constant(l->h, dtype, a->floats[k]);
  int32_t element = list_element(l, i, k, PJ_ARG_NUMBERS);
  return element < 0 ? wrong_kind(l, i, "list of numbers") : hlo_convert(l->h, l->operands[element], dtype);
}

hlo_value pj_number(pj_lowering *l, int i, pj_dtype dtype) {
  const pj_argument *a = argument(l, i);
  switch (a->kind) {
    case PJ_ARG_NUMBER: {
      hlo_value number = l->operands[a->first];
      if (pj_dtype_is_complex(number.dtype) && !pj_dtype_is_complex(dtype))
        return hlo_fail(l->h, PJ_INVALID_ARGUMENT, "%s: a complex number cannot be converted to %s", l->signature->name,
                        pj_dtype_name(dtype));
      return hlo_convert(l->h, number, dtype);
    }
    case PJ_ARG_TENSOR: return hlo_convert(l->h, operand_value(l, a->first), dtype);
    case PJ_ARG_INT:
    case PJ_ARG_BOOL:
      return pj_dtype_is_integer(dtype) ? hlo_constant_int(l->h, dtype, a->integer)
                                        : hlo_constant(l->h, dtype, (double)a->integer);
    case PJ_ARG_FLOAT:  // integers truncate, as a run-time number's conversion does
      return hlo_constant(l->h, dtype, pj_dtype_is_integer(dtype) ? trunc(a->number) : a->number);
    default: return wrong_kind(l, i, "number");
  }
}

bool pj_start_is_known(const pj_lowering *l, int i) { return argument(l, i)->start < 0; }

hlo_value pj_start(pj_lowering *l, int i) {
  const pj_argument *a = argument(l, i);
  return a->start < 0 ? hlo_constant_int(l->h, PJ_S64, pj_int(l, i)) : l->operands[a->start];
}

int64_t pj_int(pj_lowering *l, int i) {
  const pj_argument *a = argument(l, i);
  if (a->start >= 0) wrong_kind(l, i, "integer that is known when the program is compiled");
  if (a->kind == PJ_ARG_INT || a->kind == PJ_ARG_BOOL || a->kind == PJ_ARG_DTYPE) return a->integer;
  wrong_kind(l, i, "integer");
  return 0;
}

double pj_float(pj_lowering *l, int i) {
  const pj_argument *a = argument(l, i);
  if (a->kind == PJ_ARG_FLOAT) return a->number;
  if (a->kind == PJ_ARG_INT || a->kind == PJ_ARG_BOOL) return (double)a->integer;
  wrong_kind(l, i, "constant number");
  return 0;
}

bool pj_bool(pj_lowering *l, int i) { return pj_int(l, i) != 0; }

const char *pj_string(pj_lowering *l, int i) {
  const pj_argument *a = argument(l, i);
  if (a->kind == PJ_ARG_STRING) return a->text;
  if (a->kind != PJ_ARG_NONE) wrong_kind(l, i, "string");
  return "";
}

pj_dtype pj_dtype_argument(pj_lowering *l, int i, pj_dtype otherwise) {
  const pj_argument *a = argument(l, i);
  if (a->kind == PJ_ARG_DTYPE) return (pj_dtype)a->integer;
  if (a->kind != PJ_ARG_NONE) wrong_kind(l, i, "dtype");
  return otherwise;
}

const int64_t *pj_ints(pj_lowering *l, int i, int *out_count) {
  const pj_argument *a = argument(l, i);
  *out_count = 0;
  if (a->kind == PJ_ARG_NONE) return NULL;
  if (a->kind == PJ_ARG_INT) {
    *out_count = 1;
    return &a->integer;
  }
  if (a->kind != PJ_ARG_INTS && a->kind != PJ_ARG_BOOLS) {
    wrong_kind(l, i, "list of integers");
    return NULL;
  }
  *out_count = (int)a->count;
  return a->ints;
}

const double *pj_floats(pj_lowering *l, int i, int *out_count) {
  const pj_argument *a = argument(l, i);
  *out_count = 0;
  if (a->kind == PJ_ARG_NONE) return NULL;
  if (a->kind != PJ_ARG_FLOATS) {
    wrong_kind(l, i, "list of floats");
    return NULL;
  }
  *out_count = (int)a->count;
  return a->floats;
}

static int wrapped_dim(pj_lowering *l, int64_t dim, int rank) {
  int range = rank ? rank : 1;
  if (dim < -range || dim >= range) {
    hlo_fail(l->h, PJ_OUT_OF_RANGE, "Dimension out of range (expected to be in range of [%d, %d], but got %lld)", -range,
             range - 1, (long long)dim);
    return 0;
  }
  return (int)(dim < 0 ? dim + range : dim);
}

int pj_dim(pj_lowering *l, int i, int rank) { return wrapped_dim(l, pj_int(l, i), rank); }

int pj_dims(pj_lowering *l, int i, int rank, bool empty_is_all, int out_dims[PJ_MAX_RANK]) {
  int count;
  const int64_t *dims = pj_ints(l, i, &count);
  if ((!count && empty_is_all) || !pj_present(l, i)) {
    for (int d = 0; d < rank; ++d) out_dims[d] = d;
    return rank;
  }
  bool seen[PJ_MAX_RANK] = {false};
  int found = 0;
  for (int k = 0; k < count && k < PJ_MAX_RANK; ++k) {
    int dim = wrapped_dim(l, dims[k], rank);
    if (seen[dim]) {
      hlo_fail(l->h, PJ_INVALID_ARGUMENT, "dim %d appears multiple times in the list of dims", dim);
      break;
    }
    seen[dim] = true;
    if (rank) out_dims[found++] = dim;
  }
  return found;
}

// torch.result_type: within a category the widest dtype wins; a lighter operand only matters when its category is higher.
static int category(pj_dtype dtype) {
  return dtype == PJ_PRED ? 0 : pj_dtype_is_integer(dtype) ? 1 : pj_dtype_is_complex(dtype) ? 3 : 2;
}

static pj_dtype promote_pair(pj_dtype a, pj_dtype b) {
  if (a == b || b == PJ_INVALID) return a;
  if (a == PJ_INVALID) return b;
  int ca = category(a), cb = category(b);
  if (ca != cb) {
    pj_dtype high = ca > cb ? a : b, low = ca > cb ? b : a;
    // A complex with a real of more precision takes that precision.
    return high == PJ_C64 && low == PJ_F64 ? PJ_C128 : high;
  }
  if (ca == 2) {
    size_t sa = pj_dtype_size(a), sb = pj_dtype_size(b);
    return sa == sb ? PJ_F32 : sa > sb ? a : b;  // f16 with bf16 is float32
  }
  if (ca == 1) {
    bool signed_a = pj_dtype_is_signed(a), signed_b = pj_dtype_is_signed(b);
    size_t sa = pj_dtype_size(a), sb = pj_dtype_size(b);
    if (signed_a == signed_b) return sa > sb ? a : b;
    pj_dtype is_signed = signed_a ? a : b;
    size_t ss = signed_a ? sa : sb, su = signed_a ? sb : sa;
    if (ss > su) return is_signed;
    return su == 1 ? PJ_S16 : su == 2 ? PJ_S32 : PJ_S64;
  }
  return pj_dtype_size(a) > pj_dtype_size(b) ? a : b;
}

pj_dtype pj_promote(pj_lowering *l, const int *arguments, int count) {
  pj_dtype by_weight[3] = {PJ_INVALID, PJ_INVALID, PJ_INVALID};
  for (int k = 0; k < count; ++k) {
    const pj_argument *a = argument(l, arguments[k]);
    if (a->kind != PJ_ARG_TENSOR && a->kind != PJ_ARG_SHAPE && a->kind != PJ_ARG_NUMBER) continue;
    const pj_operand *o = &l->signature->operands[a->first];
    pj_dtype own = o->own;
    // A Python number counts as the default type of its category: its width never widens a tensor.
    if (o->weight == PJ_WEIGHT_PYTHON) own = own == PJ_F64 ? PJ_F32 : own == PJ_C128 ? PJ_C64 : own;
    by_weight[o->weight] = promote_pair(by_weight[o->weight], own);
  }
  pj_dtype result = by_weight[PJ_WEIGHT_TENSOR];
  for (int w = PJ_WEIGHT_ZERO_DIM; w >= PJ_WEIGHT_PYTHON; --w) {
    pj_dtype lighter = by_weight[w];
    if (lighter == PJ_INVALID) continue;
    if (result == PJ_INVALID) {
      result = lighter;
    } else if (category(lighter) > category(result)) {
      result = category(lighter) == 3 && result == PJ_F64 ? PJ_C128 : lighter;
    }
  }
  return result;
}

pj_target pj_target_whole(hlo_value x) {
  pj_target whole = {.base = x, .view = {.dtype = x.dtype, .rank = x.rank}, .start = PJ_VIEW_AT_OFFSET};
  for (int d = 0; d < x.rank; ++d) whole.view.sizes[d] = x.dims[d];
  pj_row_major_strides(x.rank, x.dims, whole.view.strides);
  return whole;
}

pj_target pj_target_of(pj_lowering *l) {
  const pj_argument *a = argument(l, 0);
  if (a->kind != PJ_ARG_TENSOR) return pj_target_whole(wrong_kind(l, 0, "tensor"));
  const pj_operand *o = &l->signature->operands[a->first];
  if (!l->signature->writes_base) return pj_target_whole(operand_value(l, a->first));
  return (pj_target){l->operands[a->first], o->view, start_of(l, o)};
}

hlo_value pj_target_write(pj_lowering *l, const pj_target *target, hlo_value source) {
  return pj_view_write(l->h, target->base, &target->view, target->start, source);
}

int pj_result_count(const pj_lowering *l) { return (int)l->signature->result_count; }

pj_type pj_result_type(const pj_lowering *l, int i) {
  if (i < 0 || (uint32_t)i >= l->signature->result_count) {
    hlo_fail(l->h, PJ_INTERNAL, "%s has no result %d", l->signature->name, i);
    return (pj_type){0};
  }
  return l->signature->results[i].logical;
}

void pj_return(pj_lowering *l, int i, hlo_value value) {
  if (hlo_failed(l->h)) return;
  pj_type wanted = pj_result_type(l, i);
  bool same = value.rank == wanted.rank;
  for (int d = 0; same && d < wanted.rank; ++d) same = value.dims[d] == wanted.dims[d];
  if (!same) {
    char got[200], want[200];
    pj_text got_text = pj_text_begin(got, sizeof got), want_text = pj_text_begin(want, sizeof want);
    pj_text_add_dims(&got_text, value.rank, value.dims);
    pj_text_add_dims(&want_text, wanted.rank, wanted.dims);
    hlo_fail(l->h, PJ_INTERNAL, "%s: result %d was lowered to %s, PyTorch expects %s", l->signature->name, i, got, want);
    return;
  }
  const pj_result *result = &l->signature->results[i];
  value = hlo_convert(l->h, value, wanted.dtype);
  bool in_order = true;
  for (int d = 0; d < wanted.rank; ++d) in_order = in_order && result->permutation[d] == d;
  l->results[i] = in_order ? value : hlo_transpose(l->h, value, result->permutation);
  l->returned[i] = true;
}

void pj_return_target(pj_lowering *l, hlo_value base) {
  if (hlo_failed(l->h)) return;
  pj_return(l, 0, base);
}

bool pj_require(pj_lowering *l, bool condition, pj_code code, const char *format, ...) {
  if (condition) return true;
  char text[500];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  hlo_fail(l->h, code, "%s", text);
  return false;
}
