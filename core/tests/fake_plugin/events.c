// Errors, what the plugin says of itself, events.
#include "objects.h"

void Error_Destroy(PJRT_Error_Destroy_Args *args) {
  free(args->error);
  count(&state.counts.errors, -1);
}

void Error_Message(PJRT_Error_Message_Args *args) {
  args->message = args->error->text;
  args->message_size = strlen(args->error->text);
}

FUNCTION(Error_GetCode) {
  args->code = args->error->code;
  return NULL;
}

FUNCTION(Plugin_Initialize) {
  ENTER(Plugin_Initialize);
  return NULL;
}

FUNCTION(Plugin_Attributes) {
  ENTER(Plugin_Attributes);
  static const int64_t version[] = {1, 2, 3};
  static const PJRT_NamedValue attributes[] = {
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "stablehlo_current_version", .name_size = 25,
       .type = PJRT_INT64_LIST, .int64_array_value = version, .value_size = 3},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "xla_version", .name_size = 11, .type = PJRT_INT64,
       .int64_value = 2, .value_size = 1},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "fake", .name_size = 4, .type = PJRT_STRING,
       .string_value = "yes, not more", .value_size = 3},
  };
  args->attributes = attributes;
  args->num_attributes = 3;
  return NULL;
}

FUNCTION(Event_Destroy) {
  ENTER(Event_Destroy);
  pthread_mutex_lock(&state.lock);
  completion_release_locked(args->event->completion);
  --state.counts.events;
  pthread_mutex_unlock(&state.lock);
  free(args->event);
  return NULL;
}

FUNCTION(Event_IsReady) {
  ENTER(Event_IsReady);
  pthread_mutex_lock(&state.lock);
  args->is_ready = args->event->completion->done;
  pthread_mutex_unlock(&state.lock);
  return NULL;
}

FUNCTION(Event_Await) {
  ENTER(Event_Await);
  completion *c = args->event->completion;
  pthread_mutex_lock(&state.lock);
  while (!c->done) pthread_cond_wait(&state.changed, &state.lock);
  pthread_mutex_unlock(&state.lock);
  return c->code ? error_new(c->code, c->text) : NULL;
}

FUNCTION(Event_OnReady) {
  ENTER(Event_OnReady);
  completion *c = args->event->completion;
  pthread_mutex_lock(&state.lock);
  bool done = c->done;
  if (!done) {
    listener *l = malloc(sizeof *l);
    *l = (listener){args->callback, args->user_arg, c->listeners};
    c->listeners = l;
  }
  pthread_mutex_unlock(&state.lock);
  if (done) args->callback(c->code ? error_new(c->code, c->text) : NULL, args->user_arg);
  return NULL;
}
