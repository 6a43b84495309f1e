#include "ops/lowering.h"

PJ_LOWERINGS(norm_lowerings) = {
    {0},
};
