#ifndef PJ_TESTS_FAKE_PLUGIN_PROGRAM_H_
#define PJ_TESTS_FAKE_PLUGIN_PROGRAM_H_

#include "pj/dtype.h"

enum { FAKE_MAX_VALUES = 512 };

typedef struct fake_type {
  pj_dtype dtype;
  int rank;
  int64_t dims[PJ_MAX_RANK];
  size_t size;  // in bytes
  bool donated;
} fake_type;

typedef enum fake_kind { FAKE_ZEROS, FAKE_ADD, FAKE_COPY } fake_kind;

typedef struct fake_program {
  int refs;
  char *text;
  size_t text_size;
  bool portable;
  int partitions;
  fake_kind kind;
  int compile_ms, run_ms;
  int compile_code, run_code;
  char compile_error[256], run_error[256];
  bool compile_abort;
  int argument_count, result_count;
  fake_type arguments[FAKE_MAX_VALUES], results[FAKE_MAX_VALUES];
  // What PJRT_Executable_OutputElementTypes and _OutputDimensions point to.
  pj_dtype output_types[FAKE_MAX_VALUES];
  int64_t output_dims[FAKE_MAX_VALUES * PJ_MAX_RANK];
  size_t output_ranks[FAKE_MAX_VALUES];
} fake_program;

// NULL, with a sentence in `error`, where the text or the options are not understood.
fake_program *fake_program_parse(const char *text, size_t size, const uint8_t *options, size_t options_size,
                                 char error[256]);
void fake_program_free(fake_program *program);

// The bytes of the results from those of the arguments; sizes are those of the types.
void fake_program_run(const fake_program *program, void *const *arguments, void **results);

#endif
