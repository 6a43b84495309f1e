// What a real plugin does rarely or not at all, shown by the fake one: late results and errors, short memory, failures
// of each call, plugins that tell less; and that nothing is left alive after any of it.
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_plugin/fake_plugin.h"
#include "pj/pjrt.h"
#include "test.h"

static const fake_control *fake;
static pj_plugin *plugin;
static pj_client *client;  // two devices

#define MAIN_ADD "module { func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {} }\n"
#define ADD MAIN_ADD "// fake: add\n"

static pj_status try_compile(const char *code, const pj_compile_options *options, pj_executable **out_executable) {
  uint8_t *bytes;
  size_t size;
  PJ_TRY(pj_compile_options_encode(options, &bytes, &size));
  pj_status status = pj_compile(client, code, strlen(code), bytes, size, out_executable);
  free(bytes);
  return status;
}

static pj_executable *compile(const char *code) {
  pj_executable *executable = NULL;
  CHECK_OK(try_compile(code, &(pj_compile_options){.portable = true}, &executable));
  return executable;
}

static pj_buffer *put(float first) {
  const float values[4] = {first, first + 1, first + 2, first + 3};
  pj_buffer *buffer = NULL;
  CHECK_OK(pj_buffer_from_host(client, 0, values, PJ_F32, 1, (int64_t[]){4}, PJ_HOST_COPY, NULL, &buffer));
  return buffer;
}

static bool holds(pj_buffer *buffer, float first, float step) {
  float values[4] = {0};
  CHECK_OK(pj_buffer_to_host(client, buffer, values, sizeof values));
  for (int i = 0; i < 4; ++i)
    if (values[i] != first + step * (float)i) return false;
  return true;
}

static void destroy(pj_buffer **buffers, int count) {
  for (int i = 0; i < count; ++i) pj_buffer_destroy(client, buffers[i]);
}

static void the_client_describes_itself(void) {
  const char *platform = getenv("FAKE_PLUGIN_PLATFORM");
  CHECK(!strcmp(pj_client_platform(client), platform ? platform : "fake"));
  CHECK(!strcmp(pj_client_platform_version(client), "fake 1"));
  CHECK(pj_client_device_count(client) == 2 && pj_client_device_id(client, 1) == 11);
  CHECK(!strcmp(pj_client_device_kind(client, 1), "fake device"));
  CHECK(pj_client_plugin(client) == plugin);
}

static void client_options_reach_the_plugin_and_its_refusal_comes_back(void) {
  pj_client *three, *none;
  pj_option options[] = {{.name = "cpu_device_count", .kind = PJ_OPTION_INT, .integer = 3},
                         {.name = "nonsense", .kind = PJ_OPTION_BOOL, .integer = 1}};
  CHECK_OK(pj_client_create(plugin, options, 1, &three));
  CHECK(pj_client_device_count(three) == 3);
  pj_client_destroy(three);
  CHECK_FAILS(pj_client_create(plugin, options, 2, &none), PJ_INVALID_ARGUMENT,
              "Unknown client option nonsense of type 4");
}

static void an_option_without_a_name_or_value_is_refused(void) {
  const pj_option options[] = {{.kind = PJ_OPTION_INT}, {.name = "", .kind = PJ_OPTION_INT},
                               {.name = "visible_devices", .kind = PJ_OPTION_STRING},
                               {.name = "visible_devices", .kind = PJ_OPTION_INTS, .count = 1}};
  for (int i = 0; i < 4; ++i) {
    pj_client *none;
    CHECK_FAILS(pj_client_create(plugin, &options[i], 1, &none), PJ_INVALID_ARGUMENT, i < 2 ? "has no name" : "has no value");
  }
}

static void the_plugins_noise_stays_out_of_stderr_and_stderr_comes_back(void) {
  int saved = dup(STDERR_FILENO), ends[2];
  CHECK(!pipe(ends));
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  pj_client *quiet;
  CHECK_OK(pj_client_create(plugin, NULL, 0, &quiet));
  pj_client_destroy(quiet);
  CHECK(write(STDERR_FILENO, "ours", 4) == 4);
  setenv("PJ_PLUGIN_LOG", "1", 1);
  pj_client *loud;
  CHECK_OK(pj_client_create(plugin, NULL, 0, &loud));
  pj_client_destroy(loud);
  unsetenv("PJ_PLUGIN_LOG");
  dup2(saved, STDERR_FILENO);
  close(saved);
  char text[64] = "";
  CHECK(read(ends[0], text, sizeof text - 1) > 0);
  CHECK(!strcmp(text, "oursthe fake plugin makes noise\n"));
  close(ends[0]);
}

static void *create_and_destroy(void *argument) {
  (void)argument;
  for (int i = 0; i < 20; ++i) {
    pj_client *quiet = NULL;
    CHECK_OK(pj_client_create(plugin, NULL, 0, &quiet));
    pj_client_destroy(quiet);
  }
  return NULL;
}

static void clients_made_on_several_threads_give_stderr_back(void) {
  struct stat before, after;
  CHECK(!fstat(STDERR_FILENO, &before));
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) CHECK(!pthread_create(&threads[i], NULL, create_and_destroy, NULL));
  for (int i = 0; i < 4; ++i) CHECK(!pthread_join(threads[i], NULL));
  CHECK(!fstat(STDERR_FILENO, &after));
  CHECK(before.st_dev == after.st_dev && before.st_ino == after.st_ino);
}

static void a_client_whose_description_fails_is_destroyed(void) {
  const char *slots[] = {"PJRT_Client_PlatformName", "PJRT_Client_PlatformVersion", "PJRT_Client_AddressableDevices",
                         "PJRT_Device_GetDescription", "PJRT_DeviceDescription_Id", "PJRT_DeviceDescription_Kind"};
  for (size_t i = 0; i < sizeof slots / sizeof slots[0]; ++i) {
    pj_client *none;
    fake->fail(slots[i], PJ_INTERNAL, "broken", 1);
    CHECK_FAILS(pj_client_create(plugin, NULL, 0, &none), PJ_INTERNAL, "broken");
    CHECK(!none && fake->counts().clients == 1);
  }
}

static void late_results_are_waited_for_in_order(void) {
  pj_executable *late = compile(ADD "// fake: run-ms 30\n"), *add = compile(ADD);
  pj_buffer *b[4] = {put(1), put(10)};
  CHECK_OK(pj_execute(late, 0, b, 2, &b[2]));
  CHECK(!pj_buffer_is_ready(client, b[2]));
  pj_buffer *chained[2] = {b[2], b[0]};
  CHECK_OK(pj_execute(add, 0, chained, 2, &b[3]));
  CHECK(!pj_buffer_is_ready(client, b[3]));
  destroy(b, 3);  // the queued work keeps what it needs
  CHECK(holds(b[3], 12, 3));
  CHECK(pj_buffer_is_ready(client, b[3]));
  destroy(b + 3, 1);
  pj_executable_destroy(late);
  pj_executable_destroy(add);
}

static bool always(void) { return true; }
static bool never(void) { return false; }

static void a_cancelled_wait_ends_and_the_computation_goes_on(void) {
  pj_executable *late = compile(ADD "// fake: run-ms 400\n");
  pj_buffer *b[3] = {put(1), put(10)};
  CHECK_OK(pj_execute(late, 0, b, 2, &b[2]));
  CHECK_FAILS(pj_buffer_wait_unless(client, b[2], always), PJ_CANCELLED, "cancelled");
  CHECK(!pj_buffer_is_ready(client, b[2]));
  CHECK_OK(pj_buffer_wait_unless(client, b[2], never));
  CHECK(holds(b[2], 11, 2));
  destroy(b, 3);
  pj_executable_destroy(late);
}

typedef struct seen {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int calls;
  pj_code code;
} seen;

static void see(pj_status status, void *argument) {
  seen *s = argument;
  pthread_mutex_lock(&s->lock);
  ++s->calls;
  s->code = pj_status_code(status);
  pthread_cond_signal(&s->changed);
  pthread_mutex_unlock(&s->lock);
  pj_status_free(status);
}

static void a_failed_computation_is_told_by_every_later_reader(void) {
  pj_executable *bad = compile(ADD "// fake: run-ms 10\n// fake: run-fail 11 index 7 is out of range\n");
  pj_executable *add = compile(ADD);
  pj_buffer *b[4] = {put(1), put(2)};
  CHECK_OK(pj_execute(bad, 0, b, 2, &b[2]));
  pj_buffer *chained[2] = {b[2], b[0]};
  CHECK_OK(pj_execute(add, 0, chained, 2, &b[3]));
  float values[4];
  pj_event *done;
  seen s = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, PJ_OK};
  CHECK_OK(pj_buffer_to_host_async(client, b[3], values, sizeof values, &done));
  CHECK_OK(pj_event_on_ready(client, done, see, &s));
  CHECK_FAILS(pj_buffer_wait(client, b[2]), PJ_OUT_OF_RANGE, "index 7");
  CHECK_FAILS(pj_buffer_wait(client, b[3]), PJ_OUT_OF_RANGE, "index 7");
  CHECK_FAILS(pj_buffer_wait_unless(client, b[3], never), PJ_OUT_OF_RANGE, "index 7");
  CHECK_FAILS(pj_buffer_to_host(client, b[3], values, sizeof values), PJ_OUT_OF_RANGE, "index 7");
  CHECK_FAILS(pj_event_wait(client, done), PJ_OUT_OF_RANGE, "index 7");
  pthread_mutex_lock(&s.lock);
  while (!s.calls) pthread_cond_wait(&s.changed, &s.lock);
  CHECK(s.calls == 1 && s.code == PJ_OUT_OF_RANGE);
  pthread_mutex_unlock(&s.lock);
  pj_event_destroy(client, done);
  destroy(b, 4);
  pj_executable_destroy(bad);
  pj_executable_destroy(add);
}

static void donation_takes_the_argument_even_while_the_work_waits(void) {
  pj_executable *donating = compile(
      "module { func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32>)"
      " -> (tensor<4xf32> {jax.result_info = \"a, (b\"}) {} }\n// fake: add\n// fake: run-ms 10\n");
  pj_buffer *b[3] = {put(1), put(2)};
  CHECK_OK(pj_execute(donating, 0, b, 2, &b[2]));
  float values[4];
  CHECK_FAILS(pj_buffer_to_host(client, b[0], values, sizeof values), PJ_FAILED_PRECONDITION, "donated");
  pj_buffer *again[2] = {b[0], b[1]}, *twice[2] = {b[1], b[1]}, *none;
  CHECK_FAILS(pj_execute(donating, 0, again, 2, &none), PJ_INVALID_ARGUMENT, "deleted or donated");
  CHECK_FAILS(pj_execute(donating, 0, twice, 2, &none), PJ_INVALID_ARGUMENT, "a second time");
  CHECK(holds(b[2], 3, 2));
  pj_compiled_memory memory;
  CHECK_OK(pj_executable_memory(donating, &memory));
  CHECK(memory.argument == 32 && memory.output == 16 && memory.alias == 16 && memory.peak == -1);
  destroy(b, 3);
  pj_executable_destroy(donating);
}

static void short_memory_is_an_error_and_leaves_nothing_behind(void) {
  pj_executable *two = compile(
      "module { func.func public @main(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<1024xf32>) {} }\n");
  pj_buffer *argument = put(1), *results[2] = {argument, argument};
  int64_t before = fake->counts().bytes;
  fake->memory_limit(100);
  CHECK_FAILS(pj_execute(two, 0, &argument, 1, results), PJ_RESOURCE_EXHAUSTED, "4096 bytes");
  CHECK(!results[0] && !results[1]);
  pj_buffer *none;
  CHECK_FAILS(pj_buffer_from_host(client, 0, "", PJ_U8, 1, (int64_t[]){1 << 20}, PJ_HOST_COPY, NULL, &none),
              PJ_RESOURCE_EXHAUSTED, "1048576 bytes");
  pj_memory_stats stats;
  CHECK_OK(pj_client_memory_stats(client, 0, &stats));
  CHECK(stats.in_use == before && stats.limit == 100 && stats.peak == -1 && stats.reserved == -1);
  fake->memory_limit(0);
  CHECK_OK(pj_execute(two, 0, &argument, 1, results));
  destroy(results, 2);
  destroy(&argument, 1);
  pj_executable_destroy(two);
}

static void each_failing_step_of_a_compile_or_load_leaves_nothing_behind(void) {
  pj_executable *executable = compile(ADD), *none;
  uint8_t *bytes;
  size_t size;
  CHECK_OK(pj_executable_serialize(executable, &bytes, &size));
  const char *slots[] = {"PJRT_LoadedExecutable_GetExecutable", "PJRT_LoadedExecutable_AddressableDevices",
                         "PJRT_Executable_NumOutputs", "PJRT_Executable_OutputElementTypes",
                         "PJRT_Executable_OutputDimensions"};
  for (size_t i = 0; i < sizeof slots / sizeof slots[0]; ++i) {
    fake->fail(slots[i], PJ_INTERNAL, "broken", 2);
    CHECK_FAILS(try_compile(ADD, &(pj_compile_options){.portable = true}, &none), PJ_INTERNAL, "broken");
    CHECK_FAILS(pj_executable_load(client, bytes, size, NULL, 0, &none), PJ_INTERNAL, "broken");
    CHECK(!none && fake->counts().loaded_executables == 1 && fake->counts().executables == 1);
  }
  fake->fail("PJRT_Executable_Serialize", PJ_UNIMPLEMENTED, "not here", 1);
  uint8_t *no_bytes;
  size_t no_size;
  CHECK_FAILS(pj_executable_serialize(executable, &no_bytes, &no_size), PJ_UNIMPLEMENTED, "not here");
  CHECK(!no_bytes);
  free(bytes);
  pj_executable_destroy(executable);
}

static void a_plugin_that_does_not_tell_output_types_still_runs(void) {
  fake->fail("PJRT_Executable_OutputElementTypes", PJ_UNIMPLEMENTED, "not here", 1);
  pj_executable *add = compile(ADD);
  pj_dtype dtype;
  int rank;
  int64_t dims[PJ_MAX_RANK];
  CHECK_FAILS(pj_executable_output_type(add, 0, &dtype, &rank, dims), PJ_UNIMPLEMENTED, "does not tell");
  pj_buffer *b[3] = {put(1), put(2)};
  CHECK_OK(pj_execute(add, 0, b, 2, &b[2]));
  CHECK(holds(b[2], 3, 2));
  destroy(b, 3);
  pj_executable_destroy(add);
}

static void compile_errors_keep_code_and_words(void) {
  pj_executable *none;
  pj_compile_options options = {.portable = true};
  CHECK_FAILS(try_compile("not a program", &options, &none), PJ_INVALID_ARGUMENT, "a module is expected");
  CHECK_FAILS(try_compile(ADD "// fake: compile-fail 8 Ran out of memory on HBM\n", &options, &none),
              PJ_RESOURCE_EXHAUSTED, "Ran out of memory on HBM");
  fake->fail("PJRT_Client_Compile", 16, "no code of ours", 1);
  CHECK_FAILS(try_compile(ADD, &options, &none), PJ_UNKNOWN, "no code of ours");
}

static void an_error_that_went_through_many_programs_is_told_once(void) {
#define LATE "Error dispatching computation: "
  fake->fail("PJRT_Client_Compile", PJ_INTERNAL, LATE LATE LATE "Out of memory allocating 8 bytes", 1);
  pj_executable *none;
  pj_status status = try_compile(ADD, &(pj_compile_options){.portable = true}, &none);
  CHECK(pj_status_code(status) == PJ_RESOURCE_EXHAUSTED);
  CHECK(strstr(pj_status_text(status), LATE "Out of memory") && !strstr(pj_status_text(status), LATE LATE));
  pj_status_free(status);
}

static void many_arguments_and_many_results_pass_through(void) {
  enum { COUNT = 300 };
  char *code = malloc(64 * COUNT), *at = code;
  at += sprintf(at, "module { func.func public @main(");
  for (int i = 0; i < COUNT; ++i) at += sprintf(at, "%s%%a%d: tensor<4xf32>", i ? ", " : "", i);
  at += sprintf(at, ") -> (");
  for (int i = 0; i < COUNT; ++i) at += sprintf(at, "%stensor<4xf32>", i ? ", " : "");
  sprintf(at, ") {} }\n// fake: copy\n");
  pj_executable *copy = compile(code);
  free(code);
  CHECK(pj_executable_output_count(copy) == COUNT);
  pj_buffer *arguments[COUNT], *results[COUNT];
  for (int i = 0; i < COUNT; ++i) arguments[i] = put((float)i);
  CHECK_OK(pj_execute(copy, 1, arguments, COUNT, results));
  for (int i = 0; i < COUNT; ++i) CHECK(holds(results[i], (float)i, 1));
  destroy(results, COUNT);
  CHECK_FAILS(pj_execute(copy, 1, arguments, COUNT - 1, results), PJ_INVALID_ARGUMENT, "supplied 299 buffers");
  destroy(results, COUNT);  // NULLs
  destroy(arguments, COUNT);
  pj_executable_destroy(copy);
}

static void partitions_run_in_one_launch(void) {
  int64_t ids[] = {10, 11};
  pj_executable *both = NULL;
  CHECK_OK(try_compile(ADD, &(pj_compile_options){.num_partitions = 2, .device_ids = ids}, &both));
  pj_buffer *b[6] = {put(1), put(2), put(3), put(4)};
  CHECK_OK(pj_execute_spmd(both, 2, (pj_buffer *const *const[]){b, b + 2}, 2, (pj_buffer **const[]){b + 4, b + 5}));
  CHECK(holds(b[4], 3, 2) && holds(b[5], 7, 2));
  CHECK_FAILS(pj_execute_spmd(both, 1, (pj_buffer *const *const[]){b}, 2, (pj_buffer **const[]){b}),
              PJ_INVALID_ARGUMENT, "arguments for 1 devices; the program was compiled for 2");
  pj_executable *portable = compile(ADD);
  CHECK_FAILS(pj_execute_spmd(portable, 0, NULL, 2, NULL), PJ_INVALID_ARGUMENT, "arguments for 0 devices");
  destroy(b, 6);
  pj_executable_destroy(both);
  pj_executable_destroy(portable);
}

static void a_program_for_one_device_refuses_another(void) {
  int64_t id = 10;
  pj_executable *fixed = NULL;
  CHECK_OK(try_compile(ADD, &(pj_compile_options){.device_ids = &id}, &fixed));
  pj_buffer *b[3] = {put(1), put(2)};
  CHECK_OK(pj_execute(fixed, 0, b, 2, &b[2]));
  CHECK(holds(b[2], 3, 2));
  pj_buffer *none;
  CHECK_FAILS(pj_execute(fixed, 1, b, 2, &none), PJ_INVALID_ARGUMENT, "compiled for device 0");
  CHECK_FAILS(pj_execute(fixed, -1, b, 2, &none), PJ_INVALID_ARGUMENT, "device -1");
  destroy(b, 3);
  pj_executable_destroy(fixed);
}

static void ahead_of_time_compiles_tell_size_and_cost_and_do_not_run(void) {
  pj_topology *topology, *none;
  CHECK_FAILS(pj_topology_create(plugin, "", NULL, 0, &none), PJ_INVALID_ARGUMENT, "needs a name");
  CHECK_FAILS(pj_topology_create(plugin, "v6e:2x2", NULL, 0, &none), PJ_INVALID_ARGUMENT, "topology v6e:2x2 of");
  CHECK_OK(pj_topology_create(plugin, "fake:4", NULL, 0, &topology));
  CHECK(pj_topology_device_count(topology) == 4);
  uint8_t *options, *bytes;
  size_t options_size, size;
  pj_executable *executable = NULL;
  CHECK_OK(pj_compile_options_encode(&(pj_compile_options){0}, &options, &options_size));
  CHECK_OK(pj_topology_compile(topology, ADD, strlen(ADD), options, options_size, &executable));
  free(options);
  pj_compiled_cost cost;
  CHECK_OK(pj_executable_cost(executable, &cost));
  CHECK(cost.flops == 123 && cost.bytes_accessed == -1 && cost.optimal_seconds == -1);
  CHECK_OK(pj_executable_serialize(executable, &bytes, &size));
  CHECK(size > strlen(ADD));
  free(bytes);
  pj_buffer *result;
  CHECK_FAILS(pj_execute(executable, 0, NULL, 0, &result), PJ_FAILED_PRECONDITION, "ahead of time");
  CHECK_FAILS(pj_execute_spmd(executable, 1, NULL, 0, NULL), PJ_FAILED_PRECONDITION, "ahead of time");
  pj_executable_destroy(executable);
  pj_topology_destroy(topology);
}

static void *chain(void *argument) {
  pj_executable *add = argument;
  pj_buffer *one = put(1), *sum = put(0);
  for (int i = 0; i < 200; ++i) {
    pj_buffer *arguments[2] = {sum, one}, *next = NULL;
    CHECK_OK(pj_execute(add, 0, arguments, 2, &next));
    pj_buffer_destroy(client, sum);
    sum = next;
  }
  bool right = holds(sum, 200, 201);
  pj_buffer_destroy(client, one);
  pj_buffer_destroy(client, sum);
  return right ? NULL : argument;
}

static void threads_share_a_client_and_an_executable(void) {
  for (int late = 0; late < 2; ++late) {
    fake->asynchronous(late);
    pj_executable *add = compile(ADD);
    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) CHECK(!pthread_create(&threads[i], NULL, chain, add));
    for (int i = 0; i < 4; ++i) {
      void *wrong;
      CHECK(!pthread_join(threads[i], &wrong) && !wrong);
    }
    pj_executable_destroy(add);
  }
  fake->asynchronous(false);
}

// The fake plugin on platform "cpu" reads in place: no transfer is counted.
static void small_buffers_of_a_cpu_plugin_are_read_in_place(void) {
  fake_counts before = fake->counts();
  pj_buffer *buffer = put(1);
  CHECK(holds(buffer, 1, 1));
  bool in_place = !strcmp(pj_client_platform(client), "cpu");
  CHECK(fake->counts().to_host - before.to_host == (in_place ? 0 : 1));
  float values[4] = {0};
  CHECK_OK(pj_buffer_to_host_ready(client, buffer, values, sizeof values));
  CHECK(values[0] == 1 && values[3] == 4);
  CHECK(fake->counts().to_host - before.to_host == (in_place ? 0 : 2));
  pj_buffer_destroy(client, buffer);
}

static void nothing_is_left_alive(void) {
  fake_counts counts = fake->counts();
  CHECK(fake_plugin_is_empty(counts));
  CHECK(counts.compiles > 0 && counts.executions > 0 && counts.loads > 0);
}

int main(void) {
  fake = fake_plugin_control(FAKE_PLUGIN);
  CHECK_OK(pj_plugin_load(FAKE_PLUGIN, &plugin));
  CHECK_OK(pj_client_create(plugin, NULL, 0, &client));
  if (!client) return test_end();
  RUN(the_client_describes_itself);
  RUN(client_options_reach_the_plugin_and_its_refusal_comes_back);
  RUN(an_option_without_a_name_or_value_is_refused);
  RUN(the_plugins_noise_stays_out_of_stderr_and_stderr_comes_back);
  RUN(clients_made_on_several_threads_give_stderr_back);
  RUN(a_client_whose_description_fails_is_destroyed);
  RUN(late_results_are_waited_for_in_order);
  RUN(a_cancelled_wait_ends_and_the_computation_goes_on);
  RUN(a_failed_computation_is_told_by_every_later_reader);
  RUN(donation_takes_the_argument_even_while_the_work_waits);
  RUN(short_memory_is_an_error_and_leaves_nothing_behind);
  RUN(each_failing_step_of_a_compile_or_load_leaves_nothing_behind);
  RUN(a_plugin_that_does_not_tell_output_types_still_runs);
  RUN(compile_errors_keep_code_and_words);
  RUN(an_error_that_went_through_many_programs_is_told_once);
  RUN(many_arguments_and_many_results_pass_through);
  RUN(partitions_run_in_one_launch);
  RUN(a_program_for_one_device_refuses_another);
  RUN(ahead_of_time_compiles_tell_size_and_cost_and_do_not_run);
  RUN(threads_share_a_client_and_an_executable);
  RUN(small_buffers_of_a_cpu_plugin_are_read_in_place);
  pj_client_destroy(client);
  RUN(nothing_is_left_alive);
  return test_end();
}
