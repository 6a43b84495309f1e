// What the writer writes, and what it refuses. The texts are those of StableHLO's generic form.
#include "hlo/hlo.h"
#include "test.h"

#include <math.h>

#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#define INTS(...) (int64_t[]){__VA_ARGS__}

static hlo_value in(hlo *h, pj_dtype dtype, int rank, const int64_t *dims) {
  return hlo_parameter(h, dtype, rank, dims, -1);
}

// Ends the module with one result and looks for `part` in its text.
static void check_text(hlo *h, hlo_value result, const char *part) {
  const char *text = "";
  size_t size = 0;
  pj_status status = hlo_finish(h, &result, 1, &text, &size);
  bool found = !status && strstr(text, part);
  if (!status && !found) fprintf(stderr, "no '%s' in\n%s", part, text);
  CHECK_OK(status);
  CHECK(found);
  CHECK(!found || strlen(text) == size);
  hlo_destroy(h);
}

static void check_refused(hlo *h, hlo_value result, pj_code code, const char *part) {
  const char *text;
  size_t size;
  CHECK(result.id < 0);
  CHECK(hlo_failed(h));
  CHECK_FAILS(hlo_finish(h, &result, 1, &text, &size), code, part);
  hlo_destroy(h);
}

static void a_module_is_a_main_function_with_its_parameters_and_results(void) {
  hlo *h = hlo_create();
  hlo_value a = hlo_parameter(h, PJ_F32, DIMS(2, 3), 0), b = hlo_parameter(h, PJ_F32, 0, NULL, -1);
  check_text(h, hlo_add(h, a, b),
             "module @pj {\n"
             "  func.func public @main(%0: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %1: tensor<f32>) -> "
             "(tensor<2x3xf32>) {\n"
             "    %2 = \"stablehlo.broadcast_in_dim\"(%1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> "
             "tensor<2x3xf32>\n"
             "    %3 = \"stablehlo.add\"(%0, %2) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>\n"
             "    \"func.return\"(%3) : (tensor<2x3xf32>) -> ()\n"
             "  }\n"
             "}\n");
}

static void a_region_has_arguments_of_its_own(void) {
  hlo *h = hlo_create();
  check_text(h, hlo_reduce_sum(h, in(h, PJ_S64, DIMS(4, 5)), -1),
             "    %2 = \"stablehlo.reduce\"(%0, %1) ({\n"
             "    ^bb0(%3: tensor<i64>, %4: tensor<i64>):\n"
             "      %5 = \"stablehlo.add\"(%3, %4) : (tensor<i64>, tensor<i64>) -> tensor<i64>\n"
             "      \"stablehlo.return\"(%5) : (tensor<i64>) -> ()\n"
             "    }) {dimensions = array<i64: 1>} : (tensor<4x5xi64>, tensor<i64>) -> tensor<4xi64>\n");
}

static void constants_keep_every_bit(void) {
  static const struct {
    pj_dtype dtype;
    double value;
    const char *text;
  } cases[] = {
      {PJ_F64, 0.1, "dense<1.0000000000000001e-01> : tensor<f64>"},
      {PJ_F32, -0.0, "dense<-0.0000000000000000e+00> : tensor<f32>"},
      {PJ_BF16, INFINITY, "dense<0x7F80> : tensor<bf16>"},
      {PJ_F16, -INFINITY, "dense<0xFC00> : tensor<f16>"},
      {PJ_F8E4M3FN, NAN, "dense<0x7F> : tensor<f8E4M3FN>"},
      {PJ_C64, 2, "dense<(2.0000000000000000e+00, 0.0)> : tensor<complex<f32>>"},
      {PJ_S8, -128, "dense<-128> : tensor<i8>"},
      {PJ_PRED, 3, "dense<true> : tensor<i1>"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    hlo *h = hlo_create();
    check_text(h, hlo_constant(h, cases[i].dtype, cases[i].value), cases[i].text);
  }
  hlo *h = hlo_create();
  check_text(h, hlo_constant_int(h, PJ_U64, -1), "dense<18446744073709551615> : tensor<ui64>");
  h = hlo_create();
  check_text(h, hlo_constant_int(h, PJ_S64, INT64_MIN), "dense<-9223372036854775808> : tensor<i64>");
  h = hlo_create();
  check_text(h, hlo_constant_ints(h, PJ_S32, NULL, 0), "dense<> : tensor<0xi32>");
  h = hlo_create();
  check_text(h, hlo_highest(h, PJ_U32), "dense<4294967295> : tensor<ui32>");
  h = hlo_create();
  check_text(h, hlo_lowest(h, PJ_S16), "dense<-32768> : tensor<i16>");
}

static void constants_outside_their_type_are_refused(void) {
  hlo *h = hlo_create();
  check_refused(h, hlo_constant_int(h, PJ_U8, -1), PJ_INVALID_ARGUMENT, "-1 is not a value of ui8");
  h = hlo_create();
  check_refused(h, hlo_constant(h, PJ_S32, 0.5), PJ_INVALID_ARGUMENT, "0.5 is not a value of i32");
  h = hlo_create();
  check_refused(h, hlo_constant(h, PJ_S64, 0x1p63), PJ_INVALID_ARGUMENT, "is not a value of i64");
}

static void what_changes_nothing_writes_nothing(void) {
  hlo *h = hlo_create();
  hlo_value x = in(h, PJ_F32, DIMS(2, 3)), y = x;
  y = hlo_reshape(h, y, DIMS(2, 3));
  y = hlo_transpose(h, y, (int[]){0, 1});
  y = hlo_broadcast_to(h, y, DIMS(2, 3));
  y = hlo_slice(h, y, INTS(0, 0), INTS(2, 3), NULL);
  y = hlo_pad(h, y, hlo_constant(h, PJ_F32, 0), NULL, NULL, NULL);
  y = hlo_convert(h, y, PJ_F32);
  y = hlo_bitcast(h, y, PJ_F32);
  y = hlo_real(h, y);
  y = hlo_reduce(h, HLO_ADD, y, NULL, 0);
  y = hlo_concatenate(h, &y, 1, 0);
  CHECK(y.id == x.id);
  hlo_destroy(h);
}

static void the_first_error_stays_and_later_calls_do_nothing(void) {
  hlo *h = hlo_create();
  hlo_value a = in(h, PJ_F32, DIMS(2, 3)), b = in(h, PJ_F32, DIMS(4));
  hlo_value wrong = hlo_mul(h, a, b);
  hlo_value later = hlo_reduce_sum(h, hlo_exp(h, hlo_concatenate(h, (hlo_value[]){wrong, a}, 2, 7)), 5);
  CHECK(wrong.id < 0);
  check_refused(h, later, PJ_INVALID_ARGUMENT, "stablehlo.multiply: tensor<2x3xf32> and tensor<4xf32>");
}

// Each call must refuse its operands.
static void ill_typed_operations_are_refused(void) {
#define REFUSED(call, code, part)                                                    \
  do {                                                                               \
    hlo *h = hlo_create();                                                           \
    hlo_value x = in(h, PJ_F32, DIMS(2, 3)), i = in(h, PJ_S64, DIMS(2, 3)), s = in(h, PJ_S64, 0, NULL); \
    hlo_value p = in(h, PJ_PRED, DIMS(2, 3)), c = in(h, PJ_C64, DIMS(2, 3));         \
    (void)x, (void)i, (void)s, (void)p, (void)c;                                     \
    check_refused(h, call, code, part);                                              \
  } while (0)
  REFUSED(hlo_add(h, x, i), PJ_INTERNAL, "differ in element type");
  REFUSED(hlo_exp(h, i), PJ_INVALID_ARGUMENT, "stablehlo.exponential: not defined for tensor<2x3xi64>");
  REFUSED(hlo_sub(h, p, p), PJ_INVALID_ARGUMENT, "not defined for tensor<2x3xi1>");
  REFUSED(hlo_lt(h, c, c), PJ_INVALID_ARGUMENT, "stablehlo.compare: not defined");
  REFUSED(hlo_select(h, x, x, x), PJ_INVALID_ARGUMENT, "stablehlo.select");
  REFUSED(hlo_complex(h, i, i), PJ_INVALID_ARGUMENT, "stablehlo.complex");
  REFUSED(hlo_bitcast(h, x, PJ_F64), PJ_INVALID_ARGUMENT, "does not make one f64");
  REFUSED(hlo_bitcast(h, x, PJ_C64), PJ_INVALID_ARGUMENT, "not a pair of parts");
  REFUSED(hlo_reshape(h, x, DIMS(4, 2)), PJ_INVALID_ARGUMENT, "tensor<2x3xf32> to tensor<4x2xf32>");
  REFUSED(hlo_reshape(h, x, DIMS(-2, -3)), PJ_INVALID_ARGUMENT, "negative dimension");
  REFUSED(hlo_transpose(h, x, (int[]){0, 0}), PJ_INVALID_ARGUMENT, "out of range or repeated");
  REFUSED(hlo_broadcast_to(h, x, DIMS(3, 3)), PJ_INVALID_ARGUMENT, "stablehlo.broadcast_in_dim");
  REFUSED(hlo_broadcast_to(h, x, 17, INTS(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3)), PJ_INVALID_ARGUMENT,
          "17");
  REFUSED(hlo_slice(h, x, INTS(0, 2), INTS(2, 4), NULL), PJ_INVALID_ARGUMENT, "2:4:1 of dimension 1");
  REFUSED(hlo_slice(h, x, INTS(0, 0), INTS(2, 3), INTS(1, 0)), PJ_INVALID_ARGUMENT, "0:3:0");
  REFUSED(hlo_dynamic_slice(h, x, (hlo_value[]){s, x}, INTS(1, 1)), PJ_INVALID_ARGUMENT, "start index 1");
  REFUSED(hlo_dynamic_slice(h, x, (hlo_value[]){s, s}, INTS(1, 4)), PJ_INVALID_ARGUMENT, "tensor<1x4xf32> from");
  REFUSED(hlo_dynamic_update_slice(h, x, i, (hlo_value[]){s, s}), PJ_INVALID_ARGUMENT, "tensor<2x3xi64> into");
  REFUSED(hlo_pad(h, x, s, NULL, NULL, NULL), PJ_INVALID_ARGUMENT, "stablehlo.pad");
  REFUSED(hlo_pad(h, x, hlo_constant(h, PJ_F32, 0), INTS(-3, 0), NULL, NULL), PJ_INVALID_ARGUMENT, "dimension 0");
  REFUSED(hlo_reverse(h, x, (int[]){2}, 1), PJ_INVALID_ARGUMENT, "stablehlo.reverse");
  REFUSED(hlo_concatenate(h, (hlo_value[]){x, i}, 2, 0), PJ_INVALID_ARGUMENT, "stablehlo.concatenate");
  REFUSED(hlo_concatenate(h, NULL, 0, 0), PJ_INVALID_ARGUMENT, "of nothing");
  REFUSED(hlo_keep(h, x, 4), PJ_INVALID_ARGUMENT, "dimension 4");
  REFUSED(hlo_drop(h, x, 0), PJ_INVALID_ARGUMENT, "not of size 1");
  REFUSED(hlo_matmul(h, x, x, PJ_F32), PJ_INVALID_ARGUMENT, "do not match");
  REFUSED(hlo_reduce(h, HLO_ADD, x, (int[]){1, 1}, 2), PJ_INVALID_ARGUMENT, "stablehlo.reduce");
  REFUSED(hlo_reduce(h, HLO_SECOND, x, (int[]){1}, 1), PJ_INTERNAL, "no identity");
  REFUSED(hlo_reduce(h, HLO_AND, x, (int[]){1}, 1), PJ_INVALID_ARGUMENT, "stablehlo.not");
  REFUSED(hlo_reduce_max(h, c, 0), PJ_INVALID_ARGUMENT, "lowest value");
  REFUSED(hlo_reduce_sum(h, s, 0), PJ_INVALID_ARGUMENT, "dimension 0 of tensor<i64>");
  REFUSED(hlo_scan(h, HLO_ADD, x, 2), PJ_INVALID_ARGUMENT, "dimension 2");
  REFUSED(hlo_take(h, x, x, 0), PJ_INVALID_ARGUMENT, "stablehlo.gather: not defined for tensor<2x3xf32>");
  REFUSED(hlo_fft(h, HLO_FFT, x, INTS(3), 1), PJ_INVALID_ARGUMENT, "stablehlo.fft");
  REFUSED(hlo_fft(h, HLO_IRFFT, c, INTS(6), 1), PJ_INVALID_ARGUMENT, "length 6");
  REFUSED(hlo_cholesky(h, x, true), PJ_INVALID_ARGUMENT, "stablehlo.cholesky");
  REFUSED(hlo_triangular_solve(h, x, x, true, true, false, HLO_ADJOINT), PJ_INVALID_ARGUMENT, "triangular_solve");
  REFUSED(hlo_parameter(h, PJ_INVALID, 0, NULL, -1), PJ_INTERNAL, "element type");
  REFUSED(hlo_pad(h, x, hlo_constant(h, PJ_F32, 0), INTS(INT64_MAX, 0), INTS(9, 0), NULL), PJ_INVALID_ARGUMENT, "pad");
  REFUSED(hlo_reshape(h, x, DIMS(INT64_MAX, 2)), PJ_INVALID_ARGUMENT, "stablehlo.reshape");
  REFUSED(hlo_reduce_window(h, HLO_ADD, x, &(hlo_window){0}), PJ_INVALID_ARGUMENT, "below 1");
  REFUSED(hlo_convolution(h, x, x, &(hlo_convolution_spec){.input_feature = 1, .kernel_input_feature = 1,
                                                           .output_feature = 1, .feature_groups = 2, .batch_groups = 1},
                          PJ_F32), PJ_INVALID_ARGUMENT, "do not match in 2 feature and 1 batch groups");
  REFUSED(hlo_full(h, PJ_F32, DIMS(INT64_MAX, 2), 0), PJ_INVALID_ARGUMENT, "2^63 bytes");
#undef REFUSED
}

static void ill_formed_scatters_and_gathers_are_refused(void) {
  hlo_scatter_spec rows = {.update_window = {1}, .update_window_count = 1, .inserted = {0}, .inserted_count = 1,
                           .scatter_dims = {0}, .scatter_count = 1, .index_vector_dim = 1};
  hlo *h = hlo_create();
  hlo_value x = in(h, PJ_F32, DIMS(5, 4)), indices = in(h, PJ_S64, DIMS(3));
  check_refused(h, hlo_scatter(h, HLO_ADD, x, indices, in(h, PJ_F32, DIMS(3, 5)), &rows), PJ_INVALID_ARGUMENT,
                "the window of tensor<3x5xf32> does not fit in dimension 1 of tensor<5x4xf32>");
  h = hlo_create();
  x = in(h, PJ_F32, DIMS(5, 4)), indices = in(h, PJ_S64, DIMS(3));
  check_refused(h, hlo_scatter(h, HLO_ADD, x, indices, in(h, PJ_F32, DIMS(2, 4)), &rows), PJ_INVALID_ARGUMENT,
                "expected tensor<3x4xf32>");
  h = hlo_create();
  x = in(h, PJ_F32, DIMS(5, 4)), indices = in(h, PJ_S64, DIMS(3, 2));
  check_refused(h, hlo_scatter(h, HLO_ADD, x, indices, in(h, PJ_F32, DIMS(3, 4)), &rows), PJ_INVALID_ARGUMENT,
                "does not hold 1 entries");
  hlo_gather_spec wide = {.offset_dims = {1}, .offset_count = 1, .collapsed = {0}, .collapsed_count = 1,
                          .start_index_map = {0}, .start_count = 1, .index_vector_dim = 1, .slice_sizes = {2, 4}};
  h = hlo_create();
  x = in(h, PJ_F32, DIMS(5, 4)), indices = in(h, PJ_S64, DIMS(3));
  check_refused(h, hlo_gather(h, x, indices, &wide), PJ_INVALID_ARGUMENT, "slice size 2 in dimension 0");
}

static void use_outside(hlo *h, const hlo_value *arguments, hlo_value *results, void *outside) {
  results[0] = hlo_add(h, arguments[0], *(hlo_value *)outside);
}
static void remember(hlo *h, const hlo_value *arguments, hlo_value *results, void *kept) {
  *(hlo_value *)kept = results[0] = hlo_add(h, arguments[0], arguments[1]);
}
static void wrong_result(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_eq(h, arguments[0], arguments[1]);
}

static void a_value_is_only_used_where_it_is_visible(void) {
  hlo *h = hlo_create();
  hlo_value x = in(h, PJ_F32, DIMS(4)), outside = hlo_constant(h, PJ_F32, 0), result;
  hlo_reduce_many(h, &x, &outside, 1, (int[]){0}, 1, use_outside, &outside, &result);
  check_refused(h, result, PJ_INTERNAL, "is not a value of this region");

  hlo_value kept;
  h = hlo_create();
  x = in(h, PJ_F32, DIMS(4)), outside = hlo_constant(h, PJ_F32, 0);
  hlo_reduce_many(h, &x, &outside, 1, (int[]){0}, 1, remember, &kept, &result);
  CHECK(!hlo_failed(h));
  check_refused(h, hlo_neg(h, kept), PJ_INTERNAL, "is not a value of this region");

  h = hlo_create();
  x = in(h, PJ_F32, DIMS(4)), outside = hlo_constant(h, PJ_F32, 0);
  hlo_reduce_many(h, &x, &outside, 1, (int[]){0}, 1, wrong_result, NULL, &result);
  check_refused(h, result, PJ_INTERNAL, "result 0 of the region is tensor<i1>, not tensor<f32>");
}

static void a_donation_must_fit_its_result(void) {
  const char *text;
  size_t size;
  hlo *h = hlo_create();
  hlo_value x = hlo_parameter(h, PJ_F32, DIMS(4), 0), y = hlo_convert(h, x, PJ_F64);
  CHECK_FAILS(hlo_finish(h, &y, 1, &text, &size), PJ_INVALID_ARGUMENT, "cannot be donated to result 0");
  hlo_destroy(h);
  h = hlo_create();
  x = hlo_parameter(h, PJ_F32, DIMS(4), 0), y = hlo_parameter(h, PJ_F32, DIMS(4), 0);
  CHECK_FAILS(hlo_finish(h, &y, 1, &text, &size), PJ_INVALID_ARGUMENT, "both donated");
  hlo_destroy(h);
}

static void a_finished_module_takes_nothing_more(void) {
  hlo *h = hlo_create();
  hlo_value x = in(h, PJ_F32, DIMS(4));
  const char *text;
  size_t size;
  CHECK_OK(hlo_finish(h, &x, 1, &text, &size));
  CHECK(hlo_neg(h, x).id < 0);
  CHECK_FAILS(hlo_finish(h, &x, 1, &text, &size), PJ_INTERNAL, "already finished");
  hlo_destroy(h);
}

int main(void) {
  RUN(a_module_is_a_main_function_with_its_parameters_and_results);
  RUN(a_region_has_arguments_of_its_own);
  RUN(constants_keep_every_bit);
  RUN(constants_outside_their_type_are_refused);
  RUN(what_changes_nothing_writes_nothing);
  RUN(the_first_error_stays_and_later_calls_do_nothing);
  RUN(ill_typed_operations_are_refused);
  RUN(ill_formed_scatters_and_gathers_are_refused);
  RUN(a_value_is_only_used_where_it_is_visible);
  RUN(a_donation_must_fit_its_result);
  RUN(a_finished_module_takes_nothing_more);
  return test_end();
}
