// What the files of the StableHLO writer share: the module, its text, and how one operation is written.
//
// Every operation goes through hlo_begin ... attributes ... hlo_end, in the generic form of MLIR:
//   %5 = "stablehlo.slice"(%4) {start_indices = array<i64: 0>, ...} : (tensor<9xf32>) -> tensor<3xf32>
#ifndef PJ_HLO_INTERNAL_H_
#define PJ_HLO_INTERNAL_H_

#include "hlo/hlo.h"

// The most operands or results of an op with a region (reduce, sort, while, if).
#define HLO_MAX_VALUES 64

typedef struct hlo_text {
  char *data;
  size_t size, capacity;
} hlo_text;

// A region of the module; 0 is @main. A value may be used in its region and in those inside, up to the next isolated
// one.
typedef struct hlo_scope {
  int32_t parent;
  bool isolated;
} hlo_scope;

typedef struct hlo_argument {
  hlo_value value;
  int aliased_output;
} hlo_argument;

struct hlo {
  bool failed, finished;
  pj_status error;       // NULL in a failed module: out of memory
  hlo_text text;         // the operations so far; the whole module once finished
  int32_t value_count;
  size_t value_capacity;
  int32_t *value_scope;  // the scope that each value belongs to
  int32_t scope, scope_count;
  size_t scope_capacity;
  hlo_scope *scopes;
  int depth;             // of nested regions, for the indentation
  int attributes;        // of the operation being written
  hlo_argument *arguments;
  size_t argument_count, argument_capacity;
  hlo_precision precision;
};

// ---- types ----------------------------------------------------------------------------------------------------------

enum { KIND_PRED = 1, KIND_SIGNED = 2, KIND_UNSIGNED = 4, KIND_FLOAT = 8, KIND_COMPLEX = 16 };
enum { KIND_INTEGER = KIND_SIGNED | KIND_UNSIGNED, KIND_REAL = KIND_INTEGER | KIND_FLOAT };
int hlo_kind(pj_dtype dtype);  // one KIND_ bit, or 0 for PJ_INVALID

// A type without a value yet (id -1), to be passed to hlo_begin.
hlo_value hlo_type(pj_dtype dtype, int rank, const int64_t *dims);
hlo_value hlo_retyped(hlo_value x, pj_dtype dtype);  // the dimensions of x
hlo_value hlo_invalid(void);
bool hlo_same_type(hlo_value a, hlo_value b);

// "tensor<2x3xf32>", for error texts.
#define HLO_TYPE_TEXT 400
const char *hlo_type_text(hlo_value x, char buffer[HLO_TYPE_TEXT]);
#define TYPE(x) hlo_type_text((x), (char[HLO_TYPE_TEXT]){0})

// ---- checks: each sets the module's error and gives false -----------------------------------------------------------

bool hlo_usable(hlo *h, const char *op, const hlo_value *values, int count);
bool hlo_want_kind(hlo *h, const char *op, hlo_value x, int kinds);
bool hlo_normal_dim(hlo *h, const char *op, hlo_value x, int *dim);  // negative counts from the end
// `size` elements, `dilation` apart, with `low` and `high` more (or fewer) at the ends; false when negative or past
// 2^63.
bool hlo_dilated_size(int64_t size, int64_t dilation, int64_t low, int64_t high, int64_t *out_size);
// dims[0..count) of x without repetition; sets `out_set[d]` for each.
bool hlo_dim_set(hlo *h, const char *op, const char *what, hlo_value x, const int *dims, int count,
                 bool out_set[PJ_MAX_RANK]);

// ---- text -----------------------------------------------------------------------------------------------------------

bool hlo_grow(hlo *h, void **data, size_t *capacity, size_t count, size_t size);  // room for `count` items
void hlo_put(hlo *h, const char *text);
void hlo_put_bytes(hlo *h, const char *data, size_t size);
void hlo_put_int(hlo *h, int64_t value);
void hlo_put_type(hlo *h, hlo_value x);

// ---- one operation --------------------------------------------------------------------------------------------------

// `results` hold the types and get their ids. False: nothing was written and the results are invalid.
bool hlo_begin(hlo *h, const char *op, const hlo_value *operands, int count, hlo_value *results, int result_count);
void hlo_end(hlo *h, const hlo_value *operands, int count, hlo_value *results, int result_count);
// An operation without attributes and with one result.
hlo_value hlo_simple(hlo *h, const char *op, const hlo_value *operands, int count, hlo_value type);

void hlo_attribute(hlo *h, const char *name);  // the caller writes the attribute's text
void hlo_attribute_text(hlo *h, const char *name, const char *text);
void hlo_attribute_int(hlo *h, const char *name, int64_t value);                      // i64
void hlo_attribute_bool(hlo *h, const char *name, bool value);
void hlo_attribute_ints(hlo *h, const char *name, const int64_t *values, int count);  // array<i64: ...>
void hlo_attribute_dims(hlo *h, const char *name, const int *dims, int count);        // array<i64: ...>
void hlo_attribute_pairs(hlo *h, const char *name, const int64_t *low, const int64_t *high, int count);  // padding

// "[1, 2]", inside an attribute.
void hlo_put_dims(hlo *h, const char *name, const int *dims, int count);

// Between hlo_begin and the attributes, inside "(" and ")": `{ ^bb0(arguments): ... return }`. The arguments hold their
// types. `results` hold the types that the body must give, or PJ_INVALID for any type.
void hlo_region(hlo *h, const char *op, bool isolated, hlo_value *arguments, int count, hlo_body body, void *context,
                hlo_value *results, int result_count);

// ---- operations by name ---------------------------------------------------------------------------------------------

hlo_value hlo_apply(hlo *h, hlo_op op, hlo_value a, hlo_value b);
hlo_value hlo_identity(hlo *h, hlo_op op, pj_dtype dtype);  // 0-d
void hlo_apply_body(hlo *h, const hlo_value *arguments, hlo_value *results, void *op);  // context: a hlo_op

#endif
