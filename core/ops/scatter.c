// Writes at indexed positions. All of them compose their indices onto the base of argument 0 (pj_target_of), so that an
// in-place call through a view costs what it writes.
#include <string.h>

#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/reduce.h"

// ---- rows of one dimension ------------------------------------------------------------------------------------------

typedef struct rows {
  pj_target self;     // at least 1-d
  int dim;
  pj_positions at;    // the indexed rows of `dim`
} rows;

// self, dim and a vector of indices: arguments 0, 1 and 2. Negative indices are for `check` to accept.
static rows rows_of(pj_lowering *l, hlo_value (*check)(pj_lowering *, hlo_value, int64_t)) {
  rows r;
  r.self = pj_target_of(l);
  pj_view_at_least_1d(&r.self.view);
  r.dim = pj_dim(l, 1, r.self.view.rank);
  r.at = pj_positions_all(r.self.view.rank);
  hlo_value index = pj_at_least_1d(l->h, pj_tensor(l, 2));
  pj_require(l, index.rank == 1, PJ_OUT_OF_RANGE, "Index is supposed to be a vector");
  pj_require(l, index.dtype == PJ_S64 || index.dtype == PJ_S32, PJ_OUT_OF_RANGE,
             "Expected dtype int32/int64 for index");
  if (hlo_failed(l->h)) return r;
  pj_require(l, index.dims[0] == 0 || r.self.view.sizes[r.dim] > 0, PJ_OUT_OF_RANGE, "index out of range in self");
  r.at.indexed[r.dim] = true;
  r.at.indices[r.dim] = check(l, index, r.self.view.sizes[r.dim]);
  return r;
}

// `source` (argument i; like self but for `dim`, which is as long as the index) with the indexed dimension in front.
static hlo_value rows_source(pj_lowering *l, const rows *r, int i) {
  hlo_value source = pj_at_least_1d(l->h, pj_tensor(l, i));
  if (hlo_failed(l->h)) return source;
  bool fits = source.rank == r->self.view.rank;
  for (int d = 0; fits && d < source.rank; ++d)
    fits = source.dims[d] == (d == r->dim ? r->at.indices[d].dims[0] : r->self.view.sizes[d]);
  if (!pj_require(l, fits, PJ_INVALID_ARGUMENT,
                  "source must have self's sizes except at dim %d, where it must have as many "
                  "elements as the index",
                  r->dim))
    return source;
  int order[PJ_MAX_RANK] = {r->dim};
  for (int d = 0, next = 1; d < source.rank; ++d)
    if (d != r->dim) order[next++] = d;
  return hlo_transpose(l->h, source, order);
}

// aten::index_copy(self, dim, index, source): self[..., index, ...] = source
static void lower_index_copy(pj_lowering *l) {
  rows r = rows_of(l, pj_index_check_from_zero);
  hlo_value source = rows_source(l, &r, 3);
  pj_return_target(l, pj_positions_write(l, HLO_SECOND, &r.self, &r.at, source));
}

// aten::index_add(self, dim, index, source, *, alpha): self[..., index, ...] += alpha * source
static void lower_index_add(pj_lowering *l) {
  rows r = rows_of(l, pj_index_check_from_zero);
  hlo_value source = rows_source(l, &r, 3);
  if (r.self.view.dtype != PJ_PRED) source = hlo_mul(l->h, source, pj_number(l, 4, source.dtype));
  pj_return_target(l, pj_positions_write(l, HLO_ADD, &r.self, &r.at, source));
}

// aten::index_fill(self, dim, index, value): self[..., index, ...] = value
static void lower_index_fill(pj_lowering *l) {
  rows r = rows_of(l, pj_index_check);
  hlo_value value = pj_tensor(l, 3);
  if (!pj_require(l, value.rank == 0, PJ_INVALID_ARGUMENT,
                  "index_fill_ only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
                  value.rank))
    return;
  pj_return_target(l, pj_positions_write(l, HLO_SECOND, &r.self, &r.at, value));
}

// ---- reductions -----------------------------------------------------------------------------------------------------

static const struct reduction {
  const char *name;
  hlo_op op;
} REDUCTIONS[] = {{"sum", HLO_ADD},  {"mean", HLO_ADD}, {"add", HLO_ADD},     {"prod", HLO_MUL},
                  {"amax", HLO_MAX}, {"amin", HLO_MIN}, {"multiply", HLO_MUL}};

static hlo_value identity_of(pj_lowering *l, hlo_op op, pj_dtype dtype) {
  switch (op) {
    case HLO_MAX: return hlo_lowest(l->h, dtype);
    case HLO_MIN: return hlo_highest(l->h, dtype);
    default: return hlo_constant_int(l->h, dtype, op == HLO_MUL);
  }
}

// Means are no running reduction: they need the number of values at every element, so they are taken over all of self.
static hlo_value mean_reduced(pj_lowering *l, const pj_positions *at, hlo_value updates, bool include_self) {
  hlo *h = l->h;
  hlo_value x = pj_at_least_1d(l->h, pj_tensor(l, 0));
  pj_dtype dtype = pj_math_dtype(x.dtype);
  x = hlo_convert(h, x, dtype);
  pj_target whole = pj_target_whole(x);
  hlo_value one = hlo_constant_int(h, dtype, 1);
  if (!include_self) whole.base = pj_positions_write(l, HLO_SECOND, &whole, at, hlo_constant_int(h, dtype, 0));
  hlo_value total = pj_positions_write(l, HLO_ADD, &whole, at, updates);
  whole.base = hlo_full(h, dtype, x.rank, x.dims, include_self);
  hlo_value count = pj_positions_write(l, HLO_ADD, &whole, at, one);
  count = hlo_select(h, hlo_eq(h, count, hlo_constant_int(h, dtype, 0)), one, count);
  return pj_dtype_is_integer(dtype) ? pj_floor_divide(h, total, count) : hlo_div(h, total, count);
}

static void return_reduced(pj_lowering *l, pj_target target, const pj_positions *at, hlo_value updates,
                           const char *reduce, bool include_self) {
  const pj_view *view = &target.view;
  if (hlo_failed(l->h)) return;
  if (!strcmp(reduce, "mean")) {
    hlo_value mean = hlo_convert(l->h, mean_reduced(l, at, updates, include_self), view->dtype);
    pj_return_target(l, pj_target_write(l, &target, hlo_reshape(l->h, mean, view->rank, view->sizes)));
    return;
  }
  const struct reduction *r = NULL;
  for (size_t i = 0; i < sizeof REDUCTIONS / sizeof *REDUCTIONS; ++i)
    if (!strcmp(REDUCTIONS[i].name, reduce)) r = &REDUCTIONS[i];
  if (!pj_require(l, r != NULL, PJ_INVALID_ARGUMENT,
                  "reduce argument must be either sum, prod, mean, amax or amin, got %s.", reduce))
    return;
  if (!include_self)
    target.base = pj_positions_write(l, HLO_SECOND, &target, at, identity_of(l, r->op, target.base.dtype));
  pj_return_target(l, pj_positions_write(l, r->op, &target, at, updates));
}

// aten::index_reduce(self, dim, index, source, reduce, *, include_self): rows of `source` reduced into self's
static void lower_index_reduce(pj_lowering *l) {
  rows r = rows_of(l, pj_index_check_from_zero);
  hlo_value source = rows_source(l, &r, 3);
  return_reduced(l, r.self, &r.at, source, pj_string(l, 4), pj_bool(l, 5));
}

// ---- scatter --------------------------------------------------------------------------------------------------------

typedef struct scattered {
  pj_target self;
  pj_positions at;
  hlo_value updates;
} scattered;

// aten::scatter's arguments: self[i0, ..., index[i0, ...], ...] takes src[i0, ...]; `src` may be a number.
static scattered scatter_arguments(pj_lowering *l) {
  scattered t;
  t.self = pj_target_of(l);
  pj_view_at_least_1d(&t.self.view);
  hlo_value index = pj_at_least_1d(l->h, pj_tensor(l, 2)), src = pj_tensor(l, 3);
  if (hlo_failed(l->h)) return t;
  int dim = pj_dim(l, 1, t.self.view.rank);
  bool empty = hlo_size(index) == 0;
  pj_require(l, empty || index.dtype == PJ_S64 || index.dtype == PJ_S32, PJ_INVALID_ARGUMENT,
             "scatter(): Expected dtype int32/int64 for index");
  pj_require(l, empty || index.rank == t.self.view.rank, PJ_INVALID_ARGUMENT,
             "Index tensor must have the same number of dimensions as self tensor");
  if (hlo_failed(l->h)) return t;
  if (empty) {   // of any rank: nothing is written
    t.at = pj_positions_all(t.self.view.rank);
    t.at.indexed[dim] = true;
    t.at.indices[dim] = hlo_flatten(l->h, index);
    t.updates = hlo_constant(l->h, t.self.view.dtype, 0);
    return t;
  }
  for (int d = 0; d < index.rank; ++d)
    pj_require(l, d == dim ? t.self.view.sizes[d] > 0 : index.dims[d] <= t.self.view.sizes[d], PJ_INVALID_ARGUMENT,
               "Expected index of size %lld to be no larger than self of size %lld apart from dimension %d",
               (long long)index.dims[d], (long long)t.self.view.sizes[d], dim);
  if (src.rank) {
    bool fits = src.rank == index.rank;
    for (int d = 0; fits && d < src.rank; ++d) fits = index.dims[d] <= src.dims[d];
    if (!pj_require(l, fits, PJ_INVALID_ARGUMENT, "Expected index to be no larger than src in every dimension"))
      return t;
    int64_t start[PJ_MAX_RANK] = {0};
    src = hlo_slice(l->h, src, start, index.dims, NULL);
  }
  if (hlo_failed(l->h)) return t;
  t.at = pj_positions_along(l, pj_index_check_from_zero(l, index, t.self.view.sizes[dim]), dim);
  t.updates = src;
  return t;
}

// aten::scatter(self, dim, index, src or value)
static void lower_scatter(pj_lowering *l) {
  scattered t = scatter_arguments(l);
  if (hlo_failed(l->h)) return;
  pj_return_target(l, pj_positions_write(l, HLO_SECOND, &t.self, &t.at, t.updates));
}

// aten::scatter_add(self, dim, index, src)
static void lower_scatter_add(pj_lowering *l) {
  scattered t = scatter_arguments(l);
  if (hlo_failed(l->h)) return;
  pj_return_target(l, pj_positions_write(l, HLO_ADD, &t.self, &t.at, t.updates));
}

// aten::scatter.reduce(self, dim, index, src or value, *, reduce) and aten::scatter_reduce.two(..., reduce, *,
// include_self)
static void lower_scatter_reduce(pj_lowering *l) {
  scattered t = scatter_arguments(l);
  return_reduced(l, t.self, &t.at, t.updates, pj_string(l, 4), !pj_present(l, 5) || pj_bool(l, 5));
}

// ---- index_put ------------------------------------------------------------------------------------------------------

// The position of the only index, if it is a mask, else -1.
static int only_mask(pj_lowering *l, int list) {
  int found = -1;
  for (int i = 0; i < pj_list_count(l, list); ++i) {
    if (!pj_list_present(l, list, i)) continue;
    if (found >= 0 || pj_list_tensor(l, list, i).dtype != PJ_PRED) return -1;
    found = i;
  }
  return found;
}

// self[:, mask] = values, for values that are the same wherever the mask is true: a select, without the mask's count.
static void lower_masked_put(pj_lowering *l, int dim) {
  hlo *h = l->h;
  pj_target target = pj_target_of(l);
  hlo_value x = pj_tensor(l, 0), mask = pj_list_tensor(l, 1, dim), values = pj_tensor(l, 2);
  int rest = x.rank - dim - mask.rank;
  bool fits = rest >= 0;
  for (int d = 0; fits && d < mask.rank; ++d) fits = mask.dims[d] == x.dims[dim + d];
  if (!pj_require(l, fits, PJ_OUT_OF_RANGE, "The shape of the mask does not match the shape of the indexed tensor"))
    return;
  // The values' dimension that runs over the true elements becomes the mask's dimensions, of size 1.
  if (values.rank > rest) {
    int64_t dims[PJ_MAX_RANK];
    int front = values.rank - rest - 1, rank = 0;
    if (!pj_require(l, values.dims[front] == 1 && values.rank + mask.rank <= PJ_MAX_RANK, PJ_INVALID_ARGUMENT,
                    "values of a masked write must not depend on the position"))
      return;
    for (int d = 0; d < front; ++d) dims[rank++] = values.dims[d];
    for (int d = 0; d < mask.rank; ++d) dims[rank++] = 1;
    for (int d = 0; d < rest; ++d) dims[rank++] = values.dims[front + 1 + d];
    values = hlo_reshape(h, values, rank, dims);
  }
  values = hlo_convert(h, hlo_broadcast_like(h, values, x), x.dtype);
  if (pj_bool(l, 3)) values = x.dtype == PJ_PRED ? hlo_or(h, x, values) : hlo_add(h, x, values);
  int map[PJ_MAX_RANK];
  for (int d = 0; d < mask.rank; ++d) map[d] = dim + d;
  mask = hlo_broadcast_in_dim(h, mask, x.rank, x.dims, map);
  pj_return_target(l, pj_target_write(l, &target, hlo_select(h, mask, values, x)));
}

// aten::index_put(self, indices, values, accumulate): self[i0, :, i1, ...] = values, or += values
static void lower_index_put(pj_lowering *l) {
  hlo *h = l->h;
  int masked = only_mask(l, 1);
  if (masked >= 0) {
    lower_masked_put(l, masked);
    return;
  }
  pj_target target = pj_target_of(l);
  const pj_view view = target.view;
  hlo_value values = pj_tensor(l, 2);
  pj_positions at = pj_positions_of_list(l, 1, view.rank, view.sizes);
  if (hlo_failed(h)) return;

  // The shape of self[indices], to which the values broadcast.
  int front = pj_positions_front(&at), whole = 0;
  hlo_value shape = {.rank = 0};
  bool any = false;
  for (int d = 0; d < view.rank; ++d) any |= at.indexed[d];
  if (!any) {   // self[:] = values
    values = hlo_convert(h, hlo_broadcast_to(h, values, view.rank, view.sizes), view.dtype);
    if (pj_bool(l, 3)) {
      hlo_value x = pj_tensor(l, 0);
      values = x.dtype == PJ_PRED ? hlo_or(h, x, values) : hlo_add(h, x, values);
    }
    pj_return_target(l, pj_target_write(l, &target, values));
    return;
  }
  int points = 0, rank = 0;
  for (int d = 0; d < view.rank; ++d) {
    if (at.indexed[d]) {
      points = at.indices[d].rank;
      for (int p = 0; p < points; ++p) shape.dims[front + p] = at.indices[d].dims[p];
    }
  }
  for (int d = 0; d < view.rank; ++d) {
    if (at.indexed[d]) continue;
    shape.dims[whole < front ? whole : whole + points] = view.sizes[d];
    ++whole;
  }
  shape.rank = rank = whole + points;
  bool fits = true;
  while (values.rank > rank && fits) {
    fits = values.dims[0] == 1;
    if (fits) values = hlo_drop(h, values, 0);
  }
  while (values.rank < rank) values = hlo_keep(h, values, 0);
  for (int d = 0; d < rank && fits; ++d) fits = values.dims[d] == 1 || values.dims[d] == shape.dims[d];
  if (!pj_require(l, fits, PJ_INVALID_ARGUMENT, "shape mismatch: value tensor cannot be broadcast to indexing result"))
    return;
  int order[PJ_MAX_RANK];
  for (int d = 0; d < rank; ++d) order[d] = d < points ? front + d : d < points + front ? d - points : d;
  values = hlo_transpose(h, values, order);
  pj_return_target(l, pj_positions_write(l, pj_bool(l, 3) ? HLO_ADD : HLO_SECOND, &target, &at, values));
}

// aten::put(self, index, source, accumulate): self.flatten()[index] = source, or += source
static void lower_put(pj_lowering *l) {
  hlo *h = l->h;
  pj_target target = pj_target_of(l);
  pj_view_at_least_1d(&target.view);
  const pj_view view = target.view;
  hlo_value index = pj_tensor(l, 1), source = pj_tensor(l, 2);
  if (hlo_failed(h)) return;
  int64_t size = 1;
  for (int d = 0; d < view.rank; ++d) size *= view.sizes[d];
  if (!pj_require(l, index.dtype == PJ_S64, PJ_INVALID_ARGUMENT, "put_(): Expected a long tensor for index") ||
      !pj_require(l, hlo_size(index) == hlo_size(source), PJ_INVALID_ARGUMENT,
                  "put_(): Expected source and index to have the same number of elements") ||
      !pj_require(l, size > 0 || hlo_size(index) == 0, PJ_OUT_OF_RANGE,
                  "put_(): tried to put elements into an empty tensor"))
    return;
  hlo_value linear = pj_index_check(l, hlo_flatten(h, index), size);
  pj_positions at = pj_positions_all(view.rank);
  for (int d = view.rank - 1; d >= 0; --d) {
    hlo_value length = hlo_constant_int(h, linear.dtype, view.sizes[d] ? view.sizes[d] : 1);
    at.indexed[d] = true;
    at.indices[d] = d ? hlo_rem(h, linear, length) : linear;
    linear = hlo_div(h, linear, length);
  }
  pj_return_target(
      l, pj_positions_write(l, pj_bool(l, 3) ? HLO_ADD : HLO_SECOND, &target, &at, hlo_flatten(h, source)));
}

// ---- masks ----------------------------------------------------------------------------------------------------------

// aten::masked_scatter(self, mask, source): the k-th true element takes source.flatten()[k]
static void lower_masked_scatter(pj_lowering *l) {
  hlo *h = l->h;
  pj_target target = pj_target_of(l);
  hlo_value x = pj_tensor(l, 0), mask = pj_tensor(l, 1), source = pj_tensor(l, 2);
  if (!pj_require(l, mask.dtype == PJ_PRED, PJ_INVALID_ARGUMENT,
                  "masked_scatter_ only supports boolean masks, but got mask "
                  "with dtype %s",
                  pj_dtype_name(mask.dtype)) ||
      !pj_require(l, source.dtype == x.dtype, PJ_INVALID_ARGUMENT,
                  "masked_scatter: expected self and source to have same dtypes but got %s and %s",
                  pj_dtype_name(x.dtype), pj_dtype_name(source.dtype)))
    return;
  pj_type type = pj_result_type(l, 0);   // the functional form broadcasts self against the mask
  if (!l->signature->writes_base) x = hlo_broadcast_to(h, x, type.rank, type.dims);
  mask = hlo_broadcast_like(h, mask, x);
  if (hlo_size(x) == 0 || hlo_size(source) == 0) {
    pj_return_target(l, l->signature->writes_base ? target.base : x);
    return;
  }
  hlo_value taken = hlo_take(h, hlo_flatten(h, source), pj_true_before(l->h, mask), 0);
  hlo_value y = hlo_select(h, mask, hlo_reshape(h, taken, x.rank, x.dims), x);
  pj_return_target(l, l->signature->writes_base ? pj_target_write(l, &target, y) : y);
}

// aten::masked_scatter_backward(grad_output, mask, sizes): the true elements of the gradient, then zeros
static void lower_masked_scatter_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = pj_tensor(l, 0), mask = hlo_broadcast_like(h, pj_tensor(l, 1), grad);
  pj_type type = pj_result_type(l, 0);
  hlo_value zero = hlo_constant(h, grad.dtype, 0);
  hlo_value packed = pj_pack(l, hlo_flatten(h, grad), hlo_flatten(h, mask), pj_type_elements(&type), zero);
  pj_return(l, 0, hlo_reshape(h, packed, type.rank, type.dims));
}

PJ_LOWERINGS(scatter_lowerings) = {
    {.name = "aten::index_copy", .lower = lower_index_copy, .flags = PJ_OP_WRITES},
    {.name = "aten::index_add", .lower = lower_index_add, .flags = PJ_OP_WRITES},
    {.name = "aten::index_fill.int_Scalar", .lower = lower_index_fill, .flags = PJ_OP_WRITES},
    {.name = "aten::index_fill.int_Tensor", .lower = lower_index_fill, .flags = PJ_OP_WRITES},
    {.name = "aten::index_reduce", .lower = lower_index_reduce, .flags = PJ_OP_WRITES},
    {.name = "aten::scatter.src", .lower = lower_scatter, .flags = PJ_OP_WRITES},
    {.name = "aten::scatter.value", .lower = lower_scatter, .flags = PJ_OP_WRITES},
    {.name = "aten::scatter.reduce", .lower = lower_scatter_reduce, .flags = PJ_OP_WRITES},
    {.name = "aten::scatter.value_reduce", .lower = lower_scatter_reduce, .flags = PJ_OP_WRITES},
    {.name = "aten::scatter_add", .lower = lower_scatter_add, .flags = PJ_OP_WRITES},
    {.name = "aten::scatter_reduce.two", .lower = lower_scatter_reduce, .flags = PJ_OP_WRITES},
    {.name = "aten::index_put", .lower = lower_index_put, .flags = PJ_OP_WRITES},
    {.name = "aten::_index_put_impl", .lower = lower_index_put, .flags = PJ_OP_WRITES},
    {.name = "aten::_unsafe_index_put", .lower = lower_index_put, .flags = PJ_OP_WRITES},
    {.name = "aten::put", .lower = lower_put, .flags = PJ_OP_WRITES},
    {.name = "aten::masked_scatter", .lower = lower_masked_scatter, .flags = PJ_OP_WRITES},
    {.name = "aten::masked_scatter_backward", .lower = lower_masked_scatter_backward},
    {0},
};
