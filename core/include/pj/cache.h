// The directory of compiled programs, for tools: lists, checks and removes its entries, also while processes use it (a
// process that does not find an entry compiles it again). Files that are no entries are never touched.
#ifndef PJ_CACHE_H_
#define PJ_CACHE_H_

#include "pj/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bytes that a cache may have where its user does not say.
PJ_EXPORT uint64_t pj_cache_default_limit(void);

typedef struct pj_cache_entry {
  const char *name;                // 64 hexadecimal digits
  uint64_t bytes;                  // of the file
  int64_t used;                    // when it was last loaded or stored: seconds since 1970
  const struct pj_disk_cache *in;  // the opened directory
} pj_cache_entry;

// Calls `visit` for each entry, in no order. The entry lives until `visit` returns, which may remove it. Errors:
// NOT_FOUND (no such directory), PERMISSION_DENIED (one that the runtime refuses: a symlink, another owner, writable by
// others).
PJ_EXPORT pj_status pj_cache_scan(const char *directory, void (*visit)(const pj_cache_entry *entry, void *context),
                                  void *context);

// What is wrong with an entry, in words that follow its name ("does not match its checksum"); NULL: nothing. Reads and
// checks all of it, as the runtime does before it loads one. Static.
PJ_EXPORT const char *pj_cache_entry_check(const pj_cache_entry *entry);

// Errors: the system's. One that is gone already is none.
PJ_EXPORT pj_status pj_cache_entry_remove(const pj_cache_entry *entry);

#ifdef __cplusplus
}
#endif
#endif
