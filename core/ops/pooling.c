#include "ops/lowering.h"

PJ_LOWERINGS(pooling_lowerings) = {
    {0},
};
