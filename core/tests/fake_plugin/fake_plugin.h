// A PJRT plugin for tests: no compiler, but the API's ownership rules, asynchronous results, donation, a memory limit,
// and every failure that a test asks for. Its shared library's path is the compile definition FAKE_PLUGIN.
//
// Any text that begins with "module" and holds a function @main compiles. @main's signature says the arguments (count
// and byte sizes are checked at execution), which of them are donated (tf.aliasing_output, jax.buffer_donor) and the
// results. What the results are, and what else happens, is said by comments, which a real compiler skips:
//
//   // fake: add                      result 0 = argument 0 + argument 1, elementwise, f32
//   // fake: copy                     result i = the bytes of argument i
//                                     (neither: all results are zeros)
//   // fake: compile-ms N             compiling takes N ms
//   // fake: compile-fail CODE TEXT   compiling fails with PJRT_Error_Code CODE
//   // fake: compile-abort            compiling ends the process, as XLA does on some programs
//   // fake: run-ms N                 the results are ready N ms after the execution began, on another thread
//   // fake: run-fail CODE TEXT       the execution is accepted, and its results carry the error
//
// What must be known before the plugin is loaded is read from the environment:
//
//   FAKE_PLUGIN_MINOR=N               API minor version (114)
//   FAKE_PLUGIN_TABLE_SIZE=N          struct_size of the table, in bytes
//   FAKE_PLUGIN_ABSENT=SLOT,SLOT      slots that are NULL
//   FAKE_PLUGIN_PLATFORM=NAME         platform name (fake); with "cpu", buffers are read in place
//   FAKE_PLUGIN_DEVICES=N             devices, unless the client option cpu_device_count says otherwise (2)
//   FAKE_PLUGIN_MEMORY=BYTES          limit of all buffers together (none)
//   FAKE_PLUGIN_ASYNC=1               every execution and transfer to the host ends on another thread
//   FAKE_PLUGIN_FAIL=SLOT:CODE:TEXT   every call of the slot fails
//   FAKE_PLUGIN_DELAY=SLOT:MS         every call of the slot takes so long
//
// Every struct must have exactly the size of API 0.114, as the strictest plugins demand.
#ifndef PJ_TESTS_FAKE_PLUGIN_H_
#define PJ_TESTS_FAKE_PLUGIN_H_

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fake_counts {
  int clients, buffers, events, loaded_executables, executables, serialized, topologies, errors;  // alive now
  int64_t bytes;                                                                                  // in live buffers
  int64_t compiles, loads, executions, to_host;                                                   // so far, that began
  int64_t executions_ended;                                                                       // so far
} fake_counts;

typedef struct fake_control {
  fake_counts (*counts)(void);
  void (*fail)(const char *slot, int code, const char *text, int times);  // the next `times` calls; 0 takes it back
  void (*delay)(const char *slot, int milliseconds);                      // every call; 0 takes it back
  void (*memory_limit)(int64_t bytes);                                    // 0: none
  void (*asynchronous)(bool on);
  void (*run_ms)(int milliseconds);  // every execution takes so long more, on another thread; 0 takes it back
} fake_control;

// The control of the plugin that was loaded from `path`, or is to be.
static inline const fake_control *fake_plugin_control(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *symbol = library ? dlsym(library, "fake_plugin") : NULL;
  if (!symbol) {
    fprintf(stderr, "%s is not the fake plugin\n", path);
    exit(2);
  }
  return symbol;
}

// Whether nothing of any client is alive.
static inline bool fake_plugin_is_empty(fake_counts c) {
  return !c.clients && !c.buffers && !c.events && !c.loaded_executables && !c.executables && !c.serialized &&
         !c.topologies && !c.errors && !c.bytes;
}

#endif
