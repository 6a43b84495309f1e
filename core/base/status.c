#include "pj/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pj_status_record {
  pj_code code;
  char *text;  // NULL only in the record that is used when memory is short
};

static struct pj_status_record out_of_memory = {PJ_RESOURCE_EXHAUSTED, NULL};

static pj_status status_from_text(pj_code code, char *text) {
  pj_status status = text ? malloc(sizeof *status) : NULL;
  if (!status) {
    free(text);
    return &out_of_memory;
  }
  status->code = code;
  status->text = text;
  return status;
}

pj_status pj_error_v(pj_code code, const char *format, va_list args) {
  char *text = NULL;
  if (vasprintf(&text, format, args) < 0) text = NULL;
  return status_from_text(code, text);
}

pj_status pj_error(pj_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  pj_status status = pj_error_v(code, format, args);
  va_end(args);
  return status;
}

pj_status pj_status_context(pj_status status, const char *format, ...) {
  if (!status || status == &out_of_memory) return status;
  char *context = NULL, *text = NULL;
  va_list args;
  va_start(args, format);
  if (vasprintf(&context, format, args) < 0) context = NULL;
  va_end(args);
  if (context && asprintf(&text, "%s: %s", context, status->text) >= 0) {
    free(status->text);
    status->text = text;
  }
  free(context);
  return status;
}

pj_status pj_status_copy(pj_status status) {
  if (!status || status == &out_of_memory) return status;
  return status_from_text(status->code, strdup(status->text));
}

pj_code pj_status_code(pj_status status) { return status ? status->code : PJ_OK; }

const char *pj_status_text(pj_status status) {
  if (!status) return "";
  return status->text ? status->text : "out of host memory";
}

void pj_status_free(pj_status status) {
  if (!status || status == &out_of_memory) return;
  free(status->text);
  free(status);
}
