// Random numbers: Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011),
// written as plain u32 operations. The key is the generator's seed; element i of a call uses counter offset + i, and
// the generator's offset then advances by the number of elements of the call's largest result. So the numbers do not
// depend on how ops are grouped into programs, nor on the layout of a result.
#ifndef PJ_OPS_RANDOM_H_
#define PJ_OPS_RANDOM_H_

#include "ops/lowering.h"

typedef struct pj_random {
  hlo_value key[2];   // 0-d u32
  hlo_value counter;  // 0-d u64
} pj_random;

// The stream of this call: seed and offset are the last two arguments (PJ_OP_RANDOM).
pj_random pj_random_begin(pj_lowering *l);

// A stream of its own, keyed by the call's seed and offset. For ops that draw other than one block an element of their
// largest result (attention dropout, rejection samplers): their numbers cannot overlap those of a neighbouring call.
// Different `number`s below 2^16 give different streams of up to 2^48 blocks.
pj_random pj_random_stream(pj_lowering *l, pj_random random, uint32_t number);

// Two u32 arrays of `count` elements (1-d).
void pj_random_bits(hlo *h, pj_random random, int64_t count, hlo_value out_bits[2]);

// Uniform in [0, 1) with as many bits as `dtype` has digits (bf16 8, f16 11, f32 24, f64 53), so that narrowing cannot
// give 1. The result is of pj_math_dtype(dtype).
hlo_value pj_random_uniform(hlo *h, pj_random random, pj_dtype dtype, int rank, const int64_t *dims);

// Uniform in (0, 1): logarithms of it and of one minus it are finite.
hlo_value pj_random_open(hlo *h, pj_random random, pj_dtype dtype, int rank, const int64_t *dims);

// Standard normal, of pj_math_dtype(dtype); complex types have variance 1 over both parts.
hlo_value pj_random_normal(hlo *h, pj_random random, pj_dtype dtype, int rank, const int64_t *dims);

#endif
