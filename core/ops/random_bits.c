#include "ops/random.h"

#include <math.h>

static hlo_value u32(hlo *h, uint32_t value) { return hlo_constant_int(h, PJ_U32, value); }

static hlo_value rotate_left(hlo *h, hlo_value x, uint32_t by) {
  return hlo_or(h, hlo_shl(h, x, u32(h, by)), hlo_shr_logical(h, x, u32(h, 32 - by)));
}

static void threefry(hlo *h, const hlo_value key[2], hlo_value x[2]) {
  static const uint32_t ROTATIONS[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  hlo_value keys[3] = {key[0], key[1], hlo_xor(h, hlo_xor(h, key[0], key[1]), u32(h, 0x1BD11BDA))};
  x[0] = hlo_add(h, x[0], keys[0]);
  x[1] = hlo_add(h, x[1], keys[1]);
  for (uint32_t group = 0; group < 5; ++group) {
    for (int i = 0; i < 4; ++i) {
      x[0] = hlo_add(h, x[0], x[1]);
      x[1] = hlo_xor(h, rotate_left(h, x[1], ROTATIONS[group % 2][i]), x[0]);
    }
    x[0] = hlo_add(h, x[0], keys[(group + 1) % 3]);
    x[1] = hlo_add(h, x[1], hlo_add(h, keys[(group + 2) % 3], u32(h, group + 1)));
  }
}

static void split(hlo *h, hlo_value x, hlo_value out_words[2]) {
  out_words[0] = hlo_convert(h, x, PJ_U32);  // the low half: integer conversion keeps the low bits
  out_words[1] = hlo_convert(h, hlo_shr_logical(h, x, hlo_constant_int(h, PJ_U64, 32)), PJ_U32);
}

pj_random pj_random_begin(pj_lowering *l) {
  int count = (int)l->signature->argument_count;
  pj_random random = {.counter = pj_number(l, count - 1, PJ_U64)};
  split(l->h, pj_number(l, count - 2, PJ_U64), random.key);
  return random;
}

pj_random pj_random_stream(pj_lowering *l, pj_random random, uint32_t number) {
  hlo_value words[2];
  split(l->h, random.counter, words);
  threefry(l->h, random.key, words);
  return (pj_random){.key = {words[0], words[1]},
                     .counter = hlo_constant_int(l->h, PJ_U64, (int64_t)((uint64_t)number << 48))};
}

void pj_random_bits(hlo *h, pj_random random, int64_t count, hlo_value out_bits[2]) {
  split(h, hlo_add(h, random.counter, hlo_iota(h, PJ_U64, 1, &count, 0)), out_bits);
  threefry(h, random.key, out_bits);
}

static int64_t product(int rank, const int64_t *dims) {
  int64_t size = 1;
  for (int i = 0; i < rank; ++i) size *= dims[i];
  return size;
}

static hlo_value shifted(hlo *h, hlo_value bits, uint32_t by, pj_dtype dtype) {
  return hlo_convert(h, hlo_shr_logical(h, bits, u32(h, by)), dtype);
}

hlo_value pj_random_uniform(hlo *h, pj_random random, pj_dtype dtype, int rank, const int64_t *dims) {
  hlo_value bits[2], x;
  pj_random_bits(h, random, product(rank, dims), bits);
  if (dtype == PJ_F64) {
    hlo_value high = hlo_mul(h, shifted(h, bits[0], 5, PJ_F64), hlo_constant(h, PJ_F64, 0x1p-27));
    x = hlo_add(h, high, hlo_mul(h, shifted(h, bits[1], 6, PJ_F64), hlo_constant(h, PJ_F64, 0x1p-53)));
  } else {
    uint32_t digits = dtype == PJ_BF16 ? 8 : dtype == PJ_F16 ? 11 : 24;
    x = hlo_mul(h, shifted(h, bits[0], 32 - digits, PJ_F32), hlo_constant(h, PJ_F32, ldexp(1, -(int)digits)));
  }
  return hlo_reshape(h, x, rank, dims);
}

// (bits + 1/2) / 2^32; in float32 the largest rounds to 1, and is held below.
static hlo_value open_unit(hlo *h, hlo_value bits, pj_dtype dtype) {
  hlo_value middle = hlo_add(h, hlo_convert(h, bits, dtype), hlo_constant(h, dtype, 0.5));
  hlo_value x = hlo_mul(h, middle, hlo_constant(h, dtype, 0x1p-32));
  return dtype == PJ_F64 ? x : hlo_min(h, x, hlo_constant(h, dtype, 1 - 0x1p-24));
}

hlo_value pj_random_open(hlo *h, pj_random random, pj_dtype dtype, int rank, const int64_t *dims) {
  hlo_value bits[2];
  pj_random_bits(h, random, product(rank, dims), bits);
  return hlo_reshape(h, open_unit(h, bits[0], pj_math_dtype(dtype)), rank, dims);
}

static hlo_value polynomial(hlo *h, hlo_value x, const double *coefficients, int count) {
  hlo_value y = hlo_full(h, x.dtype, x.rank, x.dims, coefficients[count - 1]);
  for (int i = count - 1; i-- > 0;) y = hlo_add(h, hlo_mul(h, y, x), hlo_constant(h, x.dtype, coefficients[i]));
  return y;
}

// The cosine and sine of an angle uniform in a full turn: the upper two bits choose a quarter turn, the rest an angle
// between -pi/4 and pi/4 for the Taylor series, which stop where float32 ends. Elementwise arithmetic alone, because
// XLA:CPU calls a library's cos for one element at a time and computes what it fuses with it one by one too: 7 times
// slower.
static void turn(hlo *h, hlo_value bits, pj_dtype real, hlo_value *out_cos, hlo_value *out_sin) {
  if (real == PJ_F64) {
    hlo_value angle = hlo_mul(h, hlo_convert(h, bits, real), hlo_constant(h, real, M_PI * 0x1p-31));
    *out_cos = hlo_cos(h, angle);
    *out_sin = hlo_sin(h, angle);
    return;
  }
  static const double SIN[] = {1, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880},
                      COS[] = {1, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800};
  hlo_value part = hlo_convert(h, hlo_and(h, bits, u32(h, 0x3fffffff)), real), quarter = hlo_shr_logical(h, bits, u32(h, 30));
  hlo_value x = hlo_mul(h, hlo_sub(h, part, hlo_constant(h, real, 0x1p29)), hlo_constant(h, real, M_PI / 2 * 0x1p-30));
  hlo_value square = hlo_mul(h, x, x);
  hlo_value sin = hlo_mul(h, x, polynomial(h, square, SIN, 5)), cos = polynomial(h, square, COS, 6);
  hlo_value odd = hlo_eq(h, hlo_and(h, quarter, u32(h, 1)), u32(h, 1)), second = hlo_ge(h, quarter, u32(h, 2));
  hlo_value c = hlo_select(h, odd, hlo_neg(h, sin), cos), s = hlo_select(h, odd, cos, sin);
  *out_cos = hlo_select(h, second, hlo_neg(h, c), c);
  *out_sin = hlo_select(h, second, hlo_neg(h, s), s);
}

// Box and Muller: one block of 64 bits gives a radius (whose 32 bits reach 6.7 standard deviations) and an angle.
hlo_value pj_random_normal(hlo *h, pj_random random, pj_dtype dtype, int rank, const int64_t *dims) {
  pj_dtype real = pj_math_dtype(pj_real_dtype(dtype));
  hlo_value bits[2];
  pj_random_bits(h, random, product(rank, dims), bits);
  double scale = pj_dtype_is_complex(dtype) ? -1 : -2;  // -1: each part has variance 1/2
  hlo_value radius = hlo_sqrt(h, hlo_mul(h, hlo_constant(h, real, scale), hlo_log(h, open_unit(h, bits[0], real))));
  hlo_value cos, sin;
  turn(h, bits[1], real, &cos, &sin);
  hlo_value x = hlo_mul(h, radius, cos);
  if (pj_dtype_is_complex(dtype)) x = hlo_complex(h, x, hlo_mul(h, radius, sin));
  return hlo_reshape(h, x, rank, dims);
}
