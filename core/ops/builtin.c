#include "ops/lowering.h"

PJ_LOWERINGS(builtin_lowerings) = {
    {0},
};
