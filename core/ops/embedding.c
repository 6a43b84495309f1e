// Lookups in a table of rows: embedding, embedding bags, and their gradients.
#include "ops/index.h"
#include "ops/reduce.h"

// Combines `updates` (rows, or elements for a vector) into rows `index` (1-d) of x. Rows outside x are dropped.
static hlo_value write_rows(pj_lowering *l, hlo_op op, hlo_value x, hlo_value index, hlo_value updates) {
  pj_target whole = pj_target_whole(x);
  pj_positions at = {.rank = x.rank, .indexed = {true}, .indices = {index}};
  return pj_positions_write(l, op, &whole, &at, updates);
}

static hlo_value zeros(pj_lowering *l, pj_dtype dtype, int rank, const int64_t *dims) {
  return hlo_full(l->h, dtype, rank, dims, 0);
}

static hlo_value constant_like(pj_lowering *l, hlo_value x, int64_t value) {
  return hlo_broadcast_like(l->h, hlo_constant_int(l->h, x.dtype, value), x);
}

// `index` with those equal to `skipped` sent behind the end of a dimension of `size`, where a write drops them.
static hlo_value without(pj_lowering *l, hlo_value index, hlo_value of, int64_t skipped, int64_t size) {
  if (skipped < 0) return index;
  return hlo_select(l->h, hlo_eq(l->h, of, hlo_constant_int(l->h, of.dtype, skipped)), constant_like(l, index, size),
                    index);
}

// grad divided by how often its index occurs.
static hlo_value over_frequency(pj_lowering *l, hlo_value grad, hlo_value index, int64_t rows) {
  hlo *h = l->h;
  hlo_value count = write_rows(l, HLO_ADD, zeros(l, grad.dtype, 1, &rows), index, hlo_constant(h, grad.dtype, 1));
  return hlo_div(h, grad, hlo_keep(h, hlo_take(h, count, index, 0), 1));
}

// aten::embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse): rows of weight
static void lower_embedding(pj_lowering *l) {
  hlo_value weight = pj_tensor(l, 0), indices = pj_tensor(l, 1);
  if (!pj_require(l, weight.rank == 2, PJ_INVALID_ARGUMENT, "'weight' must be 2-D")) return;
  pj_type type = pj_result_type(l, 0);
  if (!pj_type_elements(&type)) {
    pj_return_zeros(l, 0);
    return;
  }
  if (!pj_require(l, weight.dims[0] > 0, PJ_OUT_OF_RANGE, "index out of range in self")) return;
  pj_return(l, 0, hlo_take(l->h, weight, pj_index_check_from_zero(l, indices, weight.dims[0]), 0));
}

// aten::embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq): rows of the
// gradient summed by index, in float32 for half types; padding_idx gets none
static void lower_embedding_dense_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = pj_tensor(l, 0), indices = pj_tensor(l, 1);
  int64_t rows = pj_int(l, 2);
  pj_type type = pj_result_type(l, 0);
  if (hlo_failed(h)) return;
  if (!pj_type_elements(&type) || !hlo_size(indices)) {
    pj_return_zeros(l, 0);
    return;
  }
  hlo_value index = hlo_flatten(h, pj_index_check_from_zero(l, indices, rows));
  pj_dtype dtype = pj_math_dtype(grad.dtype);
  grad = hlo_reshape(h, hlo_convert(h, grad, dtype), 2, (int64_t[]){index.dims[0], type.dims[1]});
  if (pj_bool(l, 4)) grad = over_frequency(l, grad, index, rows);
  index = without(l, index, index, pj_int(l, 3), rows);
  pj_return(l, 0, write_rows(l, HLO_ADD, zeros(l, dtype, 2, type.dims), index, grad));
}

// aten::embedding_renorm(self, indices, max_norm, norm_type): the rows in `indices` scaled down to max_norm
static void lower_embedding_renorm(pj_lowering *l) {
  hlo *h = l->h;
  pj_target target = pj_target_of(l);
  hlo_value indices = pj_tensor(l, 1), weight = pj_tensor(l, 0);
  double p = pj_float(l, 3);
  if (!pj_require(l, target.view.rank == 2, PJ_INVALID_ARGUMENT, "embedding_renorm_: self must be 2-D")) return;
  if (hlo_size(indices) == 0 || hlo_size(weight) == 0) {
    pj_return_target(l, target.base);
    return;
  }
  hlo_value index = hlo_flatten(h, pj_index_check_from_zero(l, indices, target.view.sizes[0]));
  hlo_value rows = hlo_take(h, weight, index, 0);
  pj_dtype dtype = pj_math_dtype(rows.dtype);
  rows = hlo_convert(h, rows, dtype);
  hlo_value size = hlo_abs(h, rows), norm;
  if (p == 2) norm = hlo_sqrt(h, hlo_reduce_sum(h, hlo_mul(h, size, size), 1));
  else if (p == 1) norm = hlo_reduce_sum(h, size, 1);
  else
    norm = hlo_pow(h, hlo_reduce_sum(h, hlo_pow(h, size, hlo_constant(h, dtype, p)), 1), hlo_constant(h, dtype, 1 / p));
  hlo_value most = pj_number(l, 2, dtype);
  // The same guard against division by zero as PyTorch's.
  hlo_value scale = hlo_div(h, most, hlo_add(h, norm, hlo_constant(h, dtype, 1e-7)));
  scale = hlo_select(h, hlo_gt(h, norm, most), scale, constant_like(l, norm, 1));
  pj_positions at = {.rank = 2, .indexed = {true}, .indices = {index}};
  pj_return_target(l, pj_positions_write(l, HLO_SECOND, &target, &at, hlo_mul(h, rows, hlo_keep(h, scale, 1))));
}

// ---- bags -----------------------------------------------------------------------------------------------------------

enum { BAG_SUM = 0, BAG_MEAN = 1, BAG_MAX = 2 };

// For each index the bag it lies in: the last one whose offset is not behind it; s32.
static hlo_value bag_of(pj_lowering *l, hlo_value offsets, int64_t count) {
  hlo *h = l->h;
  int64_t dims[] = {count, offsets.dims[0]};
  hlo_value place = hlo_iota(h, offsets.dtype, 2, dims, 0);
  hlo_value begun = hlo_le(h, hlo_broadcast_like(h, offsets, place), place);
  return hlo_sub(h, hlo_reduce_sum(h, hlo_convert(h, begun, PJ_S32), 1), hlo_constant_int(h, PJ_S32, 1));
}

// aten::_embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
// include_last_offset, padding_idx): (output, offset2bag, bag_size, max_indices)
static void lower_embedding_bag(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value weight = pj_tensor(l, 0), indices = pj_tensor(l, 1), offsets = pj_tensor(l, 2);
  int64_t mode = pj_int(l, 4), padding = pj_present(l, 8) ? pj_int(l, 8) : -1;
  pj_type out = pj_result_type(l, 0), size_type = pj_result_type(l, 2), largest_type = pj_result_type(l, 3);
  if (!pj_require(l, weight.rank == 2 && indices.rank == 1 && offsets.rank == 1, PJ_INVALID_ARGUMENT,
                  "embedding_bag: weight must be 2-D, indices and offsets 1-D"))
    return;
  int64_t bags = out.dims[0], count = indices.dims[0];
  if (count == 0 || !pj_type_elements(&out)) {
    for (int r = 0; r < 4; ++r) pj_return_zeros(l, r);
    return;
  }
  if (!pj_require(l, weight.dims[0] > 0, PJ_OUT_OF_RANGE, "index out of range in self")) return;
  if (padding < 0) padding += padding < -1 ? weight.dims[0] : 0;
  hlo_value index = pj_index_check_from_zero(l, indices, weight.dims[0]), bag = bag_of(l, offsets, count);
  hlo_value kept = without(l, bag, index, padding, size_type.dims[0] > bags ? size_type.dims[0] : bags);
  hlo_value rows = hlo_take(h, weight, index, 0);
  pj_dtype dtype = pj_math_dtype(rows.dtype);
  rows = hlo_convert(h, rows, dtype);
  if (pj_present(l, 6)) rows = hlo_mul(h, rows, hlo_keep(h, hlo_convert(h, pj_tensor(l, 6), dtype), 1));

  hlo_value sizes = write_rows(l, HLO_ADD, zeros(l, dtype, 1, size_type.dims), kept, hlo_constant(h, dtype, 1));
  hlo_value size = hlo_keep(h, hlo_slice_dim(h, sizes, 0, 0, bags), 1);
  hlo_value y, largest;
  if (mode == BAG_MAX) {
    hlo_value lowest = hlo_broadcast_to(h, hlo_lowest(h, dtype), 2, out.dims);
    y = write_rows(l, HLO_MAX, lowest, kept, rows);
    // The first place that holds the maximum, then its index.
    hlo_value hit = hlo_eq(h, rows, hlo_take(h, y, bag, 0));
    hlo_value place = hlo_iota(h, PJ_S32, 2, rows.dims, 0), none = hlo_constant_int(h, PJ_S32, count);
    place = hlo_select(h, hit, place, hlo_broadcast_like(h, none, place));
    hlo_value first = write_rows(l, HLO_MIN, hlo_broadcast_to(h, none, 2, out.dims), kept, place);
    hlo_value filled = hlo_broadcast_like(h, hlo_gt(h, size, hlo_constant(h, dtype, 0)), y);
    largest = hlo_select(h, filled, hlo_take(h, index, hlo_min(h, first, hlo_constant_int(h, PJ_S32, count - 1)), 0),
                         zeros(l, index.dtype, 2, out.dims));
    y = hlo_select(h, filled, y, zeros(l, dtype, 2, out.dims));
  } else {
    y = write_rows(l, HLO_ADD, zeros(l, dtype, 2, out.dims), kept, rows);
    if (mode == BAG_MEAN) y = hlo_div(h, y, hlo_max(h, size, hlo_constant(h, dtype, 1)));
    largest = zeros(l, PJ_S32, largest_type.rank, largest_type.dims);
  }
  pj_return(l, 0, y);
  pj_return(l, 1, bag);
  pj_return(l, 2, sizes);
  pj_return(l, 3, largest);
}

// Positions of the arguments that the two spellings of the gradient share.
typedef struct bag_arguments {
  int offset2bag, bag_size, max_indices, num_weights, by_frequency, mode, per_sample, padding;
} bag_arguments;

static void embedding_bag_backward(pj_lowering *l, bag_arguments a) {
  hlo *h = l->h;
  hlo_value grad = pj_tensor(l, 0), indices = pj_tensor(l, 1);
  pj_type out = pj_result_type(l, 0);
  int64_t rows = pj_int(l, a.num_weights), mode = pj_int(l, a.mode),
          padding = pj_present(l, a.padding) ? pj_int(l, a.padding) : -1;
  if (hlo_failed(h)) return;
  if (!hlo_size(indices) || !hlo_size(grad) || !pj_type_elements(&out)) {
    pj_return_zeros(l, 0);
    return;
  }
  pj_dtype dtype = pj_math_dtype(grad.dtype);
  grad = hlo_convert(h, grad, dtype);
  hlo_value result = zeros(l, dtype, 2, out.dims), size = hlo_convert(h, pj_tensor(l, a.bag_size), dtype);
  if (mode == BAG_MAX) {
    hlo_value at = hlo_convert(h, pj_tensor(l, a.max_indices), PJ_S32);
    hlo_value filled = hlo_keep(h, hlo_gt(h, hlo_slice_dim(h, size, 0, 0, grad.dims[0]), hlo_constant(h, dtype, 0)), 1);
    at = hlo_select(h, hlo_broadcast_like(h, filled, at), at, constant_like(l, at, rows));
    pj_positions where = pj_positions_along(l, at, 0);
    pj_target whole = pj_target_whole(result);
    pj_return(l, 0, pj_positions_write(l, HLO_ADD, &whole, &where, grad));
    return;
  }
  hlo_value bag = hlo_convert(h, pj_tensor(l, a.offset2bag), PJ_S32);
  hlo_value index = pj_index_check_from_zero(l, indices, rows), each = hlo_take(h, grad, bag, 0);
  if (pj_present(l, a.per_sample))
    each = hlo_mul(h, each, hlo_keep(h, hlo_convert(h, pj_tensor(l, a.per_sample), dtype), 1));
  if (mode == BAG_MEAN)
    each = hlo_div(h, each, hlo_keep(h, hlo_max(h, hlo_take(h, size, bag, 0), hlo_constant(h, dtype, 1)), 1));
  if (pj_bool(l, a.by_frequency)) each = over_frequency(l, each, index, rows);
  pj_return(l, 0, write_rows(l, HLO_ADD, result, without(l, index, index, padding, rows), each));
}

// aten::_embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights,
// scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx)
static void lower_embedding_bag_backward(pj_lowering *l) {
  if (pj_require(l, !pj_bool(l, 9), PJ_UNIMPLEMENTED,
                 "sparse gradients of embedding_bag are not supported on this device"))
    embedding_bag_backward(l, (bag_arguments){3, 4, 5, 6, 7, 8, 10, 11});
}

// aten::_embedding_bag_dense_backward: the same without offsets and sparse
static void lower_embedding_bag_dense_backward(pj_lowering *l) {
  embedding_bag_backward(l, (bag_arguments){2, 3, 4, 5, 6, 7, 8, 9});
}

// aten::_embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, offset2bag, mode, padding_idx): for
// each index the product of its row with its bag's gradient
static void lower_per_sample_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = pj_tensor(l, 0), weight = pj_tensor(l, 1), indices = pj_tensor(l, 2);
  int64_t padding = pj_present(l, 6) ? pj_int(l, 6) : -1;
  if (hlo_failed(h)) return;
  if (!hlo_size(indices) || !hlo_size(grad) || !hlo_size(weight)) {
    pj_return_zeros(l, 0);
    return;
  }
  pj_dtype dtype = pj_math_dtype(grad.dtype);
  hlo_value index = pj_index_check_from_zero(l, indices, weight.dims[0]);
  hlo_value each = hlo_take(h, hlo_convert(h, grad, dtype), hlo_convert(h, pj_tensor(l, 4), PJ_S32), 0);
  hlo_value y = hlo_reduce_sum(h, hlo_mul(h, each, hlo_convert(h, hlo_take(h, weight, index, 0), dtype)), 1);
  if (padding >= 0)
    y = hlo_select(h, hlo_eq(h, index, hlo_constant_int(h, index.dtype, padding)), constant_like(l, y, 0), y);
  pj_return(l, 0, y);
}

PJ_LOWERINGS(embedding_lowerings) = {
    {.name = "aten::embedding", .lower = lower_embedding},
    {.name = "aten::embedding_dense_backward", .lower = lower_embedding_dense_backward},
    {.name = "aten::embedding_renorm", .lower = lower_embedding_renorm, .flags = PJ_OP_WRITES, .statics = PJ_STATIC(3)},
    {.name = "aten::_embedding_bag", .lower = lower_embedding_bag},
    {.name = "aten::_embedding_bag_forward_only", .lower = lower_embedding_bag},
    {.name = "aten::_embedding_bag_backward", .lower = lower_embedding_bag_backward},
    {.name = "aten::_embedding_bag_dense_backward", .lower = lower_embedding_bag_dense_backward},
    {.name = "aten::_embedding_bag_per_sample_weights_backward", .lower = lower_per_sample_backward},
    {0},
};
