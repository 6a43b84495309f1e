#include <inttypes.h>

#include "hlo/internal.h"

static bool sorted_dims(hlo *h, const char *op, const char *what, const int *dims, int count) {
  for (int i = 1; i < count; ++i)
    if (dims[i - 1] >= dims[i]) return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s must be sorted", op, what), false;
  return true;
}

// What gather and scatter share: batching dimensions pair up, the index vector has `count` entries, one for each
// dimension of the operand that it moves, and `dropped` and batching dimensions have slices of one element that the
// window lacks.
typedef struct index_numbers {
  const char *op;
  hlo_value operand, indices;
  const int *dropped, *operand_batching, *indices_batching, *index_map;
  int dropped_count, batching_count, index_count, index_vector_dim;
} index_numbers;

// `out_window`: the operand's dimensions that the window keeps. `out_batch`: the dimensions of the indices, less the
// vector.
static bool check_numbers(hlo *h, const index_numbers *n, bool out_window[PJ_MAX_RANK], hlo_value *out_batch) {
  bool gone[PJ_MAX_RANK] = {false}, moved[PJ_MAX_RANK] = {false}, batched[PJ_MAX_RANK] = {false};
  hlo_value x = n->operand, indices = n->indices;
  int vector = n->index_vector_dim;
  if (!hlo_want_kind(h, n->op, indices, KIND_INTEGER) ||
      !hlo_dim_set(h, n->op, "dropped window dimensions", x, n->dropped, n->dropped_count, gone) ||
      !hlo_dim_set(h, n->op, "operand batching dimensions", x, n->operand_batching, n->batching_count, gone) ||
      !hlo_dim_set(h, n->op, "operand batching and index map", x, n->operand_batching, n->batching_count, moved) ||
      !hlo_dim_set(h, n->op, "operand batching and index map", x, n->index_map, n->index_count, moved) ||
      !hlo_dim_set(h, n->op, "indices batching dimensions", indices, n->indices_batching, n->batching_count, batched) ||
      !sorted_dims(h, n->op, "dropped window dimensions", n->dropped, n->dropped_count) ||
      !sorted_dims(h, n->op, "operand batching dimensions", n->operand_batching, n->batching_count))
    return false;
  int64_t entries = vector == indices.rank ? 1 : vector >= 0 && vector < indices.rank ? indices.dims[vector] : -1;
  if (entries != n->index_count || (vector < indices.rank && batched[vector]))
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: dimension %d of indices %s does not hold %d entries", n->op, vector,
                    TYPE(indices), n->index_count), false;
  for (int i = 0; i < n->batching_count; ++i)
    if (x.dims[n->operand_batching[i]] != indices.dims[n->indices_batching[i]])
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: batching dimension %d of %s and %d of %s differ", n->op,
                      n->operand_batching[i], TYPE(x), n->indices_batching[i], TYPE(indices)), false;
  for (int i = 0; i < x.rank; ++i) out_window[i] = !gone[i];
  *out_batch = hlo_type(indices.dtype, 0, NULL);
  for (int i = 0; i < indices.rank; ++i)
    if (i != vector) out_batch->dims[out_batch->rank++] = indices.dims[i];
  return true;
}

// Joins window dimensions, which go to the places `window_dims`, and batch dimensions, which fill the others in order.
static bool join_dims(hlo *h, const char *op, hlo_value window, hlo_value batch, const int *window_dims, int count,
                      hlo_value *result) {
  result->rank = window.rank + batch.rank;
  bool placed[PJ_MAX_RANK] = {false};
  if (count != window.rank || result->rank > PJ_MAX_RANK)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %d window dimensions for the window %s and the batch %s", op, count,
                    TYPE(window), TYPE(batch)), false;
  if (!hlo_dim_set(h, op, "window dimensions", *result, window_dims, count, placed) ||
      !sorted_dims(h, op, "window dimensions", window_dims, count))
    return false;
  for (int i = 0, w = 0, b = 0; i < result->rank; ++i) result->dims[i] = placed[i] ? window.dims[w++] : batch.dims[b++];
  return true;
}

hlo_value hlo_gather(hlo *h, hlo_value operand, hlo_value indices, const hlo_gather_spec *spec) {
  const char *op = "stablehlo.gather";
  const hlo_gather_spec *s = spec;
  hlo_value operands[2] = {operand, indices}, batch, window = hlo_type(operand.dtype, 0, NULL), result = window;
  bool kept[PJ_MAX_RANK];
  index_numbers numbers = {op,
                           operand,
                           indices,
                           s->collapsed,
                           s->operand_batching,
                           s->indices_batching,
                           s->start_index_map,
                           s->collapsed_count,
                           s->batching_count,
                           s->start_count,
                           s->index_vector_dim};
  if (!hlo_usable(h, op, operands, 2) || !check_numbers(h, &numbers, kept, &batch)) return hlo_invalid();
  for (int i = 0; i < operand.rank; ++i) {
    int64_t size = s->slice_sizes[i];
    if (size < 0 || size > operand.dims[i] || (!kept[i] && size > 1))
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: slice size %" PRId64 " in dimension %d of %s", op, size, i,
                      TYPE(operand));
    if (kept[i]) window.dims[window.rank++] = size;
  }
  if (!join_dims(h, op, window, batch, s->offset_dims, s->offset_count, &result) ||
      !hlo_begin(h, op, operands, 2, &result, 1))
    return hlo_invalid();
  hlo_attribute(h, "dimension_numbers");
  hlo_put(h, "#stablehlo.gather<");
  hlo_put_dims(h, "offset_dims", s->offset_dims, s->offset_count);
  hlo_put_dims(h, ", collapsed_slice_dims", s->collapsed, s->collapsed_count);
  hlo_put_dims(h, ", operand_batching_dims", s->operand_batching, s->batching_count);
  hlo_put_dims(h, ", start_indices_batching_dims", s->indices_batching, s->batching_count);
  hlo_put_dims(h, ", start_index_map", s->start_index_map, s->start_count);
  hlo_put(h, ", index_vector_dim = ");
  hlo_put_int(h, s->index_vector_dim);
  hlo_put(h, ">");
  hlo_attribute_ints(h, "slice_sizes", s->slice_sizes, operand.rank);
  hlo_attribute_bool(h, "indices_are_sorted", s->sorted);
  hlo_end(h, operands, 2, &result, 1);
  return result;
}

hlo_value hlo_scatter(hlo *h, hlo_op op, hlo_value operand, hlo_value indices, hlo_value updates,
                      const hlo_scatter_spec *spec) {
  const char *name = "stablehlo.scatter";
  const hlo_scatter_spec *s = spec;
  hlo_value operands[3] = {operand, indices, updates}, result = hlo_retyped(operand, operand.dtype);
  hlo_value batch, window = hlo_type(operand.dtype, 0, NULL), expected = window;
  bool kept[PJ_MAX_RANK], placed[PJ_MAX_RANK] = {false};
  index_numbers numbers = {name,
                           operand,
                           indices,
                           s->inserted,
                           s->operand_batching,
                           s->indices_batching,
                           s->scatter_dims,
                           s->inserted_count,
                           s->batching_count,
                           s->scatter_count,
                           s->index_vector_dim};
  if (!hlo_usable(h, name, operands, 3) || !check_numbers(h, &numbers, kept, &batch) ||
      !hlo_dim_set(h, name, "window dimensions", updates, s->update_window, s->update_window_count, placed))
    return hlo_invalid();
  // The window of the updates may be smaller than the operand in the dimensions it keeps.
  for (int i = 0; i < operand.rank; ++i) {
    if (!kept[i]) continue;
    int w = window.rank++;
    window.dims[w] = w < s->update_window_count ? updates.dims[s->update_window[w]] : 0;
    if (window.dims[w] > operand.dims[i])
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: the window of %s does not fit in dimension %d of %s", name,
                      TYPE(updates), i, TYPE(operand));
  }
  if (!join_dims(h, name, window, batch, s->update_window, s->update_window_count, &expected)) return hlo_invalid();
  if (!hlo_same_type(expected, updates))
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: updates %s for %s and indices %s, expected %s", name, TYPE(updates),
                    TYPE(operand), TYPE(indices), TYPE(expected));
  if (!hlo_begin(h, name, operands, 3, &result, 1)) return result;
  hlo_value scalars[2] = {hlo_type(operand.dtype, 0, NULL), hlo_type(operand.dtype, 0, NULL)}, scalar = scalars[0];
  hlo_put(h, " (");
  hlo_region(h, name, true, scalars, 2, hlo_apply_body, &op, &scalar, 1);
  hlo_put(h, ")");
  hlo_attribute(h, "scatter_dimension_numbers");
  hlo_put(h, "#stablehlo.scatter<");
  hlo_put_dims(h, "update_window_dims", s->update_window, s->update_window_count);
  hlo_put_dims(h, ", inserted_window_dims", s->inserted, s->inserted_count);
  hlo_put_dims(h, ", input_batching_dims", s->operand_batching, s->batching_count);
  hlo_put_dims(h, ", scatter_indices_batching_dims", s->indices_batching, s->batching_count);
  hlo_put_dims(h, ", scatter_dims_to_operand_dims", s->scatter_dims, s->scatter_count);
  hlo_put(h, ", index_vector_dim = ");
  hlo_put_int(h, s->index_vector_dim);
  hlo_put(h, ">");
  hlo_attribute_bool(h, "indices_are_sorted", s->sorted);
  hlo_attribute_bool(h, "unique_indices", s->unique);
  hlo_end(h, operands, 3, &result, 1);
  return result;
}

hlo_value hlo_take(hlo *h, hlo_value x, hlo_value indices, int dim) {
  if (!hlo_usable(h, "take", (hlo_value[]){x, indices}, 2) || !hlo_normal_dim(h, "take", x, &dim)) return hlo_invalid();
  if (x.rank - 1 + indices.rank > PJ_MAX_RANK)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "take: %s at %s has too many dimensions", TYPE(x), TYPE(indices));
  hlo_gather_spec spec = {.collapsed = {dim}, .collapsed_count = 1, .start_index_map = {dim}, .start_count = 1,
                          .index_vector_dim = indices.rank};
  for (int i = 0; i < x.rank; ++i) {
    spec.slice_sizes[i] = i == dim ? x.dims[i] > 0 : x.dims[i];
    if (i != dim) spec.offset_dims[spec.offset_count++] = i < dim ? i : i - 1 + indices.rank;
  }
  return hlo_gather(h, x, indices, &spec);
}
