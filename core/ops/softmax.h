// Softmax along one dimension, shared with attention. Values in their math dtype.
#ifndef PJ_OPS_SOFTMAX_H_
#define PJ_OPS_SOFTMAX_H_

#include "ops/reduce.h"

hlo_value pj_softmax(hlo *h, hlo_value x, int dim);
// y * (grad - sum(grad * y)) for y = softmax(x)
hlo_value pj_softmax_backward(hlo *h, hlo_value grad, hlo_value y, int dim);

#endif
