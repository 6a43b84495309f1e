#include "ops/lowering.h"

PJ_LOWERINGS(linalg_lowerings) = {
    {0},
};
