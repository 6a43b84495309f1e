// The objects of the fake plugin, and what its calls do alike. One lock guards everything.
#ifndef PJ_TESTS_FAKE_PLUGIN_OBJECTS_H_
#define PJ_TESTS_FAKE_PLUGIN_OBJECTS_H_

#include <pthread.h>

#include "fake_plugin.h"
#include "pjrt/abi.h"
#include "pjrt/slots.h"
#include "program.h"

typedef struct listener {
  void (*callback)(PJRT_Error *error, void *user_arg);
  void *user_arg;
  struct listener *next;
} listener;

// Something that will be done, well or with an error.
typedef struct completion {
  int refs;
  bool done;
  int code;
  char text[256];
  listener *listeners;
} completion;

typedef struct storage {
  int refs;
  completion *ready;
  size_t size;
  void *bytes;
} storage;

struct PJRT_Error {
  int code;
  char text[256];
};

struct PJRT_DeviceDescription {
  int id;
};

struct PJRT_Device {
  PJRT_DeviceDescription description;
};

enum { MAX_DEVICES = 64 };

struct PJRT_Client {
  int device_count;
  PJRT_Device devices[MAX_DEVICES];
  PJRT_Device *addressable[MAX_DEVICES];
};

struct PJRT_TopologyDescription {
  int device_count;
  PJRT_DeviceDescription devices[MAX_DEVICES], *descriptions[MAX_DEVICES];
};

struct PJRT_Event {
  completion *completion;
};

struct PJRT_Buffer {
  storage *storage;  // NULL: deleted
  pj_dtype dtype;
  size_t rank;
  int64_t dims[PJ_MAX_RANK];
  PJRT_Device *device;
};

struct PJRT_Executable {
  fake_program *program;
};

struct PJRT_LoadedExecutable {
  fake_program *program;
  PJRT_Client *client;
};

struct PJRT_SerializedExecutable {
  char *bytes;
};

typedef struct fake_state {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  fake_counts counts;
  int64_t memory_limit;
  bool asynchronous;
  int run_ms;
  int default_devices, running;
  char platform[32];
} fake_state;

extern fake_state state;

// ---- objects.c: names that end in _locked want the lock held --------------------------------------------------------

void sleep_ms(int ms);
void count(int *counter, int by);
PJRT_Error *error_new(int code, const char *text);
completion *completion_new(void);
void completion_release_locked(completion *c);
void complete(completion *c, int code, const char *text);
storage *storage_new(size_t size);
PJRT_Error *out_of_memory(size_t size);
void storage_release_locked(storage *s);
void storage_release(storage *s);
void program_release(fake_program *p);
PJRT_Event *event_new(completion *c);
PJRT_Buffer *buffer_new(storage *s, pj_dtype dtype, size_t rank, const int64_t *dims, PJRT_Device *device);

// ---- control.c ------------------------------------------------------------------------------------------------------

void control_fail(const char *slot, int code, const char *text, int times);
void control_delay(const char *slot, int milliseconds);
// What each call does first: the struct's size, then the delay and the failure that a test asked for.
PJRT_Error *enter(const char *slot, size_t size, size_t expected);

#define FUNCTION(name) PJRT_Error *name(PJRT_##name##_Args *args)
#define ENTER(name)                                                                                      \
  do {                                                                                                   \
    PJRT_Error *error = enter("PJRT_" #name, args->struct_size, PJRT_##name##_Args_STRUCT_SIZE);         \
    if (error) return error;                                                                             \
  } while (0)

// ---- work.c: begins when its inputs are ready, ends on this thread or on one of its own -----------------------------

typedef struct job {
  fake_program *program;  // NULL: copies its one input to `host`
  storage **inputs, **outputs;
  size_t input_count, output_count;
  void *host;
  completion *copied;
  int delay_ms;
} job;

// Takes the job with all its references.
void job_start(job *j);

// ---- buffers.c ------------------------------------------------------------------------------------------------------

// The buffer's storage with a reference more; NULL where it is deleted.
storage *borrow(PJRT_Buffer *buffer);

// ---- the calls, each in the file of its object ----------------------------------------------------------------------

#define DECLARE_VOID(name) void name(PJRT_##name##_Args *args);
#define DECLARE(name) FUNCTION(name);
#define NOT_HERE(name)
PJRT_API_SLOTS(DECLARE_VOID, DECLARE, DECLARE, NOT_HERE)

#endif
