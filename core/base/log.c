#include "base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool enabled(pj_log_level level) {
  static const char *const NAMES[] = {"off", "error", "warning", "info", "debug"};
  int threshold = PJ_LOG_WARNING;
  const char *wanted = getenv("TORCH_PJRT_LOG");
  for (int i = 0; wanted && i < (int)(sizeof NAMES / sizeof *NAMES); ++i)
    if (!strcmp(wanted, NAMES[i])) threshold = i - 1;
  return (int)level <= threshold;
}

void pj_log(pj_log_level level, const char *format, ...) {
  if (!enabled(level)) return;
  char line[4096];
  int used = snprintf(line, sizeof line, "torch_pjrt: ");
  va_list args;
  va_start(args, format);
  int more = vsnprintf(line + used, sizeof line - (size_t)used, format, args);
  va_end(args);
  if (more < 0) return;
  size_t size = (size_t)used + (size_t)more;
  if (size > sizeof line - 1) size = sizeof line - 1;
  for (size_t i = 0; i < size; ++i)
    if (line[i] == '\n') line[i] = ' ';
  line[size++] = '\n';
  if (write(STDERR_FILENO, line, size) < 0) return;  // nowhere to tell
}
