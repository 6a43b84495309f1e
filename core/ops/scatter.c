#include "ops/lowering.h"

PJ_LOWERINGS(scatter_lowerings) = {
    {0},
};
