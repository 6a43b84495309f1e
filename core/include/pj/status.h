// Status of a call: NULL is success, anything else is an error that the receiver owns.
#ifndef PJ_STATUS_H_
#define PJ_STATUS_H_

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PJ_EXPORT __attribute__((visibility("default")))

// The first sixteen are PJRT_Error_Code's numbers; the rest name the exception type that PyTorch raises on CPU.
typedef enum pj_code {
  PJ_OK = 0,
  PJ_CANCELLED = 1,
  PJ_UNKNOWN = 2,
  PJ_INVALID_ARGUMENT = 3,
  PJ_DEADLINE_EXCEEDED = 4,
  PJ_NOT_FOUND = 5,
  PJ_ALREADY_EXISTS = 6,
  PJ_PERMISSION_DENIED = 7,
  PJ_RESOURCE_EXHAUSTED = 8,
  PJ_FAILED_PRECONDITION = 9,
  PJ_ABORTED = 10,
  PJ_OUT_OF_RANGE = 11,  // an index out of range: Python's IndexError
  PJ_UNIMPLEMENTED = 12,
  PJ_INTERNAL = 13,
  PJ_UNAVAILABLE = 14,
  PJ_DATA_LOSS = 15,
  PJ_TYPE_ERROR = 100,
  PJ_VALUE_ERROR = 101,
} pj_code;

typedef struct pj_status_record *pj_status;

// A new error with a printf-formatted sentence. Never returns NULL, also when memory is short.
PJ_EXPORT pj_status pj_error(pj_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));
PJ_EXPORT pj_status pj_error_v(pj_code code, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

// Puts "context: " before the sentence of `status`; takes and returns ownership. NULL stays NULL.
PJ_EXPORT pj_status pj_status_context(pj_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

// An independent copy, for errors that several readers must see.
PJ_EXPORT pj_status pj_status_copy(pj_status status);

PJ_EXPORT pj_code pj_status_code(pj_status status);

// The whole sentence; valid until the status is freed. "" for NULL.
PJ_EXPORT const char *pj_status_text(pj_status status);

// NULL is allowed.
PJ_EXPORT void pj_status_free(pj_status status);

// Returns the error of `expression` from the calling function, if it has one.
#define PJ_TRY(expression)                \
  do {                                    \
    pj_status try_status = (expression);  \
    if (try_status) return try_status;    \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
