// Matrix products. Half operands stay half and accumulate in float32, as chips do natively: the product of two halves
// is exact in float32, so nothing is lost by not widening them first.
#include "ops/lowering.h"

// a @ b over the last two dimensions, as pj_math_dtype of their type
static hlo_value product(hlo *h, hlo_value a, hlo_value b) { return hlo_matmul(h, a, b, pj_math_dtype(a.dtype)); }

static bool require_product(pj_lowering *l, hlo_value a, hlo_value b) {
  return pj_require(l, a.dtype == b.dtype, PJ_INVALID_ARGUMENT,
                    "expected both matrices to have the same dtype, but got: %s and %s",
                    pj_dtype_name(a.dtype), pj_dtype_name(b.dtype)) &&
         pj_require(l, a.dtype != PJ_PRED, PJ_UNIMPLEMENTED, "\"addmm_impl_cpu_\" not implemented for 'Bool'");
}

// aten::mm, bmm: a @ b
static void lower_mm(pj_lowering *l) {
  hlo_value a = pj_tensor(l, 0), b = pj_tensor(l, 1);
  if (require_product(l, a, b)) pj_return(l, 0, product(l->h, a, b));
}

// 1-d with 1-d or 2-d with 1-d: contracts the last dimension of a with the only one of b
static hlo_value times_vector(hlo *h, hlo_value a, hlo_value b) {
  return hlo_dot_general(h, a, b, NULL, NULL, 0, (int[]){a.rank - 1}, (int[]){0}, 1, pj_math_dtype(a.dtype));
}

// aten::mv, dot
static void lower_mv(pj_lowering *l) {
  hlo_value a = pj_tensor(l, 0), b = pj_tensor(l, 1);
  if (require_product(l, a, b)) pj_return(l, 0, times_vector(l->h, a, b));
}

// aten::vdot: conj(a) . b
static void lower_vdot(pj_lowering *l) {
  hlo_value a = pj_tensor(l, 0), b = pj_tensor(l, 1);
  if (require_product(l, a, b)) pj_return(l, 0, times_vector(l->h, hlo_conj(l->h, a), b));
}

// Whether a number argument is known to have that value. Complex ones never are: they stay run-time inputs.
static bool is_constant(pj_lowering *l, int argument, double value) {
  return pj_kind(l, argument) != PJ_ARG_NUMBER && pj_float(l, argument) == value;
}

// beta * self + alpha * product, where beta = 0 ignores self, NaN too. 0 and 1 are part of the program: 0 makes it
// another, and 1 is what every linear layer passes.
static hlo_value blend(pj_lowering *l, hlo_value self, int beta, hlo_value product, int alpha) {
  hlo *h = l->h;
  if (!is_constant(l, alpha, 1)) product = hlo_mul(h, product, pj_number(l, alpha, product.dtype));
  if (is_constant(l, beta, 0)) return product;
  self = hlo_convert(h, self, product.dtype);
  if (!is_constant(l, beta, 1)) self = hlo_mul(h, self, pj_number(l, beta, product.dtype));
  return hlo_add(h, self, product);
}

static void blend_with(pj_lowering *l, hlo_value (*multiply)(hlo *h, hlo_value a, hlo_value b), int beta) {
  hlo_value a = pj_tensor(l, 1), b = pj_tensor(l, 2);
  if (require_product(l, a, b)) pj_return(l, 0, blend(l, pj_tensor(l, 0), beta, multiply(l->h, a, b), beta + 1));
}

// aten::addmm, baddbmm(self, a, b, *, beta, alpha)
static void lower_addmm(pj_lowering *l) { blend_with(l, product, 3); }

// aten::addmm.dtype, baddbmm.dtype(self, a, b, out_dtype, *, beta, alpha)
static void lower_addmm_dtype(pj_lowering *l) { blend_with(l, product, 4); }

// aten::addmv(self, mat, vec, *, beta, alpha)
static void lower_addmv(pj_lowering *l) { blend_with(l, times_vector, 3); }

// sum over b of a[b] @ b[b]: contracts the batch and the inner dimension at once
static hlo_value batch_sum(hlo *h, hlo_value a, hlo_value b) {
  return hlo_dot_general(h, a, b, NULL, NULL, 0, (int[]){0, 2}, (int[]){0, 1}, 2, pj_math_dtype(a.dtype));
}

static void lower_addbmm(pj_lowering *l) { blend_with(l, batch_sum, 3); }

static hlo_value outer_product(hlo *h, hlo_value a, hlo_value b) {
  pj_dtype dtype = pj_math_dtype(a.dtype);
  return hlo_mul(h, hlo_keep(h, hlo_convert(h, a, dtype), 1), hlo_keep(h, hlo_convert(h, b, dtype), 0));
}

// aten::addr(self, vec1, vec2, *, beta, alpha): the vectors and self are promoted; of bools it is (self and beta) or
// (vec1 and vec2 and alpha).
static void lower_addr(pj_lowering *l) {
  hlo *h = l->h;
  pj_dtype dtype = pj_result_type(l, 0).dtype;
  hlo_value self = hlo_convert(h, pj_tensor(l, 0), dtype);
  hlo_value a = hlo_convert(h, pj_tensor(l, 1), dtype), b = hlo_convert(h, pj_tensor(l, 2), dtype);
  hlo_value outer;
  if (dtype == PJ_PRED) {
    outer = hlo_and(h, hlo_keep(h, a, 1), hlo_keep(h, b, 0));
    if (is_constant(l, 4, 0)) outer = hlo_full(h, PJ_PRED, outer.rank, outer.dims, 0);
    pj_return(l, 0, is_constant(l, 3, 0) ? outer : hlo_or(h, self, outer));
    return;
  }
  pj_return(l, 0, blend(l, self, 3, outer_product(h, a, b), 4));
}

// aten::_int_mm(self, mat2): s8 @ s8 -> s32
static void lower_int_mm(pj_lowering *l) {
  pj_return(l, 0, hlo_matmul(l->h, pj_tensor(l, 0), pj_tensor(l, 1), PJ_S32));
}

// aten::_weight_int8pack_mm(self, mat2, scales): (self @ mat2^T) * scales
static void lower_int8_mm(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  hlo_value w = hlo_convert(h, pj_tensor(l, 1), x.dtype);
  hlo_value y = product(h, x, hlo_swap(h, w, 0, 1));
  pj_return(l, 0, hlo_mul(h, y, hlo_convert(h, pj_tensor(l, 2), y.dtype)));
}

// (self * scale_a) @ (mat2 * scale_b) + bias of fp8 operands, with one scale a tensor ([] or [1]) or one a row and column.
static hlo_value scaled_product(pj_lowering *l, hlo_value scale_a, hlo_value scale_b, int bias) {
  hlo *h = l->h;
  hlo_value a = pj_tensor(l, 0), b = pj_tensor(l, 1);
  int64_t rows = a.dims[0], columns = b.dims[1];
  bool whole = hlo_size(scale_a) == 1 && hlo_size(scale_b) == 1;
  bool rowwise = scale_a.rank == 2 && scale_b.rank == 2 && scale_a.dims[0] == rows && scale_a.dims[1] == 1 &&
                 scale_b.dims[0] == 1 && scale_b.dims[1] == columns;
  if (!pj_require(l, scale_a.dtype == PJ_F32 && scale_b.dtype == PJ_F32 && (whole || rowwise), PJ_INVALID_ARGUMENT,
                  "_scaled_mm: scales must be float32, and one a tensor or one a row of self and a column of mat2"))
    return hlo_full(h, PJ_F32, 2, (int64_t[]){rows, columns}, 0);
  if (whole) {
    scale_a = hlo_reshape(h, scale_a, 0, NULL);
    scale_b = hlo_reshape(h, scale_b, 0, NULL);
  }
  // fp8 values are exact in bfloat16, which every plugin can multiply
  hlo_value y = hlo_matmul(h, hlo_convert(h, a, PJ_BF16), hlo_convert(h, b, PJ_BF16), PJ_F32);
  y = hlo_mul(h, hlo_mul(h, y, scale_a), scale_b);
  return pj_present(l, bias) ? hlo_add(h, y, hlo_convert(h, pj_tensor(l, bias), PJ_F32)) : y;
}

// aten::_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)
static void lower_scaled_mm(pj_lowering *l) {
  hlo_value y = scaled_product(l, pj_tensor(l, 2), pj_tensor(l, 3), 4);
  pj_return(l, 0, pj_present(l, 5) ? hlo_mul(l->h, y, hlo_reshape(l->h, pj_tensor(l, 5), 0, NULL)) : y);
}

// Whether a list of scaling recipes or swizzles holds just one number, at most `most`.
static bool is_one(pj_lowering *l, int argument, int64_t most) {
  int count;
  const int64_t *given = pj_ints(l, argument, &count);
  return count == 1 && given[0] >= 0 && given[0] <= most;
}

// aten::_scaled_mm_v2(self, mat2, scale_a[], recipe_a, swizzle_a, scale_b[], recipe_b, swizzle_b, bias, out_dtype,
// contraction_dim, use_fast_accum): recipes 0 (one scale a tensor) and 1 (one a row), as PyTorch's CPU kernel
static void lower_scaled_mm_v2(pj_lowering *l) {
  bool known = pj_list_count(l, 2) == 1 && pj_list_count(l, 5) == 1 && is_one(l, 3, 1) && is_one(l, 6, 1) &&
               is_one(l, 4, 0) && is_one(l, 7, 0);
  if (!pj_require(l, known, PJ_INVALID_ARGUMENT, "Invalid scaling configuration: _scaled_mm_v2 takes scales for the whole "
                  "tensors or for rows and columns, without swizzle")) return;
  pj_return(l, 0, scaled_product(l, pj_list_tensor(l, 2, 0), pj_list_tensor(l, 5, 0), 8));
}

static hlo_value unsqueezed(pj_lowering *l, int argument, int dims) {
  hlo_value x = pj_tensor(l, argument);
  x = hlo_convert(l->h, x, pj_math_dtype(x.dtype));
  int count;
  const int64_t *places = pj_ints(l, dims, &count);
  for (int i = 0; i < count; ++i) x = hlo_keep(l->h, x, (int)places[i]);
  return x;
}

// aten::_trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim): the sum over sumdim of the product of
// the three, each with new dimensions at expand
static void lower_trilinear(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value y = hlo_mul(h, hlo_mul(h, unsqueezed(l, 0, 3), unsqueezed(l, 1, 4)), unsqueezed(l, 2, 5));
  int dims[PJ_MAX_RANK], count = pj_dims(l, 6, y.rank, false, dims);
  pj_return(l, 0, count ? hlo_reduce(h, HLO_ADD, y, dims, count) : y);
}

enum { BETA_ALPHA = PJ_STATIC(3) | PJ_STATIC(4) };

PJ_LOWERINGS(matmul_lowerings) = {
    {"aten::mm", lower_mm},
    {"aten::bmm", lower_mm},
    {"aten::mm.dtype", lower_mm},
    {"aten::bmm.dtype", lower_mm},
    {"aten::mv", lower_mv},
    {"aten::dot", lower_mv},
    {"aten::vdot", lower_vdot},
    {"aten::addmm", lower_addmm, .specials = BETA_ALPHA},
    {"aten::baddbmm", lower_addmm, .specials = BETA_ALPHA},
    {"aten::addmm.dtype", lower_addmm_dtype, .specials = PJ_STATIC(4) | PJ_STATIC(5)},
    {"aten::baddbmm.dtype", lower_addmm_dtype, .specials = PJ_STATIC(4) | PJ_STATIC(5)},
    {"aten::addmv", lower_addmv, .specials = BETA_ALPHA},
    {"aten::addbmm", lower_addbmm, .specials = BETA_ALPHA},
    {"aten::addr", lower_addr, .specials = BETA_ALPHA},
    {"aten::_trilinear", lower_trilinear},
    {"aten::_int_mm", lower_int_mm},
    {"aten::_weight_int8pack_mm", lower_int8_mm},
    {"aten::_scaled_mm", lower_scaled_mm},
    {"aten::_scaled_mm_v2", lower_scaled_mm_v2},
    {0},
};
