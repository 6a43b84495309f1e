// Connectionist temporal classification: Graves et al., "Connectionist Temporal Classification: Labelling Unsegmented
// Sequence Data with Recurrent Neural Networks" (2006). All sequences of a batch go through one loop over time, in
// logarithms; a shorter one stands still after its end.
#include <math.h>

#include "ops/index.h"
#include "ops/reduce.h"

// The labels with a blank before, between and behind: `states` = 2 * (longest target) + 1 of them a sequence.
typedef struct ctc {
  int64_t times, batch, states;
  hlo_value input_lengths, target_lengths;  // s32 [batch]
  hlo_value labels;                         // s32 [batch, states]: class of each state
  hlo_value jumps;                          // PRED [batch, states]: may follow the state two before it
  hlo_value emissions;                      // [times, batch, states]: log probability of the state's class
} ctc;

// Lengths of the sequences, a tensor or a list; s32 [batch].
static hlo_value lengths(pj_lowering *l, int argument, int64_t batch) {
  hlo *h = l->h;
  hlo_value all = hlo_full(h, PJ_S32, 1, &batch, 0), place = hlo_iota(h, PJ_S32, 1, &batch, 0);
  int64_t count = pj_list_count(l, argument);
  if (pj_kind(l, argument) == PJ_ARG_TENSOR) {
    all = hlo_convert(h, hlo_flatten(h, pj_tensor(l, argument)), PJ_S32);
    count = all.dims[0];
  } else {
    for (int i = 0; i < count && count == batch; ++i) {
      hlo_value here = hlo_eq(h, place, hlo_constant_int(h, PJ_S32, i));
      all = hlo_select(h, here, pj_list_number(l, argument, i, PJ_S32), all);
    }
  }
  pj_require(l, count == batch, PJ_INVALID_ARGUMENT, "input_lengths and target_lengths must be of size batch_size");
  return all;
}

static hlo_value int_like(hlo *h, int64_t value) { return hlo_constant_int(h, PJ_S32, value); }

// Targets are padded, [batch, longest], or one after another, [sum of the lengths].
static hlo_value target_of_states(pj_lowering *l, const ctc *c, hlo_value targets, hlo_value places,
                                  hlo_value labelled) {
  hlo *h = l->h;
  if (targets.rank == 1) {
    hlo_value before = hlo_sub(h, hlo_scan(h, HLO_ADD, c->target_lengths, 0), c->target_lengths);
    hlo_value place = hlo_add(h, hlo_keep(h, before, 1), places);
    place = hlo_select(h, labelled, place, int_like(h, 0));
    return hlo_take(h, targets, pj_index_check_from_zero(l, place, targets.dims[0]), 0);
  }
  places = hlo_select(h, labelled, places, int_like(h, 0));
  return pj_take_along(l, targets, pj_index_check_from_zero(l, places, targets.dims[1]), 1);
}

// Arguments from `first`: log_probs [times, batch, classes], targets, input_lengths, target_lengths.
static bool read_ctc(pj_lowering *l, int first, int64_t blank, int64_t longest, ctc *out) {
  hlo *h = l->h;
  hlo_value log_probs = pj_tensor(l, first), targets = pj_tensor(l, first + 1);
  if (!pj_require(l, log_probs.rank == 3 && hlo_size(log_probs) > 0, PJ_INVALID_ARGUMENT,
                  "ctc_loss: log_probs must be a tensor of (time, batch, classes) with elements") ||
      !pj_require(l, targets.rank == 1 || targets.rank == 2, PJ_INVALID_ARGUMENT,
                  "ctc_loss: targets must have 1 or 2 dimensions, but have %d", targets.rank))
    return false;
  ctc c = {.times = log_probs.dims[0], .batch = log_probs.dims[1], .states = 2 * longest + 1,
           .input_lengths = lengths(l, first + 2, log_probs.dims[1]),
           .target_lengths = lengths(l, first + 3, log_probs.dims[1])};
  if (!pj_require(l, blank >= 0 && blank < log_probs.dims[2], PJ_INVALID_ARGUMENT, "blank must be in label range"))
    return false;
  const int64_t dims[] = {c.batch, c.states};
  hlo_value state = hlo_iota(h, PJ_S32, 2, dims, 1), two = int_like(h, 2);
  hlo_value blanks = hlo_broadcast_to(h, int_like(h, blank), 2, dims);
  hlo_value inside = hlo_lt(h, state, hlo_mul(h, two, hlo_keep(h, c.target_lengths, 1)));
  hlo_value labelled = hlo_and(h, inside, hlo_eq(h, hlo_rem(h, state, two), int_like(h, 1)));
  c.labels = blanks;
  if (hlo_size(targets)) {
    hlo_value label = target_of_states(l, &c, hlo_convert(h, targets, PJ_S32), hlo_div(h, state, two),
                                       labelled);
    c.labels = hlo_select(h, labelled, label, blanks);
    c.labels = hlo_convert(h, pj_index_check_from_zero(l, c.labels, log_probs.dims[2]), PJ_S32);
  }
  hlo_value before = hlo_pad(h, c.labels, int_like(h, blank), (int64_t[]){0, 2}, (int64_t[]){0, -2}, NULL);
  c.jumps = hlo_and(h, hlo_ne(h, c.labels, before), hlo_ge(h, state, two));
  const int64_t all[] = {c.times, c.batch, c.states};
  c.emissions = pj_take_along(l, log_probs, hlo_broadcast_to(h, c.labels, 3, all), 2);
  *out = c;
  return !hlo_failed(h);
}

static hlo_value minus_infinity(hlo *h, hlo_value like) { return pj_full_like(h, like, -INFINITY); }

// x[:, s - by], minus infinity outside
static hlo_value moved(hlo *h, hlo_value x, int64_t by) {
  return hlo_pad(h, x, minus_infinity(h, x), (int64_t[]){0, by}, (int64_t[]){0, -by}, NULL);
}

// log(exp(a) + exp(b) + exp(c))
static hlo_value log_sum(hlo *h, hlo_value a, hlo_value b, hlo_value c) {
  hlo_value most = hlo_max(h, hlo_max(h, a, b), c);
  hlo_value none = hlo_eq(h, most, minus_infinity(h, most));
  hlo_value from = hlo_select(h, none, pj_full_like(h, most, 0), most);
  hlo_value sum = hlo_add(h, hlo_exp(h, hlo_sub(h, a, from)), hlo_exp(h, hlo_sub(h, b, from)));
  return hlo_add(h, hlo_log(h, hlo_add(h, sum, hlo_exp(h, hlo_sub(h, c, from)))), from);
}

enum { TIME, NOW, HISTORY, CTC_STATE };

static hlo_value emissions_at(hlo *h, const ctc *c, hlo_value time) {
  hlo_value zero = int_like(h, 0);
  hlo_value row = hlo_dynamic_slice(h, c->emissions, (hlo_value[]){time, zero, zero},
                                    (int64_t[]){1, c->batch, c->states});
  return hlo_drop(h, row, 0);
}

static hlo_value with_row(hlo *h, hlo_value history, hlo_value row, hlo_value time) {
  hlo_value zero = int_like(h, 0);
  return hlo_dynamic_update_slice(h, history, hlo_keep(h, row, 0), (hlo_value[]){time, zero, zero});
}

static hlo_value state_of(hlo *h, const ctc *c) { return hlo_iota(h, PJ_S32, 2, (int64_t[]){c->batch, c->states}, 1); }

static void times_left(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  results[0] = hlo_lt(h, s[TIME], int_like(h, ((const ctc *)context)->times));
}

// alpha[t, s]: log probability of all that ends in state s at time t
static void alpha_step(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  const ctc *c = context;
  hlo_value alpha = s[NOW], none = minus_infinity(h, alpha);
  hlo_value begins = hlo_lt(h, state_of(h, c), int_like(h, 2));  // with a blank or the first label
  hlo_value reached = log_sum(h, alpha, moved(h, alpha, 1), hlo_select(h, c->jumps, moved(h, alpha, 2), none));
  hlo_value first = hlo_select(h, begins, pj_full_like(h, alpha, 0), none);
  reached = hlo_select(h, hlo_eq(h, s[TIME], int_like(h, 0)), first, reached);
  hlo_value next = hlo_add(h, reached, emissions_at(h, c, s[TIME]));
  hlo_value open = hlo_lt(h, s[TIME], hlo_keep(h, c->input_lengths, 1));
  results[NOW] = hlo_select(h, open, next, alpha);
  results[TIME] = hlo_add(h, s[TIME], int_like(h, 1));
  results[HISTORY] = with_row(h, s[HISTORY], results[NOW], s[TIME]);
}

// The states in which a sequence may end: the last label and the blank behind it.
static hlo_value may_end(hlo *h, const ctc *c) {
  hlo_value state = state_of(h, c), last = hlo_mul(h, hlo_keep(h, c->target_lengths, 1), int_like(h, 2));
  return hlo_or(h, hlo_eq(h, state, last), hlo_eq(h, state, hlo_sub(h, last, int_like(h, 1))));
}

// beta[t, s]: log probability of all that starts in state s at time t, s included; backward in time from `times`
static void times_before(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_gt(h, s[TIME], int_like(h, 0));
}

static void beta_step(hlo *h, const hlo_value *s, hlo_value *results, void *context) {
  const ctc *c = context;
  hlo_value beta = s[NOW], none = minus_infinity(h, beta), time = hlo_sub(h, s[TIME], int_like(h, 1));
  hlo_value jumped = moved(h, hlo_select(h, c->jumps, beta, none), -2);
  hlo_value left = log_sum(h, beta, moved(h, beta, -1), jumped);
  hlo_value ends = hlo_select(h, may_end(h, c), pj_full_like(h, beta, 0), none);
  hlo_value last = hlo_sub(h, hlo_keep(h, c->input_lengths, 1), int_like(h, 1));
  left = hlo_select(h, hlo_eq(h, time, last), ends, left);
  results[TIME] = time;
  results[NOW] = hlo_select(h, hlo_gt(h, time, last), none, hlo_add(h, left, emissions_at(h, c, time)));
  results[HISTORY] = with_row(h, s[HISTORY], results[NOW], time);
}

// Runs a step over all times: [times, batch, states] of it; the last one in *out_last.
static hlo_value run_over_time(hlo *h, ctc *c, int64_t from, hlo_body condition, hlo_body step, hlo_value *out_last) {
  hlo_value none = hlo_constant(h, c->emissions.dtype, -INFINITY), ends[CTC_STATE];
  hlo_value starts[] = {int_like(h, from), hlo_broadcast_to(h, none, 2, (int64_t[]){c->batch, c->states}),
                        hlo_broadcast_like(h, none, c->emissions)};
  hlo_while(h, starts, CTC_STATE, condition, step, c, ends);
  if (out_last) *out_last = ends[NOW];
  return ends[HISTORY];
}

// aten::_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity), of lists, and pj::ctc_loss of
// tensors: -log p of each sequence, and alpha as [batch, times, states]
static void lower_ctc_loss(pj_lowering *l) {
  hlo *h = l->h;
  ctc c;
  if (!read_ctc(l, 0, pj_int(l, 4), pj_result_type(l, 1).dims[2] / 2, &c)) return;
  hlo_value last, history = run_over_time(h, &c, 0, times_left, alpha_step, &last);
  hlo_value ending = hlo_select(h, may_end(h, &c), last, minus_infinity(h, last));
  hlo_value most = hlo_reduce_max(h, ending, 1);
  hlo_value from = hlo_select(h, hlo_eq(h, most, minus_infinity(h, most)), pj_full_like(h, most, 0), most);
  hlo_value sum = hlo_reduce_sum(h, hlo_exp(h, hlo_sub(h, ending, hlo_keep(h, from, 1))), 1);
  hlo_value loss = hlo_neg(h, hlo_add(h, hlo_log(h, sum), from));
  // No time at all is certain to say nothing.
  hlo_value silent = hlo_eq(h, hlo_max(h, c.input_lengths, c.target_lengths), int_like(h, 0));
  pj_return(l, 0, hlo_select(h, silent, pj_full_like(h, loss, 0), loss));
  pj_return(l, 1, hlo_swap(h, history, 0, 1));
}

// pj::ctc_longest(log_probs, targets, input_lengths, target_lengths, ...): the longest target
static void lower_longest(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = hlo_convert(h, hlo_flatten(h, pj_tensor(l, 3)), PJ_S64);
  hlo_value longest = hlo_size(x) ? hlo_reduce_all(h, HLO_MAX, x) : hlo_constant_int(h, PJ_S64, 0);
  pj_return(l, 0, hlo_reshape(h, longest, 1, (int64_t[]){1}));
}

// aten::_ctc_loss_backward(grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha,
// blank, zero_infinity), of lists and of tensors: (exp(log_probs) - probability of the class at the time, given the
// targets) grad. Of an impossible target it is NaN, or 0 with zero_infinity.
static void lower_ctc_loss_backward(pj_lowering *l) {
  hlo *h = l->h;
  ctc c;
  hlo_value alpha = pj_tensor(l, 6), log_probs = pj_tensor(l, 1);
  if (!pj_require(l, alpha.rank == 3, PJ_INVALID_ARGUMENT, "ctc_loss: log_alpha must have 3 dimensions") ||
      !read_ctc(l, 1, pj_int(l, 7), alpha.dims[2] / 2, &c))
    return;
  hlo_value beta = hlo_swap(h, run_over_time(h, &c, c.times, times_before, beta_step, NULL), 0, 1);
  hlo_value loss = pj_tensor(l, 5), infinite = hlo_eq(h, loss, pj_full_like(h, loss, INFINITY));
  hlo_value finite_loss = hlo_select(h, infinite, pj_full_like(h, loss, 0), loss);
  hlo_value at_state = hlo_sub(h, hlo_add(h, alpha, beta), hlo_swap(h, c.emissions, 0, 1));
  at_state = hlo_exp(h, hlo_add(h, at_state, hlo_reshape(h, finite_loss, 3, (int64_t[]){c.batch, 1, 1})));
  const int64_t sums[] = {c.batch, log_probs.dims[2], c.times};
  pj_target whole = pj_target_whole(hlo_full(h, log_probs.dtype, 3, sums, 0));
  pj_positions at = {.rank = 3, .indexed = {true, true, false},
                     .indices = {hlo_iota(h, PJ_S32, 2, c.labels.dims, 0), c.labels}};
  hlo_value at_class = pj_positions_write(l, HLO_ADD, &whole, &at, hlo_swap(h, at_state, 1, 2));
  at_class = hlo_transpose(h, at_class, (int[]){2, 0, 1});
  hlo_value per_sequence = hlo_keep(h, hlo_flatten(h, pj_tensor(l, 0)), 1);
  hlo_value grad = hlo_mul(h, hlo_sub(h, hlo_exp(h, log_probs), at_class), per_sequence);
  hlo_value impossible = hlo_constant(h, grad.dtype, pj_bool(l, 8) ? 0 : NAN);
  grad = hlo_select(h, hlo_keep(h, infinite, 1), impossible, grad);
  hlo_value time = hlo_iota(h, PJ_S32, 3, (int64_t[]){c.times, c.batch, 1}, 0);
  hlo_value open = hlo_lt(h, time, hlo_keep(h, c.input_lengths, 1));
  pj_return(l, 0, hlo_select(h, open, grad, pj_full_like(h, grad, 0)));
}

PJ_LOWERINGS(ctc_loss_lowerings) = {
    {.name = "aten::_ctc_loss", .lower = lower_ctc_loss, .lengths = PJ_LENGTHS(2) | PJ_LENGTHS(3)},
    {.name = "pj::ctc_loss", .lower = lower_ctc_loss},
    {.name = "pj::ctc_longest", .lower = lower_longest},
    {.name = "aten::_ctc_loss_backward", .lower = lower_ctc_loss_backward, .flags = PJ_OP_DYNAMIC,
     .lengths = PJ_LENGTHS(3) | PJ_LENGTHS(4)},
    {.name = "aten::_ctc_loss_backward.Tensor", .lower = lower_ctc_loss_backward, .flags = PJ_OP_DYNAMIC},
    {0},
};
