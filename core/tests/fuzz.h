// Mutations of good bytes, the same in each run. What they feed is an LLVMFuzzerTestOneInput, which with -DPJ_LIBFUZZER is
// all that is built, for libFuzzer to drive.
#ifndef PJ_TESTS_FUZZ_H_
#define PJ_TESTS_FUZZ_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FUZZ_MUTATIONS = 20000, FUZZ_ROOM = 2048 };

typedef struct fuzz_seed {
  uint8_t bytes[FUZZ_ROOM];
  size_t size;
} fuzz_seed;

static uint64_t fuzz_state = 0x9e3779b97f4a7c15u;

// xorshift64*: https://www.jstatsoft.org/article/view/v008i14, section 3.
static inline uint64_t fuzz_next(uint64_t below) {
  fuzz_state ^= fuzz_state >> 12;
  fuzz_state ^= fuzz_state << 25;
  fuzz_state ^= fuzz_state >> 27;
  return (fuzz_state * 0x2545f4914f6cdd1du >> 16) % below;
}

static inline void fuzz_mutate(fuzz_seed *s) {
  static const uint64_t NUMBERS[] = {0, 1, 7, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, UINT64_MAX, UINT64_MAX - 7};
  for (uint64_t left = 1 + fuzz_next(4); left; --left) {
    size_t at = s->size ? (size_t)fuzz_next(s->size) : 0;
    switch (fuzz_next(5)) {
      case 0:
        s->bytes[at] ^= (uint8_t)(1u << fuzz_next(8));
        break;
      case 1:
        s->bytes[at] = (uint8_t)fuzz_next(256);
        break;
      case 2:
        s->size = at;
        break;
      case 3:
        if (at + 8 <= s->size) memcpy(s->bytes + at / 8 * 8, &NUMBERS[fuzz_next(8)], 8);
        break;
      default:
        if (s->size + 8 <= FUZZ_ROOM) {
          memmove(s->bytes + at + 8, s->bytes + at, s->size - at);
          s->size += 8;
        }
    }
  }
}

#endif
