#include "pj/version.h"

const char *pj_version(void) { return PJ_VERSION; }
int pj_abi(void) { return PJ_ABI; }
