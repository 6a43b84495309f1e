#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pjrt/plugin.h"

// Descriptor 2 belongs to the process: two silences at once would each keep the other's /dev/null as the real one.
static pthread_mutex_t silence_lock = PTHREAD_MUTEX_INITIALIZER;

// XLA writes a line per client option straight to stderr, past its log level. So descriptor 2 goes to /dev/null while
// the client is made. Gives the real one, or -1 where nothing was changed.
static int silence_begin(void) {
  const char *log = getenv("PJ_PLUGIN_LOG");
  if (log && !strcmp(log, "1")) return -1;
  int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null < 0) return -1;
  pthread_mutex_lock(&silence_lock);
  int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  if (saved >= 0) dup2(null, STDERR_FILENO);
  else pthread_mutex_unlock(&silence_lock);
  close(null);
  return saved;
}

static void silence_end(int saved) {
  if (saved < 0) return;
  dup2(saved, STDERR_FILENO);
  close(saved);
  pthread_mutex_unlock(&silence_lock);
}

static pj_status copy_text(const char *text, size_t size, char **out_text) {
  *out_text = strndup(text ? text : "", size);
  return *out_text ? NULL : pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
}

static pj_status describe_device(pj_plugin *plugin, PJRT_Device *handle, struct client_device *device) {
  device->handle = handle;
  PJRT_STRUCT(PJRT_Device_GetDescription_Args, get, .device = handle);
  PJ_TRY(PJRT_CALL(plugin, Device_GetDescription, &get));
  PJRT_STRUCT(PJRT_DeviceDescription_Id_Args, id, .device_description = get.device_description);
  PJ_TRY(PJRT_CALL(plugin, DeviceDescription_Id, &id));
  device->id = id.id;
  PJRT_STRUCT(PJRT_DeviceDescription_Kind_Args, kind, .device_description = get.device_description);
  PJ_TRY(PJRT_CALL(plugin, DeviceDescription_Kind, &kind));
  return copy_text(kind.device_kind, kind.device_kind_size, &device->kind);
}

static pj_status describe_client(pj_client *client) {
  pj_plugin *plugin = client->plugin;
  PJRT_STRUCT(PJRT_Client_PlatformName_Args, name, .client = client->handle);
  PJ_TRY(PJRT_CALL(plugin, Client_PlatformName, &name));
  PJ_TRY(copy_text(name.platform_name, name.platform_name_size, &client->platform));
  PJRT_STRUCT(PJRT_Client_PlatformVersion_Args, version, .client = client->handle);
  PJ_TRY(PJRT_CALL(plugin, Client_PlatformVersion, &version));
  PJ_TRY(copy_text(version.platform_version, version.platform_version_size, &client->platform_version));
  PJRT_STRUCT(PJRT_Client_AddressableDevices_Args, devices, .client = client->handle);
  PJ_TRY(PJRT_CALL(plugin, Client_AddressableDevices, &devices));
  client->devices = calloc(devices.num_addressable_devices + 1, sizeof *client->devices);
  if (!client->devices) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
    ++client->device_count;
    PJ_TRY(describe_device(plugin, devices.addressable_devices[i], &client->devices[i]));
  }
  client->reads_in_place =
      !strcmp(client->platform, "cpu") &&
      (plugin->api.PJRT_Buffer_OpaqueDeviceMemoryDataPointer || plugin->api.PJRT_Buffer_UnsafePointer);
  return NULL;
}

pj_status pj_client_create(pj_plugin *plugin, const pj_option *options, size_t count, pj_client **out_client) {
  *out_client = NULL;
  PJRT_NamedValue *values;
  PJ_TRY(pj_named_values(options, count, &values));
  PJRT_STRUCT(PJRT_Client_Create_Args, args, .create_options = values, .num_options = count);
  int saved = silence_begin();
  pj_status status = PJRT_CALL(plugin, Client_Create, &args);
  silence_end(saved);
  free(values);
  if (status) return pj_status_context(status, "creating a client of %s", plugin->path);

  pj_client *client = calloc(1, sizeof *client);
  if (!client) {
    PJRT_STRUCT(PJRT_Client_Destroy_Args, destroy, .client = args.client);
    PJRT_DESTROY(plugin, Client_Destroy, &destroy);
    return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  }
  client->plugin = plugin;
  client->handle = args.client;
  status = describe_client(client);
  if (status) {
    pj_client_destroy(client);
    return status;
  }
  *out_client = client;
  return NULL;
}

void pj_client_destroy(pj_client *client) {
  if (!client) return;
  PJRT_STRUCT(PJRT_Client_Destroy_Args, args, .client = client->handle);
  PJRT_DESTROY(client->plugin, Client_Destroy, &args);
  for (int i = 0; i < client->device_count; ++i) free(client->devices[i].kind);
  free(client->devices);
  free(client->platform);
  free(client->platform_version);
  free(client);
}

pj_status pj_client_check_device(const pj_client *client, int device) {
  if (device >= 0 && device < client->device_count) return NULL;
  return pj_error(PJ_INVALID_ARGUMENT, "device %d of a client with %d devices", device, client->device_count);
}

pj_plugin *pj_client_plugin(const pj_client *client) { return client->plugin; }
const char *pj_client_platform(const pj_client *client) { return client->platform; }
const char *pj_client_platform_version(const pj_client *client) { return client->platform_version; }
int pj_client_device_count(const pj_client *client) { return client->device_count; }
int64_t pj_client_device_id(const pj_client *client, int device) { return client->devices[device].id; }
const char *pj_client_device_kind(const pj_client *client, int device) { return client->devices[device].kind; }

pj_status pj_client_memory_stats(const pj_client *client, int device, pj_memory_stats *out_stats) {
  *out_stats = (pj_memory_stats){-1, -1, -1, -1};
  PJ_TRY(pj_client_check_device(client, device));
  PJRT_STRUCT(PJRT_Device_MemoryStats_Args, args, .device = client->devices[device].handle);
  PJ_TRY(PJRT_CALL(client->plugin, Device_MemoryStats, &args));
  out_stats->in_use = args.bytes_in_use;
  if (args.peak_bytes_in_use_is_set) out_stats->peak = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) out_stats->limit = args.bytes_limit;
  if (args.bytes_reserved_is_set) out_stats->reserved = args.bytes_reserved;
  return NULL;
}
