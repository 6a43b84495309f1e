#include "ops/lowering.h"

PJ_LOWERINGS(sort_lowerings) = {
    {0},
};
