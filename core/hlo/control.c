#include <string.h>

#include "hlo/internal.h"

static bool check_count(hlo *h, const char *op, int n, hlo_value *out_results) {
  if (n >= 1 && n <= HLO_MAX_VALUES) return true;
  hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: of %d values", op, n);
  for (int i = 0; i < n; ++i) out_results[i] = hlo_invalid();
  return false;
}

void hlo_sort(hlo *h, const hlo_value *operands, int n, int dim, bool stable, hlo_body comparator, void *context,
              hlo_value *out_results) {
  const char *op = "stablehlo.sort";
  if (!check_count(h, op, n, out_results)) return;
  hlo_value copies[HLO_MAX_VALUES], results[HLO_MAX_VALUES], scalars[2 * HLO_MAX_VALUES];
  memcpy(copies, operands, (size_t)n * sizeof *copies);  // the caller may sort in place
  bool ok = hlo_usable(h, op, copies, n) && hlo_normal_dim(h, op, copies[0], &dim);
  for (int i = 0; i < n; ++i) {
    if (ok && !hlo_same_dims(copies[i], copies[0])) {
      hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s and %s", op, TYPE(copies[0]), TYPE(copies[i]));
      ok = false;
    }
    results[i] = ok ? hlo_retyped(copies[i], copies[i].dtype) : hlo_invalid();
    scalars[2 * i] = scalars[2 * i + 1] = hlo_type(copies[i].dtype, 0, NULL);
  }
  hlo_value before = hlo_type(PJ_PRED, 0, NULL);
  if (hlo_begin(h, op, copies, n, results, n)) {
    hlo_put(h, " (");
    hlo_region(h, op, true, scalars, 2 * n, comparator, context, &before, 1);
    hlo_put(h, ")");
    hlo_attribute_int(h, "dimension", dim);
    hlo_attribute_bool(h, "is_stable", stable);
    hlo_end(h, copies, n, results, n);
  }
  memcpy(out_results, results, (size_t)n * sizeof *results);
}

void hlo_top_k(hlo *h, hlo_value x, int64_t k, hlo_value *out_values, hlo_value *out_indices) {
  const char *op = "chlo.top_k";
  hlo_value results[2] = {x, x};
  if (hlo_usable(h, op, &x, 1) && hlo_want_kind(h, op, x, KIND_REAL)) {
    if (!x.rank || k < 0 || k > x.dims[x.rank - 1])
      hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %d of %s", op, (int)k, TYPE(x));
    else results[0].dims[x.rank - 1] = results[1].dims[x.rank - 1] = k;
  }
  results[1].dtype = PJ_S32;
  if (hlo_begin(h, op, &x, 1, results, 2)) {
    hlo_attribute_int(h, "k", k);
    hlo_end(h, &x, 1, results, 2);
  }
  *out_values = results[0];
  *out_indices = results[1];
}

void hlo_while(hlo *h, const hlo_value *starts, int n, hlo_body condition, hlo_body body, void *context,
               hlo_value *out_results) {
  const char *op = "stablehlo.while";
  if (!check_count(h, op, n, out_results)) return;
  hlo_value copies[HLO_MAX_VALUES], results[HLO_MAX_VALUES], arguments[HLO_MAX_VALUES], given[HLO_MAX_VALUES];
  for (int i = 0; i < n; ++i) {
    copies[i] = starts[i];
    results[i] = arguments[i] = given[i] = hlo_retyped(starts[i], starts[i].dtype);
  }
  hlo_value go_on = hlo_type(PJ_PRED, 0, NULL);
  if (hlo_begin(h, op, copies, n, results, n)) {
    hlo_put(h, " (");
    hlo_region(h, op, false, arguments, n, condition, context, &go_on, 1);
    hlo_put(h, ", ");
    hlo_region(h, op, false, arguments, n, body, context, given, n);
    hlo_put(h, ")");
    hlo_end(h, copies, n, results, n);
  }
  memcpy(out_results, results, (size_t)n * sizeof *results);
}

void hlo_if(hlo *h, hlo_value predicate, hlo_body on_true, hlo_body on_false, int n, void *context,
            hlo_value *out_results) {
  const char *op = "stablehlo.if";
  if (!check_count(h, op, n, out_results)) return;
  hlo_value results[HLO_MAX_VALUES];
  for (int i = 0; i < n; ++i) results[i] = hlo_invalid();  // typed by the first branch
  if (!h->failed && (predicate.dtype != PJ_PRED || predicate.rank))
    hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: the predicate is %s", op, TYPE(predicate));
  if (hlo_begin(h, op, &predicate, 1, results, n)) {
    hlo_put(h, " (");
    hlo_region(h, op, false, NULL, 0, on_true, context, results, n);
    hlo_put(h, ", ");
    hlo_region(h, op, false, NULL, 0, on_false, context, results, n);
    hlo_put(h, ")");
    hlo_end(h, &predicate, 1, results, n);
  }
  memcpy(out_results, results, (size_t)n * sizeof *results);
}

hlo_value hlo_fft(hlo *h, hlo_fft_kind kind, hlo_value x, const int64_t *lengths, int count) {
  const char *op = "stablehlo.fft";
  static const char *const kinds[] = {"#stablehlo<fft_type FFT>", "#stablehlo<fft_type IFFT>",
                                      "#stablehlo<fft_type RFFT>", "#stablehlo<fft_type IRFFT>"};
  if (!hlo_usable(h, op, &x, 1) || !hlo_want_kind(h, op, x, kind == HLO_RFFT ? KIND_FLOAT : KIND_COMPLEX))
    return hlo_invalid();
  if (kind == HLO_RFFT && x.dtype != PJ_F32 && x.dtype != PJ_F64)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: not defined for %s", op, TYPE(x));
  if (count < 1 || count > 3 || count > x.rank)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %d dimensions of %s, the op takes 1 to 3", op, count, TYPE(x));
  hlo_value result = hlo_retyped(x, kind == HLO_RFFT ? (x.dtype == PJ_F32 ? PJ_C64 : PJ_C128)
                                    : kind == HLO_IRFFT ? pj_real_dtype(x.dtype) : x.dtype);
  for (int i = 0; i < count; ++i) {
    bool half = kind == HLO_IRFFT && i == count - 1;
    int64_t expected = half ? lengths[i] / 2 + 1 : lengths[i];
    if (lengths[i] < 1 || x.dims[x.rank - count + i] != expected)
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: length %d for dimension %d of %s", op, (int)lengths[i],
                      x.rank - count + i, TYPE(x));
  }
  int64_t *last = &result.dims[x.rank - 1];
  *last = kind == HLO_RFFT ? lengths[count - 1] / 2 + 1 : lengths[count - 1];
  if (!hlo_begin(h, op, &x, 1, &result, 1)) return result;
  hlo_attribute_text(h, "fft_type", kinds[kind]);
  hlo_attribute_ints(h, "fft_length", lengths, count);
  hlo_end(h, &x, 1, &result, 1);
  return result;
}

// ---- linear algebra -------------------------------------------------------------------------------------------------

// f32, f64 and their complex types; square in the last two dimensions.
static bool check_square(hlo *h, const char *op, hlo_value x) {
  pj_dtype real = pj_real_dtype(x.dtype);
  if (x.rank >= 2 && x.dims[x.rank - 1] == x.dims[x.rank - 2] && (real == PJ_F32 || real == PJ_F64)) return true;
  hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: not defined for %s", op, TYPE(x));
  return false;
}

hlo_value hlo_cholesky(hlo *h, hlo_value x, bool lower) {
  const char *op = "stablehlo.cholesky";
  hlo_value result = hlo_retyped(x, x.dtype);
  if (!hlo_usable(h, op, &x, 1) || !check_square(h, op, x) || !hlo_begin(h, op, &x, 1, &result, 1))
    return hlo_invalid();
  hlo_attribute_bool(h, "lower", lower);
  hlo_end(h, &x, 1, &result, 1);
  return result;
}

hlo_value hlo_triangular_solve(hlo *h, hlo_value a, hlo_value b, bool left, bool lower, bool unit_diagonal,
                               hlo_transpose_kind transpose) {
  const char *op = "stablehlo.triangular_solve";
  static const char *const transposes[] = {"#stablehlo<transpose NO_TRANSPOSE>", "#stablehlo<transpose TRANSPOSE>",
                                           "#stablehlo<transpose ADJOINT>"};
  hlo_value operands[2] = {a, b}, result = hlo_retyped(b, b.dtype);
  if (!hlo_usable(h, op, operands, 2) || !check_square(h, op, a)) return hlo_invalid();
  bool fits = a.dtype == b.dtype && a.rank == b.rank && b.dims[left ? b.rank - 2 : b.rank - 1] == a.dims[a.rank - 1];
  for (int i = 0; fits && i < a.rank - 2; ++i) fits = a.dims[i] == b.dims[i];
  if (!fits) return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s and %s", op, TYPE(a), TYPE(b));
  if (!hlo_begin(h, op, operands, 2, &result, 1)) return result;
  hlo_attribute_bool(h, "left_side", left);
  hlo_attribute_bool(h, "lower", lower);
  hlo_attribute_bool(h, "unit_diagonal", unit_diagonal);
  hlo_attribute_text(h, "transpose_a", transposes[transpose]);
  hlo_end(h, operands, 2, &result, 1);
  return result;
}

// ---- the rest -------------------------------------------------------------------------------------------------------

// An MLIR string literal.
static void put_string(hlo *h, const char *text) {
  static const char hex[] = "0123456789ABCDEF";
  hlo_put(h, "\"");
  for (const unsigned char *at = (const unsigned char *)text; *at; ++at) {
    bool plain = *at >= ' ' && *at < 127 && *at != '"' && *at != '\\';
    char escaped[3] = {'\\', hex[*at >> 4], hex[*at & 15]};
    hlo_put_bytes(h, plain ? (const char *)at : escaped, plain ? 1 : 3);
  }
  hlo_put(h, "\"");
}

static void put_layouts(hlo *h, const char *name, const hlo_value *values, int count) {
  hlo_attribute(h, name);
  hlo_put(h, "[");
  for (int i = 0; i < count; ++i) {
    hlo_put(h, i ? ", dense<" : "dense<");
    for (int d = values[i].rank; d-- > 0;) {
      hlo_put(h, d == values[i].rank - 1 ? "[" : ", ");
      hlo_put_int(h, d);
    }
    hlo_put(h, values[i].rank ? "]> : tensor<" : "> : tensor<");
    hlo_put_int(h, values[i].rank);
    hlo_put(h, "xindex>");
  }
  hlo_put(h, "]");
}

void hlo_custom_call(hlo *h, const char *target, const char *backend_config, const hlo_value *operands, int count,
                     hlo_value *results, int result_count) {
  if (!hlo_begin(h, "stablehlo.custom_call", operands, count, results, result_count)) return;
  hlo_attribute(h, "call_target_name");
  put_string(h, target);
  if (backend_config) {
    hlo_attribute(h, "backend_config");
    put_string(h, backend_config);
  }
  put_layouts(h, "operand_layouts", operands, count);
  put_layouts(h, "result_layouts", results, result_count);
  hlo_end(h, operands, count, results, result_count);
}

hlo_value hlo_optimization_barrier(hlo *h, hlo_value x) {
  return hlo_simple(h, "stablehlo.optimization_barrier", &x, 1, hlo_retyped(x, x.dtype));
}

static bool is_small_part(hlo_value update, hlo_value target) { return hlo_size(update) < hlo_size(target) / 64; }

hlo_value hlo_small_update(hlo *h, hlo_value target, hlo_value update) {
  return is_small_part(update, target) ? hlo_optimization_barrier(h, update) : update;
}

hlo_value hlo_written(hlo *h, hlo_value target, hlo_value update, hlo_value result) {
  return is_small_part(update, target) ? hlo_optimization_barrier(h, result) : result;
}
