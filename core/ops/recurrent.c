// The fused recurrent cells that CUDA has; the matrix products are done before. The workspaces are ours to define:
// they hold what the backward needs.
#include "ops/reduce.h"

enum { MOST_GATES = 5 };

static hlo_value wide(pj_lowering *l, int argument) {
  hlo_value x = pj_tensor(l, argument);
  return hlo_convert(l->h, x, pj_math_dtype(x.dtype));
}

// [batch, count * hidden] as `count` values of [batch, hidden]
static void split(hlo *h, hlo_value x, int count, hlo_value out[MOST_GATES]) {
  int64_t hidden = x.dims[1] / count;
  for (int i = 0; i < count; ++i) out[i] = hlo_slice_dim(h, x, 1, i * hidden, (i + 1) * hidden);
}

static hlo_value joined(hlo *h, const hlo_value *parts, int count) { return hlo_concatenate(h, parts, count, 1); }

static hlo_value with_bias(pj_lowering *l, hlo_value gates, int bias) {
  return pj_present(l, bias) ? hlo_add(l->h, gates, wide(l, bias)) : gates;
}

static hlo_value one_minus(hlo *h, hlo_value x) { return hlo_sub(h, pj_full_like(h, x, 1), x); }

// y (1 - y) and 1 - y^2: the slopes of the logistic function and of tanh at y
static hlo_value logistic_slope(hlo *h, hlo_value y) { return hlo_mul(h, y, one_minus(h, y)); }
static hlo_value tanh_slope(hlo *h, hlo_value y) { return one_minus(h, hlo_mul(h, y, y)); }

static bool require_cell(pj_lowering *l, hlo_value input_gates, hlo_value hidden_gates, hlo_value state, int gates) {
  return pj_require(l,
                    input_gates.rank == 2 && hlo_same_dims(input_gates, hidden_gates) && state.rank == 2 &&
                        input_gates.dims[0] == state.dims[0] && input_gates.dims[1] == gates * state.dims[1],
                    PJ_INVALID_ARGUMENT,
                    "recurrent cell: the gates must be [batch, %d * hidden] and the state [batch, hidden]", gates);
}

// aten::_thnn_fused_lstm_cell(input_gates, hidden_gates, cx, input_bias, hidden_bias): cy = f cx + i g, hy = o
// tanh(cy); the workspace is the activated i, f, g, o.
static void lower_lstm(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value input = wide(l, 0), hidden = wide(l, 1), cx = wide(l, 2), g[MOST_GATES];
  if (!require_cell(l, input, hidden, cx, 4)) return;
  split(h, with_bias(l, with_bias(l, hlo_add(h, input, hidden), 3), 4), 4, g);
  for (int i = 0; i < 4; ++i) g[i] = i == 2 ? hlo_tanh(h, g[i]) : hlo_logistic(h, g[i]);
  hlo_value cy = hlo_add(h, hlo_mul(h, g[1], cx), hlo_mul(h, g[0], g[2]));
  pj_return(l, 0, hlo_mul(h, g[3], hlo_tanh(h, cy)));
  pj_return(l, 1, cy);
  pj_return(l, 2, joined(h, g, 4));
}

// aten::_thnn_fused_lstm_cell_backward_impl(grad_hy, grad_cy, cx, cy, workspace, has_bias)
static void lower_lstm_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value cx = wide(l, 2), cy = wide(l, 3), g[MOST_GATES], grads[MOST_GATES];
  split(h, wide(l, 4), 4, g);
  hlo_value squashed = hlo_tanh(h, cy), zero = hlo_full(h, cx.dtype, cx.rank, cx.dims, 0);
  hlo_value grad_hy = pj_present(l, 0) ? wide(l, 0) : zero, grad_cy = pj_present(l, 1) ? wide(l, 1) : zero;
  hlo_value grad_c = hlo_add(h, hlo_mul(h, hlo_mul(h, grad_hy, g[3]), tanh_slope(h, squashed)), grad_cy);
  grads[0] = hlo_mul(h, hlo_mul(h, grad_c, g[2]), logistic_slope(h, g[0]));
  grads[1] = hlo_mul(h, hlo_mul(h, grad_c, cx), logistic_slope(h, g[1]));
  grads[2] = hlo_mul(h, hlo_mul(h, grad_c, g[0]), tanh_slope(h, g[2]));
  grads[3] = hlo_mul(h, hlo_mul(h, grad_hy, squashed), logistic_slope(h, g[3]));
  hlo_value gates = joined(h, grads, 4);
  pj_return(l, 0, gates);
  pj_return(l, 1, hlo_mul(h, grad_c, g[1]));
  if (pj_wanted(l, 2)) pj_return(l, 2, hlo_reduce_sum(h, gates, 0));
}

// aten::_thnn_fused_gru_cell(input_gates, hidden_gates, hx, input_bias, hidden_bias): r, z = logistic, n = tanh(i_n + r
// h_n), hy = n + z (hx - n); the workspace is r, z, n, hx, h_n.
static void lower_gru(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value input = wide(l, 0), hidden = wide(l, 1), hx = wide(l, 2), i[MOST_GATES], s[MOST_GATES];
  if (!require_cell(l, input, hidden, hx, 3)) return;
  split(h, with_bias(l, input, 3), 3, i);
  split(h, with_bias(l, hidden, 4), 3, s);
  hlo_value r = hlo_logistic(h, hlo_add(h, i[0], s[0])), z = hlo_logistic(h, hlo_add(h, i[1], s[1]));
  hlo_value n = hlo_tanh(h, hlo_add(h, i[2], hlo_mul(h, r, s[2])));
  pj_return(l, 0, hlo_add(h, n, hlo_mul(h, z, hlo_sub(h, hx, n))));
  pj_return(l, 1, joined(h, (hlo_value[]){r, z, n, hx, s[2]}, 5));
}

// aten::_thnn_fused_gru_cell_backward(grad_hy, workspace, has_bias): the gradients of input_gates, hidden_gates, hx and
// the two biases
static void lower_gru_backward(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value grad = wide(l, 0), w[MOST_GATES];
  split(h, wide(l, 1), 5, w);
  hlo_value r = w[0], z = w[1], n = w[2], hx = w[3], hidden_n = w[4];
  hlo_value grad_n = hlo_mul(h, hlo_mul(h, grad, one_minus(h, z)), tanh_slope(h, n));
  hlo_value grad_z = hlo_mul(h, hlo_mul(h, grad, hlo_sub(h, hx, n)), logistic_slope(h, z));
  hlo_value grad_r = hlo_mul(h, hlo_mul(h, grad_n, hidden_n), logistic_slope(h, r));
  hlo_value input = joined(h, (hlo_value[]){grad_r, grad_z, grad_n}, 3);
  hlo_value hidden = joined(h, (hlo_value[]){grad_r, grad_z, hlo_mul(h, grad_n, r)}, 3);
  pj_return(l, 0, input);
  pj_return(l, 1, hidden);
  pj_return(l, 2, hlo_mul(h, grad, z));
  if (pj_wanted(l, 3)) pj_return(l, 3, hlo_reduce_sum(h, input, 0));
  if (pj_wanted(l, 4)) pj_return(l, 4, hlo_reduce_sum(h, hidden, 0));
}

PJ_LOWERINGS(recurrent_lowerings) = {
    {"aten::_thnn_fused_lstm_cell", lower_lstm},
    {"aten::_thnn_fused_lstm_cell_backward_impl", lower_lstm_backward},
    {"aten::_thnn_fused_gru_cell", lower_gru},
    {"aten::_thnn_fused_gru_cell_backward", lower_gru_backward},
    {0},
};
