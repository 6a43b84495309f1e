// What tests ask of the plugin: failures, delays, limits, counts.
#include "objects.h"

typedef struct rule {
  char slot[80];
  int code, times, delay_ms;
  char text[160];
} rule;

static rule rules[16];

static rule *rule_for(const char *slot, bool make) {
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; ++i) {
    if (!strcmp(rules[i].slot, slot)) return &rules[i];
    if (*rules[i].slot) continue;
    if (make) snprintf(rules[i].slot, sizeof rules[i].slot, "%s", slot);
    return make ? &rules[i] : NULL;
  }
  if (!make) return NULL;
  fprintf(stderr, "fake plugin: too many rules\n");
  abort();
}

void control_fail(const char *slot, int code, const char *text, int times) {
  pthread_mutex_lock(&state.lock);
  rule *r = rule_for(slot, true);
  r->code = code;
  r->times = times;
  snprintf(r->text, sizeof r->text, "%s", text);
  pthread_mutex_unlock(&state.lock);
}

void control_delay(const char *slot, int milliseconds) {
  pthread_mutex_lock(&state.lock);
  rule_for(slot, true)->delay_ms = milliseconds;
  pthread_mutex_unlock(&state.lock);
}

static fake_counts control_counts(void) {
  pthread_mutex_lock(&state.lock);
  fake_counts now = state.counts;
  pthread_mutex_unlock(&state.lock);
  return now;
}

static void control_memory_limit(int64_t bytes) {
  pthread_mutex_lock(&state.lock);
  state.memory_limit = bytes;
  pthread_mutex_unlock(&state.lock);
}

static void control_asynchronous(bool on) {
  pthread_mutex_lock(&state.lock);
  state.asynchronous = on;
  pthread_mutex_unlock(&state.lock);
}

static void control_run_ms(int milliseconds) {
  pthread_mutex_lock(&state.lock);
  state.run_ms = milliseconds;
  pthread_mutex_unlock(&state.lock);
}

extern const fake_control fake_plugin;
PJ_EXPORT const fake_control fake_plugin = {control_counts, control_fail, control_delay, control_memory_limit,
                                            control_asynchronous, control_run_ms};

PJRT_Error *enter(const char *slot, size_t size, size_t expected) {
  char text[200];
  if (size != expected) {
    snprintf(text, sizeof text, "Unexpected %s_Args size: expected %zu, got %zu", slot, expected, size);
    return error_new(PJ_INVALID_ARGUMENT, text);
  }
  pthread_mutex_lock(&state.lock);
  rule *r = rule_for(slot, false);
  int delay_ms = r ? r->delay_ms : 0, code = 0;
  if (r && r->times) {
    if (r->times > 0) --r->times;
    code = r->code;
    snprintf(text, sizeof text, "%s", r->text);
  }
  pthread_mutex_unlock(&state.lock);
  sleep_ms(delay_ms);
  return code ? error_new(code, text) : NULL;
}
