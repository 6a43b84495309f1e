#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/internal.h"

// Stands for every module whose first allocation failed. A failed module is never written to.
static const hlo OUT_OF_MEMORY = {.failed = true};

hlo *hlo_create(void) {
  hlo *h = calloc(1, sizeof *h);
  if (!h) return (hlo *)&OUT_OF_MEMORY;
  if (hlo_grow(h, (void **)&h->scopes, &h->scope_capacity, 1, sizeof *h->scopes)) {
    h->scopes[0] = (hlo_scope){.parent = -1, .isolated = true};
    h->scope_count = 1;
  }
  return h;
}

void hlo_destroy(hlo *h) {
  if (!h || h == &OUT_OF_MEMORY) return;
  pj_status_free(h->error);
  free(h->text.data);
  free(h->value_scope);
  free(h->scopes);
  free(h->arguments);
  free(h);
}

hlo_value hlo_fail(hlo *h, pj_code code, const char *format, ...) {
  if (!h->failed) {
    va_list args;
    va_start(args, format);
    h->error = pj_error_v(code, format, args);
    va_end(args);
    h->failed = true;
  }
  return hlo_invalid();
}

bool hlo_failed(const hlo *h) { return h->failed; }

// ---- types ----------------------------------------------------------------------------------------------------------

int hlo_kind(pj_dtype dtype) {
  if (dtype == PJ_PRED) return KIND_PRED;
  if (pj_dtype_is_float(dtype)) return KIND_FLOAT;
  if (pj_dtype_is_complex(dtype)) return KIND_COMPLEX;
  if (pj_dtype_is_integer(dtype)) return pj_dtype_is_signed(dtype) ? KIND_SIGNED : KIND_UNSIGNED;
  return 0;
}

hlo_value hlo_type(pj_dtype dtype, int rank, const int64_t *dims) {
  hlo_value type = {.id = -1, .dtype = dtype, .rank = rank};
  for (int i = 0; i < rank && i < PJ_MAX_RANK; ++i) type.dims[i] = dims[i];
  return type;
}

hlo_value hlo_retyped(hlo_value x, pj_dtype dtype) { return hlo_type(dtype, x.rank, x.dims); }

hlo_value hlo_invalid(void) { return (hlo_value){.id = -1}; }

int64_t hlo_size(hlo_value x) {
  int64_t size = 1;
  for (int i = 0; i < x.rank; ++i)
    if (x.dims[i] == 0) return 0;
  for (int i = 0; i < x.rank; ++i)
    if (__builtin_mul_overflow(size, x.dims[i], &size)) return -1;
  return size;
}

bool hlo_same_dims(hlo_value a, hlo_value b) {
  return a.rank == b.rank && !memcmp(a.dims, b.dims, (size_t)a.rank * sizeof a.dims[0]);
}

bool hlo_same_type(hlo_value a, hlo_value b) { return a.dtype == b.dtype && hlo_same_dims(a, b); }

const char *hlo_type_text(hlo_value x, char buffer[HLO_TYPE_TEXT]) {
  int used = snprintf(buffer, HLO_TYPE_TEXT, "tensor<");
  for (int i = 0; i < x.rank && i < PJ_MAX_RANK; ++i)
    used += snprintf(buffer + used, HLO_TYPE_TEXT - (size_t)used, "%" PRId64 "x", x.dims[i]);
  snprintf(buffer + used, HLO_TYPE_TEXT - (size_t)used, "%s>", pj_dtype_name(x.dtype));
  return buffer;
}

// ---- checks ---------------------------------------------------------------------------------------------------------

static bool valid_type(hlo *h, const char *op, hlo_value x) {
  if (!hlo_kind(x.dtype)) return hlo_fail(h, PJ_INTERNAL, "%s: a value without an element type", op), false;
  if (x.rank < 0 || x.rank > PJ_MAX_RANK)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %d dimensions, the most is %d", op, x.rank, PJ_MAX_RANK), false;
  int64_t bytes = (int64_t)pj_dtype_size(x.dtype);
  for (int i = 0; i < x.rank; ++i) {
    if (x.dims[i] < 0) return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: negative dimension in %s", op, TYPE(x)), false;
    if (x.dims[i] && __builtin_mul_overflow(bytes, x.dims[i], &bytes))
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s has more than 2^63 bytes", op, TYPE(x)), false;
  }
  return true;
}

static bool visible(const hlo *h, hlo_value x) {
  if (x.id < 0 || x.id >= h->value_count) return false;
  for (int32_t scope = h->scope;; scope = h->scopes[scope].parent) {
    if (h->value_scope[x.id] == scope) return true;
    if (h->scopes[scope].isolated) return false;
  }
}

bool hlo_usable(hlo *h, const char *op, const hlo_value *values, int count) {
  if (h->failed) return false;
  if (h->finished) return hlo_fail(h, PJ_INTERNAL, "%s: the module is already finished", op), false;
  for (int i = 0; i < count; ++i) {
    if (!valid_type(h, op, values[i])) return false;
    if (!visible(h, values[i]))
      return hlo_fail(h, PJ_INTERNAL, "%s: operand %d, %s, is not a value of this region", op, i, TYPE(values[i])),
             false;
  }
  return true;
}

bool hlo_want_kind(hlo *h, const char *op, hlo_value x, int kinds) {
  if (hlo_kind(x.dtype) & kinds) return true;
  hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: not defined for %s", op, TYPE(x));
  return false;
}

bool hlo_normal_dim(hlo *h, const char *op, hlo_value x, int *dim) {
  int normal = *dim < 0 ? *dim + x.rank : *dim;
  if (normal < 0 || normal >= x.rank)
    return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: dimension %d of %s", op, *dim, TYPE(x)), false;
  *dim = normal;
  return true;
}

bool hlo_dilated_size(int64_t size, int64_t dilation, int64_t low, int64_t high, int64_t *out_size) {
  int64_t padding, spread = 0;
  if (size && (__builtin_mul_overflow(size - 1, dilation, &spread) || __builtin_add_overflow(spread, 1, &spread)))
    return false;
  return dilation >= 1 && !__builtin_add_overflow(low, high, &padding) &&
         !__builtin_add_overflow(spread, padding, out_size) && *out_size >= 0;
}

bool hlo_dim_set(hlo *h, const char *op, const char *what, hlo_value x, const int *dims, int count,
                 bool out_set[PJ_MAX_RANK]) {
  for (int i = 0; i < count; ++i) {
    if (dims[i] < 0 || dims[i] >= x.rank || out_set[dims[i]])
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "%s: %s: dimension %d of %s is out of range or repeated", op, what,
                      dims[i], TYPE(x)),
             false;
    out_set[dims[i]] = true;
  }
  return true;
}

// ---- text -----------------------------------------------------------------------------------------------------------

bool hlo_grow(hlo *h, void **data, size_t *capacity, size_t count, size_t size) {
  if (count <= *capacity) return true;
  size_t wanted = *capacity ? *capacity * 2 : 64;
  if (wanted < count) wanted = count;
  void *grown = realloc(*data, wanted * size);
  if (!grown) return hlo_fail(h, PJ_RESOURCE_EXHAUSTED, "out of host memory for a StableHLO module"), false;
  *data = grown;
  *capacity = wanted;
  return true;
}

void hlo_put_bytes(hlo *h, const char *data, size_t size) {
  if (!hlo_grow(h, (void **)&h->text.data, &h->text.capacity, h->text.size + size, 1)) return;
  memcpy(h->text.data + h->text.size, data, size);
  h->text.size += size;
}

void hlo_put(hlo *h, const char *text) { hlo_put_bytes(h, text, strlen(text)); }

void hlo_put_int(hlo *h, int64_t value) {
  char digits[24], *end = digits + sizeof digits, *at = end;
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do *--at = (char)('0' + rest % 10);
  while (rest /= 10);
  if (value < 0) *--at = '-';
  hlo_put_bytes(h, at, (size_t)(end - at));
}

void hlo_put_type(hlo *h, hlo_value x) {
  hlo_put(h, "tensor<");
  for (int i = 0; i < x.rank; ++i) {
    hlo_put_int(h, x.dims[i]);
    hlo_put(h, "x");
  }
  hlo_put(h, pj_dtype_name(x.dtype));
  hlo_put(h, ">");
}

static void put_values(hlo *h, const hlo_value *values, int count) {
  for (int i = 0; i < count; ++i) {
    hlo_put(h, i ? ", %" : "%");
    hlo_put_int(h, values[i].id);
  }
}

static void put_types(hlo *h, const hlo_value *values, int count) {
  for (int i = 0; i < count; ++i) {
    if (i) hlo_put(h, ", ");
    hlo_put_type(h, values[i]);
  }
}

static void put_indent(hlo *h) {
  hlo_put(h, "    ");
  for (int i = 0; i < h->depth; ++i) hlo_put(h, "  ");
}

// ---- one operation --------------------------------------------------------------------------------------------------

static int32_t new_value(hlo *h, int32_t scope) {
  if (!hlo_grow(h, (void **)&h->value_scope, &h->value_capacity, (size_t)h->value_count + 1, sizeof *h->value_scope))
    return -1;
  h->value_scope[h->value_count] = scope;
  return h->value_count++;
}

static void invalidate(hlo_value *values, int count) {
  for (int i = 0; i < count; ++i) values[i] = hlo_invalid();
}

bool hlo_begin(hlo *h, const char *op, const hlo_value *operands, int count, hlo_value *results, int result_count) {
  bool ok = hlo_usable(h, op, operands, count);
  for (int i = 0; ok && i < result_count; ++i)  // PJ_INVALID: a type that the op's region will tell
    ok = results[i].dtype == PJ_INVALID || valid_type(h, op, results[i]);
  if (!ok) return invalidate(results, result_count), false;
  for (int i = 0; i < result_count; ++i) results[i].id = new_value(h, h->scope);
  put_indent(h);
  put_values(h, results, result_count);
  hlo_put(h, result_count ? " = \"" : "\"");
  hlo_put(h, op);
  hlo_put(h, "\"(");
  put_values(h, operands, count);
  hlo_put(h, ")");
  h->attributes = 0;
  return true;
}

void hlo_end(hlo *h, const hlo_value *operands, int count, hlo_value *results, int result_count) {
  if (h->failed) {  // in a region, or out of memory
    invalidate(results, result_count);
    return;
  }
  hlo_put(h, h->attributes ? "} : (" : " : (");
  put_types(h, operands, count);
  hlo_put(h, ") -> ");
  if (result_count != 1) hlo_put(h, "(");
  put_types(h, results, result_count);
  hlo_put(h, result_count != 1 ? ")\n" : "\n");
}

hlo_value hlo_simple(hlo *h, const char *op, const hlo_value *operands, int count, hlo_value type) {
  if (hlo_begin(h, op, operands, count, &type, 1)) hlo_end(h, operands, count, &type, 1);
  return type;
}

void hlo_attribute(hlo *h, const char *name) {
  hlo_put(h, h->attributes++ ? ", " : " {");
  hlo_put(h, name);
  hlo_put(h, " = ");
}

void hlo_attribute_text(hlo *h, const char *name, const char *text) {
  hlo_attribute(h, name);
  hlo_put(h, text);
}

void hlo_attribute_int(hlo *h, const char *name, int64_t value) {
  hlo_attribute(h, name);
  hlo_put_int(h, value);
  hlo_put(h, " : i64");
}

void hlo_attribute_bool(hlo *h, const char *name, bool value) { hlo_attribute_text(h, name, value ? "true" : "false"); }

void hlo_attribute_ints(hlo *h, const char *name, const int64_t *values, int count) {
  hlo_attribute(h, name);
  hlo_put(h, "array<i64");
  for (int i = 0; i < count; ++i) {
    hlo_put(h, i ? ", " : ": ");
    hlo_put_int(h, values[i]);
  }
  hlo_put(h, ">");
}

void hlo_attribute_dims(hlo *h, const char *name, const int *dims, int count) {
  int64_t values[PJ_MAX_RANK];
  for (int i = 0; i < count; ++i) values[i] = dims[i];
  hlo_attribute_ints(h, name, values, count);
}

void hlo_attribute_pairs(hlo *h, const char *name, const int64_t *low, const int64_t *high, int count) {
  hlo_attribute(h, name);
  hlo_put(h, count ? "dense<[" : "dense<");
  for (int i = 0; i < count; ++i) {
    hlo_put(h, i ? ", [" : "[");
    hlo_put_int(h, low[i]);
    hlo_put(h, ", ");
    hlo_put_int(h, high[i]);
    hlo_put(h, "]");
  }
  hlo_put(h, count ? "]> : tensor<" : "> : tensor<");
  hlo_put_int(h, count);
  hlo_put(h, "x2xi64>");
}

void hlo_put_dims(hlo *h, const char *name, const int *dims, int count) {
  hlo_put(h, name);
  hlo_put(h, " = [");
  for (int i = 0; i < count; ++i) {
    if (i) hlo_put(h, ", ");
    hlo_put_int(h, dims[i]);
  }
  hlo_put(h, "]");
}

void hlo_region(hlo *h, const char *op, bool isolated, hlo_value *arguments, int count, hlo_body body, void *context,
                hlo_value *results, int result_count) {
  if (h->failed || !hlo_grow(h, (void **)&h->scopes, &h->scope_capacity, (size_t)h->scope_count + 1, sizeof *h->scopes))
    return;
  h->scopes[h->scope_count] = (hlo_scope){.parent = h->scope, .isolated = isolated};
  h->scope = h->scope_count++;
  hlo_put(h, "{\n");
  for (int i = 0; i < count; ++i) {
    if (!i) put_indent(h), hlo_put(h, "^bb0(");
    arguments[i].id = new_value(h, h->scope);
    hlo_put(h, i ? ", " : "");
    put_values(h, &arguments[i], 1);
    hlo_put(h, ": ");
    hlo_put_type(h, arguments[i]);
    if (i == count - 1) hlo_put(h, "):\n");
  }
  h->depth += 1;
  hlo_value given[HLO_MAX_VALUES] = {0};
  body(h, arguments, given, context);
  for (int i = 0; i < result_count && !h->failed; ++i) {
    if (results[i].dtype != PJ_INVALID && !hlo_same_type(results[i], given[i]))
      hlo_fail(h, PJ_INTERNAL, "%s: result %d of the region is %s, not %s", op, i, TYPE(given[i]), TYPE(results[i]));
    int32_t id = results[i].id;
    results[i] = given[i];
    results[i].id = id;
  }
  if (hlo_begin(h, "stablehlo.return", given, result_count, NULL, 0)) hlo_end(h, given, result_count, NULL, 0);
  h->depth -= 1;
  put_indent(h);
  hlo_put(h, "}");
  h->attributes = 0;
  h->scope = h->scopes[h->scope].parent;
}

// ---- @main ----------------------------------------------------------------------------------------------------------

hlo_value hlo_parameter(hlo *h, pj_dtype dtype, int rank, const int64_t *dims, int aliased_output) {
  hlo_value x = hlo_type(dtype, rank, dims);
  if (!hlo_usable(h, "parameter", NULL, 0) || !valid_type(h, "parameter", x) ||
      !hlo_grow(h, (void **)&h->arguments, &h->argument_capacity, h->argument_count + 1, sizeof *h->arguments))
    return hlo_invalid();
  x.id = new_value(h, 0);
  h->arguments[h->argument_count++] = (hlo_argument){.value = x, .aliased_output = aliased_output};
  return h->failed ? hlo_invalid() : x;
}

static bool check_aliases(hlo *h, const hlo_value *results, size_t count) {
  for (size_t i = 0; i < h->argument_count; ++i) {
    const hlo_argument *a = &h->arguments[i];
    if (a->aliased_output < 0) continue;
    if ((size_t)a->aliased_output >= count || !hlo_same_type(a->value, results[a->aliased_output]))
      return hlo_fail(h, PJ_INVALID_ARGUMENT, "parameter %zu, %s, cannot be donated to result %d of %zu, %s", i,
                      TYPE(a->value), a->aliased_output, count,
                      (size_t)a->aliased_output < count ? TYPE(results[a->aliased_output]) : "which does not exist"),
             false;
    for (size_t j = 0; j < i; ++j)
      if (h->arguments[j].aliased_output == a->aliased_output)
        return hlo_fail(h, PJ_INVALID_ARGUMENT, "parameters %zu and %zu are both donated to result %d", j, i,
                        a->aliased_output), false;
  }
  return true;
}

pj_status hlo_finish(hlo *h, const hlo_value *results, size_t count, const char **out_text, size_t *out_size) {
  int result_count = (int)count;
  if (hlo_usable(h, "func.return", results, result_count) && check_aliases(h, results, count)) {
    if (hlo_begin(h, "func.return", results, result_count, NULL, 0)) hlo_end(h, results, result_count, NULL, 0);
    hlo_text body = h->text;
    h->text = (hlo_text){0};
    hlo_put(h, "module @pj {\n  func.func public @main(");
    for (size_t i = 0; i < h->argument_count; ++i) {
      hlo_put(h, i ? ", " : "");
      put_values(h, &h->arguments[i].value, 1);
      hlo_put(h, ": ");
      hlo_put_type(h, h->arguments[i].value);
      if (h->arguments[i].aliased_output < 0) continue;
      hlo_put(h, " {tf.aliasing_output = ");
      hlo_put_int(h, h->arguments[i].aliased_output);
      hlo_put(h, " : i32}");
    }
    hlo_put(h, ") -> (");
    put_types(h, results, result_count);
    hlo_put(h, ") {\n");
    hlo_put_bytes(h, body.data, body.size);
    hlo_put_bytes(h, "  }\n}\n", sizeof "  }\n}\n");
    free(body.data);
    h->finished = !h->failed;
  }
  if (h->failed) return h->error ? pj_status_copy(h->error) : pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  *out_text = h->text.data;
  *out_size = h->text.size - 1;
  return NULL;
}
