// The compiler on the fake plugin, and on the plugin that PJ_PLUGIN names where it is set. Faults are played by the
// worker (core/worker/fault.h).
#include "run/compiler.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fake_plugin/fake_plugin.h"
#include "run/disk_cache.h"
#include "run/program_key.h"
#include "run/worker_protocol.h"
#include "test.h"

static const fake_control *fake;
static const char *plugin_path;
static pj_client *client;
static uint8_t *compile_options;
static size_t compile_options_size;
static char folder[64], cache_path[128];

// Every compiler of these tests has these, unless a test says otherwise.
static const pj_compiler_options WORKERS = {.worker_path = PJ_WORKER_PATH, .worker_count = 2, .timeout_ms = 60000};

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static pj_compiler *make(const pj_compiler_options *options) {
  pj_compiler *compiler = NULL;
  CHECK_OK(pj_compiler_create(client, options, &compiler));
  return compiler;
}

static pj_compiler *make_with_cache(void) {
  pj_compiler_options options = WORKERS;
  options.cache_directory = cache_path;
  return make(&options);
}

// Adds two vectors of four; the number makes it another program.
static void write_program(int number, char out_code[512]) {
  snprintf(out_code, 512,
           "module @program_%d {\n"
           "  func.func public @main(%%a: tensor<4xf32>, %%b: tensor<4xf32>) -> tensor<4xf32> {\n"
           "    %%c = stablehlo.add %%a, %%b : tensor<4xf32>\n"
           "    return %%c : tensor<4xf32>\n"
           "  }\n"
           "}\n"
           "// fake: add\n",
           number);
}

static pj_status get_with(pj_compiler *compiler, int number, bool (*cancelled)(void *), void *context,
                          pj_executable **out_executable, pj_compile_report *out_report) {
  char code[512];
  write_program(number, code);
  return pj_compiler_get(compiler, code, strlen(code), compile_options, compile_options_size, cancelled, context,
                         out_executable, out_report);
}

static pj_status get(pj_compiler *compiler, int number, pj_compile_report *out_report) {
  pj_executable *executable = NULL;
  pj_status status = get_with(compiler, number, NULL, NULL, &executable, out_report);
  pj_executable_destroy(executable);
  return status;
}

static pj_compiled_by by(pj_compiler *compiler, int number) {
  pj_compile_report report = {0};
  CHECK_OK(get(compiler, number, &report));
  CHECK(report.worker_failures == 0);
  return report.by;
}

static bool adds(pj_executable *executable) {
  const float ones[4] = {1, 2, 3, 4};
  float sums[4] = {0};
  const int64_t dims[] = {4};
  pj_buffer *arguments[2] = {NULL, NULL}, *result = NULL;
  for (int i = 0; i < 2; ++i)
    CHECK_OK(pj_buffer_from_host(client, 0, ones, PJ_F32, 1, dims, PJ_HOST_COPY, NULL, &arguments[i]));
  CHECK_OK(pj_execute(executable, 0, arguments, 2, &result));
  CHECK_OK(pj_buffer_to_host(client, result, sums, sizeof sums));
  for (int i = 0; i < 2; ++i) pj_buffer_destroy(client, arguments[i]);
  pj_buffer_destroy(client, result);
  return sums[0] == 2 && sums[3] == 8;
}

static void pause_ms(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

// The live children of `parent` that run the worker.
static int list_workers(pid_t parent, pid_t out_pids[16]) {
  int count = 0;
  DIR *stream = opendir("/proc");
  for (struct dirent *found; stream && (found = readdir(stream));) {
    char name[300], line[512] = "", program[32], state;
    int pid = atoi(found->d_name), its_parent;
    if (pid <= 0) continue;
    snprintf(name, sizeof name, "/proc/%d/stat", pid);
    FILE *file = fopen(name, "re");
    if (!file) continue;
    size_t size = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[size] = '\0';
    if (sscanf(line, "%*d (%31[^)]) %c %d", program, &state, &its_parent) != 3) continue;
    if (its_parent == parent && state != 'Z' && !strcmp(program, "pj-worker") && count < 16) out_pids[count++] = pid;
  }
  if (stream) closedir(stream);
  return count;
}

static int count_workers(void) {
  pid_t pids[16];
  return list_workers(getpid(), pids);
}

static pid_t only_worker(void) {
  pid_t pids[16];
  int count = list_workers(getpid(), pids);
  CHECK(count == 1);
  return count ? pids[0] : 0;
}

static void remove_cache(void) {
  DIR *stream = opendir(cache_path);
  for (struct dirent *found; stream && (found = readdir(stream));)
    if (strcmp(found->d_name, ".") && strcmp(found->d_name, "..")) unlinkat(dirfd(stream), found->d_name, 0);
  if (stream) closedir(stream);
  rmdir(cache_path);
}

// ---- the ways -------------------------------------------------------------------------------------------------------

static void a_worker_compiles_and_the_program_runs_here(void) {
  pj_compiler *compiler = make(&WORKERS);
  CHECK(count_workers() == 0);  // none before the first need
  pj_executable *executable = NULL;
  pj_compile_report report = {0};
  CHECK_OK(get_with(compiler, 1, NULL, NULL, &executable, &report));
  CHECK(report.by == PJ_COMPILED_BY_WORKER);
  CHECK(report.worker_failures == 0);
  CHECK(report.milliseconds > 0);
  CHECK(adds(executable));
  CHECK(count_workers() == 1);  // one thread needs no second
  pj_executable_destroy(executable);
  pj_compiler_destroy(compiler);
  CHECK(count_workers() == 0);
}

static void without_a_worker_the_own_process_compiles(void) {
  for (int i = 0; i < 2; ++i) {
    pj_compiler *compiler = make(&(pj_compiler_options){.worker_path = i ? "" : NULL});
    CHECK(by(compiler, 1) == PJ_COMPILED_IN_PROCESS);
    CHECK(pj_compiler_own_process_reason(compiler) == NULL);
    pj_compiler_destroy(compiler);
  }
}

static void a_second_start_compiles_nothing(void) {
  pj_compiler *compiler = make_with_cache();
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  CHECK(by(compiler, 2) == PJ_COMPILED_BY_WORKER);
  CHECK(by(compiler, 1) == PJ_LOADED_FROM_DISK);
  pj_compiler_destroy(compiler);
  compiler = make_with_cache();
  pj_executable *executable = NULL;
  pj_compile_report report;
  CHECK_OK(get_with(compiler, 2, NULL, NULL, &executable, &report));
  CHECK(report.by == PJ_LOADED_FROM_DISK);
  CHECK(adds(executable));
  pj_executable_destroy(executable);
  CHECK(count_workers() == 0);
  pj_compiler_destroy(compiler);
}

static void what_the_own_process_compiled_is_stored_too(void) {
  pj_compiler *compiler = make(&(pj_compiler_options){.cache_directory = cache_path});
  CHECK(by(compiler, 1) == PJ_COMPILED_IN_PROCESS);
  CHECK(by(compiler, 1) == PJ_LOADED_FROM_DISK);
  pj_compiler_destroy(compiler);
}

static void another_text_or_other_options_never_hit(void) {
  pj_compile_report report;
  pj_executable *executable = NULL;
  uint8_t *other;
  size_t size;
  char code[512];
  pj_compiler *compiler = make(&(pj_compiler_options){.cache_directory = cache_path});
  CHECK(by(compiler, 1) == PJ_COMPILED_IN_PROCESS);
  write_program(1, code);
  strcat(code, " ");
  CHECK_OK(pj_compiler_get(compiler, code, strlen(code), compile_options, compile_options_size, NULL, NULL, &executable,
                           &report));
  CHECK(report.by == PJ_COMPILED_IN_PROCESS);
  pj_executable_destroy(executable);
  CHECK_OK(pj_compile_options_encode(&(pj_compile_options){.portable = true, .optimization_level = 19}, &other, &size));
  write_program(1, code);
  CHECK_OK(pj_compiler_get(compiler, code, strlen(code), other, size, NULL, NULL, &executable, &report));
  CHECK(report.by == PJ_COMPILED_IN_PROCESS);
  pj_executable_destroy(executable);
  free(other);
  pj_compiler_destroy(compiler);
}

static void the_environment_key_depends_on_plugin_and_flags(void) {
  uint8_t digest[32] = {1}, first[PJ_KEY_SIZE], second[PJ_KEY_SIZE];
  pj_environment_key(client, digest, first);
  pj_environment_key(client, digest, second);
  CHECK(!memcmp(first, second, PJ_KEY_SIZE));
  digest[31] = 1;
  pj_environment_key(client, digest, second);
  CHECK(memcmp(first, second, PJ_KEY_SIZE));
  pj_environment_key(client, digest, first);
  setenv("XLA_FLAGS", "--xla_a=b", 1);
  pj_environment_key(client, digest, second);
  unsetenv("XLA_FLAGS");
  CHECK(memcmp(first, second, PJ_KEY_SIZE));
}

static void a_cache_that_cannot_be_used_is_no_error(void) {
  pj_compiler_options options = WORKERS;
  options.cache_directory = "/proc/no/such/place";
  pj_compiler *compiler = make(&options);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  pj_compiler_destroy(compiler);
}

static void a_damaged_cache_is_compiled_again(void) {
  pj_compiler *compiler = make_with_cache();
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  DIR *stream = opendir(cache_path);
  for (struct dirent *found; stream && (found = readdir(stream));) {
    int file = openat(dirfd(stream), found->d_name, O_WRONLY);
    if (file < 0) continue;
    CHECK(pwrite(file, "damage", 6, 90) == 6);
    close(file);
  }
  closedir(stream);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  CHECK(by(compiler, 1) == PJ_LOADED_FROM_DISK);
  pj_compiler_destroy(compiler);
}

static void an_entry_that_the_plugin_refuses_is_compiled_again(void) {
  char code[512];
  uint8_t digest[32], environment[PJ_KEY_SIZE], program[PJ_KEY_SIZE], key[PJ_KEY_SIZE];
  pj_disk_cache *cache = NULL;
  pj_compiler *compiler = make_with_cache();
  write_program(1, code);
  CHECK_OK(pj_plugin_digest(pj_client_plugin(client), digest));
  pj_environment_key(client, digest, environment);
  pj_program_key(code, strlen(code), compile_options, compile_options_size, program);
  pj_disk_key(environment, program, key);
  CHECK_OK(pj_disk_cache_open(cache_path, 1 << 20, &cache));
  pj_disk_cache_store(cache, key, (const uint8_t *)"no executable", 13);
  pj_disk_cache_close(cache);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  CHECK(by(compiler, 1) == PJ_LOADED_FROM_DISK);
  pj_compiler_destroy(compiler);
}

static void bad_options_are_refused(void) {
  pj_compiler *compiler = NULL;
  CHECK_FAILS(pj_compiler_create(client, &(pj_compiler_options){.worker_path = "/no/such/pj-worker"}, &compiler),
              PJ_NOT_FOUND, "/no/such/pj-worker");
  CHECK_FAILS(pj_compiler_create(client, &(pj_compiler_options){.worker_count = -1}, &compiler), PJ_INVALID_ARGUMENT,
              "worker_count -1");
  CHECK_FAILS(pj_compiler_create(client, &(pj_compiler_options){.timeout_ms = -5}, &compiler), PJ_INVALID_ARGUMENT,
              "timeout_ms -5");
  pj_compiler_destroy(NULL);
}

// ---- what a compiler may do to its worker ---------------------------------------------------------------------------

static void a_compile_error_is_kept_and_costs_no_worker(void) {
  static const char BAD[] = "this is no module";
  pj_executable *executable = NULL;
  pj_compile_report report = {0};
  pj_compiler *compiler = make(&WORKERS);
  pj_status here = pj_compile(client, BAD, strlen(BAD), compile_options, compile_options_size, &executable);
  pj_status there = pj_compiler_get(compiler, BAD, strlen(BAD), compile_options, compile_options_size, NULL, NULL,
                                    &executable, &report);
  CHECK(here && there);
  CHECK(pj_status_code(here) == pj_status_code(there));
  CHECK(!strcmp(pj_status_text(here), pj_status_text(there)));
  CHECK(report.worker_failures == 0);
  pj_status_free(here);
  pj_status_free(there);
  pid_t worker = only_worker();
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  CHECK(only_worker() == worker);
  pj_compiler_destroy(compiler);
}

// The second request of a worker meets the fault; what comes before and after works.
static void play(const char *fault, pj_code code, const char *part, uint64_t memory, int timeout_ms,
                 double at_most_ms) {
  char variable[32], sentence[256];
  pj_compiler_options options = WORKERS;
  options.worker_memory_bytes = memory;
  options.timeout_ms = timeout_ms;
  snprintf(variable, sizeof variable, "%s:2", fault);
  setenv("PJ_WORKER_FAULT", variable, 1);
  pj_compiler *compiler = make(&options);
  pj_compile_report report = {0};
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  double start = now_ms();
  pj_status status = get(compiler, 2, &report);
  double took = now_ms() - start;
  snprintf(sentence, sizeof sentence, "%s", pj_status_text(status));
  CHECK_FAILS(status, code, part);
  CHECK(took < at_most_ms);
  CHECK(report.worker_failures == 1);
  CHECK(count_workers() == 0);
  CHECK_FAILS(get(compiler, 2, &report), code, sentence);  // remembered as bad: no worker is asked again
  CHECK(report.worker_failures == 0);
  CHECK(count_workers() == 0);
  CHECK(by(compiler, 3) == PJ_COMPILED_BY_WORKER);
  unsetenv("PJ_WORKER_FAULT");
  pj_compiler_destroy(compiler);
}

static void an_abort_is_a_status_that_quotes_the_compiler(void) {
  play("abort", PJ_ABORTED, "signal 6 (Aborted); its last words: F0000 fault.c: Check failed: this program", 0, 60000,
       20000);
}

static void a_hang_is_a_status_after_the_timeout(void) {
  play("hang", PJ_DEADLINE_EXCEEDED, "longer than 1500 ms", 0, 1500, 3000);
}

static void a_compile_that_exceeds_its_memory_is_a_status(void) {
  play("memory", PJ_RESOURCE_EXHAUSTED, "ran out of memory", (uint64_t)256 << 20, 60000, 20000);
}

static void garbage_from_a_worker_is_a_status(void) {
  play("garbage", PJ_ABORTED, "sent bytes that are no frame", 0, 60000, 20000);
}

static void a_worker_that_promises_more_than_it_sends_is_a_status(void) {
  play("lie", PJ_ABORTED, "exit status 0", 0, 60000, 20000);
}

static void a_worker_that_exits_is_a_status(void) { play("exit", PJ_ABORTED, "exit status 3", 0, 60000, 20000); }

static void a_chattering_compiler_does_not_block(void) {
  setenv("PJ_WORKER_FAULT", "chatter", 1);
  pj_compiler *compiler = make(&WORKERS);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  CHECK(by(compiler, 2) == PJ_COMPILED_BY_WORKER);
  unsetenv("PJ_WORKER_FAULT");
  pj_compiler_destroy(compiler);
}

static void a_worker_killed_while_idle_is_replaced(void) {
  pj_compiler *compiler = make(&WORKERS);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  pid_t first = only_worker();
  siginfo_t dead;
  CHECK(!kill(first, SIGKILL));
  CHECK(!waitid(P_PID, (id_t)first, &dead, WEXITED | WNOWAIT));
  CHECK(by(compiler, 2) == PJ_COMPILED_BY_WORKER);
  CHECK(only_worker() != first);
  pj_compiler_destroy(compiler);
}

static void a_worker_that_cannot_start_leaves_the_own_process(void) {
  pj_compiler_options options = WORKERS;
  options.worker_path = "/bin/false";
  pj_compiler *compiler = make(&options);
  CHECK(by(compiler, 1) == PJ_COMPILED_IN_PROCESS);
  const char *reason = pj_compiler_own_process_reason(compiler);
  CHECK(reason && strstr(reason, "cannot start a compile worker: the compile worker died with exit status 1"));
  CHECK(by(compiler, 2) == PJ_COMPILED_IN_PROCESS);
  pj_compiler_destroy(compiler);
}

// ---- cancelling -----------------------------------------------------------------------------------------------------

typedef struct countdown {
  int left;
} countdown;

static bool count_down(void *context) { return --((countdown *)context)->left < 0; }

static void a_cancelled_compile_ends_and_is_not_remembered(void) {
  setenv("PJ_WORKER_FAULT", "hang:2", 1);
  pj_compiler *compiler = make(&WORKERS);
  pj_executable *executable = NULL;
  pj_compile_report report = {0};
  countdown ten = {10};
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  double start = now_ms();
  CHECK_FAILS(get_with(compiler, 2, count_down, &ten, &executable, &report), PJ_CANCELLED, "cancelled");
  CHECK(now_ms() - start >= 100);
  CHECK(now_ms() - start < 5000);
  CHECK(count_workers() == 0);
  CHECK(by(compiler, 2) == PJ_COMPILED_BY_WORKER);
  unsetenv("PJ_WORKER_FAULT");
  pj_compiler_destroy(compiler);
}

static bool at_once(void *context) {
  (void)context;
  return true;
}

static void cancelling_while_a_worker_starts_keeps_the_worker(void) {
  pj_compiler *compiler = make(&WORKERS);
  pj_executable *executable = NULL;
  pj_compile_report report = {0};
  CHECK_FAILS(get_with(compiler, 1, at_once, NULL, &executable, &report), PJ_CANCELLED, "cancelled");
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  pj_compiler_destroy(compiler);
}

typedef struct job {
  pj_compiler *compiler;
  int number;
  int times;
  atomic_bool *stop;
  pj_code code;
} job;

static bool is_stopped(void *context) { return atomic_load((atomic_bool *)context); }

static void *run_job(void *argument) {
  job *j = argument;
  for (int i = 0; i < j->times && !j->code; ++i) {
    pj_executable *executable = NULL;
    pj_status status =
        get_with(j->compiler, j->number + i, j->stop ? is_stopped : NULL, j->stop, &executable, NULL);
    j->code = pj_status_code(status);
    if (status) printf("# %s\n", pj_status_text(status));
    pj_status_free(status);
    pj_executable_destroy(executable);
  }
  return NULL;
}

static void cancelling_while_all_workers_are_busy_ends_the_wait(void) {
  atomic_bool stop = false;
  pthread_t thread;
  pj_compiler_options options = WORKERS;
  options.worker_count = 1;
  setenv("PJ_WORKER_FAULT", "hang", 1);
  pj_compiler *compiler = make(&options);
  job busy = {.compiler = compiler, .number = 1, .times = 1, .stop = &stop};
  CHECK(!pthread_create(&thread, NULL, run_job, &busy));
  while (!count_workers()) pause_ms(5);
  pause_ms(50);
  pj_executable *executable = NULL;
  pj_compile_report report = {0};
  countdown five = {5};
  CHECK_FAILS(get_with(compiler, 2, count_down, &five, &executable, &report), PJ_CANCELLED, "cancelled");
  CHECK(count_workers() == 1);  // the other thread's
  atomic_store(&stop, true);
  CHECK(!pthread_join(thread, NULL));
  CHECK(busy.code == PJ_CANCELLED);
  unsetenv("PJ_WORKER_FAULT");
  pj_compiler_destroy(compiler);
}

// ---- threads and processes ------------------------------------------------------------------------------------------

static void eight_threads_share_two_workers(void) {
  enum { THREADS = 8, TIMES = 5 };
  pthread_t threads[THREADS];
  job jobs[THREADS];
  pj_compiler *compiler = make_with_cache();
  for (int i = 0; i < THREADS; ++i) {
    jobs[i] = (job){.compiler = compiler, .number = 100 * i, .times = TIMES};
    CHECK(!pthread_create(&threads[i], NULL, run_job, &jobs[i]));
  }
  int most = 0;
  for (int i = 0; i < 20; ++i) {
    int now = count_workers();
    most = now > most ? now : most;
    pause_ms(5);
  }
  for (int i = 0; i < THREADS; ++i) {
    CHECK(!pthread_join(threads[i], NULL));
    CHECK(jobs[i].code == PJ_OK);
  }
  CHECK(most <= 2 && count_workers() == 2);
  for (int i = 0; i < THREADS; ++i) CHECK(by(compiler, 100 * i + TIMES - 1) == PJ_LOADED_FROM_DISK);
  pj_compiler_destroy(compiler);
}

static void threads_go_on_while_workers_die(void) {
  enum { THREADS = 4, TIMES = 3 };
  pthread_t threads[THREADS];
  job jobs[THREADS];
  setenv("PJ_WORKER_FAULT", "abort:2", 1);
  pj_compiler *compiler = make(&WORKERS);
  for (int i = 0; i < THREADS; ++i) {
    jobs[i] = (job){.compiler = compiler, .number = 100 * i, .times = TIMES};
    CHECK(!pthread_create(&threads[i], NULL, run_job, &jobs[i]));
  }
  int aborted = 0;
  for (int i = 0; i < THREADS; ++i) {
    CHECK(!pthread_join(threads[i], NULL));
    CHECK(jobs[i].code == PJ_OK || jobs[i].code == PJ_ABORTED);
    aborted += jobs[i].code == PJ_ABORTED;
  }
  CHECK(aborted > 0);
  unsetenv("PJ_WORKER_FAULT");
  pj_compiler_destroy(compiler);
}

static void a_worker_outlives_the_thread_that_started_it(void) {
  pthread_t thread;
  pj_compiler *compiler = make(&WORKERS);
  job first = {.compiler = compiler, .number = 1, .times = 1};
  CHECK(!pthread_create(&thread, NULL, run_job, &first));
  CHECK(!pthread_join(thread, NULL));
  CHECK(first.code == PJ_OK);
  pid_t worker = only_worker();
  CHECK(by(compiler, 2) == PJ_COMPILED_BY_WORKER);
  CHECK(only_worker() == worker);
  pj_compiler_destroy(compiler);
}

static void ctrl_c_does_not_reach_a_worker(void) {
  pj_compiler *compiler = make(&WORKERS);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  pid_t worker = only_worker();
  CHECK(getpgid(worker) != getpgid(0));
  CHECK(!kill(worker, SIGINT));
  pause_ms(20);
  CHECK(by(compiler, 2) == PJ_COMPILED_BY_WORKER);
  CHECK(only_worker() == worker);
  pj_compiler_destroy(compiler);
}

static void a_worker_inherits_no_file_and_no_blocked_signal(void) {
  char name[64], target[300], line[256];
  sigset_t all, before;
  int file = open("/dev/zero", O_RDONLY);  // without O_CLOEXEC
  CHECK(fcntl(file, F_DUPFD, 200) == 200);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pj_compiler *compiler = make(&WORKERS);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  snprintf(name, sizeof name, "/proc/%d/fd", (int)only_worker());
  DIR *stream = opendir(name);
  CHECK(stream != NULL);
  for (struct dirent *found; stream && (found = readdir(stream));) {
    ssize_t size = readlinkat(dirfd(stream), found->d_name, target, sizeof target - 1);
    target[size < 0 ? 0 : size] = '\0';
    CHECK(strcmp(target, "/dev/zero"));
  }
  if (stream) closedir(stream);
  snprintf(name, sizeof name, "/proc/%d/status", (int)only_worker());
  FILE *status = fopen(name, "re");
  unsigned long long blocked = 1;
  while (status && fgets(line, sizeof line, status)) sscanf(line, "SigBlk: %llx", &blocked);
  if (status) fclose(status);
  CHECK(blocked == 0);
  close(200);
  close(file);
  pj_compiler_destroy(compiler);
}

static void a_worker_dies_with_its_parent_in_the_middle_of_a_compile(void) {
  pid_t pids[16];
  setenv("PJ_WORKER_FAULT", "hang", 1);
  fflush(NULL);
  pid_t parent = fork();
  if (!parent) {
    pj_compiler *compiler = make(&WORKERS);
    pj_status_free(get(compiler, 1, NULL));
    _exit(1);
  }
  unsetenv("PJ_WORKER_FAULT");
  double start = now_ms();
  while (list_workers(parent, pids) != 1 && now_ms() - start < 10000) pause_ms(5);
  CHECK(list_workers(parent, pids) == 1);
  pause_ms(300);
  CHECK(!kill(parent, SIGKILL));
  CHECK(waitpid(parent, NULL, 0) == parent);
  start = now_ms();
  while (!kill(pids[0], 0) && now_ms() - start < 10000) {
    waitpid(pids[0], NULL, WNOHANG);  // where we are the reaper of orphans
    pause_ms(5);
  }
  CHECK(kill(pids[0], 0));
}

static void a_forked_child_must_say_so_and_leaves_the_parents_worker_alone(void) {
  pj_compiler *compiler = make(&WORKERS);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  pid_t worker = only_worker();
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    test_failures = 0;
    CHECK_FAILS(get(compiler, 2, NULL), PJ_FAILED_PRECONDITION, "pj_compiler_after_fork");
    pj_compiler_destroy(compiler);
    _exit(test_failures);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(by(compiler, 2) == PJ_COMPILED_BY_WORKER);
  CHECK(only_worker() == worker);
  pj_compiler_destroy(compiler);
}

static void a_forked_child_starts_its_own_worker(void) {
  pj_compiler *compiler = make(&WORKERS);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  fflush(NULL);
  setenv("PJ_WORKER_FAULT", "exit", 1);  // a plugin's threads do not survive fork, so the child must load nothing
  pid_t child = fork();
  if (!child) {
    test_failures = 0;
    pj_compile_report report = {0};
    pj_compiler_after_fork(compiler);
    CHECK_FAILS(get(compiler, 2, &report), PJ_ABORTED, "exit status 3");
    CHECK(report.worker_failures == 1);
    pj_compiler_destroy(compiler);
    _exit(test_failures);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(only_worker() > 0);
  unsetenv("PJ_WORKER_FAULT");
  pj_compiler_destroy(compiler);
}

// ---- processes that share a cache -----------------------------------------------------------------------------------

enum { SHARED_PROGRAMS = 6 };

static pid_t start_filler(const char *self) {
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    execl(self, self, "fill", plugin_path, cache_path, (char *)NULL);
    _exit(99);
  }
  return child;
}

// In a process of its own: compiles the shared programs; gives how many were not on disk, or 90 for a failure.
static int fill(void) {
  int compiled = 0;
  pj_compiler *compiler = make_with_cache();
  for (int i = 0; i < SHARED_PROGRAMS; ++i) compiled += by(compiler, i) != PJ_LOADED_FROM_DISK;
  pj_compiler_destroy(compiler);
  return test_failures ? 90 : compiled;
}

static void processes_fill_one_cache_at_once(void) {
  int status[3] = {-1, -1, -1};
  pid_t children[3];
  for (int i = 0; i < 2; ++i) children[i] = start_filler("/proc/self/exe");
  for (int i = 0; i < 2; ++i) {
    CHECK(waitpid(children[i], &status[i], 0) == children[i] && WIFEXITED(status[i]));
    CHECK(WEXITSTATUS(status[i]) <= SHARED_PROGRAMS);
  }
  CHECK(WEXITSTATUS(status[0]) + WEXITSTATUS(status[1]) >= SHARED_PROGRAMS);
  children[2] = start_filler("/proc/self/exe");
  CHECK(waitpid(children[2], &status[2], 0) == children[2] && status[2] == 0);
}

// ---- what only a plugin made for it does ----------------------------------------------------------------------------

static pj_status get_text(pj_compiler *compiler, const char *code, pj_compile_report *out_report) {
  pj_executable *executable = NULL;
  pj_status status = pj_compiler_get(compiler, code, strlen(code), compile_options, compile_options_size, NULL, NULL,
                                     &executable, out_report);
  pj_executable_destroy(executable);
  return status;
}

static void a_program_that_aborts_the_compiler_costs_one_worker(void) {
  pj_compile_report report = {0};
  pj_compiler *compiler = make(&WORKERS);
  CHECK_FAILS(get_text(compiler, "module { func.func public @main() { return } }\n// fake: compile-abort\n", &report),
              PJ_ABORTED, "signal 6");
  CHECK(report.worker_failures == 1);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  pj_compiler_destroy(compiler);
}

static void the_timeout_counts_the_compile_alone(void) {
  pj_compile_report report = {0};
  pj_compiler_options options = WORKERS;
  options.timeout_ms = 150;
  setenv("FAKE_PLUGIN_DELAY", "PJRT_Client_Create:400", 1);
  pj_compiler *compiler = make(&options);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  CHECK_FAILS(get_text(compiler, "module { func.func public @main() { return } }\n// fake: compile-ms 5000\n", &report),
              PJ_DEADLINE_EXCEEDED, "150 ms");
  unsetenv("FAKE_PLUGIN_DELAY");
  pj_compiler_destroy(compiler);
}

static void a_thread_does_not_wait_for_a_second_worker_when_the_first_is_free(void) {
  enum { THREADS = 2 };
  pthread_t threads[THREADS];
  job jobs[THREADS];
  pj_compiler *compiler = make(&WORKERS);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  setenv("FAKE_PLUGIN_DELAY", "PJRT_Client_Create:3000", 1);  // the second worker's
  double start = now_ms();
  for (int i = 0; i < THREADS; ++i) {
    jobs[i] = (job){.compiler = compiler, .number = 100 * i + 100, .times = 10};
    CHECK(!pthread_create(&threads[i], NULL, run_job, &jobs[i]));
  }
  for (int i = 0; i < THREADS; ++i) {
    CHECK(!pthread_join(threads[i], NULL));
    CHECK(jobs[i].code == PJ_OK);
  }
  CHECK(now_ms() - start < 2000);
  unsetenv("FAKE_PLUGIN_DELAY");
  pj_compiler_destroy(compiler);
}

static void a_worker_that_gets_no_client_leaves_the_own_process(void) {
  setenv("FAKE_PLUGIN_FAIL", "PJRT_Client_Create:9:the chip belongs to another process", 1);
  pj_compiler *compiler = make(&WORKERS);
  CHECK(by(compiler, 1) == PJ_COMPILED_IN_PROCESS);
  const char *reason = pj_compiler_own_process_reason(compiler);
  CHECK(reason && strstr(reason, "the chip belongs to another process"));
  unsetenv("FAKE_PLUGIN_FAIL");
  pj_compiler_destroy(compiler);
}

static void a_worker_can_compile_for_a_topology(void) {
  pj_compiler_options options = WORKERS;
  options.worker_topology = "fake:1";
  setenv("FAKE_PLUGIN_FAIL", "PJRT_Client_Create:9:the chip belongs to another process", 1);
  pj_compiler *compiler = make(&options);
  CHECK(by(compiler, 1) == PJ_COMPILED_BY_WORKER);
  unsetenv("FAKE_PLUGIN_FAIL");
  pj_compiler_destroy(compiler);
}

static void a_plugin_that_loads_nothing_foreign_compiles_in_the_own_process(void) {
  fake->fail("PJRT_Executable_DeserializeAndLoad", PJ_UNIMPLEMENTED, "not from another process", 1000000);
  pj_compiler *compiler = make_with_cache();
  CHECK(by(compiler, 1) == PJ_COMPILED_IN_PROCESS);
  const char *reason = pj_compiler_own_process_reason(compiler);
  CHECK(reason && strstr(reason, "not from another process"));
  CHECK(by(compiler, 1) == PJ_COMPILED_IN_PROCESS);
  CHECK(only_worker() > 0);  // asked once, not again
  fake->fail("PJRT_Executable_DeserializeAndLoad", 0, "", 0);
  pj_compiler_destroy(compiler);
}

static void a_plugin_that_cannot_serialize_compiles_in_the_own_process(void) {
  setenv("FAKE_PLUGIN_FAIL", "PJRT_Executable_Serialize:12:no bytes of it", 1);
  fake->fail("PJRT_Executable_Serialize", PJ_UNIMPLEMENTED, "no bytes of it", 1000000);
  pj_compiler *compiler = make_with_cache();
  CHECK(by(compiler, 1) == PJ_COMPILED_IN_PROCESS);
  const char *reason = pj_compiler_own_process_reason(compiler);
  CHECK(reason && strstr(reason, "no bytes of it"));
  CHECK(by(compiler, 1) == PJ_COMPILED_IN_PROCESS);
  unsetenv("FAKE_PLUGIN_FAIL");
  fake->fail("PJRT_Executable_Serialize", 0, "", 0);
  pj_compiler_destroy(compiler);
}

// ---- cost -----------------------------------------------------------------------------------------------------------

static int by_value(const void *a, const void *b) {
  return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

// Printed, not judged: a loaded machine would make it fail now and then.
static void the_cost_of_a_worker_is_measured(void) {
  enum { TIMES = 15 };
  double worker[TIMES], own[TIMES], disk[TIMES];
  pj_compile_report report = {0};
  pj_compiler *in_process = make(&(pj_compiler_options){0}), *compiler = make_with_cache();
  CHECK_OK(get(compiler, 1000, &report));
  double first = report.milliseconds;
  for (int i = 0; i < TIMES; ++i) {
    CHECK_OK(get(compiler, i, &report));
    worker[i] = report.milliseconds;
    CHECK_OK(get(in_process, i, &report));
    own[i] = report.milliseconds;
    CHECK_OK(get(compiler, i, &report));
    disk[i] = report.milliseconds;
  }
  qsort(worker, TIMES, sizeof *worker, by_value);
  qsort(own, TIMES, sizeof *own, by_value);
  qsort(disk, TIMES, sizeof *disk, by_value);
  printf("# first compile with the worker's start %.0f ms; then by a worker %.2f ms, in the own process %.2f ms, "
         "from disk %.2f ms (medians)\n", first, worker[TIMES / 2], own[TIMES / 2], disk[TIMES / 2]);
  pj_compiler_destroy(in_process);
  pj_compiler_destroy(compiler);
}

// ---- all of it, on one plugin ---------------------------------------------------------------------------------------

static bool open_plugin(const char *path) {
  pj_plugin *plugin = NULL;
  plugin_path = path;
  CHECK_OK(pj_plugin_load(path, &plugin));
  if (plugin) CHECK_OK(pj_client_create(plugin, NULL, 0, &client));
  CHECK_OK(pj_compile_options_encode(&(pj_compile_options){.portable = true}, &compile_options, &compile_options_size));
  return client != NULL;
}

static void close_plugin(void) {
  pj_client_destroy(client);
  client = NULL;
  free(compile_options);
}

#define RUN_FRESH(test) \
  do {                  \
    remove_cache();     \
    RUN(test);          \
  } while (0)

static void run_all(const char *path) {
  printf("# %s\n", path);
  if (!open_plugin(path)) return;
  RUN_FRESH(a_worker_compiles_and_the_program_runs_here);
  RUN_FRESH(without_a_worker_the_own_process_compiles);
  RUN_FRESH(a_second_start_compiles_nothing);
  RUN_FRESH(what_the_own_process_compiled_is_stored_too);
  RUN_FRESH(another_text_or_other_options_never_hit);
  RUN_FRESH(the_environment_key_depends_on_plugin_and_flags);
  RUN_FRESH(a_cache_that_cannot_be_used_is_no_error);
  RUN_FRESH(a_damaged_cache_is_compiled_again);
  RUN_FRESH(an_entry_that_the_plugin_refuses_is_compiled_again);
  RUN_FRESH(bad_options_are_refused);
  RUN_FRESH(a_compile_error_is_kept_and_costs_no_worker);
  RUN_FRESH(an_abort_is_a_status_that_quotes_the_compiler);
  RUN_FRESH(a_hang_is_a_status_after_the_timeout);
  RUN_FRESH(a_compile_that_exceeds_its_memory_is_a_status);
  RUN_FRESH(garbage_from_a_worker_is_a_status);
  RUN_FRESH(a_worker_that_promises_more_than_it_sends_is_a_status);
  RUN_FRESH(a_worker_that_exits_is_a_status);
  RUN_FRESH(a_chattering_compiler_does_not_block);
  RUN_FRESH(a_worker_killed_while_idle_is_replaced);
  RUN_FRESH(a_worker_that_cannot_start_leaves_the_own_process);
  RUN_FRESH(a_cancelled_compile_ends_and_is_not_remembered);
  RUN_FRESH(cancelling_while_a_worker_starts_keeps_the_worker);
  RUN_FRESH(cancelling_while_all_workers_are_busy_ends_the_wait);
  RUN_FRESH(eight_threads_share_two_workers);
  RUN_FRESH(threads_go_on_while_workers_die);
  RUN_FRESH(a_worker_outlives_the_thread_that_started_it);
  RUN_FRESH(ctrl_c_does_not_reach_a_worker);
  RUN_FRESH(a_worker_inherits_no_file_and_no_blocked_signal);
  RUN_FRESH(a_worker_dies_with_its_parent_in_the_middle_of_a_compile);
  RUN_FRESH(a_forked_child_must_say_so_and_leaves_the_parents_worker_alone);
  RUN_FRESH(a_forked_child_starts_its_own_worker);
  RUN_FRESH(processes_fill_one_cache_at_once);
  RUN_FRESH(the_cost_of_a_worker_is_measured);
  if (!strcmp(path, FAKE_PLUGIN)) {
    RUN_FRESH(a_program_that_aborts_the_compiler_costs_one_worker);
    RUN_FRESH(the_timeout_counts_the_compile_alone);
    RUN_FRESH(a_thread_does_not_wait_for_a_second_worker_when_the_first_is_free);
    RUN_FRESH(a_worker_that_gets_no_client_leaves_the_own_process);
    RUN_FRESH(a_worker_can_compile_for_a_topology);
    RUN_FRESH(a_plugin_that_loads_nothing_foreign_compiles_in_the_own_process);
    RUN_FRESH(a_plugin_that_cannot_serialize_compiles_in_the_own_process);
  }
  close_plugin();
}

int main(int count, char **arguments) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (count == 4 && !strcmp(arguments[1], "fill")) {
    snprintf(cache_path, sizeof cache_path, "%s", arguments[3]);
    return open_plugin(arguments[2]) ? fill() : 90;
  }
  const char *real = test_plugin_or_none("PJ_PLUGIN");
  snprintf(folder, sizeof folder, "%s/pj-compiler-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  if (!mkdtemp(folder)) return 1;
  snprintf(cache_path, sizeof cache_path, "%s/cache", folder);
  fake = fake_plugin_control(FAKE_PLUGIN);
  run_all(FAKE_PLUGIN);
  CHECK(fake_plugin_is_empty(fake->counts()));
  if (real)
    run_all(real);
  else
    printf("# PJ_PLUGIN is not set: not run on a real plugin\n");
  remove_cache();
  rmdir(folder);
  return test_end();
}
