#include <stdlib.h>

#include "pjrt/plugin.h"

pj_status pj_event_wait(pj_client *client, pj_event *event) {
  PJRT_STRUCT(PJRT_Event_Await_Args, args, .event = event);
  return PJRT_CALL(client->plugin, Event_Await, &args);
}

bool pj_event_is_ready(pj_client *client, pj_event *event) {
  PJRT_STRUCT(PJRT_Event_IsReady_Args, args, .event = event);
  pj_status status = PJRT_CALL(client->plugin, Event_IsReady, &args);
  pj_status_free(status);
  return !status && args.is_ready;
}

typedef struct listener {
  const pj_plugin *plugin;
  void (*callback)(pj_status, void *);
  void *argument;
} listener;

static void on_ready(PJRT_Error *error, void *user_arg) {
  listener l = *(listener *)user_arg;
  free(user_arg);
  l.callback(pj_plugin_take_error(l.plugin, error), l.argument);
}

pj_status pj_event_on_ready(pj_client *client, pj_event *event, void (*callback)(pj_status, void *), void *argument) {
  listener *l = malloc(sizeof *l);
  if (!l) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  *l = (listener){client->plugin, callback, argument};
  PJRT_STRUCT(PJRT_Event_OnReady_Args, args, .event = event, .callback = on_ready, .user_arg = l);
  pj_status status = PJRT_CALL(client->plugin, Event_OnReady, &args);
  if (status) free(l);
  return status;
}

void pj_event_destroy(pj_client *client, pj_event *event) {
  if (!event) return;
  PJRT_STRUCT(PJRT_Event_Destroy_Args, args, .event = event);
  PJRT_DESTROY(client->plugin, Event_Destroy, &args);
}
