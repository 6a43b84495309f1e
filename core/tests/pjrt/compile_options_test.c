// Bytes against the protobuf encoding worked out by hand from compile_options.proto.
#include "pj/pjrt.h"
#include "test.h"

static bool encodes(const pj_compile_options *options, const uint8_t *wanted, size_t wanted_size) {
  uint8_t *bytes;
  size_t size;
  CHECK_OK(pj_compile_options_encode(options, &bytes, &size));
  bool same = size == wanted_size && !memcmp(bytes, wanted, size);
  if (!same) {
    for (size_t i = 0; i < size; ++i) fprintf(stderr, "%02x ", bytes[i]);
    fprintf(stderr, "\n");
  }
  free(bytes);
  return same;
}

#define ENCODES(options, ...) encodes(options, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static void one_device_is_one_replica_of_one_partition(void) {
  CHECK(ENCODES(&(pj_compile_options){0}, 0x1a, 4, 0x20, 1, 0x28, 1));
  CHECK(ENCODES(&(pj_compile_options){.num_partitions = 1}, 0x1a, 4, 0x20, 1, 0x28, 1));
}

static void portable_is_a_field_of_its_own(void) {
  CHECK(ENCODES(&(pj_compile_options){.portable = true}, 0x1a, 4, 0x20, 1, 0x28, 1, 0x20, 1));
}

static void the_optimization_level_is_an_effort(void) {
  CHECK(ENCODES(&(pj_compile_options){.optimization_level = 19}, 0x1a, 7, 0x20, 1, 0x28, 1, 0xc0, 0x01, 0x13));
}

static void a_device_id_is_an_assignment(void) {
  int64_t id = 300;  // two bytes as a varint
  CHECK(ENCODES(&(pj_compile_options){.device_ids = &id}, 0x1a, 16, 0x20, 1, 0x28, 1,  //
                0x4a, 10, 8, 1, 16, 1, 0x1a, 4, 0x0a, 2, 0xac, 0x02));
}

static void partitions_are_spmd_by_shardy(void) {
  int64_t ids[] = {0, 3};
  const pj_compile_options options = {.num_partitions = 2, .device_ids = ids};
  CHECK(ENCODES(&options, 0x1a, 25, 0x20, 1, 0x28, 2, 0x30, 1,  //
                0x98, 0x01, 1, 0x4a, 14, 8, 1, 16, 2, 0x1a, 3, 0x0a, 1, 0, 0x1a, 3, 0x0a, 1, 3));
}

static void flags_keep_their_kind(void) {
  const char *flags[] = {"a=true", "b=-1", "c=x y", "d=", "e=12x"};
  const pj_compile_options options = {.flags = flags, .flag_count = 5};
  CHECK(ENCODES(&options, 0x1a, 4, 0x20, 1, 0x28, 1,             //
                0x3a, 7, 0x0a, 1, 'a', 0x12, 2, 0x10, 1,                                                        //
                0x3a, 16, 0x0a, 1, 'b', 0x12, 11, 0x18, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1,         //
                0x3a, 10, 0x0a, 1, 'c', 0x12, 5, 0x0a, 3, 'x', ' ', 'y',                                        //
                0x3a, 7, 0x0a, 1, 'd', 0x12, 2, 0x0a, 0,                                                        //
                0x3a, 10, 0x0a, 1, 'e', 0x12, 5, 0x0a, 3, '1', '2', 'x'));
}

static void contradictions_are_refused(void) {
  uint8_t *bytes;
  size_t size;
  int64_t id = 0;
  const char *flags[] = {"no_value"};
  CHECK_FAILS(pj_compile_options_encode(&(pj_compile_options){.portable = true, .device_ids = &id}, &bytes, &size),
              PJ_INVALID_ARGUMENT, "portable");
  CHECK_FAILS(pj_compile_options_encode(&(pj_compile_options){.num_partitions = -1}, &bytes, &size),
              PJ_INVALID_ARGUMENT, "-1 partitions");
  CHECK_FAILS(pj_compile_options_encode(&(pj_compile_options){.flags = flags, .flag_count = 1}, &bytes, &size),
              PJ_INVALID_ARGUMENT, "name=value");
  CHECK(!bytes && !size);
}

int main(void) {
  RUN(one_device_is_one_replica_of_one_partition);
  RUN(portable_is_a_field_of_its_own);
  RUN(the_optimization_level_is_an_effort);
  RUN(a_device_id_is_an_assignment);
  RUN(partitions_are_spmd_by_shardy);
  RUN(flags_keep_their_kind);
  RUN(contradictions_are_refused);
  return test_end();
}
