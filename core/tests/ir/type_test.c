#include "ir/types.h"
#include "test.h"

static void a_view_outside_of_its_storage_is_refused(void) {
  pj_type base = array(PJ_F32, N(4, 5));
  pj_view whole = strided(PJ_F32, N(4, 5), S(5, 1), 0), over = strided(PJ_F32, N(4, 5), S(5, 1), 1);
  pj_view bytes = strided(PJ_U8, N(80), S(1), 0), too_many_bytes = strided(PJ_U8, N(81), S(1), 0);
  pj_view empty = strided(PJ_F32, N(4, 0), S(1, 1), 1000);
  pj_view negative = strided(PJ_F32, N(4), S(-1), 3), before = strided(PJ_F32, N(1), S(1), -1);
  pj_view huge = strided(PJ_F32, N(INT64_MAX, 2), S(INT64_MAX, 1), 0);
  pj_view repeated = strided(PJ_F32, N(INT64_MAX / 4, 4), S(0, 0), 0);
  pj_view empty_rows = strided(PJ_F32, N(INT64_MAX, 2, 0), S(0, 0, 1), 0);
  pj_view no_dtype = strided(PJ_INVALID, N(1), S(1), 0), deep = whole, conj = whole;
  pj_view neg = strided(PJ_PRED, N(1), S(1), 0);
  deep.rank = PJ_MAX_RANK + 1;
  conj.conj = true;
  neg.neg = true;
  CHECK_OK(pj_view_check(&whole, &base));
  CHECK_OK(pj_view_check(&bytes, &base));
  CHECK_OK(pj_view_check(&empty, &base));
  CHECK_FAILS(pj_view_check(&over, &base), PJ_INVALID_ARGUMENT,
              "reaches element 20 of dtype f32; the storage holds 80 bytes");
  CHECK_FAILS(pj_view_check(&too_many_bytes, &base), PJ_INVALID_ARGUMENT, "reaches element 80");
  CHECK_FAILS(pj_view_check(&negative, &base), PJ_INVALID_ARGUMENT, "stride -1");
  CHECK_FAILS(pj_view_check(&before, &base), PJ_INVALID_ARGUMENT, "offset is -1");
  CHECK_FAILS(pj_view_check(&huge, &base), PJ_INVALID_ARGUMENT, "reaches element");
  CHECK_FAILS(pj_view_check(&repeated, &base), PJ_INVALID_ARGUMENT, "more bytes than can be counted");
  CHECK_FAILS(pj_view_check(&empty_rows, &base), PJ_INVALID_ARGUMENT, "more bytes than can be counted");
  CHECK_FAILS(pj_view_check(&no_dtype, &base), PJ_INVALID_ARGUMENT, "dtype invalid");
  CHECK_FAILS(pj_view_check(&deep, &base), PJ_INVALID_ARGUMENT, "17 dimensions");
  CHECK_FAILS(pj_view_check(&conj, &base), PJ_INVALID_ARGUMENT, "cannot be conjugated");
  CHECK_FAILS(pj_view_check(&neg, &base), PJ_INVALID_ARGUMENT, "cannot be negated");
}

static void an_array_that_cannot_be_is_refused(void) {
  pj_type good = array(PJ_F32, N(0, INT64_MAX / 4)), negative = array(PJ_F32, N(4, -1));
  pj_type large = array(PJ_U8, N(INT64_MAX, 2)), large_items = array(PJ_F64, N(INT64_MAX / 4));
  pj_type deep = good, shallow = good;
  pj_type empty = array(PJ_F32, N(INT64_MAX, 2, 0)), unknown = array((pj_dtype)77, N(1));
  deep.rank = PJ_MAX_RANK + 1;
  shallow.rank = -1;
  CHECK_OK(pj_type_check(&good));
  CHECK_FAILS(pj_type_check(&negative), PJ_INVALID_ARGUMENT, "dimension 1 has size -1");
  CHECK_FAILS(pj_type_check(&large), PJ_INVALID_ARGUMENT, "more bytes than can be counted");
  CHECK_FAILS(pj_type_check(&large_items), PJ_INVALID_ARGUMENT, "more bytes than can be counted");
  CHECK_FAILS(pj_type_check(&empty), PJ_INVALID_ARGUMENT, "more bytes than can be counted");
  CHECK_FAILS(pj_type_check(&deep), PJ_INVALID_ARGUMENT, "at most 16 dimensions, not 17");
  CHECK_FAILS(pj_type_check(&shallow), PJ_INVALID_ARGUMENT, "at most 16 dimensions, not -1");
  CHECK_FAILS(pj_type_check(&unknown), PJ_INVALID_ARGUMENT, "77 is no element type");
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

int main(void) {
  RUN(a_view_outside_of_its_storage_is_refused);
  RUN(an_array_that_cannot_be_is_refused);
  RUN(strides_of_dimensions_of_size_one_say_nothing);
  RUN(a_channels_last_tensor_is_stored_as_nhwc);
  RUN(only_views_whose_elements_share_memory_overlap);
  return test_end();
}
