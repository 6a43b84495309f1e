// Cubic interpolation, which upsampling and grid sampling share.
#ifndef PJ_OPS_RESAMPLE_H_
#define PJ_OPS_RESAMPLE_H_

#include "ops/lowering.h"

// Weights of the four neighbours of a point that lies `t` in [0, 1] behind the second (Keys' kernel with a = -0.75),
// and their derivatives by t.
void pj_cubic_weights(hlo *h, hlo_value t, hlo_value out_weights[4]);
void pj_cubic_slopes(hlo *h, hlo_value t, hlo_value out_slopes[4]);

#endif
