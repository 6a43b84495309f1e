#include "ops/lowering.h"

PJ_LOWERINGS(statistics_lowerings) = {
    {0},
};
