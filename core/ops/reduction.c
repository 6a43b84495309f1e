#include "ops/lowering.h"

PJ_LOWERINGS(reduction_lowerings) = {
    {0},
};
