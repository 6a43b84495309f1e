#include "ops/lowering.h"

PJ_LOWERINGS(activation_lowerings) = {
    {0},
};
