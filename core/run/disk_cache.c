#include "run/disk_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sha256.h"
#include "pj/cache.h"

enum {
  FORMAT_VERSION = 1,
  NAME_SIZE = 2 * PJ_DISK_KEY_SIZE + 1,
  STALE_SECONDS = 3600,  // a temporary file this old belongs to a process that died while writing it
};

static const char MAGIC[8] = "PJCACHE";
static const char TEMPORARY[] = ".new-";

// The file is this, then the payload. Native byte order: an entry never leaves its host (the key holds the CPU's
// features).
typedef struct entry_header {
  char magic[8];
  uint32_t version;
  uint32_t zero;
  uint8_t key[PJ_DISK_KEY_SIZE];
  uint64_t payload_size;
  uint8_t payload_digest[32];
} entry_header;

typedef enum trouble { DAMAGED, CANNOT_READ, CANNOT_WRITE, CANNOT_SCAN } trouble;

struct pj_disk_cache {
  char *path;  // for sentences only: all work goes through `directory`
  int directory;
  bool shared;  // read only, and root may be the owner
  uint64_t limit;
  atomic_uint told;  // bit per trouble that has been logged
  pthread_mutex_t mutex;
  bool scanned;             // by the first store: a start that only reads never walks the directory
  uint64_t used;            // bytes at the last scan, plus what this process has stored since
  uint64_t stored;          // bytes that this process has stored since the last scan
};

static void tell_once(pj_disk_cache *cache, trouble kind, const char *what) {
  if (atomic_fetch_or(&cache->told, 1u << kind) & 1u << kind) return;
  pj_log(PJ_LOG_WARNING, "compile cache %s: %s", cache->path, what);
}

static pj_status out_of_memory(void) { return pj_error(PJ_RESOURCE_EXHAUSTED, "out of host memory"); }

static pj_status system_error(const char *path, const char *what) {
  pj_code code = errno == EACCES || errno == EPERM || errno == EROFS ? PJ_PERMISSION_DENIED
                 : errno == ENOENT || errno == ENOTDIR               ? PJ_NOT_FOUND
                 : errno == ENOSPC || errno == EDQUOT                ? PJ_RESOURCE_EXHAUSTED
                                                                     : PJ_UNKNOWN;
  return pj_error(code, "compile cache %s: cannot %s: %s", path, what, strerror(errno));
}

static pj_status make_directories(const char *directory) {
  char *path = strdup(directory);
  if (!path) return out_of_memory();
  pj_status status = NULL;
  for (char *slash = strchr(path + 1, '/'); slash && !status; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    if (mkdir(path, 0700) && errno != EEXIST && errno != EROFS && errno != EACCES)
      status = system_error(path, "make the directory");
    *slash = '/';
  }
  if (!status && mkdir(path, 0700) && errno != EEXIST) status = system_error(path, "make the directory");
  free(path);
  return status;
}

// Whose files may run as our code.
static bool is_trusted(uid_t owner, bool shared) { return owner == geteuid() || (shared && owner == 0); }

static pj_status open_directory(const char *path, bool shared, int *out_directory) {
  int directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) {
    struct stat info;
    if (!lstat(path, &info) && S_ISLNK(info.st_mode))
      return pj_error(PJ_PERMISSION_DENIED, "compile cache %s is a symbolic link; name the directory itself", path);
    return system_error(path, "open the directory");
  }
  struct stat info;
  pj_status status = NULL;
  if (fstat(directory, &info))
    status = system_error(path, "look at the directory");
  else if (!is_trusted(info.st_uid, shared))
    status = pj_error(PJ_PERMISSION_DENIED,
                      "compile cache %s belongs to user %u, not to user %u%s: its files would run as code; "
                      "name another",
                      path, (unsigned)info.st_uid, (unsigned)geteuid(), shared ? " or root" : "");
  else if (info.st_mode & (S_IWGRP | S_IWOTH))
    status = pj_error(PJ_PERMISSION_DENIED,
                      "compile cache %s is writable by others (mode %03o): its files would run as code; chmod %s it",
                      path, (unsigned)(info.st_mode & 0777), shared ? "go-w" : "700");
  if (status) {
    close(directory);
    return status;
  }
  *out_directory = directory;
  return NULL;
}

static pj_status cache_open(const char *directory, bool shared, uint64_t limit_bytes, pj_disk_cache **out_cache) {
  pj_disk_cache *cache = calloc(1, sizeof *cache);
  char *path = strdup(directory);
  if (!cache || !path) {
    free(cache);
    free(path);
    return out_of_memory();
  }
  // "link/" would follow the link.
  for (size_t size = strlen(path); size > 1 && path[size - 1] == '/'; --size) path[size - 1] = '\0';
  pj_status status = open_directory(path, shared, &cache->directory);
  if (status) {
    free(path);
    free(cache);
    return status;
  }
  cache->path = path;
  cache->shared = shared;
  cache->limit = limit_bytes;
  pthread_mutex_init(&cache->mutex, NULL);
  *out_cache = cache;
  return NULL;
}

pj_status pj_disk_cache_open(const char *directory, uint64_t limit_bytes, pj_disk_cache **out_cache) {
  PJ_TRY(make_directories(directory));
  return cache_open(directory, false, limit_bytes, out_cache);
}

pj_status pj_disk_cache_open_shared(const char *directory, pj_disk_cache **out_cache) {
  return cache_open(directory, true, UINT64_MAX, out_cache);
}

void pj_disk_cache_close(pj_disk_cache *cache) {
  if (!cache) return;
  close(cache->directory);
  pthread_mutex_destroy(&cache->mutex);
  free(cache->path);
  free(cache);
}

static void entry_name(const uint8_t key[PJ_DISK_KEY_SIZE], char out_name[NAME_SIZE]) {
  for (int i = 0; i < PJ_DISK_KEY_SIZE; ++i) snprintf(out_name + 2 * i, 3, "%02x", key[i]);
}

const char *pj_disk_entry_parse(const uint8_t *bytes, size_t size, const uint8_t key[PJ_DISK_KEY_SIZE],
                                const uint8_t **out_payload, size_t *out_size) {
  entry_header header;
  if (size < sizeof header) return "is shorter than its header";
  memcpy(&header, bytes, sizeof header);
  if (memcmp(header.magic, MAGIC, sizeof MAGIC) || header.zero) return "is no entry of this cache";
  if (header.version != FORMAT_VERSION) return "has another format version";
  if (memcmp(header.key, key, PJ_DISK_KEY_SIZE)) return "holds another key";
  if (header.payload_size != size - sizeof header) return "has another size than its header says";
  uint8_t digest[32];
  pj_sha256(bytes + sizeof header, size - sizeof header, digest);
  if (memcmp(digest, header.payload_digest, sizeof digest)) return "does not match its checksum";
  *out_payload = bytes + sizeof header;
  *out_size = size - sizeof header;
  return NULL;
}

static bool read_all(int file, uint8_t *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t count = read(file, bytes + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += (size_t)count;
  }
  return true;
}

static bool write_all(int file, const void *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t count = write(file, (const char *)bytes + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    done += (size_t)count;
  }
  return true;
}

// Reads an open entry file; on failure returns what is wrong with it.
static const char *read_entry(const pj_disk_cache *cache, int file, const uint8_t key[PJ_DISK_KEY_SIZE],
                              uint8_t **out_bytes, size_t *out_size) {
  struct stat info;
  if (fstat(file, &info) || !S_ISREG(info.st_mode)) return "is no file";
  if (!is_trusted(info.st_uid, cache->shared)) return "belongs to another user";
  if (info.st_mode & (S_IWGRP | S_IWOTH)) return "is writable by others";
  if ((uint64_t)info.st_size > cache->limit) return "is larger than the whole cache may be";
  size_t size = (size_t)info.st_size;
  uint8_t *bytes = malloc(size ? size : 1);
  if (!bytes) return "does not fit in memory";
  const uint8_t *payload;
  const char *wrong = read_all(file, bytes, size) ? pj_disk_entry_parse(bytes, size, key, &payload, out_size)
                                                  : "cannot be read";
  if (wrong) {
    free(bytes);
    return wrong;
  }
  memmove(bytes, payload, *out_size);
  *out_bytes = bytes;
  return NULL;
}

bool pj_disk_cache_load(pj_disk_cache *cache, const uint8_t key[PJ_DISK_KEY_SIZE], uint8_t **out_bytes,
                        size_t *out_size) {
  char name[NAME_SIZE];
  entry_name(key, name);
  // O_NONBLOCK: a pipe of that name must not stop us.
  int file = openat(cache->directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return false;
  if (file < 0 && errno != ELOOP) {
    char sentence[256];
    snprintf(sentence, sizeof sentence, "cannot read an entry: %s; going on without", strerror(errno));
    tell_once(cache, CANNOT_READ, sentence);
    return false;
  }
  const char *wrong =
      file < 0 ? "is a symbolic link" : read_entry(cache, file, key, out_bytes, out_size);
  if (file >= 0) {
    // Used now; where this is not permitted, the age is that of the write.
    if (!wrong && !cache->shared) futimens(file, NULL);
    close(file);
  }
  if (wrong) pj_disk_cache_drop(cache, key, wrong);
  return !wrong;
}

void pj_disk_cache_drop(pj_disk_cache *cache, const uint8_t key[PJ_DISK_KEY_SIZE], const char *reason) {
  char name[NAME_SIZE], sentence[512];
  entry_name(key, name);
  if (!cache->shared) unlinkat(cache->directory, name, 0);
  snprintf(sentence, sizeof sentence, "entry %s %s; it was %s", name, reason, cache->shared ? "left out" : "removed");
  tell_once(cache, DAMAGED, sentence);
}

// ---- the size limit -------------------------------------------------------------------------------------------------

typedef struct entry_info {
  char name[NAME_SIZE];
  uint64_t size;
  struct timespec used;
} entry_info;

static int by_age(const void *left, const void *right) {
  const struct timespec *a = &((const entry_info *)left)->used, *b = &((const entry_info *)right)->used;
  if (a->tv_sec != b->tv_sec) return a->tv_sec < b->tv_sec ? -1 : 1;
  return a->tv_nsec < b->tv_nsec ? -1 : a->tv_nsec > b->tv_nsec;
}

typedef struct entry_list {
  entry_info *items;
  size_t count, room;
} entry_list;

static bool is_entry_name(const char *name) {
  return strlen(name) == NAME_SIZE - 1 && strspn(name, "0123456789abcdef") == NAME_SIZE - 1;
}

// Calls `visit` for each regular file; false where the directory cannot be read.
static bool walk(const pj_disk_cache *cache,
                 void (*visit)(const pj_disk_cache *, const char *name, const struct stat *, void *), void *context) {
  int copy = openat(cache->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = copy < 0 ? NULL : fdopendir(copy);
  if (!stream) {
    if (copy >= 0) close(copy);
    return false;
  }
  for (struct dirent *found; (found = readdir(stream));) {
    struct stat info;
    if (fstatat(cache->directory, found->d_name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode)) continue;
    visit(cache, found->d_name, &info, context);
  }
  closedir(stream);
  return true;
}

// Lists an entry, or removes what a process left that died while writing.
static void list(const pj_disk_cache *cache, const char *name, const struct stat *info, void *context) {
  entry_list *entries = context;
  if (!strncmp(name, TEMPORARY, sizeof TEMPORARY - 1) && time(NULL) - info->st_mtime > STALE_SECONDS)
    unlinkat(cache->directory, name, 0);
  if (!is_entry_name(name)) return;
  if (entries->count == entries->room) {
    size_t larger = entries->room ? 2 * entries->room : 64;
    entry_info *moved = realloc(entries->items, larger * sizeof *moved);
    if (!moved) return;
    entries->items = moved;
    entries->room = larger;
  }
  entry_info *entry = &entries->items[entries->count++];
  memcpy(entry->name, name, NAME_SIZE);
  entry->size = (uint64_t)info->st_size;
  entry->used = info->st_mtim;
}

// Counts the directory afresh and, where it exceeds the limit, removes the entries used longest ago down to 7/8 of it.
static void trim(pj_disk_cache *cache) {
  entry_list entries = {0};
  if (!walk(cache, list, &entries)) {
    tell_once(cache, CANNOT_SCAN, "its size cannot be found out, so no entry is removed");
    return;
  }
  uint64_t used = 0;
  for (size_t i = 0; i < entries.count; ++i) used += entries.items[i].size;
  if (used > cache->limit) {
    qsort(entries.items, entries.count, sizeof *entries.items, by_age);
    for (size_t i = 0; i < entries.count && used > cache->limit - cache->limit / 8; ++i)
      if (!unlinkat(cache->directory, entries.items[i].name, 0) || errno == ENOENT) used -= entries.items[i].size;
  }
  free(entries.items);
  cache->scanned = true;
  cache->used = used;
  cache->stored = 0;
}

// Other processes store too: counting afresh after each sixteenth of the limit bounds what all of them exceed it by.
static void account(pj_disk_cache *cache, uint64_t size) {
  pthread_mutex_lock(&cache->mutex);
  cache->used += size;
  cache->stored += size;
  if (!cache->scanned || cache->used > cache->limit || cache->stored > cache->limit / 16) trim(cache);
  pthread_mutex_unlock(&cache->mutex);
}

// ---- storing --------------------------------------------------------------------------------------------------------

void pj_disk_cache_store(pj_disk_cache *cache, const uint8_t key[PJ_DISK_KEY_SIZE], const uint8_t *bytes, size_t size) {
  entry_header header = {.version = FORMAT_VERSION, .payload_size = size};
  if (size + sizeof header > cache->limit) return;
  memcpy(header.magic, MAGIC, sizeof MAGIC);
  memcpy(header.key, key, PJ_DISK_KEY_SIZE);
  pj_sha256(bytes, size, header.payload_digest);

  uint64_t random;
  char name[NAME_SIZE], temporary[sizeof TEMPORARY + 16];
  entry_name(key, name);
  if (getrandom(&random, sizeof random, 0) != sizeof random) return;
  snprintf(temporary, sizeof temporary, "%s%016llx", TEMPORARY, (unsigned long long)random);

  // No fsync: after a power failure the checksum tells a torn entry, and it is compiled again.
  int file = openat(cache->directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  bool written = file >= 0 && write_all(file, &header, sizeof header) && write_all(file, bytes, size);
  int error = errno;
  if (file >= 0 && close(file) && written) {  // network file systems tell a full disk here
    error = errno;
    written = false;
  }
  if (written && renameat(cache->directory, temporary, cache->directory, name)) {
    error = errno;
    written = false;
  }
  if (!written) {
    if (file >= 0) unlinkat(cache->directory, temporary, 0);
    char sentence[256];
    snprintf(sentence, sizeof sentence, "cannot store an entry: %s; going on without", strerror(error));
    tell_once(cache, CANNOT_WRITE, sentence);
    return;
  }
  account(cache, sizeof header + size);
}

// ---- for tools ------------------------------------------------------------------------------------------------------

uint64_t pj_cache_default_limit(void) { return (uint64_t)4 << 30; }

typedef struct visitor {
  void (*visit)(const pj_cache_entry *, void *);
  void *context;
} visitor;

static void visit_entry(const pj_disk_cache *cache, const char *name, const struct stat *info, void *context) {
  const visitor *v = context;
  pj_cache_entry entry = {name, (uint64_t)info->st_size, info->st_mtim.tv_sec, cache};
  if (is_entry_name(name)) v->visit(&entry, v->context);
}

pj_status pj_cache_scan(const char *directory, void (*visit)(const pj_cache_entry *, void *), void *context) {
  pj_disk_cache *cache;
  PJ_TRY(cache_open(directory, false, UINT64_MAX, &cache));
  visitor v = {visit, context};
  pj_status status = walk(cache, visit_entry, &v) ? NULL : system_error(cache->path, "read the directory");
  pj_disk_cache_close(cache);
  return status;
}

const char *pj_cache_entry_check(const pj_cache_entry *entry) {
  uint8_t key[PJ_DISK_KEY_SIZE], *bytes;
  size_t size;
  for (int i = 0; i < PJ_DISK_KEY_SIZE; ++i) {
    char digits[3] = {entry->name[2 * i], entry->name[2 * i + 1]};
    key[i] = (uint8_t)strtoul(digits, NULL, 16);
  }
  int file = openat(entry->in->directory, entry->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return "cannot be opened";
  const char *wrong = read_entry(entry->in, file, key, &bytes, &size);
  close(file);
  if (!wrong) free(bytes);
  return wrong;
}

pj_status pj_cache_entry_remove(const pj_cache_entry *entry) {
  if (!unlinkat(entry->in->directory, entry->name, 0) || errno == ENOENT) return NULL;
  return system_error(entry->in->path, "remove an entry");
}
