#include "ops/lowering.h"

PJ_LOWERINGS(index_lowerings) = {
    {0},
};
