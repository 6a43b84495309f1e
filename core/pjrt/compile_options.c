// CompileOptionsProto written by hand (protobuf.dev/programming-guides/encoding). Field numbers are those of
// xla/pjrt/proto/compile_options.proto and xla/xla_data.proto (DeviceAssignmentProto).
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pj/pjrt.h"

enum {
  OPTIONS_BUILD = 3,
  OPTIONS_PORTABLE = 4,
  OPTIONS_FLAGS = 7,

  BUILD_REPLICAS = 4,
  BUILD_PARTITIONS = 5,
  BUILD_SPMD = 6,
  BUILD_DEVICES = 9,
  BUILD_SHARDY = 19,
  BUILD_OPTIMIZATION = 24,

  DEVICES_REPLICAS = 1,
  DEVICES_COMPUTATIONS = 2,
  DEVICES_COMPUTATION = 3,
  COMPUTATION_IDS = 1,

  MAP_KEY = 1,
  MAP_VALUE = 2,
  FLAG_STRING = 1,
  FLAG_BOOL = 2,
  FLAG_INT = 3,
};

enum { VARINT = 0, LENGTH_DELIMITED = 2 };

typedef struct message {
  uint8_t *bytes;
  size_t size, room;
  bool failed;  // memory ran out
} message;

static void put(message *m, const void *bytes, size_t size) {
  if (m->failed) return;
  if (m->size + size > m->room) {
    size_t room = 2 * (m->size + size) + 32;
    uint8_t *grown = realloc(m->bytes, room);
    if (!grown) {
      m->failed = true;
      return;
    }
    m->bytes = grown;
    m->room = room;
  }
  if (size) memcpy(m->bytes + m->size, bytes, size);
  m->size += size;
}

static void put_varint(message *m, uint64_t value) {
  do {
    uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    put(m, &byte, 1);
  } while (value >>= 7);
}

static void put_integer(message *m, unsigned field, int64_t value) {
  put_varint(m, field << 3 | VARINT);
  put_varint(m, (uint64_t)value);
}

static void put_bytes(message *m, unsigned field, const void *bytes, size_t size) {
  put_varint(m, field << 3 | LENGTH_DELIMITED);
  put_varint(m, size);
  put(m, bytes, size);
}

// Puts `part` as a field and frees it.
static void put_message(message *m, unsigned field, message part) {
  m->failed |= part.failed;
  put_bytes(m, field, part.bytes, part.size);
  free(part.bytes);
}

static message device_assignment(const int64_t *ids, int64_t count) {
  message m = {0};
  put_integer(&m, DEVICES_REPLICAS, 1);
  put_integer(&m, DEVICES_COMPUTATIONS, count);
  for (int64_t i = 0; i < count; ++i) {
    message packed = {0}, computation = {0};
    put_varint(&packed, (uint64_t)ids[i]);
    put_message(&computation, COMPUTATION_IDS, packed);
    put_message(&m, DEVICES_COMPUTATION, computation);
  }
  return m;
}

static message build_options(const pj_compile_options *options, int64_t partitions) {
  message m = {0};
  put_integer(&m, BUILD_REPLICAS, 1);
  put_integer(&m, BUILD_PARTITIONS, partitions);
  if (partitions > 1) {
    put_integer(&m, BUILD_SPMD, 1);
    put_integer(&m, BUILD_SHARDY, 1);
  }
  if (options->device_ids) put_message(&m, BUILD_DEVICES, device_assignment(options->device_ids, partitions));
  if (options->optimization_level) put_integer(&m, BUILD_OPTIMIZATION, options->optimization_level);
  return m;
}

static message flag_value(const char *text) {
  message m = {0};
  char *end;
  errno = 0;
  int64_t integer = strtoll(text, &end, 10);
  if (!strcmp(text, "true") || !strcmp(text, "false"))
    put_integer(&m, FLAG_BOOL, text[0] == 't');
  else if (*text && !*end && !errno)
    put_integer(&m, FLAG_INT, integer);
  else
    put_bytes(&m, FLAG_STRING, text, strlen(text));
  return m;
}

static pj_status check(const pj_compile_options *options) {
  if (options->num_partitions < 0)
    return pj_error(PJ_INVALID_ARGUMENT, "%" PRId64 " partitions", options->num_partitions);
  if (options->portable && (options->device_ids || options->num_partitions > 1))
    return pj_error(PJ_INVALID_ARGUMENT, "a portable program is for one device that is chosen at execution");
  for (size_t i = 0; i < options->flag_count; ++i) {
    const char *equals = strchr(options->flags[i], '=');
    if (!equals || equals == options->flags[i])
      return pj_error(PJ_INVALID_ARGUMENT, "XLA flag \"%s\" is not of the form name=value", options->flags[i]);
  }
  return NULL;
}

pj_status pj_compile_options_encode(const pj_compile_options *options, uint8_t **out_bytes, size_t *out_size) {
  *out_bytes = NULL;
  *out_size = 0;
  PJ_TRY(check(options));
  message m = {0};
  put_message(&m, OPTIONS_BUILD, build_options(options, options->num_partitions > 1 ? options->num_partitions : 1));
  if (options->portable) put_integer(&m, OPTIONS_PORTABLE, 1);
  for (size_t i = 0; i < options->flag_count; ++i) {
    const char *flag = options->flags[i], *equals = strchr(flag, '=');
    message entry = {0};
    put_bytes(&entry, MAP_KEY, flag, (size_t)(equals - flag));
    put_message(&entry, MAP_VALUE, flag_value(equals + 1));
    put_message(&m, OPTIONS_FLAGS, entry);
  }
  if (m.failed) {
    free(m.bytes);
    return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  }
  *out_bytes = m.bytes;
  *out_size = m.size;
  return NULL;
}
