// What pj_plugin_load accepts and how it says no. Each variant of the fake plugin is a copy of its file, since a plugin
// is loaded once per path.
#include <unistd.h>

#include "fake_plugin/fake_plugin.h"
#include "pj/pjrt.h"
#include "test.h"

static char folder[] = "/tmp/pj_load_test_XXXXXX";

static void make_file(char path[64], const void *bytes, size_t size) {
  static int number;
  snprintf(path, 64, "%s/%d.so", folder, number++);
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, size, file) == size && !fclose(file));
}

// A copy of the fake plugin that is loaded with one environment variable set.
static pj_status load_variant(const char *variable, const char *value, pj_plugin **out_plugin) {
  FILE *file = fopen(FAKE_PLUGIN, "rb");
  CHECK(file && !fseek(file, 0, SEEK_END));
  size_t size = (size_t)ftell(file);
  rewind(file);
  char *bytes = malloc(size), path[64];
  CHECK(fread(bytes, 1, size, file) == size && !fclose(file));
  make_file(path, bytes, size);
  free(bytes);
  setenv(variable, value, 1);
  pj_status status = pj_plugin_load(path, out_plugin);
  unsetenv(variable);
  unlink(path);
  return status;
}

static void a_missing_file_is_not_found(void) {
  pj_plugin *none;
  CHECK_FAILS(pj_plugin_load("/no/such/plugin.so", &none), PJ_NOT_FOUND, "/no/such/plugin.so");
  CHECK(!none);
}

static void no_path_is_an_invalid_argument(void) {
  pj_plugin *none;
  CHECK_FAILS(pj_plugin_load(NULL, &none), PJ_INVALID_ARGUMENT, "path");
  CHECK(!none);
  CHECK_FAILS(pj_plugin_load("", &none), PJ_INVALID_ARGUMENT, "path");
  CHECK(!none);
}

static void a_file_that_is_no_library_says_why(void) {
  char path[64];
  pj_plugin *none;
  char text[200] = "not an ELF file";
  make_file(path, text, sizeof text);
  CHECK_FAILS(pj_plugin_load(path, &none), PJ_FAILED_PRECONDITION, "not a shared library");
  CHECK_FAILS(pj_plugin_load(path, &none), PJ_FAILED_PRECONDITION, "ELF header");  // dlerror's own words
  unlink(path);
}

static void a_library_without_the_entry_function_is_no_plugin(void) {
  pj_plugin *none;
  Dl_info libc;
  CHECK(dladdr(dlsym(RTLD_DEFAULT, "strlen"), &libc));
  CHECK_FAILS(pj_plugin_load(libc.dli_fname, &none), PJ_FAILED_PRECONDITION, "GetPjrtApi");
}

static void one_path_gives_one_plugin_by_every_name(void) {
  pj_plugin *first, *second;
  char link[64];
  snprintf(link, sizeof link, "%s/link.so", folder);
  CHECK(!symlink(FAKE_PLUGIN, link));
  CHECK_OK(pj_plugin_load(FAKE_PLUGIN, &first));
  CHECK_OK(pj_plugin_load(link, &second));
  CHECK(first == second);
  unlink(link);
}

static void attributes_read_as_text(void) {
  pj_plugin *plugin;
  CHECK_OK(pj_plugin_load(FAKE_PLUGIN, &plugin));
  CHECK(!strcmp(pj_plugin_attribute(plugin, "stablehlo_current_version"), "1.2.3"));
  CHECK(!strcmp(pj_plugin_attribute(plugin, "xla_version"), "2"));
  CHECK(!strcmp(pj_plugin_attribute(plugin, "fake"), "yes"));
  CHECK(!pj_plugin_attribute(plugin, "absent"));
  int major = -1, minor = -1;
  pj_plugin_api_version(plugin, &major, &minor);
  CHECK(major == 0 && minor == 114);
}

static void a_required_slot_that_is_absent_is_named(void) {
  pj_plugin *none;
  CHECK_FAILS(load_variant("FAKE_PLUGIN_ABSENT", "PJRT_LoadedExecutable_Execute", &none), PJ_FAILED_PRECONDITION,
              "PJRT_LoadedExecutable_Execute is absent (PJRT API 0.114");
  CHECK_FAILS(load_variant("FAKE_PLUGIN_TABLE_SIZE", "200", &none), PJ_FAILED_PRECONDITION, "table of 200 bytes");
  CHECK_FAILS(load_variant("FAKE_PLUGIN_TABLE_SIZE", "8", &none), PJ_FAILED_PRECONDITION, "8 bytes");
  CHECK_FAILS(load_variant("FAKE_PLUGIN_MINOR", "40", &none), PJ_FAILED_PRECONDITION, "PJRT API 0.40");
}

static void an_optional_slot_may_be_absent_and_its_call_says_so(void) {
  pj_plugin *plugin;
  CHECK_OK(load_variant("FAKE_PLUGIN_ABSENT", "PJRT_TopologyDescription_Create,PJRT_Plugin_Attributes", &plugin));
  CHECK(!pj_plugin_has(plugin, "PJRT_TopologyDescription_Create"));
  CHECK(pj_plugin_has(plugin, "PJRT_TopologyDescription_Destroy"));
  pj_topology *none;
  CHECK_FAILS(pj_topology_create(plugin, "fake:4", NULL, 0, &none), PJ_UNIMPLEMENTED,
              "PJRT_TopologyDescription_Create is not in the plugin");
}

static void an_older_shorter_table_is_enough_for_what_it_holds(void) {
  // 0.81 ends far before the newest slots; 800 bytes are 95 slots, up to PJRT_Executable_OutputDimensions.
  pj_plugin *plugin;
  CHECK_OK(load_variant("FAKE_PLUGIN_TABLE_SIZE", "800", &plugin));
  CHECK(pj_plugin_has(plugin, "PJRT_Compile"));
  CHECK(!pj_plugin_has(plugin, "PJRT_Executable_GetCompiledMemoryStats"));
}

static void a_failing_initialization_is_told_with_its_code(void) {
  pj_plugin *none;
  CHECK_FAILS(load_variant("FAKE_PLUGIN_FAIL", "PJRT_Plugin_Initialize:10:the lock is taken", &none), PJ_ABORTED,
              "initializing it: the lock is taken");
}

static void the_digest_is_that_of_the_file(void) {
  pj_plugin *plugin;
  uint8_t first[32], second[32], other[32];
  CHECK_OK(pj_plugin_load(FAKE_PLUGIN, &plugin));
  CHECK_OK(pj_plugin_digest(plugin, first));
  CHECK_OK(pj_plugin_digest(plugin, second));
  CHECK(!memcmp(first, second, 32));
  char command[300], text[65], hex[65];
  snprintf(command, sizeof command, "sha256sum '%s'", FAKE_PLUGIN);
  FILE *pipe = popen(command, "r");
  CHECK(pipe && fscanf(pipe, "%64s", text) == 1 && !pclose(pipe));
  for (int i = 0; i < 32; ++i) snprintf(hex + 2 * i, 3, "%02x", first[i]);
  CHECK(!strcmp(text, hex));
  pj_plugin *gone;  // its file is unlinked once it is loaded
  CHECK_OK(load_variant("FAKE_PLUGIN_MINOR", "114", &gone));
  CHECK_FAILS(pj_plugin_digest(gone, other), PJ_NOT_FOUND, "cannot be read");
}

static void known_plugins_are_listed_with_where_their_files_lie(void) {
  size_t count;
  const pj_known_plugin *known = pj_known_plugins(&count);
  bool cpu = false, tpu = false;
  for (size_t i = 0; i < count; ++i) {
    CHECK(known[i].name && known[i].package && known[i].platform && strstr(known[i].file, ".so"));
    cpu |= !strcmp(known[i].platform, "cpu");
    tpu |= !strcmp(known[i].platform, "tpu");
  }
  CHECK(cpu && tpu);
}

int main(void) {
  CHECK(mkdtemp(folder) != NULL);
  RUN(a_missing_file_is_not_found);
  RUN(no_path_is_an_invalid_argument);
  RUN(a_file_that_is_no_library_says_why);
  RUN(a_library_without_the_entry_function_is_no_plugin);
  RUN(one_path_gives_one_plugin_by_every_name);
  RUN(attributes_read_as_text);
  RUN(a_required_slot_that_is_absent_is_named);
  RUN(an_optional_slot_may_be_absent_and_its_call_says_so);
  RUN(an_older_shorter_table_is_enough_for_what_it_holds);
  RUN(a_failing_initialization_is_told_with_its_code);
  RUN(the_digest_is_that_of_the_file);
  RUN(known_plugins_are_listed_with_where_their_files_lie);
  rmdir(folder);
  return test_end();
}
