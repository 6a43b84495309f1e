// Sliding windows along one dimension, and their overlapping sum back.
#ifndef PJ_OPS_PATCHES_H_
#define PJ_OPS_PATCHES_H_

#include "ops/lowering.h"

// How `taps` elements, `dilation` apart, are taken at every `stride` from a dimension that is padded at both ends.
typedef struct pj_patches {
  int64_t taps, stride, dilation, padding;
} pj_patches;

// Number of patches in a dimension of `size`; may be <= 0.
int64_t pj_patches_count(const pj_patches *p, int64_t size);

// x with `dim` replaced by two dimensions, (taps, patches); padding reads as zero.
hlo_value pj_patches_read(pj_lowering *l, hlo_value x, int dim, const pj_patches *p);

// The adjoint: dimensions `dim` and `dim` + 1, (taps, patches), summed back to one of `size`.
hlo_value pj_patches_sum(pj_lowering *l, hlo_value x, int dim, int64_t size, const pj_patches *p);

#endif
