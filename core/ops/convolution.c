#include "ops/lowering.h"

PJ_LOWERINGS(convolution_lowerings) = {
    {0},
};
