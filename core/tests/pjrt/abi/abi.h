// One row of what a header says: a field's offset and size, a struct's size as the ABI counts it, or a constant.
#ifndef PJ_TESTS_PJRT_ABI_H_
#define PJ_TESTS_PJRT_ABI_H_

#include <stddef.h>

typedef struct abi_row {
  const char *owner, *name;
  size_t offset, size;  // of a struct: 0 and its struct_size; of a constant: its value and 0
} abi_row;

extern const abi_row abi_ours[], abi_official[];
extern const size_t abi_ours_count, abi_official_count;

#define ABI_FIELD(owner, field) {#owner, #field, offsetof(owner, field), sizeof(((owner *)0)->field)},
#define ABI_STRUCT(owner) {#owner, "", 0, owner##_STRUCT_SIZE},
#define ABI_SLOT(name) ABI_FIELD(PJRT_Api, PJRT_##name)
#define ABI_TABLE                                                                                            \
  ABI_FIELD(PJRT_Api, struct_size) ABI_FIELD(PJRT_Api, extension_start) ABI_FIELD(PJRT_Api, pjrt_api_version) \
  PJRT_API_SLOTS(ABI_SLOT, ABI_SLOT, ABI_SLOT, ABI_SLOT)

#endif
