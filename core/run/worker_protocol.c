#include "run/worker_protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const uint32_t MAGIC = 0x314a5077;  // "wPJ1"

pj_frame_header pj_frame_header_make(pj_frame_kind kind, uint64_t number, uint64_t first_size, uint64_t second_size) {
  return (pj_frame_header){MAGIC, kind, number, first_size, second_size};
}

const char *pj_frame_header_check(const pj_frame_header *header, pj_frame_kind kind) {
  if (header->magic != MAGIC) return "bytes that are no frame of this protocol";
  if (header->kind != (uint32_t)kind) return "a frame of another kind than was due";
  if (header->first_size > PJ_FRAME_PART_LIMIT) return "an oversized frame";
  if (header->second_size > PJ_FRAME_PART_LIMIT) return "an oversized frame";
  if (header->number > INT32_MAX) return "a number out of range";
  return NULL;
}

static bool grow(pj_frame_reader *reader) {
  size_t larger = reader->room ? 2 * reader->room : 1 << 16;
  uint8_t *moved = realloc(reader->payload, larger);
  if (!moved) return false;
  reader->payload = moved;
  reader->room = larger;
  return true;
}

pj_frame_progress pj_frame_read(pj_frame_reader *reader, int socket, pj_frame_kind kind, const char **out_fault) {
  const size_t header = sizeof reader->header;
  for (;;) {
    uint8_t *target = (uint8_t *)&reader->header + reader->received;
    size_t wanted = header - reader->received;
    if (reader->received >= header) {
      size_t have = reader->received - header;
      size_t missing = (size_t)(reader->header.first_size + reader->header.second_size) - have;
      if (!missing) return PJ_FRAME_WHOLE;
      if (have == reader->room && !grow(reader)) {
        *out_fault = "more than fits in memory";
        return PJ_FRAME_GONE;
      }
      target = reader->payload + have;
      wanted = missing < reader->room - have ? missing : reader->room - have;
    }
    ssize_t count = recv(socket, target, wanted, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return PJ_FRAME_WAITING;
    if (count <= 0) return PJ_FRAME_GONE;
    reader->received += (size_t)count;
    if (reader->received == header && (*out_fault = pj_frame_header_check(&reader->header, kind))) return PJ_FRAME_GONE;
  }
}

// ---- settings -------------------------------------------------------------------------------------------------------

// Every item is padded to 8 bytes, so that the integers of a PJ_OPTION_INTS can be read where they lie.
typedef struct writer {
  uint8_t *bytes;
  size_t size;
  size_t room;
  bool failed;
} writer;

static size_t padded(size_t size) { return (size + 7) & ~(size_t)7; }

static void write_item(writer *w, const void *bytes, size_t size) {
  size_t wanted = w->size + padded(size);
  if (wanted > w->room && !w->failed) {
    uint8_t *moved = realloc(w->bytes, 2 * wanted);
    if (moved) {
      w->bytes = moved;
      w->room = 2 * wanted;
    } else {
      w->failed = true;
    }
  }
  if (w->failed) return;
  memset(w->bytes + w->size, 0, padded(size));
  if (size) memcpy(w->bytes + w->size, bytes, size);
  w->size = wanted;
}

static void write_number(writer *w, uint64_t number) { write_item(w, &number, sizeof number); }

static void write_text(writer *w, const char *text) {
  if (!text) text = "";
  write_number(w, strlen(text) + 1);
  write_item(w, text, strlen(text) + 1);
}

pj_status pj_worker_settings_encode(const pj_worker_settings *settings, uint8_t **out_bytes, size_t *out_size) {
  writer w = {0};
  write_number(&w, settings->memory_bytes);
  write_text(&w, settings->topology);
  write_number(&w, settings->option_count);
  for (size_t i = 0; i < settings->option_count; ++i) {
    const pj_option *option = &settings->options[i];
    write_number(&w, option->kind);
    write_text(&w, option->name);
    write_text(&w, option->kind == PJ_OPTION_STRING ? option->text : "");
    write_number(&w, (uint64_t)option->integer);
    write_item(&w, &option->number, sizeof option->number);
    size_t count = option->kind == PJ_OPTION_INTS ? option->count : 0;
    write_number(&w, count);
    write_item(&w, option->ints, count * sizeof *option->ints);
  }
  if (w.failed) {
    free(w.bytes);
    return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  }
  *out_bytes = w.bytes;
  *out_size = w.size;
  return NULL;
}

typedef struct reader {
  const uint8_t *bytes;
  size_t left;
  bool failed;
} reader;

static const void *read_item(reader *r, uint64_t size) {
  if (r->failed || size > r->left || padded((size_t)size) > r->left) {
    r->failed = true;
    return NULL;
  }
  const void *item = r->bytes;
  r->bytes += padded((size_t)size);
  r->left -= padded((size_t)size);
  return item;
}

static uint64_t read_number(reader *r) {
  uint64_t number = 0;
  const void *item = read_item(r, sizeof number);
  if (item) memcpy(&number, item, sizeof number);
  return number;
}

static const char *read_text(reader *r) {
  uint64_t size = read_number(r);
  const char *text = read_item(r, size);
  if (!text || !size || text[size - 1]) {
    r->failed = true;
    return "";
  }
  return text;
}

static void read_option(reader *r, pj_option *out_option) {
  uint64_t kind = read_number(r);
  if (kind > PJ_OPTION_BOOL) r->failed = true;
  out_option->kind = (pj_option_kind)kind;
  out_option->name = read_text(r);
  out_option->text = read_text(r);
  out_option->integer = (int64_t)read_number(r);
  const void *number = read_item(r, sizeof out_option->number);
  if (number) memcpy(&out_option->number, number, sizeof out_option->number);
  uint64_t count = read_number(r);
  if (count > r->left / sizeof *out_option->ints) r->failed = true;
  out_option->ints = read_item(r, r->failed ? 0 : count * sizeof *out_option->ints);
  out_option->count = (size_t)count;
}

pj_status pj_worker_settings_decode(const uint8_t *bytes, size_t size, pj_worker_settings *out_settings,
                                    void **out_memory) {
  reader r = {bytes, size, (uintptr_t)bytes % sizeof(uint64_t) != 0};
  pj_worker_settings settings = {.memory_bytes = read_number(&r)};
  settings.topology = read_text(&r);
  uint64_t count = read_number(&r);
  if (count > r.left / 8) r.failed = true;  // an option takes more than 8 bytes
  pj_option *options = r.failed ? NULL : calloc(count ? (size_t)count : 1, sizeof *options);
  for (uint64_t i = 0; options && !r.failed && i < count; ++i) read_option(&r, &options[i]);
  if (r.failed || r.left || !options) {
    free(options);
    return pj_error(PJ_INVALID_ARGUMENT, "bytes that are no settings of a compile worker");
  }
  settings.options = options;
  settings.option_count = (size_t)count;
  *out_settings = settings;
  *out_memory = options;
  return NULL;
}
