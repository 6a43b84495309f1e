// pj-worker: compiles for another process, so that a compiler that aborts, hangs or eats all memory costs only this
// one. Started by core/run/worker.c with a socket at file PJ_WORKER_SOCKET; run/worker_protocol.h is what it speaks
// there.
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fault.h"
#include "run/worker_protocol.h"

// The parent is gone or makes no sense: nobody is left to tell. Without destructors, which may take a plugin seconds.
static _Noreturn void quit(void) { _exit(0); }

static void receive(void *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t count = recv(PJ_WORKER_SOCKET, (char *)bytes + done, size - done, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) quit();
    done += (size_t)count;
  }
}

static void transmit(const void *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t count = send(PJ_WORKER_SOCKET, (const char *)bytes + done, size - done, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) quit();
    done += (size_t)count;
  }
}

typedef struct message {
  uint64_t number;
  uint8_t *first, *second;
  size_t first_size, second_size;
} message;

static uint8_t *receive_part(uint64_t size) {
  uint8_t *part = malloc(size ? (size_t)size : 1);
  if (!part) {
    fprintf(stderr, "Cannot allocate memory for a request of %llu bytes\n", (unsigned long long)size);
    abort();
  }
  receive(part, (size_t)size);
  return part;
}

static message receive_message(pj_frame_kind kind) {
  pj_frame_header header;
  receive(&header, sizeof header);
  if (pj_frame_header_check(&header, kind)) quit();
  message m = {.number = header.number};
  m.first_size = (size_t)header.first_size;
  m.second_size = (size_t)header.second_size;
  m.first = receive_part(header.first_size);
  m.second = receive_part(header.second_size);
  return m;
}

static void answer(pj_code code, const char *text, const uint8_t *bytes, size_t size) {
  pj_frame_header header = pj_frame_header_make(PJ_FRAME_ANSWER, (uint64_t)code, strlen(text), size);
  transmit(&header, sizeof header);
  transmit(text, strlen(text));
  transmit(bytes, size);
}

// Never outlives the parent, also in the middle of a compile. PR_SET_PDEATHSIG would not do: it fires when the
// *thread* ends that started us. The socket hangs up when the parent ends, unless a forked child of it holds a copy:
// hence the pid.
static void *watch_parent(void *parent) {
  for (;;) {
    struct pollfd file = {PJ_WORKER_SOCKET, POLLRDHUP, 0};
    int count = poll(&file, 1, 1000);
    if (count > 0 || getppid() != (pid_t)(intptr_t)parent) quit();
  }
}

// Files that the user's process left open across exec are none of ours.
static void close_foreign_files(void) {
  DIR *stream = opendir("/proc/self/fd");
  for (struct dirent *found; stream && (found = readdir(stream));) {
    int file = atoi(found->d_name);
    if (file > PJ_WORKER_SOCKET && file != dirfd(stream)) close(file);
  }
  if (stream) closedir(stream);
}

static void set_limit(int resource, rlim_t value) {
  struct rlimit limit;
  if (getrlimit((__rlimit_resource_t)resource, &limit)) return;
  if (limit.rlim_max != RLIM_INFINITY && value > limit.rlim_max) value = limit.rlim_max;
  limit.rlim_cur = value;
  setrlimit((__rlimit_resource_t)resource, &limit);
}

// What happens at the memory limit has many faces: bad_alloc, a failed check in a thread pool, a null pointer. The
// parent learns the cause from our last words. Only async-signal-safe calls.
static void tell_cause(int signal_number) {
  enum { LITTLE = 16 << 20 };  // two thread stacks
  static const char WORDS[] = "Cannot allocate memory: less than 16 MiB are left of the worker's limit\n";
  if (mmap(NULL, LITTLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
      write(STDERR_FILENO, WORDS, sizeof WORDS - 1) < 0)
    _exit(1);
  raise(signal_number);  // the default action, since the handler was for one time
}

// RLIMIT_DATA counts private writable memory (Linux 4.7 and later), not address space: compilers reserve much of that.
static void limit_memory(uint64_t bytes) {
  unsigned long long pages = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  if (!file) return;
  int found = fscanf(file, "%*s %*s %*s %*s %*s %llu", &pages);
  fclose(file);
  if (found != 1) return;
  set_limit(RLIMIT_DATA, (rlim_t)(pages * (unsigned long long)sysconf(_SC_PAGESIZE) + bytes));
  const struct sigaction once = {.sa_handler = tell_cause, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
  const int deaths[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  for (size_t i = 0; i < sizeof deaths / sizeof *deaths; ++i) sigaction(deaths[i], &once, NULL);
}

typedef struct target {
  pj_client *client;
  pj_topology *topology;
} target;

// A worker with a topology needs no chip: libtpu shall neither take the lock of the chips, which the parent holds, nor
// ask the cloud's metadata server what they are.
static void leave_chips_alone(void) {
  setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 1);
  setenv("TPU_SKIP_MDS_QUERY", "1", 1);
}

static pj_status make_target(const char *plugin_path, const pj_worker_settings *settings, target *out_target) {
  pj_plugin *plugin;
  if (*settings->topology) leave_chips_alone();
  PJ_TRY(pj_plugin_load(plugin_path, &plugin));
  if (*settings->topology)
    return pj_topology_create(plugin, settings->topology, settings->options, settings->option_count,
                              &out_target->topology);
  return pj_client_create(plugin, settings->options, settings->option_count, &out_target->client);
}

static pj_status start(target *out_target) {
  message hello = receive_message(PJ_FRAME_HELLO);
  if (!hello.first_size || hello.first[hello.first_size - 1]) quit();
  pthread_t watch;
  int error = pthread_create(&watch, NULL, watch_parent, (void *)(intptr_t)hello.number);
  if (error) return pj_error(PJ_UNAVAILABLE, "no thread to watch the parent: %s", strerror(error));
  pj_worker_settings settings;
  void *memory;
  PJ_TRY(pj_worker_settings_decode(hello.second, hello.second_size, &settings, &memory));
  pj_status status = make_target((const char *)hello.first, &settings, out_target);
  if (!status && settings.memory_bytes) limit_memory(settings.memory_bytes);
  free(memory);
  free(hello.first);
  free(hello.second);
  return status;
}

static pj_status compile(const target *t, const message *m, pj_executable **out_executable) {
  const char *code = (const char *)m->first;
  if (t->topology)
    return pj_topology_compile(t->topology, code, m->first_size, m->second, m->second_size, out_executable);
  return pj_compile(t->client, code, m->first_size, m->second, m->second_size, out_executable);
}

static void serve(const target *t, const message *m) {
  pj_executable *executable = NULL;
  uint8_t *bytes = NULL;
  size_t size = 0;
  pj_status failed = compile(t, m, &executable);
  pj_status status = failed ? NULL : pj_executable_serialize(executable, &bytes, &size);
  if (failed)
    answer(pj_status_code(failed), pj_status_text(failed), NULL, 0);
  else
    answer(PJ_OK, pj_status_text(status), bytes, status ? 0 : size);
  free(bytes);
  pj_executable_destroy(executable);
  pj_status_free(failed);
  pj_status_free(status);
}

int main(void) {
  signal(SIGINT, SIG_IGN);  // the user's process gets it too and decides
  close_foreign_files();
  set_limit(RLIMIT_CORE, 0);
  target t = {0};
  pj_status status = start(&t);
  answer(pj_status_code(status), pj_status_text(status), NULL, 0);
  if (status) return 1;
  for (int request = 1;; ++request) {
    message m = receive_message(PJ_FRAME_COMPILE);
    pj_worker_fault(request);
    serve(&t, &m);
    free(m.first);
    free(m.second);
  }
}
