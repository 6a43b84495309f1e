// Scaled dot product attention as one program: softmax(scale * q k^T + bias) v. Heads that share a key head (grouped
// query attention) are rows of one product, so keys and values are never repeated.
#include <math.h>

#include "ops/reduce.h"
#include "ops/room.h"

typedef struct attention {
  int64_t batch, heads, groups, rows, columns;  // groups: query heads a key head; rows, columns: lengths of q and of k
  int64_t width, value_width;
  pj_dtype dtype, math;  // of the operands; of the scores
  hlo_value q, k, v;  // [batch * key heads, groups * rows, width], [batch * key heads, columns, width or value_width]
  hlo_value scale;
} attention;

// [.., heads, length, width] as [batch * key heads, groups * length, width]
static hlo_value by_key_head(hlo *h, const attention *a, hlo_value x, int64_t groups) {
  int64_t length = x.dims[x.rank - 2], width = x.dims[x.rank - 1];
  return hlo_reshape(h, x, 3, (int64_t[]){a->batch * a->heads / a->groups, groups * length, width});
}

static hlo_value as_scores(hlo *h, const attention *a, hlo_value x) {
  return hlo_reshape(h, x, 4, (int64_t[]){a->batch, a->heads, a->rows, a->columns});
}

static hlo_value as_rows(hlo *h, const attention *a, hlo_value scores) {
  return hlo_reshape(h, scores, 3,
                     (int64_t[]){a->batch * a->heads / a->groups, a->groups * a->rows, a->columns});
}

// One number a query, at the rows of the products.
static hlo_value as_row_numbers(hlo *h, const attention *a, hlo_value x) {
  return hlo_reshape(h, x, 3, (int64_t[]){a->batch * a->heads / a->groups, a->groups * a->rows, 1});
}

// q, k and v: [.., heads, length, width]
static bool attention_of(pj_lowering *l, hlo_value q, hlo_value k, hlo_value v, int scale_argument, attention *a) {
  hlo *h = l->h;
  if (hlo_failed(h)) return false;
  if (!pj_require(l, (q.rank == 3 || q.rank == 4) && k.rank == q.rank && v.rank == q.rank, PJ_INVALID_ARGUMENT,
                  "attention: query, key and value must all have 3 or all have 4 dimensions") ||
      !pj_require(l, q.dtype == k.dtype && q.dtype == v.dtype, PJ_INVALID_ARGUMENT,
                  "attention: expected query, key, and value to have the same dtype")) return false;
  int r = q.rank;
  int64_t key_heads = k.dims[r - 3];
  bool fits = k.dims[r - 1] == q.dims[r - 1] && v.dims[r - 2] == k.dims[r - 2] && v.dims[r - 3] == key_heads &&
              key_heads > 0 && q.dims[r - 3] % key_heads == 0 &&
              (r == 3 || (q.dims[0] == k.dims[0] && q.dims[0] == v.dims[0]));
  if (!pj_require(l, fits, PJ_INVALID_ARGUMENT, "attention: the sizes of query, key and value do not fit together"))
    return false;
  *a = (attention){.batch = r == 4 ? q.dims[0] : 1, .heads = q.dims[r - 3], .groups = q.dims[r - 3] / key_heads,
                   .rows = q.dims[r - 2], .columns = k.dims[r - 2], .width = q.dims[r - 1],
                   .value_width = v.dims[r - 1], .dtype = q.dtype, .math = pj_math_dtype(q.dtype)};
  a->q = by_key_head(h, a, q, a->groups);
  a->k = by_key_head(h, a, k, 1);
  a->v = by_key_head(h, a, v, 1);
  a->scale = pj_present(l, scale_argument) ? pj_number(l, scale_argument, a->math)
                                           : hlo_constant(h, a->math, 1 / sqrt((double)a->width));
  return true;
}

// x y^T and x^T y of three-dimensional values, accumulated in the scores' dtype
static hlo_value times_transposed(hlo *h, const attention *a, hlo_value x, hlo_value y) {
  return hlo_dot_general(h, x, y, (int[]){0}, (int[]){0}, 1, (int[]){2}, (int[]){2}, 1, a->math);
}

static hlo_value transposed_times(hlo *h, const attention *a, hlo_value x, hlo_value y) {
  return hlo_dot_general(h, x, y, (int[]){0}, (int[]){0}, 1, (int[]){1}, (int[]){1}, 1, a->math);
}

// scale * q k^T, [batch, heads, rows, columns]
static hlo_value products_of(hlo *h, const attention *a) {
  return hlo_mul(h, as_scores(h, a, times_transposed(h, a, a->q, a->k)), a->scale);
}

// scale * q k^T + bias, and -inf where a boolean bias is false, the key lies in room or, when causal, the key comes
// after the query
static hlo_value scores_of(pj_lowering *l, const attention *a, int key_argument, int bias_argument, bool causal) {
  hlo *h = l->h;
  hlo_value s = products_of(h, a);
  hlo_value masked = hlo_lowest(h, a->math);
  if (pj_present(l, bias_argument)) {
    hlo_value bias = pj_tensor(l, bias_argument);
    s = bias.dtype == PJ_PRED ? hlo_select(h, hlo_broadcast_like(h, bias, s), s, masked)
                              : hlo_add(h, s, hlo_convert(h, bias, a->math));
  }
  if (causal) {
    hlo_value query = hlo_iota(h, PJ_S32, 4, s.dims, 2), key = hlo_iota(h, PJ_S32, 4, s.dims, 3);
    s = hlo_select(h, hlo_le(h, key, query), s, masked);
  }
  const pj_operand *keys = pj_operand_of(l, key_argument);
  if (keys->room >= 0) s = hlo_select(h, pj_room_counts(l, keys, 4, s.dims, 3), s, masked);
  return as_rows(h, a, s);
}

// Rows that are masked wholly have no largest score; with 0 in its place their weights are exp(-inf) = 0.
static hlo_value finite_or_zero(hlo *h, hlo_value x) {
  hlo_value none = hlo_eq(h, x, hlo_lowest(h, x.dtype));
  return hlo_select(h, none, pj_full_like(h, x, 0), x);
}

static const pj_axes COLUMNS = {.dims = {2}, .count = 1};

static bool require_no_dropout(pj_lowering *l, int argument) {
  return pj_require(l, pj_float(l, argument) == 0, PJ_UNIMPLEMENTED, "attention: dropout has no lowering");
}

// softmax(s) v at the rows of the products, and log(sum(exp(s))) of each
static hlo_value mixed_by(hlo *h, const attention *a, hlo_value s, hlo_value *out_logsumexp) {
  hlo_value most = finite_or_zero(h, pj_reduce(h, HLO_MAX, s, &COLUMNS));
  hlo_value weights = hlo_exp(h, hlo_sub(h, s, hlo_keep(h, most, 2)));
  hlo_value sum = pj_reduce(h, HLO_ADD, weights, &COLUMNS);
  hlo_value mixed = hlo_matmul(h, hlo_convert(h, weights, a->dtype), a->v, a->math);
  hlo_value divisor = hlo_select(h, hlo_eq(h, sum, pj_full_like(h, sum, 0)), pj_full_like(h, sum, 1), sum);
  *out_logsumexp = hlo_add(h, hlo_log(h, sum), most);
  return hlo_div(h, mixed, hlo_keep(h, divisor, 2));
}

// With p = exp(s - logsumexp): dv = p^T do, ds = p * (do v^T - rowsum(do * out)), dq = scale * ds k,
// dk = scale * ds^T q.
typedef struct gradients { hlo_value q, k, v, scores; } gradients;

static gradients gradients_of(hlo *h, const attention *a, hlo_value s, hlo_value logsumexp, hlo_value out,
                              hlo_value grad) {
  hlo_value p = hlo_exp(h, hlo_sub(h, s, finite_or_zero(h, logsumexp)));
  hlo_value product = hlo_mul(h, hlo_convert(h, grad, a->math), hlo_convert(h, out, a->math));
  hlo_value delta = hlo_keep(h, pj_reduce(h, HLO_ADD, product, &COLUMNS), 2);
  hlo_value ds = hlo_mul(h, p, hlo_sub(h, times_transposed(h, a, grad, a->v), delta));
  hlo_value scaled = hlo_convert(h, hlo_mul(h, ds, a->scale), a->dtype);
  return (gradients){.q = hlo_matmul(h, scaled, a->k, a->math), .k = transposed_times(h, a, scaled, a->q),
                     .v = transposed_times(h, a, hlo_convert(h, p, a->dtype), grad), .scores = ds};
}

// Results beside the integers max_q and max_k and the undefined tensors, which are not in the list.
enum { OUTPUT, LOGSUMEXP, SEED, OFFSET };

// aten::_scaled_dot_product_fused_attention_overrideable(query, key, value, attn_bias, dropout_p, is_causal,
// return_debug_mask, *, scale)
static void lower_attention(pj_lowering *l) {
  hlo *h = l->h;
  attention a;
  hlo_value v = pj_room_filled(l, pj_operand_of(l, 2), pj_tensor(l, 2), PJ_ROOM_ZERO);  // a weight of 0 times anything but NaN
  if (!require_no_dropout(l, 4) || !attention_of(l, pj_tensor(l, 0), pj_tensor(l, 1), v, 7, &a)) return;
  hlo_value logsumexp, out = mixed_by(h, &a, scores_of(l, &a, 1, 3, pj_bool(l, 5)), &logsumexp);
  pj_return_reshaped(l, OUTPUT, out);
  pj_return_reshaped(l, LOGSUMEXP, logsumexp);
  for (int i = SEED; i <= OFFSET; ++i)
    if (pj_wanted(l, i)) pj_return_reshaped(l, i, hlo_constant_int(h, PJ_S64, 0));
}

// Sums what a broadcast bias was added to.
static hlo_value sum_to(hlo *h, hlo_value grad, pj_type bias) {
  pj_axes axes = {.count = 0};
  for (int d = 0; d < grad.rank; ++d) {
    int at = d - (grad.rank - bias.rank);
    if (at < 0 || bias.dims[at] != grad.dims[d]) axes.dims[axes.count++] = d;
  }
  return pj_reduce(h, HLO_ADD, grad, &axes);
}

// aten::_scaled_dot_product_fused_attention_overrideable_backward(grad_out, query, key, value, attn_bias,
// grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed,
// philox_offset, *, scale). The bias's gradient is that of the scores.
static void lower_attention_backward(pj_lowering *l) {
  hlo *h = l->h;
  attention a;
  if (!require_no_dropout(l, 12) || !attention_of(l, pj_tensor(l, 1), pj_tensor(l, 2), pj_tensor(l, 3), 16, &a)) return;
  hlo_value grad = by_key_head(h, &a, pj_tensor(l, 0), a.groups), out = by_key_head(h, &a, pj_tensor(l, 6), a.groups);
  hlo_value logsumexp = hlo_convert(h, as_row_numbers(h, &a, pj_tensor(l, 7)), a.math);
  gradients g = gradients_of(h, &a, scores_of(l, &a, 2, 4, pj_bool(l, 13)), logsumexp, out, grad);
  pj_return_reshaped(l, 0, g.q);
  pj_return_reshaped(l, 1, g.k);
  pj_return_reshaped(l, 2, g.v);
  if (!pj_wanted(l, 3)) return;
  int count;
  const int64_t *asked = pj_ints(l, 5, &count);
  pj_type bias = pj_result_type(l, 3);
  if (count == 4 && asked[3]) pj_return_reshaped(l, 3, sum_to(h, as_scores(h, &a, g.scores), bias));
  else pj_return(l, 3, hlo_full(h, bias.dtype, bias.rank, bias.dims, 0));
}

// ---- sequences of different lengths, one after the other ------------------------------------------------------------

// [length, heads, width] as [heads, length, width], and back
static hlo_value swap_heads(hlo *h, hlo_value x) { return hlo_swap(h, x, 0, 1); }

// Of `length` rows, in which sequence each is, and how far before the end of that (negative). `bounds` are where
// sequences begin and end: 0, the first one's end, ... Rows after the last end are in no sequence.
typedef struct places { hlo_value sequence, end; } places;

static places places_of(hlo *h, hlo_value bounds, int64_t length) {
  int64_t dims[2] = {length, bounds.dims[0]};
  hlo_value row = hlo_iota(h, PJ_S32, 2, dims, 0);
  hlo_value bound = hlo_broadcast_in_dim(h, hlo_convert(h, bounds, PJ_S32), 2, dims, (int[]){1});
  hlo_value begun = hlo_le(h, bound, row), most = hlo_broadcast_to(h, hlo_highest(h, PJ_S32), 2, dims);
  hlo_value end = hlo_reduce(h, HLO_MIN, hlo_select(h, begun, most, bound), (int[]){1}, 1);
  return (places){.sequence = hlo_reduce_sum(h, hlo_convert(h, begun, PJ_S32), 1),
                  .end = hlo_sub(h, hlo_iota(h, PJ_S32, 1, &length, 0), end)};
}

// -inf where query and key are in different sequences, or the key is outside of the window round the query. Both are
// counted from the ends of their sequences, as FlashAttention aligns a causal mask when the lengths differ.
static hlo_value scores_in_sequences(pj_lowering *l, const attention *a, int bounds, int causal, int window) {
  hlo *h = l->h;
  hlo_value bounds_q = pj_tensor(l, bounds), bounds_k = pj_tensor(l, bounds + 1);
  bool vectors = bounds_q.rank == 1 && bounds_k.rank == 1 && bounds_q.dims[0] == bounds_k.dims[0];
  if (!pj_require(l, vectors && bounds_q.dims[0] > 0, PJ_INVALID_ARGUMENT,
                  "attention: cu_seq_q and cu_seq_k must be vectors of the same length, from 1 up")) return bounds_q;
  places q = places_of(h, bounds_q, a->rows), k = places_of(h, bounds_k, a->columns);
  hlo_value s = products_of(h, a);
  hlo_value sequence = hlo_broadcast_in_dim(h, q.sequence, 4, s.dims, (int[]){2});
  hlo_value keep = hlo_and(h, hlo_eq(h, sequence, hlo_broadcast_in_dim(h, k.sequence, 4, s.dims, (int[]){3})),
                           hlo_lt(h, sequence, hlo_constant_int(h, PJ_S32, bounds_q.dims[0])));
  hlo_value ahead = hlo_sub(h, hlo_broadcast_in_dim(h, k.end, 4, s.dims, (int[]){3}),
                            hlo_broadcast_in_dim(h, q.end, 4, s.dims, (int[]){2}));
  int64_t left = pj_present(l, window) ? pj_int(l, window) : -1;
  int64_t right = pj_bool(l, causal) ? 0 : pj_present(l, window + 1) ? pj_int(l, window + 1) : -1;
  if (left >= 0) keep = hlo_and(h, keep, hlo_ge(h, ahead, hlo_constant_int(h, PJ_S32, -left)));
  if (right >= 0) keep = hlo_and(h, keep, hlo_le(h, ahead, hlo_constant_int(h, PJ_S32, right)));
  return as_rows(h, a, hlo_select(h, keep, s, hlo_lowest(h, a->math)));
}

static bool sequences_of(pj_lowering *l, int q, int bounds, int dropout, int scale, attention *a) {
  hlo *h = l->h;
  hlo_value x[3];
  bool ranks = true;
  for (int i = 0; i < 3; ++i) {
    x[i] = pj_tensor(l, q + i);
    ranks = ranks && x[i].rank == 3;
  }
  return pj_require(l, ranks && pj_present(l, bounds) && pj_present(l, bounds + 1), PJ_INVALID_ARGUMENT,
                    "flash attention on the tpu device is that of varlen_attn: query, key and value of 3 dimensions, "
                    "cu_seq_q and cu_seq_k given; else use scaled_dot_product_attention") &&
         require_no_dropout(l, dropout) &&
         attention_of(l, swap_heads(h, x[0]), swap_heads(h, x[1]), swap_heads(h, x[2]), scale, a);
}

static void return_by_length(pj_lowering *l, int result, hlo_value x, int64_t heads, int64_t length) {
  int64_t width = x.dims[x.rank - 1];
  pj_return(l, result, swap_heads(l->h, hlo_reshape(l->h, x, 3, (int64_t[]){heads, length, width})));
}

// aten::_flash_attention_forward(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
// return_debug_mask, *, scale, window_size_left, window_size_right, seqused_k, alibi_slopes, block_table, num_splits)
static void lower_sequences(pj_lowering *l) {
  hlo *h = l->h;
  attention a;
  bool plain = !pj_present(l, 13) && !pj_present(l, 14) && !pj_present(l, 15) && !pj_bool(l, 9);
  if (!pj_require(l, plain, PJ_INVALID_ARGUMENT, "flash attention on the tpu device has no seqused_k, alibi_slopes, "
                                                 "block_table and debug mask") ||
      !sequences_of(l, 0, 3, 7, 10, &a)) return;
  hlo_value logsumexp, out = mixed_by(h, &a, scores_in_sequences(l, &a, 3, 8, 11), &logsumexp);
  return_by_length(l, 0, out, a.heads, a.rows);
  pj_return_reshaped(l, 1, logsumexp);
  for (int i = 2; i < 5; ++i) {  // the random state, and what nobody uses
    pj_type type = pj_result_type(l, i);
    pj_return(l, i, hlo_full(h, type.dtype, type.rank, type.dims, 0));
  }
}

// aten::_flash_attention_backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
// dropout_p, is_causal, rng_state, unused, *, scale, window_size_left, window_size_right)
static void lower_sequences_backward(pj_lowering *l) {
  hlo *h = l->h;
  attention a;
  if (!sequences_of(l, 1, 6, 10, 14, &a)) return;
  hlo_value grad = by_key_head(h, &a, swap_heads(h, pj_tensor(l, 0)), a.groups);
  hlo_value out = by_key_head(h, &a, swap_heads(h, pj_tensor(l, 4)), a.groups);
  hlo_value logsumexp = hlo_convert(h, as_row_numbers(h, &a, pj_tensor(l, 5)), a.math);
  gradients g = gradients_of(h, &a, scores_in_sequences(l, &a, 6, 11, 15), logsumexp, out, grad);
  return_by_length(l, 0, g.q, a.heads, a.rows);
  return_by_length(l, 1, g.k, a.heads / a.groups, a.columns);
  return_by_length(l, 2, g.v, a.heads / a.groups, a.columns);
}

PJ_LOWERINGS(attention_lowerings) = {
    {"aten::_scaled_dot_product_fused_attention_overrideable", lower_attention, .statics = PJ_STATIC(4)},
    {"aten::_scaled_dot_product_fused_attention_overrideable_backward", lower_attention_backward,
     .statics = PJ_STATIC(12)},
    // max_q and max_k change with every batch and nothing is read of them: PJ_START ends their recompiles.
    {"aten::_flash_attention_forward", lower_sequences, .statics = PJ_STATIC(7), .starts = PJ_START(5) | PJ_START(6)},
    {"aten::_flash_attention_backward", lower_sequences_backward, .statics = PJ_STATIC(10),
     .starts = PJ_START(8) | PJ_START(9)},
    {0},
};
