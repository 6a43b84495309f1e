// Calls on values with room to grow (ops/room.h): they are written anew as calls on the values' arrays, and have plans of
// their own. What such a plan does not say any more is how long the values are, so one serves many calls.
#include <stdlib.h>

#include "run/internal.h"

enum { MOST_LENGTHS = 32 };

// ---- from a value to its array --------------------------------------------------------------------------------------

// The words of a tensor argument that reads `v`, as those of the same view of its array. Elements that follow each other in
// the dimension with room still do, and what lies before and behind them has moved. A view that has all of that dimension
// gets its room too: then *out_length is how much of it counts, else -1. False: it is no such view.
static bool to_array(uint64_t *word, const pj_value *v, int64_t *out_length) {
  const int rank = (int)(*word >> 16 & 0xff), base_rank = v->type->rank, d = v->room;
  const int64_t length = v->type->dims[d], size = v->array->dims[d];
  uint64_t *dims = word + 1;
  int room = d;
  if (!(*word >> 40 & PJ_TENSOR_IDENTITY)) {
    uint64_t *sizes = dims + base_rank, *strides = sizes + rank, *offset = strides + rank;
    int64_t inner = 1;
    for (int i = d + 1; i < base_rank; ++i) inner *= v->type->dims[i];
    const int64_t block = length * inner, array_block = size * inner;
    if (!block || (*word >> 8 & 0xff) != (*word >> 24 & 0xff)) return false;
    int64_t place = (int64_t)*offset % block / inner, inside = (int64_t)*offset % inner;  // of the last element that is reached
    room = -1;
    bool whole = true;  // the view moves along d by `room` alone
    for (int i = 0; i < rank; ++i) {
      int64_t stride = (int64_t)strides[i], more = (int64_t)sizes[i] - 1;
      if (more < 0) return false;
      if (stride % block == 0 || !more) {
        strides[i] = (uint64_t)(stride / block * array_block + stride % block);
      } else if (stride % inner) {
        inside += more * stride;
      } else if (room < 0 && stride == inner && !place && more + 1 == length) {
        room = i;
        sizes[i] = (uint64_t)size;
      } else {
        whole = false;
        place += more * (stride / inner);
      }
    }
    if (inside >= inner || place >= length || (room >= 0 && !whole)) return false;
    *offset = (uint64_t)((int64_t)*offset / block * array_block + (int64_t)*offset % block);
  }
  dims[d] = (uint64_t)size;
  if (room >= 0) *word |= (uint64_t)PJ_TENSOR_ROOM << 40 | (uint64_t)room << 48;
  *out_length = room < 0 ? -1 : length;
  return true;
}

static void put_int(pj_call *call, int64_t value) {
  pj_reserve(&call->ints, call->int_count, 1, &call->int_capacity, sizeof *call->ints);
  call->ints[call->int_count++] = value;
}

// The result's sizes and strides would be others at each length: only its memory order is left of them.
static void say_order(pj_call *room, const pj_result *result) {
  for (uint64_t *w = room->words; w < room->words + room->word_count; w += pj_argument_words(w))
    for (uint64_t i = 0; (*w & 0xff) == PJ_ARG_INTS && i < *w >> 8; ++i) w[1 + i] = (uint64_t)result->permutation[i];
}

// The last two arguments say how long the result is, as PyTorch counts in doubles and in integers: now, how long its array is.
static void say_length(pj_call *room, const pj_tensor_spec *result) {
  double size = (double)pj_room_size(result->sizes[0], pj_dtype_size(result->dtype));
  uint64_t *lengths = room->words + room->word_count - 4;
  memcpy(lengths + 1, &size, sizeof size);
  memcpy(lengths + 3, &size, sizeof size);
}

// Writes device->room_call. False: the call cannot be written so.
static bool write_call(pj_device *device, const pj_call *call, const pj_plan *plan) {
  pj_call *room = &device->room_call;
  pj_call_clear(room);
  room->op = call->op;
  room->room = true;
  pj_reserve(&room->words, 0, call->word_count, &room->word_capacity, sizeof *room->words);
  pj_reserve(&room->floats, 0, call->float_count, &room->float_capacity, sizeof *room->floats);
  pj_reserve(&room->ints, 0, call->int_count, &room->int_capacity, sizeof *room->ints);
  if (call->word_count) memcpy(room->words, call->words, call->word_count * sizeof *room->words);
  if (call->float_count) memcpy(room->floats, call->floats, call->float_count * sizeof *room->floats);
  if (call->int_count) memcpy(room->ints, call->ints, call->int_count * sizeof *room->ints);
  room->word_count = call->word_count;
  room->float_count = call->float_count;
  room->int_count = call->int_count;
  pj_call_fix_starts(room);
  int64_t lengths[MOST_LENGTHS];
  uint32_t operand = 0, count = 0;
  for (uint64_t *w = room->words; w < room->words + room->word_count; w += pj_argument_words(w)) {
    if ((*w & 0xff) != PJ_ARG_TENSOR) continue;
    const pj_value *v = call->operands[operand++];
    if (v->room < 0) continue;
    int64_t length;
    if (count == MOST_LENGTHS || !to_array(w, v, &length) || length == 1) return false;  // what has length 1 broadcasts
    if (length >= 0) lengths[count++] = length;
  }
  const pj_room_rule *rule = call->op->room;
  if (count && !rule) return false;
  if (rule && rule->says_length) say_length(room, &plan->results[0]);
  if (count && rule->says_results) say_order(room, &plan->signatures[0]->results[0]);
  pj_call_release_starts(room);
  for (uint32_t i = 0; i < count; ++i) put_int(room, lengths[i]);
  return true;
}

// ---- plans ----------------------------------------------------------------------------------------------------------

// Sizes that a result's array has where it has room, in the memory order that the result has without.
static void order_strides(pj_result *result, const pj_result *without) {
  int64_t stride = 1;
  for (int i = result->logical.rank - 1; i >= 0; --i) {
    int d = without->permutation[i];
    result->strides[d] = stride;
    stride *= result->logical.dims[d] ? result->logical.dims[d] : 1;
  }
}

// No lock is held.
static pj_status make_plan(pj_device *device, const pj_call *room, const pj_plan *plan) {
  const pj_signature *exact = plan->signatures[0];
  uint32_t count = exact->result_count;
  pj_result *results = calloc(count + 1, sizeof *results);
  if (!results) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  for (uint32_t i = 0; i < count; ++i) {
    results[i] = (pj_result){.logical = exact->results[i].logical, .room = -1};
    memcpy(results[i].strides, exact->results[i].strides, sizeof results[i].strides);
  }
  pj_signature *s = NULL;
  pj_status status = pj_signature_create(room->op->name, room->words, room->word_count, false, NULL, 0, &s);
  const pj_room_rule *rule = room->op->room;
  bool any = rule && (rule->begins || rule->says_length);
  for (uint32_t i = 0; !status && i < s->operand_count; ++i) any = any || s->operands[i].room >= 0;
  bool fits = status || !any || rule->fit(s, results, count);
  pj_signature_destroy(s);
  for (uint32_t i = 0; i < count; ++i)
    if (results[i].room >= 0) order_strides(&results[i], &exact->results[i]);
  if (!status) status = pj_plan_create_single(device, room, fits ? results : NULL, count);
  free(results);
  return status;
}

// Whether the call computes on values with room, or room begins with it.
static bool has_room(const pj_device *device, const pj_call *call, const pj_plan *plan) {
  if (!call->op->entry || call->writes_base || call->op->entry->flags & PJ_OP_STORAGE || plan->signature_count != 1) return false;
  for (uint32_t i = 0; i < call->operand_count; ++i)
    if (call->operands[i]->room >= 0) return true;
  const pj_hooks *hooks = &device->runtime->hooks;
  return (plan->grows && !(hooks->repeats && hooks->repeats())) || (call->op->room && call->op->room->begins);
}

// The size that the array of the first tensor of aten::cat needs along *out_dim for what joins it; 0: it has that, or cannot
// grow.
static int64_t missing_room(const pj_call *call, const pj_plan *plan, int *out_dim) {
  int dim = *out_dim = pj_room_growth(plan->signatures[0]);
  const pj_operand *o = dim < 0 ? NULL : &plan->signatures[0]->operands[0];
  const pj_value *first = call->operands[0];
  if (!o || (first->room >= 0 && (first->room != dim || !o->identity))) return 0;
  for (uint32_t i = 1; i < call->operand_count; ++i)
    if (call->operands[i]->room >= 0) return 0;
  const pj_tensor_spec *result = &plan->results[0];
  int64_t length = result->sizes[dim];
  if (first->room == dim && first->array->dims[dim] >= length) return 0;
  uint64_t bytes = pj_dtype_size(result->dtype);
  for (int d = 0; d < result->rank; ++d) bytes *= d == dim ? 1 : (uint64_t)result->sizes[d];
  return bytes ? pj_room_size(length, bytes) : 0;
}

// Gives the first tensor of a call of aten::cat an array of `size` along `dim`. That is an op of its own, so that tensors of
// equal size share its program, whatever joins them. The call, whose plan is `plan`, then has another one with equal results.
// No lock is held.
static pj_status grow_first(pj_device *device, pj_call *call, const pj_plan *plan, int dim, int64_t size) {
  pj_call_fix_starts(call);
  uint64_t *first = call->words + 1;  // behind the word of the list
  uint32_t words = pj_argument_words(first);
  pj_call grow = {.op = pj_runtime_op(device->runtime, "pj::grow")};
  pj_signature *s = NULL;
  PJ_TRY(pj_signature_create(grow.op->name, first, words, false, NULL, 0, &s));
  const pj_view *view = &s->operands[0].view;
  pj_type type = {.dtype = view->dtype, .rank = view->rank};
  memcpy(type.dims, view->sizes, sizeof type.dims);
  pj_signature_destroy(s);
  memcpy(pj_call_take(&grow, words), first, words * sizeof *first);
  pj_value_retain(call->operands[0]);
  grow.operands[grow.operand_count++] = call->operands[0];
  pj_call_int(&grow, dim);
  pj_call_int(&grow, size);
  pj_tensor_spec spec = pj_dense_spec(&type);
  const pj_plan *known = NULL;
  pj_status status = pj_submit(device, &grow, &known);
  if (!status && !known) status = pj_plan_create(device, &grow, &spec, 1);
  if (!status && !known) status = pj_submit(device, &grow, &known);
  if (!status) {  // the call goes on with the whole of the result
    pj_call whole = {0};
    pj_call_graph_tensor(&whole, type.dtype, type.rank, type.dims, type.dtype, type.rank, type.dims, spec.strides, 0, 0);
    uint64_t *rest = first + words;
    size_t rest_words = call->word_count - 1 - words;
    memcpy(first, whole.words, whole.word_count * sizeof *first);
    memmove(first + whole.word_count, rest, rest_words * sizeof *rest);
    call->word_count = (uint32_t)(1 + whole.word_count + rest_words);
    pj_value_release(call->operands[0]);
    pj_value_release(call->grown);
    call->operands[0] = call->grown = grow.results[0];
    pj_value_retain(call->grown);
    grow.results[0] = NULL;
    pj_call_destroy(&whole);
    status = pj_plan_create(device, call, plan->results, plan->result_count);
  }
  pj_call_destroy(&grow);
  return status;
}

pj_status pj_room_plan(pj_device *device, pj_call *call, const pj_plan *plan, const pj_plan **out_queued) {
  *out_queued = plan;
  if (!has_room(device, call, plan)) return NULL;
  int dim;
  int64_t size = call->op->room && call->op->room->grows && call->operand_count ? missing_room(call, plan, &dim) : 0;
  if (size) {
    *out_queued = NULL;
    pthread_mutex_unlock(&device->lock);
    pj_status status = grow_first(device, call, plan, dim, size);
    pthread_mutex_lock(&device->lock);
    return status;
  }
  if (!write_call(device, call, plan)) return NULL;
  pj_call *room = &device->room_call;
  const pj_plan *found = pj_plan_lookup(device, room);
  if (found && found->refused) return NULL;
  *out_queued = found;
  if (found) {
    int64_t *ints = call->ints;
    uint32_t capacity = call->int_capacity;
    call->ints = room->ints;
    call->int_count = room->int_count;
    call->int_capacity = room->int_capacity;
    room->ints = ints;
    room->int_capacity = capacity;
    return NULL;
  }
  pj_call made = *room;
  *room = (pj_call){0};
  pthread_mutex_unlock(&device->lock);
  pj_status status = make_plan(device, &made, plan);
  pthread_mutex_lock(&device->lock);
  pj_call_destroy(&made);
  return status;
}

// ---- where room begins ----------------------------------------------------------------------------------------------

// A key of `words`, and the length that comes with it: whether it comes in growing lengths. Of what a loop appends to, any other
// length than the first says so; of a range, which is made for much, that it became longer by one, twice: then all are that are
// as long.
static bool meets_growth(pj_device *device, const uint64_t *key, uint32_t words, int64_t length, bool by_one) {
  typedef struct growth { int64_t first, last, least; int steps; } growth;
  uint64_t hash = pj_hash_words(key, words);
  growth *met = pj_map_find_or_add(&device->growths, hash, key, words, sizeof *met);
  if (!met) return false;
  if (!met->least) {  // met for the first time
    *met = (growth){.first = length, .last = length, .least = INT64_MAX};
    return false;
  }
  met->steps = length == met->last + 1 ? met->steps + 1 : 0;
  if (met->steps == 2 && length < met->least) met->least = length;
  met->last = length;
  return by_one ? length >= met->least : length != met->first;
}

bool pj_device_grows(pj_device *device, const pj_op *op, const pj_signature *s) {
  if (op->room->says_length) {
    if (s->result_count != 1) return false;
    uint64_t key[] = {op->id, (uint64_t)s->results[0].logical.dtype};
    return meets_growth(device, key, 2, s->results[0].logical.dims[0], true);
  }
  int dim = pj_room_growth(s);
  if (dim < 0) return false;
  const pj_argument *list = &s->arguments[0];
  uint32_t words = 4;
  for (uint32_t i = 0; i < list->count; ++i) words += 1 + (uint32_t)s->operands[s->elements[list->first + i]].view.rank;
  pj_reserve(&device->scratch, 0, words, &device->scratch_capacity, sizeof *device->scratch);
  uint64_t *at = device->scratch;
  *at++ = op->id;
  *at++ = (uint64_t)dim;
  *at++ = list->count;
  *at++ = (uint64_t)s->results[0].logical.dtype;
  int64_t length = 0;
  for (uint32_t i = 0; i < list->count; ++i) {
    const pj_operand *o = &s->operands[s->elements[list->first + i]];
    *at++ = (uint64_t)o->view.dtype;
    for (int d = 0; d < o->view.rank; ++d) *at++ = !i && d == dim ? 0 : (uint64_t)o->view.sizes[d];
    if (!i) length = o->view.sizes[dim];
  }
  return meets_growth(device, device->scratch, words, length, false);
}
