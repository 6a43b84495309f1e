// The fused optimizers: one program updates every parameter and its state. Results follow the mutated lists in schema
// order. With grad_scale the gradients are unscaled (and returned so); with found_inf set nothing changes.
#include "ops/elementwise.h"

#define K(x, value) pj_constant_like(h, (x), (value))

typedef struct hyper {
  int grad_scale, found_inf;   // argument numbers
  bool maximize;
} hyper;

static hlo_value scalar(hlo *h, hlo_value x, pj_dtype dtype) {
  return hlo_convert(h, hlo_reshape(h, x, 0, NULL), dtype);
}

static hlo_value list_scalar(pj_lowering *l, int argument, int i, pj_dtype dtype) {
  return scalar(l->h, pj_list_tensor(l, argument, i), dtype);
}

static hlo_value wide(pj_lowering *l, int argument, int i, pj_dtype dtype) {
  return hlo_convert(l->h, pj_list_tensor(l, argument, i), dtype);
}

// A number or a one-element tensor (the .tensor_lr overloads) as a 0-d value.
static hlo_value number(pj_lowering *l, int argument, pj_dtype dtype) {
  return hlo_reshape(l->h, pj_number(l, argument, dtype), 0, NULL);
}

// 1 - number, subtracted in float64: 1 - 0.999 in float32 is wrong in its fifth digit.
static hlo_value one_minus(pj_lowering *l, int argument, pj_dtype dtype) {
  hlo *h = l->h;
  return hlo_convert(h, hlo_sub(h, hlo_constant(h, PJ_F64, 1), number(l, argument, PJ_F64)), dtype);
}

// 1 - (1 - rest)^step without cancellation
static hlo_value bias_correction(hlo *h, hlo_value rest, hlo_value step) {
  return hlo_neg(h, hlo_expm1(h, hlo_mul(h, step, hlo_log1p(h, hlo_neg(h, rest)))));
}

// The gradient as it is used, and in *out_grad as it is returned.
static hlo_value gradient(pj_lowering *l, int i, pj_dtype dtype, const hyper *p, hlo_value *out_grad) {
  hlo *h = l->h;
  hlo_value grad = wide(l, 1, i, dtype);
  if (pj_present(l, p->grad_scale)) grad = hlo_div(h, grad, scalar(h, pj_tensor(l, p->grad_scale), dtype));
  *out_grad = grad;
  return p->maximize ? hlo_neg(h, grad) : grad;
}

// Result `result`: `updated`, or argument list `list`'s old element i when found_inf is set.
static void finish(pj_lowering *l, int result, hlo_value updated, int list, int i, const hyper *p) {
  hlo *h = l->h;
  if (pj_present(l, p->found_inf)) {
    hlo_value found = hlo_ne(h, scalar(h, pj_tensor(l, p->found_inf), PJ_F32), hlo_constant(h, PJ_F32, 0));
    updated = hlo_select(h, found, wide(l, list, i, updated.dtype), updated);
  }
  pj_return(l, result, updated);
}

// aten::_fused_adam and _fused_adamw(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1,
// beta2, weight_decay, eps, amsgrad, maximize, grad_scale, found_inf)
static void adam(pj_lowering *l, bool decoupled) {
  hlo *h = l->h;
  int count = pj_list_count(l, 0);
  bool amsgrad = pj_bool(l, 11);
  hyper p = {.grad_scale = 13, .found_inf = 14, .maximize = pj_bool(l, 12)};
  for (int i = 0; i < count && !hlo_failed(h); ++i) {
    pj_dtype dtype = pj_result_math(l, i);
    hlo_value lr = number(l, 6, dtype), rest1 = one_minus(l, 7, dtype), rest2 = one_minus(l, 8, dtype);
    hlo_value beta2 = number(l, 8, dtype), decay = number(l, 9, dtype), eps = number(l, 10, dtype);
    hlo_value step = list_scalar(l, 5, i, dtype), grad_out;
    hlo_value x = wide(l, 0, i, dtype), grad = gradient(l, i, dtype, &p, &grad_out);
    if (decoupled)
      x = hlo_sub(h, x, hlo_mul(h, hlo_mul(h, lr, decay), x));
    else
      grad = hlo_add(h, grad, hlo_mul(h, decay, x));
    hlo_value m = pj_lerp(h, wide(l, 2, i, dtype), grad, rest1);
    hlo_value v = hlo_add(h, hlo_mul(h, beta2, wide(l, 3, i, dtype)), hlo_mul(h, rest2, pj_square(h, grad)));
    hlo_value largest = amsgrad ? hlo_max(h, wide(l, 4, i, dtype), v) : v;
    hlo_value correction2 = hlo_sqrt(h, bias_correction(h, rest2, step));
    hlo_value denominator = hlo_add(h, hlo_div(h, hlo_sqrt(h, largest), correction2), eps);
    hlo_value step_size = hlo_div(h, lr, bias_correction(h, rest1, step));
    x = hlo_sub(h, x, hlo_div(h, hlo_mul(h, step_size, m), denominator));
    finish(l, i, x, 0, i, &p);
    pj_return(l, count + i, grad_out);
    finish(l, 2 * count + i, m, 2, i, &p);
    finish(l, 3 * count + i, v, 3, i, &p);
    if (amsgrad) finish(l, 4 * count + i, largest, 4, i, &p);
  }
  // Lists that are passed without being used come back as they are.
  for (int i = 0; !amsgrad && i < pj_list_count(l, 4); ++i) pj_return(l, 4 * count + i, pj_list_tensor(l, 4, i));
}

static void lower_adam(pj_lowering *l) { adam(l, false); }
static void lower_adamw(pj_lowering *l) { adam(l, true); }

// aten::_fused_sgd(self, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov, maximize,
// is_first_step, grad_scale, found_inf)
static void lower_sgd(pj_lowering *l) {
  hlo *h = l->h;
  int count = pj_list_count(l, 0);
  bool has_momentum = pj_list_count(l, 2) > 0, nesterov = pj_bool(l, 7), first = pj_bool(l, 9);
  hyper p = {.grad_scale = 10, .found_inf = 11, .maximize = pj_bool(l, 8)};
  for (int i = 0; i < count && !hlo_failed(h); ++i) {
    pj_dtype dtype = pj_result_math(l, i);
    hlo_value momentum = number(l, 4, dtype), grad_out;
    hlo_value x = wide(l, 0, i, dtype), grad = gradient(l, i, dtype, &p, &grad_out);
    grad = hlo_add(h, grad, hlo_mul(h, number(l, 3, dtype), x));
    if (has_momentum) {
      hlo_value buffer = grad;
      if (!first)
        buffer = hlo_add(h, hlo_mul(h, momentum, wide(l, 2, i, dtype)), hlo_mul(h, one_minus(l, 6, dtype), grad));
      grad = nesterov ? hlo_add(h, grad, hlo_mul(h, momentum, buffer)) : buffer;
      finish(l, 2 * count + i, buffer, 2, i, &p);
    }
    finish(l, i, hlo_sub(h, x, hlo_mul(h, number(l, 5, dtype), grad)), 0, i, &p);
    pj_return(l, count + i, grad_out);
  }
}

// aten::_fused_adagrad(self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale,
// found_inf)
static void lower_adagrad(pj_lowering *l) {
  hlo *h = l->h;
  int count = pj_list_count(l, 0);
  hyper p = {.grad_scale = 9, .found_inf = 10, .maximize = pj_bool(l, 8)};
  for (int i = 0; i < count && !hlo_failed(h); ++i) {
    pj_dtype dtype = pj_result_math(l, i);
    hlo_value lr = number(l, 4, dtype), lr_decay = number(l, 5, dtype), grad_out;
    hlo_value step = list_scalar(l, 3, i, dtype);
    hlo_value x = wide(l, 0, i, dtype), grad = gradient(l, i, dtype, &p, &grad_out);
    grad = hlo_add(h, grad, hlo_mul(h, number(l, 6, dtype), x));
    hlo_value slowing = hlo_add(h, K(x, 1), hlo_mul(h, hlo_sub(h, step, K(x, 1)), lr_decay));
    hlo_value sum = hlo_add(h, wide(l, 2, i, dtype), pj_square(h, grad));
    hlo_value size = hlo_add(h, hlo_sqrt(h, sum), number(l, 7, dtype));
    hlo_value move = hlo_mul(h, hlo_div(h, lr, slowing), hlo_div(h, grad, size));
    finish(l, i, hlo_sub(h, x, move), 0, i, &p);
    pj_return(l, count + i, grad_out);
    finish(l, 2 * count + i, sum, 2, i, &p);
    if (pj_result_count(l) > 3 * count) pj_return(l, 3 * count + i, pj_list_tensor(l, 3, i));
  }
}

PJ_LOWERINGS(optimizer_lowerings) = {
    {"aten::_fused_adam", lower_adam},
    {"aten::_fused_adam.tensor_lr", lower_adam},
    {"aten::_fused_adamw", lower_adamw},
    {"aten::_fused_adamw.tensor_lr", lower_adamw},
    {"aten::_fused_sgd", lower_sgd},
    {"aten::_fused_sgd.tensor_lr", lower_sgd},
    {"aten::_fused_adagrad", lower_adagrad},
    {"aten::_fused_adagrad.tensor_lr", lower_adagrad},
    {0},
};
