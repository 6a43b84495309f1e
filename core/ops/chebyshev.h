// Functions given by Chebyshev series.
#ifndef PJ_OPS_CHEBYSHEV_H_
#define PJ_OPS_CHEBYSHEV_H_

#include "ops/lowering.h"

// The series sum c[k] T_k(y), y = x mapped from [low, high] to [-1, 1]. Terms too small for x's dtype are left out.
hlo_value pj_chebyshev(hlo *h, hlo_value x, double low, double high, const double *coefficients, int count);

#define PJ_CHEBYSHEV(h, x, low, high, table) pj_chebyshev(h, x, low, high, table, (int)(sizeof table / sizeof *table))

#endif
