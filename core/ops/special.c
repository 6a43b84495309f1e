#include "ops/lowering.h"

PJ_LOWERINGS(special_lowerings) = {
    {0},
};
