// The words of a call, decoded: what a lowering may read. Immutable once made.
#ifndef PJ_IR_SIGNATURE_H_
#define PJ_IR_SIGNATURE_H_

#include "ir/type.h"
#include "pj/call.h"

// A tensor or run-time number that the program takes as input.
typedef struct pj_operand {
  pj_type base;      // dense array in memory; a number: 0-d of PRED, S64, F64 or C128
  pj_view view;      // how PyTorch sees it; a number: 0-d
  bool identity;     // the view is the whole base
  bool is_number;
  bool has_value;    // false: PJ_ARG_SHAPE, only the shape may be used
  int32_t start;     // the operand, an s64 number, that says where the view starts; -1: at view.offset
  int32_t room;      // the view's dimension of which only the beginning counts, the rest is room; -1: all of it counts
  int32_t length;    // the operand, an s64 number, that says how much of it counts
  uint8_t weight;    // PJ_WEIGHT_*
  pj_dtype own;      // dtype for type promotion
} pj_operand;

typedef struct pj_argument {
  pj_argument_kind kind;
  uint32_t first;       // TENSOR, SHAPE, NUMBER: index into operands. TENSORS, NUMBERS: index into `elements`
  uint32_t count;       // lists and strings: length
  int32_t start;        // INT: the operand, an s64 number, that has its value at run time; -1: `integer` has it
  int64_t integer;      // INT, BOOL, DTYPE
  double number;        // FLOAT
  const int64_t *ints;  // INTS, BOOLS
  const double *floats; // FLOATS
  const char *text;     // STRING, NUL-terminated
} pj_argument;

// A result as PyTorch's meta kernel describes it, and the dense array that holds it.
typedef struct pj_result {
  pj_type logical;                 // dims = PyTorch's sizes
  int64_t strides[PJ_MAX_RANK];    // PyTorch's strides
  pj_type value;                   // dims in memory order
  int permutation[PJ_MAX_RANK];    // value dim i is logical dim permutation[i]
  int32_t room;                    // with a call's `room`: the logical dim of which only the beginning counts; -1: all of it
} pj_result;

typedef struct pj_signature {
  const char *name;              // the overload, "aten::add.Tensor"
  bool writes_base;
  pj_argument *arguments;
  uint32_t argument_count;
  pj_operand *operands;
  uint32_t operand_count;
  int32_t *elements;             // operand index of each list element, -1 for None
  pj_result *results;
  uint32_t result_count;
} pj_signature;

// Decodes words[0..count). Errors: INVALID_ARGUMENT with what is malformed (the words may come from outside), a view
// that reaches outside its base, more than PJ_MAX_RANK dimensions.
// `results` have `logical` and `strides` filled in; value and permutation are derived here. Everything is copied.
pj_status pj_signature_create(const char *name, const uint64_t *words, uint32_t count, bool writes_base,
                              const pj_result *results, uint32_t result_count, pj_signature **out_signature);
void pj_signature_destroy(pj_signature *signature);

// "aten::add.Tensor(f32[3,4], f32[4], number)": for messages. Writes at most `size` bytes with the final NUL.
void pj_signature_text(const pj_signature *signature, char *out_text, size_t size);

#endif
