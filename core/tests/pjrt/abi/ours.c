#include "abi.h"

#include "pjrt/abi.h"

#define FIELD ABI_FIELD
#define STRUCT ABI_STRUCT
#define CONSTANT(ours, official) {"constant", #ours, (size_t)(ours), 0},

const abi_row abi_ours[] = {
#include "fields.h"
    ABI_TABLE{"PJRT_Api", "", 0, sizeof(PJRT_Api)},
};
const size_t abi_ours_count = sizeof abi_ours / sizeof abi_ours[0];
