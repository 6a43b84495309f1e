// The table, and what the environment says of it.
#include "objects.h"

#define HERE(name) .PJRT_##name = name,
static PJRT_Api table = {.struct_size = sizeof table,
                         .pjrt_api_version = {.struct_size = PJRT_Api_Version_STRUCT_SIZE, .minor_version = 114},
                         PJRT_API_SLOTS(HERE, HERE, HERE, NOT_HERE)};

static void set_absent(const char *list) {
#define SLOT(name) {"PJRT_" #name, offsetof(PJRT_Api, PJRT_##name)},
  static const struct { const char *name; size_t offset; } slots[] = {PJRT_API_SLOTS(SLOT, SLOT, SLOT, NOT_HERE)};
  for (size_t i = 0; i < sizeof slots / sizeof slots[0]; ++i) {
    const char *found = strstr(list, slots[i].name);
    if (found && strchr(",", found[strlen(slots[i].name)])) memset((char *)&table + slots[i].offset, 0, sizeof(void *));
  }
}

static void read_environment(void) {
  const char *text;
  char slot[80] = "", message[160] = "";
  int number = 0;
  if ((text = getenv("FAKE_PLUGIN_MINOR"))) table.pjrt_api_version.minor_version = atoi(text);
  if ((text = getenv("FAKE_PLUGIN_TABLE_SIZE"))) table.struct_size = (size_t)atoi(text);
  if ((text = getenv("FAKE_PLUGIN_ABSENT"))) set_absent(text);
  if ((text = getenv("FAKE_PLUGIN_PLATFORM"))) snprintf(state.platform, sizeof state.platform, "%s", text);
  if ((text = getenv("FAKE_PLUGIN_DEVICES"))) state.default_devices = atoi(text);
  if ((text = getenv("FAKE_PLUGIN_MEMORY"))) state.memory_limit = atoll(text);
  if ((text = getenv("FAKE_PLUGIN_ASYNC"))) state.asynchronous = atoi(text) != 0;
  if ((text = getenv("FAKE_PLUGIN_FAIL")) && sscanf(text, "%79[^:]:%d:%159[^\n]", slot, &number, message) == 3)
    control_fail(slot, number, message, -1);
  if ((text = getenv("FAKE_PLUGIN_DELAY")) && sscanf(text, "%79[^:]:%d", slot, &number) == 2)
    control_delay(slot, number);
}

PJ_EXPORT const PJRT_Api *GetPjrtApi(void);
const PJRT_Api *GetPjrtApi(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_environment);
  return &table;
}
