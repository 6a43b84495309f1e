#include "ops/lowering.h"

PJ_LOWERINGS(pointwise_lowerings) = {
    {0},
};
