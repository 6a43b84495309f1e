#include "hlo/internal.h"

void hlo_set_precision(hlo *h, hlo_precision precision) {
  if (!h->failed) h->precision = precision;
}

static void put_precision(hlo *h, pj_dtype dtype) {
  static const char *const configs[] = {
      [HLO_PRECISION_HIGH] = "[#stablehlo<precision HIGH>, #stablehlo<precision HIGH>]",
      [HLO_PRECISION_HIGHEST] = "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"};
  if (dtype == PJ_F32 && h->precision != HLO_PRECISION_DEFAULT)
    hlo_attribute_text(h, "precision_config", configs[h->precision]);
}

// Both operands of one element type, or of two 8-bit floats.
static bool check_dtypes(hlo *h, const char *op, hlo_value a, hlo_value b, pj_dtype dtype) {
  bool small_floats = pj_dtype_size(a.dtype) == 1 && pj_dtype_size(b.dtype) == 1 && pj_dtype_is_float(a.dtype) &&
                      pj_dtype_is_float(b.dtype);
  bool complex = pj_dtype_is_complex(a.dtype) || pj_dtype_is_complex(dtype);
  if ((a.dtype == b.dtype || small_floats) && hlo_kind(dtype) && (!complex || a.dtype == dtype)) return true;
  hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s and %s to %s", op, TYPE(a), TYPE(b), pj_dtype_name(dtype));
  return false;
}

hlo_value hlo_dot_general(hlo *h, hlo_value a, hlo_value b, const int *batch_a, const int *batch_b, int batch_count,
                          const int *contract_a, const int *contract_b, int contract_count, pj_dtype dtype) {
  const char *op = "stablehlo.dot_general";
  hlo_value operands[2] = {a, b}, result = {.id = -1, .dtype = dtype};
  bool used_a[PJ_MAX_RANK] = {false}, used_b[PJ_MAX_RANK] = {false};
  if (!hlo_usable(h, op, operands, 2) || !check_dtypes(h, op, a, b, dtype) ||
      !hlo_dim_set(h, op, "batch", a, batch_a, batch_count, used_a) ||
      !hlo_dim_set(h, op, "batch", b, batch_b, batch_count, used_b) ||
      !hlo_dim_set(h, op, "contraction", a, contract_a, contract_count, used_a) ||
      !hlo_dim_set(h, op, "contraction", b, contract_b, contract_count, used_b))
    return hlo_invalid();
  bool fits = a.rank + b.rank - batch_count - 2 * contract_count <= PJ_MAX_RANK;
  for (int i = 0; i < batch_count; ++i) fits &= a.dims[batch_a[i]] == b.dims[batch_b[i]];
  for (int i = 0; i < contract_count; ++i) fits &= a.dims[contract_a[i]] == b.dims[contract_b[i]];
  if (!fits)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: the batch and contraction dimensions of %s and %s do not match", op,
                    TYPE(a), TYPE(b));
  for (int i = 0; i < batch_count; ++i) result.dims[result.rank++] = a.dims[batch_a[i]];
  for (int i = 0; i < a.rank; ++i)
    if (!used_a[i]) result.dims[result.rank++] = a.dims[i];
  for (int i = 0; i < b.rank; ++i)
    if (!used_b[i]) result.dims[result.rank++] = b.dims[i];
  if (!hlo_begin(h, op, operands, 2, &result, 1)) return result;
  hlo_attribute(h, "dot_dimension_numbers");
  hlo_put(h, "#stablehlo.dot<");
  hlo_put_dims(h, "lhs_batching_dimensions", batch_a, batch_count);
  hlo_put_dims(h, ", rhs_batching_dimensions", batch_b, batch_count);
  hlo_put_dims(h, ", lhs_contracting_dimensions", contract_a, contract_count);
  hlo_put_dims(h, ", rhs_contracting_dimensions", contract_b, contract_count);
  hlo_put(h, ">");
  put_precision(h, a.dtype);
  hlo_end(h, operands, 2, &result, 1);
  return result;
}

hlo_value hlo_matmul(hlo *h, hlo_value a, hlo_value b, pj_dtype dtype) {
  if (!hlo_usable(h, "matmul", (hlo_value[]){a, b}, 2)) return hlo_invalid();
  if (a.rank != b.rank || a.rank < 2)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "matmul: %s and %s", TYPE(a), TYPE(b));
  int batch[PJ_MAX_RANK], count = a.rank - 2;
  for (int i = 0; i < count; ++i) batch[i] = i;
  return hlo_dot_general(h, a, b, batch, batch, count, (int[]){a.rank - 1}, (int[]){a.rank - 2}, 1, dtype);
}

// "[b, 0, 1, f]": the role of each dimension; false unless each dimension has exactly one.
static bool put_roles(hlo *h, const char *op, hlo_value x, int first, char first_name, int second, char second_name,
                      const int *spatial, int spatial_count, bool write) {
  int dims[PJ_MAX_RANK], roles[PJ_MAX_RANK];
  bool seen[PJ_MAX_RANK] = {false};
  dims[0] = first, dims[1] = second;
  for (int i = 0; i < spatial_count; ++i) dims[i + 2] = spatial[i];
  if (!hlo_dim_set(h, op, "dimension numbers", x, dims, x.rank, seen)) return false;
  if (!write) return true;
  for (int i = 0; i < x.rank; ++i) roles[dims[i]] = i;
  for (int i = 0; i < x.rank; ++i) {
    hlo_put(h, i ? ", " : "[");
    if (roles[i] > 1)
      hlo_put_int(h, roles[i] - 2);
    else
      hlo_put_bytes(h, roles[i] ? &second_name : &first_name, 1);
  }
  hlo_put(h, "]");
  return true;
}

static bool put_dimension_numbers(hlo *h, const char *op, hlo_value input, hlo_value kernel, hlo_value output,
                                  const hlo_convolution_spec *s, bool write) {
  bool ok = put_roles(h, op, input, s->input_batch, 'b', s->input_feature, 'f', s->input_spatial, s->spatial, write);
  if (write) hlo_put(h, "x");
  ok = ok && put_roles(h, op, kernel, s->kernel_output_feature, 'o', s->kernel_input_feature, 'i', s->kernel_spatial,
                       s->spatial, write);
  if (write) hlo_put(h, "->");
  return ok &&
         put_roles(h, op, output, s->output_batch, 'b', s->output_feature, 'f', s->output_spatial, s->spatial, write);
}

hlo_value hlo_convolution(hlo *h, hlo_value input, hlo_value kernel, const hlo_convolution_spec *spec, pj_dtype dtype) {
  const char *op = "stablehlo.convolution";
  const hlo_convolution_spec *s = spec;
  hlo_value operands[2] = {input, kernel}, result = {.id = -1, .dtype = dtype, .rank = s->spatial + 2};
  if (!hlo_usable(h, op, operands, 2) || !check_dtypes(h, op, input, kernel, dtype)) return hlo_invalid();
  if (s->spatial < 0 || input.rank != s->spatial + 2 || kernel.rank != s->spatial + 2)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s and %s with %d spatial dimensions", op, TYPE(input), TYPE(kernel),
                    s->spatial);
  if (!put_dimension_numbers(h, op, input, kernel, result, s, false)) return hlo_invalid();
  int64_t groups = s->feature_groups, batch_groups = s->batch_groups;
  int64_t features = kernel.dims[s->kernel_output_feature], batch = input.dims[s->input_batch];
  if (groups < 1 || batch_groups < 1 || (groups > 1 && batch_groups > 1) || features % groups ||
      features % batch_groups || batch % batch_groups || input.dims[s->input_feature] % groups ||
      kernel.dims[s->kernel_input_feature] != input.dims[s->input_feature] / groups)
    return hlo_fail(h, PJ_INVALID_ARGUMENT,
                    "%s: the features of %s and %s do not match in %d feature and %d batch groups", op, TYPE(input),
                    TYPE(kernel), (int)groups, (int)batch_groups);
  result.dims[s->output_batch] = batch / batch_groups;
  result.dims[s->output_feature] = features;
  for (int i = 0; i < s->spatial; ++i) {
    int64_t size, window;
    if (s->stride[i] < 1 || !hlo_dilated_size(kernel.dims[s->kernel_spatial[i]], s->rhs_dilation[i], 0, 0, &window) ||
        !hlo_dilated_size(input.dims[s->input_spatial[i]], s->lhs_dilation[i], s->pad_low[i], s->pad_high[i], &size))
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: stride or dilation below 1, or padding that cuts more than spatial "
                      "dimension %d of %s", op, i, TYPE(input));
    result.dims[s->output_spatial[i]] = size == 0 || window > size ? 0 : (size - window) / s->stride[i] + 1;
  }
  if (!hlo_begin(h, op, operands, 2, &result, 1)) return result;
  hlo_attribute(h, "dimension_numbers");
  hlo_put(h, "#stablehlo.conv<");
  put_dimension_numbers(h, op, input, kernel, result, s, true);
  hlo_put(h, ">");
  hlo_attribute_ints(h, "window_strides", s->stride, s->spatial);
  hlo_attribute_pairs(h, "padding", s->pad_low, s->pad_high, s->spatial);
  hlo_attribute_ints(h, "lhs_dilation", s->lhs_dilation, s->spatial);
  hlo_attribute_ints(h, "rhs_dilation", s->rhs_dilation, s->spatial);
  hlo_attribute(h, "window_reversal");
  hlo_put(h, "array<i1");
  for (int i = 0; i < s->spatial; ++i) {
    hlo_put(h, i ? ", " : ": ");
    hlo_put(h, s->reverse[i] ? "true" : "false");
  }
  hlo_put(h, ">");
  hlo_attribute_int(h, "feature_group_count", groups);
  hlo_attribute_int(h, "batch_group_count", batch_groups);
  put_precision(h, input.dtype);
  hlo_end(h, operands, 2, &result, 1);
  return result;
}
