#include "base/sha256.h"

#include "test.h"

static bool digest_is(const uint8_t digest[32], const char *hex) {
  char text[65];
  for (int i = 0; i < 32; ++i) snprintf(text + 2 * i, 3, "%02x", digest[i]);
  return !strcmp(text, hex);
}

// NIST, Cryptographic Standards and Guidelines: SHA-256 example values.
static const struct { const char *text, *digest; } EXAMPLES[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
};

static void the_published_examples_come_out(void) {
  uint8_t digest[32];
  for (size_t i = 0; i < sizeof EXAMPLES / sizeof EXAMPLES[0]; ++i) {
    pj_sha256(EXAMPLES[i].text, strlen(EXAMPLES[i].text), digest);
    CHECK(digest_is(digest, EXAMPLES[i].digest));
  }
}

// 'a' a million times, the fourth example, in pieces that are no blocks.
static void million(pj_sha256_state *state) {
  uint8_t digest[32], piece[997];
  memset(piece, 'a', sizeof piece);
  size_t left = 1000000;
  for (size_t size = 0; left; left -= size) {
    size = 1 + (left * 7) % sizeof piece;
    if (size > left) size = left;
    pj_sha256_update(state, piece, size);
  }
  pj_sha256_final(state, digest);
  CHECK(digest_is(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
}

static void a_million_letters_in_uneven_pieces_come_out(void) {
  pj_sha256_state state;
  pj_sha256_init(&state);
  million(&state);
}

static void the_portable_code_agrees(void) {
  pj_sha256_state state;
  pj_sha256_init(&state);
  state.compress = pj_sha256_compress_portable;
  million(&state);
}

int main(void) {
  RUN(the_published_examples_come_out);
  RUN(a_million_letters_in_uneven_pieces_come_out);
  RUN(the_portable_code_agrees);
  return test_end();
}
