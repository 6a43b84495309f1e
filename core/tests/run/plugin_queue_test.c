// The queue on a real plugin (PJ_PLUGIN): ops are run, donated, written through views, and the same with 8 ops a region.
#include <math.h>

#include "run/ops.h"

static pj_runtime *runtime;
static pj_device *device;

static void an_op_compiles_once_and_runs(void) {
  float a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, c[3] = {0};
  pj_storage *x = from_host(device, a, 3), *y = from_host(device, b, 3);
  pj_counters before, after;
  pj_runtime_counters(runtime, &before);
  pj_storage *z = add(x, y, 3), *w = add(z, y, 3);
  to_host(w, c);
  CHECK(c[0] == 21 && c[1] == 42 && c[2] == 63);
  pj_runtime_counters(runtime, &after);
  bool strict = pj_runtime_eager(runtime) != PJ_EAGER_FUSED;
  CHECK(after.compiles - before.compiles == 1);
  CHECK(after.executions - before.executions == (strict ? 2 : 1));
  pj_storage_release(x);
  pj_storage_release(y);
  pj_storage_release(z);
  pj_storage_release(w);
}

static void a_changing_number_does_not_compile(void) {
  float a[3] = {1, 2, 3}, b[3];
  pj_storage *x = from_host(device, a, 3);
  scale(x, 2, 3);
  to_host(x, b);
  pj_counters before, after;
  pj_runtime_counters(runtime, &before);
  double product = 2;
  for (int i = 0; i < 10; ++i) {
    scale(x, 1 + 0.1 * i, 3);
    product *= 1 + 0.1 * i;
    to_host(x, b);
  }
  pj_runtime_counters(runtime, &after);
  CHECK(after.compiles == before.compiles);
  CHECK(fabs(b[2] / (3 * product) - 1) < 1e-5);
  pj_storage_release(x);
}

static void an_overwritten_buffer_is_donated(void) {
  int64_t count = 1 << 16;
  float *a = malloc((size_t)count * sizeof *a);
  for (int64_t i = 0; i < count; ++i) a[i] = (float)i;
  pj_storage *x = from_host(device, a, count);
  pj_counters before, after;
  pj_runtime_counters(runtime, &before);
  pj_device_memory memory;
  pj_device_reset_peak_memory(device);
  for (int i = 0; i < 4; ++i) scale(x, 0.5, count);
  to_host(x, a);
  pj_runtime_counters(runtime, &after);
  pj_device_memory_info(device, &memory);
  CHECK(after.donations > before.donations);
  CHECK(memory.bytes.peak < memory.bytes.current + (uint64_t)count * 4);
  CHECK(a[160] == 10);
  pj_storage_release(x);
  free(a);
}

static void a_value_that_is_read_in_place_stays_as_it_is_while_it_is_held(void) {
  float a[3] = {1, 2, 3}, b[3];
  pj_storage *x = from_host(device, a, 3);
  pj_value *held = pj_storage_value(x);
  const void *bytes = NULL;
  CHECK_OK(pj_value_host_pointer(device, held, &bytes));
  for (int i = 0; i < 3; ++i) scale(x, 2, 3);
  to_host(x, b);
  CHECK(b[0] == 8 && b[2] == 24);
  CHECK(memcmp(bytes, a, sizeof a) == 0);
  pj_value_release(held);
  pj_storage_release(x);
}

static void a_write_through_a_view_changes_the_base_only_there(void) {
  float a[6] = {0, 1, 2, 3, 4, 5}, b[2] = {-1, -2}, c[6];
  pj_storage *x = from_host(device, a, 6), *y = from_host(device, b, 2);
  pj_value *source = pj_storage_value(y);
  int64_t two = 2, one = 1;
  CHECK_OK(pj_storage_write(x, source, &one, PJ_F32, 1, &two, &two, 1, 0));
  CHECK_OK(pj_device_end_op(device));
  pj_value_release(source);
  to_host(x, c);
  CHECK(c[0] == 0 && c[1] == -1 && c[2] == 2 && c[3] == -2 && c[4] == 4 && c[5] == 5);
  pj_storage_release(x);
  pj_storage_release(y);
}

static void rows_at_every_start_are_read_and_written_by_a_few_programs(void) {
  enum { ROWS = 2500, COLUMNS = 5 };  // more numbers than the device keeps
  float a[ROWS * COLUMNS], b[COLUMNS];
  for (int i = 0; i < ROWS * COLUMNS; ++i) a[i] = (float)i;
  pj_storage *x = from_host(device, a, ROWS * COLUMNS);
  int64_t count = COLUMNS, one = 1;
  pj_counters before, after;
  pj_runtime_counters(runtime, &before);
  for (int row = 0; row < ROWS; ++row) {
    pj_call call = {.op = pj_runtime_op(runtime, "aten::mul.Tensor"), .hold = true};
    pj_call_tensor(&call, x, PJ_F32, 1, &count, &one, row * COLUMNS, 0);
    pj_call_number_float(&call, -row, PJ_F64, PJ_WEIGHT_PYTHON);
    CHECK_OK(submit(device, &call, COLUMNS));
    CHECK_OK(pj_storage_write(x, call.results[0], &one, PJ_F32, 1, &count, &one, row * COLUMNS, 0));
    CHECK_OK(pj_value_to_host(device, call.results[0], b));
    CHECK(b[2] == (float)-row * a[row * COLUMNS + 2]);
    pj_call_destroy(&call);
    CHECK_OK(pj_device_end_op(device));
  }
  pj_runtime_counters(runtime, &after);
  CHECK(after.compiles - before.compiles <= 12);
  to_host(x, a);
  for (int i = 0; i < ROWS * COLUMNS; ++i) CHECK(a[i] == (float)-(i / COLUMNS) * (float)i);
  pj_storage_release(x);
}

static void a_vector_that_grows_finds_its_programs_until_its_array_is_full(void) {
  enum { STEP = 4096, STEPS = 21 };  // 16 KiB a step: arrays of 4, 8, 16, 32 steps
  static float step[STEP], all[STEP * STEPS], twice[STEP * STEPS];
  int made[STEPS] = {0};
  pj_storage *x = NULL;
  for (int n = 0; n < STEPS; ++n) {
    for (int i = 0; i < STEP; ++i) step[i] = (float)(n * STEP + i);
    pj_storage *part = from_host(device, step, STEP), *longer = x ? join(x, (int64_t)n * STEP, part, STEP) : NULL;
    pj_counters before = counters_of(runtime);
    pj_storage *sum = longer ? add(longer, longer, (int64_t)(n + 1) * STEP) : NULL;
    if (sum) to_host(sum, twice);
    made[n] = (int)(counters_of(runtime).compiles - before.compiles);
    if (sum) pj_storage_release(sum);
    if (longer) pj_storage_release(part);
    if (x) pj_storage_release(x);
    x = longer ? longer : part;
  }
  bool alone = pj_runtime_eager(runtime) != PJ_EAGER_ADAPTIVE;  // which compiles the loop's body besides
  // A larger array every time that n is a power of two; with several ops a region, the next one is the first without growth.
  bool fused = pj_runtime_eager(runtime) == PJ_EAGER_FUSED;
  for (int n = 1; n < STEPS && alone; ++n) CHECK(!made[n] || !(n & (n - 1)) || (fused && !((n - 1) & (n - 2))));
  for (int i = 0; i < STEP * STEPS; ++i) CHECK(twice[i] == 2 * (float)i);
  to_host(x, all);
  for (int i = 0; i < STEP * STEPS; ++i) CHECK(all[i] == (float)i);
  pj_value *value = pj_storage_value(x);
  CHECK(pj_value_bytes(value) == sizeof all && pj_value_dims(value)[0] == STEP * STEPS && pj_storage_nbytes(x) == sizeof all);
  pj_value_release(value);
  scale(x, 2, STEP * STEPS);
  to_host(x, all);
  CHECK(all[1] == 2 && all[STEP * STEPS - 1] == 2 * (float)(STEP * STEPS - 1));
  pj_storage_release(x);
}

static void an_unwritten_storage_reads_as_zeros(void) {
  float a[3] = {1, 2, 3}, b[3] = {9, 9, 9};
  pj_storage *x = from_host(device, a, 3), *y = pj_storage_create(device, 12);
  pj_storage *z = add(x, y, 3);
  to_host(z, b);
  CHECK(b[0] == 1 && b[2] == 3);
  pj_storage_release(x);
  pj_storage_release(y);
  pj_storage_release(z);
}

static void memory_is_counted_and_limited(void) {
  pj_device_memory base, now;
  pj_device_memory_info(device, &base);
  float a[1024] = {0};
  pj_storage *x = from_host(device, a, 1024);
  pj_device_memory_info(device, &now);
  CHECK(now.bytes.current == base.bytes.current + 4096);
  pj_device_set_memory_limit(device, now.bytes.current + 100);
  int64_t count = 1024;
  pj_value *none = NULL;
  CHECK_FAILS(pj_value_from_host(device, a, PJ_F32, 1, &count, &none), PJ_RESOURCE_EXHAUSTED, "f32[1024]");
  pj_device_set_memory_limit(device, 0);
  pj_storage_release(x);
  pj_device_memory_info(device, &now);
  CHECK(now.bytes.current == base.bytes.current);
}

static void all(void) {
  RUN(an_op_compiles_once_and_runs);
  RUN(a_changing_number_does_not_compile);
  RUN(an_overwritten_buffer_is_donated);
  RUN(a_value_that_is_read_in_place_stays_as_it_is_while_it_is_held);
  RUN(a_write_through_a_view_changes_the_base_only_there);
  RUN(rows_at_every_start_are_read_and_written_by_a_few_programs);
  RUN(a_vector_that_grows_finds_its_programs_until_its_array_is_full);
  RUN(an_unwritten_storage_reads_as_zeros);
  RUN(memory_is_counted_and_limited);
}

int main(void) {
  const char *plugin = test_plugin("PJ_PLUGIN");
  pj_option devices = {.name = "cpu_device_count", .kind = PJ_OPTION_INT, .integer = 1};
  pj_runtime_options options = {.plugin_path = plugin, .client_options = &devices, .client_option_count = 1};
  const struct {
    const char *name;
    pj_eager eager;
  } modes[] = {{"strict", PJ_EAGER_STRICT}, {"fused", PJ_EAGER_FUSED}, {"adaptive", PJ_EAGER_ADAPTIVE}, {"blocking", PJ_EAGER_BLOCKING}};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; ++i) {
    printf("%s eager\n", modes[i].name);
    options.queue_length = 8;
    options.eager = modes[i].eager;
    CHECK_OK(pj_runtime_create(&options, &runtime));
    if (!runtime) break;
    device = pj_runtime_device(runtime, 0);
    all();
    pj_runtime_destroy(runtime);
    runtime = NULL;
  }
  return test_end();
}
