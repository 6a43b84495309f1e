// Ops that PyTorch defines by a view of a tensor: copies of it (slice_copy), the tensor with the view replaced
// (slice_scatter) and the gradient of taking it (slice_backward).
#include "ops/index.h"

// ---- views by their ATen name ---------------------------------------------------------------------------------------
// Each takes a view of the whole tensor and the position of the first argument that tells the view.

static pj_view slice_view(pj_lowering *l, pj_view view, int a) {
  int dim = pj_dim(l, a, view.rank);
  if (!pj_require(l, view.rank > 0, PJ_OUT_OF_RANGE, "slice() cannot be applied to a 0-dim tensor.")) return view;
  int64_t size = view.sizes[dim], start = pj_present(l, a + 1) ? pj_int(l, a + 1) : 0;
  int64_t end = pj_present(l, a + 2) ? pj_int(l, a + 2) : INT64_MAX, step = pj_present(l, a + 3) ? pj_int(l, a + 3) : 1;
  if (!pj_require(l, step > 0, PJ_INVALID_ARGUMENT, "slice step must be positive")) return view;
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = start < 0 ? 0 : start > size ? size : start;
  end = end < start ? start : end > size ? size : end;
  view.offset += start * view.strides[dim];
  view.sizes[dim] = (end - start + step - 1) / step;
  view.strides[dim] *= step;
  return view;
}

static pj_view narrow_view(pj_lowering *l, pj_view view, int a) {
  int dim = pj_dim(l, a, view.rank);
  int64_t start = pj_int(l, a + 1), length = pj_int(l, a + 2), size = view.sizes[dim];
  if (start < 0) start += size;
  if (!pj_require(l, start >= 0 && length >= 0 && start + length <= size, PJ_INVALID_ARGUMENT,
                  "start (%lld) + length (%lld) exceeds dimension size (%lld).", (long long)start, (long long)length,
                  (long long)size))
    return view;
  view.offset += start * view.strides[dim];
  view.sizes[dim] = length;
  return view;
}

static pj_view drop_dim(pj_view view, int dim) {
  --view.rank;
  for (int d = dim; d < view.rank; ++d) {
    view.sizes[d] = view.sizes[d + 1];
    view.strides[d] = view.strides[d + 1];
  }
  return view;
}

static pj_view select_view(pj_lowering *l, pj_view view, int a) {
  if (!pj_require(l, view.rank > 0, PJ_OUT_OF_RANGE, "select() cannot be applied to a 0-dim tensor.")) return view;
  int dim = pj_dim(l, a, view.rank);
  int64_t index = pj_int(l, a + 1), size = view.sizes[dim];
  if (!pj_require(l, index >= -size && index < size, PJ_OUT_OF_RANGE, "select(): index %lld out of range for tensor of "
                  "size %lld at dimension %d", (long long)index, (long long)size, dim))
    return view;
  view.offset += (index < 0 ? index + size : index) * view.strides[dim];
  return drop_dim(view, dim);
}

static pj_view diagonal_view(pj_lowering *l, pj_view view, int a) {
  int64_t offset = pj_present(l, a) ? pj_int(l, a) : 0;
  int row = pj_present(l, a + 1) ? pj_dim(l, a + 1, view.rank) : 0;
  int column = pj_present(l, a + 2) ? pj_dim(l, a + 2, view.rank) : 1;
  if (!pj_require(l, view.rank >= 2 && row != column, PJ_INVALID_ARGUMENT,
                  "diagonal dimensions cannot be identical %d, %d", row, column))
    return view;
  int64_t rows = view.sizes[row] + (offset < 0 ? offset : 0), columns = view.sizes[column] - (offset > 0 ? offset : 0);
  int64_t size = rows < columns ? rows : columns, stride = view.strides[row] + view.strides[column];
  if (size > 0) view.offset += offset < 0 ? -offset * view.strides[row] : offset * view.strides[column];
  view = drop_dim(drop_dim(view, row > column ? row : column), row > column ? column : row);
  view.sizes[view.rank] = size > 0 ? size : 0;
  view.strides[view.rank++] = stride;
  return view;
}

static pj_view unfold_view(pj_lowering *l, pj_view view, int a) {
  int dim = pj_dim(l, a, view.rank);
  int64_t length = view.rank ? view.sizes[dim] : 1, size = pj_int(l, a + 1), step = pj_int(l, a + 2);
  if (!pj_require(l, size >= 0 && size <= length, PJ_INVALID_ARGUMENT,
                  "maximum size for tensor at dimension %d is %lld but size is %lld", dim, (long long)length,
                  (long long)size) ||
      !pj_require(l, step > 0, PJ_INVALID_ARGUMENT, "step is %lld but must be > 0", (long long)step))
    return view;
  int64_t stride = view.rank ? view.strides[dim] : 1;
  view.sizes[view.rank] = size;
  view.strides[view.rank] = stride;
  if (view.rank) {
    view.sizes[dim] = (length - size) / step + 1;
    view.strides[dim] = stride * step;
  }
  ++view.rank;
  return view;
}

// ---- _copy and _scatter ---------------------------------------------------------------------------------------------

static void return_read(pj_lowering *l, hlo_value x, const pj_view *view) {
  if (!hlo_failed(l->h)) pj_return(l, 0, pj_view_read(l->h, x, view, PJ_VIEW_AT_OFFSET));
}

static void return_written(pj_lowering *l, hlo_value x, const pj_view *view, hlo_value source) {
  if (hlo_failed(l->h)) return;
  bool fits = source.rank == view->rank;
  for (int d = 0; fits && d < view->rank; ++d) fits = source.dims[d] == view->sizes[d];
  if (pj_require(l, fits, PJ_INVALID_ARGUMENT, "expected src to have a size equal to the slice of self"))
    pj_return(l, 0, pj_view_write(l->h, x, view, PJ_VIEW_AT_OFFSET, hlo_convert(l->h, source, x.dtype)));
}

// aten::<view>_copy(self, ...) and aten::<view>_scatter(self, src, ...)
#define COPY_OF(name) \
  static void lower_##name##_copy(pj_lowering *l) { \
    hlo_value x = pj_tensor(l, 0); \
    pj_view view = name##_view(l, pj_target_whole(x).view, 1); \
    return_read(l, x, &view); \
  }
#define SCATTER_OF(name) \
  static void lower_##name##_scatter(pj_lowering *l) { \
    hlo_value x = pj_tensor(l, 0); \
    pj_view view = name##_view(l, pj_target_whole(x).view, 2); \
    return_written(l, x, &view, pj_tensor(l, 1)); \
  }
COPY_OF(slice)
COPY_OF(narrow)
COPY_OF(select)
COPY_OF(diagonal)
COPY_OF(unfold)
SCATTER_OF(slice)
SCATTER_OF(select)
SCATTER_OF(diagonal)

// as_strided counts in the storage, so it is read from the base of self (PJ_OP_STORAGE).
static pj_view as_strided_view(pj_lowering *l, const pj_operand *operand, hlo_value base, int a) {
  pj_view view = {.dtype = operand->view.dtype};
  int strides = 0;
  const int64_t *size = pj_ints(l, a, &view.rank), *stride = pj_ints(l, a + 1, &strides);
  pj_require(l, view.rank == strides, PJ_INVALID_ARGUMENT, "mismatch in length of strides and shape");
  pj_require(l, view.rank <= PJ_MAX_RANK, PJ_INVALID_ARGUMENT, "as_strided: too many dimensions");
  if (hlo_failed(l->h)) return view;
  view.offset = pj_present(l, a + 2) ? pj_int(l, a + 2) : operand->view.offset;
  int64_t last = view.offset;
  bool empty = false, negative = view.offset < 0, overflow = false;
  for (int d = 0; d < view.rank; ++d) {
    view.sizes[d] = size[d];
    view.strides[d] = stride[d];
    negative |= size[d] < 0 || stride[d] < 0;
    empty |= size[d] == 0;
    int64_t reach = 0;
    overflow |= __builtin_sub_overflow(size[d], 1, &reach) || __builtin_mul_overflow(reach, stride[d], &reach) ||
                __builtin_add_overflow(last, reach, &last);
  }
  pj_require(l, !negative, PJ_INVALID_ARGUMENT, "as_strided: Negative strides, sizes and offsets are not supported");
  int64_t elements = hlo_size(base) * (int64_t)pj_dtype_size(base.dtype) / (int64_t)pj_dtype_size(view.dtype);
  pj_require(l, empty || (!overflow && last < elements), PJ_INVALID_ARGUMENT,
             "as_strided: sizes, strides and storage offset are out of "
             "bounds for storage of %lld elements",
             (long long)elements);
  return view;
}

// aten::as_strided_copy(self, size, stride, storage_offset)
static void lower_as_strided_copy(pj_lowering *l) {
  if (!pj_require(l, pj_kind(l, 0) == PJ_ARG_TENSOR, PJ_INTERNAL, "as_strided_copy of no tensor")) return;
  uint32_t self = l->signature->arguments[0].first;
  hlo_value base = l->operands[self];
  pj_view view = as_strided_view(l, &l->signature->operands[self], base, 1);
  return_read(l, base, &view);
}

// aten::as_strided_scatter(self, src, size, stride, storage_offset)
static void lower_as_strided_scatter(pj_lowering *l) {
  if (!pj_require(l, pj_kind(l, 0) == PJ_ARG_TENSOR, PJ_INTERNAL, "as_strided_scatter into no tensor")) return;
  uint32_t self = l->signature->arguments[0].first;
  hlo_value base = l->operands[self], source = pj_tensor(l, 1);
  pj_view view = as_strided_view(l, &l->signature->operands[self], base, 2);
  if (hlo_failed(l->h)) return;
  bool fits = source.rank == view.rank;
  for (int d = 0; fits && d < view.rank; ++d) fits = source.dims[d] == view.sizes[d];
  if (!pj_require(l, fits, PJ_INVALID_ARGUMENT, "expected src to have a size equal to the slice of self")) return;
  hlo_value written = pj_view_write(l->h, base, &view, PJ_VIEW_AT_OFFSET, hlo_convert(l->h, source, view.dtype));
  pj_return(l, 0, pj_view_read(l->h, written, &l->signature->operands[self].view, PJ_VIEW_AT_OFFSET));
}

// ---- other copies ---------------------------------------------------------------------------------------------------

// aten::view_copy(self, size) and its like: the same elements in the same order
static void lower_reshape_copy(pj_lowering *l) {
  pj_type type = pj_result_type(l, 0);
  pj_return(l, 0, hlo_reshape(l->h, pj_tensor(l, 0), type.rank, type.dims));
}

// aten::view_copy.dtype(self, dtype): the same bits
static void lower_bits_copy(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  pj_type type = pj_result_type(l, 0);
  size_t from = pj_dtype_size(x.dtype), to = pj_dtype_size(type.dtype);
  if (to > from && x.rank > 0) {   // the last dimension holds several elements of each wider one
    int64_t dims[PJ_MAX_RANK + 1];
    for (int d = 0; d < x.rank; ++d) dims[d] = x.dims[d];
    dims[x.rank] = (int64_t)(to / from);
    dims[x.rank - 1] /= dims[x.rank];
    x = hlo_reshape(h, x, x.rank + 1, dims);
  }
  pj_return(l, 0, hlo_reshape(h, hlo_bitcast(h, x, type.dtype), type.rank, type.dims));
}

// aten::expand_copy(self, size)
static void lower_expand_copy(pj_lowering *l) {
  pj_type type = pj_result_type(l, 0);
  pj_return(l, 0, hlo_broadcast_to(l->h, pj_tensor(l, 0), type.rank, type.dims));
}

// aten::permute_copy(self, dims)
static void lower_permute_copy(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int order[PJ_MAX_RANK];
  pj_dims(l, 1, x.rank, false, order);
  pj_return(l, 0, hlo_transpose(l->h, x, order));
}

// aten::transpose_copy.int(self, dim0, dim1)
static void lower_transpose_copy(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int a = pj_dim(l, 1, x.rank), b = pj_dim(l, 2, x.rank);
  pj_return(l, 0, x.rank ? hlo_swap(l->h, x, a, b) : x);
}

// aten::t_copy(self)
static void lower_t_copy(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  pj_return(l, 0, x.rank == 2 ? hlo_swap(l->h, x, 0, 1) : x);
}

// aten::split_copy.Tensor(self, split_size, dim), split_with_sizes_copy(self, sizes, dim): parts of `dim`, one after
// another
static void lower_split_copy(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int dim = pj_dim(l, 2, x.rank);
  int64_t start = 0;
  for (int r = 0; r < pj_result_count(l); ++r) {
    int64_t size = pj_result_type(l, r).dims[dim];
    pj_return(l, r, hlo_slice_dim(l->h, x, dim, start, start + size));
    start += size;
  }
}

// aten::unbind_copy.int(self, dim)
static void lower_unbind_copy(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int dim = pj_dim(l, 1, x.rank);
  for (int r = 0; r < pj_result_count(l); ++r)
    pj_return(l, r, hlo_drop(l->h, hlo_slice_dim(l->h, x, dim, r, r + 1), dim));
}

// aten::view_as_real_copy(self): (real, imag) along a new last dimension
static void lower_view_as_real_copy(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  hlo_value parts[] = {hlo_keep(l->h, hlo_real(l->h, x), x.rank), hlo_keep(l->h, hlo_imag(l->h, x), x.rank)};
  pj_return(l, 0, hlo_concatenate(l->h, parts, 2, x.rank));
}

// aten::view_as_complex_copy(self)
static void lower_view_as_complex_copy(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int last = x.rank - 1;
  if (!pj_require(l, x.rank > 0 && x.dims[last] == 2, PJ_INVALID_ARGUMENT,
                  "Tensor must have a last dimension of size 2"))
    return;
  hlo_value real = hlo_drop(l->h, hlo_slice_dim(l->h, x, last, 0, 1), last);
  hlo_value imag = hlo_drop(l->h, hlo_slice_dim(l->h, x, last, 1, 2), last);
  pj_return(l, 0, hlo_complex(l->h, real, imag));
}

// aten::_conj_copy(self)
static void lower_conj_copy(pj_lowering *l) { pj_return(l, 0, hlo_conj(l->h, pj_tensor(l, 0))); }

// aten::_neg_view_copy(self)
static void lower_neg_copy(pj_lowering *l) { pj_return(l, 0, hlo_neg(l->h, pj_tensor(l, 0))); }

// ---- gradients ------------------------------------------------------------------------------------------------------

static hlo_value zero(pj_lowering *l, pj_dtype dtype) { return hlo_constant(l->h, dtype, 0); }

// Zeros with x at `start` (0-d) of `dim`.
static hlo_value written_at(pj_lowering *l, const pj_type *type, hlo_value x, int dim, hlo_value start) {
  hlo_value starts[PJ_MAX_RANK];
  for (int d = 0; d < type->rank; ++d) starts[d] = d == dim ? start : hlo_constant_int(l->h, start.dtype, 0);
  return hlo_dynamic_update_slice(l->h, hlo_full(l->h, x.dtype, type->rank, type->dims, 0), x, starts);
}

// aten::slice_backward(grad_output, input_sizes, dim, start, end, step): zeros round and between the gradient
static void lower_slice_backward(pj_lowering *l) {
  hlo_value grad = pj_tensor(l, 0);
  pj_type type = pj_result_type(l, 0);
  int dim = pj_dim(l, 2, type.rank);
  int64_t size = type.dims[dim], step = pj_int(l, 5), taken = grad.dims[dim];
  if (!pj_require(l, step > 0, PJ_INVALID_ARGUMENT, "slice step must be positive")) return;
  if (!pj_start_is_known(l, 3)) {
    hlo *h = l->h;
    hlo_value start = pj_start(l, 3), length = hlo_constant_int(h, PJ_S64, size), none = hlo_constant_int(h, PJ_S64, 0);
    start = hlo_select(h, hlo_lt(h, start, none), hlo_add(h, start, length), start);
    int64_t edge[PJ_MAX_RANK] = {0}, interior[PJ_MAX_RANK] = {0};
    interior[dim] = step - 1;
    hlo_value spread = hlo_pad(h, grad, zero(l, grad.dtype), edge, edge, interior);
    pj_return(l, 0, written_at(l, &type, spread, dim, hlo_clamp(h, none, start, length)));
    return;
  }
  int64_t start = pj_int(l, 3);
  if (start < 0) start += size;
  start = start < 0 ? 0 : start > size ? size : start;
  int64_t low[PJ_MAX_RANK] = {0}, high[PJ_MAX_RANK] = {0}, interior[PJ_MAX_RANK] = {0};
  low[dim] = start;
  interior[dim] = step - 1;
  high[dim] = size - start - (taken ? (taken - 1) * step + 1 : 0);
  pj_return(l, 0, hlo_pad(l->h, grad, zero(l, grad.dtype), low, high, interior));
}

// aten::select_backward(grad_output, input_sizes, dim, index)
static void lower_select_backward(pj_lowering *l) {
  hlo_value grad = pj_tensor(l, 0);
  pj_type type = pj_result_type(l, 0);
  int dim = pj_dim(l, 2, type.rank);
  int64_t size = type.dims[dim];
  if (!pj_start_is_known(l, 3)) {
    hlo_value index = pj_index_check(l, pj_start(l, 3), size);
    pj_return(l, 0, written_at(l, &type, hlo_keep(l->h, grad, dim), dim, index));
    return;
  }
  int64_t index = pj_int(l, 3);
  if (index < 0) index += size;
  if (!pj_require(l, index >= 0 && index < size, PJ_OUT_OF_RANGE, "select_backward: index out of range")) return;
  int64_t low[PJ_MAX_RANK] = {0}, high[PJ_MAX_RANK] = {0};
  low[dim] = index;
  high[dim] = size - 1 - index;
  pj_return(l, 0, hlo_pad(l->h, hlo_keep(l->h, grad, dim), zero(l, grad.dtype), low, high, NULL));
}

// x's last dimension as the diagonal `offset` of zeros in dimensions `row` and `column` of the result.
static void return_diagonal(pj_lowering *l, hlo_value x, int64_t offset, int row, int column) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  if (hlo_failed(h)) return;
  int from = offset >= 0 ? row : column;   // element k of x lies in row k, or in column k below the diagonal
  int64_t high[PJ_MAX_RANK] = {0};
  high[x.rank - 1] = type.dims[from] - x.dims[x.rank - 1];
  int map[PJ_MAX_RANK], next = 0;
  for (int d = 0; d < type.rank; ++d)
    if (d != row && d != column) map[next++] = d;
  map[next] = from;
  hlo_value padded = hlo_pad(h, x, zero(l, x.dtype), (int64_t[PJ_MAX_RANK]){0}, high, NULL);
  hlo_value spread = hlo_broadcast_in_dim(h, padded, type.rank, type.dims, map);
  hlo_value rows = hlo_iota(h, PJ_S32, type.rank, type.dims, row),
            columns = hlo_iota(h, PJ_S32, type.rank, type.dims, column);
  hlo_value on = hlo_eq(h, hlo_sub(h, columns, rows), hlo_constant_int(h, PJ_S32, offset));
  pj_return(l, 0, hlo_select(h, on, spread, hlo_broadcast_like(h, zero(l, x.dtype), spread)));
}

// aten::diag_embed(self, offset, dim1, dim2)
static void lower_diag_embed(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int rank = x.rank + 1, row = pj_dim(l, 2, rank), column = pj_dim(l, 3, rank);
  if (pj_require(l, row != column, PJ_INVALID_ARGUMENT, "diagonal dimensions cannot be identical %d, %d", row, column))
    return_diagonal(l, x, pj_int(l, 1), row, column);
}

// aten::diagonal_backward(grad_output, input_sizes, offset, dim1, dim2)
static void lower_diagonal_backward(pj_lowering *l) {
  pj_type type = pj_result_type(l, 0);
  return_diagonal(l, pj_tensor(l, 0), pj_int(l, 2), pj_dim(l, 3, type.rank), pj_dim(l, 4, type.rank));
}

PJ_LOWERINGS(subview_lowerings) = {
    {.name = "aten::slice_copy.Tensor", .lower = lower_slice_copy},
    {.name = "aten::narrow_copy", .lower = lower_narrow_copy},
    {.name = "aten::select_copy.int", .lower = lower_select_copy},
    {.name = "aten::diagonal_copy", .lower = lower_diagonal_copy},
    {.name = "aten::unfold_copy", .lower = lower_unfold_copy},
    {.name = "aten::as_strided_copy", .lower = lower_as_strided_copy, .flags = PJ_OP_STORAGE},
    {.name = "aten::slice_scatter", .lower = lower_slice_scatter},
    {.name = "aten::select_scatter", .lower = lower_select_scatter},
    {.name = "aten::diagonal_scatter", .lower = lower_diagonal_scatter},
    {.name = "aten::as_strided_scatter", .lower = lower_as_strided_scatter, .flags = PJ_OP_STORAGE},
    {.name = "aten::alias_copy", .lower = lower_reshape_copy},
    {.name = "aten::detach_copy", .lower = lower_reshape_copy},
    {.name = "aten::view_copy", .lower = lower_reshape_copy},
    {.name = "aten::_reshape_alias_copy", .lower = lower_reshape_copy},
    {.name = "aten::_reshape_copy", .lower = lower_reshape_copy},
    {.name = "aten::squeeze_copy", .lower = lower_reshape_copy},
    {.name = "aten::squeeze_copy.dim", .lower = lower_reshape_copy},
    {.name = "aten::squeeze_copy.dims", .lower = lower_reshape_copy},
    {.name = "aten::unsqueeze_copy", .lower = lower_reshape_copy},
    {.name = "aten::view_copy.dtype", .lower = lower_bits_copy},
    {.name = "aten::expand_copy", .lower = lower_expand_copy},
    {.name = "aten::permute_copy", .lower = lower_permute_copy},
    {.name = "aten::transpose_copy.int", .lower = lower_transpose_copy},
    {.name = "aten::t_copy", .lower = lower_t_copy},
    {.name = "aten::split_copy.Tensor", .lower = lower_split_copy},
    {.name = "aten::split_with_sizes_copy", .lower = lower_split_copy},
    {.name = "aten::unbind_copy.int", .lower = lower_unbind_copy},
    {.name = "aten::view_as_real_copy", .lower = lower_view_as_real_copy},
    {.name = "aten::view_as_complex_copy", .lower = lower_view_as_complex_copy},
    {.name = "aten::_conj_copy", .lower = lower_conj_copy},
    {.name = "aten::_neg_view_copy", .lower = lower_neg_copy},
    {.name = "aten::slice_backward", .lower = lower_slice_backward, .starts = PJ_START(3) | PJ_START(4)},
    {.name = "aten::select_backward", .lower = lower_select_backward, .starts = PJ_START(3)},
    {.name = "aten::diag_embed", .lower = lower_diag_embed},
    {.name = "aten::diagonal_backward", .lower = lower_diagonal_backward},
    {0},
};
