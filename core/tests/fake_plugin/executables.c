// Programs: compiled, serialized, loaded, executed.
#include "objects.h"

static PJRT_Error *program_new(const PJRT_Program *code, const char *options, size_t options_size,
                               fake_program **out_program) {
  if (code->format_size != 4 || memcmp(code->format, "mlir", 4)) return error_new(PJ_INVALID_ARGUMENT, "not mlir");
  char text[256];
  fake_program *p = fake_program_parse(code->code, code->code_size, (const uint8_t *)options, options_size, text);
  if (!p) return error_new(PJ_INVALID_ARGUMENT, text);
  pthread_mutex_lock(&state.lock);
  ++state.counts.compiles;
  pthread_mutex_unlock(&state.lock);
  sleep_ms(p->compile_ms);
  if (p->compile_abort) {
    fprintf(stderr, "F0000 fake_compiler.cc:1] Check failed: false\n");
    abort();
  }
  PJRT_Error *error = p->compile_code ? error_new(p->compile_code, p->compile_error) : NULL;
  if (error) program_release(p);
  else *out_program = p;
  return error;
}

static PJRT_LoadedExecutable *loaded_new(fake_program *p, PJRT_Client *client) {
  PJRT_LoadedExecutable *loaded = calloc(1, sizeof *loaded);
  *loaded = (PJRT_LoadedExecutable){p, client};
  count(&state.counts.loaded_executables, 1);
  return loaded;
}

static PJRT_Executable *executable_new(fake_program *p) {
  PJRT_Executable *executable = calloc(1, sizeof *executable);
  executable->program = p;
  count(&state.counts.executables, 1);
  return executable;
}

FUNCTION(Client_Compile) {
  ENTER(Client_Compile);
  fake_program *p;
  PJRT_Error *error = program_new(args->program, args->compile_options, args->compile_options_size, &p);
  if (error) return error;
  if (p->partitions > args->client->device_count) {
    program_release(p);
    return error_new(PJ_INVALID_ARGUMENT, "more partitions than fake devices");
  }
  args->executable = loaded_new(p, args->client);
  return NULL;
}

FUNCTION(LoadedExecutable_Destroy) {
  ENTER(LoadedExecutable_Destroy);
  program_release(args->executable->program);
  count(&state.counts.loaded_executables, -1);
  free(args->executable);
  return NULL;
}

FUNCTION(LoadedExecutable_GetExecutable) {
  ENTER(LoadedExecutable_GetExecutable);
  fake_program *p = args->loaded_executable->program;
  count(&p->refs, 1);
  args->executable = executable_new(p);
  return NULL;
}

FUNCTION(LoadedExecutable_AddressableDevices) {
  ENTER(LoadedExecutable_AddressableDevices);
  fake_program *p = args->executable->program;
  args->addressable_devices = args->executable->client->addressable;
  args->num_addressable_devices = p->portable ? 0 : (size_t)p->partitions;
  return NULL;
}

FUNCTION(Executable_Destroy) {
  ENTER(Executable_Destroy);
  program_release(args->executable->program);
  count(&state.counts.executables, -1);
  free(args->executable);
  return NULL;
}

FUNCTION(Executable_NumOutputs) {
  ENTER(Executable_NumOutputs);
  args->num_outputs = (size_t)args->executable->program->result_count;
  return NULL;
}

FUNCTION(Executable_OutputElementTypes) {
  ENTER(Executable_OutputElementTypes);
  args->output_types = args->executable->program->output_types;
  args->num_output_types = (size_t)args->executable->program->result_count;
  return NULL;
}

FUNCTION(Executable_OutputDimensions) {
  ENTER(Executable_OutputDimensions);
  args->num_outputs = (size_t)args->executable->program->result_count;
  args->dims = args->executable->program->output_dims;
  args->dim_sizes = args->executable->program->output_ranks;
  return NULL;
}

FUNCTION(Executable_GetCompiledMemoryStats) {
  ENTER(Executable_GetCompiledMemoryStats);
  const fake_program *p = args->executable->program;
  args->generated_code_size_in_bytes = (int64_t)p->text_size;
  args->argument_size_in_bytes = args->output_size_in_bytes = args->alias_size_in_bytes = args->temp_size_in_bytes = 0;
  for (int i = 0; i < p->argument_count; ++i) {
    args->argument_size_in_bytes += (int64_t)p->arguments[i].size;
    if (p->arguments[i].donated) args->alias_size_in_bytes += (int64_t)p->arguments[i].size;
  }
  for (int i = 0; i < p->result_count; ++i) args->output_size_in_bytes += (int64_t)p->results[i].size;
  // peak_memory_in_bytes stays as it came, as with a plugin whose struct does not reach it.
  return NULL;
}

FUNCTION(Executable_GetCostAnalysis) {
  ENTER(Executable_GetCostAnalysis);
  static const PJRT_NamedValue properties[] = {
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "flops", .name_size = 5, .type = PJRT_FLOAT,
       .float_value = 123, .value_size = 1},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "bytes accessed0{}", .name_size = 17, .type = PJRT_FLOAT,
       .float_value = 7, .value_size = 1},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "optimal_seconds", .name_size = 15, .type = PJRT_FLOAT,
       .float_value = -6, .value_size = 1},
  };
  args->properties = properties;
  args->num_properties = 3;
  return NULL;
}

// Serialized: a mark, whether portable, the number of partitions, the text.
static const char MARK[] = "fake executable ";
enum { MARK_SIZE = sizeof MARK - 1, HEAD_SIZE = MARK_SIZE + 2 };

static void delete_serialized(PJRT_SerializedExecutable *serialized) {
  free(serialized->bytes);
  free(serialized);
  count(&state.counts.serialized, -1);
}

FUNCTION(Executable_Serialize) {
  ENTER(Executable_Serialize);
  const fake_program *p = args->executable->program;
  PJRT_SerializedExecutable *serialized = calloc(1, sizeof *serialized);
  serialized->bytes = malloc(HEAD_SIZE + p->text_size);
  memcpy(serialized->bytes, MARK, MARK_SIZE);
  serialized->bytes[MARK_SIZE] = (char)p->portable;
  serialized->bytes[MARK_SIZE + 1] = (char)p->partitions;
  memcpy(serialized->bytes + HEAD_SIZE, p->text, p->text_size);
  count(&state.counts.serialized, 1);
  args->serialized_bytes = serialized->bytes;
  args->serialized_bytes_size = HEAD_SIZE + p->text_size;
  args->serialized_executable = serialized;
  args->serialized_executable_deleter = delete_serialized;
  return NULL;
}

FUNCTION(Executable_DeserializeAndLoad) {
  ENTER(Executable_DeserializeAndLoad);
  const char *bytes = args->serialized_executable;
  size_t size = args->serialized_executable_size;
  if (size < HEAD_SIZE || memcmp(bytes, MARK, MARK_SIZE))
    return error_new(PJ_INVALID_ARGUMENT, "Deserialized executable is not one of the fake plugin");
  char text[256];
  fake_program *p = fake_program_parse(bytes + HEAD_SIZE, size - HEAD_SIZE, NULL, 0, text);
  if (!p) return error_new(PJ_INVALID_ARGUMENT, text);
  p->portable = bytes[MARK_SIZE];
  p->partitions = bytes[MARK_SIZE + 1];
  pthread_mutex_lock(&state.lock);
  ++state.counts.loads;
  pthread_mutex_unlock(&state.lock);
  args->loaded_executable = loaded_new(p, args->client);
  return NULL;
}

static PJRT_Error *check_arguments(const fake_program *p, PJRT_Buffer *const *arguments, size_t argument_count) {
  char text[200];
  if (argument_count != (size_t)p->argument_count) {
    snprintf(text, sizeof text, "Execution supplied %zu buffers but compiled program expected %d buffers",
             argument_count, p->argument_count);
    return error_new(PJ_INVALID_ARGUMENT, text);
  }
  PJRT_Error *error = NULL;
  pthread_mutex_lock(&state.lock);
  *text = 0;
  for (size_t i = 0; i < argument_count && !*text; ++i) {
    const storage *s = arguments[i]->storage;
    if (!s) snprintf(text, sizeof text, "Argument %zu has been deleted or donated.", i);
    else if (s->size != p->arguments[i].size)
      snprintf(text, sizeof text, "Argument %zu has %zu bytes; expected %zu", i, s->size, p->arguments[i].size);
    for (size_t k = 0; k < argument_count && p->arguments[i].donated; ++k)
      if (k != i && arguments[k] == arguments[i])
        snprintf(text, sizeof text, "Argument %zu is donated and given a second time as %zu", i, k);
  }
  pthread_mutex_unlock(&state.lock);
  if (*text) error = error_new(PJ_INVALID_ARGUMENT, text);
  return error;
}

static PJRT_Error *execute_on(PJRT_LoadedExecutable *executable, PJRT_Device *device, PJRT_Buffer *const *arguments,
                              size_t argument_count, PJRT_Buffer **results) {
  fake_program *p = executable->program;
  PJRT_Error *error = check_arguments(p, arguments, argument_count);
  if (error) return error;
  job *j = calloc(1, sizeof *j);
  j->inputs = calloc(argument_count + 1, sizeof *j->inputs);
  j->outputs = calloc((size_t)p->result_count + 1, sizeof *j->outputs);
  for (; j->output_count < (size_t)p->result_count; ++j->output_count) {
    storage *s = storage_new(p->results[j->output_count].size);
    if (s) {
      j->outputs[j->output_count] = s;
      continue;
    }
    error = out_of_memory(p->results[j->output_count].size);
    for (size_t i = 0; i < j->output_count; ++i) storage_release(j->outputs[i]);
    free(j->inputs);
    free(j->outputs);
    free(j);
    return error;
  }
  pthread_mutex_lock(&state.lock);
  ++state.counts.executions;
  j->delay_ms = p->run_ms + state.run_ms;
  ++p->refs;
  for (size_t i = 0; i < argument_count; ++i) {
    j->inputs[i] = arguments[i]->storage;
    if (p->arguments[i].donated) arguments[i]->storage = NULL;
    else ++j->inputs[i]->refs;
  }
  for (size_t i = 0; i < j->output_count; ++i) ++j->outputs[i]->refs;
  pthread_mutex_unlock(&state.lock);
  j->input_count = argument_count;
  j->program = p;
  for (size_t i = 0; i < j->output_count; ++i)
    results[i] = buffer_new(j->outputs[i], p->results[i].dtype, (size_t)p->results[i].rank, p->results[i].dims, device);
  job_start(j);
  return NULL;
}

FUNCTION(LoadedExecutable_Execute) {
  ENTER(LoadedExecutable_Execute);
  if (args->options->struct_size != PJRT_ExecuteOptions_STRUCT_SIZE)
    return error_new(PJ_INVALID_ARGUMENT, "Unexpected PJRT_ExecuteOptions size");
  PJRT_LoadedExecutable *executable = args->executable;
  const fake_program *p = executable->program;
  if (args->execute_device ? args->num_devices != 1 : p->portable || args->num_devices != (size_t)p->partitions) {
    // XLA ends the process here.
    fprintf(stderr, "fake plugin: %zu devices for %d partitions\n", args->num_devices, p->partitions);
    abort();
  }
  for (size_t d = 0; d < args->num_devices; ++d) {
    PJRT_Device *device = args->execute_device ? args->execute_device : executable->client->addressable[d];
    PJRT_Error *error =
        execute_on(executable, device, args->argument_lists[d], args->num_args, args->output_lists[d]);
    if (error) return error;
  }
  return NULL;
}

FUNCTION(Compile) {
  ENTER(Compile);
  fake_program *p;
  PJRT_Error *error = program_new(args->program, args->compile_options, args->compile_options_size, &p);
  if (!error) args->executable = executable_new(p);
  return error;
}
