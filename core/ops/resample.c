#include "ops/lowering.h"

PJ_LOWERINGS(resample_lowerings) = {
    {0},
};
