#include "ops/lowering.h"

PJ_LOWERINGS(distance_lowerings) = {
    {0},
};
