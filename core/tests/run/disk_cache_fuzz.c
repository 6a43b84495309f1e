// What reads bytes that others wrote: an entry file of the disk cache, an answer of a compile worker, a worker's
// settings.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sha256.h"
#include "fuzz.h"
#include "run/disk_cache.h"
#include "run/worker_protocol.h"
#include "test.h"

static const uint8_t KEY[PJ_DISK_KEY_SIZE] = {1, 2, 3};
static volatile size_t sink;

static void touch(const void *bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) sink += ((const uint8_t *)bytes)[i];
}

static bool read_entry(const uint8_t *bytes, size_t size) {
  const uint8_t *payload;
  size_t payload_size;
  const char *wrong = pj_disk_entry_parse(bytes, size, KEY, &payload, &payload_size);
  if (!wrong) touch(payload, payload_size);
  return !wrong;
}

static bool read_answer(const uint8_t *bytes, size_t size) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) abort();
  ssize_t sent = send(ends[1], bytes, size, MSG_DONTWAIT);
  close(ends[1]);
  pj_frame_reader reader = {0};
  const char *fault = NULL;
  pj_frame_progress progress = pj_frame_read(&reader, ends[0], PJ_FRAME_ANSWER, &fault);
  if (progress == PJ_FRAME_WHOLE)
    touch(reader.payload, (size_t)(reader.header.first_size + reader.header.second_size));
  if (progress == PJ_FRAME_WAITING || (progress == PJ_FRAME_WHOLE && (size_t)sent < reader.received)) abort();
  free(reader.payload);
  close(ends[0]);
  return progress == PJ_FRAME_WHOLE;
}

static bool read_settings(const uint8_t *bytes, size_t size) {
  pj_worker_settings settings;
  void *memory;
  uint8_t *aligned = malloc(size ? size : 1);
  memcpy(aligned, bytes, size);
  pj_status status = pj_worker_settings_decode(aligned, size, &settings, &memory);
  bool good = !status;
  if (good) {
    touch(settings.topology, strlen(settings.topology));
    for (size_t i = 0; i < settings.option_count; ++i) {
      const pj_option *option = &settings.options[i];
      touch(option->name, strlen(option->name));
      touch(option->text, strlen(option->text));
      for (size_t k = 0; k < option->count; ++k) sink += (size_t)option->ints[k];
    }
    free(memory);
  }
  pj_status_free(status);
  free(aligned);
  return good;
}

static bool (*const READERS[])(const uint8_t *, size_t) = {read_entry, read_answer, read_settings};
enum { READER_COUNT = sizeof READERS / sizeof *READERS };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  if (size) READERS[bytes[0] % READER_COUNT](bytes + 1, size - 1);
  return 0;
}

#ifndef PJ_LIBFUZZER
// Spelled out here, not made by the code under test: the format on disk is a promise to later versions.
static void make_entry(fuzz_seed *out_seed) {
  const char payload[] = "an executable";
  uint8_t *at = out_seed->bytes;
  memcpy(at, "PJCACHE\0\1\0\0\0\0\0\0\0", 16);
  memcpy(at + 16, KEY, 32);
  memcpy(at + 48, &(uint64_t){sizeof payload}, 8);
  pj_sha256(payload, sizeof payload, at + 56);
  memcpy(at + 88, payload, sizeof payload);
  out_seed->size = 88 + sizeof payload;
}

static void make_answer(fuzz_seed *out_seed) {
  pj_frame_header header = pj_frame_header_make(PJ_FRAME_ANSWER, PJ_INVALID_ARGUMENT, 9, 100);
  memset(out_seed->bytes, 'x', sizeof header + 109);
  memcpy(out_seed->bytes, &header, sizeof header);
  out_seed->size = sizeof header + 109;
}

static void make_settings(fuzz_seed *out_seed) {
  const int64_t ints[] = {4, 2, 1};
  const pj_option options[] = {
      {.name = "cpu_device_count", .kind = PJ_OPTION_INT, .integer = 4},
      {.name = "topology", .kind = PJ_OPTION_STRING, .text = "v5e:2x2"},
      {.name = "mesh", .kind = PJ_OPTION_INTS, .ints = ints, .count = 3},
      {.name = "fraction", .kind = PJ_OPTION_FLOAT, .number = 0.5f},
      {.name = "", .kind = PJ_OPTION_BOOL, .integer = 1},
  };
  pj_worker_settings settings = {.memory_bytes = 1 << 30, .topology = "v5e:1x1", .options = options, .option_count = 5};
  uint8_t *bytes = NULL;
  CHECK_OK(pj_worker_settings_encode(&settings, &bytes, &out_seed->size));
  memcpy(out_seed->bytes, bytes, out_seed->size);
  pj_worker_settings back;
  void *memory = NULL;
  CHECK_OK(pj_worker_settings_decode(bytes, out_seed->size, &back, &memory));
  CHECK(back.memory_bytes == 1 << 30 && back.option_count == 5 && !strcmp(back.topology, "v5e:1x1"));
  for (size_t i = 0; i < 5; ++i) {
    CHECK(!strcmp(back.options[i].name, options[i].name));
    CHECK(back.options[i].kind == options[i].kind && back.options[i].integer == options[i].integer);
  }
  CHECK(!strcmp(back.options[1].text, "v5e:2x2"));
  CHECK(back.options[2].count == 3 && !memcmp(back.options[2].ints, ints, sizeof ints));
  CHECK(back.options[3].number == 0.5f);
  free(memory);
  free(bytes);
}

static void mutated_bytes_are_read_or_refused_never_overrun(void) {
  static void (*const MAKERS[READER_COUNT])(fuzz_seed *) = {make_entry, make_answer, make_settings};
  for (int kind = 0; kind < READER_COUNT; ++kind) {
    int good = 0;
    fuzz_seed original = {.size = 0};
    MAKERS[kind](&original);
    CHECK(READERS[kind](original.bytes, original.size));
    for (int i = 0; i < FUZZ_MUTATIONS; ++i) {
      fuzz_seed s = original;
      fuzz_mutate(&s);
      // Of its exact size, so that a sanitizer sees each byte read beyond it.
      uint8_t *exact = malloc(s.size ? s.size : 1);
      memcpy(exact, s.bytes, s.size);
      bool read = READERS[kind](exact, s.size);
      good += read;
      if (kind == 0 && read) CHECK(s.size == original.size && !memcmp(s.bytes, original.bytes, s.size));
      free(exact);
    }
    CHECK(good < FUZZ_MUTATIONS);
  }
}

int main(void) {
  RUN(mutated_bytes_are_read_or_refused_never_overrun);
  return test_end();
}
#endif
