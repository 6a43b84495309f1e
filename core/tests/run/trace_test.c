// Spans on the fake plugin: what is collected, what is told, and what is left of it.
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "fake_plugin/fake_plugin.h"
#include "run/internal.h"
#include "run/ops.h"

enum { COUNT = 64, THREADS = 4, OPS = 50 };

static const fake_control *fake;
static pj_runtime *runtime;
static pj_device *device;
static float ones[COUNT];

static pj_span told[64];
static atomic_int told_count;

static void source_line(char *out_text, size_t size) { snprintf(out_text, size, "model.py:12"); }
static void keep_told(const pj_span *span) { told[told_count++] = *span; }

static void set_up(int queue_length) {
  pj_runtime_options options = {.plugin_path = FAKE_PLUGIN, .eager = queue_length > 1 ? PJ_EAGER_FUSED : PJ_EAGER_STRICT, .queue_length = queue_length,
                                .hooks = {.source_line = source_line, .told = keep_told}};
  CHECK_OK(pj_runtime_create(&options, &runtime));
  device = pj_runtime_device(runtime, 0);
  told_count = 0;
}

static void tear_down(void) {
  pj_runtime_destroy(runtime);
  CHECK(fake_plugin_is_empty(fake->counts()));
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// The spans of a kind; *out_first is the first.
static size_t count_spans(pj_span_kind kind, const pj_span **out_first) {
  size_t count, found = 0;
  uint64_t dropped;
  const pj_span *spans = pj_trace_spans(runtime, &count, &dropped);
  *out_first = NULL;
  for (size_t i = 0; i < count; ++i) {
    if (spans[i].kind != kind) continue;
    if (!found++) *out_first = &spans[i];
  }
  return found;
}

static void chain(pj_storage *x, int ops) {
  pj_storage *sum = add(x, x, COUNT);
  for (int i = 1; i < ops; ++i) {
    pj_storage *next = add(sum, x, COUNT);
    pj_storage_release(sum);
    sum = next;
  }
  float data[COUNT];
  to_host(sum, data);
  pj_storage_release(sum);
}

static void each_execution_compile_and_transfer_is_a_span(void) {
  set_up(1);
  int64_t before = now();
  pj_trace_start(runtime, 1000);
  pj_trace_correlate(7);
  pj_storage *x = from_host(device, ones, COUNT);
  chain(x, 3);
  pj_trace_correlate(0);
  pj_trace_stop(runtime);
  pj_counters counters = counters_of(runtime);
  const pj_span *execute, *compile, *to_device, *to_host_span;
  CHECK(count_spans(PJ_SPAN_EXECUTE, &execute) == 3 && counters.executions == 3);
  CHECK(count_spans(PJ_SPAN_COMPILE, &compile) == 2 && counters.compiles == 2);  // x + x and sum + x
  CHECK(count_spans(PJ_SPAN_TO_DEVICE, &to_device) == 1 && to_device->bytes == counters.bytes_to_device);
  CHECK(count_spans(PJ_SPAN_TO_HOST, &to_host_span) == 1 && to_host_span->bytes == counters.bytes_to_host);
  CHECK(!strcmp(execute->text, "aten::add.Tensor(f32[64], f32[64], number)") && !strcmp(execute->text, compile->text));
  CHECK(!strcmp(to_device->text, "f32[64]") && !strcmp(to_host_span->text, "f32[64]"));
  CHECK(!strcmp(compile->reason, "new op") && !strcmp(execute->reason, "eager is strict"));
  size_t count;
  uint64_t dropped;
  const pj_span *spans = pj_trace_spans(runtime, &count, &dropped);
  CHECK(count == 7 && !dropped);
  for (size_t i = 0; i < count; ++i) {
    CHECK(!strcmp(spans[i].line, "model.py:12") && spans[i].correlation == 7 && spans[i].thread == gettid());
    CHECK(before <= spans[i].begin && spans[i].begin <= spans[i].end && spans[i].end <= now());
    CHECK(spans[i].device == (spans[i].kind == PJ_SPAN_COMPILE ? -1 : 0));
  }
  pj_storage_release(x);
  tear_down();
}

static void executions_follow_each_other(void) {
  set_up(1);
  fake->asynchronous(true);
  pj_storage *x = from_host(device, ones, COUNT);
  pj_trace_start(runtime, 1000);
  chain(x, OPS);
  pj_trace_stop(runtime);
  fake->asynchronous(false);
  size_t count;
  uint64_t dropped;
  const pj_span *spans = pj_trace_spans(runtime, &count, &dropped);
  int64_t last = 0;
  for (size_t i = 0; i < count; ++i) {
    if (spans[i].kind != PJ_SPAN_EXECUTE) continue;
    CHECK(spans[i].begin >= last && spans[i].called <= spans[i].begin && spans[i].begin <= spans[i].end);
    last = spans[i].end;
  }
  CHECK(last);
  pj_storage_release(x);
  tear_down();
}

// Results come LATE_MS after the call, on another thread.
static void an_execution_ends_when_the_device_is_done(void) {
  enum { LATE_MS = 30, MS = 1000000 };
  static const char LATE[] = "module { func.func public @main(%a: tensor<64xf32>) -> (tensor<64xf32>) {} }\n"
                             "// fake: run-ms 30\n";
  set_up(1);
  pj_client *client = pj_runtime_client(runtime);
  pj_executable *late;
  CHECK_OK(pj_compile(client, LATE, sizeof LATE - 1, runtime->compile_options, runtime->compile_options_size, &late));
  int64_t count = COUNT;
  pj_buffer *x, *results[2];
  CHECK_OK(pj_buffer_from_host(client, 0, ones, PJ_F32, 1, &count, PJ_HOST_COPY, NULL, &x));
  pj_trace_start(runtime, 1000);
  for (int i = 0; i < 2; ++i) {
    pj_span span = pj_trace_begin(PJ_SPAN_EXECUTE, device);
    CHECK_OK(pj_execute(late, 0, &x, 1, &results[i]));
    pj_trace_end_when_ready(device, &span, results[i]);
    pj_buffer_destroy(client, results[i]);
  }
  pj_trace_stop(runtime);
  const pj_span *execute;
  CHECK(count_spans(PJ_SPAN_EXECUTE, &execute) == 2);
  CHECK(execute && execute->begin == execute->called && execute->end - execute->begin >= LATE_MS * MS);
  CHECK(execute && execute->returned - execute->called < LATE_MS * MS);
  pj_buffer_destroy(client, x);
  pj_executable_destroy(late);
  tear_down();
}

static void a_plugin_that_cannot_call_back_gives_the_host_call(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT);
  fake->fail("PJRT_Event_OnReady", PJ_UNIMPLEMENTED, "no callbacks", 1);
  pj_trace_start(runtime, 1000);
  pj_storage_release(add(x, x, COUNT));
  pj_trace_stop(runtime);
  fake->fail("PJRT_Event_OnReady", 0, "", 0);
  const pj_span *execute;
  CHECK(count_spans(PJ_SPAN_EXECUTE, &execute) == 1 && execute->end >= execute->returned);
  pj_storage_release(x);
  tear_down();
}

static void *run_chain(void *x) {
  pj_trace_correlate((uint64_t)gettid());
  chain(x, OPS);
  return NULL;
}

static void each_thread_has_its_own_spans(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT);
  chain(x, 2);
  pj_counters before = counters_of(runtime);
  pj_trace_start(runtime, 10000);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, run_chain, x);
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  pj_trace_stop(runtime);
  const pj_span *execute;
  CHECK(count_spans(PJ_SPAN_EXECUTE, &execute) == counters_of(runtime).executions - before.executions);
  CHECK(count_spans(PJ_SPAN_EXECUTE, &execute) == THREADS * OPS);
  size_t count;
  uint64_t dropped;
  const pj_span *spans = pj_trace_spans(runtime, &count, &dropped);
  for (size_t i = 0; i < count; ++i) CHECK(spans[i].correlation == (uint64_t)spans[i].thread);
  pj_storage_release(x);
  tear_down();
}

static void a_region_is_one_span_with_its_ops_and_why_it_was_cut(void) {
  set_up(64);
  pj_storage *x = from_host(device, ones, COUNT);
  pj_trace_start(runtime, 1000);
  chain(x, 5);
  pj_trace_stop(runtime);
  const pj_span *execute;
  CHECK(count_spans(PJ_SPAN_EXECUTE, &execute) == 1 && execute->ops == 5);
  CHECK(!strcmp(execute->reason, "a value is read"));
  CHECK(!strncmp(execute->text, "aten::add.Tensor + aten::add.Tensor", 35) && !strcmp(execute->line, "model.py:12"));
  pj_storage_release(x);
  tear_down();
}

static void nothing_is_collected_before_the_start_and_after_the_stop(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT);
  chain(x, 3);
  pj_trace_start(runtime, 1000);
  pj_trace_stop(runtime);
  chain(x, 3);
  size_t count;
  uint64_t dropped;
  pj_trace_spans(runtime, &count, &dropped);
  CHECK(!count && !dropped && !told_count);
  pj_storage_release(x);
  tear_down();
}

static void spans_beyond_the_limit_are_counted_and_dropped(void) {
  set_up(1);
  pj_storage *x = from_host(device, ones, COUNT);
  chain(x, 2);
  pj_trace_start(runtime, 10);
  chain(x, 24);  // and the read
  pj_trace_stop(runtime);
  size_t count;
  uint64_t dropped;
  pj_trace_spans(runtime, &count, &dropped);
  CHECK(count == 10 && dropped == 15);
  pj_trace_start(runtime, 10);
  pj_trace_stop(runtime);
  pj_trace_spans(runtime, &count, &dropped);
  CHECK(!count && !dropped);
  pj_storage_release(x);
  tear_down();
}

static void what_was_asked_for_is_told_as_it_happens(void) {
  set_up(64);
  pj_storage *x = from_host(device, ones, COUNT);
  pj_trace_tell(runtime, 1u << PJ_SPAN_COMPILE | 1u << PJ_SPAN_CUT | 1u << PJ_SPAN_FALLBACK);
  chain(x, 5);
  pj_trace_fallback(runtime, "aten::foo(f32[3])");
  CHECK(told_count == 3);
  CHECK(told[0].kind == PJ_SPAN_CUT && told[0].ops == 5 && !strcmp(told[0].reason, "a value is read"));
  CHECK(told[1].kind == PJ_SPAN_COMPILE && !strcmp(told[1].reason, "new region"));
  CHECK(!strcmp(told[1].line, "model.py:12"));
  CHECK(told[2].kind == PJ_SPAN_FALLBACK && !strcmp(told[2].text, "aten::foo(f32[3])"));
  pj_trace_tell(runtime, 0);
  chain(x, 6);
  pj_trace_fallback(runtime, "aten::foo(f32[3])");
  CHECK(told_count == 3);
  CHECK(!pj_trace_is_told(runtime, PJ_SPAN_CUT));
  pj_storage_release(x);
  tear_down();
}

int main(void) {
  fake = fake_plugin_control(FAKE_PLUGIN);
  for (int i = 0; i < COUNT; ++i) ones[i] = 1;
  RUN(each_execution_compile_and_transfer_is_a_span);
  RUN(executions_follow_each_other);
  RUN(an_execution_ends_when_the_device_is_done);
  RUN(a_plugin_that_cannot_call_back_gives_the_host_call);
  RUN(each_thread_has_its_own_spans);
  RUN(a_region_is_one_span_with_its_ops_and_why_it_was_cut);
  RUN(nothing_is_collected_before_the_start_and_after_the_stop);
  RUN(spans_beyond_the_limit_are_counted_and_dropped);
  RUN(what_was_asked_for_is_told_as_it_happens);
  return test_end();
}
