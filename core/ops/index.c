#include "ops/index.h"

#include "ops/reduce.h"

// ---- checks ---------------------------------------------------------------------------------------------------------

// A signed type in which -size and size fit.
static hlo_value index_widen(pj_lowering *l, hlo_value indices, int64_t size) {
  bool fits = indices.dtype == PJ_S64 || (indices.dtype == PJ_S32 && size <= INT32_MAX);
  return fits ? indices : hlo_convert(l->h, indices, PJ_S64);
}

static hlo_value index_narrow(pj_lowering *l, hlo_value indices, int64_t size) {
  return hlo_convert(l->h, indices, size <= INT32_MAX ? PJ_S32 : PJ_S64);
}

// Keeps that some index lies outside [low, size); 0-d.
static void record_range(pj_lowering *l, hlo_value indices, hlo_value low, hlo_value size) {
  hlo *h = l->h;
  hlo_value below = hlo_lt(h, indices, low), above = hlo_ge(h, indices, size);
  hlo_value any = hlo_reduce_all(h, HLO_OR, hlo_or(h, below, above));
  l->index_error = l->index_error.id < 0 ? any : hlo_or(h, l->index_error, any);
}

// `counts`: how much of a dimension of `size` counts, 0-d of the indices' dtype.
static hlo_value check_wrapped(pj_lowering *l, hlo_value indices, hlo_value counts, int64_t size) {
  hlo *h = l->h;
  record_range(l, indices, hlo_neg(h, counts), counts);
  hlo_value negative = hlo_lt(h, indices, hlo_constant_int(h, indices.dtype, 0));
  return index_narrow(l, hlo_select(h, negative, hlo_add(h, indices, counts), indices), size);
}

hlo_value pj_index_check(pj_lowering *l, hlo_value indices, int64_t size) {
  indices = index_widen(l, indices, size);
  return check_wrapped(l, indices, hlo_constant_int(l->h, indices.dtype, size), size);
}

// Of dimension `dim` of a tensor argument, which may have room there.
static hlo_value index_check_of(pj_lowering *l, hlo_value indices, const pj_operand *tensor, int dim, int64_t size) {
  if (!tensor || tensor->room != dim) return pj_index_check(l, indices, size);
  indices = hlo_convert(l->h, indices, PJ_S64);
  return check_wrapped(l, indices, l->operands[tensor->length], size);
}

hlo_value pj_index_check_from_zero(pj_lowering *l, hlo_value indices, int64_t size) {
  indices = index_widen(l, indices, size);
  record_range(l, indices, hlo_constant_int(l->h, indices.dtype, 0), hlo_constant_int(l->h, indices.dtype, size));
  return index_narrow(l, indices, size);
}

// ---- positions ------------------------------------------------------------------------------------------------------

void pj_view_at_least_1d(pj_view *view) {
  if (view->rank) return;
  view->rank = 1;
  view->sizes[0] = view->strides[0] = 1;
}

pj_positions pj_positions_all(int rank) {
  pj_positions at = {.rank = rank};
  return at;
}

static hlo_value first_indices(const pj_positions *at) {
  for (int d = 0; d < at->rank; ++d)
    if (at->indexed[d]) return at->indices[d];
  return (hlo_value){.id = -1};
}

// The shape that all of the values broadcast to.
static hlo_value broadcast_shape(hlo_value a, hlo_value b) {
  hlo_value shape = a.rank >= b.rank ? a : b, other = a.rank >= b.rank ? b : a;
  for (int d = 0; d < other.rank; ++d) {
    int64_t *dim = &shape.dims[shape.rank - other.rank + d];
    if (*dim == 1) *dim = other.dims[d];
  }
  return shape;
}

static pj_dtype wider_index(pj_dtype a, pj_dtype b) { return a == PJ_S64 || b == PJ_S64 ? PJ_S64 : PJ_S32; }

pj_positions pj_positions_of_list(pj_lowering *l, int list, int rank, const int64_t *sizes) {
  pj_positions at = pj_positions_all(rank);
  int count = pj_list_count(l, list);
  if (!pj_require(l, count <= rank, PJ_OUT_OF_RANGE, "too many indices for tensor of dimension %d (got %d)", rank,
                  count))
    return at;
  hlo_value shape = {.dtype = PJ_S32};
  for (int d = 0; d < count; ++d) {
    if (!pj_list_present(l, list, d)) continue;
    hlo_value index = pj_list_tensor(l, list, d);
    if (!pj_require(l, pj_dtype_is_integer(index.dtype), PJ_OUT_OF_RANGE,
                    "tensors used as indices must be long, int, byte or bool tensors"))
      return at;
    at.indexed[d] = true;
    at.indices[d] = index_check_of(l, index, pj_operand_of(l, 0), d, sizes[d]);
    pj_dtype wider = wider_index(shape.dtype, at.indices[d].dtype);
    shape = broadcast_shape(shape, at.indices[d]);
    shape.dtype = wider;
  }
  int64_t points = hlo_size(shape);
  for (int d = 0; d < count; ++d) {
    if (!at.indexed[d]) continue;
    pj_require(l, points == 0 || sizes[d] > 0, PJ_OUT_OF_RANGE, "index is out of bounds for dimension with size 0");
    at.indices[d] = hlo_broadcast_to(l->h, hlo_convert(l->h, at.indices[d], shape.dtype), shape.rank, shape.dims);
  }
  return at;
}

pj_positions pj_positions_along(pj_lowering *l, hlo_value index, int dim) {
  pj_positions at = pj_positions_all(index.rank);
  for (int d = 0; d < index.rank; ++d) {
    at.indexed[d] = true;
    at.indices[d] = d == dim ? index : hlo_iota(l->h, index.dtype, index.rank, index.dims, d);
  }
  return at;
}

int pj_positions_front(const pj_positions *at) {
  int first = -1, last = -1, count = 0;
  for (int d = 0; d < at->rank; ++d) {
    if (!at->indexed[d]) continue;
    if (first < 0) first = d;
    last = d;
    ++count;
  }
  return count && last - first + 1 == count ? first : 0;
}

hlo_value pj_positions_read(pj_lowering *l, hlo_value x, const pj_positions *at) {
  hlo *h = l->h;
  hlo_value points = first_indices(at);
  int front = pj_positions_front(at);
  hlo_gather_spec spec = {.index_vector_dim = points.rank};
  hlo_value columns[PJ_MAX_RANK];
  for (int d = 0, whole = 0; d < x.rank; ++d) {
    if (at->indexed[d]) {
      columns[spec.start_count] = hlo_keep(h, at->indices[d], points.rank);
      spec.start_index_map[spec.start_count++] = d;
      spec.collapsed[spec.collapsed_count++] = d;
      spec.slice_sizes[d] = 1;
    } else {
      spec.offset_dims[spec.offset_count++] = whole < front ? whole : whole + points.rank;
      spec.slice_sizes[d] = x.dims[d];
      ++whole;
    }
  }
  return hlo_gather(h, x, hlo_concatenate(h, columns, spec.start_count, points.rank), &spec);
}

hlo_value pj_take_along(pj_lowering *l, hlo_value x, hlo_value index, int dim) {
  if (hlo_failed(l->h)) return index;
  int64_t limit[PJ_MAX_RANK], start[PJ_MAX_RANK] = {0};
  hlo_gather_spec spec = {.collapsed = {dim}, .collapsed_count = 1, .start_index_map = {dim}, .start_count = 1,
                          .index_vector_dim = x.rank};
  for (int d = 0; d < x.rank; ++d) {
    limit[d] = d == dim ? x.dims[d] : index.dims[d];
    spec.slice_sizes[d] = 1;
    if (d == dim) continue;
    spec.operand_batching[spec.batching_count] = d;
    spec.indices_batching[spec.batching_count++] = d;
  }
  return hlo_gather(l->h, hlo_slice(l->h, x, start, limit, NULL), index, &spec);
}

// ---- writes through a view ------------------------------------------------------------------------------------------

// How a view's dimensions lie in a base: base coordinate b is start[b] plus step[v] * (view coordinate v) over all v
// with base_dim[v] == b. base_dim -1: a dimension of size 1.
typedef struct layout {
  int base_dim[PJ_MAX_RANK];
  int64_t step[PJ_MAX_RANK];
  int64_t start[PJ_MAX_RANK];
} layout;

// Whether every view dimension is a strided run of one base dimension; fills `out`.
static bool layout_as_box(const pj_view *view, hlo_value base, layout *out) {
  int64_t stride[PJ_MAX_RANK], offset = view->offset;
  bool taken[PJ_MAX_RANK] = {false};
  for (int b = base.rank - 1; b >= 0; --b) stride[b] = b == base.rank - 1 ? 1 : stride[b + 1] * base.dims[b + 1];
  for (int b = 0; b < base.rank; ++b) {
    out->start[b] = stride[b] ? offset / stride[b] : 0;
    offset -= out->start[b] * stride[b];
  }
  for (int v = 0; v < view->rank; ++v) {
    out->base_dim[v] = -1;
    out->step[v] = 0;
    if (view->sizes[v] <= 1) continue;
    int b = 0;
    while (b < base.rank && (taken[b] || base.dims[b] == 1 || stride[b] > view->strides[v])) ++b;
    if (b == base.rank || view->strides[v] % stride[b]) return false;
    out->base_dim[v] = b;
    out->step[v] = view->strides[v] / stride[b];
    taken[b] = true;
    if (out->start[b] + out->step[v] * (view->sizes[v] - 1) >= base.dims[b]) return false;
  }
  return true;
}

static void layout_as_flat(const pj_view *view, layout *out) {
  out->start[0] = view->offset;
  for (int v = 0; v < view->rank; ++v) {
    out->base_dim[v] = view->sizes[v] <= 1 ? -1 : 0;
    out->step[v] = view->strides[v];
  }
}

hlo_value pj_positions_write(pj_lowering *l, hlo_op op, const pj_target *to, const pj_positions *at, hlo_value updates) {
  hlo *h = l->h;
  hlo_value base = to->base;
  const pj_view *view = &to->view;
  if (hlo_failed(h)) return base;
  if (base.dtype == PJ_PRED)
    op = op == HLO_ADD || op == HLO_MAX ? HLO_OR : op == HLO_MUL || op == HLO_MIN ? HLO_AND : op;
  hlo_value points = first_indices(at);

  // The full shape of the updates: the points, then the whole dimensions.
  hlo_value shape = points;
  int whole_at[PJ_MAX_RANK];
  for (int v = 0; v < view->rank; ++v) {
    if (at->indexed[v]) continue;
    if (!pj_require(l, shape.rank + 1 < PJ_MAX_RANK, PJ_INVALID_ARGUMENT, "too many dimensions in an indexed write"))
      return base;
    whole_at[v] = shape.rank;
    shape.dims[shape.rank++] = view->sizes[v];
  }
  updates = hlo_broadcast_to(h, hlo_convert(h, updates, base.dtype), shape.rank, shape.dims);
  if (hlo_size(shape) == 0) return base;

  layout where;
  hlo_value target = base;
  if (base.rank == 0 || !layout_as_box(view, base, &where)) {
    target = hlo_flatten(h, base);
    layout_as_flat(view, &where);
  }

  // A whole dimension that runs through its base dimension one by one is a window of the scatter; others are indexed
  // too.
  int window_of[PJ_MAX_RANK];
  for (int b = 0; b < target.rank; ++b) window_of[b] = -1;
  for (int v = 0; v < view->rank; ++v)
    if (!at->indexed[v] && where.base_dim[v] >= 0 && where.step[v] == 1) window_of[where.base_dim[v]] = v;

  int order[PJ_MAX_RANK], rank = 0;   // updates: points, indexed whole dimensions, windows in the base's order
  hlo_value grid = points;            // shape of the points and the indexed whole dimensions
  grid.dtype = hlo_size(target) <= INT32_MAX ? PJ_S32 : PJ_S64;
  for (; rank < points.rank; ++rank) order[rank] = rank;
  int grid_dim[PJ_MAX_RANK];
  for (int v = 0; v < view->rank; ++v) {
    int b = where.base_dim[v];
    if (at->indexed[v] || (b >= 0 && window_of[b] == v)) continue;
    grid_dim[v] = grid.rank;
    grid.dims[grid.rank++] = view->sizes[v];
    order[rank++] = whole_at[v];
  }
  hlo_scatter_spec spec = {.index_vector_dim = grid.rank};
  for (int b = 0; b < target.rank; ++b) {
    if (window_of[b] < 0) {
      spec.inserted[spec.inserted_count++] = b;
    } else {
      spec.update_window[spec.update_window_count++] = rank;
      order[rank++] = whole_at[window_of[b]];
    }
  }

  hlo_value columns[PJ_MAX_RANK], start[PJ_MAX_RANK];
  bool moves = to->start.id >= 0;
  if (moves) pj_view_place(h, to->start, target.rank, target.dims, start);
  for (int b = 0; b < target.rank; ++b) {
    bool spans = window_of[b] >= 0 && view->sizes[window_of[b]] == target.dims[b];
    bool at_zero = spans || (!moves && where.start[b] == 0);
    if (!moves || spans) start[b] = hlo_constant_int(l->h, grid.dtype, where.start[b]);
    hlo_value column = {.id = -1};
    for (int v = 0; v < view->rank; ++v) {
      if (where.base_dim[v] != b || window_of[b] == v) continue;
      hlo_value index;
      if (at->indexed[v]) {
        int map[PJ_MAX_RANK];
        for (int d = 0; d < points.rank; ++d) map[d] = d;
        index = hlo_broadcast_in_dim(h, hlo_convert(h, at->indices[v], grid.dtype), grid.rank, grid.dims, map);
      } else {
        index = hlo_iota(h, grid.dtype, grid.rank, grid.dims, grid_dim[v]);
      }
      if (where.step[v] != 1) index = hlo_mul(h, index, hlo_constant_int(l->h, grid.dtype, where.step[v]));
      column = column.id < 0 ? index : hlo_add(h, column, index);
    }
    if (column.id < 0) {
      if (at_zero && (b < target.rank - 1 || spec.scatter_count)) continue;
      column = hlo_broadcast_to(h, start[b], grid.rank, grid.dims);
    } else if (!at_zero) {
      column = hlo_add(h, column, start[b]);
    }
    columns[spec.scatter_count] = hlo_keep(h, column, grid.rank);
    spec.scatter_dims[spec.scatter_count++] = b;
  }
  hlo_value indices = hlo_concatenate(h, columns, spec.scatter_count, grid.rank);
  hlo_value written = hlo_scatter(h, op, target, indices, hlo_transpose(h, updates, order), &spec);
  return hlo_reshape(h, hlo_written(h, target, updates, written), base.rank, base.dims);
}

// ---- masks ----------------------------------------------------------------------------------------------------------

hlo_value pj_true_before(hlo *h, hlo_value mask) {
  hlo_value ones = hlo_convert(h, hlo_flatten(h, mask), PJ_S32);
  return hlo_size(mask) ? hlo_sub(h, hlo_scan(h, HLO_ADD, ones, 0), ones) : ones;
}

hlo_value pj_pack(pj_lowering *l, hlo_value values, hlo_value kept, int64_t size, hlo_value fill) {
  hlo *h = l->h;
  if (!size || !hlo_size(values)) return hlo_broadcast_to(h, fill, 1, &size);
  // What is not kept goes to one place more, which is cut off. XLA:CPU takes every index into a dimension of size 1 for 0,
  // also one outside of it that a scatter has to drop.
  hlo_value packed = hlo_broadcast_to(h, fill, 1, (int64_t[]){size + 1}), last = hlo_constant_int(h, PJ_S32, size);
  pj_target whole = pj_target_whole(packed);
  hlo_value place = hlo_select(h, kept, hlo_min(h, pj_true_before(h, kept), last), last);
  pj_positions at = {.rank = 1, .indexed = {true}, .indices = {place}};
  return hlo_slice_dim(h, pj_positions_write(l, HLO_SECOND, &whole, &at, values), 0, 0, size);
}

// ---- lowerings ------------------------------------------------------------------------------------------------------

// aten::index.Tensor(self, indices): self[i0, :, i1, ...]
static void lower_index(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  pj_positions at = pj_positions_of_list(l, 1, x.rank, x.dims);
  if (pj_returned_empty(l)) return;
  pj_return(l, 0, first_indices(&at).id < 0 ? x : pj_positions_read(l, x, &at));
}

static bool require_index_dtype(pj_lowering *l, const char *op, hlo_value index) {
  return pj_require(l, index.dtype == PJ_S64 || index.dtype == PJ_S32, PJ_INVALID_ARGUMENT,
                    "%s(): Expected dtype int32/int64 for index", op);
}

// aten::index_select(self, dim, index): rows `index` of `dim`
static void lower_index_select(pj_lowering *l) {
  hlo_value x = pj_at_least_1d(l->h, pj_tensor(l, 0));
  int dim = pj_dim(l, 1, x.rank);
  hlo_value index = pj_tensor(l, 2);
  if (!require_index_dtype(l, "index_select", index) || pj_returned_empty(l)) return;
  if (!pj_require(l, index.rank <= 1, PJ_OUT_OF_RANGE, "index_select(): Index is supposed to be a vector") ||
      !pj_require(l, x.dims[dim] > 0, PJ_OUT_OF_RANGE, "index out of range in self"))
    return;
  hlo_value rows = hlo_take(l->h, x, pj_index_check_from_zero(l, pj_at_least_1d(l->h, index), x.dims[dim]), dim);
  pj_type type = pj_result_type(l, 0);
  pj_return(l, 0, hlo_reshape(l->h, rows, type.rank, type.dims));
}

// aten::gather(self, dim, index): self[i0, ..., index[i0, i1, ...], ...] with the index in place `dim`
static void lower_gather(pj_lowering *l) {
  hlo_value x = pj_at_least_1d(l->h, pj_tensor(l, 0)), index = pj_at_least_1d(l->h, pj_tensor(l, 2));
  int dim = pj_dim(l, 1, x.rank);
  if (pj_returned_empty(l)) return;
  if (!pj_require(l, index.rank == x.rank, PJ_INVALID_ARGUMENT,
                  "Index tensor must have the same number of dimensions as input tensor"))
    return;
  for (int d = 0; d < x.rank; ++d)
    if (!pj_require(
            l, d == dim ? x.dims[d] > 0 : index.dims[d] <= x.dims[d], PJ_INVALID_ARGUMENT,
            "Size does not match at dimension %d expected index of %lld to be no larger than self of %lld apart "
            "from dimension %d",
            d, (long long)index.dims[d], (long long)x.dims[d], dim))
      return;
  pj_return_reshaped(l, 0, pj_take_along(l, x, pj_index_check_from_zero(l, index, x.dims[dim]), dim));
}

// aten::take(self, index): self.flatten()[index]
static void lower_take(pj_lowering *l) {
  hlo_value x = hlo_flatten(l->h, pj_tensor(l, 0)), index = pj_tensor(l, 1);
  if (!pj_require(l, index.dtype == PJ_S64, PJ_INVALID_ARGUMENT, "take(): Expected a long tensor for index") ||
      pj_returned_empty(l) ||
      !pj_require(l, x.dims[0] > 0, PJ_OUT_OF_RANGE, "take(): tried to take from an empty tensor"))
    return;
  pj_return(l, 0, hlo_take(l->h, x, pj_index_check(l, index, x.dims[0]), 0));
}

PJ_LOWERINGS(index_lowerings) = {
    {.name = "aten::index.Tensor", .lower = lower_index},
    {.name = "aten::_unsafe_index.Tensor", .lower = lower_index},
    {.name = "aten::index_select", .lower = lower_index_select},
    {.name = "aten::gather", .lower = lower_gather},
    {.name = "aten::take", .lower = lower_take},
    {0},
};
