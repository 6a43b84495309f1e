// Room to grow. A value may live in an array that is longer in one dimension than the value is: the beginning counts, the
// rest is room, and what stands there is anything. An op that has a rule here computes on whole arrays and is told at run
// time how much of them counts, so one program serves every length that the array has room for: a key and value cache that
// grows by a token needs a new program when its array is full, not with every token. Ops without a rule get what counts cut
// out, with a program a length (ops/program.c).
#ifndef PJ_OPS_ROOM_H_
#define PJ_OPS_ROOM_H_

#include "ops/lowering.h"

// What a lowering finds in the room of its operands.
typedef enum pj_room_fill {
  PJ_ROOM_ANYTHING,  // the elements do not meet: what is computed of room is room
  PJ_ROOM_ZERO,      // zero, false
  PJ_ROOM_ONE,       // one, true
  PJ_ROOM_LOWEST,    // hlo_lowest
  PJ_ROOM_HIGHEST,
} pj_room_fill;

typedef struct pj_room_rule {
  const char *name;  // overload
  // Which dimensions of the results have room. Of operands with room `s` has the sizes of their arrays; results[i].logical
  // comes in with PyTorch's sizes and goes out with those of its array, and `room` says where. False: it cannot be computed so.
  bool (*fit)(const pj_signature *s, pj_result *results, uint32_t count);
  pj_room_fill fill;
  bool joins;         // operands' dimensions with room meet: they are as long as each other, and cut to the smallest array
  bool says_length;   // its last two arguments, floats, say how long its result is (aten::arange)
  bool says_results;  // its lists of integers are the sizes and strides of its result
  bool grows;   // aten::cat, aten::arange: what is called with growing lengths gets room
  bool begins;  // pj::grow: its result has room whatever its operands have
} pj_room_rule;

// The rule of an overload, or NULL.
const pj_room_rule *pj_room_find(const char *name);

// `x`, the value of a tensor operand, with `fill` in its room; x itself where there is none.
hlo_value pj_room_filled(pj_lowering *l, const pj_operand *operand, hlo_value x, pj_room_fill fill);
// Whether the elements of a value with these dims lie, by their place along `dim`, in what counts of a tensor argument with
// room; the invalid value where it has none.
hlo_value pj_room_counts(pj_lowering *l, const pj_operand *operand, int rank, const int64_t *dims, int dim);

// The dimension along which a call of aten::cat lets its first tensor grow by a few elements, or -1.
int pj_room_growth(const pj_signature *cat);
// Of a call of aten::cat: whether its first tensor has room along `dim`, so that the others are written behind it.
bool pj_room_is_growth(const pj_signature *cat, int dim);
// The size of the array for `length` elements along a dimension, of `bytes` each.
int64_t pj_room_size(int64_t length, uint64_t bytes);

#endif
