// What a compiler and its worker say to each other over a socket: frames of a fixed header and two byte strings.
//
//   frame      number          first             second
//   HELLO      parent's pid    plugin path       settings (pj_worker_settings_encode)
//   COMPILE    0               program           encoded compile options
//   ANSWER     a pj_code       error sentence    serialized executable
//
// An ANSWER to COMPILE with PJ_OK and no executable says, in its sentence, why a good executable cannot be serialized.
// The compiler sends one HELLO and then COMPILE frames; the worker gives one ANSWER to each frame. Both ends run on one
// host and come from one build (VERSION), so numbers are in native byte order. What arrives is checked as untrusted:
// a worker may have been overrun by the compiler that it ran.
#ifndef PJ_RUN_WORKER_PROTOCOL_H_
#define PJ_RUN_WORKER_PROTOCOL_H_

#include "pj/pjrt.h"

enum { PJ_WORKER_SOCKET = 3 };  // the worker's end of the socket pair

typedef enum pj_frame_kind { PJ_FRAME_HELLO = 1, PJ_FRAME_COMPILE, PJ_FRAME_ANSWER } pj_frame_kind;

typedef struct pj_frame_header {
  uint32_t magic;  // also the protocol's version
  uint32_t kind;
  uint64_t number;
  uint64_t first_size;
  uint64_t second_size;
} pj_frame_header;

// The parts larger than this are no real program or executable (protobuf, which both are carried in, ends at 2 GiB).
#define PJ_FRAME_PART_LIMIT ((uint64_t)1 << 32)

pj_frame_header pj_frame_header_make(pj_frame_kind kind, uint64_t number, uint64_t first_size, uint64_t second_size);

// Checks a header that arrived, when a frame of `kind` is due; on failure returns what is wrong with it, else NULL.
const char *pj_frame_header_check(const pj_frame_header *header, pj_frame_kind kind);

// A frame that is being received: its header, then both parts in `payload`. Starts zeroed; `received` = 0 begins the
// next.
typedef struct pj_frame_reader {
  pj_frame_header header;
  uint8_t *payload;  // malloc'ed; its owner may take it
  size_t room;
  size_t received;
} pj_frame_reader;

typedef enum pj_frame_progress { PJ_FRAME_WAITING, PJ_FRAME_WHOLE, PJ_FRAME_GONE } pj_frame_progress;

// Reads what the socket has of a frame of `kind`, without blocking. GONE: the other end has closed (`*out_fault`
// unchanged) or sent what is no such frame (`*out_fault` says what). Memory grows with what arrives, not with what a
// header claims.
pj_frame_progress pj_frame_read(pj_frame_reader *reader, int socket, pj_frame_kind kind, const char **out_fault);

// How a worker is to work. Strings and arrays are owned by whoever made the settings.
typedef struct pj_worker_settings {
  uint64_t memory_bytes;     // limit of its writable memory beyond what it has after loading; 0 = none
  const char *topology;      // compile for this topology ("" = for a client's devices)
  const pj_option *options;  // of the client or the topology
  size_t option_count;
} pj_worker_settings;

// Settings as bytes, in malloc'ed memory that the caller frees.
pj_status pj_worker_settings_encode(const pj_worker_settings *settings, uint8_t **out_bytes, size_t *out_size);

// The inverse; INVALID_ARGUMENT on bytes that encode none. All that the settings point to lies in `bytes` or in
// `*out_memory`, which the caller frees after use.
pj_status pj_worker_settings_decode(const uint8_t *bytes, size_t size, pj_worker_settings *out_settings,
                                    void **out_memory);

#endif
