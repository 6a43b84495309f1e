#include "ops/lowering.h"

PJ_LOWERINGS(fft_lowerings) = {
    {0},
};
