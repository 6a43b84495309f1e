#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pj/run.h"

pj_status pj_default_worker_path(char *out_path, size_t size) {
  // Where the worker is built and where a Python package has it, then where `cmake --install` puts it.
  static const char *const PLACES[] = {"pj-worker", "pj/pj-worker"};
  Dl_info library;
  char file[PATH_MAX];
  if (!dladdr((void *)pj_default_worker_path, &library) || !realpath(library.dli_fname, file))
    return pj_error(PJ_NOT_FOUND, "no compile worker: the library's own file cannot be found");
  *strrchr(file, '/') = '\0';
  for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; ++i) {
    int length = snprintf(out_path, size, "%s/%s", file, PLACES[i]);
    if (length < 0 || (size_t)length >= size)
      return pj_error(PJ_INVALID_ARGUMENT, "the compile worker's path does not fit into %zu bytes", size);
    if (!access(out_path, X_OK)) return NULL;
  }
  return pj_error(PJ_NOT_FOUND, "no compile worker: neither %s/%s nor %s/%s is a program that can be run", file, PLACES[0],
                  file, PLACES[1]);
}
