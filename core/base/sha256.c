#include "base/sha256.h"

#include <stdbool.h>
#include <string.h>

// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// Plugin files have some 200 MB, so the processor's own SHA-256 instructions are used where it has them.
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

// Intel SHA extensions: the state is held as ABEF and CDGH, two rounds an instruction, four words of the schedule a
// step.
__attribute__((target("sha,sse4.1"))) static void compress_by_instructions(uint32_t hash[8], const uint8_t *data,
                                                                           size_t blocks) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  __m128i abcd = _mm_loadu_si128((const __m128i *)hash), efgh = _mm_loadu_si128((const __m128i *)(hash + 4));
  __m128i cdab = _mm_shuffle_epi32(abcd, 0xb1), hgfe = _mm_shuffle_epi32(efgh, 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, cdab, 0xf0);
  for (; blocks; --blocks, data += 64) {
    __m128i w[4], abef_before = abef, cdgh_before = cdgh;
    for (int i = 0; i < 16; ++i) {
      __m128i *now = &w[i & 3];
      if (i < 4) {
        *now = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), big_endian);
      } else {
        __m128i w1 = w[(i + 1) & 3], w2 = w[(i + 2) & 3], w3 = w[(i + 3) & 3];
        __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(*now, w1), _mm_alignr_epi8(w3, w2, 4));
        *now = _mm_sha256msg2_epu32(sum, w3);
      }
      __m128i wk = _mm_add_epi32(*now, _mm_loadu_si128((const __m128i *)(K + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128((__m128i *)hash, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128((__m128i *)(hash + 4), _mm_alignr_epi8(dchg, feba, 8));
}

// Asked once: virtual machines make the question slow.
static pj_sha256_compress *best_compress(void) {
  static _Atomic(pj_sha256_compress *) best;
  if (!best) {
    unsigned a, b, c, d;
    bool has = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29);
    best = has ? compress_by_instructions : pj_sha256_compress_portable;
  }
  return best;
}
#else
static pj_sha256_compress *best_compress(void) { return pj_sha256_compress_portable; }
#endif

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

// FIPS 180-4, 6.2.2.
static void compress_block(uint32_t hash[8], const uint8_t *data) {
  uint32_t w[64], s[8];
  for (int t = 0; t < 16; ++t)
    for (int byte = 0; byte < 4; ++byte) w[t] = byte ? w[t] << 8 | data[4 * t + byte] : data[4 * t];
  for (int t = 16; t < 64; ++t) {
    uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
    uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  memcpy(s, hash, sizeof s);
  for (int t = 0; t < 64; ++t) {
    uint32_t a = s[0], b = s[1], c = s[2], e = s[4], f = s[5], g = s[6];
    uint32_t t1 = s[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + K[t] + w[t];
    uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (int i = 0; i < 8; ++i) hash[i] += s[i];
}

void pj_sha256_compress_portable(uint32_t hash[8], const uint8_t *data, size_t blocks) {
  for (; blocks; --blocks, data += 64) compress_block(hash, data);
}

void pj_sha256_init(pj_sha256_state *state) {
  static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  state->compress = best_compress();
  memcpy(state->hash, initial, sizeof initial);
  state->size = 0;
}

void pj_sha256_update(pj_sha256_state *state, const void *data, size_t size) {
  const uint8_t *bytes = data;
  size_t begun = state->size % 64;
  state->size += size;
  if (begun) {
    size_t part = size < 64 - begun ? size : 64 - begun;
    if (part) memcpy(state->block + begun, bytes, part);
    if (begun + part < 64) return;
    state->compress(state->hash, state->block, 1);
    bytes += part;
    size -= part;
  }
  if (size >= 64) state->compress(state->hash, bytes, size / 64);
  if (size % 64) memcpy(state->block, bytes + (size & ~(size_t)63), size % 64);
}

void pj_sha256_final(pj_sha256_state *state, uint8_t out[32]) {
  uint64_t bits = state->size * 8;
  size_t begun = state->size % 64;
  uint8_t tail[72] = {0x80};
  size_t zeros = begun < 56 ? 56 - begun : 120 - begun;
  for (int i = 0; i < 8; ++i) tail[zeros + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
  pj_sha256_update(state, tail, zeros + 8);
  for (int i = 0; i < 32; ++i) out[i] = (uint8_t)(state->hash[i / 4] >> (24 - 8 * (i % 4)));
}

void pj_sha256(const void *data, size_t size, uint8_t out[32]) {
  pj_sha256_state state;
  pj_sha256_init(&state);
  pj_sha256_update(&state, data, size);
  pj_sha256_final(&state, out);
}
