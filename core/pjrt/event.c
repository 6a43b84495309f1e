#include <pthread.h>
#include <stdlib.h>

#include "base/tick.h"
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

// Shared by the thread that waits and the plugin's callback; the last of the two frees it.
typedef struct waiter {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int refs;
  bool done;
  pj_status status;
} waiter;

static void waiter_leave(waiter *w) {  // with the lock held
  bool last = !--w->refs;
  pthread_mutex_unlock(&w->lock);
  if (!last) return;
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->changed);
  pj_status_free(w->status);
  free(w);
}

static void waiter_done(pj_status status, void *argument) {
  waiter *w = argument;
  pthread_mutex_lock(&w->lock);
  w->done = true;
  w->status = status;
  pthread_cond_signal(&w->changed);
  waiter_leave(w);
}

pj_status pj_event_wait_unless(pj_client *client, pj_event *event, bool (*cancelled)(void)) {
  if (!cancelled || pj_event_is_ready(client, event)) return pj_event_wait(client, event);
  waiter *w = calloc(1, sizeof *w);
  if (!w) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->changed, NULL);
  w->refs = 2;
  pj_status status = pj_event_on_ready(client, event, waiter_done, w);
  pthread_mutex_lock(&w->lock);
  if (status) --w->refs;  // nobody will call
  while (!status && !w->done) {
    pj_wait_a_tick(&w->changed, &w->lock);
    if (w->done) break;
    pthread_mutex_unlock(&w->lock);
    bool stop = cancelled();
    pthread_mutex_lock(&w->lock);
    if (stop) status = pj_error(PJ_CANCELLED, "the wait was cancelled");
  }
  if (!status) {
    status = w->status;
    w->status = NULL;
  }
  waiter_leave(w);
  return status;
}

void pj_event_destroy(pj_client *client, pj_event *event) {
  if (!event) return;
  PJRT_STRUCT(PJRT_Event_Destroy_Args, args, .event = event);
  PJRT_DESTROY(client->plugin, Event_Destroy, &args);
}
