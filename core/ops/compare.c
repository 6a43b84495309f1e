#include "ops/lowering.h"

PJ_LOWERINGS(compare_lowerings) = {
    {0},
};
