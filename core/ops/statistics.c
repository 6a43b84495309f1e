#include "ops/reduce.h"

// aten::var.correction(self, dim, *, correction, keepdim): sum |x - mean|^2 / max(n - correction, 0)
static hlo_value variance(pj_lowering *l, hlo_value *out_mean) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  x = pj_at_least_1d(h, hlo_convert(h, x, pj_math_dtype(x.dtype)));
  pj_axes axes = pj_axes_argument(l, 1, x.rank);
  *out_mean = pj_mean(h, x, &axes);
  hlo_value off = hlo_sub(h, x, pj_spread(h, *out_mean, x, &axes));
  hlo_value square = hlo_real(h, hlo_mul(h, off, hlo_conj(h, off)));
  hlo_value sum = pj_reduce(h, HLO_ADD, square, &axes);
  hlo_value correction = pj_present(l, 2) ? pj_number(l, 2, sum.dtype) : pj_full_like(h, sum, 1);
  hlo_value freedom = hlo_sub(h, pj_full_like(h, sum, (double)pj_axes_size(x, &axes)), correction);
  return hlo_div(h, sum, hlo_max(h, freedom, pj_full_like(h, sum, 0)));
}

static void lower_var(pj_lowering *l) {
  hlo_value mean;
  pj_return_reshaped(l, 0, variance(l, &mean));
}

static void lower_std(pj_lowering *l) {
  hlo_value mean;
  pj_return_reshaped(l, 0, hlo_sqrt(l->h, variance(l, &mean)));
}

static void lower_var_mean(pj_lowering *l) {
  hlo_value mean;
  pj_return_reshaped(l, 0, variance(l, &mean));
  pj_return_reshaped(l, 1, mean);
}

static void lower_std_mean(pj_lowering *l) {
  hlo_value mean;
  pj_return_reshaped(l, 0, hlo_sqrt(l->h, variance(l, &mean)));
  pj_return_reshaped(l, 1, mean);
}

PJ_LOWERINGS(statistics_lowerings) = {
    {"aten::var.correction", lower_var},
    {"aten::std.correction", lower_std},
    {"aten::var_mean.correction", lower_var_mean},
    {"aten::std_mean.correction", lower_std_mean},
    {0},
};
