// A thin, faithful C interface to a PJRT plugin: what the rest of the core needs of the PJRT C API, with statuses
// instead of PJRT_Error and with every absent slot told as PJ_UNIMPLEMENTED. Objects are the plugin's own, so a
// buffer costs no allocation of ours. All functions may be called from any thread.
#ifndef PJ_PJRT_H_
#define PJ_PJRT_H_

#include "pj/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pj_plugin pj_plugin;            // a loaded plugin; never unloaded, lives until the process ends
typedef struct pj_client pj_client;            // owns devices
typedef struct PJRT_Buffer pj_buffer;          // a dense array on one device
typedef struct PJRT_Event pj_event;
typedef struct pj_executable pj_executable;    // loaded, ready to run
typedef struct pj_topology pj_topology;        // devices that need not exist, for ahead-of-time compiles

// ---- plugin ---------------------------------------------------------------------------------------------------------

// Loads the plugin file at `path` (once per process and path: a second call gives the same plugin).
// Errors, each with the path and what to do: INVALID_ARGUMENT (NULL or ""), NOT_FOUND (no such file),
// FAILED_PRECONDITION (not a shared library, no GetPjrtApi, an API too old for the calls that we cannot do without). The plugin's log is set to fatal errors only
// (TF_CPP_MIN_LOG_LEVEL, where unset), unless the environment says PJ_PLUGIN_LOG=1.
PJ_EXPORT pj_status pj_plugin_load(const char *path, pj_plugin **out_plugin);

PJ_EXPORT const char *pj_plugin_path(const pj_plugin *plugin);
PJ_EXPORT void pj_plugin_api_version(const pj_plugin *plugin, int *out_major, int *out_minor);

// One plugin attribute as text ("xla_version", "stablehlo_current_version" as "1.12.0"), or NULL. Owned by the plugin.
PJ_EXPORT const char *pj_plugin_attribute(const pj_plugin *plugin, const char *name);

// Whether the plugin's table has the slot at all: struct_size reaches it and it is not NULL. `slot` is the field's
// name in PJRT_Api, e.g. "PJRT_Buffer_CopyRawToHost". Unknown names are false.
PJ_EXPORT bool pj_plugin_has(const pj_plugin *plugin, const char *slot);

// SHA-256 of the plugin file's bytes (32 bytes), computed on first use and remembered.
PJ_EXPORT pj_status pj_plugin_digest(pj_plugin *plugin, uint8_t out_digest[32]);

// A published plugin package, for finding its file.
typedef struct pj_known_plugin {
  const char *name;      // for people and configuration: "lammps-cpu"
  const char *package;   // the distribution's name on PyPI
  const char *file;      // where its wheel puts the plugin, below site-packages
  const char *platform;  // what pj_client_platform says: "cpu", "tpu", "cuda", ...
} pj_known_plugin;

// The table, in the order of preference within a platform. Static.
PJ_EXPORT const pj_known_plugin *pj_known_plugins(size_t *out_count);

// ---- client and devices ---------------------------------------------------------------------------------------------

typedef enum pj_option_kind {
  PJ_OPTION_STRING,
  PJ_OPTION_INT,
  PJ_OPTION_INTS,
  PJ_OPTION_FLOAT,
  PJ_OPTION_BOOL,
} pj_option_kind;

// One named client or topology option; the caller keeps all memory it points to.
typedef struct pj_option {
  const char *name;
  pj_option_kind kind;
  const char *text;       // PJ_OPTION_STRING
  int64_t integer;        // PJ_OPTION_INT, PJ_OPTION_BOOL
  const int64_t *ints;    // PJ_OPTION_INTS
  size_t count;           // PJ_OPTION_INTS
  float number;           // PJ_OPTION_FLOAT
} pj_option;

// What the plugin writes to stderr meanwhile is dropped, and with it what any other thread writes there, unless the
// environment says PJ_PLUGIN_LOG=1.
PJ_EXPORT pj_status pj_client_create(pj_plugin *plugin, const pj_option *options, size_t count, pj_client **out_client);

// All buffers and executables of the client must be gone. NULL is allowed.
PJ_EXPORT void pj_client_destroy(pj_client *client);

PJ_EXPORT pj_plugin *pj_client_plugin(const pj_client *client);
PJ_EXPORT const char *pj_client_platform(const pj_client *client);          // "cpu", "tpu", ...
PJ_EXPORT const char *pj_client_platform_version(const pj_client *client);
PJ_EXPORT int pj_client_device_count(const pj_client *client);              // addressable devices
PJ_EXPORT int64_t pj_client_device_id(const pj_client *client, int device); // global id
PJ_EXPORT const char *pj_client_device_kind(const pj_client *client, int device);

// What the device says of its memory, in bytes; -1 where the plugin does not tell. UNIMPLEMENTED on XLA:CPU.
typedef struct pj_memory_stats { int64_t in_use, peak, limit, reserved; } pj_memory_stats;
PJ_EXPORT pj_status pj_client_memory_stats(const pj_client *client, int device, pj_memory_stats *out_stats);

// ---- buffers --------------------------------------------------------------------------------------------------------

typedef enum pj_host_semantics {
  PJ_HOST_COPY = 0,    // the plugin copies before the call returns
  PJ_HOST_UNTIL_DONE,  // `data` stays unchanged until `*out_done` fires
  PJ_HOST_FROZEN,      // `data` stays unchanged as long as the buffer lives (may be aliased)
} pj_host_semantics;

// Dense row-major host bytes -> buffer on `device` (an index below pj_client_device_count). `out_done` may be NULL with
// PJ_HOST_COPY. The caller owns the buffer and the event. PRED bytes must be 0 or 1.
PJ_EXPORT pj_status pj_buffer_from_host(pj_client *client, int device, const void *data, pj_dtype dtype, int rank,
                                        const int64_t *dims, pj_host_semantics semantics, pj_event **out_done,
                                        pj_buffer **out_buffer);

// Dense row-major bytes of `buffer` into `data` of `size` bytes; waits. Small ready buffers of a CPU plugin are read in
// place, without a transfer.
PJ_EXPORT pj_status pj_buffer_to_host(pj_client *client, pj_buffer *buffer, void *data, size_t size);

// The same of a buffer that is known to be computed, neither failed nor donated, and to have `size` bytes: what is read in
// place is read without asking the plugin for its state.
PJ_EXPORT pj_status pj_buffer_to_host_ready(pj_client *client, pj_buffer *buffer, void *data, size_t size);

// The same without waiting: `data` is filled when `*out_done` fires.
PJ_EXPORT pj_status pj_buffer_to_host_async(pj_client *client, pj_buffer *buffer, void *data, size_t size,
                                            pj_event **out_done);

// Waits until the buffer is computed; the error of the computation, if it failed.
PJ_EXPORT pj_status pj_buffer_wait(pj_client *client, pj_buffer *buffer);
// The same, but asks `cancelled` ten times a second: true ends the wait with CANCELLED, and the computation goes on.
PJ_EXPORT pj_status pj_buffer_wait_unless(pj_client *client, pj_buffer *buffer, bool (*cancelled)(void));
// An event of its own, which the caller owns and which may outlive the buffer.
PJ_EXPORT pj_status pj_buffer_ready_event(pj_client *client, pj_buffer *buffer, pj_event **out_event);
PJ_EXPORT bool pj_buffer_is_ready(pj_client *client, pj_buffer *buffer);

PJ_EXPORT pj_status pj_buffer_copy_to_device(pj_client *client, pj_buffer *buffer, int device, pj_buffer **out_buffer);

// Address of the bytes on the device, for zero-copy export on a CPU plugin; the buffer must be ready.
PJ_EXPORT pj_status pj_buffer_pointer(pj_client *client, pj_buffer *buffer, uintptr_t *out_pointer);

PJ_EXPORT pj_status pj_buffer_type(pj_client *client, pj_buffer *buffer, pj_dtype *out_dtype, int *out_rank,
                                   int64_t out_dims[PJ_MAX_RANK]);
PJ_EXPORT void pj_buffer_destroy(pj_client *client, pj_buffer *buffer);  // NULL is allowed

PJ_EXPORT pj_status pj_event_wait(pj_client *client, pj_event *event);
PJ_EXPORT pj_status pj_event_wait_unless(pj_client *client, pj_event *event, bool (*cancelled)(void));
PJ_EXPORT bool pj_event_is_ready(pj_client *client, pj_event *event);
// Calls `callback(status, argument)` once, on a thread of the plugin or at once; the callback owns the status and must
// not block or call into Python.
PJ_EXPORT pj_status pj_event_on_ready(pj_client *client, pj_event *event, void (*callback)(pj_status, void *),
                                      void *argument);
PJ_EXPORT void pj_event_destroy(pj_client *client, pj_event *event);     // NULL is allowed

// ---- programs -------------------------------------------------------------------------------------------------------

// What the compile options say; encoded by us as CompileOptionsProto (xla/pjrt/proto/compile_options.proto).
typedef struct pj_compile_options {
  int optimization_level;      // EffortLevel: 0 = unset, 9 = O0, 19 = O1, 29 = O2, 39 = O3
  bool portable;               // one device, chosen at execution
  int64_t num_partitions;      // SPMD over this many devices; 0 or 1 = one device
  const int64_t *device_ids;   // num_partitions global ids, or NULL
  const char *const *flags;    // XLA flag overrides, "name=value" each; values true/false, integers, else text
  size_t flag_count;
} pj_compile_options;

// Serialized CompileOptionsProto in malloc'ed memory that the caller frees.
PJ_EXPORT pj_status pj_compile_options_encode(const pj_compile_options *options, uint8_t **out_bytes, size_t *out_size);

// Compiles StableHLO text or bytecode and loads it. `options` are encoded bytes. Blocks as long as the compiler takes.
PJ_EXPORT pj_status pj_compile(pj_client *client, const char *code, size_t code_size, const uint8_t *options,
                               size_t options_size, pj_executable **out_executable);

PJ_EXPORT pj_status pj_executable_serialize(pj_executable *executable, uint8_t **out_bytes, size_t *out_size);
// `options` of size 0: those that the program was compiled with.
PJ_EXPORT pj_status pj_executable_load(pj_client *client, const uint8_t *bytes, size_t size, const uint8_t *options,
                                       size_t options_size, pj_executable **out_executable);

PJ_EXPORT int pj_executable_output_count(const pj_executable *executable);

// Element type and dimensions of one output, on one device. UNIMPLEMENTED where the plugin does not tell.
PJ_EXPORT pj_status pj_executable_output_type(const pj_executable *executable, int output, pj_dtype *out_dtype,
                                              int *out_rank, int64_t out_dims[PJ_MAX_RANK]);

// Sizes in bytes from the compiler; fields that the plugin's struct does not reach are -1.
typedef struct pj_compiled_memory { int64_t argument, output, alias, temp, code, peak; } pj_compiled_memory;
PJ_EXPORT pj_status pj_executable_memory(const pj_executable *executable, pj_compiled_memory *out_memory);

// flops and bytes accessed by the compiler's own estimate; -1 where absent.
typedef struct pj_compiled_cost { double flops, bytes_accessed, optimal_seconds; } pj_compiled_cost;
PJ_EXPORT pj_status pj_executable_cost(const pj_executable *executable, pj_compiled_cost *out_cost);

// Runs on one device; a program that is not portable only on the one that it was compiled for. `arguments` are
// borrowed, except those that the program donates (they are deleted on the device; the handle must still be destroyed).
// `out_results` has room for pj_executable_output_count buffers, which the caller then owns; NULLs after an error.
// Returns when the work is queued; a failure of the computation is told by the results' events. The number of arguments
// and their byte sizes must be those of the program: the core checks, the plugin may not.
PJ_EXPORT pj_status pj_execute(pj_executable *executable, int device, pj_buffer *const *arguments, size_t count,
                               pj_buffer **out_results);

// Runs a program of several partitions on all its devices in one launch: `arguments[d]` holds `count` buffers on the
// d-th of the device ids that it was compiled for, `out_results[d]` has room for its outputs. `device_count` must be
// the number of those devices. Collectives meet only within one launch: pj_execute, device after device from one
// thread, may wait for ever.
PJ_EXPORT pj_status pj_execute_spmd(pj_executable *executable, int device_count, pj_buffer *const *const *arguments,
                                    size_t count, pj_buffer **const *out_results);
PJ_EXPORT void pj_executable_destroy(pj_executable *executable);  // NULL is allowed

// ---- ahead of time --------------------------------------------------------------------------------------------------

PJ_EXPORT pj_status pj_topology_create(pj_plugin *plugin, const char *name, const pj_option *options, size_t count,
                                       pj_topology **out_topology);
PJ_EXPORT int pj_topology_device_count(const pj_topology *topology);
PJ_EXPORT void pj_topology_destroy(pj_topology *topology);

// Compiles for devices that need not exist. The result cannot run here: only its memory, cost and bytes can be asked.
PJ_EXPORT pj_status pj_topology_compile(pj_topology *topology, const char *code, size_t code_size,
                                        const uint8_t *options, size_t options_size, pj_executable **out_executable);

#ifdef __cplusplus
}
#endif
#endif
