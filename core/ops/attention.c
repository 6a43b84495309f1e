// Scaled dot product attention as one program: softmax(scale * q k^T + bias) v. Heads that share a key head (grouped
// query attention) are rows of one product, so keys and values are never repeated.
#include <math.h>

#include "ops/reduce.h"

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

static bool attention_of(pj_lowering *l, int q_argument, int scale_argument, attention *a) {
  hlo *h = l->h;
  hlo_value q = pj_tensor(l, q_argument), k = pj_tensor(l, q_argument + 1), v = pj_tensor(l, q_argument + 2);
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

// scale * q k^T + bias, and -inf where a boolean bias is false or, when causal, the key comes after the query
static hlo_value scores_of(pj_lowering *l, const attention *a, int bias_argument, bool causal) {
  hlo *h = l->h;
  hlo_value s = hlo_mul(h, as_scores(h, a, times_transposed(h, a, a->q, a->k)), a->scale);
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

// Results beside the integers max_q and max_k and the undefined tensors, which are not in the list.
enum { OUTPUT, LOGSUMEXP, SEED, OFFSET };

// aten::_scaled_dot_product_fused_attention_overrideable(query, key, value, attn_bias, dropout_p, is_causal,
// return_debug_mask, *, scale)
static void lower_attention(pj_lowering *l) {
  hlo *h = l->h;
  attention a;
  if (!require_no_dropout(l, 4) || !attention_of(l, 0, 7, &a)) return;
  hlo_value s = scores_of(l, &a, 3, pj_bool(l, 5));
  hlo_value most = finite_or_zero(h, pj_reduce(h, HLO_MAX, s, &COLUMNS));
  hlo_value weights = hlo_exp(h, hlo_sub(h, s, hlo_keep(h, most, 2)));
  hlo_value sum = pj_reduce(h, HLO_ADD, weights, &COLUMNS);
  hlo_value mixed = hlo_matmul(h, hlo_convert(h, weights, a.dtype), a.v, a.math);
  hlo_value divisor = hlo_select(h, hlo_eq(h, sum, pj_full_like(h, sum, 0)), pj_full_like(h, sum, 1), sum);
  pj_return_reshaped(l, OUTPUT, hlo_div(h, mixed, hlo_keep(h, divisor, 2)));
  pj_return_reshaped(l, LOGSUMEXP, hlo_add(h, hlo_log(h, sum), most));
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
// philox_offset, *, scale). With p = exp(s - logsumexp): dv = p^T do, ds = p * (do v^T - rowsum(do * out)),
// dq = scale * ds k, dk = scale * ds^T q, dbias = ds.
static void lower_attention_backward(pj_lowering *l) {
  hlo *h = l->h;
  attention a;
  if (!require_no_dropout(l, 12) || !attention_of(l, 1, 16, &a)) return;
  hlo_value grad = by_key_head(h, &a, pj_tensor(l, 0), a.groups), out = by_key_head(h, &a, pj_tensor(l, 6), a.groups);
  hlo_value logsumexp = hlo_convert(h, as_row_numbers(h, &a, pj_tensor(l, 7)), a.math);
  hlo_value p = hlo_exp(h, hlo_sub(h, scores_of(l, &a, 4, pj_bool(l, 13)), finite_or_zero(h, logsumexp)));
  hlo_value product = hlo_mul(h, hlo_convert(h, grad, a.math), hlo_convert(h, out, a.math));
  hlo_value delta = hlo_keep(h, pj_reduce(h, HLO_ADD, product, &COLUMNS), 2);
  hlo_value ds = hlo_mul(h, p, hlo_sub(h, times_transposed(h, &a, grad, a.v), delta));
  hlo_value scaled = hlo_convert(h, hlo_mul(h, ds, a.scale), a.dtype);
  pj_return_reshaped(l, 0, hlo_matmul(h, scaled, a.k, a.math));
  pj_return_reshaped(l, 1, transposed_times(h, &a, scaled, a.q));
  pj_return_reshaped(l, 2, transposed_times(h, &a, hlo_convert(h, p, a.dtype), grad));
  if (!pj_wanted(l, 3)) return;
  int count;
  const int64_t *asked = pj_ints(l, 5, &count);
  pj_type bias = pj_result_type(l, 3);
  if (count == 4 && asked[3]) pj_return_reshaped(l, 3, sum_to(h, as_scores(h, &a, ds), bias));
  else pj_return(l, 3, hlo_full(h, bias.dtype, bias.rank, bias.dims, 0));
}

PJ_LOWERINGS(attention_lowerings) = {
    {"aten::_scaled_dot_product_fused_attention_overrideable", lower_attention, .statics = PJ_STATIC(4)},
    {"aten::_scaled_dot_product_fused_attention_overrideable_backward", lower_attention_backward,
     .statics = PJ_STATIC(12)},
    {0},
};
