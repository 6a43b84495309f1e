#include "ops/lowering.h"

PJ_LOWERINGS(dynamic_lowerings) = {
    {0},
};
