// A client of the plugin that PJ_PLUGIN names, and programs of the writer run on it.
#ifndef PJ_TESTS_HLO_PLUGIN_H_
#define PJ_TESTS_HLO_PLUGIN_H_

#include "hlo/hlo.h"
#include "pj/pjrt.h"
#include "test.h"

static pj_client *plugin_client;

// False, with a line that says so, when PJ_PLUGIN is not set.
static bool plugin_open(void) {
  const char *path = getenv("PJ_PLUGIN");
  if (!path || !*path) {
    printf("skipped on a plugin: PJ_PLUGIN names none\n");
    return false;
  }
  pj_plugin *plugin = NULL;
  CHECK_OK(pj_plugin_load(path, &plugin));
  pj_option one = {.name = "cpu_device_count", .kind = PJ_OPTION_INT, .integer = 1};
  if (plugin) CHECK_OK(pj_client_create(plugin, &one, strstr(path, "cpu") != NULL, &plugin_client));
  return plugin_client != NULL;
}

static void plugin_close(void) { pj_client_destroy(plugin_client); }

static pj_status plugin_compile(const char *text, size_t size, pj_executable **out_executable) {
  pj_compile_options options = {.portable = true};
  uint8_t *bytes = NULL;
  size_t byte_count = 0;
  PJ_TRY(pj_compile_options_encode(&options, &bytes, &byte_count));
  pj_status status = pj_compile(plugin_client, text, size, bytes, byte_count, out_executable);
  free(bytes);
  return status;
}

#endif
