// The queue on the fake plugin: what fails, what several threads do at once, and what is left in the end. Results of the
// fake plugin are zeros, so a value of ones is one that was not overwritten.
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fake_plugin/fake_plugin.h"
#include "run/ops.h"

enum { COUNT = 2048, THREADS = 8 };

static const char COMPILE[] = "PJRT_Client_Compile", EXECUTE[] = "PJRT_LoadedExecutable_Execute";
static const fake_control *fake;
static pj_runtime *runtime;
static pj_device *device;
static float ones[COUNT];

static void set_up_mode(pj_eager eager, int queue_length) {
  pj_runtime_options options = {.plugin_path = FAKE_PLUGIN, .eager = eager, .queue_length = queue_length};
  CHECK_OK(pj_runtime_create(&options, &runtime));
  device = pj_runtime_device(runtime, 0);
}

static void set_up(int queue_length) { set_up_mode(queue_length > 1 ? PJ_EAGER_FUSED : PJ_EAGER_STRICT, queue_length); }

// Nothing of a runtime is left when it and all storages are gone, whatever failed before.
static void tear_down(void) {
  pj_runtime_destroy(runtime);
  CHECK(fake_plugin_is_empty(fake->counts()));
}

static bool is_filled_with(pj_storage *storage, float number) {
  float data[COUNT];
  to_host(storage, data);
  for (int i = 0; i < COUNT; ++i)
    if (data[i] != number) return false;
  return true;
}

// ---- one thread -----------------------------------------------------------------------------------------------------

static void an_op_compiles_once_and_runs_each_time(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT), *sums[3];
  for (int i = 0; i < 3; ++i) sums[i] = add(x, x, COUNT);
  pj_counters counters = counters_of(runtime);
  CHECK(counters.compiles == 1 && counters.executions == 3 && counters.queue_cuts == 3);
  CHECK(is_filled_with(sums[2], 0));
  for (int i = 0; i < 3; ++i) pj_storage_release(sums[i]);
  pj_storage_release(x);
  tear_down();
}

static void ops_up_to_a_read_are_one_program_that_gives_only_what_is_held(void) {
  set_up(64);
  pj_storage *x = from_host(device, ones, COUNT);
  pj_device_memory before, after;
  pj_device_memory_info(device, &before);
  pj_storage *sum = add(x, x, COUNT);
  for (int i = 0; i < 9; ++i) {
    pj_storage *next = add(sum, x, COUNT);
    pj_storage_release(sum);
    sum = next;
  }
  CHECK(counters_of(runtime).executions == 0);
  CHECK(is_filled_with(sum, 0));
  pj_device_memory_info(device, &after);
  pj_counters counters = counters_of(runtime);
  CHECK(counters.compiles == 1 && counters.executions == 1 && counters.queue_cuts == 1);
  CHECK(after.bytes.current - before.bytes.current == sizeof ones);
  pj_storage_release(sum);
  pj_storage_release(x);
  tear_down();
}

static void views_that_differ_in_their_start_share_a_program_from_the_fifth_on(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT);
  int64_t count = 16, one = 1;
  for (int i = 0; i < 100; ++i) {
    pj_call call = {.op = pj_runtime_op(runtime, "aten::neg")};
    pj_call_tensor(&call, x, PJ_F32, 1, &count, &one, 16 * i, 0);
    CHECK_OK(submit(device, &call, count));
    pj_call_destroy(&call);
  }
  CHECK(counters_of(runtime).compiles == 5 && counters_of(runtime).executions == 100);
  pj_storage_release(x);
  tear_down();
}

static void a_call_gets_its_starts_back(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT);
  int64_t count = 16, one = 1;
  for (int i = 0; i < 6; ++i) {
    pj_call call = {.op = pj_runtime_op(runtime, "aten::neg")};
    pj_call_tensor(&call, x, PJ_F32, 1, &count, &one, 16 * i, 0);
    uint64_t words[16];
    uint32_t length = call.word_count;
    memcpy(words, call.words, length * sizeof *words);
    const pj_plan *plan;
    CHECK_OK(pj_submit(device, &call, &plan));
    CHECK(!plan && call.int_count == (i < 4 ? 0 : 1));
    CHECK(!memcmp(words, call.words, length * sizeof *words) == (i < 4));
    pj_call_fix_starts(&call);
    CHECK(call.word_count == length && !memcmp(words, call.words, length * sizeof *words) && !call.int_count);
    pj_call_destroy(&call);
  }
  pj_storage_release(x);
  tear_down();
}

// A chain of three ops, read at its end.
static void run_chain(pj_storage *x) {
  pj_storage *y = add(x, x, COUNT), *z = add(y, x, COUNT);
  scale(z, 2, COUNT);
  CHECK(is_filled_with(z, 0));
  pj_storage_release(y);
  pj_storage_release(z);
}

static void a_region_runs_op_by_op_until_it_came_often_and_then_always_as_one_program(void) {
  set_up_mode(PJ_EAGER_ADAPTIVE, 64);
  pj_storage *x = from_host(device, ones, COUNT);
  run_chain(x);  // two kinds of add, and mul
  pj_counters c = counters_of(runtime);
  CHECK(c.compiles == 3 && c.executions == 3 && c.queue_cuts == 1);
  fake->delay(COMPILE, 100);
  run_chain(x);
  CHECK(counters_of(runtime).executions == 6);
  run_chain(x);  // waits for the program
  fake->delay(COMPILE, 0);
  c = counters_of(runtime);
  CHECK(c.compiles == 4 && c.executions == 7);
  run_chain(x);
  c = counters_of(runtime);
  CHECK(c.compiles == 4 && c.executions == 8);
  pj_storage_release(x);
  tear_down();
}

// Two ops over `count` ones.
static void run_pair(int64_t count) {
  pj_storage *x = from_host(device, ones, count), *y = add(x, x, count), *z = add(y, x, count);
  CHECK_OK(pj_device_synchronize(device, true));
  pj_storage_release(x);
  pj_storage_release(y);
  pj_storage_release(z);
}

static void ops_that_come_in_many_shapes_wait_longer_for_a_program(void) {
  enum { SHAPES = 3 };
  set_up_mode(PJ_EAGER_ADAPTIVE, 64);
  run_pair(COUNT);  // a first shape is not one of many yet
  run_pair(COUNT);
  for (int time = 0; time < 2 + SHAPES; ++time)
    for (int64_t count = 1; count <= SHAPES; ++count) run_pair(count);
  pj_runtime_wait_for_compiles(runtime);
  pj_counters before = counters_of(runtime);
  CHECK(before.executions == 2 * (2 + (2 + SHAPES) * SHAPES));
  for (int64_t count = 1; count <= SHAPES; ++count) run_pair(count);
  pj_counters after = counters_of(runtime);
  CHECK(after.compiles == before.compiles && after.executions - before.executions == SHAPES);
  tear_down();
}

static void ops_that_come_again_late_wait_longer_for_a_program(void) {
  enum { BETWEEN = 70 };
  set_up_mode(PJ_EAGER_ADAPTIVE, 64);
  pj_storage *x = from_host(device, ones, COUNT);
  for (int time = 0; time < 4; ++time) {
    run_chain(x);
    for (int64_t count = 1; count <= BETWEEN; ++count) run_pair(count);
  }
  pj_runtime_wait_for_compiles(runtime);
  pj_counters before = counters_of(runtime);
  CHECK(before.executions == 4 * (3 + 2 * BETWEEN));
  run_chain(x);
  CHECK(counters_of(runtime).executions == before.executions + 1);
  pj_storage_release(x);
  tear_down();
}

static void programs_that_were_not_used_for_long_are_unloaded_and_come_back(void) {
  enum { PROGRAMS = 5000, MOST_LOADED = 4096 };
  static const float numbers[PROGRAMS];
  set_up(1);
  for (int64_t count = 1; count <= PROGRAMS; ++count) {
    pj_storage *x = from_host(device, numbers, count);
    pj_storage_release(add(x, x, count));
    pj_storage_release(x);
    CHECK(fake->counts().loaded_executables <= MOST_LOADED);
  }
  CHECK(counters_of(runtime).compiles == PROGRAMS && fake->counts().loaded_executables > MOST_LOADED / 2);
  pj_storage *x = from_host(device, numbers, PROGRAMS);
  pj_storage_release(add(x, x, PROGRAMS));
  CHECK(counters_of(runtime).compiles == PROGRAMS);
  pj_storage_release(x);
  x = from_host(device, numbers, 1);
  pj_storage_release(add(x, x, 1));
  CHECK(counters_of(runtime).compiles == PROGRAMS + 1);
  size_t count = pj_runtime_explain(runtime, NULL, 0);
  pj_explanation *rows = calloc(count, sizeof *rows);
  CHECK(rows && pj_runtime_explain(runtime, rows, count) == count && !strcmp(rows[count - 1].reason, "not kept"));
  free(rows);
  pj_storage_release(x);
  tear_down();
}

static bool equal_calls_give_equal_bits;
static bool repeats(void) { return equal_calls_give_equal_bits; }

static void nothing_is_fused_later_where_equal_calls_must_give_equal_bits(void) {
  pj_runtime_options options = {
      .plugin_path = FAKE_PLUGIN, .eager = PJ_EAGER_ADAPTIVE, .queue_length = 64, .hooks = {.repeats = repeats}};
  CHECK_OK(pj_runtime_create(&options, &runtime));
  device = pj_runtime_device(runtime, 0);
  equal_calls_give_equal_bits = true;
  for (int time = 0; time < 8; ++time) run_pair(COUNT);
  CHECK(counters_of(runtime).executions == 16);
  equal_calls_give_equal_bits = false;
  for (int time = 0; time < 3; ++time) run_pair(COUNT);
  CHECK(counters_of(runtime).executions == 21);
  tear_down();
}

static void a_region_that_cannot_be_compiled_goes_on_op_by_op(void) {
  set_up_mode(PJ_EAGER_ADAPTIVE, 64);
  pj_storage *x = from_host(device, ones, COUNT);
  run_chain(x);
  fake->fail(COMPILE, PJ_INTERNAL, "no registers left", 1);
  for (int i = 2; i <= 8; ++i) run_chain(x);
  pj_runtime_wait_for_compiles(runtime);
  pj_counters c = counters_of(runtime);
  CHECK(c.compiles == 3 && c.executions == 24);
  pj_explanation rows[8];
  CHECK(pj_runtime_explain(runtime, rows, 8) == 4 && !strcmp(rows[3].reason, "not compiled"));
  pj_storage_release(x);
  tear_down();
}

static void an_op_that_fails_in_a_region_run_op_by_op_leaves_what_was_done_and_gives_back_the_rest(void) {
  set_up_mode(PJ_EAGER_ADAPTIVE, 64);
  pj_storage *x = from_host(device, ones, COUNT), *y = from_host(device, ones, COUNT), *z = from_host(device, ones, COUNT);
  scale(x, 2, COUNT);
  CHECK(is_filled_with(x, 0));  // mul is compiled
  scale(y, 3, COUNT);
  fake->fail(COMPILE, PJ_INTERNAL, "no registers left", 1);
  pj_storage *sum = add(z, z, COUNT);
  scale(z, 3, COUNT);
  scale(z, 4, COUNT);
  CHECK_FAILS(pj_device_synchronize(device, true), PJ_INTERNAL, "no registers left");
  CHECK(is_filled_with(y, 0));
  CHECK(is_filled_with(z, 1));
  scale(z, 3, COUNT);
  CHECK(is_filled_with(z, 0));
  pj_storage_release(sum);
  pj_storage_release(x);
  pj_storage_release(y);
  pj_storage_release(z);
  tear_down();
}

static void what_does_not_fit_as_a_whole_runs_op_by_op(void) {
  set_up(64);
  pj_device_set_memory_limit(device, 2 * sizeof ones + 100);
  pj_storage *x = from_host(device, ones, COUNT), *y = from_host(device, ones, COUNT);
  scale(x, 2, COUNT);
  pj_storage *sum = add(y, y, COUNT), *more = add(sum, y, COUNT);
  CHECK_FAILS(pj_device_synchronize(device, true), PJ_RESOURCE_EXHAUSTED, "The largest live tensors");
  pj_storage_release(sum);
  pj_storage_release(more);
  CHECK(is_filled_with(x, 0) && is_filled_with(y, 1));
  pj_storage_release(x);
  sum = add(y, y, COUNT);
  CHECK(is_filled_with(sum, 0));
  pj_storage_release(sum);
  pj_storage_release(y);
  tear_down();
}

static void what_is_interrupted_stays_queued(void) {
  set_up(64);
  pj_storage *x = from_host(device, ones, COUNT), *y = from_host(device, ones, COUNT);
  scale(x, 2, COUNT);
  pj_storage *sum = add(x, y, COUNT);
  for (int i = 0; i < 2; ++i) {
    fake->fail(COMPILE, PJ_CANCELLED, "interrupted", 1);
    CHECK_FAILS(pj_device_synchronize(device, true), PJ_CANCELLED, "interrupted");
    scale(y, 2, COUNT);
  }
  CHECK(counters_of(runtime).executions == 0);
  CHECK(is_filled_with(x, 0) && is_filled_with(y, 0) && is_filled_with(sum, 0));
  CHECK(counters_of(runtime).executions == 1);
  pj_storage_release(sum);
  pj_storage_release(x);
  pj_storage_release(y);
  tear_down();
}

static void what_is_interrupted_op_by_op_goes_on_where_it_was(void) {
  for (int fails = 0; fails < 2; ++fails) {
    set_up_mode(PJ_EAGER_ADAPTIVE, 64);
    pj_storage *x = from_host(device, ones, COUNT), *y = from_host(device, ones, COUNT), *z = from_host(device, ones, COUNT);
    pj_storage *sum = add(x, x, COUNT);
    CHECK(is_filled_with(sum, 0));  // add is compiled
    pj_storage_release(sum);
    sum = add(x, x, COUNT);
    scale(y, 3, COUNT);
    scale(z, 3, COUNT);
    fake->fail(COMPILE, PJ_CANCELLED, "interrupted", 1);
    CHECK_FAILS(pj_device_synchronize(device, true), PJ_CANCELLED, "interrupted");
    CHECK(counters_of(runtime).executions == 2);
    if (fails) {
      fake->fail(COMPILE, PJ_INTERNAL, "no registers left", 1);
      CHECK_FAILS(pj_device_synchronize(device, true), PJ_INTERNAL, "no registers left");
    }
    CHECK(is_filled_with(sum, 0) && is_filled_with(y, (float)fails) && is_filled_with(z, (float)fails));
    CHECK(counters_of(runtime).executions == (fails ? 2 : 4));
    pj_storage_release(sum);
    pj_storage_release(x);
    pj_storage_release(y);
    pj_storage_release(z);
    tear_down();
  }
}

static void what_compiles_in_the_background_is_given_up_when_the_runtime_goes(void) {
  set_up_mode(PJ_EAGER_ADAPTIVE, 64);
  pj_storage *x = from_host(device, ones, COUNT);
  run_chain(x);
  fake->delay(COMPILE, 50);
  run_chain(x);
  pj_storage_release(x);
  fake->delay(COMPILE, 0);
  tear_down();
}

static void a_held_call_runs_when_its_op_ends(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT);
  pj_call call = {.op = pj_runtime_op(runtime, "aten::add.Tensor"), .hold = true};
  put_vector(&call, x, COUNT);
  put_vector(&call, x, COUNT);
  pj_call_number_int(&call, 1, PJ_S64, PJ_WEIGHT_PYTHON);
  CHECK_OK(submit(device, &call, COUNT));
  CHECK(counters_of(runtime).executions == 0);
  pj_value_retain(call.results[0]);
  pj_storage *sum = pj_storage_create_with(device, call.results[0]);
  pj_call_destroy(&call);
  CHECK_OK(pj_device_end_op(device));
  CHECK(counters_of(runtime).executions == 1);
  CHECK(is_filled_with(sum, 0));
  pj_storage_release(sum);
  pj_storage_release(x);
  tear_down();
}

static void an_overwritten_value_is_donated_unless_somebody_else_holds_it(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT);
  pj_value *held = pj_storage_value(x);
  scale(x, 2, COUNT);
  CHECK(counters_of(runtime).donations == 0);
  pj_storage *y = pj_storage_create_with(device, held);
  CHECK(is_filled_with(y, 1) && is_filled_with(x, 0));
  pj_device_memory before, after;
  pj_device_memory_info(device, &before);
  pj_device_reset_peak_memory(device);
  scale(x, 2, COUNT);
  pj_device_memory_info(device, &after);
  CHECK(counters_of(runtime).donations == 1);
  CHECK(after.bytes.current == before.bytes.current && after.bytes.peak == before.bytes.current);
  pj_storage_release(x);
  pj_storage_release(y);
  tear_down();
}

// ---- failures -------------------------------------------------------------------------------------------------------

static void nothing_is_lost_when_an_op_cannot_be_compiled(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT);
  fake->fail(COMPILE, PJ_INTERNAL, "no registers left", 1);
  CHECK_FAILS(try_scale(x, 2, COUNT), PJ_INTERNAL, "aten::mul.Tensor(f32[2048], number) could not be compiled: no registers left");
  CHECK(is_filled_with(x, 1));
  scale(x, 2, COUNT);
  CHECK(is_filled_with(x, 0));
  pj_storage_release(x);
  tear_down();
}

static void nothing_is_lost_when_an_op_cannot_be_run(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT), *sum;
  fake->fail(EXECUTE, PJ_UNAVAILABLE, "the chip is gone", 2);
  CHECK_FAILS(try_scale(x, 2, COUNT), PJ_UNAVAILABLE, "the chip is gone");
  CHECK_FAILS(try_add(x, x, COUNT, &sum), PJ_UNAVAILABLE, "the chip is gone");
  CHECK(is_filled_with(x, 1));
  CHECK(counters_of(runtime).donations == 0);
  scale(x, 2, COUNT);
  CHECK(is_filled_with(x, 0));
  pj_storage_release(x);
  tear_down();
}

static void nothing_is_lost_when_memory_is_short(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT);
  pj_value *held = pj_storage_value(x);  // so that the op needs memory of its own
  pj_device_set_memory_limit(device, sizeof ones + 100);
  CHECK_FAILS(try_scale(x, 2, COUNT), PJ_RESOURCE_EXHAUSTED, "The largest live tensors: f32[2048] 0.01 MiB");
  pj_value_release(held);
  CHECK(is_filled_with(x, 1));
  scale(x, 2, COUNT);  // in place it needs none
  CHECK(is_filled_with(x, 0));
  pj_device_set_memory_limit(device, 0);
  pj_storage_release(x);
  tear_down();
}

static void a_late_failure_is_told_to_every_reader(void) {
  set_up(64);
  pj_storage *x = from_host(device, ones, COUNT), *sum = add(x, x, COUNT), *more = add(sum, x, COUNT), *none;
  fake->fail(COMPILE, PJ_INTERNAL, "no registers left", 2);  // of both, and of the first alone
  CHECK_FAILS(pj_device_synchronize(device, false), PJ_INTERNAL, "aten::add.Tensor(f32[2048], f32[2048], number) could not be compiled");
  float data[COUNT];
  pj_storage *failed[] = {sum, more};
  for (int i = 0; i < 2; ++i) {
    pj_value *value = pj_storage_value(failed[i]);
    CHECK_FAILS(pj_value_to_host(device, value, data), PJ_INTERNAL, "no registers left");
    CHECK_FAILS(pj_value_to_host(device, value, data), PJ_INTERNAL, "no registers left");
    CHECK_FAILS(try_add(failed[i], x, COUNT, &none), PJ_INTERNAL, "no registers left");
    pj_value_release(value);
    pj_storage_release(failed[i]);
  }
  CHECK(is_filled_with(x, 1));
  pj_storage_release(x);
  tear_down();
}

static pj_status try_take_rows(pj_storage *rows, pj_storage **out_taken) {
  static const int64_t INDICES[] = {3, 1, 2};
  int64_t three = 3, one = 1;
  pj_value *value;
  CHECK_OK(pj_value_from_host(device, INDICES, PJ_S64, 1, &three, &value));
  pj_storage *index = pj_storage_create_with(device, value);
  pj_call call = {.op = pj_runtime_op(runtime, "aten::index_select")};
  put_vector(&call, rows, COUNT);
  pj_call_int(&call, 0);
  pj_call_tensor(&call, index, PJ_S64, 1, &three, &one, 0, 0);
  pj_status status = submit(device, &call, 3);
  if (!status) {
    pj_value_retain(call.results[0]);
    *out_taken = pj_storage_create_with(device, call.results[0]);
  }
  pj_call_destroy(&call);
  pj_storage_release(index);
  return status;
}

static pj_storage *take_rows(pj_storage *rows) {
  pj_storage *taken = NULL;
  CHECK_OK(try_take_rows(rows, &taken));
  return taken;
}

static void in_blocking_eager_a_call_returns_when_its_op_is_computed_and_tells_what_failed(void) {
  set_up_mode(PJ_EAGER_BLOCKING, 0);
  pj_storage *x = from_host(device, ones, COUNT), *y;
  fake->run_ms(50);
  int64_t ended = fake->counts().executions_ended;
  y = add(x, x, COUNT);
  CHECK(fake->counts().executions_ended == ended + 1);
  scale(x, 2, COUNT);
  CHECK(fake->counts().executions_ended == ended + 2);
  fake->run_ms(0);
  fake->fail("PJRT_Buffer_ToHostBuffer", PJ_DATA_LOSS, "the flags are gone", 1);
  pj_storage *none;
  CHECK_FAILS(try_take_rows(y, &none), PJ_DATA_LOSS, "the flags are gone");
  pj_storage_release(y);
  pj_storage_release(x);
  tear_down();
}

static void a_run_is_waited_for_though_nobody_holds_its_results(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT);
  pj_storage_release(add(x, x, COUNT));
  CHECK_OK(pj_device_synchronize(device, true));
  fake->run_ms(100);
  int64_t ended = fake->counts().executions_ended;
  pj_storage_release(add(x, x, COUNT));
  uint64_t point = pj_device_record(device);
  CHECK(!pj_device_reached(device, point) && fake->counts().executions_ended == ended);
  CHECK_OK(pj_device_wait(device, point));
  CHECK(pj_device_reached(device, point) && fake->counts().executions_ended == ended + 1);
  for (int i = 0; i < 3; ++i) pj_storage_release(add(x, x, COUNT));
  CHECK_OK(pj_device_synchronize(device, true));
  CHECK(fake->counts().executions_ended == ended + 4);
  pj_storage_release(add(x, x, COUNT));
  fake->run_ms(0);
  pj_storage_release(x);
  tear_down();  // with a run that nobody waited for
}

static void index_flags_wait_for_the_next_synchronization(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT), *taken = take_rows(x);
  fake->fail("PJRT_Buffer_ToHostBuffer", PJ_DATA_LOSS, "the flags are gone", 1);
  CHECK_FAILS(pj_device_synchronize(device, true), PJ_DATA_LOSS, "the flags are gone");
  CHECK_OK(pj_device_synchronize(device, true));  // told once
  pj_storage_release(taken);
  pj_runtime_set_index_mode(runtime, PJ_INDEX_OFF);
  taken = take_rows(x);
  fake->fail("PJRT_Buffer_ToHostBuffer", PJ_DATA_LOSS, "the flags are gone", 1);
  CHECK_OK(pj_device_synchronize(device, true));  // nothing is read
  fake->fail("PJRT_Buffer_ToHostBuffer", 0, "", 0);
  pj_storage_release(taken);
  pj_runtime_set_index_mode(runtime, PJ_INDEX_DEFERRED);
  pj_storage_release(take_rows(x));
  pj_storage_release(x);
  tear_down();  // with a flag that nobody read
}

// ---- two threads, one after the other -------------------------------------------------------------------------------

// x *= 2 in its three parts, between which another thread may come.
static pj_call begin_scale(pj_storage *x) {
  pj_call call = {.op = pj_runtime_op(runtime, "aten::mul.Tensor"), .hold = true};
  put_vector(&call, x, COUNT);
  pj_call_number_float(&call, 2, PJ_F64, PJ_WEIGHT_PYTHON);
  CHECK_OK(submit(device, &call, COUNT));
  return call;
}

static pj_status write_scaled(pj_storage *x, pj_call *call) {
  int64_t count = COUNT, one = 1;
  pj_status status = pj_storage_write(x, call->results[0], &one, PJ_F32, 1, &count, &one, 0, 0);
  pj_call_destroy(call);
  return status;
}

static void *add_and_fail(void *argument) {
  pj_storage *sum;
  fake->fail(COMPILE, PJ_INTERNAL, "no registers left", 2);  // of both threads' ops, and of the first alone
  CHECK_FAILS(try_add(argument, argument, COUNT, &sum), PJ_INTERNAL, "no registers left");
  return NULL;
}

static void *add_and_succeed(void *argument) {
  pj_storage_release(add(argument, argument, COUNT));
  return NULL;
}

static void on_another_thread(void *(*function)(void *), pj_storage *x) {
  pthread_t thread;
  pthread_create(&thread, NULL, function, x);
  pthread_join(thread, NULL);
}

static void an_op_that_another_thread_ran_in_vain_says_so_when_it_ends(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT), *y = from_host(device, ones, COUNT);
  pj_call call = begin_scale(x);
  CHECK_OK(write_scaled(x, &call));
  on_another_thread(add_and_fail, y);
  CHECK_FAILS(pj_device_end_op(device), PJ_INTERNAL, "no registers left");
  CHECK(is_filled_with(x, 1));
  scale(x, 2, COUNT);  // told once
  CHECK(is_filled_with(x, 0));
  pj_storage_release(x);
  pj_storage_release(y);
  tear_down();
}

static void an_op_that_another_thread_ran_in_vain_writes_nothing(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT), *y = from_host(device, ones, COUNT);
  pj_call call = begin_scale(x);
  on_another_thread(add_and_fail, y);
  CHECK_FAILS(write_scaled(x, &call), PJ_INTERNAL, "no registers left");
  CHECK(is_filled_with(x, 1));
  scale(x, 2, COUNT);
  CHECK(is_filled_with(x, 0));
  pj_storage_release(x);
  pj_storage_release(y);
  tear_down();
}

static void a_failure_takes_nothing_back_that_was_computed_before(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT), *y = from_host(device, ones, COUNT);
  pj_call call = begin_scale(x);
  on_another_thread(add_and_succeed, y);  // runs the call too
  pj_call other = begin_scale(y);
  CHECK_OK(write_scaled(x, &call));
  CHECK_OK(write_scaled(y, &other));
  on_another_thread(add_and_fail, y);
  CHECK(is_filled_with(x, 0) && is_filled_with(y, 1));
  pj_storage_release(x);
  pj_storage_release(y);
  tear_down();
}

static pthread_t impatient;

static bool is_impatient(void) { return pthread_equal(pthread_self(), impatient); }

static void a_wait_for_another_threads_compile_can_be_interrupted(void) {
  pj_runtime_options options = {.plugin_path = FAKE_PLUGIN, .hooks = {.interrupted = is_impatient}};
  CHECK_OK(pj_runtime_create(&options, &runtime));
  device = pj_runtime_device(runtime, 0);
  impatient = pthread_self();
  pj_storage *x = from_host(device, ones, COUNT), *y = from_host(device, ones, COUNT), *none;
  scale(x, 2, COUNT);
  fake->delay(COMPILE, 2000);
  pthread_t thread;
  pthread_create(&thread, NULL, add_and_succeed, y);
  usleep(300000);  // it compiles
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  CHECK_FAILS(try_add(y, y, COUNT, &none), PJ_CANCELLED, "interrupted");
  CHECK_FAILS(try_scale(y, 2, COUNT), PJ_CANCELLED, "interrupted");
  CHECK_FAILS(pj_device_synchronize(device, false), PJ_CANCELLED, "interrupted");
  clock_gettime(CLOCK_MONOTONIC, &end);
  CHECK(end.tv_sec - begin.tv_sec <= 1);
  pthread_join(thread, NULL);
  fake->delay(COMPILE, 0);
  impatient = thread;
  scale(x, 2, COUNT);  // with what the interrupted ops left in the queue
  CHECK(is_filled_with(x, 0));
  pj_storage_release(x);
  pj_storage_release(y);
  tear_down();
}

// ---- threads --------------------------------------------------------------------------------------------------------

typedef struct job {
  pj_device *device;
  pj_storage *shared;  // read by all
  int number;
} job;

static void run_threads(void *(*function)(void *), job *jobs, int count) {
  pthread_t threads[THREADS];
  for (int i = 0; i < count; ++i) pthread_create(&threads[i], NULL, function, &jobs[i]);
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
}

// Ops on storages of its own and on the shared one; every result is read or dropped unread.
static void *compute(void *argument) {
  const job *j = argument;
  for (int i = 0; i < 40; ++i) {
    pj_storage *own = from_host(j->device, ones, COUNT), *sum = add(own, j->shared, COUNT);
    scale(own, 1 + j->number, COUNT);
    if (i % 4 == 0) CHECK(is_filled_with(sum, 0));
    if (i % 8 == 1) CHECK_OK(pj_device_synchronize(j->device, true));
    if (i % 8 == 2) CHECK_OK(pj_device_wait(j->device, pj_device_record(j->device)));
    if (i % 8 == 3) pj_device_reached(j->device, pj_device_record(j->device));
    pj_storage_release(sum);
    CHECK(is_filled_with(own, 0));
    CHECK(pj_storage_token(j->shared) != 0);
    size_t offset;
    CHECK(pj_storage_find(pj_device_runtime(j->device), pj_storage_token(own), &offset) == own);
    pj_storage_release(own);
  }
  return NULL;
}

static void compute_on(pj_eager eager, int queue_length, int devices) {
  set_up_mode(eager, queue_length);
  fake->asynchronous(true);
  job jobs[THREADS];
  pj_storage *shared[2];
  for (int i = 0; i < devices; ++i) shared[i] = from_host(pj_runtime_device(runtime, i), ones, COUNT);
  for (int i = 0; i < THREADS; ++i) jobs[i] = (job){pj_runtime_device(runtime, i % devices), shared[i % devices], i};
  run_threads(compute, jobs, THREADS);
  for (int i = 0; i < devices; ++i) {
    CHECK(is_filled_with(shared[i], 1));
    pj_storage_release(shared[i]);
  }
  fake->asynchronous(false);
  tear_down();
}

static void eight_threads_compute_at_once(void) { compute_on(PJ_EAGER_STRICT, 1, 1); }
static void eight_threads_fill_one_queue(void) { compute_on(PJ_EAGER_FUSED, 16, 1); }
static void eight_threads_compute_on_two_devices(void) { compute_on(PJ_EAGER_STRICT, 1, 2); }
static void eight_threads_fill_adaptive_queues(void) { compute_on(PJ_EAGER_ADAPTIVE, 4, 2); }

static atomic_bool stop;

static void *play_faults(void *argument) {
  (void)argument;
  for (int i = 0; !atomic_load(&stop); ++i) {
    if (i % 3 == 0) fake->fail(COMPILE, PJ_INTERNAL, "injected", 1);
    if (i % 3 == 1) fake->fail(EXECUTE, PJ_INTERNAL, "injected", 1);
    pj_device_set_memory_limit(device, i % 3 == 2 ? sizeof ones : 0);
    usleep(300);
  }
  fake->fail(COMPILE, 0, "", 0);
  fake->fail(EXECUTE, 0, "", 0);
  pj_device_set_memory_limit(device, 0);
  return NULL;
}

// Each op either happened or did not: what was there before is there, or what it wrote.
static void *compute_in_spite_of_faults(void *argument) {
  const job *j = argument;
  pj_value *keep = pj_storage_value(j->shared);
  for (int i = 0; i < 150; ++i) {
    pj_value_retain(keep);
    pj_storage *own = pj_storage_create_with(device, keep), *sum = NULL;
    // A size of its own now and then, so that there is something to compile.
    int64_t count = i % 5 == 0 ? COUNT - 150 * j->number - i : COUNT;
    pj_status status = try_add(own, own, count, &sum);
    if (sum) pj_storage_release(sum);
    pj_status_free(status);
    status = try_scale(own, 2, COUNT);
    bool failed = status != NULL;
    pj_status_free(status);
    // The op that failed may have been another thread's of the same region.
    bool zeros = is_filled_with(own, 0);
    CHECK(failed ? zeros || is_filled_with(own, 1) : zeros);
    pj_storage_release(own);
  }
  pj_value_release(keep);
  return NULL;
}

static void no_thread_loses_a_value_while_faults_are_injected(void) {
  set_up(1);
  job jobs[THREADS];
  pj_storage *shared = from_host(device, ones, COUNT);
  for (int i = 0; i < THREADS; ++i) jobs[i] = (job){device, shared, i};
  pthread_t faults;
  atomic_store(&stop, false);
  pthread_create(&faults, NULL, play_faults, NULL);
  run_threads(compute_in_spite_of_faults, jobs, THREADS);
  atomic_store(&stop, true);
  pthread_join(faults, NULL);
  CHECK(is_filled_with(shared, 1));
  pj_storage_release(shared);
  tear_down();
}

static void memory_is_counted_and_live_values_are_listed(void) {
  set_up(1);
  pj_device_memory before, after;
  pj_device_memory_info(device, &before);
  CHECK(before.total > 0 && before.limit == 0 && before.bytes.current == 0);
  pj_storage *x = from_host(device, ones, COUNT), *y = from_host(device, ones, 8);
  pj_storage_release(x);
  pj_device_memory_info(device, &after);
  CHECK(after.bytes.current == 32 && after.bytes.peak == sizeof ones + 32);
  CHECK(after.bytes.allocated == sizeof ones + 32 && after.bytes.freed == sizeof ones);
  CHECK(after.values.current == 1 && after.values.peak == 2 && after.values.allocated == 2 && after.values.freed == 1);
  pj_live_value live;
  CHECK(pj_device_live_values(device, &live, 1) == 1 && pj_device_live_values(device, NULL, 0) == 1);
  CHECK(live.dtype == PJ_F32 && live.rank == 1 && live.dims[0] == 8 && live.bytes == 32);
  pj_device_set_memory_limit(device, 64);
  pj_value *refused;
  int64_t count = COUNT;
  CHECK_FAILS(pj_value_from_host(device, ones, PJ_F32, 1, &count, &refused), PJ_RESOURCE_EXHAUSTED, "f32[8]");
  pj_device_reset_peak_memory(device);
  pj_device_memory_info(device, &after);
  CHECK(after.bytes.peak == 32 && after.values.peak == 1 && after.refusals == 1 && after.limit == 64);
  pj_device_reset_memory_sums(device);
  pj_device_memory_info(device, &after);
  CHECK(after.bytes.allocated == 0 && after.bytes.freed == 0 && after.refusals == 0 && after.bytes.current == 32);
  const void *bytes;
  pj_value *value = pj_storage_value(y);
  CHECK_FAILS(pj_value_host_pointer(device, value, &bytes), PJ_UNIMPLEMENTED, "cannot be read in place");
  pj_value_release(value);
  pj_storage_release(y);
  tear_down();
}

// ---- fork -----------------------------------------------------------------------------------------------------------

// In the child: every call is refused or does nothing, and none waits for a lock that a thread of the parent held.
static void check_child(pj_storage *x) {
  test_failures = 0;
  alarm(30);
  pj_runtime_after_fork(runtime);
  pj_storage *sum;
  pj_value *value;
  int64_t count = COUNT;
  CHECK_FAILS(try_add(x, x, COUNT, &sum), PJ_FAILED_PRECONDITION, "forked");
  CHECK_FAILS(pj_value_from_host(device, ones, PJ_F32, 1, &count, &value), PJ_FAILED_PRECONDITION, "forked");
  CHECK_FAILS(pj_device_synchronize(device, true), PJ_FAILED_PRECONDITION, "forked");
  CHECK(!pj_device_reached(device, pj_device_record(device)));
  pj_device_memory memory;
  pj_device_memory_info(device, &memory);
  size_t offset;
  CHECK(pj_storage_find(runtime, 1, &offset) == NULL);
  pj_storage *empty = pj_storage_create(device, 16);
  CHECK_FAILS(try_scale(empty, 2, 4), PJ_FAILED_PRECONDITION, "forked");
  pj_storage_release(empty);
  pj_storage_release(x);
  pj_runtime_destroy(runtime);
  _exit(test_failures != 0);
}

static void *fork_while_others_compute(void *argument) {
  const job *j = argument;
  if (j->number) return compute(argument);
  for (int i = 0; i < 10; ++i) {
    pid_t child = fork();
    if (!child) check_child(j->shared);
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  return NULL;
}

// The allocator of GCC 12's AddressSanitizer keeps a lock that another thread holds at the time of the fork: in such a
// build the others do not compute meanwhile.
#ifdef __SANITIZE_ADDRESS__
enum { FORKING_THREADS = 1 };
#else
enum { FORKING_THREADS = 4 };
#endif

static void a_forked_child_is_refused_and_its_parent_goes_on(void) {
  set_up(1);
  fflush(stdout);
  job jobs[FORKING_THREADS];
  pj_storage *shared = from_host(device, ones, COUNT);
  for (int i = 0; i < FORKING_THREADS; ++i) jobs[i] = (job){device, shared, i};
  run_threads(fork_while_others_compute, jobs, FORKING_THREADS);
  CHECK(is_filled_with(shared, 1));
  pj_storage_release(shared);
  tear_down();
}

static void a_runtime_without_a_plugin_is_an_invalid_argument(void) {
  pj_runtime *none;
  for (const char *path = NULL;; path = "") {
    CHECK_FAILS(pj_runtime_create(&(pj_runtime_options){.plugin_path = path}, &none), PJ_INVALID_ARGUMENT, "path");
    if (path) break;
  }
}

int main(void) {
  fake = fake_plugin_control(FAKE_PLUGIN);
  for (int i = 0; i < COUNT; ++i) ones[i] = 1;
  RUN(a_runtime_without_a_plugin_is_an_invalid_argument);
  RUN(an_op_compiles_once_and_runs_each_time);
  RUN(ops_up_to_a_read_are_one_program_that_gives_only_what_is_held);
  RUN(views_that_differ_in_their_start_share_a_program_from_the_fifth_on);
  RUN(a_call_gets_its_starts_back);
  RUN(a_region_runs_op_by_op_until_it_came_often_and_then_always_as_one_program);
  RUN(ops_that_come_in_many_shapes_wait_longer_for_a_program);
  RUN(programs_that_were_not_used_for_long_are_unloaded_and_come_back);
  RUN(ops_that_come_again_late_wait_longer_for_a_program);
  RUN(nothing_is_fused_later_where_equal_calls_must_give_equal_bits);
  RUN(a_region_that_cannot_be_compiled_goes_on_op_by_op);
  RUN(an_op_that_fails_in_a_region_run_op_by_op_leaves_what_was_done_and_gives_back_the_rest);
  RUN(what_does_not_fit_as_a_whole_runs_op_by_op);
  RUN(what_is_interrupted_stays_queued);
  RUN(what_is_interrupted_op_by_op_goes_on_where_it_was);
  RUN(what_compiles_in_the_background_is_given_up_when_the_runtime_goes);
  RUN(a_held_call_runs_when_its_op_ends);
  RUN(an_overwritten_value_is_donated_unless_somebody_else_holds_it);
  RUN(nothing_is_lost_when_an_op_cannot_be_compiled);
  RUN(nothing_is_lost_when_an_op_cannot_be_run);
  RUN(nothing_is_lost_when_memory_is_short);
  RUN(a_late_failure_is_told_to_every_reader);
  RUN(in_blocking_eager_a_call_returns_when_its_op_is_computed_and_tells_what_failed);
  RUN(a_run_is_waited_for_though_nobody_holds_its_results);
  RUN(index_flags_wait_for_the_next_synchronization);
  RUN(a_wait_for_another_threads_compile_can_be_interrupted);
  RUN(an_op_that_another_thread_ran_in_vain_says_so_when_it_ends);
  RUN(an_op_that_another_thread_ran_in_vain_writes_nothing);
  RUN(a_failure_takes_nothing_back_that_was_computed_before);
  RUN(eight_threads_compute_at_once);
  RUN(eight_threads_fill_one_queue);
  RUN(eight_threads_compute_on_two_devices);
  RUN(eight_threads_fill_adaptive_queues);
  RUN(no_thread_loses_a_value_while_faults_are_injected);
  RUN(memory_is_counted_and_live_values_are_listed);
  RUN(a_forked_child_is_refused_and_its_parent_goes_on);
  return test_end();
}
