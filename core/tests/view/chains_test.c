// Random views against element by element addressing of the base's bytes.
#include "test.h"
#include "view/chain.h"
#include "view/interpret.h"

enum { CHAINS = 200000 };

static int reads[VIEW_NEG + 1], writes[VIEW_SCATTER + 1], refused, trimmed, moved, moved_writes[VIEW_SCATTER + 1];

static bool same(const char *a, const char *b, size_t size, const pj_type *base, const pj_view *view,
                 const char *what) {
  bool same = !memcmp(a, b, size);
  if (!same) fprintf(stderr, "%s: %s\n", what, chain_text(base, view));
  return same;
}

static void check_read(const pj_type *base, const pj_view *view, const char *bytes) {
  view_program program;
  view_read_program(base, view, false, &program);
  for (int i = 0; i < program.count; ++i) ++reads[program.steps[i].kind];
  pj_type type = chain_type(view);
  CHECK(!memcmp(&program.out.dims, type.dims, sizeof(int64_t) * (size_t)type.rank));
  CHECK(program.out.rank == type.rank && program.out.dtype == type.dtype);
  char *want = chain_read(view, bytes), *got = interpret_program(&program, 0, bytes);
  CHECK(same(want, got, pj_type_bytes(&type), base, view, "read"));
  if (pj_view_is_identity(view, base)) CHECK(program.count == 0 || pj_type_elements(base) == 0);
  free(want);
  free(got);
}

static void check_write(chain_random *random, const pj_type *base, const pj_view *view, const char *bytes) {
  view_write write;
  view_write_program(base, view, &write);
  ++writes[write.kind];
  trimmed += write.head != 0;
  pj_type type = chain_type(view);
  char *source = chain_bytes(random, &type), *want = malloc(pj_type_bytes(base) + 1);
  if (!want) abort();
  memcpy(want, bytes, pj_type_bytes(base));
  chain_write(view, want, source);
  char *got = interpret_write(&write, 0, bytes, source);
  CHECK(same(want, got, pj_type_bytes(base), base, view, "write"));

  // The same through the base that the write is cheap for.
  pj_type rebased;
  if (pj_view_rebase(view, base, &rebased)) {
    CHECK(pj_type_bytes(&rebased) == pj_type_bytes(base) && rebased.dtype == view->dtype);
    pj_type again;
    CHECK(!pj_view_rebase(view, &rebased, &again));
    free(got);
    view_write_program(&rebased, view, &write);
    got = interpret_write(&write, 0, bytes, source);
    CHECK(same(want, got, pj_type_bytes(base), base, view, "write after rebase"));
    CHECK(write.kind == VIEW_REPLACE || write.kind == VIEW_SCATTER || write.base.count == 0);
  }
  free(source);
  free(want);
  free(got);
}

// The program of the view at offset 0, told where this one starts.
static void check_move(chain_random *random, const pj_type *base, const pj_view *view, const char *bytes) {
  pj_view first = *view;
  first.offset = 0;
  view_program program;
  view_read_program(base, &first, true, &program);
  pj_type type = chain_type(view);
  char *want = chain_read(view, bytes), *got = interpret_program(&program, view->offset, bytes);
  CHECK(same(want, got, pj_type_bytes(&type), base, view, "moved read"));
  free(want);
  free(got);
  ++moved;
  if (pj_view_overlaps_itself(view)) return;
  view_write write;
  view_write_program(base, &first, &write);
  ++moved_writes[write.kind];
  char *source = chain_bytes(random, &type);
  want = malloc(pj_type_bytes(base) + 1);
  if (!want) abort();
  memcpy(want, bytes, pj_type_bytes(base));
  chain_write(view, want, source);
  got = interpret_write(&write, view->offset, bytes, source);
  CHECK(same(want, got, pj_type_bytes(base), base, view, "moved write"));
  free(source);
  free(want);
  free(got);
}

static int compare_addresses(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void check_geometry(const pj_type *base, const pj_view *view) {
  pj_type type = chain_type(view);
  int64_t count = pj_type_elements(&type), at = 0;
  int64_t *addresses = malloc(sizeof(int64_t) * (size_t)(count + 1));
  if (!addresses) abort();
  bool in_order = view->dtype == base->dtype && !view->conj && !view->neg && type.rank == base->rank &&
                  !memcmp(type.dims, base->dims, sizeof(int64_t) * (size_t)type.rank);
  int64_t place[PJ_MAX_RANK] = {0};
  for (; at < count; ++at) {
    addresses[at] = view->offset;
    for (int i = 0; i < view->rank; ++i) addresses[at] += place[i] * view->strides[i];
    in_order &= addresses[at] == at;
    for (int i = view->rank - 1; i >= 0 && ++place[i] == view->sizes[i]; --i) place[i] = 0;
  }
  qsort(addresses, (size_t)count, sizeof *addresses, compare_addresses);
  bool overlaps = false;
  for (at = 1; at < count; ++at) overlaps |= addresses[at] == addresses[at - 1];
  bool covers = pj_type_bytes(&type) == pj_type_bytes(base) && !overlaps;
  covers &= !count || addresses[count - 1] == count - 1;
  CHECK(pj_view_overlaps_itself(view) == overlaps);
  CHECK(pj_view_covers(view, pj_type_bytes(base)) == covers);
  CHECK(pj_view_is_identity(view, base) == in_order);
  if (covers) {
    pj_type order;
    int permutation[PJ_MAX_RANK];
    pj_view_memory_order(view, &order, permutation);
    pj_view back = {.dtype = order.dtype, .rank = order.rank};
    for (int i = 0; i < back.rank; ++i) {
      back.sizes[i] = order.dims[i];
      back.strides[i] = view->strides[permutation[i]];
      CHECK(back.sizes[i] == view->sizes[permutation[i]]);
    }
    CHECK(pj_view_is_identity(&back, &order));
  }
  free(addresses);
}

static void random_views_read_and_write_what_addressing_says(void) {
  chain_random random = {20260729};
  for (int i = 0; i < CHAINS && test_failures < 20; ++i) {
    pj_type base;
    pj_view view;
    chain_make(&random, &base, &view);
    CHECK_OK(pj_view_check(&view, &base));
    check_geometry(&base, &view);
    char *bytes = chain_bytes(&random, &base);
    check_read(&base, &view, bytes);
    if (pj_view_overlaps_itself(&view)) ++refused;
    else check_write(&random, &base, &view, bytes);
    if (view.offset && pj_view_moves(&view, &base)) check_move(&random, &base, &view, bytes);
    free(bytes);
  }
}

static void random_views_meet_every_kind_of_step_and_write(void) {
  for (int i = 0; i <= VIEW_NEG; ++i) CHECK(reads[i] > CHAINS / 2000);
  for (int i = 0; i <= VIEW_SCATTER; ++i) CHECK(writes[i] > CHAINS / 2000);
  CHECK(refused > CHAINS / 2000);
  CHECK(trimmed > CHAINS / 2000);
  CHECK(moved > CHAINS / 20);
  for (int i = VIEW_UPDATE; i <= VIEW_SCATTER; ++i) CHECK(moved_writes[i] > CHAINS / 2000);
  printf("  %d gathers and %d pads in %d reads; %d keep, %d replace, %d update, %d merge, %d scatter, %d refused; %d moved\n",
         reads[VIEW_GATHER], reads[VIEW_PAD], CHAINS, writes[VIEW_KEEP], writes[VIEW_REPLACE], writes[VIEW_UPDATE],
         writes[VIEW_MERGE], writes[VIEW_SCATTER], refused, moved);
}

int main(void) {
  RUN(random_views_read_and_write_what_addressing_says);
  RUN(random_views_meet_every_kind_of_step_and_write);
  return test_end();
}
