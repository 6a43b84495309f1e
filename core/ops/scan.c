#include "ops/lowering.h"

PJ_LOWERINGS(scan_lowerings) = {
    {0},
};
