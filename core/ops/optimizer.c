#include "ops/lowering.h"

PJ_LOWERINGS(optimizer_lowerings) = {
    {0},
};
