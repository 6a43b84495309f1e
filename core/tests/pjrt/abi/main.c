// Built where -DPJ_OFFICIAL_HEADER_DIR names the folder that holds xla/pjrt/c/pjrt_c_api.h: the header is not ours to
// carry. The source distribution of pypjrt on PyPI has it below vendor/.
#include "abi.h"
#include "test.h"

static void our_declarations_match_the_official_header(void) {
  CHECK(abi_ours_count == abi_official_count);
  for (size_t i = 0; i < abi_ours_count; ++i) {
    const abi_row *a = &abi_ours[i], *b = &abi_official[i];
    bool same = !strcmp(a->owner, b->owner) && !strcmp(a->name, b->name);
    same = same && a->offset == b->offset && a->size == b->size;
    CHECK(same);
    if (!same)
      fprintf(stderr, "  %s.%s: ours at %zu of size %zu, official at %zu of size %zu\n", a->owner, a->name, a->offset,
              a->size, b->offset, b->size);
  }
}

// A field that is missing from the list would leave a hole that no padding explains.
static void the_list_of_fields_leaves_no_hole(void) {
  size_t end = 0;
  for (size_t i = 0; i < abi_ours_count; ++i) {
    const abi_row *row = &abi_ours[i];
    if (!strcmp(row->owner, "constant")) continue;
    if (!*row->name) {
      CHECK(row->size == end);
      end = 0;
      continue;
    }
    CHECK(row->offset < end + 8);
    if (row->offset + row->size > end) end = row->offset + row->size;
  }
}

int main(void) {
  RUN(our_declarations_match_the_official_header);
  RUN(the_list_of_fields_leaves_no_hole);
  return test_end();
}
