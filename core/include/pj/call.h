// One op with its arguments, written down as 64-bit words: the words are the key under which everything that was learnt
// of the op (result types, lowering, program) is found again, so writing them is the hot path of every eager op.
//
// What must not cause a recompile is not in the words: the values of run-time numbers (Python numbers, learning rates,
// RNG seed and offset) go to `floats` and `ints`, and the tensors' values go to `operands`.
#ifndef PJ_CALL_H_
#define PJ_CALL_H_

#include <string.h>

#include "pj/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pj_value pj_value;      // an immutable dense array: computed, queued or failed (pj/run.h)
typedef struct pj_op pj_op;            // an ATen overload, interned (pj/run.h)

// Word layout of an argument: kind in bits 0..7, the rest as said beside each kind.
typedef enum pj_argument_kind {
  PJ_ARG_NONE = 0,
  PJ_ARG_TENSOR,   // dtype<<8 | rank<<16 | base dtype<<24 | base rank<<32 | flags<<40, then base dims; unless
                   // PJ_TENSOR_IDENTITY also sizes, strides, offset; with PJ_TENSOR_ROOM dim<<48
  PJ_ARG_SHAPE,    // as PJ_ARG_TENSOR, identity, but the values are not read: no operand
  PJ_ARG_TENSORS,  // count<<8, then that many TENSOR, SHAPE or NONE
  PJ_ARG_NUMBER,   // a run-time number: dtype<<8 (PRED, S64, F64, C128) | own dtype<<16 | weight<<24
  PJ_ARG_NUMBERS,  // count<<8, then that many NUMBER
  PJ_ARG_INT,      // then the value; PJ_INT_RELEASED<<8: 0, and the value is a run-time number behind all others in `ints`
  PJ_ARG_INTS,     // count<<8, then the values
  PJ_ARG_FLOAT,    // then the bits of the double
  PJ_ARG_FLOATS,   // count<<8, then the bits
  PJ_ARG_BOOL,     // value<<8
  PJ_ARG_BOOLS,    // count<<8, then a word each
  PJ_ARG_DTYPE,    // dtype<<8
  PJ_ARG_STRING,   // length<<8, then the bytes, zero padded to whole words
} pj_argument_kind;

enum {
  PJ_TENSOR_IDENTITY = 1,   // the view is the whole base in its order
  PJ_TENSOR_CONJ = 2,
  PJ_TENSOR_NEG = 4,
  PJ_TENSOR_MOVES = 8,     // the offset is 0 here; where the view starts is a run-time number behind all others in `ints`
  // Only the beginning of the view's dimension `dim` counts, the rest is room to grow: how much counts is a run-time number
  // behind all others, and behind the starts, in `ints` (ops/room.h).
  PJ_TENSOR_ROOM = 16,
};

enum { PJ_INT_RELEASED = 1 };

// How much a number weighs in type promotion (torch.result_type).
enum { PJ_WEIGHT_PYTHON = 0, PJ_WEIGHT_ZERO_DIM = 1, PJ_WEIGHT_TENSOR = 2 };

typedef struct pj_call {
  const pj_op *op;
  uint64_t *words;
  pj_value **operands;  // retained; one per TENSOR argument, in order
  double *floats;       // values of F64 (one) and C128 (two) numbers, in order
  int64_t *ints;        // values of PRED and S64 numbers, in order
  pj_value **results;   // filled by pj_submit, owned by the caller until pj_call_clear; one that is taken becomes NULL
  uint32_t word_count, operand_count, float_count, int_count, result_count;
  uint32_t word_capacity, operand_capacity, float_capacity, int_capacity, result_capacity;
  pj_value *grown;      // operand 0, in a larger array since pj_submit: retained, so that it is not donated at once; or NULL
  bool writes_base;     // result 0 is the new base of argument 0 (ops with PJ_OP_WRITES, called in place through a view)
  bool room;            // its arrays may have room (PJ_TENSOR_ROOM, run/room.c), as those of its results
  bool hold;            // more belongs to this op: pj_submit must not run the queue yet (pj_device_end_op does)
} pj_call;

// Makes room for `words` more words and one more of each other kind. Aborts when host memory is exhausted: there is no
// way to go on from half a key.
PJ_EXPORT void pj_call_grow(pj_call *call, uint32_t words);

PJ_EXPORT void pj_call_clear(pj_call *call);    // releases operands and results, keeps the memory
PJ_EXPORT void pj_call_destroy(pj_call *call);  // releases all; `call` itself belongs to the caller

static inline uint64_t *pj_call_take(pj_call *call, uint32_t words) {
  if (call->word_capacity - call->word_count < words || call->operand_count == call->operand_capacity ||
      call->float_capacity - call->float_count < 2 || call->int_count == call->int_capacity)
    pj_call_grow(call, words);
  uint64_t *at = call->words + call->word_count;
  call->word_count += words;
  return at;
}

static inline void pj_call_none(pj_call *call) { *pj_call_take(call, 1) = PJ_ARG_NONE; }
static inline void pj_call_bool(pj_call *call, bool value) { *pj_call_take(call, 1) = PJ_ARG_BOOL | (uint64_t)value << 8; }
static inline void pj_call_dtype(pj_call *call, pj_dtype dtype) { *pj_call_take(call, 1) = PJ_ARG_DTYPE | (uint64_t)dtype << 8; }

static inline void pj_call_int(pj_call *call, int64_t value) {
  uint64_t *at = pj_call_take(call, 2);
  at[0] = PJ_ARG_INT;
  at[1] = (uint64_t)value;
}

static inline void pj_call_ints(pj_call *call, const int64_t *values, uint32_t count) {
  uint64_t *at = pj_call_take(call, 1 + count);
  at[0] = PJ_ARG_INTS | (uint64_t)count << 8;
  if (count) memcpy(at + 1, values, count * sizeof *at);
}

static inline void pj_call_float(pj_call *call, double value) {
  uint64_t *at = pj_call_take(call, 2);
  at[0] = PJ_ARG_FLOAT;
  memcpy(at + 1, &value, sizeof value);
}

static inline void pj_call_floats(pj_call *call, const double *values, uint32_t count) {
  uint64_t *at = pj_call_take(call, 1 + count);
  at[0] = PJ_ARG_FLOATS | (uint64_t)count << 8;
  if (count) memcpy(at + 1, values, count * sizeof *at);
}

static inline void pj_call_bools(pj_call *call, const bool *values, uint32_t count) {
  uint64_t *at = pj_call_take(call, 1 + count);
  at[0] = PJ_ARG_BOOLS | (uint64_t)count << 8;
  for (uint32_t i = 0; i < count; ++i) at[1 + i] = values[i];
}

static inline void pj_call_string(pj_call *call, const char *text, size_t length) {
  uint32_t words = (uint32_t)((length + 7) / 8);
  uint64_t *at = pj_call_take(call, 1 + words);
  at[0] = PJ_ARG_STRING | (uint64_t)length << 8;
  if (words) at[words] = 0;
  memcpy(at + 1, text, length);
}

static inline void pj_call_tensors(pj_call *call, uint32_t count) { *pj_call_take(call, 1) = PJ_ARG_TENSORS | (uint64_t)count << 8; }
static inline void pj_call_numbers(pj_call *call, uint32_t count) { *pj_call_take(call, 1) = PJ_ARG_NUMBERS | (uint64_t)count << 8; }

// Run-time numbers. `own` is the dtype that promotion sees: for a 0-d CPU tensor its dtype, else the number's.
static inline void pj_call_number_float(pj_call *call, double value, pj_dtype own, int weight) {
  *pj_call_take(call, 1) = PJ_ARG_NUMBER | (uint64_t)PJ_F64 << 8 | (uint64_t)own << 16 | (uint64_t)weight << 24;
  call->floats[call->float_count++] = value;
}

static inline void pj_call_number_int(pj_call *call, int64_t value, pj_dtype own, int weight) {
  *pj_call_take(call, 1) = PJ_ARG_NUMBER | (uint64_t)PJ_S64 << 8 | (uint64_t)own << 16 | (uint64_t)weight << 24;
  call->ints[call->int_count++] = value;
}

static inline void pj_call_number_bool(pj_call *call, bool value, pj_dtype own, int weight) {
  *pj_call_take(call, 1) = PJ_ARG_NUMBER | (uint64_t)PJ_PRED << 8 | (uint64_t)own << 16 | (uint64_t)weight << 24;
  call->ints[call->int_count++] = value;
}

static inline void pj_call_number_complex(pj_call *call, double real, double imag, pj_dtype own, int weight) {
  *pj_call_take(call, 1) = PJ_ARG_NUMBER | (uint64_t)PJ_C128 << 8 | (uint64_t)own << 16 | (uint64_t)weight << 24;
  call->floats[call->float_count++] = real;
  call->floats[call->float_count++] = imag;
}

#ifdef __cplusplus
}
#endif
#endif
