// The plugin alone, as a contender of compare.py: the same programs in a C loop over pj/pjrt.h.
#include <pj/pjrt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char ADD[] =
    "module @add { func.func public @main(%a: tensor<9xf32>, %b: tensor<9xf32>) -> tensor<9xf32> {\n"
    "  %c = stablehlo.add %a, %b : tensor<9xf32>\n  return %c : tensor<9xf32> } }\n";

static void must(pj_status status) {
  if (!status) return;
  fprintf(stderr, "%s\n", pj_status_text(status));
  exit(1);
}

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Wall and CPU seconds of one of `repeat` calls.
typedef struct seconds { double wall, cpu; } seconds;

static seconds start(void) { return (seconds){now(CLOCK_MONOTONIC), now(CLOCK_PROCESS_CPUTIME_ID)}; }

static seconds stop(seconds begin, int repeat) {
  seconds end = start();
  return (seconds){(end.wall - begin.wall) / repeat, (end.cpu - begin.cpu) / repeat};
}

static seconds time_add(pj_client *client, pj_executable *add) {
  enum { REPEAT = 5000 };
  float ones[9];
  for (int i = 0; i < 9; ++i) ones[i] = 1;
  int64_t size = 9;
  pj_buffer *x, *b, *sum;
  must(pj_buffer_from_host(client, 0, ones, PJ_F32, 1, &size, PJ_HOST_COPY, NULL, &x));
  must(pj_buffer_from_host(client, 0, ones, PJ_F32, 1, &size, PJ_HOST_COPY, NULL, &b));
  seconds begin = start();
  for (int i = 0; i < REPEAT; ++i) {
    must(pj_execute(add, 0, (pj_buffer *[]){x, b}, 2, &sum));
    pj_buffer_destroy(client, x);
    x = sum;
  }
  must(pj_buffer_wait(client, x));
  seconds each = stop(begin, REPEAT);
  pj_buffer_destroy(client, x);
  pj_buffer_destroy(client, b);
  return each;
}

// The cheapest read there is: from where the plugin says that the bytes are. (PJRT_Buffer_ToHostBuffer takes 13 us.)
static seconds time_item(pj_client *client) {
  enum { REPEAT = 2000 };
  float one = 1, read;
  pj_buffer *x;
  must(pj_buffer_from_host(client, 0, &one, PJ_F32, 0, NULL, PJ_HOST_COPY, NULL, &x));
  seconds begin = start();
  for (int i = 0; i < REPEAT; ++i) must(pj_buffer_to_host(client, x, &read, sizeof read));
  seconds each = stop(begin, REPEAT);
  pj_buffer_destroy(client, x);
  return each;
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  pj_plugin *plugin;
  pj_client *client;
  pj_option devices = {.name = "cpu_device_count", .kind = PJ_OPTION_INT, .integer = 1};
  must(pj_plugin_load(argv[1], &plugin));
  must(pj_client_create(plugin, &devices, 1, &client));
  uint8_t *options;
  size_t options_size;
  must(pj_compile_options_encode(&(pj_compile_options){.portable = true}, &options, &options_size));
  pj_executable *add;
  must(pj_compile(client, ADD, sizeof ADD - 1, options, options_size, &add));
  printf("raw on %s\n", pj_client_platform(client));
  fflush(stdout);
  char line[64];
  while (fgets(line, sizeof line, stdin)) {
    seconds each = strncmp(line, "add", 3) == 0 ? time_add(client, add) : time_item(client);
    printf("{\"seconds\": [%.12f, %.12f], \"losses\": []}\n", each.wall, each.cpu);
    fflush(stdout);
  }
  return 0;
}
