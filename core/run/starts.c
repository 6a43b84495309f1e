// Calls that differ only in where their views start, or in an integer argument that says where something starts
// (PJ_START). A loop over x[t] would compile for every t, while one program that is
// told the start at run time serves them all. But a start that is known when a program is compiled gives the compiler
// more to work with, and most views of a program start in one of a few places (the halves of a rotary embedding, the
// parts of a fused projection): so the first few starts of a call are compiled in, and then one program for all others.
#include <stdlib.h>

#include "run/internal.h"

enum { COMPILED_STARTS = 4, MOST_STARTS = 8 };

uint32_t pj_argument_words(const uint64_t *at) {
  uint32_t rank = (uint32_t)(*at >> 16 & 0xff), base_rank = (uint32_t)(*at >> 32 & 0xff);
  switch ((pj_argument_kind)(*at & 0xff)) {
    case PJ_ARG_TENSOR:
    case PJ_ARG_SHAPE: return 1 + base_rank + (*at >> 40 & PJ_TENSOR_IDENTITY ? 0 : 2 * rank + 1);
    case PJ_ARG_INT:
    case PJ_ARG_FLOAT: return 2;
    case PJ_ARG_INTS:
    case PJ_ARG_FLOATS:
    case PJ_ARG_BOOLS: return 1 + (uint32_t)(*at >> 8);
    case PJ_ARG_STRING: return 1 + (uint32_t)((*at >> 8) + 7) / 8;
    default: return 1;
  }
}

static bool is_moving_view(const uint64_t *at) {
  pj_type base = {.dtype = (pj_dtype)(*at >> 24 & 0xff), .rank = (int32_t)(*at >> 32 & 0xff)};
  pj_view view = {.dtype = (pj_dtype)(*at >> 8 & 0xff), .rank = (int32_t)(*at >> 16 & 0xff)};
  memcpy(base.dims, at + 1, (size_t)base.rank * sizeof *base.dims);
  at += 1 + base.rank;
  memcpy(view.sizes, at, (size_t)view.rank * sizeof *view.sizes);
  memcpy(view.strides, at + view.rank, (size_t)view.rank * sizeof *view.strides);
  view.offset = (int64_t)at[2 * view.rank];
  return pj_view_moves(&view, &base);
}

// A start within the words of a call: its value, and the word that says how it is given.
typedef struct start {
  uint64_t *word, *value, released;
} start;

static start start_at(uint64_t *word) {
  bool view = (*word & 0xff) == PJ_ARG_TENSOR;
  return (start){word, word + pj_argument_words(word) - 1, view ? (uint64_t)PJ_TENSOR_MOVES << 40 : PJ_INT_RELEASED << 8};
}

typedef bool choice(const uint64_t *word, bool is_start);

static bool can_be_released(const uint64_t *word, bool is_start) {
  switch ((pj_argument_kind)(*word & 0xff)) {
    case PJ_ARG_TENSOR: return !(*word >> 40 & PJ_TENSOR_IDENTITY) && is_moving_view(word);
    case PJ_ARG_INT: return is_start;
    default: return false;
  }
}

static bool is_released(const uint64_t *word, bool is_start) {
  (void)is_start;
  switch ((pj_argument_kind)(*word & 0xff)) {
    case PJ_ARG_TENSOR: return *word >> 40 & PJ_TENSOR_MOVES;
    case PJ_ARG_INT: return *word >> 8 & PJ_INT_RELEASED;
    default: return false;
  }
}

// The chosen starts of the call, those of views first; how many there are, or 0 when `out` does not hold them all.
static uint32_t find_starts(const pj_call *call, choice *chosen, start out[MOST_STARTS]) {
  uint32_t bits = call->op->entry->starts, count = 0;
  for (pj_argument_kind kind = PJ_ARG_TENSOR;; kind = PJ_ARG_INT) {
    uint32_t argument = 0, elements = 0;
    for (uint64_t *w = call->words; w < call->words + call->word_count; w += pj_argument_words(w)) {
      bool is_start = !elements && argument < 32 && bits >> argument & 1;
      if ((*w & 0xff) == kind && chosen(w, is_start)) {
        if (count == MOST_STARTS) return 0;
        out[count++] = start_at(w);
      }
      if (elements) --elements;
      else if ((*w & 0xff) == PJ_ARG_TENSORS || (*w & 0xff) == PJ_ARG_NUMBERS) elements = (uint32_t)(*w >> 8);
      if (!elements) ++argument;
    }
    if (kind == PJ_ARG_INT || !bits) return count;
  }
}

bool pj_call_release_starts(pj_call *call) {
  start starts[MOST_STARTS];
  uint32_t count = find_starts(call, can_be_released, starts);
  pj_reserve(&call->ints, call->int_count, count, &call->int_capacity, sizeof *call->ints);
  for (uint32_t i = 0; i < count; ++i) {
    call->ints[call->int_count++] = (int64_t)*starts[i].value;
    *starts[i].value = 0;
    *starts[i].word |= starts[i].released;
  }
  return count;
}

void pj_call_fix_starts(pj_call *call) {
  start starts[MOST_STARTS];
  uint32_t count = call->op->entry ? find_starts(call, is_released, starts) : 0;
  call->int_count -= count;
  for (uint32_t i = 0; i < count; ++i) {
    *starts[i].value = (uint64_t)call->ints[call->int_count + i];
    *starts[i].word &= ~starts[i].released;
  }
}

bool pj_device_compiles_start(pj_device *device, const uint64_t *key, uint32_t words) {
  uint64_t hash = pj_hash_words(key, words);
  uint32_t *met = pj_map_find_or_add(&device->starts, hash, key, words, sizeof *met);
  if (!met) return true;
  if (*met == COMPILED_STARTS) return false;
  ++*met;
  return true;
}
