#include "base/sha256.h"

#include "test.h"

static bool digest_is(const uint8_t digest[32], const char *hex) {
  char text[65];
  for (int i = 0; i < 32; ++i) snprintf(text + 2 * i, 3, "%02x", digest[i]);
  return !strcmp(text, hex);
}

static void the_published_examples_come_out(void) {
  // NIST, Cryptographic Standards and Guidelines: SHA-256 example values.
  uint8_t digest[32];
  pj_sha256("", 0, digest);
  CHECK(digest_is(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
  pj_sha256("abc", 3, digest);
  CHECK(digest_is(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
  const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  pj_sha256(two_blocks, sizeof two_blocks - 1, digest);
  CHECK(digest_is(digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));
}

static void a_million_letters_in_uneven_pieces_come_out(void) {
  uint8_t digest[32], piece[997];
  memset(piece, 'a', sizeof piece);
  pj_sha256_state state;
  pj_sha256_init(&state);
  size_t left = 1000000;
  for (size_t size = 0; left; left -= size) {
    size = 1 + (left * 7) % sizeof piece;
    if (size > left) size = left;
    pj_sha256_update(&state, piece, size);
  }
  pj_sha256_final(&state, digest);
  CHECK(digest_is(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
}

int main(void) {
  RUN(the_published_examples_come_out);
  RUN(a_million_letters_in_uneven_pieces_come_out);
  return test_end();
}
