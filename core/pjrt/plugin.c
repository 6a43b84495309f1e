#include "pjrt/plugin.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"

// API 0.57 moved slots within the table; since then they are only appended (pjrt_c_api_changelog).
enum { OLDEST_MINOR = 57 };

// Plugins are never unloaded: thread pools, signal handlers and registered calls live in them.
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pj_plugin *registry;

typedef struct slot {
  const char *name;
  size_t offset;
  bool required;
} slot;

#define REQUIRED_SLOT(name) {"PJRT_" #name, offsetof(PJRT_Api, PJRT_##name), true},
#define OTHER_SLOT(name) {"PJRT_" #name, offsetof(PJRT_Api, PJRT_##name), false},
static const slot SLOTS[] = {PJRT_API_SLOTS(REQUIRED_SLOT, REQUIRED_SLOT, OTHER_SLOT, OTHER_SLOT)};
enum { SLOT_COUNT = sizeof SLOTS / sizeof SLOTS[0] };

static bool has_slot(const PJRT_Api *api, const slot *s) {
  void (*function)(void);
  memcpy(&function, (const char *)api + s->offset, sizeof function);
  return function != NULL;
}

bool pj_plugin_has(const pj_plugin *plugin, const char *name) {
  for (int i = 0; i < SLOT_COUNT; ++i)
    if (!strcmp(SLOTS[i].name, name)) return has_slot(&plugin->api, &SLOTS[i]);
  return false;
}

pj_status pj_plugin_absent(const pj_plugin *plugin, const char *name) {
  const PJRT_Api_Version *version = &plugin->api.pjrt_api_version;
  return pj_error(PJ_UNIMPLEMENTED, "%s is not in the plugin %s (PJRT API %d.%d)", name, plugin->path,
                  version->major_version, version->minor_version);
}

pj_status pj_plugin_take_error(const pj_plugin *plugin, PJRT_Error *error) {
  if (!error) return NULL;
  const PJRT_Api *api = &plugin->api;
  PJRT_STRUCT(PJRT_Error_Message_Args, message, .error = error);
  api->PJRT_Error_Message(&message);
  PJRT_STRUCT(PJRT_Error_GetCode_Args, code, .error = error, .code = PJ_UNKNOWN);
  PJRT_Error *nested = api->PJRT_Error_GetCode(&code);
  bool known = !nested && code.code > PJ_OK && code.code <= PJ_DATA_LOSS;
  // XLA:CPU says INTERNAL of a program whose input could not be computed, whatever the input's own error was.
  static const char NO_MEMORY[] = "Out of memory allocating";
  if (known && code.code == PJ_INTERNAL && memmem(message.message, message.message_size, NO_MEMORY, strlen(NO_MEMORY)))
    code.code = PJ_RESOURCE_EXHAUSTED;
  // It also puts this before the input's error, once for each program in between.
  static const char LATE[] = "Error dispatching computation: ";
  const size_t late = strlen(LATE);
  const char *text = message.message_size ? message.message : "";
  size_t size = message.message_size;
  for (; size >= 2 * late && !memcmp(text, LATE, late) && !memcmp(text + late, LATE, late); text += late) size -= late;
  pj_status status = pj_error(known ? (pj_code)code.code : PJ_UNKNOWN, "%.*s", (int)size, text);
  PJRT_STRUCT(PJRT_Error_Destroy_Args, destroy, .error = error);
  api->PJRT_Error_Destroy(&destroy);
  if (nested) {
    destroy.error = nested;
    api->PJRT_Error_Destroy(&destroy);
  }
  return status;
}

pj_status pj_named_values(const pj_option *options, size_t count, PJRT_NamedValue **out_values) {
  *out_values = NULL;
  if (!count) return NULL;
  PJRT_NamedValue *values = calloc(count, sizeof *values);
  if (!values) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  for (size_t i = 0; i < count; ++i) {
    const pj_option *option = &options[i];
    bool text = option->kind == PJ_OPTION_STRING, ints = option->kind == PJ_OPTION_INTS;
    if (!option->name || !*option->name || (text && !option->text) || (ints && option->count && !option->ints)) {
      free(values);
      return pj_error(PJ_INVALID_ARGUMENT, "option %zu (%s) has no %s", i, option->name ? option->name : "",
                      option->name && *option->name ? "value" : "name");
    }
    PJRT_NamedValue *value = &values[i];
    value->struct_size = PJRT_NamedValue_STRUCT_SIZE;
    value->name = option->name;
    value->name_size = strlen(option->name);
    value->value_size = 1;
    switch (option->kind) {
      case PJ_OPTION_STRING:
        value->type = PJRT_STRING;
        value->string_value = option->text;
        value->value_size = strlen(option->text);
        break;
      case PJ_OPTION_INT:
        value->type = PJRT_INT64;
        value->int64_value = option->integer;
        break;
      case PJ_OPTION_INTS:
        value->type = PJRT_INT64_LIST;
        value->int64_array_value = option->ints;
        value->value_size = option->count;
        break;
      case PJ_OPTION_FLOAT:
        value->type = PJRT_FLOAT;
        value->float_value = option->number;
        break;
      case PJ_OPTION_BOOL:
        value->type = PJRT_BOOL;
        value->bool_value = option->integer != 0;
        break;
      default:
        free(values);
        return pj_error(PJ_INVALID_ARGUMENT, "option %s: kind %d is unknown", option->name, (int)option->kind);
    }
  }
  *out_values = values;
  return NULL;
}

// A list of integers reads as a version: [1, 12, 0] is "1.12.0".
static char *attribute_text(const PJRT_NamedValue *value) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (!out) return NULL;
  switch (value->type) {
    case PJRT_STRING: fprintf(out, "%.*s", (int)value->value_size, value->string_value); break;
    case PJRT_INT64: fprintf(out, "%" PRId64, value->int64_value); break;
    case PJRT_FLOAT: fprintf(out, "%g", (double)value->float_value); break;
    case PJRT_BOOL: fputs(value->bool_value ? "true" : "false", out); break;
    case PJRT_INT64_LIST:
      for (size_t i = 0; i < value->value_size; ++i)
        fprintf(out, "%s%" PRId64, i ? "." : "", value->int64_array_value[i]);
      break;
    default: break;
  }
  return fclose(out) ? NULL : text;
}

static pj_status read_attributes(pj_plugin *plugin) {
  if (!plugin->api.PJRT_Plugin_Attributes) return NULL;
  PJRT_STRUCT(PJRT_Plugin_Attributes_Args, args);
  PJ_TRY(PJRT_CALL(plugin, Plugin_Attributes, &args));
  plugin->attributes = calloc(args.num_attributes + 1, sizeof *plugin->attributes);
  if (!plugin->attributes) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue *value = &args.attributes[i];
    plugin_attribute attribute = {strndup(value->name, value->name_size), attribute_text(value)};
    plugin->attributes[plugin->attribute_count++] = attribute;
    if (!attribute.name || !attribute.text) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  }
  return NULL;
}

static void plugin_free(pj_plugin *plugin) {
  for (size_t i = 0; i < plugin->attribute_count; ++i) {
    free(plugin->attributes[i].name);
    free(plugin->attributes[i].text);
  }
  free(plugin->attributes);
  free(plugin->path);
  pthread_mutex_destroy(&plugin->digest_lock);
  free(plugin);
}

// Copies the plugin's table and checks that what we cannot do without is there.
static pj_status adopt_table(pj_plugin *plugin, const PJRT_Api *api) {
  if (!api) return pj_error(PJ_FAILED_PRECONDITION, "GetPjrtApi gives no table");
  if (api->struct_size < offsetof(PJRT_Api, PJRT_Error_Destroy))
    return pj_error(PJ_FAILED_PRECONDITION, "the PJRT table has %zu bytes, less than its own head", api->struct_size);
  memcpy(&plugin->api, api, api->struct_size < sizeof *api ? api->struct_size : sizeof *api);
  int major = api->pjrt_api_version.major_version, minor = api->pjrt_api_version.minor_version;
  if (major != 0 || minor < OLDEST_MINOR)
    return pj_error(PJ_FAILED_PRECONDITION, "PJRT API %d.%d; needed is 0.%d or a later 0.x: use another plugin version",
                    major, minor, OLDEST_MINOR);
  for (int i = 0; i < SLOT_COUNT; ++i)
    if (SLOTS[i].required && !has_slot(&plugin->api, &SLOTS[i]))
      return pj_error(PJ_FAILED_PRECONDITION,
                      "%s is absent (PJRT API %d.%d, table of %zu bytes), and nothing works without it: "
                      "use another plugin version",
                      SLOTS[i].name, major, minor, api->struct_size);
  return NULL;
}

static pj_status start(pj_plugin *plugin) {
  if (access(plugin->path, R_OK))
    return pj_error(PJ_NOT_FOUND, "no such file, or it cannot be read: give the path of a PJRT plugin (.so)");
  // Read once by the plugin's log library when it is loaded. A level that the user has set stays.
  const char *log = getenv("PJ_PLUGIN_LOG");
  if (!log || strcmp(log, "1")) setenv("TF_CPP_MIN_LOG_LEVEL", "3", 0);
  void *library = dlopen(plugin->path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return pj_error(PJ_FAILED_PRECONDITION, "not a shared library that loads here: %s", dlerror());
  void *symbol = dlsym(library, "GetPjrtApi");
  if (!symbol) {
    dlclose(library);
    return pj_error(PJ_FAILED_PRECONDITION, "it has no function GetPjrtApi, so it is not a PJRT plugin");
  }
  const PJRT_Api *(*get_api)(void);
  memcpy(&get_api, &symbol, sizeof get_api);
  PJ_TRY(adopt_table(plugin, get_api()));
  PJRT_STRUCT(PJRT_Plugin_Initialize_Args, args);
  PJ_TRY(pj_status_context(PJRT_CALL(plugin, Plugin_Initialize, &args), "initializing it"));
  return read_attributes(plugin);
}

static pj_plugin *find(const char *path) {
  for (pj_plugin *plugin = registry; plugin; plugin = plugin->next)
    if (!strcmp(plugin->path, path)) return plugin;
  return NULL;
}

static pj_status load(const char *path, pj_plugin **out_plugin) {
  if ((*out_plugin = find(path))) return NULL;
  pj_plugin *plugin = calloc(1, sizeof *plugin);
  if (!plugin || !(plugin->path = strdup(path))) {
    free(plugin);
    return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  }
  pthread_mutex_init(&plugin->digest_lock, NULL);
  pj_status status = start(plugin);
  if (status) {
    plugin_free(plugin);
    return pj_status_context(status, "PJRT plugin %s", path);
  }
  plugin->next = registry;
  *out_plugin = registry = plugin;
  return NULL;
}

pj_status pj_plugin_load(const char *path, pj_plugin **out_plugin) {
  *out_plugin = NULL;
  if (!path || !*path) return pj_error(PJ_INVALID_ARGUMENT, "no path of a PJRT plugin (.so) was given");
  char *real = realpath(path, NULL);  // two names of one file are one plugin
  pthread_mutex_lock(&registry_lock);
  pj_status status = load(real ? real : path, out_plugin);
  pthread_mutex_unlock(&registry_lock);
  free(real);
  return status;
}

const char *pj_plugin_path(const pj_plugin *plugin) { return plugin->path; }

void pj_plugin_api_version(const pj_plugin *plugin, int *out_major, int *out_minor) {
  *out_major = plugin->api.pjrt_api_version.major_version;
  *out_minor = plugin->api.pjrt_api_version.minor_version;
}

const char *pj_plugin_attribute(const pj_plugin *plugin, const char *name) {
  for (size_t i = 0; i < plugin->attribute_count; ++i)
    if (!strcmp(plugin->attributes[i].name, name)) return plugin->attributes[i].text;
  return NULL;
}

static pj_status digest_file(const char *path, uint8_t out_digest[32]) {
  FILE *file = fopen(path, "rb");
  size_t room = 1 << 20;
  uint8_t *block = malloc(room);
  pj_status status = file && block ? NULL : pj_error(PJ_NOT_FOUND, "the plugin file %s cannot be read", path);
  if (!status) {
    pj_sha256_state state;
    pj_sha256_init(&state);
    for (size_t size; (size = fread(block, 1, room, file)) > 0;) pj_sha256_update(&state, block, size);
    pj_sha256_final(&state, out_digest);
    if (ferror(file)) status = pj_error(PJ_DATA_LOSS, "reading the plugin file %s failed", path);
  }
  if (file) fclose(file);
  free(block);
  return status;
}

pj_status pj_plugin_digest(pj_plugin *plugin, uint8_t out_digest[32]) {
  pthread_mutex_lock(&plugin->digest_lock);
  pj_status status = plugin->digest_known ? NULL : digest_file(plugin->path, plugin->digest);
  if (!status) {
    plugin->digest_known = true;
    memcpy(out_digest, plugin->digest, sizeof plugin->digest);
  }
  pthread_mutex_unlock(&plugin->digest_lock);
  return status;
}
