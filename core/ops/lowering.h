// What a lowering sees: the arguments of one ATen overload, by position in its schema, and where its results go.
//
// A lowering reads its arguments, calls hlo_* functions and returns values. It never checks for errors: the first one is
// kept and everything after is a no-op. It states its own preconditions with pj_require, since PyTorch's meta kernels
// are silent on some bad input and XLA aborts on it.
#ifndef PJ_OPS_LOWERING_H_
#define PJ_OPS_LOWERING_H_

#include "hlo/hlo.h"
#include "ir/signature.h"
#include "view/view.h"

typedef struct pj_lowering {
  hlo *h;
  const pj_signature *signature;
  const hlo_value *operands;   // bases and numbers, in signature order; has_value false: invalid value
  hlo_value *results;          // in memory order, filled by pj_return
  bool *returned;
  int room_fill;               // what is found in the room of operands: pj_room_fill (ops/room.h)
  int64_t room_size;           // of operands' dimensions with room; 0: what their arrays have
  hlo_value index_error;       // 0-d PRED: some index is out of range; id < 0 while nothing was checked (ops/index.h)
} pj_lowering;

// ---- arguments ------------------------------------------------------------------------------------------------------

pj_argument_kind pj_kind(const pj_lowering *l, int argument);       // PJ_ARG_NONE outside the argument list
bool pj_present(const pj_lowering *l, int argument);                // not None (and inside the argument list)
const pj_operand *pj_operand_of(const pj_lowering *l, int argument);  // of a tensor or number argument; else NULL
hlo_value pj_tensor(pj_lowering *l, int argument);                  // as PyTorch sees it; a number gives a 0-d value of its own dtype
pj_type pj_tensor_type(pj_lowering *l, int argument);               // dtype and sizes, also of shape-only tensors
int pj_list_count(const pj_lowering *l, int argument);              // of any list argument
bool pj_list_present(const pj_lowering *l, int argument, int i);    // element i of a tensor list is not None
hlo_value pj_list_tensor(pj_lowering *l, int argument, int i);
hlo_value pj_list_number(pj_lowering *l, int argument, int i, pj_dtype dtype);  // of a list of run-time numbers
hlo_value pj_number(pj_lowering *l, int argument, pj_dtype dtype);  // run-time or constant number, 0-d, converted to dtype
int64_t pj_int(pj_lowering *l, int argument);
bool pj_start_is_known(const pj_lowering *l, int argument);         // of an integer argument with PJ_START: pj_int gives it
hlo_value pj_start(pj_lowering *l, int argument);                   // its value, known or not: 0-d, s64
double pj_float(pj_lowering *l, int argument);                      // a compile-time number (PJ_STATIC) or float argument
bool pj_bool(pj_lowering *l, int argument);
const char *pj_string(pj_lowering *l, int argument);                // "" for None
pj_dtype pj_dtype_argument(pj_lowering *l, int argument, pj_dtype otherwise);
const int64_t *pj_ints(pj_lowering *l, int argument, int *out_count);
const double *pj_floats(pj_lowering *l, int argument, int *out_count);
int pj_dim(pj_lowering *l, int argument, int rank);                 // a dimension, negative from the end; IndexError when out of range
// A list of dimensions, wrapped; an absent or empty list means all of them when `empty_is_all`.
int pj_dims(pj_lowering *l, int argument, int rank, bool empty_is_all, int out_dims[PJ_MAX_RANK]);

// The dtype that PyTorch promotes the given tensor or number arguments to (torch.result_type).
pj_dtype pj_promote(pj_lowering *l, const int *arguments, int count);

// What an op writes: a view of `base`, which starts at the run-time element `start` (0-d s64; id < 0: at view.offset).
typedef struct pj_target {
  hlo_value base;
  pj_view view;
  hlo_value start;
} pj_target;

// For ops with PJ_OP_WRITES called in place through a view: the base of argument 0 and the view of it that is written.
// Otherwise the whole tensor as base and an identity view. The lowering returns the new base.
pj_target pj_target_of(pj_lowering *l);
// All of `x`.
pj_target pj_target_whole(hlo_value x);
// The new base after `source` (dims = view sizes, dtype = view dtype) was written.
hlo_value pj_target_write(pj_lowering *l, const pj_target *target, hlo_value source);

// ---- results --------------------------------------------------------------------------------------------------------

int pj_result_count(const pj_lowering *l);
pj_type pj_result_type(const pj_lowering *l, int result);           // dtype and sizes that PyTorch expects

// Result `result`, with PyTorch's sizes; converted to the expected dtype (half types are narrowed here, once).
void pj_return(pj_lowering *l, int result, hlo_value value);
// The new base of an op with PJ_OP_WRITES (see pj_target_of): argument 0's base type when it writes through a view.
void pj_return_target(pj_lowering *l, hlo_value base);

// Precondition: false sets the error. Gives the condition, so that a lowering can return early.
bool pj_require(pj_lowering *l, bool condition, pj_code code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// ---- table ----------------------------------------------------------------------------------------------------------

enum {
  PJ_OP_RANDOM = 1,   // two numbers are appended to the arguments: seed and offset (ops/random.h)
  PJ_OP_WRITES = 2,   // argument 0 can be written through a view (pj_target_of)
  PJ_OP_DYNAMIC = 4,  // result sizes depend on data (ops/dynamic.h)
  PJ_OP_STORAGE = 8,  // counts in the storage of argument 0, so where its view starts is part of the program
};

// Bits of number arguments whose value is part of the program instead of a run-time input. `statics`: every value is. That is
// for numbers that choose the formula (the order of a norm or distance), that the lowering must check (a histogram's range), or
// that only say a result's size (arange). `specials`: only the values of pj_number_is_special are, for which the program is
// faster or exact (x^2, x^0.5, 0 * self); a loop over others finds its program again.
#define PJ_STATIC(i) (1u << (i))
// Bits of tensor arguments of which only the shape matters (fill, zeros_like, normal_): the value is not even computed.
#define PJ_SHAPE_ONLY(i) (1u << (i))
// Of those, the ones of which only the dtype matters (new_ones): they come without dimensions.
#define PJ_DTYPE_ONLY(i) (1u << (i))
// Bits of integer arguments that say where something starts (an index, a slice): part of the program for the first few
// values, then run-time inputs, as the starts of views are (run/starts.c). Read with pj_start.
#define PJ_START(i) (1u << (i))

// Bits of integer list arguments that are lengths of sequences: run-time inputs, so that each batch finds the program of
// the one before. Of each list its largest number, which result sizes may depend on, is part of the program.
#define PJ_LENGTHS(i) (1u << (i))

typedef struct pj_lowering_entry {
  const char *name;                  // overload: "aten::add.Tensor", "aten::relu"
  void (*lower)(pj_lowering *l);
  uint32_t flags;
  uint32_t statics;
  uint32_t shape_only;
  uint32_t starts;
  uint32_t specials;
  uint32_t lengths;
  uint32_t dtype_only;
} pj_lowering_entry;

// One table a file, ended by {0}; every table is listed in ops/table.c.
#define PJ_LOWERINGS(table) const pj_lowering_entry table[]

// The entry of an overload, or NULL.
const pj_lowering_entry *pj_lowering_find(const char *name);

#endif
