#include "run/program_key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sha256.h"

// Each part is preceded by its size, so that no two lists of parts look alike.
static void add(pj_sha256_state *state, const void *bytes, size_t size) {
  uint64_t prefix = size;
  pj_sha256_update(state, &prefix, sizeof prefix);
  pj_sha256_update(state, bytes, size);
}

static void add_text(pj_sha256_state *state, const char *text) {
  add(state, text ? text : "", text ? strlen(text) : 0);
}

static void add_number(pj_sha256_state *state, int64_t number) { add(state, &number, sizeof number); }

// The first processor's lines that say which instructions it has; the others change from moment to moment.
static void add_host_cpu(pj_sha256_state *state) {
  static const char *const FIELDS[] = {"vendor_id", "cpu family", "model", "model name", "stepping", "flags",
                                       "Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part",
                                       "isa", "uarch"};
  FILE *file = fopen("/proc/cpuinfo", "re");
  char *line = NULL;
  size_t room = 0;
  while (file && getline(&line, &room, file) > 1) {
    size_t name = strcspn(line, ":");
    while (name && (line[name - 1] == ' ' || line[name - 1] == '\t')) --name;
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; ++i)
      if (strlen(FIELDS[i]) == name && !memcmp(FIELDS[i], line, name)) add_text(state, line);
  }
  free(line);
  if (file) fclose(file);
}

void pj_program_key(const char *code, size_t code_size, const uint8_t *options, size_t options_size,
                    uint8_t out_key[PJ_KEY_SIZE]) {
  pj_sha256_state state;
  pj_sha256_init(&state);
  add(&state, code, code_size);
  add(&state, options, options_size);
  pj_sha256_final(&state, out_key);
}

void pj_environment_key(const pj_client *client, const uint8_t plugin_digest[32], uint8_t out_key[PJ_KEY_SIZE]) {
  static const char *const ATTRIBUTES[] = {"xla_version", "stablehlo_current_version"};
  static const char *const VARIABLES[] = {"XLA_FLAGS", "LIBTPU_INIT_ARGS"};
  const pj_plugin *plugin = pj_client_plugin(client);
  int major, minor;
  pj_plugin_api_version(plugin, &major, &minor);
  pj_sha256_state state;
  pj_sha256_init(&state);
  add_text(&state, "torch-pjrt executable 1");
  add(&state, plugin_digest, 32);
  add_number(&state, major);
  add_number(&state, minor);
  for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof *ATTRIBUTES; ++i)
    add_text(&state, pj_plugin_attribute(plugin, ATTRIBUTES[i]));
  add_text(&state, pj_client_platform(client));
  add_text(&state, pj_client_platform_version(client));
  int devices = pj_client_device_count(client);
  add_number(&state, devices);
  for (int i = 0; i < devices; ++i) add_text(&state, pj_client_device_kind(client, i));
  for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; ++i) add_text(&state, getenv(VARIABLES[i]));
  if (!strcmp(pj_client_platform(client), "cpu")) add_host_cpu(&state);
  pj_sha256_final(&state, out_key);
}

void pj_disk_key(const uint8_t environment[PJ_KEY_SIZE], const uint8_t program[PJ_KEY_SIZE],
                 uint8_t out_key[PJ_KEY_SIZE]) {
  pj_sha256_state state;
  pj_sha256_init(&state);
  add(&state, environment, PJ_KEY_SIZE);
  add(&state, program, PJ_KEY_SIZE);
  pj_sha256_final(&state, out_key);
}

pj_status pj_plugin_file_key(const pj_plugin *plugin, uint8_t out_key[PJ_KEY_SIZE]) {
  struct stat info;
  if (stat(pj_plugin_path(plugin), &info))
    return pj_error(PJ_NOT_FOUND, "plugin %s: %s", pj_plugin_path(plugin), strerror(errno));
  pj_sha256_state state;
  pj_sha256_init(&state);
  add_text(&state, "torch-pjrt plugin file 1");
  add_number(&state, (int64_t)info.st_dev);
  add_number(&state, (int64_t)info.st_ino);
  add_number(&state, info.st_size);
  add_number(&state, info.st_mtim.tv_sec);
  add_number(&state, info.st_mtim.tv_nsec);
  add_number(&state, info.st_ctim.tv_sec);
  add_number(&state, info.st_ctim.tv_nsec);
  pj_sha256_final(&state, out_key);
  return NULL;
}
