// Formulas of elementwise ops, shared by their pointwise, foreach, activation and prims overloads. Operands already
// have the dtype to compute in and broadcast against each other.
#ifndef PJ_OPS_ELEMENTWISE_H_
#define PJ_OPS_ELEMENTWISE_H_

#include "ops/lowering.h"

typedef hlo_value (*pj_unary)(hlo *h, hlo_value x);
typedef hlo_value (*pj_binary)(hlo *h, hlo_value a, hlo_value b);
typedef hlo_value (*pj_ternary)(hlo *h, hlo_value a, hlo_value b, hlo_value c);

// The dtype in which result `result` is computed.
pj_dtype pj_result_math(const pj_lowering *l, int result);
// A tensor or number argument, converted to `dtype`.
hlo_value pj_as(pj_lowering *l, int argument, pj_dtype dtype);

// A 0-d constant of x's dtype.
hlo_value pj_constant_like(hlo *h, hlo_value x, double value);

// One operand.
hlo_value pj_abs(hlo *h, hlo_value x);
hlo_value pj_angle(hlo *h, hlo_value x);
hlo_value pj_bitwise_not(hlo *h, hlo_value x);
hlo_value pj_ceil(hlo *h, hlo_value x);
hlo_value pj_deg2rad(hlo *h, hlo_value x);
hlo_value pj_exp2(hlo *h, hlo_value x);
hlo_value pj_floor(hlo *h, hlo_value x);
hlo_value pj_frac(hlo *h, hlo_value x);
hlo_value pj_identity(hlo *h, hlo_value x);
hlo_value pj_is_inf(hlo *h, hlo_value x);
hlo_value pj_log10(hlo *h, hlo_value x);
hlo_value pj_log2(hlo *h, hlo_value x);
hlo_value pj_rad2deg(hlo *h, hlo_value x);
hlo_value pj_reciprocal(hlo *h, hlo_value x);
hlo_value pj_relu(hlo *h, hlo_value x);
hlo_value pj_round(hlo *h, hlo_value x);
hlo_value pj_sgn(hlo *h, hlo_value x);
hlo_value pj_sigmoid(hlo *h, hlo_value x);
hlo_value pj_signbit(hlo *h, hlo_value x);
hlo_value pj_square(hlo *h, hlo_value x);
hlo_value pj_trunc(hlo *h, hlo_value x);

// Two operands.
hlo_value pj_copysign(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_div_trunc(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_floor_divide(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_fmax(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_fmin(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_gcd(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_heaviside(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_hypot(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_lcm(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_ldexp(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_logaddexp(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_logaddexp2(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_pow(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_remainder(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_shift_left(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_shift_right(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_sub(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_xlog1py(hlo *h, hlo_value a, hlo_value b);
hlo_value pj_xlogy(hlo *h, hlo_value a, hlo_value b);

// x to a power known at compile time: 2, 3, 0.5, -0.5, -1 and -2 without the power function, as PyTorch's CPU kernel.
hlo_value pj_pow_constant(hlo *h, hlo_value x, double exponent);

// start + weight * (end - start), from the nearer end as PyTorch does.
hlo_value pj_lerp(hlo *h, hlo_value start, hlo_value end, hlo_value weight);

#endif
