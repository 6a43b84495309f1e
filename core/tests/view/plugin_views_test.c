// Random views, read and written by a real plugin: the one that PJ_PLUGIN names; without it there is nothing to test.
#include "pj/pjrt.h"
#include "test.h"
#include "view/chain.h"

enum { MODULES = 25, CHAINS_PER_MODULE = 16 };

static pj_client *client;

typedef struct chain {
  pj_type base, type;  // type: of the view's elements
  pj_view view;
  char *bytes, *source;
  bool writes;
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
    hlo_value base = hlo_parameter(h, c->base.dtype, c->base.rank, c->base.dims, -1);
    results[count++] = pj_view_read(h, base, &c->view);
    if (!c->writes) continue;
    hlo_value donated = hlo_parameter(h, c->base.dtype, c->base.rank, c->base.dims, (int)count);
    hlo_value source = hlo_parameter(h, c->type.dtype, c->type.rank, c->type.dims, -1);
    results[count++] = pj_view_write(h, donated, &c->view, source);
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

static void compare(char *got, char *want, const pj_type *type, const chain *c, const char *what) {
  bool same = !memcmp(got, want, pj_type_bytes(type));
  CHECK(same);
  if (!same) fprintf(stderr, "%s: %s\n", what, chain_text(&c->base, &c->view));
  free(got);
  free(want);
}

static void run_module(chain_random *random) {
  chain chains[CHAINS_PER_MODULE];
  pj_buffer *arguments[3 * CHAINS_PER_MODULE], *results[2 * CHAINS_PER_MODULE];
  size_t count = 0;
  for (int i = 0; i < CHAINS_PER_MODULE; ++i) {
    chain *c = &chains[i];
    chain_make(random, &c->base, &c->view);
    c->type = chain_type(&c->view);
    c->writes = !pj_view_overlaps_itself(&c->view);
    c->bytes = chain_bytes(random, &c->base);
    c->source = chain_bytes(random, &c->type);
    arguments[count++] = put(c->bytes, &c->base);
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
}

int main(void) {
  const char *path = test_plugin("PJ_PLUGIN");
  pj_plugin *plugin = NULL;
  CHECK_OK(pj_plugin_load(path, &plugin));
  CHECK_OK(pj_client_create(plugin, NULL, 0, &client));
  if (client) RUN(a_plugin_reads_and_writes_random_views_as_addressing_says);
  pj_client_destroy(client);
  return test_end();
}
