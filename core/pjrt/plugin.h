// Shared by the files of this folder: what a plugin is to us, and how its slots are called.
#ifndef PJ_PJRT_PLUGIN_H_
#define PJ_PJRT_PLUGIN_H_

#include <pthread.h>

#include "pjrt/abi.h"

typedef struct plugin_attribute {
  char *name, *text;
} plugin_attribute;

struct pj_plugin {
  PJRT_Api api;  // the plugin's table, with NULL in every slot that its own does not reach
  char *path;
  plugin_attribute *attributes;
  size_t attribute_count;
  pthread_mutex_t digest_lock;
  bool digest_known;
  uint8_t digest[32];
  pj_plugin *next;  // in the registry
};

// Takes the plugin's error; NULL gives NULL.
pj_status pj_plugin_take_error(const pj_plugin *plugin, PJRT_Error *error);

pj_status pj_plugin_absent(const pj_plugin *plugin, const char *slot);

// The status of calling a slot; UNIMPLEMENTED where the plugin has none.
#define PJRT_CALL(plugin, name, args)                                                             \
  ((plugin)->api.PJRT_##name ? pj_plugin_take_error(plugin, (plugin)->api.PJRT_##name(args))      \
                             : pj_plugin_absent(plugin, "PJRT_" #name))

// Destroying cannot fail in a way that a caller could act on: an error is dropped.
#define PJRT_DESTROY(plugin, name, args) pj_status_free(PJRT_CALL(plugin, name, args))

// `count` options as the plugin wants them, in malloc'ed memory that points into `options`; NULL for none.
pj_status pj_named_values(const pj_option *options, size_t count, PJRT_NamedValue **out_values);

struct pj_client {
  pj_plugin *plugin;
  PJRT_Client *handle;
  char *platform, *platform_version;
  bool reads_in_place;  // device memory is host memory, and the plugin tells where
  int device_count;
  struct client_device {
    PJRT_Device *handle;
    int64_t id;
    char *kind;
  } *devices;
};

// INVALID_ARGUMENT unless `device` is an index of the client's devices.
pj_status pj_client_check_device(const pj_client *client, int device);

#endif
