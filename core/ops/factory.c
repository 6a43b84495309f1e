#include "ops/elementwise.h"

#define K(x, value) pj_constant_like(h, (x), (value))

static void return_full(pj_lowering *l, hlo_value value) {
  pj_type type = pj_result_type(l, 0);
  pj_return(l, 0, hlo_broadcast_to(l->h, hlo_convert(l->h, value, type.dtype), type.rank, type.dims));
}

// ---- one value ------------------------------------------------------------------------------------------------------

// aten::zeros(...)
static void lower_zeros(pj_lowering *l) { return_full(l, hlo_constant(l->h, pj_result_type(l, 0).dtype, 0)); }

// aten::ones(...)
static void lower_ones(pj_lowering *l) { return_full(l, hlo_constant(l->h, pj_result_type(l, 0).dtype, 1)); }

// aten::scalar_tensor(s, ...)
static void lower_scalar_tensor(pj_lowering *l) { return_full(l, pj_as(l, 0, pj_result_type(l, 0).dtype)); }

// aten::full(size, fill_value, ...), aten::fill.Scalar(self, value)
static void lower_full(pj_lowering *l) { return_full(l, pj_as(l, 1, pj_result_type(l, 0).dtype)); }

// aten::new_full(self, size, fill_value, ...)
static void lower_new_full(pj_lowering *l) { return_full(l, pj_as(l, 2, pj_result_type(l, 0).dtype)); }

// aten::fill.Tensor(self, value)
static void lower_fill_tensor(pj_lowering *l) {
  int rank = pj_tensor_type(l, 1).rank;
  if (pj_require(l, rank == 0, PJ_INVALID_ARGUMENT,
                 "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.", rank))
    lower_full(l);
}

// ---- copies ---------------------------------------------------------------------------------------------------------

// aten::copy(self, src, non_blocking): src, broadcast to self
static void lower_copy(pj_lowering *l) { return_full(l, pj_as(l, 1, pj_result_type(l, 0).dtype)); }

// aten::_to_copy(self, dtype, ...), aten::clone(self): pj_return converts
static void lower_clone(pj_lowering *l) { pj_return(l, 0, pj_tensor(l, 0)); }

// ---- ranges ---------------------------------------------------------------------------------------------------------

// start + i * step in the result's type; integers stay exact
static void arange(pj_lowering *l, hlo_value start, hlo_value step) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  hlo_value index = hlo_iota(h, start.dtype, type.rank, type.dims, 0);
  pj_return(l, 0, hlo_add(h, start, hlo_mul(h, index, step)));
}

static pj_dtype range_dtype(pj_lowering *l) {
  pj_dtype dtype = pj_result_math(l, 0);
  return pj_dtype_is_integer(dtype) ? PJ_S64 : dtype;
}

// aten::arange(end, ...)
static void lower_arange(pj_lowering *l) {
  pj_dtype dtype = range_dtype(l);
  arange(l, hlo_constant(l->h, dtype, 0), hlo_constant(l->h, dtype, 1));
}

// aten::arange.start(start, end, ...), aten::range(start, end, ...)
static void lower_arange_start(pj_lowering *l) {
  pj_dtype dtype = range_dtype(l);
  arange(l, pj_as(l, 0, dtype), hlo_constant(l->h, dtype, 1));
}

// aten::arange.start_step(start, end, step, ...), aten::range.step(start, end, step, ...)
static void lower_arange_step(pj_lowering *l) {
  pj_dtype dtype = range_dtype(l);
  arange(l, pj_as(l, 0, dtype), pj_as(l, 2, dtype));
}

// prims::iota(length, start, step, ...)
static void lower_iota(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = range_dtype(l);
  arange(l, hlo_convert(h, hlo_constant_int(h, PJ_S64, pj_int(l, 1)), dtype),
         hlo_convert(h, hlo_constant_int(h, PJ_S64, pj_int(l, 2)), dtype));
}

// start, start + step, ... up to the middle, then back from the end, so that the last number is `end` itself. Integers
// are computed in float64, as PyTorch does.
static hlo_value linspace(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  pj_dtype dtype = pj_dtype_is_integer(type.dtype) ? PJ_F64 : pj_math_dtype(type.dtype);
  pj_dtype bounds = pj_dtype_is_integer(type.dtype) ? type.dtype : dtype;  // integer bounds are truncated first
  hlo_value start = hlo_convert(h, pj_as(l, 0, bounds), dtype), end = hlo_convert(h, pj_as(l, 1, bounds), dtype);
  int64_t steps = type.dims[0];
  if (steps <= 1) return hlo_broadcast_to(h, start, type.rank, type.dims);
  hlo_value step = hlo_div(h, hlo_sub(h, end, start), K(start, (double)(steps - 1)));
  hlo_value position = hlo_iota(h, PJ_S64, type.rank, type.dims, 0);
  hlo_value last = hlo_constant_int(h, PJ_S64, steps - 1);
  hlo_value up = hlo_add(h, start, hlo_mul(h, step, hlo_convert(h, position, dtype)));
  hlo_value down = hlo_sub(h, end, hlo_mul(h, step, hlo_convert(h, hlo_sub(h, last, position), dtype)));
  return hlo_select(h, hlo_lt(h, position, hlo_constant_int(h, PJ_S64, steps / 2)), up, down);
}

// aten::linspace(start, end, steps, ...)
static void lower_linspace(pj_lowering *l) { pj_return(l, 0, linspace(l)); }

// aten::logspace(start, end, steps, base, ...): base ^ linspace
static void lower_logspace(pj_lowering *l) {
  hlo_value exponent = linspace(l);
  pj_return(l, 0, hlo_pow(l->h, pj_number(l, 3, exponent.dtype), exponent));
}

// ---- matrices of ones and indices -----------------------------------------------------------------------------------

// aten::eye(n, ...), aten::eye.m(n, m, ...)
static void lower_eye(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  hlo_value row = hlo_iota(h, PJ_S32, type.rank, type.dims, 0), column = hlo_iota(h, PJ_S32, type.rank, type.dims, 1);
  pj_return(l, 0, hlo_eq(h, row, column));
}

static int64_t at_least(int64_t value, int64_t low) { return value < low ? low : value; }
static int64_t at_most(int64_t value, int64_t high) { return value > high ? high : value; }

// The lower triangle of a rows x columns matrix, in row-major order: first rows that grow by one (the i-th has
// first + i elements), then full rows. Element k of the growing part lies in row (sqrt((2 first - 1)^2 + 8 k) -
// (2 first - 1)) / 2, put right by one where the square root rounded across an integer.
static void lower_triangle(hlo *h, int64_t rows, int64_t columns, int64_t offset, int64_t count, hlo_value *out_row,
                           hlo_value *out_column) {
  int64_t skipped = at_most(at_least(-offset, 0), rows);                    // empty rows on top
  int64_t first = at_most(at_least(offset + 1, 1), columns);                // elements of the first row that has any
  int64_t growing = at_most(at_least(columns - first, 0), rows - skipped);  // rows before the first full one
  int64_t growing_count = growing * first + growing * (growing - 1) / 2;
  hlo_value k = hlo_iota(h, PJ_S64, 1, &count, 0);
#define N(value) hlo_constant_int(h, PJ_S64, (value))
  double b = 2 * (double)first - 1;
  hlo_value wide = hlo_convert(h, k, PJ_F64);
  hlo_value root = hlo_sqrt(h, hlo_add(h, hlo_mul(h, wide, K(wide, 8)), K(wide, b * b)));
  hlo_value row = hlo_convert(h, hlo_floor(h, hlo_mul(h, hlo_sub(h, root, K(root, b)), K(root, 0.5))), PJ_S64);
  for (int pass = 0; pass < 2; ++pass) {  // pass 0 moves rows down that start after k, pass 1 rows up that end before k
    hlo_value next = pass == 0 ? row : hlo_add(h, row, N(1));
    hlo_value starts = hlo_add(h, hlo_mul(h, next, N(first)),
                               hlo_div(h, hlo_mul(h, next, hlo_sub(h, next, N(1))), N(2)));
    row = pass == 0 ? hlo_select(h, hlo_gt(h, starts, k), hlo_sub(h, row, N(1)), row)
                    : hlo_select(h, hlo_le(h, starts, k), next, row);
  }
  hlo_value row_start = hlo_add(h, hlo_mul(h, row, N(first)), hlo_div(h, hlo_mul(h, row, hlo_sub(h, row, N(1))), N(2)));
  hlo_value rest = hlo_sub(h, k, N(growing_count));
  hlo_value is_full = hlo_ge(h, rest, N(0));
  hlo_value full_row = hlo_add(h, N(growing), hlo_div(h, rest, N(at_least(columns, 1))));
  hlo_value full_column = hlo_rem(h, rest, N(at_least(columns, 1)));
  *out_row = hlo_add(h, N(skipped), hlo_select(h, is_full, full_row, row));
  *out_column = hlo_select(h, is_full, full_column, hlo_sub(h, k, row_start));
#undef N
}

static void return_indices(pj_lowering *l, hlo_value row, hlo_value column) {
  hlo *h = l->h;
  const hlo_value both[] = {hlo_keep(h, row, 0), hlo_keep(h, column, 0)};
  pj_return(l, 0, hlo_concatenate(h, both, 2, 0));
}

// aten::tril_indices(row, col, offset, ...)
static void lower_tril_indices(pj_lowering *l) {
  hlo_value row, column;
  lower_triangle(l->h, pj_int(l, 0), pj_int(l, 1), pj_int(l, 2), pj_result_type(l, 0).dims[1], &row, &column);
  return_indices(l, row, column);
}

// aten::triu_indices(row, col, offset, ...): the lower triangle of the matrix turned by half a turn, read backwards
static void lower_triu_indices(pj_lowering *l) {
  hlo *h = l->h;
  int64_t rows = pj_int(l, 0), columns = pj_int(l, 1), offset = pj_int(l, 2);
  hlo_value row, column;
  lower_triangle(h, rows, columns, columns - rows - offset, pj_result_type(l, 0).dims[1], &row, &column);
  row = hlo_sub(h, hlo_constant_int(h, PJ_S64, rows - 1), hlo_reverse(h, row, (const int[]){0}, 1));
  column = hlo_sub(h, hlo_constant_int(h, PJ_S64, columns - 1), hlo_reverse(h, column, (const int[]){0}, 1));
  return_indices(l, row, column);
}

PJ_LOWERINGS(factory_lowerings) = {
    {"aten::zeros", lower_zeros},
    {"aten::zeros_like", lower_zeros, .shape_only = PJ_SHAPE_ONLY(0)},
    {"aten::new_zeros", lower_zeros, .shape_only = PJ_SHAPE_ONLY(0), .dtype_only = PJ_DTYPE_ONLY(0)},
    {"aten::zero", lower_zeros, .shape_only = PJ_SHAPE_ONLY(0)},
    {"aten::ones", lower_ones},
    {"aten::ones_like", lower_ones, .shape_only = PJ_SHAPE_ONLY(0)},
    {"aten::new_ones", lower_ones, .shape_only = PJ_SHAPE_ONLY(0), .dtype_only = PJ_DTYPE_ONLY(0)},
    {"aten::scalar_tensor", lower_scalar_tensor},
    {"prims::scalar_tensor", lower_scalar_tensor},
    {"aten::full", lower_full},
    {"prims::full", lower_full},
    {"aten::full_like", lower_full, .shape_only = PJ_SHAPE_ONLY(0)},
    {"prims::full_like", lower_full, .shape_only = PJ_SHAPE_ONLY(0)},
    {"aten::fill.Scalar", lower_full, .shape_only = PJ_SHAPE_ONLY(0)},
    {"prims::fill", lower_full, .shape_only = PJ_SHAPE_ONLY(0)},
    {"aten::fill.Tensor", lower_fill_tensor, .shape_only = PJ_SHAPE_ONLY(0)},
    {"aten::new_full", lower_new_full, .shape_only = PJ_SHAPE_ONLY(0), .dtype_only = PJ_DTYPE_ONLY(0)},

    {"aten::copy", lower_copy, .shape_only = PJ_SHAPE_ONLY(0)},
    {"aten::_to_copy", lower_clone},
    {"aten::clone", lower_clone},
    {"aten::lift", lower_clone},
    {"aten::lift_fresh_copy", lower_clone},
    {"prims::clone", lower_clone},
    {"prims::convert_element_type", lower_clone},
    {"prims::device_put", lower_clone},
    {"prims::copy_strided", lower_clone},

    {"aten::arange", lower_arange},
    {"aten::arange.start", lower_arange_start},
    {"aten::arange.start_step", lower_arange_step},
    {"aten::range", lower_arange_start},
    {"aten::range.step", lower_arange_step},
    {"prims::iota", lower_iota},
    {"aten::linspace", lower_linspace},
    {"aten::linspace.Tensor_Tensor", lower_linspace},
    {"aten::linspace.Tensor_Scalar", lower_linspace},
    {"aten::linspace.Scalar_Tensor", lower_linspace},
    {"aten::logspace", lower_logspace},
    {"aten::logspace.Tensor_Tensor", lower_logspace},
    {"aten::logspace.Tensor_Scalar", lower_logspace},
    {"aten::logspace.Scalar_Tensor", lower_logspace},
    {"aten::eye", lower_eye},
    {"aten::eye.m", lower_eye},
    {"aten::tril_indices", lower_tril_indices},
    {"aten::triu_indices", lower_triu_indices},
    {0},
};
