// Random views, read and written by a real plugin: the one that PJ_PLUGIN names; without it there is nothing to test.
#include "pj/pjrt.h"
#include "test.h"
#include "view/chain.h"

enum { MODULES = 25, CHAINS_PER_MODULE = 16 };

static pj_client *client;
static int moved;

typedef struct chain {
  pj_type base, type;  // type: of the view's elements
  pj_view view;
  char *bytes, *source;
  bool writes;
  bool moves;          // its start is an input of the program
} chain;

static pj_buffer *put(const char *bytes, const pj_type *type) {
  pj_buffer *buffer = NULL;
  CHECK_OK(pj_buffer_from_host(client, 0, bytes, type->dtype, type->rank, type->dims, PJ_HOST_COPY, NULL, &buffer));
  return buffer;
}

static char *fetch(pj_buffer *buffer, const pj_type *type) {
  char *bytes = calloc(1, pj_type_bytes(type) + 1);
  if (!bytes) abort();
  CHECK_OK(pj_buffer_to_host(client, buffer, bytes, pj_type_bytes(type)));
  pj_buffer_destroy(client, buffer);
  return bytes;
}

static pj_executable *compile(const chain *chains) {
  hlo *h = hlo_create();
  hlo_value results[2 * CHAINS_PER_MODULE];
  size_t count = 0;
  for (int i = 0; i < CHAINS_PER_MODULE; ++i) {
    const chain *c = &chains[i];
    pj_view view = c->view;
    hlo_value base = hlo_parameter(h, c->base.dtype, c->base.rank, c->base.dims, -1), start = PJ_VIEW_AT_OFFSET;
    if (c->moves) {
      start = hlo_parameter(h, PJ_S64, 0, NULL, -1);
      view.offset = 0;
    }
    results[count++] = pj_view_read(h, base, &view, start);
    if (!c->writes) continue;
    hlo_value donated = hlo_parameter(h, c->base.dtype, c->base.rank, c->base.dims, (int)count);
    hlo_value source = hlo_parameter(h, c->type.dtype, c->type.rank, c->type.dims, -1);
    results[count++] = pj_view_write(h, donated, &view, start, source);
  }
  const char *text = NULL;
  size_t size = 0, options_size = 0;
  uint8_t *options = NULL;
  pj_executable *executable = NULL;
  CHECK_OK(hlo_finish(h, results, count, &text, &size));
  CHECK_OK(pj_compile_options_encode(&(pj_compile_options){0}, &options, &options_size));
  if (text) CHECK_OK(pj_compile(client, text, size, options, options_size, &executable));
  if (text && !executable) fprintf(stderr, "%.*s\n", (int)size, text);
  free(options);
  hlo_destroy(h);
  return executable;
}

static bool is_bf16_nan(const char *bytes) {
  uint16_t bits;
  memcpy(&bits, bytes, sizeof bits);
  return (bits & 0x7fff) > 0x7f80;
}

// Byte for byte; but XLA:CPU of API 0.106 and older updates bf16 arrays in f32, which makes signalling NaNs quiet.
static bool same_elements(const char *got, const char *want, const pj_type *type) {
  size_t bytes = pj_type_bytes(type);
  if (type->dtype != PJ_BF16) return !memcmp(got, want, bytes);
  for (size_t i = 0; i < bytes; i += 2) {
    if (memcmp(got + i, want + i, 2) && !(is_bf16_nan(got + i) && is_bf16_nan(want + i))) return false;
  }
  return true;
}

static void compare(char *got, char *want, const pj_type *type, const chain *c, const char *what) {
  bool same = same_elements(got, want, type);
  CHECK(same);
  if (!same) fprintf(stderr, "%s: %s\n", what, chain_text(&c->base, &c->view));
  free(got);
  free(want);
}

static void run_module(chain_random *random) {
  chain chains[CHAINS_PER_MODULE];
  pj_buffer *arguments[4 * CHAINS_PER_MODULE], *results[2 * CHAINS_PER_MODULE];
  size_t count = 0;
  for (int i = 0; i < CHAINS_PER_MODULE; ++i) {
    chain *c = &chains[i];
    chain_make(random, &c->base, &c->view);
    c->type = chain_type(&c->view);
    c->writes = !pj_view_overlaps_itself(&c->view);
    c->moves = i % 2 && pj_view_moves(&c->view, &c->base);
    moved += c->moves;
    c->bytes = chain_bytes(random, &c->base);
    c->source = chain_bytes(random, &c->type);
    arguments[count++] = put(c->bytes, &c->base);
    if (c->moves) arguments[count++] = put((const char *)&c->view.offset, &(pj_type){.dtype = PJ_S64});
    if (!c->writes) continue;
    arguments[count++] = put(c->bytes, &c->base);
    arguments[count++] = put(c->source, &c->type);
  }
  pj_executable *executable = compile(chains);
  bool ran = false;
  if (executable) {
    pj_status status = pj_execute(executable, 0, arguments, count, results);
    ran = !status;
    CHECK_OK(status);
  }
  size_t at = 0;
  for (int i = 0; i < CHAINS_PER_MODULE; ++i) {
    chain *c = &chains[i];
    if (ran) compare(fetch(results[at++], &c->type), chain_read(&c->view, c->bytes), &c->type, c, "read");
    if (ran && c->writes) {
      char *want = malloc(pj_type_bytes(&c->base) + 1);
      if (!want) abort();
      memcpy(want, c->bytes, pj_type_bytes(&c->base));
      chain_write(&c->view, want, c->source);
      compare(fetch(results[at++], &c->base), want, &c->base, c, "write");
    }
    free(c->bytes);
    free(c->source);
  }
  for (size_t i = 0; i < count; ++i) pj_buffer_destroy(client, arguments[i]);
  pj_executable_destroy(executable);
}

static void a_plugin_reads_and_writes_random_views_as_addressing_says(void) {
  chain_random random = {7};
  for (int i = 0; i < MODULES && test_failures < 20; ++i) run_module(&random);
  CHECK(moved > MODULES * CHAINS_PER_MODULE / 10);
}

// ---- what a write costs ---------------------------------------------------------------------------------------------

// Whether a write through the view leaves the base where it is: the result takes the donated base's place, and no room
// is needed that grows with the base. The base is first brought to the type that pj_view_rebase asks for.
static bool is_in_place(pj_type base, pj_view view) {
  pj_type rebased;
  if (pj_view_rebase(&view, &base, &rebased)) base = rebased;
  hlo *h = hlo_create();
  hlo_value donated = hlo_parameter(h, base.dtype, base.rank, base.dims, 0);
  hlo_value result = pj_view_write(h, donated, &view, PJ_VIEW_AT_OFFSET, hlo_parameter(h, view.dtype, view.rank, view.sizes, -1));
  const char *text = NULL;
  size_t size = 0, options_size = 0;
  uint8_t *options = NULL;
  pj_executable *executable = NULL;
  pj_compiled_memory memory = {0};
  CHECK_OK(hlo_finish(h, &result, 1, &text, &size));
  CHECK_OK(pj_compile_options_encode(&(pj_compile_options){0}, &options, &options_size));
  CHECK_OK(pj_compile(client, text, size, options, options_size, &executable));
  CHECK_OK(pj_executable_memory(executable, &memory));
  pj_executable_destroy(executable);
  free(options);
  hlo_destroy(h);
  return memory.alias == (int64_t)pj_type_bytes(&base) && memory.temp >= 0 && memory.temp < 1 << 16;
}

static void a_write_into_a_donated_base_happens_in_place(void) {
  enum { ROWS = 1 << 18, ROW = 64 };  // 64 MiB of f32
  const pj_type rows = {PJ_F32, 2, {ROWS, ROW}}, flat = {PJ_F32, 1, {ROWS * ROW}};
  const struct {
    const char *what;
    pj_type base;
    pj_view view;
  } writes[] = {
      {"x[5:21]", rows, {PJ_F32, 2, {16, ROW}, {ROW, 1}, 5 * ROW, false, false}},
      {"x[:, 3:5]", rows, {PJ_F32, 2, {ROWS, 2}, {ROW, 1}, 3, false, false}},
      {"x[7]", rows, {PJ_F32, 1, {ROW}, {1}, 7 * ROW, false, false}},
      {"x[:, 7]", rows, {PJ_F32, 1, {ROWS}, {ROW}, 7, false, false}},
      {"a layer of a flat base", flat, {PJ_F32, 3, {4, 16, 64}, {1024, 64, 1}, 8192, false, false}},
      {"a layer that interleaves with others", flat, {PJ_F32, 3, {16, 4, 64}, {1024, 64, 1}, 512, false, false}},
      {"x[5:21, ::2]", rows, {PJ_F32, 2, {16, ROW / 2}, {ROW, 2}, 5 * ROW, false, false}},
      {"x[::100][:16]", rows, {PJ_F32, 2, {16, ROW}, {100 * ROW, 1}, 3 * ROW, false, false}},
      {"the diagonal", rows, {PJ_F32, 1, {ROW}, {ROW + 1}, 0, false, false}},
      {"interleaved", rows, {PJ_F32, 2, {2, 2}, {3, 2}, 0, false, false}},
  };
  for (size_t i = 0; i < sizeof writes / sizeof *writes; ++i) {
    bool in_place = is_in_place(writes[i].base, writes[i].view);
    CHECK(in_place);
    if (!in_place) fprintf(stderr, "not in place: %s\n", writes[i].what);
  }
}

int main(void) {
  const char *path = test_plugin("PJ_PLUGIN");
  pj_plugin *plugin = NULL;
  CHECK_OK(pj_plugin_load(path, &plugin));
  if (plugin) CHECK_OK(pj_client_create(plugin, NULL, 0, &client));
  if (client) {
    RUN(a_plugin_reads_and_writes_random_views_as_addressing_says);
    RUN(a_write_into_a_donated_base_happens_in_place);
  }
  pj_client_destroy(client);
  return test_end();
}
