// A reference interpreter of view programs on host memory: plain loops over dense row-major arrays.
#ifndef PJ_TESTS_VIEW_INTERPRET_H_
#define PJ_TESTS_VIEW_INTERPRET_H_

#include "view/program.h"

// The bytes that the program makes of `in` (of type program->in). The caller frees them. `start`: the element at which a
// view that moves starts, else 0.
void *interpret_program(const view_program *program, int64_t start, const void *in);

// The bytes of the base after `source` was written. The caller frees them.
void *interpret_write(const view_write *write, int64_t start, const void *base, const void *source);

#endif
