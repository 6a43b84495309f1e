#include "ops/lowering.h"

PJ_LOWERINGS(attention_lowerings) = {
    {0},
};
