// A line of text in a buffer of fixed size: what does not fit is cut off. The buffer always ends with NUL.
#ifndef PJ_BASE_TEXT_H_
#define PJ_BASE_TEXT_H_

#include <stddef.h>
#include <stdint.h>

#include "pj/dtype.h"

typedef struct pj_text {
  char *at;     // the NUL
  size_t left;  // room, the NUL's included
} pj_text;

pj_text pj_text_begin(char *buffer, size_t size);
void pj_text_add(pj_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
// "[3,4]"
void pj_text_add_dims(pj_text *text, int rank, const int64_t *dims);
// "f32[3,4]"
void pj_text_add_type(pj_text *text, pj_dtype dtype, int rank, const int64_t *dims);

#endif
