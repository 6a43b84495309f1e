#include "ops/lowering.h"

PJ_LOWERINGS(loss_lowerings) = {
    {0},
};
