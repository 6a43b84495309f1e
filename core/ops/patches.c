#include "ops/patches.h"

#include "ops/reduce.h"

int64_t pj_patches_count(const pj_patches *p, int64_t size) {
  int64_t span = size + 2 * p->padding - p->dilation * (p->taps - 1) - 1;
  return span < 0 ? 0 : span / p->stride + 1;
}

static hlo_value padded_dim(pj_lowering *l, hlo_value x, int dim, int64_t low, int64_t high, int64_t interior) {
  int64_t lows[PJ_MAX_RANK] = {0}, highs[PJ_MAX_RANK] = {0}, interiors[PJ_MAX_RANK] = {0};
  lows[dim] = low;
  highs[dim] = high;
  interiors[dim] = interior;
  return hlo_pad(l->h, x, hlo_constant(l->h, x.dtype, 0), lows, highs, interiors);
}

hlo_value pj_patches_read(pj_lowering *l, hlo_value x, int dim, const pj_patches *p) {
  hlo *h = l->h;
  int64_t count = pj_patches_count(p, x.dims[dim]);
  if (p->padding) x = padded_dim(l, x, dim, p->padding, p->padding, 0);
  int64_t dims[] = {p->taps, count};
  hlo_value tap = hlo_mul(h, hlo_iota(h, PJ_S32, 2, dims, 0), hlo_constant_int(h, PJ_S32, p->dilation));
  hlo_value patch = hlo_mul(h, hlo_iota(h, PJ_S32, 2, dims, 1), hlo_constant_int(h, PJ_S32, p->stride));
  return hlo_take(h, x, hlo_add(h, tap, patch), dim);
}

hlo_value pj_patches_sum(pj_lowering *l, hlo_value x, int dim, int64_t size, const pj_patches *p) {
  hlo *h = l->h;
  int64_t full = size + 2 * p->padding, patches = x.dims[dim + 1];
  hlo_value sum = {.id = -1};
  for (int64_t t = 0; t < p->taps; ++t) {
    hlo_value tap = hlo_drop(h, hlo_slice_dim(h, x, dim, t, t + 1), dim);
    int64_t low = t * p->dilation, used = patches ? (patches - 1) * p->stride + 1 : 0;
    hlo_value spread = padded_dim(l, tap, dim, low - p->padding, full - low - used - p->padding, p->stride - 1);
    sum = sum.id < 0 ? spread : hlo_add(h, sum, spread);
  }
  return sum;
}

// Patches of the last two dimensions, of arguments kernel_size, dilation, padding and stride from `first` on.
static bool read_patches(pj_lowering *l, int first, pj_patches out[2]) {
  for (int i = 0; i < 4; ++i) {
    int count;
    const int64_t *values = pj_ints(l, first + i, &count);
    static const char *const NAMES[] = {"kernel_size", "dilation", "padding", "stride"};
    if (!pj_require(l, count == 1 || count == 2, PJ_INVALID_ARGUMENT, "It is expected %s equals to 2, but got size %d",
                    NAMES[i], count))
      return false;
    for (int d = 0; d < 2; ++d) {
      int64_t value = values[count == 1 ? 0 : d];
      if (!pj_require(l, value >= (i == 2 ? 0 : 1), PJ_INVALID_ARGUMENT, "%s should be greater than zero, but got %lld",
                      NAMES[i], (long long)value))
        return false;
      *(i == 0 ? &out[d].taps : i == 1 ? &out[d].dilation : i == 2 ? &out[d].padding : &out[d].stride) = value;
    }
  }
  return true;
}

// aten::im2col(self, kernel_size, dilation, padding, stride): (N, C, H, W) to (N, C kh kw, patches)
static void lower_im2col(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  pj_patches p[2];
  if (!read_patches(l, 1, p)) return;
  if (!pj_require(l, x.rank == 3 || x.rank == 4, PJ_INVALID_ARGUMENT,
                  "Expected 3D or 4D (batch mode) tensor with possibly 0 "
                  "batch size and other non-zero dimensions for input"))
    return;
  if (x.rank == 3) x = hlo_keep(h, x, 0);
  for (int d = 0; d < 2; ++d)
    if (!pj_require(l, pj_patches_count(&p[d], x.dims[2 + d]) > 0, PJ_INVALID_ARGUMENT, "Given input with spatial size "
                    "(%lld, %lld), calculated shape of the array of sliding blocks is too small (non-positive)",
                    (long long)x.dims[2], (long long)x.dims[3]))
      return;
  hlo_value y = pj_patches_read(l, pj_patches_read(l, x, 3, &p[1]), 2, &p[0]);   // N C kh oh kw ow
  pj_return_reshaped(l, 0, hlo_swap(h, y, 3, 4));
}

// aten::col2im(self, output_size, kernel_size, dilation, padding, stride): the adjoint of im2col
static void lower_col2im(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  x = hlo_convert(h, x, pj_math_dtype(x.dtype));
  pj_patches p[2];
  int count;
  const int64_t *size = pj_ints(l, 1, &count);
  if (!read_patches(l, 2, p)) return;
  if (!pj_require(l, (x.rank == 2 || x.rank == 3) && count == 2, PJ_INVALID_ARGUMENT,
                  "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions"))
    return;
  if (x.rank == 2) x = hlo_keep(h, x, 0);
  int64_t rows = pj_patches_count(&p[0], size[0]), columns = pj_patches_count(&p[1], size[1]),
          kernel = p[0].taps * p[1].taps;
  if (!pj_require(l, x.dims[1] % kernel == 0, PJ_INVALID_ARGUMENT,
                  "Expected size of input's dimension 1 to be divisible by "
                  "the product of kernel_size, but got input.size(1)=%lld",
                  (long long)x.dims[1]) ||
      !pj_require(l, x.dims[2] == rows * columns, PJ_INVALID_ARGUMENT,
                  "Given output_size, expected size of input's dimension 2 "
                  "to match the calculated number of sliding blocks %lld * %lld, but got input.size(2)=%lld",
                  (long long)rows, (long long)columns, (long long)x.dims[2]))
    return;
  hlo_value y = hlo_reshape(h, x, 6, (int64_t[]){x.dims[0], x.dims[1] / kernel, p[0].taps, p[1].taps, rows, columns});
  y = hlo_swap(h, y, 3, 4);
  y = pj_patches_sum(l, pj_patches_sum(l, y, 4, size[1], &p[1]), 2, size[0], &p[0]);
  pj_return_reshaped(l, 0, y);
}

// aten::unfold_backward(grad_in, input_sizes, dim, size, step): the windows, in the last dimension, summed back
static void lower_unfold_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = pj_tensor(l, 0);
  grad = hlo_convert(h, grad, pj_math_dtype(grad.dtype));
  pj_type type = pj_result_type(l, 0);
  pj_patches p = {.taps = pj_int(l, 3), .stride = pj_int(l, 4), .dilation = 1};
  if (type.rank == 0) {
    pj_return_reshaped(l, 0, hlo_reduce_all(h, HLO_ADD, grad));
    return;
  }
  int dim = pj_dim(l, 2, type.rank), order[PJ_MAX_RANK], next = 0;
  if (!pj_require(l, grad.rank == type.rank + 1 && p.stride > 0, PJ_INVALID_ARGUMENT,
                  "unfold_backward: grad_in must have the "
                  "windows as its last dimension"))
    return;
  if (p.taps == 0 || hlo_size(grad) == 0) {
    pj_return(l, 0, hlo_full(h, grad.dtype, type.rank, type.dims, 0));
    return;
  }
  for (int d = 0; d < type.rank; ++d) {
    if (d == dim) order[next++] = type.rank;
    order[next++] = d;
  }
  pj_return(l, 0, pj_patches_sum(l, hlo_transpose(h, grad, order), dim, type.dims[dim], &p));
}

PJ_LOWERINGS(patches_lowerings) = {
    {.name = "aten::im2col", .lower = lower_im2col},
    {.name = "aten::col2im", .lower = lower_col2im},
    {.name = "aten::unfold_backward", .lower = lower_unfold_backward},
    {0},
};
