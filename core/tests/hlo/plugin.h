// A client of the plugin that PJ_PLUGIN names, and programs of the writer run on it.
#ifndef PJ_TESTS_HLO_PLUGIN_H_
#define PJ_TESTS_HLO_PLUGIN_H_

#include "hlo/hlo.h"
#include "pj/pjrt.h"
#include "test.h"

static pj_client *plugin_client;

// False, with a line that says so, when PJ_PLUGIN is not set.
static inline bool plugin_open(void) {
  const char *path = test_plugin_or_none("PJ_PLUGIN");
  if (!path) {
    printf("skipped on a plugin: PJ_PLUGIN names none\n");
    return false;
  }
  pj_plugin *plugin = NULL;
  CHECK_OK(pj_plugin_load(path, &plugin));
  pj_option one = {.name = "cpu_device_count", .kind = PJ_OPTION_INT, .integer = 1};
  if (plugin) CHECK_OK(pj_client_create(plugin, &one, strstr(path, "cpu") != NULL, &plugin_client));
  return plugin_client != NULL;
}

static inline void plugin_close(void) { pj_client_destroy(plugin_client); }

static inline pj_status plugin_compile(const char *text, size_t size, pj_executable **out_executable) {
  pj_compile_options options = {.portable = true};
  uint8_t *bytes = NULL;
  size_t byte_count = 0;
  PJ_TRY(pj_compile_options_encode(&options, &bytes, &byte_count));
  pj_status status = pj_compile(plugin_client, text, size, bytes, byte_count, out_executable);
  free(bytes);
  return status;
}

// Runs the module: `inputs` are the host bytes of `parameters`, in order; `outputs` receive those of `results`.
// Destroys it.
static inline void plugin_run(hlo *h, const hlo_value *parameters, const void *const *inputs, size_t input_count,
                              const hlo_value *results, void *const *outputs, size_t output_count) {
  enum { MOST = 64 };
  pj_buffer *arguments[MOST] = {NULL}, *produced[MOST] = {NULL};
  pj_executable *executable = NULL;
  const char *text;
  size_t size;
  pj_status status = hlo_finish(h, results, output_count, &text, &size);
  if (!status) status = plugin_compile(text, size, &executable);
  for (size_t i = 0; !status && i < input_count; ++i)
    status = pj_buffer_from_host(plugin_client, 0, inputs[i], parameters[i].dtype, parameters[i].rank,
                                 parameters[i].dims, PJ_HOST_COPY, NULL, &arguments[i]);
  if (!status) status = pj_execute(executable, 0, arguments, input_count, produced);
  for (size_t i = 0; !status && i < output_count; ++i)
    status = pj_buffer_to_host(plugin_client, produced[i], outputs[i],
                               (size_t)hlo_size(results[i]) * pj_dtype_size(results[i].dtype));
  CHECK_OK(status);
  for (int i = 0; i < MOST; ++i) {
    pj_buffer_destroy(plugin_client, arguments[i]);
    pj_buffer_destroy(plugin_client, produced[i]);
  }
  pj_executable_destroy(executable);
  hlo_destroy(h);
}

#endif
