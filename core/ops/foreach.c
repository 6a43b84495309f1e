#include "ops/lowering.h"

PJ_LOWERINGS(foreach_lowerings) = {
    {0},
};
