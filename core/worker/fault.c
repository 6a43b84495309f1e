#include "fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "run/worker_protocol.h"

static void fault_abort(void) {
  fprintf(stderr, "F0000 fault.c: Check failed: this program is well formed\n");
  abort();
}

static void fault_hang(void) {
  for (;;) pause();
}

// What a C++ compiler does when operator new fails, once there is no memory left.
static void fault_memory(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_DATA, &limit) || limit.rlim_cur == RLIM_INFINITY) {
    fprintf(stderr, "the fault \"memory\" needs a memory limit\n");
    exit(1);
  }
  while (mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
  }
  fprintf(stderr, "terminate called after throwing an instance of 'std::bad_alloc'\n");
  abort();
}

static void send_bytes(const void *bytes, size_t size) {
  if (write(PJ_WORKER_SOCKET, bytes, size) < 0) exit(1);
}

static void fault_garbage(void) {
  char bytes[256];
  memset(bytes, 0xa5, sizeof bytes);
  send_bytes(bytes, sizeof bytes);
}

// Promises more than it sends.
static void fault_lie(void) {
  pj_frame_header header = pj_frame_header_make(PJ_FRAME_ANSWER, 0, 0, PJ_FRAME_PART_LIMIT);
  send_bytes(&header, sizeof header);
  exit(0);
}

static void fault_exit(void) { exit(3); }

// More than a pipe holds, for a parent that does not read.
static void fault_chatter(void) {
  for (int i = 0; i < 20000; ++i) fprintf(stderr, "W0000 fault.c: line %d of what nobody asked for\n", i);
}

static const struct {
  const char *name;
  void (*play)(void);
} FAULTS[] = {
    {"abort", fault_abort}, {"hang", fault_hang}, {"memory", fault_memory},   {"garbage", fault_garbage},
    {"lie", fault_lie},     {"exit", fault_exit}, {"chatter", fault_chatter},
};

void pj_worker_fault(int request) {
  const char *wanted = getenv("PJ_WORKER_FAULT");
  if (!wanted) return;
  size_t size = strcspn(wanted, ":");
  if (wanted[size] && atoi(wanted + size + 1) != request) return;
  for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; ++i)
    if (strlen(FAULTS[i].name) == size && !memcmp(FAULTS[i].name, wanted, size)) FAULTS[i].play();
}
