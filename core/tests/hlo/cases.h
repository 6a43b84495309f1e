// One small module for each operation that the writer knows, for the tests that compile them.
#ifndef PJ_TESTS_HLO_CASES_H_
#define PJ_TESTS_HLO_CASES_H_

#include "hlo/hlo.h"

#define HLO_CASE_RESULTS 64

typedef struct hlo_case {
  const char *name;
  void (*build)(hlo *h, hlo_value *results, int *count);  // appends at most HLO_CASE_RESULTS results
} hlo_case;

// Calls `visit` with each case.
void hlo_each_case(void (*visit)(const hlo_case *c, void *context), void *context);

#endif
