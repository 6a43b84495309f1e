#ifndef PJ_PJRT_EXECUTABLE_H_
#define PJ_PJRT_EXECUTABLE_H_

#include "pjrt/plugin.h"

typedef struct executable_output {
  pj_dtype dtype;
  int rank;
  int64_t dims[PJ_MAX_RANK];
} executable_output;

struct pj_executable {
  pj_plugin *plugin;
  pj_client *client;               // NULL: compiled ahead of time, cannot run
  PJRT_LoadedExecutable *loaded;   // NULL: as above
  PJRT_Executable *description;
  int device_count;                // devices that it was compiled for; 0: portable
  int fixed_device;                // the only device that pj_execute can use, or -1: it names one at each call
  int output_count;
  executable_output *outputs;      // NULL: the plugin does not tell
  PJRT_ExecuteOptions execute_options;
  PJRT_LoadedExecutable_Execute_Args execute_args;  // all but the buffers and the device
};

// Takes ownership of both handles, also when it fails. `client` and `loaded` are NULL for an executable that cannot
// run; else `description` is NULL, and found out.
pj_status pj_executable_adopt(pj_plugin *plugin, pj_client *client, PJRT_LoadedExecutable *loaded,
                              PJRT_Executable *description, pj_executable **out_executable);

// StableHLO text or bytecode as the API's struct. Points to `code`.
PJRT_Program pj_stablehlo_program(const char *code, size_t code_size);

#endif
