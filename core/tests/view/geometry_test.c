#include "test.h"
#include "view/program.h"

static pj_type array(pj_dtype dtype, int rank, const int64_t *dims) {
  pj_type type = {.dtype = dtype, .rank = rank};
  memcpy(type.dims, dims, sizeof(int64_t) * (size_t)rank);
  return type;
}

static pj_view strided(pj_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset) {
  pj_view view = {.dtype = dtype, .rank = rank, .offset = offset};
  memcpy(view.sizes, sizes, sizeof(int64_t) * (size_t)rank);
  memcpy(view.strides, strides, sizeof(int64_t) * (size_t)rank);
  return view;
}

#define N(...) (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#define S(...) (int64_t[]){__VA_ARGS__}

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
  view_read_program(&base, &view, &program);
  return steps(&program);
}

static view_write_kind write_kind(pj_type base, pj_view view) {
  view_write write;
  view_write_program(&base, &view, &write);
  return write.kind;
}

static void a_view_outside_of_its_storage_is_refused(void) {
  pj_type base = array(PJ_F32, N(4, 5));
  pj_view whole = strided(PJ_F32, N(4, 5), S(5, 1), 0), over = strided(PJ_F32, N(4, 5), S(5, 1), 1);
  pj_view bytes = strided(PJ_U8, N(80), S(1), 0), too_many_bytes = strided(PJ_U8, N(81), S(1), 0);
  pj_view empty = strided(PJ_F32, N(4, 0), S(1, 1), 1000);
  pj_view negative = strided(PJ_F32, N(4), S(-1), 3), before = strided(PJ_F32, N(1), S(1), -1);
  pj_view huge = strided(PJ_F32, N(INT64_MAX, 2), S(INT64_MAX, 1), 0);
  pj_view no_dtype = strided(PJ_INVALID, N(1), S(1), 0), deep = whole, conj = whole, neg = strided(PJ_PRED, N(1), S(1), 0);
  deep.rank = PJ_MAX_RANK + 1;
  conj.conj = true;
  neg.neg = true;
  CHECK_OK(pj_view_check(&whole, &base));
  CHECK_OK(pj_view_check(&bytes, &base));
  CHECK_OK(pj_view_check(&empty, &base));
  CHECK_FAILS(pj_view_check(&over, &base), PJ_INVALID_ARGUMENT, "reaches element 20 of dtype f32; the storage holds 80 bytes");
  CHECK_FAILS(pj_view_check(&too_many_bytes, &base), PJ_INVALID_ARGUMENT, "reaches element 80");
  CHECK_FAILS(pj_view_check(&negative, &base), PJ_INVALID_ARGUMENT, "stride -1");
  CHECK_FAILS(pj_view_check(&before, &base), PJ_INVALID_ARGUMENT, "offset is -1");
  CHECK_FAILS(pj_view_check(&huge, &base), PJ_INVALID_ARGUMENT, "reaches element");
  CHECK_FAILS(pj_view_check(&no_dtype, &base), PJ_INVALID_ARGUMENT, "dtype invalid");
  CHECK_FAILS(pj_view_check(&deep, &base), PJ_INVALID_ARGUMENT, "17 dimensions");
  CHECK_FAILS(pj_view_check(&conj, &base), PJ_INVALID_ARGUMENT, "cannot be conjugated");
  CHECK_FAILS(pj_view_check(&neg, &base), PJ_INVALID_ARGUMENT, "cannot be negated");
}

static void strides_of_dimensions_of_size_one_say_nothing(void) {
  pj_type base = array(PJ_F32, N(1, 4, 1));
  pj_view view = strided(PJ_F32, N(1, 4, 1), S(77, 1, 99), 0);
  CHECK(pj_view_is_identity(&view, &base));
  CHECK(pj_view_covers(&view, 16));
  CHECK(!pj_view_overlaps_itself(&view));
}

static void a_channels_last_tensor_is_stored_as_nhwc(void) {
  pj_view view = strided(PJ_F32, N(2, 3, 4, 5), S(60, 1, 15, 3), 0);
  pj_type type;
  int permutation[PJ_MAX_RANK];
  CHECK(pj_view_covers(&view, 480));
  pj_view_memory_order(&view, &type, permutation);
  CHECK(type.dims[0] == 2 && type.dims[1] == 4 && type.dims[2] == 5 && type.dims[3] == 3);
  CHECK(permutation[0] == 0 && permutation[1] == 2 && permutation[2] == 3 && permutation[3] == 1);
}

static void only_views_whose_elements_share_memory_overlap(void) {
  pj_view expanded = strided(PJ_F32, N(3, 4), S(0, 1), 0), windows = strided(PJ_F32, N(3, 4), S(2, 1), 0);
  pj_view interleaved = strided(PJ_F32, N(2, 2), S(3, 2), 0), apart = strided(PJ_F32, N(3, 4), S(4, 6), 0);
  pj_view meeting = strided(PJ_F32, N(4, 4), S(4, 6), 0);  // 3 * 4 == 2 * 6
  pj_view big = strided(PJ_F32, N(1000000, 1000000), S(1000000, 1), 0);
  pj_view big_windows = strided(PJ_F32, N(1000000, 1000000), S(1, 1), 0);
  CHECK(pj_view_overlaps_itself(&expanded));
  CHECK(pj_view_overlaps_itself(&windows));
  CHECK(!pj_view_overlaps_itself(&interleaved));
  CHECK(!pj_view_overlaps_itself(&apart));
  CHECK(pj_view_overlaps_itself(&meeting));
  CHECK(!pj_view_overlaps_itself(&big));
  CHECK(pj_view_overlaps_itself(&big_windows));
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
  CHECK(write_kind(flat, strided(PJ_F32, N(16, 32), S(256, 1), 64)) == VIEW_UPDATE);    // a layer of an interleaved cache
  CHECK(write_kind(base, strided(PJ_F32, N(64, 32), S(64, 2), 1)) == VIEW_MERGE);       // x[:, 1::2]
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

static void a_base_that_has_dimensions_of_the_dtype_is_not_rebased(void) {
  pj_type base = array(PJ_F32, N(64, 64)), odd = array(PJ_S8, N(7)), type;
  pj_view diagonal = strided(PJ_F32, N(64), S(65), 0), part = strided(PJ_BF16, N(3), S(1), 0);
  CHECK(!pj_view_rebase(&diagonal, &base, &type));
  CHECK(!pj_view_rebase(&part, &odd, &type));  // seven bytes are not a number of bf16 elements
}

int main(void) {
  RUN(a_view_outside_of_its_storage_is_refused);
  RUN(strides_of_dimensions_of_size_one_say_nothing);
  RUN(a_channels_last_tensor_is_stored_as_nhwc);
  RUN(only_views_whose_elements_share_memory_overlap);
  RUN(usual_views_are_read_without_a_gather_and_in_few_steps);
  RUN(dtypes_are_read_through_bitcasts_in_the_dimensions_of_the_base);
  RUN(conjugate_and_negative_bits_are_applied_last);
  RUN(boxes_are_written_by_an_update_and_the_rest_by_merge_or_scatter);
  RUN(a_base_of_bytes_is_rebased_to_the_box_that_is_written);
  RUN(a_base_that_has_dimensions_of_the_dtype_is_not_rebased);
  return test_end();
}
