// What the operations compute on the plugin that PJ_PLUGIN names, against plain C.
#include <math.h>

#include "hlo/plugin.h"

#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#define INTS(...) (int64_t[]){__VA_ARGS__}
#define RUN_ON(h, parameters, inputs, results, outputs)                                                      \
  plugin_run((h), (parameters), (inputs), sizeof(inputs) / sizeof(void *), (results), (outputs),             \
             sizeof(outputs) / sizeof(void *))

static hlo_value in(hlo *h, pj_dtype dtype, int rank, const int64_t *dims) {
  return hlo_parameter(h, dtype, rank, dims, -1);
}

static uint64_t state = 88172645463325252u;
static uint64_t random_bits(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}
static double uniform(double low, double high) { return low + (high - low) * (double)(random_bits() >> 11) * 0x1p-53; }

// ---- functions of one number ----------------------------------------------------------------------------------------

enum { POINTS = 4099 };  // no multiple of a vector's width

typedef struct function_case {
  const char *name;
  hlo_value (*hlo_function)(hlo *h, hlo_value x);
  double (*c_function)(double x);
  double low, high;
  double ulps;  // of float32 at the result: about twice the worst on XLA:CPU of API 0.81, 0.106 and 0.115
} function_case;

static double logistic(double x) { return 1 / (1 + exp(-x)); }
static double rsqrt(double x) { return 1 / sqrt(x); }

static const function_case FUNCTIONS[] = {
    {"exp", hlo_exp, exp, -80, 80, 2},
    {"expm1", hlo_expm1, expm1, -2, 2, 4},
    {"log", hlo_log, log, 1e-30, 1e3, 2},
    {"log1p", hlo_log1p, log1p, -0.9, 2, 3},
    {"logistic", hlo_logistic, logistic, -20, 20, 2},
    {"tanh", hlo_tanh, tanh, -10, 10, 4},
    {"sin", hlo_sin, sin, -1000, 1000, 2},
    {"cos", hlo_cos, cos, -1000, 1000, 2},
    {"sqrt", hlo_sqrt, sqrt, 0, 1e6, 1},
    {"rsqrt", hlo_rsqrt, rsqrt, 1e-6, 1e6, 2},
    {"cbrt", hlo_cbrt, cbrt, -1e6, 1e6, 3},
    {"erf", hlo_erf, erf, -4, 4, 4},
    {"erfc", hlo_erfc, erfc, -4, 4, 8},
    {"tan", hlo_tan, tan, -1.5, 1.5, 2},
    {"asin", hlo_asin, asin, -1, 1, 2},
    {"acos", hlo_acos, acos, -1, 1, 2},
    {"atan", hlo_atan, atan, -1e4, 1e4, 2},
    {"sinh", hlo_sinh, sinh, -20, 20, 8},
    {"cosh", hlo_cosh, cosh, -20, 20, 8},
    {"asinh", hlo_asinh, asinh, -1e3, 1e3, 2},
    {"acosh", hlo_acosh, acosh, 1, 1e3, 2},
    {"atanh", hlo_atanh, atanh, -0.999, 0.999, 3},
    {"lgamma", hlo_lgamma, lgamma, 3, 100, 20},
};

static void functions_agree_with_libm(void) {
  static float x[POINTS], y[POINTS];
  for (size_t k = 0; k < sizeof FUNCTIONS / sizeof FUNCTIONS[0]; ++k) {
    const function_case *f = &FUNCTIONS[k];
    hlo *h = hlo_create();
    hlo_value parameter = in(h, PJ_F32, DIMS(POINTS)), result = f->hlo_function(h, parameter);
    for (int i = 0; i < POINTS; ++i) x[i] = (float)uniform(f->low, f->high);
    RUN_ON(h, &parameter, ((const void *[]){x}), &result, ((void *[]){y}));
    double worst = 0;
    int at = 0;
    for (int i = 0; i < POINTS; ++i) {
      double right = f->c_function((double)x[i]),
             error = fabs((double)y[i] - right) / (fmax(fabs(right), 1e-30) * 0x1p-23);
      if (!(error <= worst)) worst = error, at = i;
    }
    if (!(worst <= f->ulps))
      fprintf(stderr, "%s(%.9g) = %.9g, not %.9g: %.1f ulp\n", f->name, (double)x[at], (double)y[at],
              f->c_function((double)x[at]), worst);
    CHECK(worst <= f->ulps);
  }
}

static void erf_inv_inverts_erf(void) {
  static float x[POINTS], y[POINTS];
  hlo *h = hlo_create();
  hlo_value parameter = in(h, PJ_F32, DIMS(POINTS)), result = hlo_erf_inv(h, parameter);
  for (int i = 0; i < POINTS; ++i) x[i] = (float)uniform(-0.99, 0.99);
  x[0] = 1, x[1] = -1, x[2] = 0;
  RUN_ON(h, &parameter, ((const void *[]){x}), &result, ((void *[]){y}));
  double worst = 0;
  for (int i = 2; i < POINTS; ++i) worst = fmax(worst, fabs(erf((double)y[i]) - (double)x[i]));
  CHECK(worst < 4e-7);
  CHECK(y[0] == INFINITY && y[1] == -INFINITY && y[2] == 0);
}

// digamma(x + 1) - digamma(x) = 1 / x, and digamma(1) is minus Euler's constant.
static void digamma_obeys_its_recurrence(void) {
  static double x[POINTS], y[POINTS];
  hlo *h = hlo_create();
  hlo_value parameter = in(h, PJ_F64, DIMS(POINTS)), one = hlo_constant(h, PJ_F64, 1);
  hlo_value result = hlo_sub(h, hlo_digamma(h, hlo_add(h, parameter, one)), hlo_digamma(h, parameter));
  hlo_value results[2] = {result, hlo_digamma(h, one)};
  double at_one;
  for (int i = 0; i < POINTS; ++i) x[i] = uniform(0.1, 50);
  RUN_ON(h, &parameter, ((const void *[]){x}), results, ((void *[]){y, &at_one}));
  double worst = 0;
  for (int i = 0; i < POINTS; ++i) worst = fmax(worst, fabs(y[i] * x[i] - 1));
  CHECK(worst < 1e-12);
  CHECK(fabs(at_one + 0.57721566490153286) < 1e-14);
}

// The constant 1 is what XLA:CPU of API 0.115 gets wrong, see hlo_atan2.
static void atan2_takes_a_constant(void) {
  static float x[POINTS], y[POINTS], z[POINTS];
  hlo *h = hlo_create();
  hlo_value p = in(h, PJ_F32, DIMS(POINTS)), one = hlo_constant(h, PJ_F32, 1);
  hlo_value results[2] = {hlo_atan2(h, p, one), hlo_atan2(h, one, p)};
  for (int i = 0; i < POINTS; ++i) x[i] = (float)uniform(-50, 50);
  x[0] = 0, x[1] = -0.0f, x[2] = INFINITY, x[3] = -INFINITY, x[4] = NAN;
  RUN_ON(h, &p, ((const void *[]){x}), results, ((void *[]){y, z}));
  int wrong = 0;
  for (int i = 0; i < POINTS; ++i) {
    wrong += !(fabsf(y[i] - atan2f(x[i], 1)) <= 1e-6f) && !isnan(x[i]);
    wrong += !(fabsf(z[i] - atan2f(1, x[i])) <= 1e-6f) && !isnan(x[i]);
  }
  CHECK(wrong == 0);
  CHECK(isnan(y[4]) && isnan(z[4]) && signbit(y[1]));
}

// ---- numbers as bits and as other numbers ---------------------------------------------------------------------------

static void constants_have_the_bits_of_their_type(void) {
  hlo *h = hlo_create();
  hlo_value results[] = {
      hlo_constant_floats(h, PJ_F16, (double[]){0.1, 65504, 1e9, NAN, -0.0}, 5),
      hlo_constant_floats(h, PJ_BF16, (double[]){0.1, -INFINITY, NAN}, 3),
      hlo_constant_floats(h, PJ_F8E4M3FN, (double[]){0.1, -448, NAN}, 3),
      hlo_constant_floats(h, PJ_F8E5M2, (double[]){0.1, INFINITY, -2}, 3),
      hlo_constant_floats(h, PJ_F32, (double[]){0.1, 0x1.fffffep127, INFINITY}, 3),
      hlo_constant_ints(h, PJ_U64, (int64_t[]){-1, 1}, 2),
  };
  uint16_t f16[5], bf16[3];
  uint8_t e4m3[3], e5m2[3];
  float f32[3];
  uint64_t u64[2];
  plugin_run(h, NULL, NULL, 0, results, (void *[]){f16, bf16, e4m3, e5m2, f32, u64}, 6);
  CHECK(f16[0] == 0x2E66 && f16[1] == 0x7BFF && f16[2] == 0x7C00 && (f16[3] & 0x7C00) == 0x7C00 && (f16[3] & 0x3FF));
  CHECK(f16[4] == 0x8000);
  CHECK(bf16[0] == 0x3DCD && bf16[1] == 0xFF80 && (bf16[2] & 0x7F80) == 0x7F80 && (bf16[2] & 0x7F));
  CHECK(e4m3[0] == 0x1D && e4m3[1] == 0xFE && (e4m3[2] & 0x7F) == 0x7F);
  CHECK(e5m2[0] == 0x2E && e5m2[1] == 0x7C && e5m2[2] == 0xC0);
  CHECK(f32[0] == 0.1f && f32[1] == 0x1.fffffep127f && f32[2] == INFINITY);
  CHECK(u64[0] == UINT64_MAX && u64[1] == 1);
}

// Complex numbers are two real ones, PRED is a byte of 0 or 1; f8 has no operations to be read through on every plugin.
static void bitcasts_keep_the_bytes(void) {
  for (int from = PJ_PRED; from <= PJ_C128; ++from) {
    hlo *h = hlo_create();
    unsigned char bytes[48], back[PJ_C128][48];
    void *outputs[PJ_C128];
    hlo_value results[PJ_C128];
    size_t count = 0;
    int64_t size = (int64_t)pj_dtype_size((pj_dtype)from);
    hlo_value x = in(h, (pj_dtype)from, DIMS(3, 16 / size));
    // No NaN: a processor may quieten one on the way.
    for (int i = 0; i < 48; ++i) bytes[i] = from == PJ_PRED ? random_bits() & 1 : random_bits() & 0x3F;
    for (int to = PJ_S8; to <= PJ_C128; ++to) {
      int64_t group = (int64_t)pj_dtype_size((pj_dtype)to) / size;
      hlo_value grouped = group > 1 ? hlo_reshape(h, x, DIMS(3, x.dims[1] / group, group)) : x;
      outputs[count] = back[count];
      results[count++] = hlo_bitcast(h, grouped, (pj_dtype)to);
    }
    plugin_run(h, &x, (const void *[]){bytes}, 1, results, outputs, count);
    for (size_t i = 0; i < count; ++i) {
      if (memcmp(back[i], bytes, 48)) fprintf(stderr, "%s to type %d\n", pj_dtype_name((pj_dtype)from), (int)i + PJ_S8);
      CHECK(!memcmp(back[i], bytes, 48));
    }
  }
}

static void conversions_are_those_of_pytorch(void) {
  hlo *h = hlo_create();
  float x[5] = {0, -0.0f, 2.75f, -3.5f, NAN}, real[5], parts[10];
  hlo_value p = in(h, PJ_F32, DIMS(5)), finite = hlo_slice_dim(h, p, 0, 0, 4);
  hlo_value c = hlo_complex(h, p, hlo_constant(h, PJ_F32, 7));
  uint8_t pred[5], pred_complex[5], u8[4];
  int32_t s32[4];
  hlo_value results[] = {hlo_convert(h, p, PJ_PRED), hlo_convert(h, c, PJ_PRED), hlo_convert(h, finite, PJ_S32),
                         hlo_convert(h, c, PJ_F32), hlo_convert(h, hlo_convert(h, finite, PJ_PRED), PJ_C64),
                         hlo_convert(h, hlo_abs(h, finite), PJ_U8)};
  plugin_run(h, &p, (const void *[]){x}, 1, results, (void *[]){pred, pred_complex, s32, real, parts, u8}, 6);
  CHECK(!pred[0] && !pred[1] && pred[2] && pred[3] && pred[4]);
  CHECK(pred_complex[0] && pred_complex[1]);
  CHECK(s32[0] == 0 && s32[2] == 2 && s32[3] == -3);
  CHECK(real[2] == 2.75f && isnan(real[4]));
  CHECK(parts[0] == 0 && parts[4] == 1 && parts[5] == 0);
  CHECK(u8[2] == 2 && u8[3] == 3);
}

static void edge_values_follow_c_and_pytorch(void) {
  hlo *h = hlo_create();
  float x[4] = {NAN, -7, 7, 0.5f}, clamped[4], remainder[4];
  int8_t s8[2] = {-128, 5}, s8_shifted[2], s8_remainder[2];
  uint8_t u8[2] = {200, 0}, u8_shifted[2], u8_sign[2], u8_abs[2];
  hlo_value p[] = {in(h, PJ_F32, DIMS(4)), in(h, PJ_S8, DIMS(2)), in(h, PJ_U8, DIMS(2))};
  hlo_value results[] = {hlo_clamp(h, hlo_constant(h, PJ_F32, -1), p[0], hlo_constant(h, PJ_F32, 1)),
                         hlo_rem(h, p[0], hlo_constant(h, PJ_F32, 4)),
                         hlo_shr(h, p[1], hlo_constant_int(h, PJ_S8, 2)),
                         hlo_rem(h, p[1], hlo_constant_int(h, PJ_S8, 3)),
                         hlo_shr(h, p[2], hlo_constant_int(h, PJ_U8, 2)),
                         hlo_sign(h, p[2]),
                         hlo_abs(h, p[2])};
  plugin_run(h, p, (const void *[]){x, s8, u8}, 3, results,
             (void *[]){clamped, remainder, s8_shifted, s8_remainder, u8_shifted, u8_sign, u8_abs}, 7);
  CHECK(isnan(clamped[0]) && clamped[1] == -1 && clamped[2] == 1 && clamped[3] == 0.5f);
  CHECK(remainder[1] == -3 && remainder[2] == 3);
  CHECK(s8_shifted[0] == -32 && s8_remainder[0] == -2 && s8_remainder[1] == 2);
  CHECK(u8_shifted[0] == 50 && u8_sign[0] == 1 && u8_sign[1] == 0 && u8_abs[0] == 200);
}

// ---- scans and windows ----------------------------------------------------------------------------------------------

static double combine(hlo_op op, double a, double b) {
  return op == HLO_ADD ? a + b : op == HLO_MUL ? a * b : op == HLO_MAX ? fmax(a, b) : fmin(a, b);
}

// A scan along the middle of [2, n, 3], for lengths round the sizes of the blocks. Small whole numbers: sums are exact.
static void scans_agree_with_a_loop(void) {
  static const pj_dtype dtypes[] = {PJ_F32, PJ_S64, PJ_S32};
  static const int64_t lengths[] = {1, 16, 17, 257, 4097};
  static double right[2 * 4097 * 3];
  static int64_t data[2 * 4097 * 3], scanned[2 * 4097 * 3];
  for (int t = 0; t < 3; ++t)
    for (int op = HLO_ADD; op <= HLO_MIN; ++op)
      for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; ++l) {
        if (op == HLO_MUL && t) continue;  // the products of integers overflow
        int64_t n = lengths[l], size = 2 * n * 3;
        hlo *h = hlo_create();
        hlo_value x = in(h, dtypes[t], DIMS(2, n, 3)), y = hlo_scan(h, (hlo_op)op, x, -2);
        for (int64_t i = 0; i < size; ++i) {
          double value = op == HLO_MUL ? (random_bits() & 1 ? 1 : -1) : (double)(random_bits() % 21) - 10;
          right[i] = (i / 3) % n ? combine((hlo_op)op, right[i - 3], value) : value;
          if (t == 0) ((float *)data)[i] = (float)value;
          if (t == 1) data[i] = (int64_t)value;
          if (t == 2) ((int32_t *)data)[i] = (int32_t)value;
        }
        RUN_ON(h, &x, ((const void *[]){data}), &y, ((void *[]){scanned}));
        int64_t wrong = 0;
        for (int64_t i = 0; i < size; ++i)
          wrong += right[i] != (t == 0   ? (double)((float *)scanned)[i]
                                : t == 1 ? (double)scanned[i]
                                         : (double)((int32_t *)scanned)[i]);
        CHECK(wrong == 0);
      }
}

static void scans_of_pred_are_or_and_and(void) {
  enum { N = 300 };
  hlo *h = hlo_create();
  uint8_t x[N] = {0}, any[N], all[N];
  for (int i = 0; i < N; ++i) x[i] = i == 100;
  hlo_value p = in(h, PJ_PRED, DIMS(N));
  hlo_value results[] = {hlo_scan(h, HLO_ADD, p, 0), hlo_scan(h, HLO_AND, hlo_not(h, p), 0)};
  RUN_ON(h, &p, ((const void *[]){x}), results, ((void *[]){any, all}));
  int wrong = 0;
  for (int i = 0; i < N; ++i) wrong += any[i] != (i >= 100) || all[i] != (i < 100);
  CHECK(wrong == 0);
}

// The larger value with its position; the later of equal ones.
static void larger(hlo *h, const hlo_value *a, hlo_value *results, void *context) {
  (void)context;
  hlo_value earlier = hlo_gt(h, a[0], a[2]);
  results[0] = hlo_select(h, earlier, a[0], a[2]);
  results[1] = hlo_select(h, earlier, a[1], a[3]);
}

static void a_scan_of_several_types_agrees_with_a_loop(void) {
  static const int64_t lengths[] = {1, 16, 17, 5000};
  static float x[2 * 5000], values[2 * 5000];
  static int64_t places[2 * 5000];
  for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; ++l) {
    int64_t n = lengths[l];
    hlo *h = hlo_create();
    hlo_value p = in(h, PJ_F32, DIMS(2, n)), results[2];
    hlo_value operands[2] = {p, hlo_iota(h, PJ_S64, 2, p.dims, 1)};
    hlo_value starts[2] = {hlo_lowest(h, PJ_F32), hlo_constant_int(h, PJ_S64, -1)};
    hlo_scan_many(h, operands, starts, 2, 1, larger, NULL, results);
    for (int64_t i = 0; i < 2 * n; ++i) x[i] = (float)(random_bits() % 50);
    x[0] = -INFINITY;
    RUN_ON(h, &p, ((const void *[]){x}), results, ((void *[]){values, places}));
    int wrong = 0;
    for (int64_t i = 0, best = 0; i < 2 * n; ++i) {
      if (i % n == 0 || x[i] >= x[best]) best = i;
      wrong += values[i] != x[best] || places[i] != best % n;
    }
    CHECK(wrong == 0);
  }
}

static void windows_pool_and_scatter_back(void) {
  hlo *h = hlo_create();
  float x[6] = {1, 5, 5, 2, 9, 3}, gradient[3] = {10, 20, 30}, pooled[3], summed[3], back[6];
  hlo_value p[] = {in(h, PJ_F32, DIMS(1, 6)), in(h, PJ_F32, DIMS(1, 3))};
  hlo_window w = hlo_window_ones();
  w.size[1] = 3, w.stride[1] = 2, w.pad_low[1] = 1;
  hlo_value results[] = {hlo_reduce_window(h, HLO_MAX, p[0], &w), hlo_reduce_window(h, HLO_ADD, p[0], &w),
                         hlo_select_and_scatter_max(h, p[0], p[1], hlo_constant(h, PJ_F32, 0), &w)};
  RUN_ON(h, p, ((const void *[]){x, gradient}), results, ((void *[]){pooled, summed, back}));
  CHECK(pooled[0] == 5 && pooled[1] == 5 && pooled[2] == 9);
  CHECK(summed[0] == 6 && summed[1] == 12 && summed[2] == 14);
  CHECK(back[0] == 0 && back[1] == 30 && back[2] == 0 && back[3] == 0 && back[4] == 30 && back[5] == 0);
}

// ---- contractions ---------------------------------------------------------------------------------------------------

static void matmul_agrees_with_loops(void) {
  enum { B = 2, M = 3, K = 4, N = 5 };
  float a[B][M][K], b[B][K][N], y[B][M][N];
  hlo *h = hlo_create();
  hlo_value p[] = {in(h, PJ_F32, DIMS(B, M, K)), in(h, PJ_F32, DIMS(B, K, N))};
  hlo_set_precision(h, HLO_PRECISION_HIGHEST);
  hlo_value result = hlo_matmul(h, p[0], p[1], PJ_F32);
  for (int i = 0; i < B * M * K; ++i) (&a[0][0][0])[i] = (float)(random_bits() % 9);
  for (int i = 0; i < B * K * N; ++i) (&b[0][0][0])[i] = (float)(random_bits() % 9);
  RUN_ON(h, p, ((const void *[]){a, b}), &result, ((void *[]){y}));
  int wrong = 0;
  for (int g = 0; g < B; ++g)
    for (int m = 0; m < M; ++m)
      for (int n = 0; n < N; ++n) {
        float sum = 0;
        for (int k = 0; k < K; ++k) sum += a[g][m][k] * b[g][k][n];
        wrong += sum != y[g][m][n];
      }
  CHECK(wrong == 0);
}

// One dimension, two groups, stride, padding, both dilations, and the kernel as it is or reversed.
static void convolution_agrees_with_loops(void) {
  enum {
    BATCH = 2,
    IN = 4,
    OUT = 6,
    GROUPS = 2,
    WIDTH = 7,
    TAPS = 3,
    STRIDE = 2,
    LOW = 2,
    HIGH = 1,
    BASE = 2,
    KERNEL = 2
  };
  enum {
    SPREAD = (WIDTH - 1) * BASE + 1 + LOW + HIGH,
    REACH = (TAPS - 1) * KERNEL + 1,
    POSITIONS = (SPREAD - REACH) / STRIDE + 1
  };
  float x[BATCH][WIDTH][IN], k[OUT][IN / GROUPS][TAPS], y[BATCH][OUT][POSITIONS];
  for (int reversed = 0; reversed < 2; ++reversed) {
    hlo *h = hlo_create();
    hlo_value p[] = {in(h, PJ_F32, DIMS(BATCH, WIDTH, IN)), in(h, PJ_F32, DIMS(OUT, IN / GROUPS, TAPS))};
    hlo_convolution_spec spec = {.spatial = 1, .input_batch = 0, .input_feature = 2, .input_spatial = {1},
                                 .kernel_output_feature = 0, .kernel_input_feature = 1, .kernel_spatial = {2},
                                 .output_batch = 0, .output_feature = 1, .output_spatial = {2}, .stride = {STRIDE},
                                 .pad_low = {LOW}, .pad_high = {HIGH}, .lhs_dilation = {BASE}, .rhs_dilation = {KERNEL},
                                 .reverse = {reversed}, .feature_groups = GROUPS, .batch_groups = 1};
    hlo_value result = hlo_convolution(h, p[0], p[1], &spec, PJ_F32);
    CHECK(result.rank == 3 && result.dims[2] == POSITIONS);
    for (int i = 0; i < BATCH * WIDTH * IN; ++i) (&x[0][0][0])[i] = (float)(random_bits() % 9);
    for (int i = 0; i < OUT * (IN / GROUPS) * TAPS; ++i) (&k[0][0][0])[i] = (float)(random_bits() % 9);
    RUN_ON(h, p, ((const void *[]){x, k}), &result, ((void *[]){y}));
    int wrong = 0;
    for (int b = 0; b < BATCH; ++b)
      for (int o = 0; o < OUT; ++o)
        for (int at = 0; at < POSITIONS; ++at) {
          float sum = 0;
          for (int c = 0; c < IN / GROUPS; ++c)
            for (int t = 0; t < TAPS; ++t) {
              int place = at * STRIDE + t * KERNEL - LOW, group = o / (OUT / GROUPS);
              if (place < 0 || place % BASE || place / BASE >= WIDTH) continue;
              sum += x[b][place / BASE][group * (IN / GROUPS) + c] * k[o][c][reversed ? TAPS - 1 - t : t];
            }
          wrong += sum != y[b][o][at];
        }
    CHECK(wrong == 0);
  }
}

// ---- indexing, sorting, loops ---------------------------------------------------------------------------------------

static void take_and_scatter_address_rows(void) {
  hlo *h = hlo_create();
  float x[3][2] = {{1, 2}, {3, 4}, {5, 6}}, updates[2][2] = {{10, 20}, {30, 40}}, taken[2][2], columns[3][2],
        added[3][2], kept[3][2];
  int64_t indices[2] = {2, 0}, ones[2] = {1, 1};
  hlo_value p[] = {in(h, PJ_F32, DIMS(3, 2)), in(h, PJ_S64, DIMS(2)), in(h, PJ_F32, DIMS(2, 2)),
                   in(h, PJ_S64, DIMS(2))};
  hlo_scatter_spec rows = {.update_window = {1}, .update_window_count = 1, .inserted = {0}, .inserted_count = 1,
                           .scatter_dims = {0}, .scatter_count = 1, .index_vector_dim = 1};
  hlo_value results[] = {hlo_take(h, p[0], p[1], 0), hlo_take(h, p[0], p[3], 1),
                         hlo_scatter(h, HLO_ADD, p[0], p[3], p[2], &rows),
                         hlo_scatter(h, HLO_SECOND, p[0], p[1], p[2], &rows)};
  RUN_ON(h, p, ((const void *[]){x, indices, updates, ones}), results, ((void *[]){taken, columns, added, kept}));
  CHECK(taken[0][0] == 5 && taken[0][1] == 6 && taken[1][0] == 1 && taken[1][1] == 2);
  CHECK(columns[0][0] == 2 && columns[0][1] == 2 && columns[2][1] == 6);
  CHECK(added[0][0] == 1 && added[1][0] == 43 && added[1][1] == 64 && added[2][1] == 6);
  CHECK(kept[0][0] == 30 && kept[1][0] == 3 && kept[2][1] == 20);
}

static void ascending(hlo *h, const hlo_value *a, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_lt_total(h, a[0], a[1]);
}

static void sorting_puts_every_nan_last_and_keeps_equal_zeros_in_order(void) {
  hlo *h = hlo_create();
  float x[8] = {NAN, 1, -0.0f, 0, -NAN, -INFINITY, -0.0f, INFINITY}, sorted[8];
  int32_t places[8], right[8] = {5, 2, 3, 6, 1, 7, 0, 4};
  hlo_value p = in(h, PJ_F32, DIMS(8)), both[2] = {p, hlo_iota(h, PJ_S32, DIMS(8), 0)};
  hlo_sort(h, both, 2, -1, true, ascending, NULL, both);
  RUN_ON(h, &p, ((const void *[]){x}), both, ((void *[]){sorted, places}));
  CHECK(!memcmp(places, right, sizeof right));
}

static void top_k_gives_the_largest_first(void) {
  hlo *h = hlo_create();
  float x[5] = {3, 9, -1, 9, 4}, values[3];
  int32_t places[3];
  hlo_value p = in(h, PJ_F32, DIMS(5)), results[2];
  hlo_top_k(h, p, 3, &results[0], &results[1]);
  RUN_ON(h, &p, ((const void *[]){x}), results, ((void *[]){values, places}));
  CHECK(values[0] == 9 && values[1] == 9 && values[2] == 4);
  CHECK(places[0] == 1 && places[1] == 3 && places[2] == 4);
}

static void below(hlo *h, const hlo_value *a, hlo_value *results, void *limit) {
  results[0] = hlo_lt(h, a[0], *(const hlo_value *)limit);
}
static void doubled(hlo *h, const hlo_value *a, hlo_value *results, void *context) {
  (void)context;
  results[0] = hlo_add(h, a[0], hlo_constant_int(h, PJ_S32, 1));
  results[1] = hlo_add(h, a[1], a[1]);
}
static void first(hlo *h, const hlo_value *a, hlo_value *results, void *values) {
  (void)h, (void)a;
  results[0] = ((const hlo_value *)values)[0];
}
static void last(hlo *h, const hlo_value *a, hlo_value *results, void *values) {
  (void)h, (void)a;
  results[0] = ((const hlo_value *)values)[1];
}

static void loops_and_branches_see_the_values_outside(void) {
  hlo *h = hlo_create();
  int32_t limit = 10, count;
  float x = 3, doubled_x, chosen;
  hlo_value p[] = {in(h, PJ_S32, 0, NULL), in(h, PJ_F32, 0, NULL)}, results[3];
  hlo_value starts[2] = {hlo_constant_int(h, PJ_S32, 0), p[1]};
  hlo_while(h, starts, 2, below, doubled, &p[0], results);
  hlo_value choices[2] = {p[1], results[1]};
  hlo_if(h, hlo_gt(h, p[0], hlo_constant_int(h, PJ_S32, 11)), first, last, 1, choices, &results[2]);
  RUN_ON(h, p, ((const void *[]){&limit, &x}), results, ((void *[]){&count, &doubled_x, &chosen}));
  CHECK(count == 10 && doubled_x == 3072 && chosen == 3072);
}

static void fft_and_its_inverse_agree_with_the_definition(void) {
  enum { N = 6 };
  hlo *h = hlo_create();
  float x[N], spectrum[2 * (N / 2 + 1)], back[N];
  hlo_value p = in(h, PJ_F32, DIMS(N)), results[2];
  results[0] = hlo_fft(h, HLO_RFFT, p, INTS(N), 1);
  results[1] = hlo_fft(h, HLO_IRFFT, results[0], INTS(N), 1);
  for (int i = 0; i < N; ++i) x[i] = (float)uniform(-1, 1);
  RUN_ON(h, &p, ((const void *[]){x}), results, ((void *[]){spectrum, back}));
  double worst = 0;
  for (int k = 0; k <= N / 2; ++k) {
    double real = 0, imaginary = 0;
    for (int i = 0; i < N; ++i) {
      real += (double)x[i] * cos(2 * M_PI * k * i / N);
      imaginary -= (double)x[i] * sin(2 * M_PI * k * i / N);
    }
    worst = fmax(worst, fmax(fabs(real - (double)spectrum[2 * k]), fabs(imaginary - (double)spectrum[2 * k + 1])));
  }
  for (int i = 0; i < N; ++i) worst = fmax(worst, fabs((double)(x[i] - back[i])));
  CHECK(worst < 2e-6);
}

static void triangular_solve_undoes_cholesky(void) {
  hlo *h = hlo_create();
  double a[2][2] = {{4, 2}, {2, 5}}, b[2][1] = {{8}, {9}}, l[2][2], y[2][1];
  hlo_value p[] = {in(h, PJ_F64, DIMS(2, 2)), in(h, PJ_F64, DIMS(2, 1))};
  hlo_value factor = hlo_cholesky(h, p[0], true);
  hlo_value half = hlo_triangular_solve(h, factor, p[1], true, true, false, HLO_NO_TRANSPOSE);
  hlo_value results[] = {factor, hlo_triangular_solve(h, factor, half, true, true, false, HLO_TRANSPOSE)};
  RUN_ON(h, p, ((const void *[]){a, b}), results, ((void *[]){l, y}));
  CHECK(fabs(l[0][0] - 2) < 1e-12 && fabs(l[1][0] - 1) < 1e-12 && fabs(l[1][1] - 2) < 1e-12);
  CHECK(fabs(4 * y[0][0] + 2 * y[1][0] - 8) < 1e-12 && fabs(2 * y[0][0] + 5 * y[1][0] - 9) < 1e-12);
}

int main(void) {
  if (!plugin_open()) return test_failures ? 1 : TEST_SKIPPED;
  RUN(functions_agree_with_libm);
  RUN(erf_inv_inverts_erf);
  RUN(digamma_obeys_its_recurrence);
  RUN(atan2_takes_a_constant);
  RUN(constants_have_the_bits_of_their_type);
  RUN(bitcasts_keep_the_bytes);
  RUN(conversions_are_those_of_pytorch);
  RUN(edge_values_follow_c_and_pytorch);
  RUN(scans_agree_with_a_loop);
  RUN(scans_of_pred_are_or_and_and);
  RUN(a_scan_of_several_types_agrees_with_a_loop);
  RUN(windows_pool_and_scatter_back);
  RUN(matmul_agrees_with_loops);
  RUN(convolution_agrees_with_loops);
  RUN(take_and_scatter_address_rows);
  RUN(sorting_puts_every_nan_last_and_keeps_equal_zeros_in_order);
  RUN(top_k_gives_the_largest_first);
  RUN(loops_and_branches_see_the_values_outside);
  RUN(fft_and_its_inverse_agree_with_the_definition);
  RUN(triangular_solve_undoes_cholesky);
  plugin_close();
  return test_end();
}
