#include <stdlib.h>
#include <string.h>

#include "pjrt/executable.h"

struct pj_topology {
  pj_plugin *plugin;
  PJRT_TopologyDescription *handle;
  int device_count;
};

pj_status pj_topology_create(pj_plugin *plugin, const char *name, const pj_option *options, size_t count,
                             pj_topology **out_topology) {
  *out_topology = NULL;
  // libtpu takes an empty name for a machine of its own choice.
  if (!name || !*name) return pj_error(PJ_INVALID_ARGUMENT, "a topology needs a name, e.g. v6e:2x2");
  PJRT_NamedValue *values;
  PJ_TRY(pj_named_values(options, count, &values));
  PJRT_STRUCT(PJRT_TopologyDescription_Create_Args, args, .topology_name = name, .topology_name_size = strlen(name),
              .create_options = values, .num_options = count);
  pj_status status = PJRT_CALL(plugin, TopologyDescription_Create, &args);
  free(values);
  if (status) return pj_status_context(status, "topology %s of %s", name, plugin->path);

  pj_topology *topology = malloc(sizeof *topology);
  if (!topology) {
    PJRT_STRUCT(PJRT_TopologyDescription_Destroy_Args, destroy, .topology = args.topology);
    PJRT_DESTROY(plugin, TopologyDescription_Destroy, &destroy);
    return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  }
  *topology = (pj_topology){plugin, args.topology, 0};
  PJRT_STRUCT(PJRT_TopologyDescription_GetDeviceDescriptions_Args, devices, .topology = args.topology);
  status = PJRT_CALL(plugin, TopologyDescription_GetDeviceDescriptions, &devices);
  if (status) {
    pj_topology_destroy(topology);
    return status;
  }
  topology->device_count = (int)devices.num_descriptions;
  *out_topology = topology;
  return NULL;
}

int pj_topology_device_count(const pj_topology *topology) { return topology->device_count; }

void pj_topology_destroy(pj_topology *topology) {
  if (!topology) return;
  PJRT_STRUCT(PJRT_TopologyDescription_Destroy_Args, args, .topology = topology->handle);
  PJRT_DESTROY(topology->plugin, TopologyDescription_Destroy, &args);
  free(topology);
}

pj_status pj_topology_compile(pj_topology *topology, const char *code, size_t code_size, const uint8_t *options,
                              size_t options_size, pj_executable **out_executable) {
  *out_executable = NULL;
  if (!code_size) return pj_error(PJ_INVALID_ARGUMENT, "the program is empty");
  if (!options_size) return pj_error(PJ_INVALID_ARGUMENT, "compile options are missing");
  PJRT_Program program = pj_stablehlo_program(code, code_size);
  PJRT_STRUCT(PJRT_Compile_Args, args, .topology = topology->handle, .program = &program,
              .compile_options = (const char *)options, .compile_options_size = options_size);
  PJ_TRY(PJRT_CALL(topology->plugin, Compile, &args));
  return pj_executable_adopt(topology->plugin, NULL, NULL, args.executable, out_executable);
}
