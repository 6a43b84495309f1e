#include "ops/lowering.h"

PJ_LOWERINGS(recurrent_lowerings) = {
    {0},
};
