// Upsampling (nearest, linear, cubic, antialiased), one dimension after another, and its gradients.
#include "ops/resample.h"

#include "ops/index.h"
#include "ops/reduce.h"

// ---- the cubic kernel -----------------------------------------------------------------------------------------------

static const double KEYS = -0.75;

// ((c3 x + c2) x + c1) x + c0
static hlo_value cubic(hlo *h, hlo_value x, double c3, double c2, double c1, double c0) {
  hlo_value y = hlo_add(h, pj_scale(h, x, c3), pj_full_like(h, x, c2));
  y = hlo_add(h, hlo_mul(h, y, x), pj_full_like(h, x, c1));
  return hlo_add(h, hlo_mul(h, y, x), pj_full_like(h, x, c0));
}

static hlo_value plus(hlo *h, hlo_value x, double c) { return hlo_add(h, x, pj_full_like(h, x, c)); }

// The kernel at distance x, for 0 <= x <= 1 and for 1 <= x <= 2, and its derivatives.
static hlo_value near_weight(hlo *h, hlo_value x) { return cubic(h, x, KEYS + 2, -(KEYS + 3), 0, 1); }
static hlo_value far_weight(hlo *h, hlo_value x) { return cubic(h, x, KEYS, -5 * KEYS, 8 * KEYS, -4 * KEYS); }
static hlo_value near_slope(hlo *h, hlo_value x) { return cubic(h, x, 0, 3 * (KEYS + 2), -2 * (KEYS + 3), 0); }
static hlo_value far_slope(hlo *h, hlo_value x) { return cubic(h, x, 0, 3 * KEYS, -10 * KEYS, 8 * KEYS); }

void pj_cubic_weights(hlo *h, hlo_value t, hlo_value out[4]) {
  hlo_value u = plus(h, hlo_neg(h, t), 1);
  out[0] = far_weight(h, plus(h, t, 1));
  out[1] = near_weight(h, t);
  out[2] = near_weight(h, u);
  out[3] = far_weight(h, plus(h, u, 1));
}

void pj_cubic_slopes(hlo *h, hlo_value t, hlo_value out[4]) {
  hlo_value u = plus(h, hlo_neg(h, t), 1);
  out[0] = far_slope(h, plus(h, t, 1));
  out[1] = near_slope(h, t);
  out[2] = hlo_neg(h, near_slope(h, u));
  out[3] = hlo_neg(h, far_slope(h, plus(h, u, 1)));
}

// ---- one dimension --------------------------------------------------------------------------------------------------

typedef enum method { NEAREST, NEAREST_EXACT, LINEAR, CUBIC } method;

// A resampling of `in` to `out` elements. `scale`: input elements per output element.
typedef struct axis {
  int64_t in, out;
  double scale;
  bool align_corners;
} axis;

// `scale_argument` is the factor that the user gave (float?); it counts only without align_corners.
static axis axis_of(pj_lowering *l, int64_t in, int64_t out, bool align_corners, int scale_argument) {
  axis a = {.in = in, .out = out, .align_corners = align_corners, .scale = (double)in / (double)out};
  double given = pj_present(l, scale_argument) ? pj_float(l, scale_argument) : 0;
  if (align_corners) a.scale = out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
  else if (given > 0) a.scale = 1 / given;
  return a;
}

// Every output element is the sum of `count` input elements `at` (s32 (out)) times `weight` (float (out)).
typedef struct taps {
  int count;
  hlo_value at[4], weight[4];
} taps;

static hlo_value clamped(hlo *h, hlo_value at, int64_t size) {
  return hlo_clamp(h, hlo_constant_int(h, PJ_S32, 0), at, hlo_constant_int(h, PJ_S32, size - 1));
}

// In float32 for half types and integers, as PyTorch computes them.
static taps taps_of(pj_lowering *l, method m, const axis *a, pj_dtype dtype) {
  hlo *h = l->h;
  taps t = {.count = 1};
  hlo_value o = hlo_iota(h, dtype, 1, &a->out, 0);
  if (m == NEAREST || m == NEAREST_EXACT) {
    if (m == NEAREST_EXACT) o = plus(h, o, 0.5);
    t.at[0] = clamped(h, hlo_convert(h, hlo_floor(h, pj_scale(h, o, (double)(float)a->scale)), PJ_S32), a->in);
    return t;
  }
  hlo_value x = a->align_corners ? pj_scale(h, o, a->scale) : plus(h, pj_scale(h, plus(h, o, 0.5), a->scale), -0.5);
  if (m == LINEAR) x = hlo_max(h, x, pj_full_like(h, x, 0));
  hlo_value floor = hlo_floor(h, x), zero = pj_full_like(h, x, 0), one = pj_full_like(h, x, 1);
  hlo_value part = hlo_clamp(h, zero, hlo_sub(h, x, floor), one), base = hlo_convert(h, floor, PJ_S32);
  if (m == LINEAR) {
    t.count = 2;
    t.weight[0] = hlo_sub(h, one, part);
    t.weight[1] = part;
  } else {
    t.count = 4;
    pj_cubic_weights(h, part, t.weight);
  }
  for (int k = 0; k < t.count; ++k)
    t.at[k] = clamped(h, hlo_add(h, base, hlo_constant_int(h, PJ_S32, m == LINEAR ? k : k - 1)), a->in);
  return t;
}

static bool is_identity(const axis *a) { return a->in == a->out && a->scale == 1; }

static hlo_value resample_dim(pj_lowering *l, hlo_value x, int dim, const taps *t) {
  hlo *h = l->h;
  if (t->count == 1) return hlo_take(h, x, t->at[0], dim);
  hlo_value sum = {.id = -1};
  for (int k = 0; k < t->count; ++k) {
    hlo_value read = hlo_take(h, x, t->at[k], dim);
    hlo_value term = hlo_mul(h, read, hlo_broadcast_in_dim(h, t->weight[k], read.rank, read.dims, &dim));
    sum = sum.id < 0 ? term : hlo_add(h, sum, term);
  }
  return sum;
}

// x times a matrix (from, to) along `dim`.
static hlo_value product_dim(pj_lowering *l, hlo_value x, int dim, hlo_value matrix) {
  hlo *h = l->h;
  x = hlo_swap(h, x, dim, x.rank - 1);
  x = hlo_dot_general(h, x, matrix, NULL, NULL, 0, (int[]){x.rank - 1}, (int[]){0}, 1, x.dtype);
  return hlo_swap(h, x, dim, x.rank - 1);
}

// Beyond this many elements the matrix below would outweigh the image, and a scatter is taken.
enum { MATRIX_LIMIT = 1 << 22 };

// The adjoint of resample_dim.
static hlo_value resample_dim_backward(pj_lowering *l, hlo_value grad, int dim, const axis *a, const taps *t) {
  hlo *h = l->h;
  hlo_value sum = {.id = -1};
  if (a->in * a->out <= MATRIX_LIMIT) {
    int64_t dims[] = {a->out, a->in};
    hlo_value place = hlo_iota(h, PJ_S32, 2, dims, 1), none = hlo_constant(h, grad.dtype, 0);
    for (int k = 0; k < t->count; ++k) {
      hlo_value weight = t->count == 1 ? pj_full_like(h, grad, 1) : hlo_keep(h, t->weight[k], 1);
      hlo_value chosen = hlo_select(h, hlo_eq(h, place, hlo_keep(h, t->at[k], 1)), weight, none);
      sum = sum.id < 0 ? chosen : hlo_add(h, sum, chosen);
    }
    return product_dim(l, grad, dim, sum);
  }
  int64_t dims[PJ_MAX_RANK];
  int order[PJ_MAX_RANK] = {dim};
  for (int d = 0, next = 1; d < grad.rank; ++d) {
    dims[d] = d == dim ? a->in : grad.dims[d];
    if (d != dim) order[next++] = d;
  }
  sum = hlo_full(h, grad.dtype, grad.rank, dims, 0);
  for (int k = 0; k < t->count; ++k) {
    hlo_value updates = grad;
    if (t->count > 1) updates = hlo_mul(h, grad, hlo_broadcast_in_dim(h, t->weight[k], grad.rank, grad.dims, &dim));
    pj_positions at = pj_positions_all(grad.rank);
    at.indexed[dim] = true;
    at.indices[dim] = t->at[k];
    pj_target whole = pj_target_whole(sum);
    sum = pj_positions_write(l, HLO_ADD, &whole, &at, hlo_transpose(h, updates, order));
  }
  return sum;
}

// ---- all dimensions -------------------------------------------------------------------------------------------------

static bool require_image(pj_lowering *l, int rank, int spatial) {
  return pj_require(l, rank == spatial + 2, PJ_INVALID_ARGUMENT,
                    "It is expected input_size equals to %d, but got size %d", spatial + 2, rank);
}

// Integers are interpolated in float32 and rounded after each dimension, the last first, as PyTorch does.
static pj_dtype interpolation_dtype(pj_dtype dtype) { return pj_dtype_is_float(dtype) ? pj_math_dtype(dtype) : PJ_F32; }

static hlo_value rounded(pj_lowering *l, hlo_value y, pj_dtype dtype) {
  hlo *h = l->h;
  if (!pj_dtype_is_integer(dtype)) return y;
  hlo_value nearest = hlo_floor(h, plus(h, y, 0.5));
  return dtype == PJ_U8 ? hlo_clamp(h, pj_full_like(h, y, 0), nearest, pj_full_like(h, y, 255)) : nearest;
}

// (self, output_size, [align_corners,] scales...)
static void upsample(pj_lowering *l, method m, int spatial) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  pj_type type = pj_result_type(l, 0);
  bool nearest = m == NEAREST || m == NEAREST_EXACT;
  if (!require_image(l, x.rank, spatial) || pj_returned_empty(l)) return;
  if (!pj_require(l, hlo_size(x) > 0, PJ_INVALID_ARGUMENT, "Non-empty input expected for upsampling")) return;
  pj_dtype dtype = interpolation_dtype(x.dtype);
  if (!nearest) x = hlo_convert(h, x, dtype);
  for (int d = spatial - 1; d >= 0; --d) {
    int dim = 2 + d;
    axis a = axis_of(l, x.dims[dim], type.dims[dim], !nearest && pj_bool(l, 2), (nearest ? 2 : 3) + d);
    if (is_identity(&a)) continue;
    taps t = taps_of(l, m, &a, nearest ? PJ_F32 : dtype);
    x = resample_dim(l, x, dim, &t);
    if (!nearest) x = rounded(l, x, type.dtype);
  }
  pj_return(l, 0, x);
}

// (grad_output, output_size, input_size, [align_corners,] scales...)
static void upsample_backward(pj_lowering *l, method m, int spatial) {
  hlo *h = l->h;
  hlo_value grad = pj_tensor(l, 0);
  pj_type type = pj_result_type(l, 0);
  bool nearest = m == NEAREST || m == NEAREST_EXACT;
  if (!require_image(l, grad.rank, spatial) || pj_returned_empty(l)) return;
  if (!pj_require(l, hlo_size(grad) > 0, PJ_INVALID_ARGUMENT, "Non-empty grad_output expected for upsampling")) return;
  pj_dtype dtype = interpolation_dtype(grad.dtype);
  grad = hlo_convert(h, grad, dtype);
  for (int d = spatial - 1; d >= 0; --d) {
    int dim = 2 + d;
    axis a = axis_of(l, type.dims[dim], grad.dims[dim], !nearest && pj_bool(l, 3), (nearest ? 3 : 4) + d);
    if (is_identity(&a)) continue;
    taps t = taps_of(l, m, &a, nearest ? PJ_F32 : dtype);
    grad = resample_dim_backward(l, grad, dim, &a, &t);
  }
  pj_return(l, 0, grad);
}

#define UPSAMPLE(name, method, spatial) \
  static void lower_##name(pj_lowering *l) { upsample(l, method, spatial); } \
  static void lower_##name##_backward(pj_lowering *l) { upsample_backward(l, method, spatial); }
UPSAMPLE(nearest1d, NEAREST, 1)
UPSAMPLE(nearest2d, NEAREST, 2)
UPSAMPLE(nearest3d, NEAREST, 3)
UPSAMPLE(nearest_exact1d, NEAREST_EXACT, 1)
UPSAMPLE(nearest_exact2d, NEAREST_EXACT, 2)
UPSAMPLE(nearest_exact3d, NEAREST_EXACT, 3)
UPSAMPLE(linear1d, LINEAR, 1)
UPSAMPLE(bilinear2d, LINEAR, 2)
UPSAMPLE(trilinear3d, LINEAR, 3)
UPSAMPLE(bicubic2d, CUBIC, 2)

// ---- antialiased ----------------------------------------------------------------------------------------------------
// As in Pillow: each output element is a weighted mean of all input elements within the filter's reach, which grows
// with the scale. The weights are a matrix (in, out).

typedef struct filter {
  double reach;
  hlo_value (*weight)(hlo *h, hlo_value distance);   // of |x|
} filter;

static hlo_value zero_beyond(hlo *h, hlo_value x, double reach, hlo_value y) {
  return hlo_select(h, hlo_lt(h, x, pj_full_like(h, x, reach)), y, pj_full_like(h, x, 0));
}

static hlo_value triangle(hlo *h, hlo_value x) { return zero_beyond(h, x, 1, plus(h, hlo_neg(h, x), 1)); }

// Keys' kernel with a = -0.5
static hlo_value bicubic(hlo *h, hlo_value x) {
  hlo_value near = cubic(h, x, 1.5, -2.5, 0, 1), far = cubic(h, x, -0.5, 2.5, -4, 2);
  return hlo_select(h, hlo_lt(h, x, pj_full_like(h, x, 1)), near, zero_beyond(h, x, 2, far));
}

static hlo_value sinc(hlo *h, hlo_value x) {
  hlo_value angle = pj_scale(h, x, 3.14159265358979323846), zero = pj_full_like(h, x, 0);
  return hlo_select(h, hlo_eq(h, x, zero), pj_full_like(h, x, 1), hlo_div(h, hlo_sin(h, angle), angle));
}

static hlo_value lanczos(hlo *h, hlo_value x) {
  return zero_beyond(h, x, 3, hlo_mul(h, sinc(h, x), sinc(h, pj_scale(h, x, 1.0 / 3))));
}

static const filter TRIANGLE = {1, triangle}, BICUBIC = {2, bicubic}, LANCZOS = {3, lanczos};

static hlo_value antialias_matrix(pj_lowering *l, const filter *f, const axis *a, pj_dtype dtype) {
  hlo *h = l->h;
  int64_t dims[] = {a->in, a->out};
  double stretch = a->scale > 1 ? a->scale : 1, support = f->reach * stretch;
  hlo_value i = hlo_iota(h, dtype, 2, dims, 0);
  hlo_value center = pj_scale(h, plus(h, hlo_iota(h, dtype, 2, dims, 1), 0.5), a->scale);
  // Elements from int(center - support + 0.5) to int(center + support + 0.5).
  hlo_value first = hlo_floor(h, hlo_max(h, plus(h, center, 0.5 - support), pj_full_like(h, center, 0)));
  hlo_value end = hlo_floor(h, plus(h, center, support + 0.5));
  hlo_value inside = hlo_and(h, hlo_ge(h, i, first), hlo_lt(h, i, end));
  hlo_value distance = hlo_abs(h, pj_scale(h, plus(h, hlo_sub(h, i, center), 0.5), 1 / stretch));
  hlo_value weight = hlo_select(h, inside, f->weight(h, distance), pj_full_like(h, i, 0));
  return hlo_div(h, weight, hlo_keep(h, hlo_reduce_sum(h, weight, 0), 0));
}

// (self, output_size, align_corners, scales_h, scales_w)
static void upsample_antialiased(pj_lowering *l, const filter *f) {
  hlo_value x = pj_tensor(l, 0);
  pj_type type = pj_result_type(l, 0);
  if (!require_image(l, x.rank, 2) || pj_returned_empty(l)) return;
  if (!pj_require(l, hlo_size(x) > 0, PJ_INVALID_ARGUMENT, "Non-empty input expected for upsampling")) return;
  x = hlo_convert(l->h, x, interpolation_dtype(x.dtype));
  for (int d = 1; d >= 0; --d) {
    axis a = axis_of(l, x.dims[2 + d], type.dims[2 + d], pj_bool(l, 2), 3 + d);
    if (!is_identity(&a)) x = rounded(l, product_dim(l, x, 2 + d, antialias_matrix(l, f, &a, x.dtype)), type.dtype);
  }
  pj_return(l, 0, x);
}

// (grad_output, output_size, input_size, align_corners, scales_h, scales_w)
static void upsample_antialiased_backward(pj_lowering *l, const filter *f) {
  hlo_value grad = pj_tensor(l, 0);
  pj_type type = pj_result_type(l, 0);
  if (!require_image(l, grad.rank, 2) || pj_returned_empty(l)) return;
  grad = hlo_convert(l->h, grad, interpolation_dtype(grad.dtype));
  for (int d = 0; d < 2; ++d) {
    axis a = axis_of(l, type.dims[2 + d], grad.dims[2 + d], pj_bool(l, 3), 4 + d);
    if (!is_identity(&a))
      grad = product_dim(l, grad, 2 + d, hlo_swap(l->h, antialias_matrix(l, f, &a, grad.dtype), 0, 1));
  }
  pj_return(l, 0, grad);
}

#define ANTIALIASED(name, filter) \
  static void lower_##name(pj_lowering *l) { upsample_antialiased(l, &filter); } \
  static void lower_##name##_backward(pj_lowering *l) { upsample_antialiased_backward(l, &filter); }
ANTIALIASED(bilinear2d_aa, TRIANGLE)
ANTIALIASED(bicubic2d_aa, BICUBIC)
ANTIALIASED(lanczos2d_aa, LANCZOS)

// Scales decide which elements are read, so they are part of the program: all arguments from this one on.
#define SCALES_FROM(i) (7u << (i))

PJ_LOWERINGS(resample_lowerings) = {
    {.name = "aten::upsample_nearest1d", .lower = lower_nearest1d, .statics = SCALES_FROM(2)},
    {.name = "aten::upsample_nearest1d_backward", .lower = lower_nearest1d_backward, .statics = SCALES_FROM(3)},
    {.name = "aten::upsample_nearest2d", .lower = lower_nearest2d, .statics = SCALES_FROM(2)},
    {.name = "aten::upsample_nearest2d_backward", .lower = lower_nearest2d_backward, .statics = SCALES_FROM(3)},
    {.name = "aten::upsample_nearest3d", .lower = lower_nearest3d, .statics = SCALES_FROM(2)},
    {.name = "aten::upsample_nearest3d_backward", .lower = lower_nearest3d_backward, .statics = SCALES_FROM(3)},
    {.name = "aten::_upsample_nearest_exact1d", .lower = lower_nearest_exact1d, .statics = SCALES_FROM(2)},
    {.name = "aten::_upsample_nearest_exact1d_backward",
     .lower = lower_nearest_exact1d_backward,
     .statics = SCALES_FROM(3)},
    {.name = "aten::_upsample_nearest_exact2d", .lower = lower_nearest_exact2d, .statics = SCALES_FROM(2)},
    {.name = "aten::_upsample_nearest_exact2d_backward",
     .lower = lower_nearest_exact2d_backward,
     .statics = SCALES_FROM(3)},
    {.name = "aten::_upsample_nearest_exact3d", .lower = lower_nearest_exact3d, .statics = SCALES_FROM(2)},
    {.name = "aten::_upsample_nearest_exact3d_backward",
     .lower = lower_nearest_exact3d_backward,
     .statics = SCALES_FROM(3)},
    {.name = "aten::upsample_linear1d", .lower = lower_linear1d, .statics = SCALES_FROM(3)},
    {.name = "aten::upsample_linear1d_backward", .lower = lower_linear1d_backward, .statics = SCALES_FROM(4)},
    {.name = "aten::upsample_bilinear2d", .lower = lower_bilinear2d, .statics = SCALES_FROM(3)},
    {.name = "aten::upsample_bilinear2d_backward", .lower = lower_bilinear2d_backward, .statics = SCALES_FROM(4)},
    {.name = "aten::upsample_trilinear3d", .lower = lower_trilinear3d, .statics = SCALES_FROM(3)},
    {.name = "aten::upsample_trilinear3d_backward", .lower = lower_trilinear3d_backward, .statics = SCALES_FROM(4)},
    {.name = "aten::upsample_bicubic2d", .lower = lower_bicubic2d, .statics = SCALES_FROM(3)},
    {.name = "aten::upsample_bicubic2d_backward", .lower = lower_bicubic2d_backward, .statics = SCALES_FROM(4)},
    {.name = "aten::_upsample_bilinear2d_aa", .lower = lower_bilinear2d_aa, .statics = SCALES_FROM(3)},
    {.name = "aten::_upsample_bilinear2d_aa_backward",
     .lower = lower_bilinear2d_aa_backward,
     .statics = SCALES_FROM(4)},
    {.name = "aten::_upsample_bicubic2d_aa", .lower = lower_bicubic2d_aa, .statics = SCALES_FROM(3)},
    {.name = "aten::_upsample_bicubic2d_aa_backward", .lower = lower_bicubic2d_aa_backward, .statics = SCALES_FROM(4)},
    {.name = "aten::_upsample_lanczos2d_aa", .lower = lower_lanczos2d_aa, .statics = SCALES_FROM(3)},
    {.name = "aten::_upsample_lanczos2d_aa_backward", .lower = lower_lanczos2d_aa_backward, .statics = SCALES_FROM(4)},
    {0},
};
