// Clients, devices, and topologies of devices that need not exist.
#include "objects.h"

FUNCTION(Client_Create) {
  ENTER(Client_Create);
  int devices = state.default_devices;
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue *option = &args->create_options[i];
    if (option->type == PJRT_INT64 && option->name_size == 16 && !memcmp(option->name, "cpu_device_count", 16)) {
      devices = (int)option->int64_value;
      continue;
    }
    char text[160];
    snprintf(text, sizeof text, "Unknown client option %.*s of type %d", (int)option->name_size, option->name,
             option->type);
    return error_new(PJ_INVALID_ARGUMENT, text);
  }
  if (devices < 1 || devices > MAX_DEVICES) return error_new(PJ_INVALID_ARGUMENT, "bad number of fake devices");
  fprintf(stderr, "the fake plugin makes noise\n");
  PJRT_Client *client = calloc(1, sizeof *client);
  client->device_count = devices;
  for (int i = 0; i < devices; ++i) {
    client->devices[i].description.id = 10 + i;  // ids need not be indices
    client->addressable[i] = &client->devices[i];
  }
  count(&state.counts.clients, 1);
  args->client = client;
  return NULL;
}

FUNCTION(Client_Destroy) {
  ENTER(Client_Destroy);
  pthread_mutex_lock(&state.lock);
  while (state.running) pthread_cond_wait(&state.changed, &state.lock);
  --state.counts.clients;
  pthread_mutex_unlock(&state.lock);
  free(args->client);
  return NULL;
}

FUNCTION(Client_PlatformName) {
  ENTER(Client_PlatformName);
  args->platform_name = state.platform;
  args->platform_name_size = strlen(state.platform);
  return NULL;
}

FUNCTION(Client_PlatformVersion) {
  ENTER(Client_PlatformVersion);
  args->platform_version = "fake 1, and more that is not part of it";
  args->platform_version_size = 6;
  return NULL;
}

FUNCTION(Client_AddressableDevices) {
  ENTER(Client_AddressableDevices);
  args->addressable_devices = args->client->addressable;
  args->num_addressable_devices = (size_t)args->client->device_count;
  return NULL;
}

FUNCTION(Device_GetDescription) {
  ENTER(Device_GetDescription);
  args->device_description = &args->device->description;
  return NULL;
}

FUNCTION(DeviceDescription_Id) {
  ENTER(DeviceDescription_Id);
  args->id = args->device_description->id;
  return NULL;
}

FUNCTION(DeviceDescription_Kind) {
  ENTER(DeviceDescription_Kind);
  args->device_kind = "fake device";
  args->device_kind_size = 11;
  return NULL;
}

FUNCTION(Device_MemoryStats) {
  ENTER(Device_MemoryStats);
  pthread_mutex_lock(&state.lock);
  args->bytes_in_use = state.counts.bytes;
  args->bytes_limit = state.memory_limit;
  args->bytes_limit_is_set = state.memory_limit != 0;
  pthread_mutex_unlock(&state.lock);
  return NULL;
}

// ---- ahead of time --------------------------------------------------------------------------------------------------

// Name "fake:N": N devices.
FUNCTION(TopologyDescription_Create) {
  ENTER(TopologyDescription_Create);
  char name[32] = "", more;
  int devices = 0;
  snprintf(name, sizeof name, "%.*s", (int)args->topology_name_size, args->topology_name);
  if (sscanf(name, "fake:%d%c", &devices, &more) != 1 || devices < 1 || devices > MAX_DEVICES)
    return error_new(PJ_INVALID_ARGUMENT, "a fake topology is named fake:N");
  PJRT_TopologyDescription *topology = calloc(1, sizeof *topology);
  topology->device_count = devices;
  for (int i = 0; i < devices; ++i) {
    topology->devices[i].id = i;
    topology->descriptions[i] = &topology->devices[i];
  }
  count(&state.counts.topologies, 1);
  args->topology = topology;
  return NULL;
}

FUNCTION(TopologyDescription_Destroy) {
  ENTER(TopologyDescription_Destroy);
  count(&state.counts.topologies, -1);
  free(args->topology);
  return NULL;
}

FUNCTION(TopologyDescription_GetDeviceDescriptions) {
  ENTER(TopologyDescription_GetDeviceDescriptions);
  args->descriptions = args->topology->descriptions;
  args->num_descriptions = (size_t)args->topology->device_count;
  return NULL;
}
