// What the pooling ops share.
#ifndef PJ_OPS_POOLING_H_
#define PJ_OPS_POOLING_H_

#include "ops/lowering.h"

enum { PJ_MAX_SPATIAL = 3 };

// Body of a reduction of (value, place) pairs to the largest value and its place: the first of equal ones, and the last
// NaN if there is any, as PyTorch's max_pool.
void pj_larger_of_pairs(hlo *h, const hlo_value *arguments, hlo_value *results, void *context);

// Each element's place in the flattened last `spatial` dimensions; s32, dimensions of x.
hlo_value pj_flat_places(pj_lowering *l, hlo_value x, int spatial);

#endif
