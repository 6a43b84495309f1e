#include "ops/lowering.h"

PJ_LOWERINGS(shape_lowerings) = {
    {0},
};
