// Reductions over neighbouring rows: the rows of `data` along `axis`, cut into segments by lengths or offsets. The
// dimensions before `axis` are a batch, and so are those of the lengths.
#include <math.h>

#include "ops/index.h"
#include "ops/reduce.h"

typedef struct reduction {
  const char *name, *other_name;
  hlo_op op;
  double start;  // of a segment without rows
  bool mean;
} reduction;

static const reduction REDUCTIONS[] = {{"sum", "sum", HLO_ADD, 0, false},
                                       {"mean", "mean", HLO_ADD, 0, true},
                                       {"max", "amax", HLO_MAX, -INFINITY, false},
                                       {"min", "amin", HLO_MIN, INFINITY, false},
                                       {"prod", "prod", HLO_MUL, 1, false}};

typedef struct segments {
  const reduction *how;
  int64_t batch, count, rows, width;  // data is [batch, rows, width], its result [batch, count, width]
  hlo_value data;                     // [batch * rows, width]
  hlo_value lengths;                  // s32 [batch, count]
  // s32 [batch * rows]: the segment of each row, among all count + 1 of each batch; the last holds the rows that belong
  // to none
  hlo_value places;
} segments;

static const reduction *reduction_of(pj_lowering *l, int argument) {
  const char *name = pj_string(l, argument);
  for (size_t i = 0; i < sizeof REDUCTIONS / sizeof *REDUCTIONS; ++i)
    if (!strcmp(name, REDUCTIONS[i].name) || !strcmp(name, REDUCTIONS[i].other_name)) return &REDUCTIONS[i];
  pj_require(l, false, PJ_INVALID_ARGUMENT, "reduce argument must be either sum, prod, mean, amax or amin, got %s", name);
  return &REDUCTIONS[0];
}

// Argument positions of the forward and the backward overload.
typedef struct places_of {
  int data, reduce, lengths, offsets, axis, initial;
} places_of;

static bool read_segments(pj_lowering *l, const places_of *at, segments *out) {
  hlo *h = l->h;
  hlo_value data = pj_wide(l, at->data);
  bool by_length = pj_present(l, at->lengths);
  if (!pj_require(l, by_length || pj_present(l, at->offsets), PJ_INVALID_ARGUMENT,
                  "segment_reduce(): Either lengths or offsets must be defined."))
    return false;
  hlo_value cuts = hlo_convert(h, pj_tensor(l, by_length ? at->lengths : at->offsets), PJ_S32);
  int axis = pj_dim(l, at->axis, data.rank), last = cuts.rank - 1;
  bool batches = axis == last;
  for (int d = 0; batches && d < axis; ++d) batches = cuts.dims[d] == data.dims[d];
  if (!pj_require(l, axis == last, PJ_INVALID_ARGUMENT, "segment_reduce(): Expected axis to be the last dimension of %s "
                  "but got %d.", by_length ? "lengths" : "offsets", axis) ||
      !pj_require(l, batches, PJ_INVALID_ARGUMENT, "segment_reduce(): the dimensions of lengths or offsets before axis "
                  "must be those of data"))
    return false;
  segments s = {.how = reduction_of(l, at->reduce), .batch = 1, .rows = data.dims[axis], .width = 1};
  for (int d = 0; d < axis; ++d) s.batch *= data.dims[d];
  for (int d = axis + 1; d < data.rank; ++d) s.width *= data.dims[d];
  cuts = hlo_reshape(h, cuts, 2, (int64_t[]){s.batch, cuts.dims[last]});
  s.count = by_length ? cuts.dims[1] : cuts.dims[1] ? cuts.dims[1] - 1 : 0;
  hlo_value begin = hlo_constant_int(h, PJ_S32, 0), ends;
  if (by_length) {
    s.lengths = cuts;
    ends = s.count ? hlo_scan(h, HLO_ADD, cuts, 1) : cuts;
  } else {
    ends = hlo_slice_dim(h, cuts, 1, cuts.dims[1] - s.count, cuts.dims[1]);
    hlo_value begins = hlo_slice_dim(h, cuts, 1, 0, s.count);
    s.lengths = hlo_sub(h, ends, begins);
    if (s.count) begin = hlo_slice_dim(h, begins, 1, 0, 1);
  }
  hlo_value row = hlo_iota(h, PJ_S32, 2, (int64_t[]){s.batch, s.rows}, 1);
  hlo_value ended = hlo_convert(h, hlo_le(h, hlo_keep(h, ends, 1), hlo_keep(h, row, 2)), PJ_S32);
  hlo_value place = hlo_select(h, hlo_lt(h, row, begin), hlo_constant_int(h, PJ_S32, s.count), hlo_reduce_sum(h, ended, 2));
  hlo_value batch = hlo_iota(h, PJ_S32, 2, place.dims, 0);
  s.places = hlo_flatten(h, hlo_add(h, hlo_mul(h, batch, hlo_constant_int(h, PJ_S32, s.count + 1)), place));
  s.data = hlo_reshape(h, data, 2, (int64_t[]){s.batch * s.rows, s.width});
  *out = s;
  return !hlo_failed(h);
}

// [batch * rows, width] combined by segment, from `start`: [batch, count, width]
static hlo_value combined(pj_lowering *l, const segments *s, hlo_op op, hlo_value rows, hlo_value start) {
  hlo *h = l->h;
  hlo_value starts = hlo_broadcast_to(h, start, 2, (int64_t[]){s->batch * (s->count + 1), s->width});
  pj_target whole = pj_target_whole(starts);
  pj_positions at = {.rank = 2, .indexed = {true}, .indices = {s->places}};
  if (hlo_size(rows)) starts = pj_positions_write(l, op, &whole, &at, rows);
  return hlo_slice_dim(h, hlo_reshape(h, starts, 3, (int64_t[]){s->batch, s->count + 1, s->width}), 1, 0, s->count);
}

// [batch, count, width] of each segment as [batch * rows, width] of its rows; 0 for rows of none.
static hlo_value of_rows(hlo *h, const segments *s, hlo_value x) {
  x = hlo_pad(h, x, pj_full_like(h, x, 0), (int64_t[]){0, 0, 0}, (int64_t[]){0, 1, 0}, NULL);
  x = hlo_reshape(h, x, 2, (int64_t[]){s->batch * (s->count + 1), s->width});
  return hlo_take(h, x, s->places, 0);
}

static hlo_value lengths_as(hlo *h, const segments *s, pj_dtype dtype) {
  return hlo_keep(h, hlo_convert(h, s->lengths, dtype), 2);
}

static hlo_value start_of(pj_lowering *l, const segments *s, int initial) {
  return pj_present(l, initial) ? pj_number(l, initial, s->data.dtype)
                                : hlo_constant(l->h, s->data.dtype, s->how->start);
}

// aten::segment_reduce(data, reduce, *, lengths, indices, offsets, axis, unsafe, initial)
static void lower_segment_reduce(pj_lowering *l) {
  hlo *h = l->h;
  const places_of at = {0, 1, 2, 4, 5, 7};
  segments s;
  if (!pj_require(l, !pj_present(l, 3), PJ_INVALID_ARGUMENT,
                  "segment_reduce(): indices based reduction is not supported yet.") ||
      !read_segments(l, &at, &s))
    return;
  hlo_value start = start_of(l, &s, at.initial), y = combined(l, &s, s.how->op, s.data, start);
  if (s.how->mean) {
    hlo_value lengths = lengths_as(h, &s, y.dtype), none = hlo_eq(h, lengths, pj_full_like(h, y, 0));
    hlo_value empty = pj_present(l, at.initial) ? start : pj_full_like(h, y, NAN);
    y = hlo_select(h, none, empty, hlo_div(h, y, lengths));
  }
  pj_return_reshaped(l, 0, y);
}

// The product of all other rows of each row's segment. Only a row that is 0 or NaN is no divisor of the product: it
// sees the product of the ordinary rows, times 0 or NaN where there is another such row.
static hlo_value product_of_others(pj_lowering *l, const segments *s, hlo_value output, int initial) {
  hlo *h = l->h;
  hlo_value x = s->data, zero = pj_full_like(h, x, 0), one = pj_full_like(h, x, 1);
  hlo_value is_nan = hlo_is_nan(h, x), is_zero = hlo_eq(h, x, zero), special = hlo_or(h, is_nan, is_zero);
  hlo_value ordinary = combined(l, s, HLO_MUL, hlo_select(h, special, one, x), start_of(l, s, initial));
  hlo_value nans = combined(l, s, HLO_ADD, hlo_convert(h, is_nan, x.dtype), zero);
  hlo_value zeros = combined(l, s, HLO_ADD, hlo_convert(h, is_zero, x.dtype), zero);
  hlo_value other_nan = hlo_gt(h, of_rows(h, s, nans), hlo_convert(h, is_nan, x.dtype));
  hlo_value other_zero = hlo_gt(h, of_rows(h, s, zeros), hlo_convert(h, is_zero, x.dtype));
  hlo_value others = of_rows(h, s, ordinary);
  others = hlo_mul(h, others, hlo_select(h, other_zero, zero, one));
  others = hlo_select(h, other_nan, pj_full_like(h, x, NAN), others);
  return hlo_select(h, special, others, hlo_div(h, of_rows(h, s, output), hlo_select(h, special, one, x)));
}

// aten::_segment_reduce_backward(grad, output, data, reduce, *, lengths, offsets, axis, initial): rows that equal the
// largest or smallest share its gradient
static void lower_segment_reduce_backward(pj_lowering *l) {
  hlo *h = l->h;
  const places_of at = {2, 3, 4, 5, 6, 7};
  segments s;
  if (!read_segments(l, &at, &s)) return;
  const int64_t dims[] = {s.batch, s.count, s.width};
  hlo_value grad = hlo_reshape(h, pj_wide(l, 0), 3, dims), output = hlo_reshape(h, pj_wide(l, 1), 3, dims), slope;
  hlo_value one = pj_full_like(h, grad, 1);
  if (hlo_size(s.data) == 0) return pj_return_zeros(l, 0);
  if (s.how->mean) grad = hlo_div(h, grad, hlo_max(h, lengths_as(h, &s, grad.dtype), one));
  if (s.how->op == HLO_MUL) {
    slope = hlo_mul(h, of_rows(h, &s, grad), product_of_others(l, &s, output, at.initial));
  } else if (s.how->op == HLO_ADD) {
    slope = of_rows(h, &s, grad);
  } else {
    hlo_value chosen = of_rows(h, &s, output);
    hlo_value equal = hlo_or(h, hlo_eq(h, s.data, chosen), hlo_and(h, hlo_is_nan(h, s.data), hlo_is_nan(h, chosen)));
    hlo_value ties = combined(l, &s, HLO_ADD, hlo_convert(h, equal, grad.dtype), pj_full_like(h, grad, 0));
    hlo_value share = of_rows(h, &s, hlo_div(h, grad, hlo_max(h, ties, one)));
    slope = hlo_select(h, equal, share, pj_full_like(h, share, 0));
  }
  pj_return_reshaped(l, 0, slope);
}

PJ_LOWERINGS(segment_lowerings) = {
    {.name = "aten::segment_reduce", .lower = lower_segment_reduce},
    {.name = "aten::_segment_reduce_backward", .lower = lower_segment_reduce_backward},
    {0},
};
