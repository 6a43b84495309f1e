// Sampling an image at points of a grid, and its gradients.
//
// Every point reads a few neighbours along each spatial dimension; the result is the sum, over all combinations of
// neighbours, of value times the product of their weights.
#include "ops/index.h"
#include "ops/reduce.h"
#include "ops/resample.h"

enum { BILINEAR = 0, NEAREST = 1, BICUBIC = 2 };
enum { PAD_ZEROS = 0, PAD_BORDER = 1, PAD_REFLECTION = 2 };
enum { MAX_SPATIAL = 3, MAX_TAPS = 4 };

// The neighbours along one spatial dimension; all values are (N, points) in the math type.
typedef struct axis_taps {
  int count;
  hlo_value at[MAX_TAPS];      // coordinates, whole numbers
  hlo_value weight[MAX_TAPS];
  hlo_value slope[MAX_TAPS];   // d weight / d coordinate
  hlo_value stretch;           // d coordinate / d grid
} axis_taps;

typedef struct sampler {
  int spatial;
  int64_t mode, padding, size[MAX_SPATIAL], points;
  bool align_corners;
  axis_taps axes[MAX_SPATIAL];
  hlo_value planes;            // (N, C, plane)
} sampler;

static hlo_value full(hlo *h, hlo_value x, double value) { return pj_full_like(h, x, value); }

// Mirrors x until it lies between low and high; `sign` turns with every mirror.
static hlo_value reflected(hlo *h, hlo_value x, double low, double high, hlo_value *sign) {
  if (low == high) {
    *sign = hlo_broadcast_like(h, full(h, x, 0), x);
    return *sign;
  }
  hlo_value from = hlo_sub(h, x, full(h, x, low)), span = full(h, x, high - low);
  hlo_value distance = hlo_abs(h, from);
  hlo_value extra = hlo_rem(h, distance, span), turns = hlo_floor(h, hlo_div(h, distance, span));
  hlo_value odd = hlo_ne(h, hlo_rem(h, turns, full(h, x, 2)), full(h, x, 0));
  hlo_value backwards = hlo_xor(h, odd, hlo_lt(h, from, full(h, x, 0)));
  *sign = hlo_select(h, backwards, hlo_broadcast_like(h, full(h, x, -1), x), full(h, x, 1));
  return hlo_add(h, hlo_select(h, odd, hlo_sub(h, span, extra), extra), full(h, x, low));
}

// A coordinate moved inside as the padding mode says; `slope` is what remains of its derivative.
static hlo_value padded(pj_lowering *l, const sampler *s, hlo_value x, int64_t size, hlo_value *slope) {
  hlo *h = l->h;
  hlo_value one = hlo_broadcast_like(h, full(h, x, 1), x);
  *slope = one;
  if (s->padding == PAD_ZEROS) return x;
  if (s->padding == PAD_REFLECTION)
    x = reflected(h, x, s->align_corners ? 0 : -0.5, (double)size - (s->align_corners ? 1 : 0.5), slope);
  hlo_value low = full(h, x, 0), high = full(h, x, (double)(size - 1));
  hlo_value inside = hlo_and(h, hlo_gt(h, x, low), hlo_lt(h, x, high));
  *slope = hlo_select(h, inside, *slope, full(h, x, 0));
  return hlo_clamp(h, low, x, high);
}

static axis_taps taps_along(pj_lowering *l, const sampler *s, hlo_value grid, int64_t size) {
  hlo *h = l->h;
  axis_taps t = {.count = 1};
  // From [-1, 1] to the centres of the outer elements, or to their outer edges.
  double half = (double)(s->align_corners ? size - 1 : size) / 2;
  hlo_value x = hlo_mul(h, hlo_add(h, grid, full(h, grid, 1)), full(h, grid, half)), slope;
  if (!s->align_corners) x = hlo_sub(h, x, full(h, x, 0.5));
  if (s->mode != BICUBIC) x = padded(l, s, x, size, &slope);
  else slope = hlo_broadcast_like(h, full(h, x, 1), x);
  t.stretch = pj_scale(h, slope, half);
  if (s->mode == NEAREST) {
    t.at[0] = hlo_round_even(h, x);
    return t;
  }
  hlo_value floor = hlo_floor(h, x), part = hlo_sub(h, x, floor);
  if (s->mode == BILINEAR) {
    t.count = 2;
    t.at[0] = floor;
    t.at[1] = hlo_add(h, floor, full(h, x, 1));
    t.weight[0] = hlo_sub(h, full(h, x, 1), part);
    t.weight[1] = part;
    t.slope[0] = hlo_broadcast_like(h, full(h, x, -1), x);
    t.slope[1] = hlo_broadcast_like(h, full(h, x, 1), x);
    return t;
  }
  t.count = 4;
  pj_cubic_weights(h, part, t.weight);
  pj_cubic_slopes(h, part, t.slope);
  for (int k = 0; k < 4; ++k) {
    hlo_value unused, at = hlo_add(h, floor, full(h, x, k - 1));
    t.at[k] = padded(l, s, at, size, &unused);
  }
  return t;
}

// input and grid at arguments `input` and `input` + 1, then interpolation_mode, padding_mode, align_corners.
static bool read_sampler(pj_lowering *l, int input, int spatial, sampler *s) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, input), grid = pj_tensor(l, input + 1);
  *s = (sampler){.spatial = spatial, .mode = pj_int(l, input + 2), .padding = pj_int(l, input + 3),
                 .align_corners = pj_bool(l, input + 4), .points = 1};
  if (!pj_require(l,
                  x.rank == spatial + 2 && grid.rank == x.rank && grid.dims[0] == x.dims[0] &&
                      grid.dims[grid.rank - 1] == spatial,
                  PJ_INVALID_ARGUMENT,
                  "grid_sampler(): expected a grid with size %d in "
                  "last dimension and the batch size of the input",
                  spatial) ||
      !pj_require(l, s->mode >= 0 && s->mode <= (spatial == 2 ? BICUBIC : NEAREST), PJ_INVALID_ARGUMENT,
                  "grid_sampler(): unsupported interpolation mode %lld", (long long)s->mode) ||
      !pj_require(l, s->padding >= 0 && s->padding <= PAD_REFLECTION, PJ_INVALID_ARGUMENT,
                  "grid_sampler(): unsupported padding mode %lld", (long long)s->padding))
    return false;
  int64_t plane = 1;
  for (int d = 0; d < spatial; ++d) {
    s->size[d] = x.dims[2 + d];
    s->points *= grid.dims[1 + d];
    plane *= x.dims[2 + d];
    if (!pj_require(l, x.dims[2 + d] > 0, PJ_INVALID_ARGUMENT,
                    "grid_sampler(): expected input to have non-empty spatial "
                    "dimensions"))
      return false;
  }
  pj_dtype dtype = pj_math_dtype(x.dtype);
  s->planes = hlo_reshape(h, hlo_convert(h, x, dtype), 3, (int64_t[]){x.dims[0], x.dims[1], plane});
  grid = hlo_reshape(h, hlo_convert(h, grid, dtype), 3, (int64_t[]){x.dims[0], s->points, spatial});
  // The grid's last dimension counts from the innermost spatial dimension: (x, y, z).
  for (int d = 0; d < spatial; ++d) {
    int column = spatial - 1 - d;
    hlo_value along = hlo_drop(h, hlo_slice_dim(h, grid, 2, column, column + 1), 2);
    s->axes[d] = taps_along(l, s, along, s->size[d]);
  }
  return !hlo_failed(h);
}

// One combination of neighbours: `choice`[d] of each dimension.
static bool next_choice(const sampler *s, int choice[MAX_SPATIAL]) {
  for (int d = s->spatial - 1; d >= 0; --d) {
    if (++choice[d] < s->axes[d].count) return true;
    choice[d] = 0;
  }
  return false;
}

// Its place in the plane (s32, behind the end when outside) and whether it lies inside.
static hlo_value place_of(pj_lowering *l, const sampler *s, const int choice[MAX_SPATIAL], hlo_value *out_inside) {
  hlo *h = l->h;
  hlo_value place = {.id = -1}, inside = {.id = -1};
  int64_t plane = 1;
  for (int d = 0; d < s->spatial; ++d) {
    hlo_value at = s->axes[d].at[choice[d]];
    hlo_value within = hlo_and(h, hlo_ge(h, at, full(h, at, 0)), hlo_lt(h, at, full(h, at, (double)s->size[d])));
    hlo_value whole = hlo_convert(h, hlo_select(h, within, at, full(h, at, 0)), PJ_S32);
    hlo_value size = hlo_constant_int(h, PJ_S32, s->size[d]);
    place = d ? hlo_add(h, hlo_mul(h, place, size), whole) : whole;
    inside = d ? hlo_and(h, inside, within) : within;
    plane *= s->size[d];
  }
  *out_inside = inside;
  return hlo_select(h, inside, place, hlo_constant_int(h, PJ_S32, plane));
}

// The product of its weights, with that of dimension `derived` (-1: none) replaced by its slope; invalid when there are
// none.
static hlo_value weight_of(pj_lowering *l, const sampler *s, const int choice[MAX_SPATIAL], int derived) {
  hlo_value product = {.id = -1};
  if (s->mode == NEAREST) return product;
  for (int d = 0; d < s->spatial; ++d) {
    const axis_taps *t = &s->axes[d];
    hlo_value factor = d == derived ? t->slope[choice[d]] : t->weight[choice[d]];
    product = d ? hlo_mul(l->h, product, factor) : factor;
  }
  return product;
}

// The image at places (N, points) of the plane: (N, C, points), zero outside.
static hlo_value read_places(pj_lowering *l, const sampler *s, hlo_value place, hlo_value inside) {
  hlo *h = l->h;
  hlo_gather_spec spec = {.offset_dims = {1}, .offset_count = 1, .collapsed = {2}, .collapsed_count = 1,
                          .operand_batching = {0}, .indices_batching = {0}, .batching_count = 1, .start_index_map = {2},
                          .start_count = 1, .index_vector_dim = 2, .slice_sizes = {1, s->planes.dims[1], 1}};
  hlo_value read = hlo_gather(h, s->planes, place, &spec);
  return hlo_select(h, hlo_broadcast_like(h, hlo_keep(h, inside, 1), read), read, full(h, read, 0));
}

// aten::grid_sampler_<n>d(input, grid, interpolation_mode, padding_mode, align_corners)
static void grid_sampler(pj_lowering *l, int spatial) {
  hlo *h = l->h;
  sampler s;
  if (!read_sampler(l, 0, spatial, &s) || pj_returned_empty(l)) return;
  hlo_value sum = {.id = -1};
  int choice[MAX_SPATIAL] = {0};
  do {
    hlo_value inside, place = place_of(l, &s, choice, &inside), weight = weight_of(l, &s, choice, -1);
    hlo_value term = read_places(l, &s, place, inside);
    if (weight.id >= 0) term = hlo_mul(h, term, hlo_keep(h, weight, 1));
    sum = sum.id < 0 ? term : hlo_add(h, sum, term);
  } while (next_choice(&s, choice));
  pj_return_reshaped(l, 0, sum);
}

static void return_input_gradient(pj_lowering *l, const sampler *s, hlo_value grad, int result) {
  hlo *h = l->h;
  // Points as rows of channels, so that a write moves whole rows: (N, plane, C).
  int64_t dims[] = {s->planes.dims[0], s->planes.dims[2], s->planes.dims[1]};
  hlo_value sum = hlo_full(h, grad.dtype, 3, dims, 0), rows = hlo_swap(h, grad, 1, 2);
  int choice[MAX_SPATIAL] = {0};
  do {
    hlo_value inside, place = place_of(l, s, choice, &inside), weight = weight_of(l, s, choice, -1);
    pj_positions at = pj_positions_all(3);
    at.indexed[0] = at.indexed[1] = true;
    at.indices[0] = hlo_iota(h, PJ_S32, 2, place.dims, 0);
    at.indices[1] = place;
    hlo_value updates = weight.id < 0 ? rows : hlo_mul(h, rows, hlo_keep(h, weight, 2));
    pj_target whole = pj_target_whole(sum);
    sum = pj_positions_write(l, HLO_ADD, &whole, &at, updates);
  } while (next_choice(s, choice));
  pj_return_reshaped(l, result, hlo_swap(h, sum, 1, 2));
}

static void return_grid_gradient(pj_lowering *l, const sampler *s, hlo_value grad, int result) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, result);
  if (s->mode == NEAREST) {
    pj_return(l, result, hlo_full(h, grad.dtype, type.rank, type.dims, 0));
    return;
  }
  hlo_value sums[MAX_SPATIAL];
  for (int d = 0; d < s->spatial; ++d) sums[d].id = -1;
  int choice[MAX_SPATIAL] = {0};
  do {
    hlo_value inside, place = place_of(l, s, choice, &inside);
    hlo_value along = hlo_reduce_sum(h, hlo_mul(h, read_places(l, s, place, inside), grad), 1);
    for (int d = 0; d < s->spatial; ++d) {
      hlo_value term = hlo_mul(h, along, weight_of(l, s, choice, d));
      sums[d] = sums[d].id < 0 ? term : hlo_add(h, sums[d], term);
    }
  } while (next_choice(s, choice));
  hlo_value columns[MAX_SPATIAL];
  for (int d = 0; d < s->spatial; ++d)
    columns[s->spatial - 1 - d] = hlo_keep(h, hlo_mul(h, sums[d], s->axes[d].stretch), 2);
  pj_return_reshaped(l, result, hlo_concatenate(h, columns, s->spatial, 2));
}

// aten::grid_sampler_<n>d_backward(grad_output, input, grid, interpolation_mode, padding_mode, align_corners,
// output_mask)
static void grid_sampler_backward(pj_lowering *l, int spatial) {
  hlo *h = l->h;
  sampler s;
  if (!read_sampler(l, 1, spatial, &s) || pj_returned_empty(l)) return;
  hlo_value grad = hlo_convert(h, pj_tensor(l, 0), s.planes.dtype);
  grad = hlo_reshape(h, grad, 3, (int64_t[]){s.planes.dims[0], s.planes.dims[1], s.points});
  int out = pj_gradient(l, 6, 0);
  if (out >= 0) return_input_gradient(l, &s, grad, out);
  out = pj_gradient(l, 6, 1);
  if (out >= 0) return_grid_gradient(l, &s, grad, out);
}

static void lower_grid_sampler_2d(pj_lowering *l) { grid_sampler(l, 2); }
static void lower_grid_sampler_3d(pj_lowering *l) { grid_sampler(l, 3); }
static void lower_grid_sampler_2d_backward(pj_lowering *l) { grid_sampler_backward(l, 2); }
static void lower_grid_sampler_3d_backward(pj_lowering *l) { grid_sampler_backward(l, 3); }

PJ_LOWERINGS(grid_sampler_lowerings) = {
    {.name = "aten::grid_sampler_2d", .lower = lower_grid_sampler_2d},
    {.name = "aten::grid_sampler_3d", .lower = lower_grid_sampler_3d},
    {.name = "aten::grid_sampler_2d_backward", .lower = lower_grid_sampler_2d_backward},
    {.name = "aten::grid_sampler_3d_backward", .lower = lower_grid_sampler_3d_backward},
    {0},
};
