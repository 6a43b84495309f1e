// The structures of run/, shared by its files and by nobody else.
#ifndef PJ_RUN_INTERNAL_H_
#define PJ_RUN_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "ir/graph.h"
#include "ops/dynamic.h"
#include "ops/lowering.h"
#include "ops/program.h"
#include "ops/room.h"
#include "pj/run.h"
#include "run/compiler.h"
#include "run/trace.h"

struct pj_op {
  pj_runtime *runtime;
  char *name;
  const pj_lowering_entry *entry;   // NULL: no lowering
  const pj_room_rule *room;         // NULL: it is not computed on arrays with room
  uint32_t id;
  struct pj_plan *newest;           // the plan made last, to say why another one was needed; guarded by the runtime's lock
};

// An immutable dense array. Fields after `bytes` are guarded by the device's lock, except that a buffer once set stays.
struct pj_value {
  atomic_uint refs;
  pj_device *device;
  pj_type *type;                    // in the same allocation; only dims below the rank are set
  pj_type *array;                   // of its buffer: `type`, or another one that has room for it
  int32_t room;                     // the dimension in which it has; -1: in none
  size_t bytes, array_bytes;
  pj_buffer *buffer;                // NULL: queued or failed
  pj_status error;
  uint64_t region;                  // id of the region that the value last appeared in ...
  uint32_t ref;                     // ... and what it is there
  atomic_bool ready;                // known to be computed
  uint64_t point;                   // number of the run that made it
  pj_value *previous, *next;        // the device's live values
  pj_value *next_dead;
};

struct pj_storage {
  atomic_uint refs;
  atomic_flag busy;                 // guards `value`
  pj_device *device;
  pj_value *value;                  // NULL: never written
  size_t nbytes;
  _Atomic uint64_t token;           // 0: no bytes
  pj_storage *previous, *next;      // the runtime's storages
};

// What was learnt of a call key: its nodes, as a graph over the call's operands and numbers.
struct pj_plan {
  uint32_t id;
  const pj_op *op;
  pj_graph graph;
  pj_signature **signatures;        // owned; the graph's nodes point to them
  uint32_t signature_count;
  uint32_t *outputs;                // value numbers of the results
  pj_tensor_spec *results;
  int32_t *rooms;                   // one a result: the dimension of its array that has room, or -1
  uint32_t result_count;
  bool random;                      // its numbers differ each time
  bool checks_indices;              // so it runs even if nobody wants its results
  bool compiled;
  bool refused;                     // its op does not compute on arrays with room as they are here; nothing else is set
  bool grows;                       // aten::cat: its first tensor was met in other lengths, so its result gets room
  const char *reason;               // why the key was new
  char *line;                       // the user's source line that met it first
};

// What is queued: plans in order, how they are wired, and the numbers and values they use.
typedef struct pj_queued {
  const pj_plan *plan;
  uint32_t first_ref;               // into refs: one an operand of the call
  uint32_t first_output;            // into outputs
  uint32_t first_float, first_int;  // into the region's numbers
  pthread_t thread;                 // whose op it is
  const char *line;                 // the user's source line, while spans are collected
} pj_queued;

// Refs within a region: inputs are 2 i, outputs of earlier plans 2 j + 1.
typedef struct pj_region {
  uint64_t id;
  uint64_t *key;
  pj_queued *queued;
  uint32_t *refs;
  pj_value **inputs;                // distinct, retained
  pj_value **outputs;               // one a result of each plan, retained
  double *floats;
  int64_t *ints;
  uint32_t key_count, queued_count, ref_count, input_count, output_count, float_count, int_count;
  uint32_t key_capacity, queued_capacity, ref_capacity, input_capacity, output_capacity, float_capacity, int_capacity;
  uint32_t calls;                   // ops since the last cut
  uint32_t done;                    // ops that have run, where they run one by one
  bool due;                         // complete: the thread of its last op waits to run it
  const char *why;                  // it was cut
  bool random, checks_indices;
  // What to put back when the program cannot be had.
  struct pj_undo { pj_storage *storage; pj_value *old_value, *new_value; bool borrowed; } *undo;
  uint32_t undo_count, undo_capacity;
} pj_region;

// A compiled region.
typedef struct pj_program {
  const char *what;                 // its ops, in words
  pj_executable *executable;        // NULL: it could not be compiled, and its ops run one by one; or it is
  bool unloaded;                    // and is made again when it is wanted
  uint64_t used;                    // device->point when it ran last
  uint32_t *live;                   // outputs of the region that the program gives, in order
  uint32_t live_count;
  bool has_floats, has_ints;
  bool is_long;                     // may still run when the call returns
  uint32_t *donated;                // inputs whose buffers results take over
  uint32_t donated_count;
  char **checks;                    // names of the ops whose indices are checked; the flags are the last result
  uint32_t check_count;
} pj_program;

// A program that is lowered and not compiled yet, and what is told of it afterwards.
typedef struct pj_lowered {
  pj_program *program;              // owned
  pj_program_text text;
  pj_plan *plan;                    // of a region of one op, else NULL
  const char *reason;
  char what[400], line[300];
} pj_lowered;

// What the run of a region looks like from outside: which outputs somebody still holds, and which inputs may be overwritten.
typedef struct pj_outside {
  uint32_t *live;                   // indices of the outputs to compute
  uint32_t live_count;
  int32_t *aliases;                 // one an input: the live output (index into `live`) that takes its buffer, or -1
  uint32_t donated;
  uint64_t bytes;                   // of the live outputs that need new memory
} pj_outside;

// Flags of a run that have not been read yet.
typedef struct pj_check {
  pj_buffer *flags;
  const pj_program *program;
} pj_check;

// A run that may not be finished, though nobody may hold its results any more.
typedef struct pj_run {
  pj_event *end;
  uint64_t point;
} pj_run;

// An op of `thread` failed in a run that another thread started.
typedef struct pj_failure {
  pthread_t thread;
  pj_status status;
} pj_failure;

typedef struct pj_background pj_background;

struct pj_device {
  pj_runtime *runtime;
  int index;
  pthread_mutex_t lock;
  pthread_cond_t idle;              // signalled when `running` ends
  bool running;                     // a region was taken off and is being compiled, without the lock
  pthread_t runner;                 // by this thread, while `running`
  pj_region *region;                // what is queued
  pj_region *spare;                 // an empty one, to be reused
  uint64_t next_region;
  pj_map plans;                     // call key -> pj_plan
  pj_map sightings;                 // hash of a region's key -> pj_sighting, in adaptive eager
  uint64_t seen;                    // regions of several ops so far, in adaptive eager
  pj_map shapes;                    // hash of a region's ops -> uint32_t: shapes they came in, in adaptive eager
  pj_map starts;                    // call key of views that move -> uint32_t: starts met so far
  pj_map growths;                   // call key of aten::cat without its first tensor's length -> the lengths met
  pj_map programs;                  // region key -> pj_program
  pj_map numbers;                   // contents -> pj_buffer of run-time numbers
  pj_value live;                    // head of the list of live values
  _Atomic(pj_value *) dead;         // values nobody holds any more, to be freed under the lock
  pj_memory_count bytes, values;    // of live values that are in memory
  uint64_t refusals, limit;
  uint64_t point;                   // runs so far
  pj_check *checks;
  uint32_t check_count, check_capacity;
  pj_run *runs;                     // in order
  uint32_t run_count, run_capacity;
  pj_status deferred;               // an error to be told at the next synchronization
  pj_failure *failures;             // to be told when their threads end their ops
  uint32_t failure_count, failure_capacity;
  pj_call room_call;                // that run/room.c writes
  uint64_t *scratch;                // for keys
  uint32_t scratch_capacity;
};

typedef struct pj_explained {
  pj_span compile;
  int64_t temp_bytes;
} pj_explained;

struct pj_runtime {
  pj_client *client;
  pj_compiler *compiler;
  pj_hooks hooks;
  pj_trace trace;
  atomic_int eager, queue_length, precision, index_mode;
  pj_background *background;        // compiles meanwhile; guarded by `lock`
  bool stopped;                     // and will not any more
  atomic_bool forked;
  bool dump;                        // PJ_DUMP: every program's StableHLO goes to stderr
  pj_device *devices;
  int device_count;
  uint8_t *compile_options;         // encoded
  size_t compile_options_size;
  pthread_mutex_t lock;             // ops, explanations; never held while anything else is locked or called
  pj_map ops;                       // name -> pj_op
  uint32_t op_count;
  pj_explained *explained;
  size_t explained_count, explained_capacity;
  _Atomic uint32_t loaded;          // programs of all devices that have an executable
  atomic_flag storages_busy;        // guards the list of storages; a leaf
  pj_storage storages;              // head
  _Atomic uint64_t next_token;
  _Atomic uint32_t next_plan;
  struct {
    _Atomic uint64_t compiles, compile_us, worker_failures, cache_loads, executions, host_reads, bytes_to_device,
        bytes_to_host, donations, fallback_calls, decompositions, queue_cuts;
  } counters;
};

// Round a wait: others may have the lock of the language meanwhile.
static inline void *pj_block(pj_runtime *runtime) { return runtime->hooks.block_begin ? runtime->hooks.block_begin() : NULL; }
static inline void pj_unblock(pj_runtime *runtime, void *token) {
  if (runtime->hooks.block_end) runtime->hooks.block_end(token);
}

static inline void pj_count(_Atomic uint64_t *counter, uint64_t n) {
  atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

// Room for `more` items after `count` in *array; aborts when host memory is exhausted (keys and queues cannot be half).
void pj_grow(void *array, uint32_t count, uint32_t more, uint32_t *capacity, size_t item);
static inline void pj_reserve(void *array, uint32_t count, uint32_t more, uint32_t *capacity, size_t item) {
  if (*capacity - count < more) pj_grow(array, count, more, capacity, item);
}

// FAILED_PRECONDITION in a child after fork.
pj_status pj_runtime_check(const pj_runtime *runtime);

// A new queued value with `refs` references. `array` has room for `type` in the dimension `room`, which may be none (yet, or
// any more); -1: it is no other. The lock of `device` is held.
pj_value *pj_value_create(pj_device *device, const pj_type *type, const pj_type *array, int room, unsigned refs);
// A new value of one reference with its buffer, which it takes over; counts the memory. The lock is held.
pj_value *pj_value_create_ready(pj_device *device, const pj_type *type, const pj_type *array, int room, pj_buffer *buffer);
// Retains a value that was found in the list of live values, unless nobody holds it any more. The lock is held.
bool pj_value_retain_live(pj_value *value);
// Gives the value its buffer. The lock is held.
void pj_value_set_buffer(pj_value *value, pj_buffer *buffer);
// Takes its buffer from it. The lock is held.
void pj_value_free_buffer(pj_value *value);
// Frees the values that nobody holds any more. The lock is held.
void pj_device_drain(pj_device *device);
// RESOURCE_EXHAUSTED, with the largest live tensors, when `bytes` more would exceed the limit. The lock is held.
pj_status pj_device_reserve_memory(pj_device *device, uint64_t bytes);

// The result types of a sized call of a dynamic op, by the rule in the table.
pj_status pj_dynamic_results(const pj_call *call, pj_tensor_spec out_specs[PJ_DYNAMIC_RESULTS], size_t *out_count);
void pj_plan_destroy(void *plan);
// The plan of exactly this call, or NULL. The lock is held.
const pj_plan *pj_plan_lookup(pj_device *device, const pj_call *call);
// Makes the plan of a call of one op with these results; NULL: a refused one.
pj_status pj_plan_create_single(pj_device *device, const pj_call *call, const pj_result *results, uint32_t count);
// The plan of the key in `call`, or NULL. The lock is held. A key that was never met may change meanwhile: once a few
// calls differed only in where their views start, the starts become run-time numbers (PJ_TENSOR_MOVES).
const pj_plan *pj_plan_find(pj_device *device, pj_call *call);

// ---- room.c ----

// How the call, whose plan is `plan`, is queued: as that plan says, or, where values with room are in it and its op has a
// rule for them, as another plan on their arrays; the call's numbers are then those that this plan takes. *out_queued stays
// NULL when that plan had to be made: find the call's plan again and ask again. The lock is held, may be given up
// meanwhile, and is held again on return.
pj_status pj_room_plan(pj_device *device, pj_call *call, const pj_plan *plan, const pj_plan **out_queued);
// Whether a new call of an op with such a rule is one of a loop that grows, by the calls before. The lock is held.
bool pj_device_grows(pj_device *device, const pj_op *op, const pj_signature *signature);

// Words of an argument; the elements of a list of tensors or numbers are arguments of their own behind it.
uint32_t pj_argument_words(const uint64_t *at);
// Makes the starts in the call run-time numbers, where they can be. False: there are none.
bool pj_call_release_starts(pj_call *call);
// Whether another start of the views of this key (with starts released) is to be compiled in. The lock is held.
bool pj_device_compiles_start(pj_device *device, const uint64_t *key, uint32_t words);

// ---- region.c: what is queued. The lock is held ----

pj_region *pj_region_create(pj_device *device);  // empty
void pj_region_give_back(pj_device *device, pj_region *region);
void pj_region_destroy(pj_region *region);
void pj_region_put_key(pj_region *region, uint64_t word);
// Appends to the queue. The results are what `plan` says, in the arrays of `queued`: `plan`, or the one of the call with room.
pj_status pj_region_append(pj_device *device, pj_call *call, const pj_plan *plan, const pj_plan *queued, const char *line);
// Appends op q of `from` to the region `one`. `last`, or NULL: of each input and output of `from` (by ref) the op that
// uses it last: its reference then moves to `one`, and NULL is left.
void pj_region_take_op(pj_region *one, pj_region *from, uint32_t q, const uint32_t *last);
// Gives the values that pj_region_take_op moved to `one` back to `from`.
void pj_region_return_op(pj_region *one, pj_region *from, uint32_t q);
// Puts a region that was interrupted back in front of what was queued since: all but the ops that have run. Frees it.
void pj_region_put_back(pj_device *device, pj_region *region);
// The region as one graph. `out_values` (room for the region's outputs) gets the value number of each output.
pj_status pj_region_graph(const pj_region *region, pj_graph *graph, uint32_t *out_values);
void pj_region_text(const pj_region *region, char *out, size_t size);

// ---- program.c ----

// The region has the only reference: nobody will read the value afterwards.
static inline bool held_by_region_only(const pj_value *v) {
  return atomic_load_explicit(&v->refs, memory_order_acquire) == 1;
}

// Fills `out`, whose arrays have room, and appends what it found to the key. The lock is held.
void pj_region_look_outside(pj_region *region, pj_outside *out);
// The region's StableHLO. Asks for the user's source line, so no lock may be held. Ends with pj_lowered_free, unless the
// program is taken out.
pj_status pj_program_lower(pj_runtime *runtime, const pj_region *region, const pj_outside *outside, pj_lowered *out_lowered);
// Gives lowered->program its executable. No lock is held.
pj_status pj_program_compile(pj_runtime *runtime, pj_lowered *lowered, bool (*cancelled)(void *), void *context);
// Explains that the compiler refused the program of a region. No lock is held.
void pj_program_refused(pj_runtime *runtime, const pj_lowered *lowered);
void pj_lowered_free(pj_lowered *lowered);
// Takes the program out of `lowered` and keeps it under the key, unless there is one already. Returns the one that is kept;
// NULL: no host memory. The lock is held.
pj_program *pj_program_keep(pj_device *device, uint64_t hash, const uint64_t *key, uint32_t words, pj_lowered *lowered);
void pj_program_destroy(void *program);

// ---- adaptive.c ----

// The program of a region of several ops in adaptive eager; NULL when it is to run op by op. The lock is held, may be
// given up meanwhile, and is held again on return.
pj_status pj_adaptive_find(pj_device *device, const pj_region *region, const pj_outside *outside, uint64_t hash,
                           pj_program **out_program);
// Of each input and output of the region (by ref) the op that uses it last; freed by the caller. NULL: no host memory.
uint32_t *pj_region_last_uses(const pj_region *region);
// Runs the ops of a region one after the other. The lock is held, may be given up meanwhile, and is held again on return.
pj_status pj_run_each(pj_device *device, pj_region *region, const uint32_t *last);

// ---- queue.c ----

// Finds or makes the program of the region and runs it; its outputs fail when that cannot be. The lock is held, may be
// given up meanwhile, and is held again on return.
pj_status pj_region_run(pj_device *device, pj_region *region);
// Whether the ops of a region that ended with `status` stay queued: they were interrupted, and their calls have returned.
// In strict eager the op that is interrupted raises, and has not happened.
bool pj_is_put_back(const pj_device *device, pj_status status);
// Gives the error to the outputs that were not computed. The lock is held.
void pj_region_fail(pj_region *region, pj_status status);
// Runs what is queued; `why`, static, is what a trace says. The lock is held, may be given up meanwhile, and is held
// again on return.
pj_status pj_device_cut(pj_device *device, const char *why);
// The same for callers that cannot say what failed: it is told at the next synchronization.
void pj_device_cut_quietly(pj_device *device, const char *why);
// The failure that awaits the calling thread, or NULL: of its op, in a run that another thread started. It is told once,
// when the op ends; an op that ends early with an error takes it too. The lock is held.
pj_status pj_device_take_failure(pj_device *device);
// Waits while `condition` is true; it is asked under the lock, when device->idle is signalled and at every tick. CANCELLED
// when the user interrupts the wait for `what`; NULL: it cannot be interrupted. The lock is held, may be given up meanwhile,
// and is held again on return.
typedef bool pj_condition(const pj_device *device, const void *context);
pj_status pj_device_wait_while(pj_device *device, pj_condition *condition, const void *context, const char *what);
// Waits until no other thread runs a region. The lock as above.
pj_status pj_device_wait_until_idle(pj_device *device);
// Makes room in the cache of run-time numbers: before an execution asks for its own, which must stay until it has begun.
void pj_numbers_trim(pj_device *device);
// A buffer with these run-time numbers, owned by the device's cache. The lock is held.
pj_status pj_device_numbers(pj_device *device, pj_dtype dtype, const void *data, uint32_t count, pj_buffer **out_buffer);
void pj_programs_clear(pj_map *programs);
void pj_numbers_clear(pj_device *device);
// Ends the undo records: `failed` puts the old values back where new ones that failed still stand.
void pj_region_settle(pj_region *region, bool failed);
// Moves the undo records of the ops that `to` took over; those of ops that have run end.
void pj_region_move_undo(pj_region *to, pj_region *from);

// Gives a storage that nobody has written a value, which is retained; false: it has one.
bool pj_storage_set_first(pj_storage *storage, pj_value *value);

// A result that is a row-major array of this type.
static inline pj_tensor_spec pj_dense_spec(const pj_type *type) {
  pj_tensor_spec spec = {.dtype = type->dtype, .rank = type->rank};
  memcpy(spec.sizes, type->dims, (size_t)type->rank * sizeof *type->dims);
  pj_row_major_strides(type->rank, type->dims, spec.strides);
  return spec;
}

// Submits an op of our own, whose result types the caller knows: they are appended to the call's arguments.
pj_status pj_submit_own(pj_device *device, pj_call *call, const pj_tensor_spec *results, size_t count);
// ---- wait.c ----

// A run whose first result is `result` has begun, and is waited for whoever holds its results. The lock is held.
void pj_run_started(pj_device *device, pj_buffer *result);
// An error that the computation itself reported becomes the value's; gives it back.
pj_status pj_value_keep_error(pj_device *device, pj_value *value, pj_status status);
// Reads pending index flags and tells the first error. The lock is held; with `wait` it waits for them.
pj_status pj_device_check_indices(pj_device *device, bool wait);

// Keeps the explanation of a program that was made or refused, and tells and collects its span. No lock may be held.
void pj_runtime_explained(pj_runtime *runtime, const pj_span *compile, int64_t temp_bytes);

#endif
