#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

pj_text pj_text_begin(char *buffer, size_t size) {
  if (size) *buffer = 0;
  return (pj_text){buffer, size};
}

void pj_text_add(pj_text *text, const char *format, ...) {
  if (text->left <= 1) return;
  va_list args;
  va_start(args, format);
  int written = vsnprintf(text->at, text->left, format, args);
  va_end(args);
  size_t used = written < 0 ? 0 : (size_t)written < text->left ? (size_t)written : text->left - 1;
  text->at += used;
  text->left -= used;
}

void pj_text_add_dims(pj_text *text, int rank, const int64_t *dims) {
  pj_text_add(text, "[");
  for (int i = 0; i < rank; ++i) pj_text_add(text, i ? ",%lld" : "%lld", (long long)dims[i]);
  pj_text_add(text, "]");
}

void pj_text_add_type(pj_text *text, pj_dtype dtype, int rank, const int64_t *dims) {
  pj_text_add(text, "%s", pj_dtype_name(dtype));
  pj_text_add_dims(text, rank, dims);
}
