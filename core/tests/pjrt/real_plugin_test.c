// Runs on the plugin that PJ_PLUGIN names; without it there is nothing to test.
#include "pj/pjrt.h"
#include "test.h"

static pj_plugin *plugin;
static pj_client *client;  // two devices on a CPU plugin

static const char ADD[] =
    "module @add { func.func public @main(%a: tensor<9xf32>, %b: tensor<9xf32>) -> tensor<9xf32> {\n"
    "  %c = stablehlo.add %a, %b : tensor<9xf32>\n  return %c : tensor<9xf32> } }";
static const char ADD_DONATED[] =
    "module @add { func.func public @main(%a: tensor<9xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<9xf32>)"
    " -> tensor<9xf32> {\n  %c = stablehlo.add %a, %b : tensor<9xf32>\n  return %c : tensor<9xf32> } }";
static const char TRANSPOSE_TWO_RESULTS[] =
    "module @t { func.func public @main(%a: tensor<2x3xi32>) -> (tensor<3x2xi32>, tensor<i1>) {\n"
    "  %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xi32>) -> tensor<3x2xi32>\n"
    "  %c = stablehlo.constant dense<true> : tensor<i1>\n"
    "  return %t, %c : tensor<3x2xi32>, tensor<i1> } }";

static pj_executable *compile(const char *code, const pj_compile_options *options) {
  uint8_t *bytes;
  size_t size;
  pj_executable *executable = NULL;
  CHECK_OK(pj_compile_options_encode(options, &bytes, &size));
  CHECK_OK(pj_compile(client, code, strlen(code), bytes, size, &executable));
  free(bytes);
  return executable;
}

static pj_buffer *put_nine(int device, float first) {
  float values[9];
  for (int i = 0; i < 9; ++i) values[i] = first + (float)i;
  pj_buffer *buffer = NULL;
  CHECK_OK(pj_buffer_from_host(client, device, values, PJ_F32, 1, (int64_t[]){9}, PJ_HOST_COPY, NULL, &buffer));
  return buffer;
}

static bool is_nine(pj_buffer *buffer, float first, float step) {
  float values[9] = {0};
  CHECK_OK(pj_buffer_to_host(client, buffer, values, sizeof values));
  for (int i = 0; i < 9; ++i)
    if (values[i] != first + step * (float)i) return false;
  return true;
}

static void run_add(pj_executable *executable, int device) {
  pj_buffer *arguments[] = {put_nine(device, 1), put_nine(device, 2)}, *result = NULL;
  CHECK_OK(pj_execute(executable, device, arguments, 2, &result));
  CHECK(is_nine(result, 3, 2));
  for (int i = 0; i < 2; ++i) pj_buffer_destroy(client, arguments[i]);
  pj_buffer_destroy(client, result);
}

static void the_plugin_tells_its_version_and_attributes(void) {
  int major, minor;
  pj_plugin_api_version(plugin, &major, &minor);
  CHECK(major == 0 && minor >= 57);
  CHECK(pj_plugin_attribute(plugin, "stablehlo_current_version") != NULL);
  CHECK(pj_plugin_attribute(plugin, "no such attribute") == NULL);
  CHECK(pj_plugin_has(plugin, "PJRT_Client_Create"));
  CHECK(!pj_plugin_has(plugin, "PJRT_No_Such_Slot"));
  printf("# %s: API %d.%d, StableHLO %s, platform %s, %d devices of kind %s\n", pj_plugin_path(plugin), major, minor,
         pj_plugin_attribute(plugin, "stablehlo_current_version"), pj_client_platform(client),
         pj_client_device_count(client), pj_client_device_kind(client, 0));
}

static void a_second_load_gives_the_same_plugin(void) {
  pj_plugin *again = NULL;
  CHECK_OK(pj_plugin_load(pj_plugin_path(plugin), &again));
  CHECK(again == plugin);
}

static void a_buffer_gives_back_its_bytes_and_its_type(void) {
  enum { LARGE = 100000 };  // above and below the size that is read in place
  int32_t *large = malloc(LARGE * sizeof *large), *back = malloc(LARGE * sizeof *back);
  for (int32_t i = 0; i < LARGE; ++i) large[i] = i;
  const pj_host_semantics semantics[] = {PJ_HOST_COPY, PJ_HOST_UNTIL_DONE, PJ_HOST_FROZEN};
  for (int s = 0; s < 3; ++s)
    for (int64_t count = 0; count <= LARGE; count = count ? count * 100 : 1) {
      pj_buffer *buffer;
      pj_event *done = NULL;
      CHECK_OK(pj_buffer_from_host(client, 0, large, PJ_S32, 2, (int64_t[]){count, 1}, semantics[s], &done, &buffer));
      pj_dtype dtype;
      int rank;
      int64_t dims[PJ_MAX_RANK];
      CHECK_OK(pj_buffer_type(client, buffer, &dtype, &rank, dims));
      CHECK(dtype == PJ_S32 && rank == 2 && dims[0] == count && dims[1] == 1);
      size_t size = (size_t)count * sizeof *back;
      memset(back, 0xff, size);
      CHECK_OK(pj_buffer_to_host(client, buffer, back, size));
      CHECK(!memcmp(back, large, size));
      pj_event *read;
      memset(back, 0xff, size);
      CHECK_OK(pj_buffer_to_host_async(client, buffer, back, size, &read));
      CHECK_OK(pj_event_wait(client, read));
      CHECK(!memcmp(back, large, size));
      pj_event_destroy(client, read);
      pj_buffer_destroy(client, buffer);
      CHECK_OK(pj_event_wait(client, done));
      pj_event_destroy(client, done);
    }
  free(large);
  free(back);
}

static void a_scalar_and_each_element_type_round_trip(void) {
  for (int dtype = 1; dtype < PJ_DTYPE_COUNT; ++dtype) {
    uint8_t value[16] = {1}, back[16] = {0};
    pj_buffer *buffer;
    size_t size = pj_dtype_size((pj_dtype)dtype);
    CHECK_OK(pj_buffer_from_host(client, 0, value, (pj_dtype)dtype, 0, NULL, PJ_HOST_COPY, NULL, &buffer));
    CHECK_OK(pj_buffer_to_host(client, buffer, back, size));
    CHECK(!memcmp(value, back, size));
    pj_buffer_destroy(client, buffer);
  }
}

static void bad_buffers_are_refused_before_the_plugin_sees_them(void) {
  float value = 0;
  pj_buffer *none;
  const int64_t one[1] = {1}, negative[1] = {-1}, huge[2] = {1ll << 40, 1ll << 40};
  CHECK_FAILS(pj_buffer_from_host(client, 99, &value, PJ_F32, 1, one, PJ_HOST_COPY, NULL, &none), PJ_INVALID_ARGUMENT,
              "device 99");
  CHECK_FAILS(pj_buffer_from_host(client, 0, &value, PJ_INVALID, 1, one, PJ_HOST_COPY, NULL, &none),
              PJ_INVALID_ARGUMENT, "element type 0");
  CHECK_FAILS(pj_buffer_from_host(client, 0, &value, PJ_F32, 1, negative, PJ_HOST_COPY, NULL, &none),
              PJ_INVALID_ARGUMENT, "-1");
  CHECK_FAILS(pj_buffer_from_host(client, 0, &value, PJ_F32, 2, huge, PJ_HOST_COPY, NULL, &none),
              PJ_INVALID_ARGUMENT, "more bytes");
  CHECK_FAILS(pj_buffer_from_host(client, 0, &value, PJ_F32, 99, NULL, PJ_HOST_COPY, NULL, &none),
              PJ_INVALID_ARGUMENT, "99 dimensions");
  CHECK_FAILS(pj_buffer_from_host(client, 0, NULL, PJ_F32, 1, one, PJ_HOST_COPY, NULL, &none), PJ_INVALID_ARGUMENT,
              "no address");
  CHECK_FAILS(pj_buffer_from_host(client, 0, &value, PJ_F32, 1, one, PJ_HOST_FROZEN, NULL, &none),
              PJ_INVALID_ARGUMENT, "event");
  pj_buffer *nine = put_nine(0, 0);
  char room[8];
  CHECK_FAILS(pj_buffer_to_host(client, nine, room, sizeof room), PJ_INVALID_ARGUMENT, "36 bytes");
  pj_buffer_destroy(client, nine);
}

static void a_portable_program_runs_on_each_device(void) {
  pj_executable *executable = compile(ADD, &(pj_compile_options){.portable = true});
  for (int device = 0; device < pj_client_device_count(client); ++device) run_add(executable, device);
  pj_buffer *none;
  CHECK_FAILS(pj_execute(executable, 99, NULL, 0, &none), PJ_INVALID_ARGUMENT, "device 99");
  pj_executable_destroy(executable);
}

static void an_assigned_program_runs_on_its_device_only(void) {
  int last = pj_client_device_count(client) - 1;
  int64_t id = pj_client_device_id(client, last);
  pj_executable *executable = compile(ADD, &(pj_compile_options){.device_ids = &id});
  run_add(executable, last);
  pj_buffer *none;
  if (last > 0) CHECK_FAILS(pj_execute(executable, 0, NULL, 0, &none), PJ_INVALID_ARGUMENT, "cannot run on device 0");
  pj_executable_destroy(executable);
}

static void collectives_meet_in_one_launch(void) {
  if (pj_client_device_count(client) < 2) return;
  static const char all_reduce[] =
      "module @sum attributes {mhlo.num_partitions = 2 : i32} {\n"
      "func.func public @main(%a: tensor<9xf32>) -> tensor<9xf32> {\n"
      "  %c = \"stablehlo.all_reduce\"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,\n"
      "      replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({\n"
      "    ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
      "      %s = stablehlo.add %x, %y : tensor<f32>\n"
      "      stablehlo.return %s : tensor<f32>\n"
      "  }) : (tensor<9xf32>) -> tensor<9xf32>\n"
      "  return %c : tensor<9xf32> } }";
  for (int first = 0; first < 2; ++first) {  // either device may hold the first partition
    int64_t ids[] = {pj_client_device_id(client, first), pj_client_device_id(client, !first)};
    pj_executable *executable = compile(all_reduce, &(pj_compile_options){.num_partitions = 2, .device_ids = ids});
    for (int i = 0; i < 20; ++i) {
      pj_buffer *arguments[] = {put_nine(first, 1), put_nine(!first, 10)}, *results[2];
      CHECK_OK(pj_execute_spmd(executable, 2, (pj_buffer *const *const[]){arguments, arguments + 1}, 1,
                               (pj_buffer **const[]){results, results + 1}));
      for (int d = 0; d < 2; ++d) {
        CHECK(is_nine(results[d], 11, 2));
        pj_buffer_destroy(client, arguments[d]);
        pj_buffer_destroy(client, results[d]);
      }
    }
    pj_executable_destroy(executable);
  }
}

static void a_serialized_program_loads_and_runs(void) {
  pj_executable *first = compile(ADD, &(pj_compile_options){.portable = true}), *second = NULL;
  uint8_t *bytes;
  size_t size;
  CHECK_OK(pj_executable_serialize(first, &bytes, &size));
  pj_executable_destroy(first);
  CHECK_OK(pj_executable_load(client, bytes, size, NULL, 0, &second));
  for (int device = 0; device < pj_client_device_count(client); ++device) run_add(second, device);
  pj_executable_destroy(second);
  pj_executable *none;
  CHECK_FAILS(pj_executable_load(client, bytes, 0, NULL, 0, &none), PJ_INVALID_ARGUMENT, "empty");
  free(bytes);
}

static void a_program_tells_its_outputs_and_reads_row_major(void) {
  pj_executable *executable = compile(TRANSPOSE_TWO_RESULTS, &(pj_compile_options){.portable = true});
  CHECK(pj_executable_output_count(executable) == 2);
  pj_dtype dtype;
  int rank;
  int64_t dims[PJ_MAX_RANK];
  CHECK_OK(pj_executable_output_type(executable, 0, &dtype, &rank, dims));
  CHECK(dtype == PJ_S32 && rank == 2 && dims[0] == 3 && dims[1] == 2);
  CHECK_OK(pj_executable_output_type(executable, 1, &dtype, &rank, dims));
  CHECK(dtype == PJ_PRED && rank == 0);
  const int32_t values[6] = {1, 2, 3, 4, 5, 6}, transposed[6] = {1, 4, 2, 5, 3, 6};
  pj_buffer *argument, *results[2];
  CHECK_OK(pj_buffer_from_host(client, 0, values, PJ_S32, 2, (int64_t[]){2, 3}, PJ_HOST_COPY, NULL, &argument));
  CHECK_OK(pj_execute(executable, 0, &argument, 1, results));
  int32_t back[6];
  bool yes = false;
  CHECK_OK(pj_buffer_to_host(client, results[0], back, sizeof back));
  CHECK_OK(pj_buffer_to_host(client, results[1], &yes, 1));
  CHECK(!memcmp(back, transposed, sizeof back) && yes);
  pj_buffer_destroy(client, argument);
  for (int i = 0; i < 2; ++i) pj_buffer_destroy(client, results[i]);
  pj_executable_destroy(executable);
}

static void a_donated_argument_is_gone_and_says_so(void) {
  pj_executable *executable = compile(ADD_DONATED, &(pj_compile_options){.portable = true});
  pj_buffer *arguments[] = {put_nine(0, 1), put_nine(0, 2)}, *result;
  CHECK_OK(pj_execute(executable, 0, arguments, 2, &result));
  CHECK(is_nine(result, 3, 2));
  float values[9];
  CHECK_FAILS(pj_buffer_to_host(client, arguments[0], values, sizeof values), PJ_FAILED_PRECONDITION, "donated");
  CHECK(is_nine(arguments[1], 2, 1));
  for (int i = 0; i < 2; ++i) pj_buffer_destroy(client, arguments[i]);
  pj_buffer_destroy(client, result);
  pj_executable_destroy(executable);
}

static void copying_to_another_device_keeps_the_values(void) {
  int last = pj_client_device_count(client) - 1;
  pj_buffer *here = put_nine(0, 5), *there;
  CHECK_OK(pj_buffer_copy_to_device(client, here, last, &there));
  pj_buffer_destroy(client, here);
  CHECK_OK(pj_buffer_wait(client, there));
  CHECK(pj_buffer_is_ready(client, there));
  CHECK(is_nine(there, 5, 1));
  pj_buffer_destroy(client, there);
}

static void the_pointer_of_a_cpu_buffer_shows_its_values(void) {
  if (strcmp(pj_client_platform(client), "cpu")) return;
  pj_buffer *buffer = put_nine(0, 7);
  uintptr_t address;
  CHECK_OK(pj_buffer_wait(client, buffer));
  CHECK_OK(pj_buffer_pointer(client, buffer, &address));
  CHECK(((const float *)address)[8] == 15);
  pj_buffer_destroy(client, buffer);
}

static void bad_programs_are_errors_with_the_compilers_words(void) {
  uint8_t *bytes;
  size_t size;
  pj_executable *none;
  CHECK_OK(pj_compile_options_encode(&(pj_compile_options){.portable = true}, &bytes, &size));
  const char bad[] = "module { func.func public @main() -> tensor<f32> { %a = stablehlo.no_such_op : tensor<f32> } }";
  CHECK_FAILS(pj_compile(client, bad, strlen(bad), bytes, size, &none), pj_status_code(check_status), "no_such_op");
  CHECK_FAILS(pj_compile(client, "", 0, bytes, size, &none), PJ_INVALID_ARGUMENT, "empty");
  CHECK_FAILS(pj_compile(client, ADD, strlen(ADD), NULL, 0, &none), PJ_INVALID_ARGUMENT, "options");
  free(bytes);
}

static void flag_overrides_are_read_and_unknown_ones_refused(void) {
  const char *good[] = {"xla_cpu_enable_fast_math=false", "xla_backend_optimization_level=1"};
  const char *bad[] = {"xla_no_such=1"};
  pj_executable *executable = compile(ADD, &(pj_compile_options){.portable = true, .flags = good, .flag_count = 2});
  run_add(executable, 0);
  pj_executable_destroy(executable);
  uint8_t *bytes;
  size_t size;
  pj_executable *none;
  CHECK_OK(pj_compile_options_encode(&(pj_compile_options){.flags = bad, .flag_count = 1}, &bytes, &size));
  CHECK_FAILS(pj_compile(client, ADD, strlen(ADD), bytes, size, &none), PJ_INVALID_ARGUMENT, "xla_no_such");
  free(bytes);
}

static void the_compiler_tells_a_programs_memory(void) {
  pj_executable *executable = compile(ADD, &(pj_compile_options){.portable = true});
  pj_compiled_memory memory;
  CHECK_OK(pj_executable_memory(executable, &memory));
  CHECK(memory.argument >= 72 && memory.output >= 36 && memory.alias == 0);
  pj_compiled_cost cost;
  pj_status status = pj_executable_cost(executable, &cost);
  CHECK(status ? pj_status_code(status) == PJ_UNIMPLEMENTED && cost.flops == -1 : cost.flops == 9);
  pj_status_free(status);
  pj_executable_destroy(executable);
}

static void count_call(pj_status status, void *argument) {
  *(int *)argument += status ? 100 : 1;
  pj_status_free(status);
}

static void an_event_calls_back_once(void) {
  pj_buffer *buffer = put_nine(0, 0);
  float values[9];
  pj_event *done;
  int calls = 0;
  CHECK_OK(pj_buffer_to_host_async(client, buffer, values, sizeof values, &done));
  CHECK_OK(pj_event_wait(client, done));
  CHECK(pj_event_is_ready(client, done));
  CHECK_OK(pj_event_on_ready(client, done, count_call, &calls));
  CHECK(calls == 1);
  pj_event_destroy(client, done);
  pj_buffer_destroy(client, buffer);
}

int main(void) {
  const char *path = test_plugin("PJ_PLUGIN");
  CHECK_OK(pj_plugin_load(path, &plugin));
  if (!plugin) return test_end();
  pj_option two = {.name = "cpu_device_count", .kind = PJ_OPTION_INT, .integer = 2};
  CHECK_OK(pj_client_create(plugin, &two, strstr(path, "cpu") != NULL, &client));
  if (!client) return test_end();
  RUN(the_plugin_tells_its_version_and_attributes);
  RUN(a_second_load_gives_the_same_plugin);
  RUN(a_buffer_gives_back_its_bytes_and_its_type);
  RUN(a_scalar_and_each_element_type_round_trip);
  RUN(bad_buffers_are_refused_before_the_plugin_sees_them);
  RUN(a_portable_program_runs_on_each_device);
  RUN(an_assigned_program_runs_on_its_device_only);
  RUN(collectives_meet_in_one_launch);
  RUN(a_serialized_program_loads_and_runs);
  RUN(a_program_tells_its_outputs_and_reads_row_major);
  RUN(a_donated_argument_is_gone_and_says_so);
  RUN(copying_to_another_device_keeps_the_values);
  RUN(the_pointer_of_a_cpu_buffer_shows_its_values);
  RUN(bad_programs_are_errors_with_the_compilers_words);
  RUN(flag_overrides_are_read_and_unknown_ones_refused);
  RUN(the_compiler_tells_a_programs_memory);
  RUN(an_event_calls_back_once);
  pj_client_destroy(client);
  return test_end();
}
