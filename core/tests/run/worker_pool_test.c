// Workers that compile for TPUs that need not exist, with the libtpu.so that PJ_TPU_PLUGIN names.
#include "run/worker_pool.h"

#include "test.h"

static const char *plugin_path;

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

static pj_status compile(pj_worker_pool *pool, const char *code, size_t *out_size, pj_worker_outcome *out_outcome) {
  uint8_t *options, *bytes = NULL;
  size_t options_size;
  pj_patience patience = {.timeout_ms = 120000};
  CHECK_OK(pj_compile_options_encode(&(pj_compile_options){0}, &options, &options_size));
  int64_t start = pj_now_ms();
  pj_status status = pj_worker_pool_compile(pool, code, strlen(code), options, options_size, &patience, &bytes,
                                            out_size, out_outcome);
  printf("# %lld ms: %s\n", (long long)(pj_now_ms() - start), status ? pj_status_text(status) : "compiled");
  free(options);
  free(bytes);
  return status;
}

static void a_worker_compiles_for_a_chip_that_need_not_exist(void) {
  const int64_t bounds[] = {1, 1, 1};
  pj_option option = {.name = "chips_per_host_bounds", .kind = PJ_OPTION_INTS, .ints = bounds, .count = 3};
  pj_worker_settings settings = {.topology = "v6e:1x1", .options = &option, .option_count = 1};
  pj_worker_pool *pool = NULL;
  uint8_t *bytes = NULL;
  size_t size = 0;
  pj_worker_outcome outcome;
  CHECK_OK(pj_worker_settings_encode(&settings, &bytes, &size));
  CHECK_OK(pj_worker_pool_create(PJ_WORKER_PATH, plugin_path, bytes, size, 1, &pool));
  free(bytes);
  CHECK_OK(compile(pool, MATMUL, &size, &outcome));
  CHECK(outcome == PJ_WORKER_ANSWERED && size > 1000);
  CHECK_FAILS(compile(pool, TOO_LARGE, &size, &outcome), PJ_RESOURCE_EXHAUSTED, "Ran out of memory on HBM");
  CHECK(outcome == PJ_WORKER_ANSWERED);  // the compiler's own word, no death
  CHECK_OK(compile(pool, MATMUL, &size, &outcome));
  pj_worker_pool_destroy(pool);
}

int main(void) {
  plugin_path = test_plugin("PJ_TPU_PLUGIN");
  RUN(a_worker_compiles_for_a_chip_that_need_not_exist);
  return test_end();
}
