#include "ops/chebyshev.h"

#include <math.h>

hlo_value pj_chebyshev(hlo *h, hlo_value x, double low, double high, const double *coefficients, int count) {
  double largest = 0, precision = x.dtype == PJ_F64 ? 0 : 1e-9;
  for (int k = 0; k < count; ++k) largest = fmax(largest, fabs(coefficients[k]));
  while (count > 2 && fabs(coefficients[count - 1]) < precision * largest) --count;
#define K(value) hlo_constant(h, x.dtype, (value))
  hlo_value y = hlo_mul(h, hlo_sub(h, x, K((high + low) / 2)), K(2 / (high - low)));
  hlo_value twice = hlo_add(h, y, y), last = K(0), sum = K(coefficients[count - 1]);  // Clenshaw's recurrence
  for (int k = count - 2; k >= 1; --k) {
    hlo_value next = hlo_add(h, hlo_sub(h, hlo_mul(h, twice, sum), last), K(coefficients[k]));
    last = sum;
    sum = next;
  }
  return hlo_add(h, hlo_sub(h, hlo_mul(h, y, sum), last), K(coefficients[0]));
#undef K
}
