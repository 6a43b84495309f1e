#include "view/program.h"

#include "ir/types.h"
#include "test.h"

// The program's steps as text, one word each.
static const char *steps(const view_program *program) {
  static const char *const names[] = {"zeros", "bitcast", "reshape", "slice", "pad",
                                      "transpose", "broadcast", "gather", "conj", "neg"};
  static char text[512];
  text[0] = 0;
  for (int i = 0; i < program->count; ++i) {
    if (i) strcat(text, " ");
    strcat(text, names[program->steps[i].kind]);
  }
  return text;
}

static const char *read_steps(pj_type base, pj_view view) {
  view_program program;
  view_read_program(&base, &view, false, &program);
  return steps(&program);
}

static view_write_kind write_kind(pj_type base, pj_view view) {
  view_write write;
  view_write_program(&base, &view, &write);
  return write.kind;
}

static void usual_views_are_read_without_a_gather_and_in_few_steps(void) {
  pj_type base = array(PJ_F32, N(4, 6, 8)), flat = array(PJ_F32, N(95));
  const char *none = "", *slice = "slice", *select = "slice reshape";
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(4, 6, 8), S(48, 8, 1), 0)), none));
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(8, 4, 6), S(1, 48, 8), 0)), "transpose"));
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(24, 8), S(8, 1), 0)), "reshape"));
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(2, 6, 8), S(96, 8, 1), 0)), slice));        // x[::2]
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(4, 6, 4), S(48, 8, 2), 1)), slice));        // x[..., 1::2]
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(4, 2, 3), S(48, 16, 1), 8 + 2)), slice));   // x[:, 1:4:2, 2:5]
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(4, 8), S(48, 1), 16)), select));            // x[:, 2]
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, 0, S(0), S(0), 17)), select));
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(8, 4), S(1, 48), 16)), "slice reshape transpose"));
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(3, 4, 6, 8), S(0, 48, 8, 1), 0)), "broadcast"));
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(4, 6, 2, 3), S(48, 8, 4, 1), 0)), "reshape slice"));
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(4, 6), S(48, 9), 0)), "reshape slice"));    // diagonal of dims 1, 2
  CHECK(!strcmp(read_steps(flat, strided(PJ_F32, N(9, 6), S(10, 1), 3)), "pad reshape pad"));
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(5, 3), S(2, 1), 0)), "reshape gather"));  // unfold
  CHECK(!strcmp(read_steps(base, strided(PJ_F32, N(5, 0), S(2, 1), 0)), "zeros"));
}

static void dtypes_are_read_through_bitcasts_in_the_dimensions_of_the_base(void) {
  pj_type words = array(PJ_F32, N(4, 6)), pairs = array(PJ_C64, N(4, 6)), bytes = array(PJ_S8, N(7));
  CHECK(!strcmp(read_steps(words, strided(PJ_S32, N(4, 6), S(6, 1), 0)), "bitcast"));
  CHECK(!strcmp(read_steps(words, strided(PJ_BF16, N(4, 12), S(12, 1), 0)), "bitcast reshape"));
  CHECK(!strcmp(read_steps(words, strided(PJ_F64, N(4, 3), S(3, 1), 0)), "reshape bitcast"));
  CHECK(!strcmp(read_steps(words, strided(PJ_C64, N(4, 3), S(3, 1), 0)), "reshape bitcast"));
  CHECK(!strcmp(read_steps(pairs, strided(PJ_F32, N(4, 6, 2), S(12, 2, 1), 0)), "bitcast"));
  CHECK(!strcmp(read_steps(bytes, strided(PJ_BF16, N(2), S(1), 1)), "slice reshape bitcast slice"));
}

static void conjugate_and_negative_bits_are_applied_last(void) {
  pj_view view = strided(PJ_C64, N(4), S(1), 0);
  view.conj = view.neg = true;
  CHECK(!strcmp(read_steps(array(PJ_C64, N(4)), view), "conj neg"));
}

static void boxes_are_written_by_an_update_and_the_rest_by_merge_or_scatter(void) {
  pj_type base = array(PJ_F32, N(64, 64)), flat = array(PJ_F32, N(4096));
  CHECK(write_kind(base, strided(PJ_F32, N(64, 64), S(1, 64), 0)) == VIEW_REPLACE);
  CHECK(write_kind(base, strided(PJ_F32, N(16, 64), S(64, 1), 320)) == VIEW_UPDATE);    // x[5:21]
  CHECK(write_kind(base, strided(PJ_F32, N(64, 2), S(64, 1), 3)) == VIEW_UPDATE);       // x[:, 3:5]
  CHECK(write_kind(base, strided(PJ_F32, N(64), S(64), 3)) == VIEW_UPDATE);             // x[:, 3]
  CHECK(write_kind(flat, strided(PJ_F32, N(16, 32), S(256, 1), 64)) == VIEW_UPDATE);    // a layer among others
  CHECK(write_kind(base, strided(PJ_F32, N(64, 32), S(64, 2), 1)) == VIEW_MERGE);       // x[:, 1::2]
  CHECK(write_kind(base, strided(PJ_F32, N(64, 4), S(64, 16), 0)) == VIEW_SCATTER);     // x[:, ::16]: too sparse
  CHECK(write_kind(base, strided(PJ_F32, N(64), S(65), 0)) == VIEW_SCATTER);            // the diagonal
  CHECK(write_kind(base, strided(PJ_F32, N(2, 2), S(3, 2), 0)) == VIEW_SCATTER);        // interleaved
  CHECK(write_kind(base, strided(PJ_F32, N(2, 0), S(3, 2), 0)) == VIEW_KEEP);
}

static void a_base_of_bytes_is_rebased_to_the_box_that_is_written(void) {
  pj_type bytes = array(PJ_S8, N(8192)), type;
  pj_view layer = strided(PJ_BF16, N(16, 32), S(256, 1), 64), again = layer;
  again.offset = 96;
  CHECK(pj_view_rebase(&layer, &bytes, &type));
  CHECK(type.dtype == PJ_BF16 && type.rank == 2 && type.dims[0] == 16 && type.dims[1] == 256);
  CHECK(!pj_view_rebase(&layer, &type, &bytes));
  CHECK(!pj_view_rebase(&again, &type, &bytes));
}

static void a_rebased_base_is_not_rebased_again(void) {
  pj_type words = array(PJ_S64, N(1, 8)), type, again;
  pj_view column = strided(PJ_U8, N(3), S(24), 3);
  CHECK(pj_view_rebase(&column, &words, &type));
  CHECK(type.dtype == PJ_U8 && type.rank == 2 && type.dims[0] == 8 && type.dims[1] == 8);
  CHECK(!pj_view_rebase(&column, &type, &again));
}

static void a_base_that_has_dimensions_of_the_dtype_is_not_rebased(void) {
  pj_type base = array(PJ_F32, N(64, 64)), odd = array(PJ_S8, N(7)), type;
  pj_view diagonal = strided(PJ_F32, N(64), S(65), 0), part = strided(PJ_BF16, N(3), S(1), 0);
  CHECK(!pj_view_rebase(&diagonal, &base, &type));
  CHECK(!pj_view_rebase(&part, &odd, &type));  // seven bytes are not a number of bf16 elements
}

int main(void) {
  RUN(usual_views_are_read_without_a_gather_and_in_few_steps);
  RUN(dtypes_are_read_through_bitcasts_in_the_dimensions_of_the_base);
  RUN(conjugate_and_negative_bits_are_applied_last);
  RUN(boxes_are_written_by_an_update_and_the_rest_by_merge_or_scatter);
  RUN(a_base_of_bytes_is_rebased_to_the_box_that_is_written);
  RUN(a_rebased_base_is_not_rebased_again);
  RUN(a_base_that_has_dimensions_of_the_dtype_is_not_rebased);
  return test_end();
}
