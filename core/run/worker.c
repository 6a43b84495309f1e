#include "run/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TAIL_SIZE = 2048 };

struct pj_worker {
  pid_t pid;    // 0 once reaped
  int socket;
  int errors;   // read end of its stderr; -1 once it has closed that
  // The frame that is being sent.
  pj_frame_header out_header;
  struct iovec out[3];
  pj_frame_reader in;
  // The last bytes of its stderr: a ring, `tail_written` bytes ever.
  char tail[TAIL_SIZE];
  size_t tail_written;
};

bool pj_cancelled(const pj_patience *patience) {
  return patience->cancelled && patience->cancelled(patience->context);
}

int64_t pj_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// ---- starting and ending --------------------------------------------------------------------------------------------

static void set_frame(pj_worker *worker, pj_frame_kind kind, uint64_t number, const void *first, size_t first_size,
                      const void *second, size_t second_size) {
  worker->out_header = pj_frame_header_make(kind, number, first_size, second_size);
  worker->out[0] = (struct iovec){&worker->out_header, sizeof worker->out_header};
  worker->out[1] = (struct iovec){(void *)first, first_size};
  worker->out[2] = (struct iovec){(void *)second, second_size};
  worker->in.received = 0;
}

static bool is_sent(const pj_worker *worker) {
  return !worker->out[0].iov_len && !worker->out[1].iov_len && !worker->out[2].iov_len;
}

// Sends what the socket takes now; false when the worker is gone.
static bool send_some(pj_worker *worker) {
  while (!is_sent(worker)) {
    struct msghdr message = {.msg_iov = worker->out, .msg_iovlen = 3};
    ssize_t count = sendmsg(worker->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    size_t left = (size_t)count;
    for (int i = 0; i < 3; ++i) {
      size_t step = left < worker->out[i].iov_len ? left : worker->out[i].iov_len;
      worker->out[i].iov_base = (char *)worker->out[i].iov_base + step;
      worker->out[i].iov_len -= step;
      left -= step;
    }
  }
  return true;
}

// Both ends close on exec, and lie above the numbers that the child's own files get.
static bool make_ends(int socket_ends[2], int error_ends[2]) {
  int made[4] = {-1, -1, -1, -1}, moved[4] = {-1, -1, -1, -1};
  bool ok = !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, made) && !pipe2(made + 2, O_CLOEXEC);
  for (int i = 0; i < 4 && ok; ++i) ok = (moved[i] = fcntl(made[i], F_DUPFD_CLOEXEC, PJ_WORKER_SOCKET + 1)) >= 0;
  for (int i = 0; i < 4; ++i) {
    if (made[i] >= 0) close(made[i]);
    if (!ok && moved[i] >= 0) close(moved[i]);
  }
  memcpy(socket_ends, moved, sizeof(int[2]));
  memcpy(error_ends, moved + 2, sizeof(int[2]));
  return ok && fcntl(error_ends[0], F_SETFL, O_NONBLOCK) >= 0;
}

static int spawn(const char *path, int socket_end, int error_end, pid_t *out_pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, error_end, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket_end, PJ_WORKER_SOCKET);
  // A process group of its own: a terminal's Ctrl-C goes to the user's process, which then decides about the worker.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  char *arguments[] = {(char *)path, NULL};
  int error = posix_spawn(out_pid, path, &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

pj_status pj_worker_start(const char *path, const char *plugin_path, const uint8_t *settings, size_t settings_size,
                          pj_worker **out_worker) {
  pj_worker *worker = calloc(1, sizeof *worker);
  if (!worker) return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory");
  int socket_ends[2], error_ends[2];
  if (!make_ends(socket_ends, error_ends)) {
    free(worker);
    return pj_error(PJ_UNAVAILABLE, "cannot start a compile worker: no pipe or socket: %s", strerror(errno));
  }
  worker->socket = socket_ends[0];
  worker->errors = error_ends[0];
  int error = spawn(path, socket_ends[1], error_ends[1], &worker->pid);
  close(socket_ends[1]);
  close(error_ends[1]);
  if (error) {
    worker->pid = 0;
    pj_worker_end(worker);
    return pj_error(PJ_UNAVAILABLE, "cannot start the compile worker %s: %s", path, strerror(error));
  }
  // The path and the settings fit the socket's buffer; a worker that is gone already is told by pj_worker_greet.
  set_frame(worker, PJ_FRAME_HELLO, (uint64_t)getpid(), plugin_path, strlen(plugin_path) + 1, settings, settings_size);
  send_some(worker);
  *out_worker = worker;
  return NULL;
}

// Gives the wait status, or -1 when another part of the process has reaped the child (SIGCHLD ignored, wait for any).
static int reap(pj_worker *worker) {
  int status = -1;
  pid_t pid;
  // The group, since some compilers run assemblers. A process that is dying already keeps its own cause of death.
  kill(-worker->pid, SIGKILL);
  do {
    pid = waitpid(worker->pid, &status, 0);
  } while (pid < 0 && errno == EINTR);
  worker->pid = 0;
  return pid < 0 ? -1 : status;
}

void pj_worker_end(pj_worker *worker) {
  if (!worker) return;
  if (worker->pid) reap(worker);
  pj_worker_forget(worker);
}

void pj_worker_forget(pj_worker *worker) {
  close(worker->socket);
  if (worker->errors >= 0) close(worker->errors);
  free(worker->in.payload);
  free(worker);
}

// ---- its stderr -----------------------------------------------------------------------------------------------------

static void read_errors(pj_worker *worker) {
  char bytes[1024];
  while (worker->errors >= 0) {
    ssize_t count = read(worker->errors, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      close(worker->errors);
      worker->errors = -1;
      return;
    }
    for (ssize_t i = 0; i < count; ++i) worker->tail[worker->tail_written++ % TAIL_SIZE] = bytes[i];
  }
}

// The last lines as plain ASCII: they end up in exceptions.
static void copy_tail(const pj_worker *worker, char out_text[TAIL_SIZE + 1]) {
  size_t size = worker->tail_written < TAIL_SIZE ? worker->tail_written : TAIL_SIZE;
  size_t first = worker->tail_written - size;
  for (size_t i = 0; i < size; ++i) {
    char c = worker->tail[(first + i) % TAIL_SIZE];
    out_text[i] = c == '\n' || (c >= ' ' && c <= '~') ? c : '?';
  }
  while (size && (out_text[size - 1] == '\n' || out_text[size - 1] == ' ')) --size;
  out_text[size] = '\0';
}

static bool says_out_of_memory(const char *text) {
  static const char *const PHRASES[] = {"bad_alloc", "out of memory", "cannot allocate memory", "failed to allocate"};
  for (size_t i = 0; i < sizeof PHRASES / sizeof *PHRASES; ++i)
    if (strcasestr(text, PHRASES[i])) return true;
  return false;
}

// Kills and reaps the worker and says how it ended: by `fault`, if we found one, else by itself.
static pj_status death(pj_worker *worker, const char *fault) {
  int status = reap(worker);
  read_errors(worker);
  char said[TAIL_SIZE + 1], how[160];
  copy_tail(worker, said);
  const char *quote = *said ? "; its last words: " : "";
  if (fault) return pj_error(PJ_ABORTED, "the compile worker sent %s and was stopped%s%s", fault, quote, said);
  bool killed = status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (killed || says_out_of_memory(said))
    return pj_error(PJ_RESOURCE_EXHAUSTED, "the compiler ran out of memory (%s)%s%s",
                    killed ? "killed by signal 9, most likely by the system's out-of-memory killer"
                           : "see worker_memory_bytes for its limit",
                    quote, said);
  if (status < 0)
    snprintf(how, sizeof how, "of an unknown cause");
  else if (WIFSIGNALED(status))
    snprintf(how, sizeof how, "of signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else
    snprintf(how, sizeof how, "with exit status %d", WEXITSTATUS(status));
  return pj_error(PJ_ABORTED, "the compile worker died %s%s%s", how, quote, said);
}

// ---- the conversation -----------------------------------------------------------------------------------------------

// Sends, receives and collects stderr until the answer is whole, the worker is gone or the time is up.
static pj_frame_progress converse(pj_worker *worker, int timeout_ms, const char **out_fault) {
  int64_t end = pj_now_ms() + timeout_ms;
  for (;;) {
    int64_t left = end - pj_now_ms();
    struct pollfd files[2] = {{worker->socket, (short)(is_sent(worker) ? POLLIN : POLLIN | POLLOUT), 0},
                              {worker->errors, POLLIN, 0}};
    int count = poll(files, 2, left > 0 ? (int)left : 0);
    if (count < 0 && errno != EINTR) {
      *out_fault = "nothing that could be waited for";
      return PJ_FRAME_GONE;
    }
    if (count > 0) {
      if (files[1].revents) read_errors(worker);
      if (files[0].revents & POLLOUT && !send_some(worker)) return PJ_FRAME_GONE;
      if (files[0].revents & (POLLIN | POLLHUP | POLLERR)) {
        pj_frame_progress now = pj_frame_read(&worker->in, worker->socket, PJ_FRAME_ANSWER, out_fault);
        if (now != PJ_FRAME_WAITING) return now;
      }
    }
    if (left <= 0) return PJ_FRAME_WAITING;
  }
}

// The sentence of the answer as an error.
static pj_status answer_error(const pj_worker *worker, pj_code code) {
  int size = worker->in.header.first_size < 1 << 20 ? (int)worker->in.header.first_size : 1 << 20;
  return pj_error(code, "%.*s", size, worker->in.payload ? (const char *)worker->in.payload : "");
}

pj_status pj_worker_greet(pj_worker *worker, int timeout_ms, bool *out_ready) {
  const char *fault = NULL;
  *out_ready = false;
  pj_frame_progress now = converse(worker, timeout_ms, &fault);
  if (now == PJ_FRAME_WAITING) return NULL;
  pj_status status = now == PJ_FRAME_GONE                   ? death(worker, fault)
                     : worker->in.header.number ? answer_error(worker, (pj_code)worker->in.header.number)
                                                : NULL;
  *out_ready = !status;
  return pj_status_context(status, "cannot start a compile worker");
}

bool pj_worker_is_idle(const pj_worker *worker) {
  struct pollfd file = {worker->socket, POLLIN, 0};
  return poll(&file, 1, 0) == 0;
}

pj_status pj_worker_compile(pj_worker *worker, const char *code, size_t code_size, const uint8_t *options,
                            size_t options_size, const pj_patience *patience, uint8_t **out_bytes, size_t *out_size,
                            pj_worker_outcome *out_outcome) {
  const char *fault = NULL;
  *out_outcome = PJ_WORKER_DIED;
  worker->tail_written = 0;  // words of an earlier compile would mislead
  set_frame(worker, PJ_FRAME_COMPILE, 0, code, code_size, options, options_size);
  int64_t end = pj_now_ms() + patience->timeout_ms;
  for (;;) {
    int64_t left = end - pj_now_ms();
    if (left <= 0)
      return pj_error(PJ_DEADLINE_EXCEEDED,
                      "the compiler took longer than %d ms and was stopped; a larger timeout_ms gives it more time",
                      patience->timeout_ms);
    if (pj_cancelled(patience)) return pj_error(PJ_CANCELLED, "the compile was cancelled");
    pj_frame_progress now = converse(worker, left < PJ_TICK_MS ? (int)left : PJ_TICK_MS, &fault);
    if (now == PJ_FRAME_GONE) return death(worker, fault);
    if (now == PJ_FRAME_WHOLE) break;
  }
  // An answer to a frame that we had not sent whole is none.
  if (!is_sent(worker)) return death(worker, "an answer before the question");
  if (worker->in.header.number) {
    *out_outcome = PJ_WORKER_ANSWERED;
    return answer_error(worker, (pj_code)worker->in.header.number);
  }
  if (!worker->in.header.second_size) {
    *out_outcome = PJ_WORKER_UNUSABLE;
    return pj_status_context(answer_error(worker, PJ_UNIMPLEMENTED), "this plugin cannot serialize what it compiled");
  }
  *out_outcome = PJ_WORKER_ANSWERED;
  *out_size = (size_t)worker->in.header.second_size;
  memmove(worker->in.payload, worker->in.payload + worker->in.header.first_size, *out_size);
  *out_bytes = worker->in.payload;
  worker->in.payload = NULL;
  worker->in.room = 0;
  return NULL;
}
