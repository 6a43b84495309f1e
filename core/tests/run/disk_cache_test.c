#include "run/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pj/cache.h"
#include "test.h"

enum { HEADER_SIZE = 88 };  // of an entry file; the tests damage it at known places

static char folder[64], path[128];

static void make_key(int number, uint8_t out_key[PJ_DISK_KEY_SIZE]) {
  for (int i = 0; i < PJ_DISK_KEY_SIZE; ++i) out_key[i] = (uint8_t)(number * 31 + i);
}

static void entry_path(int number, char out_path[256]) {
  uint8_t key[PJ_DISK_KEY_SIZE];
  make_key(number, key);
  int used = snprintf(out_path, 256, "%s/", path);
  for (int i = 0; i < PJ_DISK_KEY_SIZE; ++i) used += snprintf(out_path + used, 256 - (size_t)used, "%02x", key[i]);
}

static uint8_t payload_byte(int number, size_t i) { return (uint8_t)((size_t)number + i * 7); }

static void store(pj_disk_cache *cache, int number, size_t size) {
  uint8_t key[PJ_DISK_KEY_SIZE], *bytes = malloc(size + 1);
  make_key(number, key);
  for (size_t i = 0; i < size; ++i) bytes[i] = payload_byte(number, i);
  pj_disk_cache_store(cache, key, bytes, size);
  free(bytes);
}

// Whether the entry is there; if it is, it must be right.
static bool holds(pj_disk_cache *cache, int number, size_t size) {
  uint8_t key[PJ_DISK_KEY_SIZE], *bytes;
  size_t found;
  make_key(number, key);
  if (!pj_disk_cache_load(cache, key, &bytes, &found)) return false;
  bool right = found == size;
  for (size_t i = 0; i < size && right; ++i) right = bytes[i] == payload_byte(number, i);
  free(bytes);
  CHECK(right);
  return true;
}

static pj_disk_cache *open_cache(uint64_t limit) {
  pj_disk_cache *cache = NULL;
  CHECK_OK(pj_disk_cache_open(path, limit, &cache));
  return cache;
}

static void remove_all(const char *directory) {
  DIR *stream = opendir(directory);
  for (struct dirent *found; stream && (found = readdir(stream));)
    if (strcmp(found->d_name, ".") && strcmp(found->d_name, "..")) unlinkat(dirfd(stream), found->d_name, 0);
  if (stream) closedir(stream);
  rmdir(directory);
}

static int count_files(uint64_t *out_bytes) {
  int count = 0;
  *out_bytes = 0;
  DIR *stream = opendir(path);
  for (struct dirent *found; stream && (found = readdir(stream));) {
    struct stat info;
    if (fstatat(dirfd(stream), found->d_name, &info, 0) || !S_ISREG(info.st_mode)) continue;
    ++count;
    *out_bytes += (uint64_t)info.st_size;
  }
  if (stream) closedir(stream);
  return count;
}

static void write_file(const char *name, const void *bytes, size_t size) {
  int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(file >= 0 && write(file, bytes, size) == (ssize_t)size);
  close(file);
}

static void an_entry_gives_back_its_bytes_also_to_another_opener(void) {
  pj_disk_cache *cache = open_cache(1 << 20), *other = open_cache(1 << 20);
  CHECK(!holds(cache, 1, 100));
  store(cache, 1, 100);
  store(cache, 2, 0);
  CHECK(holds(cache, 1, 100));
  CHECK(holds(other, 1, 100));
  CHECK(holds(other, 2, 0));
  CHECK(!holds(other, 3, 100));
  pj_disk_cache_close(cache);
  pj_disk_cache_close(other);
}

static void the_directory_is_made_with_its_parents_for_us_alone(void) {
  char deep[160];
  struct stat info;
  snprintf(deep, sizeof deep, "%s/a", folder);
  remove_all(deep);
  snprintf(deep, sizeof deep, "%s/a/b//", folder);
  pj_disk_cache *cache = NULL;
  CHECK_OK(pj_disk_cache_open(deep, 1 << 20, &cache));
  CHECK(!stat(deep, &info) && (info.st_mode & 0777) == 0700);
  pj_disk_cache_close(cache);
  rmdir(deep);
  snprintf(deep, sizeof deep, "%s/a", folder);
  rmdir(deep);
}

static void an_entry_is_readable_by_us_alone_and_leaves_no_other_file(void) {
  char entry[256];
  struct stat info;
  uint64_t bytes;
  pj_disk_cache *cache = open_cache(1 << 20);
  store(cache, 1, 10);
  store(cache, 1, 10);
  entry_path(1, entry);
  CHECK(!stat(entry, &info) && (info.st_mode & 0777) == 0600 && info.st_size == HEADER_SIZE + 10);
  CHECK(count_files(&bytes) == 1);
  pj_disk_cache_close(cache);
}

static void a_directory_that_others_can_write_is_refused(void) {
  pj_disk_cache *cache = NULL;
  mkdir(path, 0700);
  CHECK(!chmod(path, 0770));
  CHECK_FAILS(pj_disk_cache_open(path, 1 << 20, &cache), PJ_PERMISSION_DENIED, "writable by others");
  CHECK(!chmod(path, 0702));
  CHECK_FAILS(pj_disk_cache_open(path, 1 << 20, &cache), PJ_PERMISSION_DENIED, "chmod 700");
  CHECK(!chmod(path, 0755));  // readable is harmless
  CHECK_OK(pj_disk_cache_open(path, 1 << 20, &cache));
  pj_disk_cache_close(cache);
}

static void a_symbolic_link_is_refused_also_with_a_slash_behind_it(void) {
  char link[96];
  pj_disk_cache *cache = NULL;
  mkdir(path, 0700);
  snprintf(link, sizeof link, "%s/link", folder);
  CHECK(!symlink(path, link));
  CHECK_FAILS(pj_disk_cache_open(link, 1 << 20, &cache), PJ_PERMISSION_DENIED, "symbolic link");
  snprintf(link, sizeof link, "%s/link/", folder);
  CHECK_FAILS(pj_disk_cache_open(link, 1 << 20, &cache), PJ_PERMISSION_DENIED, "symbolic link");
  snprintf(link, sizeof link, "%s/link", folder);
  unlink(link);
}

static void a_directory_of_another_user_is_refused(void) {
  pj_disk_cache *cache = NULL;
  if (geteuid()) {  // any user may look at one of root's
    CHECK_FAILS(pj_disk_cache_open("/usr", 1 << 20, &cache), PJ_PERMISSION_DENIED, "belongs to user 0");
    return;
  }
  mkdir(path, 0700);
  CHECK(!chown(path, 12345, (gid_t)-1));
  CHECK_FAILS(pj_disk_cache_open(path, 1 << 20, &cache), PJ_PERMISSION_DENIED, "belongs to user 12345");
}

static void a_file_in_place_of_the_directory_is_an_error(void) {
  pj_disk_cache *cache = NULL;
  write_file(path, "x", 1);
  CHECK_FAILS(pj_disk_cache_open(path, 1 << 20, &cache), PJ_NOT_FOUND, "Not a directory");
  unlink(path);
}

// Each byte of the header and some of the payload, cut files, foreign files: the entry is dropped and can be stored
// anew.
static void a_damaged_entry_is_dropped_and_rebuilt(void) {
  enum { SIZE = 300 };
  char entry[256];
  uint8_t whole[HEADER_SIZE + SIZE], damaged[HEADER_SIZE + SIZE + 1];
  entry_path(1, entry);
  pj_disk_cache *cache = open_cache(1 << 20);
  store(cache, 1, SIZE);
  int file = open(entry, O_RDONLY);
  CHECK(read(file, whole, sizeof whole) == (ssize_t)sizeof whole);
  close(file);
  for (size_t i = 0; i < sizeof whole; i += i < HEADER_SIZE ? 1 : 37) {
    memcpy(damaged, whole, sizeof whole);
    damaged[i] ^= 0x10;
    write_file(entry, damaged, sizeof whole);
    CHECK(!holds(cache, 1, SIZE));
    CHECK(access(entry, F_OK));
  }
  const size_t sizes[] = {0, 1, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + SIZE - 1, HEADER_SIZE + SIZE + 1};
  memcpy(damaged, whole, sizeof whole);
  damaged[sizeof whole] = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    write_file(entry, damaged, sizes[i]);
    CHECK(!holds(cache, 1, SIZE));
    CHECK(access(entry, F_OK));
  }
  store(cache, 1, SIZE);
  CHECK(holds(cache, 1, SIZE));
  pj_disk_cache_close(cache);
}

static void an_entry_under_another_entrys_name_is_dropped(void) {
  char one[256], two[256];
  entry_path(1, one);
  entry_path(2, two);
  pj_disk_cache *cache = open_cache(1 << 20);
  store(cache, 1, 50);
  CHECK(!rename(one, two));
  CHECK(!holds(cache, 2, 50));
  pj_disk_cache_close(cache);
}

static void what_is_no_file_is_no_entry(void) {
  char one[256], two[256];
  entry_path(1, one);
  entry_path(2, two);
  pj_disk_cache *cache = open_cache(1 << 20);
  CHECK(!mkfifo(one, 0600));
  CHECK(!holds(cache, 1, 50));
  store(cache, 3, 50);
  char three[256];
  entry_path(3, three);
  CHECK(!symlink(three, two));
  CHECK(!holds(cache, 2, 50));
  CHECK(holds(cache, 3, 50));
  pj_disk_cache_close(cache);
}

static void the_entries_used_longest_ago_go_first(void) {
  enum { COUNT = 40, SIZE = 1000 };
  uint64_t bytes;
  pj_disk_cache *cache = open_cache(20 * (SIZE + HEADER_SIZE));
  for (int i = 0; i < 10; ++i) {
    char entry[256];
    store(cache, i, SIZE);
    entry_path(i, entry);
    struct timespec old[2] = {{1000 + i, 0}, {1000 + i, 0}};
    CHECK(!utimensat(AT_FDCWD, entry, old, 0));
  }
  CHECK(holds(cache, 0, SIZE));  // the oldest, but used now
  for (int i = 10; i < 24; ++i) store(cache, i, SIZE);
  CHECK(holds(cache, 0, SIZE));
  CHECK(!holds(cache, 1, SIZE));
  CHECK(!holds(cache, 2, SIZE));
  CHECK(holds(cache, 23, SIZE));
  for (int i = 24; i < COUNT; ++i) store(cache, i, SIZE);
  CHECK(count_files(&bytes) >= 15);
  CHECK(bytes <= 20 * (SIZE + HEADER_SIZE));
  pj_disk_cache_close(cache);
}

static void an_entry_larger_than_the_cache_is_not_stored(void) {
  pj_disk_cache *cache = open_cache(1000);
  store(cache, 1, 1000);
  CHECK(!holds(cache, 1, 1000));
  pj_disk_cache_close(cache);
}

static void what_a_dead_process_left_half_written_goes(void) {
  char left[160], fresh[160];
  pj_disk_cache *cache = open_cache(1 << 20);
  snprintf(left, sizeof left, "%s/.new-0123456789abcdef", path);
  snprintf(fresh, sizeof fresh, "%s/.new-fedcba9876543210", path);
  write_file(left, "x", 1);
  write_file(fresh, "x", 1);
  struct timespec old[2] = {{1000, 0}, {1000, 0}};
  CHECK(!utimensat(AT_FDCWD, left, old, 0));
  store(cache, 1, 10);
  CHECK(access(left, F_OK));
  CHECK(!access(fresh, F_OK));  // may be another process', at work
  pj_disk_cache_close(cache);
}

// In a child, whose stderr is counted: the lines that it logs.
static int in_child(int (*work)(void), int *out_lines) {
  int ends[2], status = -1, lines = 0;
  CHECK(!pipe(ends));
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    dup2(ends[1], STDERR_FILENO);
    test_failures = 0;
    _exit(work());
  }
  close(ends[1]);
  char bytes[4096];
  for (ssize_t count; (count = read(ends[0], bytes, sizeof bytes)) > 0;)
    for (ssize_t i = 0; i < count; ++i) lines += bytes[i] == '\n';
  close(ends[0]);
  CHECK(waitpid(child, &status, 0) == child);
  *out_lines = lines;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A file size limit makes write(2) fail as a full disk does, in every environment; what follows is the same code.
static int store_on_a_full_disk(void) {
  uint64_t bytes;
  signal(SIGXFSZ, SIG_IGN);
  pj_disk_cache *cache = open_cache(1 << 20);
  store(cache, 1, 100);
  struct rlimit limit = {1000, 1000};
  CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
  for (int i = 2; i < 6; ++i) store(cache, i, 5000);
  CHECK(holds(cache, 1, 100));
  CHECK(!holds(cache, 2, 5000));
  CHECK(count_files(&bytes) == 1);
  return test_failures;
}

static void a_full_disk_is_told_once_and_leaves_nothing_behind(void) {
  int lines;
  CHECK(in_child(store_on_a_full_disk, &lines) == 0);
  CHECK(lines == 1);
}

static int use_a_directory_that_cannot_be_written(void) {
  pj_disk_cache *cache = open_cache(1 << 20);
  store(cache, 1, 100);
  CHECK(geteuid() ? !chmod(path, 0500) : !seteuid(12345));  // no mode keeps root out
  for (int i = 2; i < 6; ++i) store(cache, i, 100);
  return test_failures;
}

static void a_directory_that_cannot_be_written_is_told_once(void) {
  int lines;
  CHECK(in_child(use_a_directory_that_cannot_be_written, &lines) == 0);
  CHECK(lines == 1);
  chmod(path, 0700);
}

static int use_a_directory_that_is_gone(void) {
  pj_disk_cache *cache = open_cache(1 << 20);
  CHECK(!rmdir(path));
  for (int i = 0; i < 3; ++i) store(cache, i, 100);
  CHECK(!holds(cache, 0, 100));
  return test_failures;
}

static void a_directory_that_was_removed_is_told_once(void) {
  int lines;
  CHECK(in_child(use_a_directory_that_is_gone, &lines) == 0);
  CHECK(lines == 1);
}

enum { SHARED_COUNT = 60 };

static int fill_a_shared_cache(void) {
  test_failures = 0;
  // Room for a third of the entries: storing, reading and removing meet.
  pj_disk_cache *cache = open_cache(20 * 2000);
  for (int round = 0; round < 5; ++round)
    for (int i = 0; i < SHARED_COUNT; ++i) {
      if (!holds(cache, i, 1900)) store(cache, i, 1900);
      holds(cache, (i * 7) % SHARED_COUNT, 1900);
    }
  pj_disk_cache_close(cache);
  return test_failures;
}

static void two_processes_fill_one_cache(void) {
  fflush(NULL);
  pid_t children[2];
  for (int i = 0; i < 2; ++i)
    if (!(children[i] = fork())) _exit(fill_a_shared_cache());
  for (int i = 0; i < 2; ++i) {
    int status = -1;
    CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
  }
  uint64_t bytes;
  int files = count_files(&bytes);
  CHECK(files > 0 && bytes <= 2 * 20 * 2000);
  int found = 0;
  pj_disk_cache *cache = open_cache(1 << 20);
  for (int i = 0; i < SHARED_COUNT; ++i) found += holds(cache, i, 1900);
  CHECK(found == files);
  pj_disk_cache_close(cache);
}

static void *use_from_a_thread(void *cache) {
  for (int i = 0; i < SHARED_COUNT; ++i) {
    uint8_t key[PJ_DISK_KEY_SIZE], *bytes;
    size_t size;
    make_key(i, key);
    store(cache, i, 1900);
    if (pj_disk_cache_load(cache, key, &bytes, &size)) free(bytes);
  }
  return NULL;
}

static void threads_share_one_opened_cache(void) {
  pthread_t threads[4];
  uint64_t bytes;
  pj_disk_cache *cache = open_cache(20 * 2000);
  for (int i = 0; i < 4; ++i) CHECK(!pthread_create(&threads[i], NULL, use_from_a_thread, cache));
  for (int i = 0; i < 4; ++i) CHECK(!pthread_join(threads[i], NULL));
  CHECK(count_files(&bytes) > 10);
  CHECK(bytes <= 20 * 2000);
  pj_disk_cache_close(cache);
}

static void a_shared_cache_is_read_and_never_changed(void) {
  char entry[256];
  struct stat before, after;
  uint64_t bytes;
  pj_disk_cache *cache = open_cache(1 << 20), *shared;
  store(cache, 1, 100);
  store(cache, 2, 100);
  pj_disk_cache_close(cache);
  CHECK(!chmod(path, 0500));
  CHECK_OK(pj_disk_cache_open_shared(path, &shared));
  entry_path(1, entry);
  CHECK(!stat(entry, &before));
  CHECK(holds(shared, 1, 100));
  CHECK(!holds(shared, 3, 100));
  CHECK(!stat(entry, &after) && !memcmp(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim));
  entry_path(2, entry);
  write_file(entry, "x", 1);
  CHECK(!holds(shared, 2, 100));
  CHECK(count_files(&bytes) == 2);
  pj_disk_cache_close(shared);
  chmod(path, 0700);
}

static void a_shared_cache_that_cannot_be_trusted_is_refused(void) {
  pj_disk_cache *shared;
  CHECK_FAILS(pj_disk_cache_open_shared(path, &shared), PJ_NOT_FOUND, "No such file");
  CHECK(access(path, F_OK));  // and is not made
  CHECK_OK(pj_disk_cache_open_shared("/usr", &shared));  // root's
  pj_disk_cache_close(shared);
  mkdir(path, 0700);
  CHECK(!chmod(path, 0775));
  CHECK_FAILS(pj_disk_cache_open_shared(path, &shared), PJ_PERMISSION_DENIED, "chmod go-w");
  CHECK(!chmod(path, 0755));
  char link[96];
  snprintf(link, sizeof link, "%s/link", folder);
  CHECK(!symlink(path, link));
  CHECK_FAILS(pj_disk_cache_open_shared(link, &shared), PJ_PERMISSION_DENIED, "symbolic link");
  unlink(link);
  if (geteuid()) return;
  CHECK(!chown(path, 12345, (gid_t)-1));
  CHECK_FAILS(pj_disk_cache_open_shared(path, &shared), PJ_PERMISSION_DENIED, "belongs to user 12345");
}

static void an_entry_that_others_can_write_or_own_is_dropped(void) {
  char entry[256];
  pj_disk_cache *cache = open_cache(1 << 20);
  entry_path(1, entry);
  store(cache, 1, 100);
  CHECK(!chmod(entry, 0620));
  CHECK(!holds(cache, 1, 100));
  if (!geteuid()) {
    store(cache, 1, 100);
    CHECK(!chown(entry, 12345, (gid_t)-1));
    CHECK(!holds(cache, 1, 100));
  }
  pj_disk_cache_close(cache);
}

typedef struct tally {
  int entries, wrong;
  uint64_t bytes;
} tally;

static void count_entry(const pj_cache_entry *entry, void *context) {
  tally *t = context;
  ++t->entries;
  t->wrong += pj_cache_entry_check(entry) != NULL;
  t->bytes += entry->bytes;
}

static void remove_entry(const pj_cache_entry *entry, void *context) {
  count_entry(entry, context);
  CHECK_OK(pj_cache_entry_remove(entry));
  CHECK_OK(pj_cache_entry_remove(entry));  // another process was faster
}

static void a_scan_sees_removes_and_checks_entries_and_no_other_file(void) {
  char entry[256], foreign[256], unfinished[256];
  pj_disk_cache *cache = open_cache(1 << 20);
  for (int i = 0; i < 3; ++i) store(cache, i, 100);
  entry_path(1, entry);
  CHECK(!truncate(entry, HEADER_SIZE + 99));
  entry_path(4, foreign);
  *strrchr(foreign, 'f') = 'g';  // as long as an entry's name
  write_file(foreign, "x", 1);
  snprintf(unfinished, sizeof unfinished, "%s/.new-0123456789abcdef", path);
  write_file(unfinished, "x", 1);

  tally t = {0};
  CHECK_OK(pj_cache_scan(path, count_entry, &t));
  CHECK(t.entries == 3 && t.wrong == 1 && t.bytes == 3 * (HEADER_SIZE + 100) - 1);
  CHECK_OK(pj_cache_scan(path, remove_entry, &t));
  t = (tally){0};
  CHECK_OK(pj_cache_scan(path, count_entry, &t));
  CHECK(t.entries == 0);
  CHECK(!access(foreign, F_OK) && !access(unfinished, F_OK));
  store(cache, 1, 100);  // the process that had opened it goes on
  CHECK(holds(cache, 1, 100));
  pj_disk_cache_close(cache);
  remove_all(path);
  CHECK_FAILS(pj_cache_scan(path, count_entry, &t), PJ_NOT_FOUND, path);
}

// Each test finds no directory.
#define RUN_FRESH(test) \
  do {                  \
    remove_all(path);   \
    RUN(test);          \
  } while (0)

int main(void) {
  snprintf(folder, sizeof folder, "%s/pj-disk-cache-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  if (!mkdtemp(folder)) return 1;
  snprintf(path, sizeof path, "%s/cache", folder);
  RUN_FRESH(an_entry_gives_back_its_bytes_also_to_another_opener);
  RUN_FRESH(the_directory_is_made_with_its_parents_for_us_alone);
  RUN_FRESH(an_entry_is_readable_by_us_alone_and_leaves_no_other_file);
  RUN_FRESH(a_directory_that_others_can_write_is_refused);
  RUN_FRESH(a_symbolic_link_is_refused_also_with_a_slash_behind_it);
  RUN_FRESH(a_directory_of_another_user_is_refused);
  RUN_FRESH(a_file_in_place_of_the_directory_is_an_error);
  RUN_FRESH(a_damaged_entry_is_dropped_and_rebuilt);
  RUN_FRESH(an_entry_under_another_entrys_name_is_dropped);
  RUN_FRESH(what_is_no_file_is_no_entry);
  RUN_FRESH(the_entries_used_longest_ago_go_first);
  RUN_FRESH(an_entry_larger_than_the_cache_is_not_stored);
  RUN_FRESH(what_a_dead_process_left_half_written_goes);
  RUN_FRESH(a_full_disk_is_told_once_and_leaves_nothing_behind);
  RUN_FRESH(a_directory_that_cannot_be_written_is_told_once);
  RUN_FRESH(a_directory_that_was_removed_is_told_once);
  RUN_FRESH(two_processes_fill_one_cache);
  RUN_FRESH(threads_share_one_opened_cache);
  RUN_FRESH(a_shared_cache_is_read_and_never_changed);
  RUN_FRESH(a_shared_cache_that_cannot_be_trusted_is_refused);
  RUN_FRESH(an_entry_that_others_can_write_or_own_is_dropped);
  RUN_FRESH(a_scan_sees_removes_and_checks_entries_and_no_other_file);
  remove_all(path);
  remove_all(folder);
  return test_end();
}
