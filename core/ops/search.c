// Binary search in sorted sequences.
#include "ops/reduce.h"

// rows[b, places[b, i]]
static hlo_value take_from_rows(hlo *h, hlo_value rows, hlo_value places) {
  hlo_gather_spec spec = {.collapsed = {1}, .collapsed_count = 1, .operand_batching = {0}, .indices_batching = {0},
                          .batching_count = 1, .start_index_map = {1}, .start_count = 1, .index_vector_dim = 2,
                          .slice_sizes = {1, 1}};
  return hlo_gather(h, rows, places, &spec);
}

typedef struct search {
  hlo_value sequence, values;  // [batch, n] and [batch, m]
  bool right;
} search;

static int64_t steps_for(int64_t n) {
  int64_t steps = 0;
  while (n >> steps) ++steps;
  return steps;
}

// Loop state: step, low, high. The answer lies in [low, high].
static void more_steps(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  const search *s = context;
  results[0] = hlo_lt(h, arguments[0], hlo_constant_int(h, PJ_S32, steps_for(s->sequence.dims[1])));
}

// Goes right while not (sequence[middle] >= value), or > for `right`: written with the negation so that a NaN value
// goes to the end, as in PyTorch.
static void halve(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  const search *s = context;
  hlo_value low = arguments[1], high = arguments[2], one = hlo_constant_int(h, PJ_S32, 1);
  hlo_value middle = hlo_div(h, hlo_add(h, low, high), hlo_constant_int(h, PJ_S32, 2));
  hlo_value at = take_from_rows(h, s->sequence, middle);
  hlo_value stop = s->right ? hlo_gt(h, at, s->values) : hlo_ge(h, at, s->values);
  hlo_value open = hlo_lt(h, low, high), go_right = hlo_and(h, open, hlo_not(h, stop)),
            go_left = hlo_and(h, open, stop);
  results[0] = hlo_add(h, arguments[0], one);
  results[1] = hlo_select(h, go_right, hlo_add(h, middle, one), low);
  results[2] = hlo_select(h, go_left, middle, high);
}

// The number of elements of each sequence that come before the value.
static hlo_value places(hlo *h, search *s) {
  int64_t n = s->sequence.dims[1];
  hlo_value starts[] = {hlo_constant_int(h, PJ_S32, 0), hlo_full(h, PJ_S32, 2, s->values.dims, 0),
                        hlo_full(h, PJ_S32, 2, s->values.dims, (double)n)}, found[3];
  hlo_while(h, starts, 3, more_steps, halve, s, found);
  return found[1];
}

static void search_in(pj_lowering *l, hlo_value sequence, hlo_value values, pj_dtype dtype, bool right) {
  hlo *h = l->h;
  int64_t n = sequence.rank ? sequence.dims[sequence.rank - 1] : 1;
  if (n == 0 || hlo_size(values) == 0) {
    pj_type type = pj_result_type(l, 0);
    pj_return(l, 0, hlo_full(h, type.dtype, type.rank, type.dims, 0));
    return;
  }
  int64_t batch = hlo_size(sequence) / n;
  search s = {.right = right};
  s.sequence = hlo_reshape(h, hlo_convert(h, sequence, dtype), 2, (int64_t[]){batch, n});
  s.values = hlo_reshape(h, hlo_convert(h, values, dtype), 2, (int64_t[]){batch, hlo_size(values) / batch});
  pj_return_reshaped(l, 0, places(h, &s));
}

static bool require_sorted_sequence(pj_lowering *l, hlo_value boundaries) {
  return pj_require(l, boundaries.rank == 1, PJ_INVALID_ARGUMENT,
                    "boundaries tensor must be 1 dimension, but got dim(%d)", boundaries.rank);
}

// aten::bucketize(self, boundaries, *, out_int32, right)
static void lower_bucketize(pj_lowering *l) {
  hlo_value boundaries = pj_tensor(l, 1);
  if (!require_sorted_sequence(l, boundaries)) return;
  search_in(l, boundaries, pj_tensor(l, 0), pj_promote(l, (int[]){0, 1}, 2), pj_bool(l, 3));
}

// aten::searchsorted(sorted_sequence, self, *, out_int32, right, side, sorter)
static void lower_searchsorted(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value sequence = pj_tensor(l, 0), values = pj_tensor(l, 1);
  const char *side = pj_string(l, 4);
  bool right = pj_bool(l, 3) || !strcmp(side, "right");
  if (!pj_require(l, !*side || !strcmp(side, "left") || !strcmp(side, "right"), PJ_INVALID_ARGUMENT,
                  "torch.searchsorted(): side can only be 'left' or 'right' but got %s", side) ||
      !pj_require(
          l, !(pj_bool(l, 3) && !strcmp(side, "left")), PJ_INVALID_ARGUMENT,
          "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"))
    return;
  bool leading = sequence.rank == 1 || sequence.rank == values.rank;
  for (int d = 0; sequence.rank > 1 && leading && d < values.rank - 1; ++d)
    leading = sequence.dims[d] == values.dims[d];
  if (!pj_require(l, leading, PJ_INVALID_ARGUMENT,
                  "torch.searchsorted(): boundaries tensor should be 1 dimension or the "
                  "first N-1 dimensions of boundaries tensor and input value tensor must match"))
    return;
  if (pj_present(l, 5) && hlo_size(sequence) > 0) {
    int64_t n = sequence.dims[sequence.rank - 1], batch = hlo_size(sequence) / n;
    hlo_value order = pj_tensor(l, 5);
    if (!pj_require(l, hlo_same_dims(order, sequence), PJ_INVALID_ARGUMENT, "torch.searchsorted(): boundary and sorter "
                    "must have the same size")) return;
    hlo_value flat = take_from_rows(h, hlo_reshape(h, sequence, 2, (int64_t[]){batch, n}),
                                    hlo_reshape(h, order, 2, (int64_t[]){batch, n}));
    sequence = hlo_reshape(h, flat, sequence.rank, sequence.dims);
  }
  search_in(l, sequence, values, pj_promote(l, (int[]){0, 1}, 2), right);
}

PJ_LOWERINGS(search_lowerings) = {
    {"aten::bucketize.Tensor", lower_bucketize},
    {"aten::bucketize.Scalar", lower_bucketize},
    {"aten::searchsorted.Tensor", lower_searchsorted},
    {"aten::searchsorted.Scalar", lower_searchsorted},
    {0},
};
