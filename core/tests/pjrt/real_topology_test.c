// Compiles for TPUs that need not exist, with the libtpu.so that PJ_TPU_PLUGIN names; without it nothing is tested.
#include "pj/pjrt.h"
#include "test.h"

static pj_plugin *plugin;

static const char MATMUL[] =
    "module @matmul { func.func public @main(%a: tensor<512x512xbf16>, %b: tensor<512x512xbf16>)"
    " -> tensor<512x512xbf16> {\n"
    "  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]"
    " : (tensor<512x512xbf16>, tensor<512x512xbf16>) -> tensor<512x512xbf16>\n"
    "  return %c : tensor<512x512xbf16> } }";
static const char TOO_LARGE[] =
    "module @large { func.func public @main(%a: tensor<10000000000xf32>) -> tensor<10000000000xf32> {\n"
    "  %c = stablehlo.add %a, %a : tensor<10000000000xf32>\n"
    "  return %c : tensor<10000000000xf32> } }";

// One chip; libtpu wants the bounds of a host for it.
static pj_topology *one_chip(const char *name) {
  const int64_t bounds[] = {1, 1, 1};
  pj_option option = {.name = "chips_per_host_bounds", .kind = PJ_OPTION_INTS, .ints = bounds, .count = 3};
  pj_topology *topology = NULL;
  CHECK_OK(pj_topology_create(plugin, name, &option, 1, &topology));
  return topology;
}

static pj_status compile(pj_topology *topology, const char *code, const pj_compile_options *options,
                         pj_executable **out_executable) {
  uint8_t *bytes;
  size_t size;
  PJ_TRY(pj_compile_options_encode(options, &bytes, &size));
  pj_status status = pj_topology_compile(topology, code, strlen(code), bytes, size, out_executable);
  free(bytes);
  return status;
}

static void topologies_tell_their_devices(void) {
  pj_topology *topology;
  CHECK_OK(pj_topology_create(plugin, "v6e:2x2", NULL, 0, &topology));
  CHECK(pj_topology_device_count(topology) == 4);
  pj_topology_destroy(topology);
  topology = one_chip("tpu7x:1x1x1");
  CHECK(pj_topology_device_count(topology) == 2);  // two devices a chip
  pj_topology_destroy(topology);
  CHECK_FAILS(pj_topology_create(plugin, "v6e-4", NULL, 0, &topology), PJ_INVALID_ARGUMENT, "topology v6e-4 of");
}

static void a_program_tells_its_memory_cost_and_bytes(void) {
  pj_topology *topology = one_chip("v6e:1x1");
  pj_executable *executable = NULL;
  CHECK_OK(compile(topology, MATMUL, &(pj_compile_options){.optimization_level = 9}, &executable));
  pj_compiled_memory memory;
  CHECK_OK(pj_executable_memory(executable, &memory));
  CHECK(memory.argument == 2 * 512 * 512 * 2 && memory.output == 512 * 512 * 2 && memory.code > 0 && memory.peak > 0);
  pj_compiled_cost cost;
  CHECK_OK(pj_executable_cost(executable, &cost));
  CHECK(cost.flops >= 2.0 * 512 * 512 * 512 && cost.bytes_accessed > 0 && cost.optimal_seconds > 0);
  pj_dtype dtype;
  int rank;
  int64_t dims[PJ_MAX_RANK];
  CHECK(pj_executable_output_count(executable) == 1);
  CHECK_OK(pj_executable_output_type(executable, 0, &dtype, &rank, dims));
  CHECK(dtype == PJ_BF16 && rank == 2 && dims[0] == 512 && dims[1] == 512);
  uint8_t *bytes;
  size_t size;
  CHECK_OK(pj_executable_serialize(executable, &bytes, &size));
  CHECK(size > 1000);
  free(bytes);
  pj_buffer *none;
  CHECK_FAILS(pj_execute(executable, 0, NULL, 0, &none), PJ_FAILED_PRECONDITION, "ahead of time");
  pj_executable_destroy(executable);
  pj_topology_destroy(topology);
}

static void a_program_that_does_not_fit_is_told_before_any_chip_is_rented(void) {
  pj_topology *topology = one_chip("v6e:1x1");
  pj_executable *none;
  CHECK_FAILS(compile(topology, TOO_LARGE, &(pj_compile_options){0}, &none), PJ_RESOURCE_EXHAUSTED,
              "Ran out of memory on HBM");
  pj_topology_destroy(topology);
}

int main(void) {
  const char *path = test_plugin("PJ_TPU_PLUGIN");
  // No chip is used: libtpu shall neither ask the cloud's metadata server, nor take the machine's lock, nor write logs.
  setenv("TPU_SKIP_MDS_QUERY", "1", 0);
  setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 0);
  setenv("TPU_WORKER_HOSTNAMES", "localhost", 0);
  setenv("TPU_ACCELERATOR_TYPE", "v6e-1", 0);
  setenv("TPU_LOG_DIR", "disabled", 0);
  CHECK_OK(pj_plugin_load(path, &plugin));
  if (!plugin) return test_end();
  RUN(topologies_tell_their_devices);
  RUN(a_program_tells_its_memory_cost_and_bytes);
  RUN(a_program_that_does_not_fit_is_told_before_any_chip_is_rented);
  return test_end();
}
