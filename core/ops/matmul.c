#include "ops/lowering.h"

PJ_LOWERINGS(matmul_lowerings) = {
    {0},
};
