// Discrete Fourier transforms of any dimensions. stablehlo.fft works on the innermost ones, so each transform moves its
// dimension there and back.
#include <math.h>

#include "ops/reduce.h"

static hlo_value transform(hlo *h, hlo_fft_kind kind, hlo_value x, int dim, int64_t length) {
  return hlo_swap(h, hlo_fft(h, kind, hlo_swap(h, x, dim, -1), &length, 1), dim, -1);
}

// Over each of the dimensions; the inverse is not divided by the length yet.
static hlo_value complex_transforms(hlo *h, hlo_value x, const int *dims, int count, bool forward) {
  for (int i = 0; i < count; ++i) x = transform(h, forward ? HLO_FFT : HLO_IFFT, x, dims[i], x.dims[dims[i]]);
  return x;
}

// fft_norm_mode of ATen/native/SpectralOpsUtils.h: 0 none, 1 by sqrt(n), 2 by n. stablehlo's inverse transforms are
// already divided by n (`divided`).
static hlo_value normalized(pj_lowering *l, hlo_value y, double n, int64_t mode, bool divided) {
  if (!pj_require(l, mode >= 0 && mode <= 2, PJ_INVALID_ARGUMENT, "Unsupported normalization type %lld",
                  (long long)mode))
    return y;
  double factor = (mode == 0 ? 1 : mode == 1 ? 1 / sqrt(n) : 1 / n) * (divided ? n : 1);
  return factor == 1 ? y : pj_scale(l->h, y, factor);
}

static double signal_size(hlo_value x, const int *dims, int count) {
  double n = 1;
  for (int i = 0; i < count; ++i) n *= (double)x.dims[dims[i]];
  return n;
}

static bool require_lengths(pj_lowering *l, hlo_value x, const int *dims, int count) {
  for (int i = 0; i < count; ++i)
    if (!pj_require(l, x.dims[dims[i]] > 0, PJ_INVALID_ARGUMENT, "Invalid number of data points (%lld) specified",
                    (long long)x.dims[dims[i]])) return false;
  return true;
}

// A transform of no elements (another dimension is 0) or over no dimensions is a copy.
static bool is_trivial(hlo_value x, int count) { return count == 0 || hlo_size(x) == 0; }

static void return_full(pj_lowering *l, double value) {
  pj_type type = pj_result_type(l, 0);
  pj_return(l, 0, hlo_full(l->h, type.dtype, type.rank, type.dims, value));
}

// aten::_fft_c2c(self, dim, normalization, forward)
static void lower_c2c(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int dims[PJ_MAX_RANK], count = pj_dims(l, 1, x.rank, false, dims);
  bool forward = pj_bool(l, 3);
  if (!require_lengths(l, x, dims, count)) return;
  if (is_trivial(x, count)) {
    pj_return(l, 0, x);
    return;
  }
  hlo_value y = complex_transforms(l->h, x, dims, count, forward);
  pj_return(l, 0, normalized(l, y, signal_size(x, dims, count), pj_int(l, 2), !forward));
}

// aten::_fft_r2c(self, dim, normalization, onesided): the last of dim is the halved one
static void lower_r2c(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  int dims[PJ_MAX_RANK], count = pj_dims(l, 1, x.rank, false, dims);
  if (!require_lengths(l, x, dims, count)) return;
  hlo_value y;
  if (is_trivial(x, count)) {
    return_full(l, 0);
    return;
  }
  if (pj_bool(l, 3)) {
    int last = dims[count - 1];
    y = complex_transforms(h, transform(h, HLO_RFFT, x, last, x.dims[last]), dims, count - 1, true);
  } else {
    y = complex_transforms(h, hlo_convert(h, x, pj_result_type(l, 0).dtype), dims, count, true);
  }
  pj_return(l, 0, normalized(l, y, signal_size(x, dims, count), pj_int(l, 2), false));
}

// aten::_fft_c2r(self, dim, normalization, last_dim_size): the last of dim is the halved one
static void lower_c2r(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  int dims[PJ_MAX_RANK], count = pj_dims(l, 1, x.rank, false, dims);
  int64_t length = pj_int(l, 3);
  if (!require_lengths(l, x, dims, count)) return;
  if (!pj_require(l, length > 0 && count > 0, PJ_INVALID_ARGUMENT, "Invalid number of data points (%lld) specified",
                  (long long)length)) return;
  if (is_trivial(x, count)) {
    return_full(l, 0);
    return;
  }
  int last = dims[count - 1];
  if (!pj_require(l, x.dims[last] >= length / 2 + 1, PJ_INVALID_ARGUMENT,
                  "_fft_c2r: %lld points are too few for a result of %lld", (long long)x.dims[last], (long long)length))
    return;
  x = hlo_slice_dim(h, x, last, 0, length / 2 + 1);
  hlo_value y = transform(h, HLO_IRFFT, complex_transforms(h, x, dims, count - 1, false), last, length);
  pj_return(l, 0, normalized(l, y, signal_size(y, dims, count), pj_int(l, 2), true));
}

PJ_LOWERINGS(fft_lowerings) = {
    {"aten::_fft_c2c", lower_c2c},
    {"aten::_fft_r2c", lower_r2c},
    {"aten::_fft_c2r", lower_c2r},
    {0},
};
