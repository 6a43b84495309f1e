// Work: executions and copies to the host.
#include "objects.h"

static void job_run(job *j) {
  int code = 0;
  char text[256] = "";
  pthread_mutex_lock(&state.lock);
  for (size_t i = 0; i < j->input_count; ++i) {
    completion *ready = j->inputs[i]->ready;
    while (!ready->done) pthread_cond_wait(&state.changed, &state.lock);
    if (ready->code && !code) {
      code = ready->code;
      snprintf(text, sizeof text, "%s", ready->text);
    }
  }
  pthread_mutex_unlock(&state.lock);
  sleep_ms(j->delay_ms);
  if (j->program && !code) {
    code = j->program->run_code;
    snprintf(text, sizeof text, "%s", j->program->run_error);
  }
  if (!code && j->program) {
    void *arguments[FAKE_MAX_VALUES], *results[FAKE_MAX_VALUES];
    for (size_t i = 0; i < j->input_count; ++i) arguments[i] = j->inputs[i]->bytes;
    for (size_t i = 0; i < j->output_count; ++i) results[i] = j->outputs[i]->bytes;
    fake_program_run(j->program, arguments, results);
  }
  if (!code && !j->program && j->inputs[0]->size) memcpy(j->host, j->inputs[0]->bytes, j->inputs[0]->size);
  if (j->program) {
    pthread_mutex_lock(&state.lock);
    ++state.counts.executions_ended;
    pthread_mutex_unlock(&state.lock);
  }
  for (size_t i = 0; i < j->output_count; ++i) complete(j->outputs[i]->ready, code, text);
  if (j->copied) complete(j->copied, code, text);

  if (j->program) program_release(j->program);
  pthread_mutex_lock(&state.lock);
  if (j->copied) completion_release_locked(j->copied);
  for (size_t i = 0; i < j->input_count; ++i) storage_release_locked(j->inputs[i]);
  for (size_t i = 0; i < j->output_count; ++i) storage_release_locked(j->outputs[i]);
  --state.running;
  pthread_cond_broadcast(&state.changed);
  pthread_mutex_unlock(&state.lock);
  free(j->inputs);
  free(j->outputs);
  free(j);
}

static void *job_thread(void *argument) {
  job_run(argument);
  return NULL;
}

void job_start(job *j) {
  pthread_mutex_lock(&state.lock);
  ++state.running;
  bool at_once = !state.asynchronous && !j->delay_ms;
  for (size_t i = 0; i < j->input_count; ++i) at_once &= j->inputs[i]->ready->done;
  pthread_mutex_unlock(&state.lock);
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (at_once || pthread_create(&thread, &attributes, job_thread, j)) job_run(j);
  pthread_attr_destroy(&attributes);
}
