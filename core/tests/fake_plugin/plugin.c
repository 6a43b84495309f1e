#include <pthread.h>
#include <time.h>

#include "fake_plugin.h"
#include "pjrt/abi.h"
#include "program.h"

// ---- objects: all guarded by one lock -------------------------------------------------------------------------------

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

typedef struct rule {
  char slot[80];
  int code, times, delay_ms;
  char text[160];
} rule;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static fake_counts counts;
static rule rules[16];
static int64_t memory_limit;
static bool asynchronous;
static int default_devices = 2, running;
static char platform[32] = "fake";

static void sleep_ms(int ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
  if (ms > 0) nanosleep(&time, NULL);
}

static void count(int *counter, int by) {
  pthread_mutex_lock(&lock);
  *counter += by;
  pthread_mutex_unlock(&lock);
}

static PJRT_Error *error_new(int code, const char *text) {
  PJRT_Error *error = calloc(1, sizeof *error);
  error->code = code;
  snprintf(error->text, sizeof error->text, "%s", text);
  count(&counts.errors, 1);
  return error;
}

static completion *completion_new(void) {
  completion *c = calloc(1, sizeof *c);
  c->refs = 1;
  return c;
}

static void completion_release_locked(completion *c) {
  if (--c->refs) return;
  free(c);
}

static void complete(completion *c, int code, const char *text) {
  pthread_mutex_lock(&lock);
  c->done = true;
  c->code = code;
  if (code) snprintf(c->text, sizeof c->text, "%s", text);
  listener *first = c->listeners;
  c->listeners = NULL;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  while (first) {
    listener *next = first->next;
    first->callback(code ? error_new(code, text) : NULL, first->user_arg);
    free(first);
    first = next;
  }
}

static storage *storage_new(size_t size) {
  pthread_mutex_lock(&lock);
  bool fits = !memory_limit || counts.bytes + (int64_t)size <= memory_limit;
  if (fits) counts.bytes += (int64_t)size;
  pthread_mutex_unlock(&lock);
  if (!fits) return NULL;
  storage *s = calloc(1, sizeof *s);
  s->refs = 1;
  s->size = size;
  s->bytes = malloc(size ? size : 1);
  s->ready = completion_new();
  return s;
}

static PJRT_Error *out_of_memory(size_t size) {
  char text[160];
  snprintf(text, sizeof text, "Out of memory allocating %zu bytes on the fake device", size);
  return error_new(PJ_RESOURCE_EXHAUSTED, text);
}

static void storage_release_locked(storage *s) {
  if (!s || --s->refs) return;
  counts.bytes -= (int64_t)s->size;
  completion_release_locked(s->ready);
  free(s->bytes);
  free(s);
}

static void storage_release(storage *s) {
  pthread_mutex_lock(&lock);
  storage_release_locked(s);
  pthread_mutex_unlock(&lock);
}

static void program_release(fake_program *p) {
  pthread_mutex_lock(&lock);
  bool last = !--p->refs;
  pthread_mutex_unlock(&lock);
  if (last) fake_program_free(p);
}

static PJRT_Event *event_new(completion *c) {
  PJRT_Event *event = calloc(1, sizeof *event);
  pthread_mutex_lock(&lock);
  ++c->refs;
  ++counts.events;
  pthread_mutex_unlock(&lock);
  event->completion = c;
  return event;
}

static PJRT_Buffer *buffer_new(storage *s, pj_dtype dtype, size_t rank, const int64_t *dims, PJRT_Device *device) {
  PJRT_Buffer *buffer = calloc(1, sizeof *buffer);
  *buffer = (PJRT_Buffer){.storage = s, .dtype = dtype, .rank = rank, .device = device};
  if (rank) memcpy(buffer->dims, dims, rank * sizeof *dims);
  count(&counts.buffers, 1);
  return buffer;
}

// ---- control --------------------------------------------------------------------------------------------------------

static rule *rule_for(const char *slot, bool make) {
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; ++i) {
    if (!strcmp(rules[i].slot, slot)) return &rules[i];
    if (*rules[i].slot) continue;
    if (make) snprintf(rules[i].slot, sizeof rules[i].slot, "%s", slot);
    return make ? &rules[i] : NULL;
  }
  if (!make) return NULL;
  fprintf(stderr, "fake plugin: too many rules\n");
  abort();
}

static void control_fail(const char *slot, int code, const char *text, int times) {
  pthread_mutex_lock(&lock);
  rule *r = rule_for(slot, true);
  r->code = code;
  r->times = times;
  snprintf(r->text, sizeof r->text, "%s", text);
  pthread_mutex_unlock(&lock);
}

static void control_delay(const char *slot, int milliseconds) {
  pthread_mutex_lock(&lock);
  rule_for(slot, true)->delay_ms = milliseconds;
  pthread_mutex_unlock(&lock);
}

static fake_counts control_counts(void) {
  pthread_mutex_lock(&lock);
  fake_counts now = counts;
  pthread_mutex_unlock(&lock);
  return now;
}

static void control_memory_limit(int64_t bytes) {
  pthread_mutex_lock(&lock);
  memory_limit = bytes;
  pthread_mutex_unlock(&lock);
}

static void control_asynchronous(bool on) {
  pthread_mutex_lock(&lock);
  asynchronous = on;
  pthread_mutex_unlock(&lock);
}

extern const fake_control fake_plugin;
PJ_EXPORT const fake_control fake_plugin = {control_counts, control_fail, control_delay, control_memory_limit,
                                            control_asynchronous};

// What each call does first: the struct's size, then the delay and the failure that a test asked for.
static PJRT_Error *enter(const char *slot, size_t size, size_t expected) {
  char text[200];
  if (size != expected) {
    snprintf(text, sizeof text, "Unexpected %s_Args size: expected %zu, got %zu", slot, expected, size);
    return error_new(PJ_INVALID_ARGUMENT, text);
  }
  pthread_mutex_lock(&lock);
  rule *r = rule_for(slot, false);
  int delay_ms = r ? r->delay_ms : 0, code = 0;
  if (r && r->times) {
    if (r->times > 0) --r->times;
    code = r->code;
    snprintf(text, sizeof text, "%s", r->text);
  }
  pthread_mutex_unlock(&lock);
  sleep_ms(delay_ms);
  return code ? error_new(code, text) : NULL;
}

#define FUNCTION(name) static PJRT_Error *name(PJRT_##name##_Args *args)
#define ENTER(name)                                                                                      \
  do {                                                                                                   \
    PJRT_Error *error = enter("PJRT_" #name, args->struct_size, PJRT_##name##_Args_STRUCT_SIZE);         \
    if (error) return error;                                                                             \
  } while (0)

// ---- errors, plugin, events -----------------------------------------------------------------------------------------

static void Error_Destroy(PJRT_Error_Destroy_Args *args) {
  free(args->error);
  count(&counts.errors, -1);
}

static void Error_Message(PJRT_Error_Message_Args *args) {
  args->message = args->error->text;
  args->message_size = strlen(args->error->text);
}

FUNCTION(Error_GetCode) {
  args->code = args->error->code;
  return NULL;
}

FUNCTION(Plugin_Initialize) {
  ENTER(Plugin_Initialize);
  return NULL;
}

FUNCTION(Plugin_Attributes) {
  ENTER(Plugin_Attributes);
  static const int64_t version[] = {1, 2, 3};
  static const PJRT_NamedValue attributes[] = {
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "stablehlo_current_version", .name_size = 25,
       .type = PJRT_INT64_LIST, .int64_array_value = version, .value_size = 3},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "xla_version", .name_size = 11, .type = PJRT_INT64,
       .int64_value = 2, .value_size = 1},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "fake", .name_size = 4, .type = PJRT_STRING,
       .string_value = "yes, not more", .value_size = 3},
  };
  args->attributes = attributes;
  args->num_attributes = 3;
  return NULL;
}

FUNCTION(Event_Destroy) {
  ENTER(Event_Destroy);
  pthread_mutex_lock(&lock);
  completion_release_locked(args->event->completion);
  --counts.events;
  pthread_mutex_unlock(&lock);
  free(args->event);
  return NULL;
}

FUNCTION(Event_IsReady) {
  ENTER(Event_IsReady);
  pthread_mutex_lock(&lock);
  args->is_ready = args->event->completion->done;
  pthread_mutex_unlock(&lock);
  return NULL;
}

FUNCTION(Event_Await) {
  ENTER(Event_Await);
  completion *c = args->event->completion;
  pthread_mutex_lock(&lock);
  while (!c->done) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  return c->code ? error_new(c->code, c->text) : NULL;
}

FUNCTION(Event_OnReady) {
  ENTER(Event_OnReady);
  completion *c = args->event->completion;
  pthread_mutex_lock(&lock);
  bool done = c->done;
  if (!done) {
    listener *l = malloc(sizeof *l);
    *l = (listener){args->callback, args->user_arg, c->listeners};
    c->listeners = l;
  }
  pthread_mutex_unlock(&lock);
  if (done) args->callback(c->code ? error_new(c->code, c->text) : NULL, args->user_arg);
  return NULL;
}

// ---- client and devices ---------------------------------------------------------------------------------------------

FUNCTION(Client_Create) {
  ENTER(Client_Create);
  int devices = default_devices;
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue *option = &args->create_options[i];
    if (option->type == PJRT_INT64 && option->name_size == 16 && !memcmp(option->name, "cpu_device_count", 16)) {
      devices = (int)option->int64_value;
      continue;
    }
    char text[160];
    snprintf(text, sizeof text, "Unknown client option %.*s of type %d", (int)option->name_size, option->name,
             option->type);
    return error_new(PJ_INVALID_ARGUMENT, text);
  }
  if (devices < 1 || devices > MAX_DEVICES) return error_new(PJ_INVALID_ARGUMENT, "bad number of fake devices");
  fprintf(stderr, "the fake plugin makes noise\n");
  PJRT_Client *client = calloc(1, sizeof *client);
  client->device_count = devices;
  for (int i = 0; i < devices; ++i) {
    client->devices[i].description.id = 10 + i;  // ids need not be indices
    client->addressable[i] = &client->devices[i];
  }
  count(&counts.clients, 1);
  args->client = client;
  return NULL;
}

FUNCTION(Client_Destroy) {
  ENTER(Client_Destroy);
  pthread_mutex_lock(&lock);
  while (running) pthread_cond_wait(&changed, &lock);
  --counts.clients;
  pthread_mutex_unlock(&lock);
  free(args->client);
  return NULL;
}

FUNCTION(Client_PlatformName) {
  ENTER(Client_PlatformName);
  args->platform_name = platform;
  args->platform_name_size = strlen(platform);
  return NULL;
}

FUNCTION(Client_PlatformVersion) {
  ENTER(Client_PlatformVersion);
  args->platform_version = "fake 1, and more that is not part of it";
  args->platform_version_size = 6;
  return NULL;
}

FUNCTION(Client_AddressableDevices) {
  ENTER(Client_AddressableDevices);
  args->addressable_devices = args->client->addressable;
  args->num_addressable_devices = (size_t)args->client->device_count;
  return NULL;
}

FUNCTION(Device_GetDescription) {
  ENTER(Device_GetDescription);
  args->device_description = &args->device->description;
  return NULL;
}

FUNCTION(DeviceDescription_Id) {
  ENTER(DeviceDescription_Id);
  args->id = args->device_description->id;
  return NULL;
}

FUNCTION(DeviceDescription_Kind) {
  ENTER(DeviceDescription_Kind);
  args->device_kind = "fake device";
  args->device_kind_size = 11;
  return NULL;
}

FUNCTION(Device_MemoryStats) {
  ENTER(Device_MemoryStats);
  pthread_mutex_lock(&lock);
  args->bytes_in_use = counts.bytes;
  args->bytes_limit = memory_limit;
  args->bytes_limit_is_set = memory_limit != 0;
  pthread_mutex_unlock(&lock);
  return NULL;
}

// ---- buffers --------------------------------------------------------------------------------------------------------

FUNCTION(Client_BufferFromHostBuffer) {
  ENTER(Client_BufferFromHostBuffer);
  size_t size = pj_dtype_size(args->type);
  for (size_t i = 0; i < args->num_dims; ++i) size *= (size_t)args->dims[i];
  storage *s = storage_new(size);
  if (!s) return out_of_memory(size);
  if (size) memcpy(s->bytes, args->data, size);
  complete(s->ready, 0, NULL);
  args->buffer = buffer_new(s, args->type, args->num_dims, args->dims, args->device);
  args->done_with_host_buffer = event_new(s->ready);
  return NULL;
}

FUNCTION(Buffer_Destroy) {
  ENTER(Buffer_Destroy);
  pthread_mutex_lock(&lock);
  storage_release_locked(args->buffer->storage);
  --counts.buffers;
  pthread_mutex_unlock(&lock);
  free(args->buffer);
  return NULL;
}

FUNCTION(Buffer_ElementType) {
  ENTER(Buffer_ElementType);
  args->type = args->buffer->dtype;
  return NULL;
}

FUNCTION(Buffer_Dimensions) {
  ENTER(Buffer_Dimensions);
  args->dims = args->buffer->dims;
  args->num_dims = args->buffer->rank;
  return NULL;
}

// The buffer's storage with a reference more; NULL where it is deleted.
static storage *borrow(PJRT_Buffer *buffer) {
  pthread_mutex_lock(&lock);
  storage *s = buffer->storage;
  if (s) ++s->refs;
  pthread_mutex_unlock(&lock);
  return s;
}

static PJRT_Error *deleted(void) {
  return error_new(PJ_INVALID_ARGUMENT, "Buffer has been deleted or donated.");
}

FUNCTION(Buffer_IsDeleted) {
  ENTER(Buffer_IsDeleted);
  storage *s = borrow(args->buffer);
  args->is_deleted = !s;
  storage_release(s);
  return NULL;
}

FUNCTION(Buffer_ReadyEvent) {
  ENTER(Buffer_ReadyEvent);
  storage *s = borrow(args->buffer);
  if (!s) return deleted();
  args->event = event_new(s->ready);
  storage_release(s);
  return NULL;
}

static PJRT_Error *address(PJRT_Buffer *buffer, void **out_address) {
  storage *s = borrow(buffer);
  if (!s) return deleted();
  *out_address = s->bytes;
  storage_release(s);
  return NULL;
}

FUNCTION(Buffer_OpaqueDeviceMemoryDataPointer) {
  ENTER(Buffer_OpaqueDeviceMemoryDataPointer);
  return address(args->buffer, &args->device_memory_ptr);
}

FUNCTION(Buffer_UnsafePointer) {
  ENTER(Buffer_UnsafePointer);
  void *pointer = NULL;
  PJRT_Error *error = address(args->buffer, &pointer);
  args->buffer_pointer = (uintptr_t)pointer;
  return error;
}

// ---- work: begins when its inputs are ready, ends on this thread or on one of its own -------------------------------

typedef struct job {
  fake_program *program;  // NULL: copies its one input to `host`
  storage **inputs, **outputs;
  size_t input_count, output_count;
  void *host;
  completion *copied;
  int delay_ms;
} job;

static void job_run(job *j) {
  int code = 0;
  char text[256] = "";
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < j->input_count; ++i) {
    completion *ready = j->inputs[i]->ready;
    while (!ready->done) pthread_cond_wait(&changed, &lock);
    if (ready->code && !code) {
      code = ready->code;
      snprintf(text, sizeof text, "%s", ready->text);
    }
  }
  pthread_mutex_unlock(&lock);
  sleep_ms(j->delay_ms);
  if (j->program && !code) {
    code = j->program->run_code;
    snprintf(text, sizeof text, "%s", j->program->run_error);
  }
  if (!code && j->program) {
    void *arguments[FAKE_MAX_VALUES], *results[FAKE_MAX_VALUES];
    for (size_t i = 0; i < j->input_count; ++i) arguments[i] = j->inputs[i]->bytes;
    for (size_t i = 0; i < j->output_count; ++i) results[i] = j->outputs[i]->bytes;
    fake_program_run(j->program, arguments, results);
  }
  if (!code && !j->program && j->inputs[0]->size) memcpy(j->host, j->inputs[0]->bytes, j->inputs[0]->size);
  for (size_t i = 0; i < j->output_count; ++i) complete(j->outputs[i]->ready, code, text);
  if (j->copied) complete(j->copied, code, text);

  if (j->program) program_release(j->program);
  pthread_mutex_lock(&lock);
  if (j->copied) completion_release_locked(j->copied);
  for (size_t i = 0; i < j->input_count; ++i) storage_release_locked(j->inputs[i]);
  for (size_t i = 0; i < j->output_count; ++i) storage_release_locked(j->outputs[i]);
  --running;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  free(j->inputs);
  free(j->outputs);
  free(j);
}

static void *job_thread(void *argument) {
  job_run(argument);
  return NULL;
}

// Takes the job with all its references.
static void job_start(job *j) {
  pthread_mutex_lock(&lock);
  ++running;
  bool at_once = !asynchronous && !j->delay_ms;
  for (size_t i = 0; i < j->input_count; ++i) at_once &= j->inputs[i]->ready->done;
  pthread_mutex_unlock(&lock);
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (at_once || pthread_create(&thread, &attributes, job_thread, j)) job_run(j);
  pthread_attr_destroy(&attributes);
}

FUNCTION(Buffer_ToHostBuffer) {
  ENTER(Buffer_ToHostBuffer);
  storage *s = borrow(args->src);
  if (!s) return deleted();
  if (!args->host_layout || args->host_layout->tiled.minor_to_major_size != args->src->rank ||
      args->dst_size < s->size) {
    storage_release(s);
    return error_new(PJ_INVALID_ARGUMENT, "a host layout of the buffer's rank and room for its bytes are needed");
  }
  job *j = calloc(1, sizeof *j);
  j->inputs = malloc(sizeof *j->inputs);
  j->inputs[0] = s;
  j->input_count = 1;
  j->host = args->dst;
  j->copied = completion_new();
  args->event = event_new(j->copied);
  pthread_mutex_lock(&lock);
  ++counts.to_host;
  pthread_mutex_unlock(&lock);
  job_start(j);
  return NULL;
}

FUNCTION(Buffer_CopyToDevice) {
  ENTER(Buffer_CopyToDevice);
  storage *s = borrow(args->buffer);
  if (!s) return deleted();
  // Values never change, so a copy is one more reference.
  args->dst_buffer = buffer_new(s, args->buffer->dtype, args->buffer->rank, args->buffer->dims, args->dst_device);
  return NULL;
}

// ---- programs -------------------------------------------------------------------------------------------------------

static PJRT_Error *program_new(const PJRT_Program *code, const char *options, size_t options_size,
                               fake_program **out_program) {
  if (code->format_size != 4 || memcmp(code->format, "mlir", 4)) return error_new(PJ_INVALID_ARGUMENT, "not mlir");
  char text[256];
  fake_program *p = fake_program_parse(code->code, code->code_size, (const uint8_t *)options, options_size, text);
  if (!p) return error_new(PJ_INVALID_ARGUMENT, text);
  pthread_mutex_lock(&lock);
  ++counts.compiles;
  pthread_mutex_unlock(&lock);
  sleep_ms(p->compile_ms);
  if (p->compile_abort) {
    fprintf(stderr, "F0000 fake_compiler.cc:1] Check failed: false\n");
    abort();
  }
  PJRT_Error *error = p->compile_code ? error_new(p->compile_code, p->compile_error) : NULL;
  if (error) program_release(p);
  else *out_program = p;
  return error;
}

static PJRT_LoadedExecutable *loaded_new(fake_program *p, PJRT_Client *client) {
  PJRT_LoadedExecutable *loaded = calloc(1, sizeof *loaded);
  *loaded = (PJRT_LoadedExecutable){p, client};
  count(&counts.loaded_executables, 1);
  return loaded;
}

static PJRT_Executable *executable_new(fake_program *p) {
  PJRT_Executable *executable = calloc(1, sizeof *executable);
  executable->program = p;
  count(&counts.executables, 1);
  return executable;
}

FUNCTION(Client_Compile) {
  ENTER(Client_Compile);
  fake_program *p;
  PJRT_Error *error = program_new(args->program, args->compile_options, args->compile_options_size, &p);
  if (error) return error;
  if (p->partitions > args->client->device_count) {
    program_release(p);
    return error_new(PJ_INVALID_ARGUMENT, "more partitions than fake devices");
  }
  args->executable = loaded_new(p, args->client);
  return NULL;
}

FUNCTION(LoadedExecutable_Destroy) {
  ENTER(LoadedExecutable_Destroy);
  program_release(args->executable->program);
  count(&counts.loaded_executables, -1);
  free(args->executable);
  return NULL;
}

FUNCTION(LoadedExecutable_GetExecutable) {
  ENTER(LoadedExecutable_GetExecutable);
  fake_program *p = args->loaded_executable->program;
  count(&p->refs, 1);
  args->executable = executable_new(p);
  return NULL;
}

FUNCTION(LoadedExecutable_AddressableDevices) {
  ENTER(LoadedExecutable_AddressableDevices);
  fake_program *p = args->executable->program;
  args->addressable_devices = args->executable->client->addressable;
  args->num_addressable_devices = p->portable ? 0 : (size_t)p->partitions;
  return NULL;
}

FUNCTION(Executable_Destroy) {
  ENTER(Executable_Destroy);
  program_release(args->executable->program);
  count(&counts.executables, -1);
  free(args->executable);
  return NULL;
}

FUNCTION(Executable_NumOutputs) {
  ENTER(Executable_NumOutputs);
  args->num_outputs = (size_t)args->executable->program->result_count;
  return NULL;
}

FUNCTION(Executable_OutputElementTypes) {
  ENTER(Executable_OutputElementTypes);
  args->output_types = args->executable->program->output_types;
  args->num_output_types = (size_t)args->executable->program->result_count;
  return NULL;
}

FUNCTION(Executable_OutputDimensions) {
  ENTER(Executable_OutputDimensions);
  args->num_outputs = (size_t)args->executable->program->result_count;
  args->dims = args->executable->program->output_dims;
  args->dim_sizes = args->executable->program->output_ranks;
  return NULL;
}

FUNCTION(Executable_GetCompiledMemoryStats) {
  ENTER(Executable_GetCompiledMemoryStats);
  const fake_program *p = args->executable->program;
  args->generated_code_size_in_bytes = (int64_t)p->text_size;
  args->argument_size_in_bytes = args->output_size_in_bytes = args->alias_size_in_bytes = args->temp_size_in_bytes = 0;
  for (int i = 0; i < p->argument_count; ++i) {
    args->argument_size_in_bytes += (int64_t)p->arguments[i].size;
    if (p->arguments[i].donated) args->alias_size_in_bytes += (int64_t)p->arguments[i].size;
  }
  for (int i = 0; i < p->result_count; ++i) args->output_size_in_bytes += (int64_t)p->results[i].size;
  // peak_memory_in_bytes stays as it came, as with a plugin whose struct does not reach it.
  return NULL;
}

FUNCTION(Executable_GetCostAnalysis) {
  ENTER(Executable_GetCostAnalysis);
  static const PJRT_NamedValue properties[] = {
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "flops", .name_size = 5, .type = PJRT_FLOAT,
       .float_value = 123, .value_size = 1},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "bytes accessed0{}", .name_size = 17, .type = PJRT_FLOAT,
       .float_value = 7, .value_size = 1},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "optimal_seconds", .name_size = 15, .type = PJRT_FLOAT,
       .float_value = -6, .value_size = 1},
  };
  args->properties = properties;
  args->num_properties = 3;
  return NULL;
}

// Serialized: a mark, whether portable, the number of partitions, the text.
static const char MARK[] = "fake executable ";
enum { MARK_SIZE = sizeof MARK - 1, HEAD_SIZE = MARK_SIZE + 2 };

static void delete_serialized(PJRT_SerializedExecutable *serialized) {
  free(serialized->bytes);
  free(serialized);
  count(&counts.serialized, -1);
}

FUNCTION(Executable_Serialize) {
  ENTER(Executable_Serialize);
  const fake_program *p = args->executable->program;
  PJRT_SerializedExecutable *serialized = calloc(1, sizeof *serialized);
  serialized->bytes = malloc(HEAD_SIZE + p->text_size);
  memcpy(serialized->bytes, MARK, MARK_SIZE);
  serialized->bytes[MARK_SIZE] = (char)p->portable;
  serialized->bytes[MARK_SIZE + 1] = (char)p->partitions;
  memcpy(serialized->bytes + HEAD_SIZE, p->text, p->text_size);
  count(&counts.serialized, 1);
  args->serialized_bytes = serialized->bytes;
  args->serialized_bytes_size = HEAD_SIZE + p->text_size;
  args->serialized_executable = serialized;
  args->serialized_executable_deleter = delete_serialized;
  return NULL;
}

FUNCTION(Executable_DeserializeAndLoad) {
  ENTER(Executable_DeserializeAndLoad);
  const char *bytes = args->serialized_executable;
  size_t size = args->serialized_executable_size;
  if (size < HEAD_SIZE || memcmp(bytes, MARK, MARK_SIZE))
    return error_new(PJ_INVALID_ARGUMENT, "Deserialized executable is not one of the fake plugin");
  char text[256];
  fake_program *p = fake_program_parse(bytes + HEAD_SIZE, size - HEAD_SIZE, NULL, 0, text);
  if (!p) return error_new(PJ_INVALID_ARGUMENT, text);
  p->portable = bytes[MARK_SIZE];
  p->partitions = bytes[MARK_SIZE + 1];
  pthread_mutex_lock(&lock);
  ++counts.loads;
  pthread_mutex_unlock(&lock);
  args->loaded_executable = loaded_new(p, args->client);
  return NULL;
}

static PJRT_Error *check_arguments(const fake_program *p, PJRT_Buffer *const *arguments, size_t argument_count) {
  char text[200];
  if (argument_count != (size_t)p->argument_count) {
    snprintf(text, sizeof text, "Execution supplied %zu buffers but compiled program expected %d buffers",
             argument_count, p->argument_count);
    return error_new(PJ_INVALID_ARGUMENT, text);
  }
  PJRT_Error *error = NULL;
  pthread_mutex_lock(&lock);
  *text = 0;
  for (size_t i = 0; i < argument_count && !*text; ++i) {
    const storage *s = arguments[i]->storage;
    if (!s) snprintf(text, sizeof text, "Argument %zu has been deleted or donated.", i);
    else if (s->size != p->arguments[i].size)
      snprintf(text, sizeof text, "Argument %zu has %zu bytes; expected %zu", i, s->size, p->arguments[i].size);
    for (size_t k = 0; k < argument_count && p->arguments[i].donated; ++k)
      if (k != i && arguments[k] == arguments[i])
        snprintf(text, sizeof text, "Argument %zu is donated and given a second time as %zu", i, k);
  }
  pthread_mutex_unlock(&lock);
  if (*text) error = error_new(PJ_INVALID_ARGUMENT, text);
  return error;
}

static PJRT_Error *execute_on(PJRT_LoadedExecutable *executable, PJRT_Device *device, PJRT_Buffer *const *arguments,
                              size_t argument_count, PJRT_Buffer **results) {
  fake_program *p = executable->program;
  PJRT_Error *error = check_arguments(p, arguments, argument_count);
  if (error) return error;
  job *j = calloc(1, sizeof *j);
  j->inputs = calloc(argument_count + 1, sizeof *j->inputs);
  j->outputs = calloc((size_t)p->result_count + 1, sizeof *j->outputs);
  for (; j->output_count < (size_t)p->result_count; ++j->output_count) {
    storage *s = storage_new(p->results[j->output_count].size);
    if (s) {
      j->outputs[j->output_count] = s;
      continue;
    }
    error = out_of_memory(p->results[j->output_count].size);
    for (size_t i = 0; i < j->output_count; ++i) storage_release(j->outputs[i]);
    free(j->inputs);
    free(j->outputs);
    free(j);
    return error;
  }
  pthread_mutex_lock(&lock);
  ++counts.executions;
  ++p->refs;
  for (size_t i = 0; i < argument_count; ++i) {
    j->inputs[i] = arguments[i]->storage;
    if (p->arguments[i].donated) arguments[i]->storage = NULL;
    else ++j->inputs[i]->refs;
  }
  for (size_t i = 0; i < j->output_count; ++i) ++j->outputs[i]->refs;
  pthread_mutex_unlock(&lock);
  j->input_count = argument_count;
  j->program = p;
  j->delay_ms = p->run_ms;
  for (size_t i = 0; i < j->output_count; ++i)
    results[i] = buffer_new(j->outputs[i], p->results[i].dtype, (size_t)p->results[i].rank, p->results[i].dims, device);
  job_start(j);
  return NULL;
}

FUNCTION(LoadedExecutable_Execute) {
  ENTER(LoadedExecutable_Execute);
  if (args->options->struct_size != PJRT_ExecuteOptions_STRUCT_SIZE)
    return error_new(PJ_INVALID_ARGUMENT, "Unexpected PJRT_ExecuteOptions size");
  PJRT_LoadedExecutable *executable = args->executable;
  const fake_program *p = executable->program;
  if (args->execute_device ? args->num_devices != 1 : p->portable || args->num_devices != (size_t)p->partitions) {
    // XLA ends the process here.
    fprintf(stderr, "fake plugin: %zu devices for %d partitions\n", args->num_devices, p->partitions);
    abort();
  }
  for (size_t d = 0; d < args->num_devices; ++d) {
    PJRT_Device *device = args->execute_device ? args->execute_device : executable->client->addressable[d];
    PJRT_Error *error =
        execute_on(executable, device, args->argument_lists[d], args->num_args, args->output_lists[d]);
    if (error) return error;
  }
  return NULL;
}

// ---- ahead of time --------------------------------------------------------------------------------------------------

// Name "fake:N": N devices.
FUNCTION(TopologyDescription_Create) {
  ENTER(TopologyDescription_Create);
  char name[32] = "", more;
  int devices = 0;
  snprintf(name, sizeof name, "%.*s", (int)args->topology_name_size, args->topology_name);
  if (sscanf(name, "fake:%d%c", &devices, &more) != 1 || devices < 1 || devices > MAX_DEVICES)
    return error_new(PJ_INVALID_ARGUMENT, "a fake topology is named fake:N");
  PJRT_TopologyDescription *topology = calloc(1, sizeof *topology);
  topology->device_count = devices;
  for (int i = 0; i < devices; ++i) {
    topology->devices[i].id = i;
    topology->descriptions[i] = &topology->devices[i];
  }
  count(&counts.topologies, 1);
  args->topology = topology;
  return NULL;
}

FUNCTION(TopologyDescription_Destroy) {
  ENTER(TopologyDescription_Destroy);
  count(&counts.topologies, -1);
  free(args->topology);
  return NULL;
}

FUNCTION(TopologyDescription_GetDeviceDescriptions) {
  ENTER(TopologyDescription_GetDeviceDescriptions);
  args->descriptions = args->topology->descriptions;
  args->num_descriptions = (size_t)args->topology->device_count;
  return NULL;
}

FUNCTION(Compile) {
  ENTER(Compile);
  fake_program *p;
  PJRT_Error *error = program_new(args->program, args->compile_options, args->compile_options_size, &p);
  if (!error) args->executable = executable_new(p);
  return error;
}

// ---- the table ------------------------------------------------------------------------------------------------------

#define HERE(name) .PJRT_##name = name,
#define NOT_HERE(name)
static PJRT_Api table = {.struct_size = sizeof table,
                         .pjrt_api_version = {.struct_size = PJRT_Api_Version_STRUCT_SIZE, .minor_version = 114},
                         PJRT_API_SLOTS(HERE, HERE, HERE, NOT_HERE)};

static void set_absent(const char *list) {
#define SLOT(name) {"PJRT_" #name, offsetof(PJRT_Api, PJRT_##name)},
  static const struct { const char *name; size_t offset; } slots[] = {PJRT_API_SLOTS(SLOT, SLOT, SLOT, NOT_HERE)};
  for (size_t i = 0; i < sizeof slots / sizeof slots[0]; ++i) {
    const char *found = strstr(list, slots[i].name);
    if (found && strchr(",", found[strlen(slots[i].name)])) memset((char *)&table + slots[i].offset, 0, sizeof(void *));
  }
}

static void read_environment(void) {
  const char *text;
  char slot[80] = "", message[160] = "";
  int number = 0;
  if ((text = getenv("FAKE_PLUGIN_MINOR"))) table.pjrt_api_version.minor_version = atoi(text);
  if ((text = getenv("FAKE_PLUGIN_TABLE_SIZE"))) table.struct_size = (size_t)atoi(text);
  if ((text = getenv("FAKE_PLUGIN_ABSENT"))) set_absent(text);
  if ((text = getenv("FAKE_PLUGIN_PLATFORM"))) snprintf(platform, sizeof platform, "%s", text);
  if ((text = getenv("FAKE_PLUGIN_DEVICES"))) default_devices = atoi(text);
  if ((text = getenv("FAKE_PLUGIN_MEMORY"))) memory_limit = atoll(text);
  if ((text = getenv("FAKE_PLUGIN_ASYNC"))) asynchronous = atoi(text) != 0;
  if ((text = getenv("FAKE_PLUGIN_FAIL")) && sscanf(text, "%79[^:]:%d:%159[^\n]", slot, &number, message) == 3)
    control_fail(slot, number, message, -1);
  if ((text = getenv("FAKE_PLUGIN_DELAY")) && sscanf(text, "%79[^:]:%d", slot, &number) == 2)
    control_delay(slot, number);
}

PJ_EXPORT const PJRT_Api *GetPjrtApi(void);
const PJRT_Api *GetPjrtApi(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_environment);
  return &table;
}
