// Ops whose result sizes depend on data, and ops whose sizes PyTorch has no meta kernel for.
//
// A dynamic op is two programs. The count op takes the arguments of the overload and gives s64[counts]. The runtime
// reads these numbers; the value op takes the same arguments and then the numbers as INT arguments, so that its result
// sizes are known: `types` tells them.
#ifndef PJ_OPS_DYNAMIC_H_
#define PJ_OPS_DYNAMIC_H_

#include "ir/signature.h"

enum { PJ_DYNAMIC_RESULTS = PJ_MAX_RANK };   // a histogram has as many lists of edges as dimensions

typedef struct pj_dynamic_op {
  const char *name;    // overload, "aten::nonzero"
  const char *count;   // its count op; NULL: the sizes do not depend on data, only the types are told here
  const char *value;   // its value op
  int counts;          // numbers that the count op gives
  // Dtypes and sizes of the results of a value call, from its arguments; the strides are row-major. Gives how many
  // there are.
  int (*types)(const pj_signature *signature, pj_type out_types[PJ_DYNAMIC_RESULTS]);
  bool by_column;      // the results have two dimensions, and column-major strides
} pj_dynamic_op;

// The entry of an overload, or of the value op of one; NULL for other ops.
const pj_dynamic_op *pj_dynamic_find(const char *name);

// ---- ops/result_types.c ---------------------------------------------------------------------------------------------

// The entry of an op whose sizes do not depend on data but that PyTorch has no meta kernel for, or a wrong one; or NULL.
const pj_dynamic_op *pj_typed_find(const char *name);

// What the type rules read: a tensor argument's dtype and sizes, and whether an argument is not None.
pj_type pj_argument_type(const pj_signature *signature, int argument);
bool pj_argument_present(const pj_signature *signature, int argument);
pj_type pj_vector_type(pj_dtype dtype, int64_t size);

// Rules of value ops: linalg_lstsq and _ctc_loss.Tensor.
int pj_lstsq_types(const pj_signature *signature, pj_type *out_types);
int pj_ctc_types(const pj_signature *signature, pj_type *out_types);

#endif
