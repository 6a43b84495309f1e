// Which core this is.
#ifndef PJ_VERSION_H_
#define PJ_VERSION_H_

#include "pj/status.h"

#ifdef __cplusplus
extern "C" {
#endif

PJ_EXPORT const char *pj_version(void);  // "0.1.0"
PJ_EXPORT int pj_abi(void);              // the number in libpj.so.N: changes when old programs must be compiled anew

#ifdef __cplusplus
}
#endif
#endif
