// Running ops: devices with their queue, storages, values.
//
// A storage holds one immutable value at a time; a write puts a new value into it. A value is a dense array: computed,
// or the output of an op that is still queued, or failed (then every reader gets the same error).
//
// Calls append to the device's queue; a cut compiles (or finds) the program of the queued region and runs it. Strict
// eager is the queue of length 1.
//
// Threads: every function may be called from any thread. No lock of the core is held while a hook runs.
#ifndef PJ_RUN_H_
#define PJ_RUN_H_

#include "pj/call.h"
#include "pj/pjrt.h"
#include "pj/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

// pj_runtime (pj/trace.h): a client, its devices, the compiler.
typedef struct pj_device pj_device;
typedef struct pj_storage pj_storage;
typedef struct pj_plan pj_plan;        // what was learnt of one call key: result types and how to run it

// ---- runtime --------------------------------------------------------------------------------------------------------

// What the embedding program (PyTorch's bridge) lends to the core. All may be NULL.
typedef struct pj_hooks {
  // Round every wait that may be long (compile, transfer, another thread's run): the bridge releases the GIL if it is held.
  void *(*block_begin)(void);
  void (*block_end)(void *token);
  // Polled while a compile or wait goes on, between block_begin and block_end: true ends it with PJ_CANCELLED (Ctrl-C).
  bool (*interrupted)(void);
  // "file.py:12" of the user's code that is calling, for pj_runtime_explain and spans; asked only when something
  // compiles or spans are collected.
  void (*source_line)(char *out_text, size_t size);
  // Something of a kind that pj_trace_tell has asked for happened; on any thread.
  void (*told)(const pj_span *span);
  // Whether equal calls must give equal bits, so that adaptive eager may not begin to fuse what it ran op by op before.
  bool (*repeats)(void);
} pj_hooks;

// How ops run that follow each other.
typedef enum pj_eager {
  PJ_EAGER_STRICT,    // each at its call
  PJ_EAGER_FUSED,     // several as one program, which is compiled when they are met for the first time
  PJ_EAGER_ADAPTIVE,  // the same, but they run one by one at first; when they come again soon (or for the fourth time; later if
                      // they come in many shapes), their program is compiled in the background, and it takes over the
                      // next time (always then, so that equal runs give equal numbers)
  PJ_EAGER_BLOCKING,  // each at its call, which returns when it is computed and tells what failed
} pj_eager;

typedef struct pj_runtime_options {
  const char *plugin_path;
  const pj_option *client_options;
  size_t client_option_count;
  const char *cache_directory;   // NULL or "": no disk cache
  const char *shared_cache_directory;  // a second one that is only read; NULL or "": none
  uint64_t cache_limit_bytes;    // 0: the default
  const char *worker_path;       // NULL or "": compile in this process; see pj_default_worker_path
  int worker_count;              // 0: the default
  int compile_timeout_ms;        // 0: the default
  uint64_t worker_memory_bytes;  // 0: none
  pj_eager eager;
  int queue_length;              // ops per region at most, in fused and adaptive eager
  pj_hooks hooks;
} pj_runtime_options;

// The path, with its final NUL, of the compile worker that belongs to this library: the program pj-worker beside the
// library's file, or in the folder pj there. For worker_path. NOT_FOUND: says where it was looked for; INVALID_ARGUMENT:
// `size` bytes are too few (4,096 are enough: PATH_MAX).
PJ_EXPORT pj_status pj_default_worker_path(char *out_path, size_t size);

// Errors: those of pj_plugin_load and of the plugin's client; NOT_FOUND: no program at worker_path.
PJ_EXPORT pj_status pj_runtime_create(const pj_runtime_options *options, pj_runtime **out_runtime);
// All storages and values of the runtime must be gone. NULL is allowed. (A Python process leaks its runtime at exit.)
// In a child after fork it does nothing.
PJ_EXPORT void pj_runtime_destroy(pj_runtime *runtime);
PJ_EXPORT int pj_runtime_device_count(const pj_runtime *runtime);
PJ_EXPORT pj_device *pj_runtime_device(pj_runtime *runtime, int index);
PJ_EXPORT pj_client *pj_runtime_client(pj_runtime *runtime);
// Why programs are compiled in this process although there is a worker_path; NULL when that is not so.
PJ_EXPORT const char *pj_runtime_own_process_reason(pj_runtime *runtime);
// Runs what is queued, then takes the mode; `queue_length` counts in fused and adaptive eager.
PJ_EXPORT void pj_runtime_set_eager(pj_runtime *runtime, pj_eager eager, int queue_length);
PJ_EXPORT pj_eager pj_runtime_eager(const pj_runtime *runtime);
// Waits until nothing compiles in the background.
PJ_EXPORT void pj_runtime_wait_for_compiles(pj_runtime *runtime);
// Before the process ends: no compile is in the background any more when this returns, and none will be.
PJ_EXPORT void pj_runtime_stop_compiles(pj_runtime *runtime);
PJ_EXPORT int pj_runtime_queue_length(const pj_runtime *runtime);  // 1 in strict and blocking eager
// Of float32 products and convolutions compiled from now on: 0 default, 1 high, 2 highest (torch.set_float32_matmul_precision).
PJ_EXPORT void pj_runtime_set_matmul_precision(pj_runtime *runtime, int precision);
// In a child after fork: nothing of the parent's may be touched any more; every later call fails with FAILED_PRECONDITION.
PJ_EXPORT void pj_runtime_after_fork(pj_runtime *runtime);

typedef struct pj_counters {
  uint64_t compiles, compile_us, worker_failures, cache_loads, executions, host_reads, bytes_to_device, bytes_to_host,
      donations, fallback_calls, decompositions, queue_cuts;
} pj_counters;
PJ_EXPORT void pj_runtime_counters(const pj_runtime *runtime, pj_counters *out_counters);
PJ_EXPORT void pj_runtime_reset_counters(pj_runtime *runtime);
PJ_EXPORT void pj_runtime_count_fallback(pj_runtime *runtime);
PJ_EXPORT void pj_runtime_count_decomposition(pj_runtime *runtime);

// One compile, in words. Strings are the runtime's and live until it is destroyed.
typedef struct pj_explanation {
  const char *what;      // "aten::add.Tensor(f32[3], f32[3])", or the ops of a region
  const char *line;      // the user's source line, or ""
  // "new op", "new number of tensors", "new dtype", "new shape", "new layout", "new constant", "new aliasing", "new region",
  // "new room" (an array to grow into: core/ops/room.h), "not kept" (it was unloaded, to make room for others)
  const char *reason;
  double compile_ms;
  bool from_disk;
  int64_t temp_bytes;    // memory that the program needs while it runs, beside arguments and results; -1: not told
} pj_explanation;
PJ_EXPORT size_t pj_runtime_explain(const pj_runtime *runtime, pj_explanation *out_items, size_t capacity);  // returns how many there are

// ---- ops ------------------------------------------------------------------------------------------------------------

// The op of an overload name ("aten::add.Tensor"), made on first use; lives as long as the runtime.
PJ_EXPORT const pj_op *pj_runtime_op(pj_runtime *runtime, const char *overload);
PJ_EXPORT const char *pj_op_name(const pj_op *op);
PJ_EXPORT bool pj_op_has_lowering(const pj_op *op);
PJ_EXPORT uint32_t pj_op_flags(const pj_op *op);       // PJ_OP_RANDOM 1, PJ_OP_WRITES 2, PJ_OP_DYNAMIC 4
PJ_EXPORT uint32_t pj_op_statics(const pj_op *op);     // bit i: argument i's number is part of the key (ops without a lowering: all)
// Bit i: argument i's number is part of the key only where it is special, else a run-time input.
PJ_EXPORT uint32_t pj_op_specials(const pj_op *op);
// Integer lists that are written as PJ_ARG_NUMBERS. After all arguments follow, for each of them, its largest number
// (0 for none) and whether any is negative.
PJ_EXPORT uint32_t pj_op_lengths(const pj_op *op);
// 0, 1, -1, 2, -2, 3, 0.5 and -0.5: powers and factors for which a program can do with less.
PJ_EXPORT bool pj_number_is_special(double number);
PJ_EXPORT uint32_t pj_op_shape_only(const pj_op *op);  // bit i: only the shape of tensor argument i matters
PJ_EXPORT uint32_t pj_op_dtype_only(const pj_op *op);  // bit i: and of its shape nothing; it is to be written as 0-d

// ---- storages and values --------------------------------------------------------------------------------------------

// A storage of `nbytes` that nobody has written: reading it gives zeros.
PJ_EXPORT pj_storage *pj_storage_create(pj_device *device, size_t nbytes);
// A storage that holds `value`; takes over the caller's reference.
PJ_EXPORT pj_storage *pj_storage_create_with(pj_device *device, pj_value *value);
// Gives the storage up. Never blocks and takes no lock, so a tensor's destructor may call it anywhere.
PJ_EXPORT void pj_storage_release(pj_storage *storage);
PJ_EXPORT pj_device *pj_storage_device(const pj_storage *storage);
PJ_EXPORT size_t pj_storage_nbytes(const pj_storage *storage);
// The address that stands for the storage: unique for the life of the process, 512-aligned, from 2^48 up (never
// readable); 0 for a storage of no bytes.
PJ_EXPORT uint64_t pj_storage_token(const pj_storage *storage);
// The storage that an address points into, and how far in; NULL when it is none of ours.
PJ_EXPORT pj_storage *pj_storage_find(pj_runtime *runtime, uint64_t address, size_t *out_offset);
// Changes the size: kept bytes stay, new ones read as zeros; 0 drops the value (queued readers keep theirs).
PJ_EXPORT pj_status pj_storage_resize(pj_storage *storage, size_t nbytes);

// The current value, retained; NULL when the storage was never written.
PJ_EXPORT pj_value *pj_storage_value(pj_storage *storage);
// Makes `value` (retained by the call) the storage's value: it must have the storage's bytes.
PJ_EXPORT void pj_storage_set(pj_storage *storage, pj_value *value);

PJ_EXPORT void pj_value_retain(pj_value *value);
PJ_EXPORT void pj_value_release(pj_value *value);
PJ_EXPORT pj_dtype pj_value_dtype(const pj_value *value);
PJ_EXPORT int pj_value_rank(const pj_value *value);
PJ_EXPORT const int64_t *pj_value_dims(const pj_value *value);
PJ_EXPORT size_t pj_value_bytes(const pj_value *value);

// ---- calls ----------------------------------------------------------------------------------------------------------

// Appends a tensor argument: dtype, sizes, strides and offset are PyTorch's (offset and strides in elements); flags
// PJ_TENSOR_CONJ, PJ_TENSOR_NEG. Retains the storage's value.
PJ_EXPORT void pj_call_tensor(pj_call *call, pj_storage *storage, pj_dtype dtype, int rank, const int64_t *sizes,
                              const int64_t *strides, int64_t offset, unsigned flags);
// Appends a tensor of which only dtype and sizes matter.
PJ_EXPORT void pj_call_shape(pj_call *call, pj_dtype dtype, int rank, const int64_t *sizes);

// Finds the plan of call->op and call->words and queues the op; call->results then own its results, one a result of
// the plan. Gives *out_plan == NULL when the key is new: make the plan, then submit again. All that happens then is that
// the starts of views may have become run-time numbers of the call (PJ_TENSOR_MOVES), when a few calls before differed
// from this one only there.
// Errors: an operand whose computation failed (its own error), the compiler's, RESOURCE_EXHAUSTED.
PJ_EXPORT pj_status pj_submit(pj_device *device, pj_call *call, const pj_plan **out_plan);
// Compiles the starts of the call's views in again: for pj_builder_create, whose nodes say them.
PJ_EXPORT void pj_call_fix_starts(pj_call *call);
// After calls with `hold`: the op is complete, and the queue may run. Clear the call first: results that it still holds
// must be computed, even if nobody else wants them.
PJ_EXPORT pj_status pj_device_end_op(pj_device *device);

// A result as PyTorch's meta kernel says it: sizes, strides (elements), dtype.
typedef struct pj_tensor_spec {
  pj_dtype dtype;
  int rank;
  int64_t sizes[PJ_MAX_RANK];
  int64_t strides[PJ_MAX_RANK];
} pj_tensor_spec;

// Makes the plan of the call from its lowering. The op is lowered once here, so its preconditions are told at the call.
// UNIMPLEMENTED: the op has no lowering.
PJ_EXPORT pj_status pj_plan_create(pj_device *device, const pj_call *call, const pj_tensor_spec *results, size_t count);
PJ_EXPORT size_t pj_plan_result_count(const pj_plan *plan);
// Sizes and strides of result i as they are in memory (dense). With call->writes_base the first result is the new base.
PJ_EXPORT const pj_tensor_spec *pj_plan_result(const pj_plan *plan, size_t i);

// Ops whose result sizes depend on data (PJ_OP_DYNAMIC): runs the op's count program, reads the counts, and turns the
// call into that of the sized op (call->op and words change). Then go on as with any other op; pj_plan_create takes
// no result types for it (NULL, 0): the table has a shape rule.
PJ_EXPORT pj_status pj_call_resolve(pj_device *device, pj_call *call);

// ---- programs of several ops (decompositions, torch.compile) --------------------------------------------------------

typedef struct pj_builder pj_builder;

// Begins a graph whose inputs are the operands of `call`. Its values are numbered: operand i of the call (tensors and
// run-time numbers together, in the order of the words) is value i, and each node's results follow.
PJ_EXPORT pj_status pj_builder_create(const pj_call *call, pj_builder **out_builder);
PJ_EXPORT void pj_builder_destroy(pj_builder *builder);
// Appends a node. The TENSOR words of `node` (pj_call_graph_tensor) say the base and view of each tensor operand, and
// `operands` its value numbers, in order. Numbers in `node` are constants, unless `operands` says otherwise: it has one entry
// for every operand, PJ_BUILDER_CONSTANT for a number whose value is in node->floats or ints. *out_first: number of result 0.
#define PJ_BUILDER_CONSTANT UINT32_MAX
PJ_EXPORT pj_status pj_builder_append(pj_builder *builder, const pj_call *node, const uint32_t *operands,
                                      uint32_t operand_count, const pj_tensor_spec *results, uint32_t result_count,
                                      uint32_t *out_first);
// The dense array that a value is: what TENSOR words that read it must say as base. False: a number, or no such value.
PJ_EXPORT bool pj_builder_type(const pj_builder *builder, uint32_t value, pj_dtype *out_dtype, int *out_rank,
                               int64_t out_dims[PJ_MAX_RANK]);
// Makes the plan of `call` from the graph; its result i is value outputs[i], which must be a node's. Takes the builder over.
PJ_EXPORT pj_status pj_plan_create_from(pj_device *device, const pj_call *call, pj_builder *builder,
                                        const uint32_t *outputs, uint32_t output_count);

// Appends a tensor argument of a graph node: base array type and PyTorch's view of it.
PJ_EXPORT void pj_call_graph_tensor(pj_call *call, pj_dtype base_dtype, int base_rank, const int64_t *base_dims, pj_dtype dtype,
                                    int rank, const int64_t *sizes, const int64_t *strides, int64_t offset, unsigned flags);

// ---- writing and reading --------------------------------------------------------------------------------------------

// Writes `source` (a value whose dims are the view's sizes in memory order of `source_strides`) through the view of the
// storage: replaces the whole value where the view covers it, else queues a write. Of elements of the view that share
// their memory the last one stays. Follow with pj_device_end_op.
PJ_EXPORT pj_status pj_storage_write(pj_storage *storage, pj_value *source, const int64_t *source_strides, pj_dtype dtype,
                                     int rank, const int64_t *sizes, const int64_t *strides, int64_t offset, unsigned flags);

// Gives the storage's value an array that has no room to grow, so that its bytes lie in one piece.
PJ_EXPORT pj_status pj_storage_compact(pj_storage *storage);

// Brings the storage's value to a type in which writes through this view cost what they write (once; see view/view.h).
PJ_EXPORT pj_status pj_storage_rebase(pj_storage *storage, pj_dtype dtype, int rank, const int64_t *sizes,
                                      const int64_t *strides, int64_t offset);

// Host bytes, dense and in memory order (`dims`), to a new value. The bytes may change when the call returns.
PJ_EXPORT pj_status pj_value_from_host(pj_device *device, const void *data, pj_dtype dtype, int rank, const int64_t *dims,
                                       pj_value **out_value);
// The value's bytes, in its own order, to `data` of pj_value_bytes; runs the queue if needed, waits.
PJ_EXPORT pj_status pj_value_to_host(pj_device *device, pj_value *value, void *data);
// Where the value's bytes are in this process's memory, row-major over its dims, for reading only: address and bytes
// stay as they are while the caller holds the value. Waits. UNIMPLEMENTED where the device has a memory of its own, and
// for a value in several pieces (pj_storage_compact).
PJ_EXPORT pj_status pj_value_host_pointer(pj_device *device, pj_value *value, const void **out_pointer);
PJ_EXPORT pj_status pj_value_to_device(pj_device *from, pj_value *value, pj_device *to, pj_value **out_value);

// ---- device ---------------------------------------------------------------------------------------------------------

PJ_EXPORT int pj_device_index(const pj_device *device);
PJ_EXPORT pj_runtime *pj_device_runtime(const pj_device *device);
// Runs what is queued; with `wait` also waits for it and tells deferred errors (indices out of range, failed programs).
PJ_EXPORT pj_status pj_device_synchronize(pj_device *device, bool wait);
// A point in the device's ordered work: its number; whether all before it is done (runs the queue if the point is in it).
PJ_EXPORT uint64_t pj_device_record(pj_device *device);
PJ_EXPORT bool pj_device_reached(pj_device *device, uint64_t point);
PJ_EXPORT pj_status pj_device_wait(pj_device *device, uint64_t point);

// Of live values: now, at most since the last reset of the peak, and taken and given back since the last reset of the
// sums.
typedef struct pj_memory_count { uint64_t current, peak, allocated, freed; } pj_memory_count;
typedef struct pj_device_memory {
  pj_memory_count bytes, values;
  uint64_t refusals;  // RESOURCE_EXHAUSTED was told because of the limit
  uint64_t limit;     // of pj_device_set_memory_limit; 0: none
  uint64_t total;     // bytes that the device has; where the plugin does not tell (XLA:CPU): those of the host
} pj_device_memory;
PJ_EXPORT void pj_device_memory_info(pj_device *device, pj_device_memory *out_memory);
PJ_EXPORT void pj_device_reset_peak_memory(pj_device *device);
PJ_EXPORT void pj_device_reset_memory_sums(pj_device *device);  // allocated, freed and refusals begin again at 0
// The live values that are in memory, oldest last: fills at most `capacity` of them, returns how many there are.
typedef struct pj_live_value { pj_dtype dtype; int rank; int64_t dims[PJ_MAX_RANK]; uint64_t bytes; } pj_live_value;
PJ_EXPORT size_t pj_device_live_values(pj_device *device, pj_live_value *out_values, size_t capacity);
// RESOURCE_EXHAUSTED is told, with the five largest live tensors, when live bytes would exceed this. 0: no limit.
PJ_EXPORT void pj_device_set_memory_limit(pj_device *device, uint64_t bytes);

// Index checks: what an out-of-range index in a program does.
typedef enum pj_index_mode { PJ_INDEX_DEFERRED = 0, PJ_INDEX_STRICT = 1, PJ_INDEX_OFF = 2 } pj_index_mode;
PJ_EXPORT void pj_runtime_set_index_mode(pj_runtime *runtime, pj_index_mode mode);

#ifdef __cplusplus
}
#endif
#endif
