#include "pjrt/executable.h"

#include <stdlib.h>
#include <string.h>

static void destroy_handles(const pj_plugin *plugin, PJRT_LoadedExecutable *loaded, PJRT_Executable *description) {
  if (description) {
    PJRT_STRUCT(PJRT_Executable_Destroy_Args, args, .executable = description);
    PJRT_DESTROY(plugin, Executable_Destroy, &args);
  }
  if (loaded) {
    PJRT_STRUCT(PJRT_LoadedExecutable_Destroy_Args, args, .executable = loaded);
    PJRT_DESTROY(plugin, LoadedExecutable_Destroy, &args);
  }
}

static pj_status describe_outputs(pj_executable *e) {
  PJRT_STRUCT(PJRT_Executable_NumOutputs_Args, count, .executable = e->description);
  PJ_TRY(PJRT_CALL(e->plugin, Executable_NumOutputs, &count));
  e->output_count = (int)count.num_outputs;
  const PJRT_Api *api = &e->plugin->api;
  if (!api->PJRT_Executable_OutputElementTypes || !api->PJRT_Executable_OutputDimensions) return NULL;

  PJRT_STRUCT(PJRT_Executable_OutputElementTypes_Args, types, .executable = e->description);
  PJRT_STRUCT(PJRT_Executable_OutputDimensions_Args, dims, .executable = e->description);
  pj_status status = PJRT_CALL(e->plugin, Executable_OutputElementTypes, &types);
  if (!status) status = PJRT_CALL(e->plugin, Executable_OutputDimensions, &dims);
  if (pj_status_code(status) == PJ_UNIMPLEMENTED) {
    pj_status_free(status);
    return NULL;
  }
  PJ_TRY(status);
  if (types.num_output_types != count.num_outputs || dims.num_outputs != count.num_outputs)
    return pj_error(PJ_INTERNAL, "the plugin tells %zu outputs, %zu output types and %zu output shapes",
                    count.num_outputs, types.num_output_types, dims.num_outputs);
  e->outputs = calloc(count.num_outputs + 1, sizeof *e->outputs);
  if (!e->outputs) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  const int64_t *next = dims.dims;
  for (size_t i = 0; i < count.num_outputs; ++i) {
    size_t rank = dims.dim_sizes[i];
    if (rank > PJ_MAX_RANK)
      return pj_error(PJ_UNIMPLEMENTED, "output %zu has %zu dimensions; up to %d are supported", i, rank, PJ_MAX_RANK);
    e->outputs[i].dtype = types.output_types[i];
    e->outputs[i].rank = (int)rank;
    if (rank) memcpy(e->outputs[i].dims, next, rank * sizeof *next);
    next += rank;
  }
  return NULL;
}

static pj_status find_device(pj_executable *e) {
  e->fixed_device = -1;
  PJRT_STRUCT(PJRT_LoadedExecutable_AddressableDevices_Args, args, .executable = e->loaded);
  PJ_TRY(PJRT_CALL(e->plugin, LoadedExecutable_AddressableDevices, &args));
  e->device_count = (int)args.num_addressable_devices;
  if (e->device_count != 1) return NULL;
  for (int i = 0; i < e->client->device_count; ++i)
    if (e->client->devices[i].handle == args.addressable_devices[0]) e->fixed_device = i;
  return NULL;
}

pj_status pj_executable_adopt(pj_plugin *plugin, pj_client *client, PJRT_LoadedExecutable *loaded,
                              PJRT_Executable *description, pj_executable **out_executable) {
  *out_executable = NULL;
  pj_executable *e = calloc(1, sizeof *e);
  if (!e) {
    destroy_handles(plugin, loaded, description);
    return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  }
  *e = (pj_executable){
      .plugin = plugin,
      .client = client,
      .loaded = loaded,
      .description = description,
      .execute_options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE},
      .execute_args = {.struct_size = PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE,
                       .executable = loaded,
                       .options = &e->execute_options,
                       .num_devices = 1},
  };
  pj_status status = NULL;
  if (loaded) {
    PJRT_STRUCT(PJRT_LoadedExecutable_GetExecutable_Args, get, .loaded_executable = loaded);
    status = PJRT_CALL(plugin, LoadedExecutable_GetExecutable, &get);
    e->description = get.executable;
    if (!status) status = find_device(e);
  }
  if (!status) status = describe_outputs(e);
  if (status) {
    pj_executable_destroy(e);
    return status;
  }
  *out_executable = e;
  return NULL;
}

void pj_executable_destroy(pj_executable *e) {
  if (!e) return;
  destroy_handles(e->plugin, e->loaded, e->description);
  free(e->outputs);
  free(e);
}

PJRT_Program pj_stablehlo_program(const char *code, size_t code_size) {
  PJRT_STRUCT(PJRT_Program, program, .code = (char *)code, .code_size = code_size, .format = "mlir", .format_size = 4);
  return program;
}

pj_status pj_compile(pj_client *client, const char *code, size_t code_size, const uint8_t *options, size_t options_size,
                     pj_executable **out_executable) {
  *out_executable = NULL;
  if (!code_size) return pj_error(PJ_INVALID_ARGUMENT, "the program is empty");
  if (!options_size) return pj_error(PJ_INVALID_ARGUMENT, "compile options are missing");
  PJRT_Program program = pj_stablehlo_program(code, code_size);
  PJRT_STRUCT(PJRT_Client_Compile_Args, args, .client = client->handle, .program = &program,
              .compile_options = (const char *)options, .compile_options_size = options_size);
  PJ_TRY(PJRT_CALL(client->plugin, Client_Compile, &args));
  return pj_executable_adopt(client->plugin, client, args.executable, NULL, out_executable);
}

pj_status pj_executable_serialize(pj_executable *e, uint8_t **out_bytes, size_t *out_size) {
  *out_bytes = NULL;
  *out_size = 0;
  PJRT_STRUCT(PJRT_Executable_Serialize_Args, args, .executable = e->description);
  PJ_TRY(PJRT_CALL(e->plugin, Executable_Serialize, &args));
  uint8_t *bytes = malloc(args.serialized_bytes_size + 1);
  if (bytes) memcpy(bytes, args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  if (!bytes) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  *out_bytes = bytes;
  *out_size = args.serialized_bytes_size;
  return NULL;
}

pj_status pj_executable_load(pj_client *client, const uint8_t *bytes, size_t size, const uint8_t *options,
                             size_t options_size, pj_executable **out_executable) {
  *out_executable = NULL;
  if (!size) return pj_error(PJ_INVALID_ARGUMENT, "the serialized executable is empty");
  PJRT_STRUCT(PJRT_Executable_DeserializeAndLoad_Args, args, .client = client->handle,
              .serialized_executable = (const char *)bytes, .serialized_executable_size = size,
              .overridden_serialized_compile_options = options_size ? (const char *)options : NULL,
              .overridden_serialized_compile_options_size = options_size);
  PJ_TRY(PJRT_CALL(client->plugin, Executable_DeserializeAndLoad, &args));
  return pj_executable_adopt(client->plugin, client, args.loaded_executable, NULL, out_executable);
}

int pj_executable_output_count(const pj_executable *e) { return e->output_count; }

pj_status pj_executable_output_type(const pj_executable *e, int output, pj_dtype *out_dtype, int *out_rank,
                                    int64_t out_dims[PJ_MAX_RANK]) {
  if (output < 0 || output >= e->output_count)
    return pj_error(PJ_INVALID_ARGUMENT, "output %d of a program with %d outputs", output, e->output_count);
  if (!e->outputs) return pj_error(PJ_UNIMPLEMENTED, "the plugin does not tell the types of a program's outputs");
  const executable_output *o = &e->outputs[output];
  *out_dtype = o->dtype;
  *out_rank = o->rank;
  memcpy(out_dims, o->dims, (size_t)o->rank * sizeof *out_dims);
  return NULL;
}

pj_status pj_executable_memory(const pj_executable *e, pj_compiled_memory *out_memory) {
  *out_memory = (pj_compiled_memory){-1, -1, -1, -1, -1, -1};
  PJRT_STRUCT(PJRT_Executable_GetCompiledMemoryStats_Args, args, .executable = e->description,
              .generated_code_size_in_bytes = -1, .argument_size_in_bytes = -1, .output_size_in_bytes = -1,
              .alias_size_in_bytes = -1, .temp_size_in_bytes = -1, .peak_memory_in_bytes = -1);
  PJ_TRY(PJRT_CALL(e->plugin, Executable_GetCompiledMemoryStats, &args));
  out_memory->argument = args.argument_size_in_bytes;
  out_memory->output = args.output_size_in_bytes;
  out_memory->alias = args.alias_size_in_bytes;
  out_memory->temp = args.temp_size_in_bytes;
  out_memory->code = args.generated_code_size_in_bytes;
  out_memory->peak = args.peak_memory_in_bytes;
  return NULL;
}

static double property(const PJRT_Executable_GetCostAnalysis_Args *cost, const char *name) {
  for (size_t i = 0; i < cost->num_properties; ++i) {
    const PJRT_NamedValue *value = &cost->properties[i];
    if (value->type != PJRT_FLOAT || value->name_size != strlen(name) || memcmp(value->name, name, value->name_size))
      continue;
    return value->float_value < 0 ? -1 : (double)value->float_value;
  }
  return -1;
}

pj_status pj_executable_cost(const pj_executable *e, pj_compiled_cost *out_cost) {
  *out_cost = (pj_compiled_cost){-1, -1, -1};
  PJRT_STRUCT(PJRT_Executable_GetCostAnalysis_Args, args, .executable = e->description);
  PJ_TRY(PJRT_CALL(e->plugin, Executable_GetCostAnalysis, &args));
  // HloCostAnalysis::Properties; libtpu gives negative numbers where a part is unknown.
  out_cost->flops = property(&args, "flops");
  out_cost->bytes_accessed = property(&args, "bytes accessed");
  out_cost->optimal_seconds = property(&args, "optimal_seconds");
  return NULL;
}

static pj_status refuse_device(const pj_executable *e, int device) {
  if (!e->loaded)
    return pj_error(PJ_FAILED_PRECONDITION, "the program was compiled ahead of time and cannot run here");
  PJ_TRY(pj_client_check_device(e->client, device));
  return pj_error(PJ_INVALID_ARGUMENT, "the program was compiled for device %d and cannot run on device %d",
                  e->fixed_device, device);
}

// The one hot function: no allocation, no lock, no event.
pj_status pj_execute(pj_executable *e, int device, pj_buffer *const *arguments, size_t count, pj_buffer **out_results) {
  for (int i = 0; i < e->output_count; ++i) out_results[i] = NULL;
  bool named = e->fixed_device < 0;
  if (!e->loaded || (named ? (unsigned)device >= (unsigned)e->client->device_count : device != e->fixed_device))
    return refuse_device(e, device);
  PJRT_LoadedExecutable_Execute_Args args = e->execute_args;
  args.argument_lists = &arguments;
  args.num_args = count;
  args.output_lists = &out_results;
  if (named) args.execute_device = e->client->devices[device].handle;
  PJRT_Error *error = e->plugin->api.PJRT_LoadedExecutable_Execute(&args);
  return error ? pj_plugin_take_error(e->plugin, error) : NULL;
}

pj_status pj_execute_spmd(pj_executable *e, int device_count, pj_buffer *const *const *arguments, size_t count,
                          pj_buffer **const *out_results) {
  if (!e->loaded) return refuse_device(e, 0);
  if (device_count < 1 || device_count != e->device_count)
    return pj_error(PJ_INVALID_ARGUMENT, "arguments for %d devices; the program was compiled for %d", device_count,
                    e->device_count);
  for (int d = 0; d < device_count; ++d)
    for (int i = 0; i < e->output_count; ++i) out_results[d][i] = NULL;
  PJRT_LoadedExecutable_Execute_Args args = e->execute_args;
  args.num_devices = (size_t)device_count;
  args.argument_lists = arguments;
  args.num_args = count;
  args.output_lists = out_results;
  return PJRT_CALL(e->plugin, LoadedExecutable_Execute, &args);
}
