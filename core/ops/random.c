#include "ops/lowering.h"

PJ_LOWERINGS(random_lowerings) = {
    {0},
};
