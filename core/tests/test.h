// The smallest test frame that tells where and what: CHECK counts and goes on, a test's name is the sentence it proves.
#ifndef PJ_TESTS_TEST_H_
#define PJ_TESTS_TEST_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pj/status.h"

static _Atomic int test_failures, test_checks;  // tests may check on several threads

#define CHECK(condition)                                                                   \
  do {                                                                                     \
    ++test_checks;                                                                         \
    if (!(condition)) {                                                                    \
      ++test_failures;                                                                     \
      fprintf(stderr, "%s:%d: in %s: not true: %s\n", __FILE__, __LINE__, __func__, #condition); \
    }                                                                                      \
  } while (0)

// The call must succeed.
#define CHECK_OK(expression)                                                                        \
  do {                                                                                              \
    pj_status check_status = (expression);                                                          \
    ++test_checks;                                                                                  \
    if (check_status) {                                                                             \
      ++test_failures;                                                                              \
      fprintf(stderr, "%s:%d: in %s: %s\n", __FILE__, __LINE__, __func__, pj_status_text(check_status)); \
      pj_status_free(check_status);                                                                 \
    }                                                                                               \
  } while (0)

// The call must fail with `code` and a sentence that contains `part`.
#define CHECK_FAILS(expression, wanted_code, part)                                                       \
  do {                                                                                                   \
    pj_status check_status = (expression);                                                               \
    ++test_checks;                                                                                       \
    if (pj_status_code(check_status) != (wanted_code) || !strstr(pj_status_text(check_status), (part))) { \
      ++test_failures;                                                                                   \
      fprintf(stderr, "%s:%d: in %s: wanted code %d and \"%s\", got %d: %s\n", __FILE__, __LINE__,       \
              __func__, (int)(wanted_code), (part), (int)pj_status_code(check_status),                   \
              pj_status_text(check_status));                                                             \
    }                                                                                                    \
    pj_status_free(check_status);                                                                        \
  } while (0)

#define RUN(test)                          \
  do {                                     \
    int before = test_failures;            \
    test();                                \
    printf("%s %s\n", test_failures == before ? "ok  " : "FAIL", #test); \
  } while (0)

// Ends a test program that cannot run here, with the reason: ctest counts it as skipped (SKIP_RETURN_CODE).
enum { TEST_SKIPPED = 77 };

// The plugin that the environment names in `variable` (PJ_PLUGIN, PJ_TPU_PLUGIN), or NULL. A name without a readable file
// ends the program as failed.
static inline const char *test_plugin_or_none(const char *variable) {
  const char *path = getenv(variable);
  if (!path || !*path) return NULL;
  if (!access(path, R_OK)) return path;
  printf("FAIL %s=%s names no file that can be read; give the plugin's absolute path\n", variable, path);
  exit(1);
}

// As above; without a name the program ends as skipped.
static inline const char *test_plugin(const char *variable) {
  const char *path = test_plugin_or_none(variable);
  if (path) return path;
  printf("skipped: %s names no plugin\n", variable);
  exit(TEST_SKIPPED);
}

// Prints the closing line and gives main's exit status; a run without a single check fails.
static inline int test_end(void) {
  printf("%d checks, %d failed\n", test_checks, test_failures);
  return test_failures || !test_checks;
}
#endif
