// What the lowerings that reduce over dimensions share (reductions, statistics, norms, softmax, scans).
#ifndef PJ_OPS_REDUCE_H_
#define PJ_OPS_REDUCE_H_

#include "ops/lowering.h"

// The dimensions that a reduction runs over.
typedef struct pj_axes {
  int dims[PJ_MAX_RANK];
  int count;
} pj_axes;

// Of an `int dim` or `int[] dim` argument of a tensor with `rank` dimensions; None and the empty list are all of them.
pj_axes pj_axes_argument(pj_lowering *l, int argument, int rank);
pj_axes pj_axes_all(int rank);
pj_axes pj_axes_one(int dim);
pj_axes pj_axes_from(int first, int rank);  // first, first + 1, ... rank - 1
int64_t pj_axes_size(hlo_value x, const pj_axes *axes);  // elements that one result element is made of

// A 0-d tensor as one of one element, since PyTorch reduces it over "dimension 0" too; any other is returned unchanged.
hlo_value pj_at_least_1d(hlo *h, hlo_value x);

hlo_value pj_reduce(hlo *h, hlo_op op, hlo_value x, const pj_axes *axes);
// A reduced value back at the dimensions of `like`, which it was reduced from.
hlo_value pj_spread(hlo *h, hlo_value reduced, hlo_value like, const pj_axes *axes);
// Sum over the axes divided by their size (NaN for none).
hlo_value pj_mean(hlo *h, hlo_value x, const pj_axes *axes);

// The p-norm of x over the axes, real; p 0 counts the non-zero elements, inf and -inf are the largest and smallest
// size.
hlo_value pj_vector_norm(hlo *h, hlo_value x, double p, const pj_axes *axes);

// The first place of the largest (HLO_MAX) or smallest (HLO_MIN) element along `dim`, or of the first NaN; s32.
hlo_value pj_arg_extreme(hlo *h, hlo_value x, hlo_value extreme, int dim);

// Returns `value` with the dimensions that PyTorch expects of it, so keepdim needs no reading.
void pj_return_reshaped(pj_lowering *l, int result, hlo_value value);
void pj_return_zeros(pj_lowering *l, int result);
// Returns zeros for all results, and gives true, when the first has no elements: there is nothing to compute.
bool pj_returned_empty(pj_lowering *l);
// Whether the call has that result: those that PyTorch leaves undefined are not in the list.
bool pj_wanted(const pj_lowering *l, int result);
// The result that holds gradient `i` of an op with an `output_mask` argument, or -1 when it is not asked for: the
// undefined ones are not in the list of results.
int pj_gradient(pj_lowering *l, int mask, int i);

// A tensor argument in the dtype that PyTorch's kernels compute in (pj_math_dtype).
hlo_value pj_wide(pj_lowering *l, int argument);
hlo_value pj_scale(hlo *h, hlo_value x, double factor);  // x * factor, in the dtype of x
hlo_value pj_full_like(hlo *h, hlo_value x, double value);  // 0-d of the dtype of x

#endif
