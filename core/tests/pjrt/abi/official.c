#include "abi.h"

#include <xla/pjrt/c/pjrt_c_api.h>

#include "pjrt/slots.h"

#define FIELD ABI_FIELD
#define STRUCT ABI_STRUCT
#define CONSTANT(ours, official) {"constant", #ours, (size_t)(official), 0},

const abi_row abi_official[] = {
#include "fields.h"
    ABI_TABLE{"PJRT_Api", "", 0, PJRT_Api_STRUCT_SIZE},
};
const size_t abi_official_count = sizeof abi_official / sizeof abi_official[0];
