#include "ops/lowering.h"

PJ_LOWERINGS(factory_lowerings) = {
    {0},
};
