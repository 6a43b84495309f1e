// SHA-256 (FIPS 180-4).
#ifndef PJ_BASE_SHA256_H_
#define PJ_BASE_SHA256_H_

#include <stddef.h>
#include <stdint.h>

// Takes whole blocks of 64 bytes into the hash.
typedef void pj_sha256_compress(uint32_t hash[8], const uint8_t *data, size_t blocks);

typedef struct pj_sha256_state {
  pj_sha256_compress *compress;
  uint32_t hash[8];
  uint64_t size;      // bytes taken so far
  uint8_t block[64];  // the begun block; size % 64 bytes of it are filled
} pj_sha256_state;

void pj_sha256_init(pj_sha256_state *state);
void pj_sha256_update(pj_sha256_state *state, const void *data, size_t size);
void pj_sha256_final(pj_sha256_state *state, uint8_t out[32]);

// What is used where the processor has no instructions for it.
pj_sha256_compress pj_sha256_compress_portable;

void pj_sha256(const void *data, size_t size, uint8_t out[32]);

#endif
