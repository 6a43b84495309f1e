// Bytes by 32-byte key in a directory that many processes fill at once.
//
// The entries are code that will run, so the directory must be ours alone: 0700, no symlink, no foreign owner. An entry
// appears whole or not at all (written under another name, then renamed), names its own key and carries the SHA-256 of
// its payload; one that does not check out is removed. All functions may be called from any thread.
#ifndef PJ_RUN_DISK_CACHE_H_
#define PJ_RUN_DISK_CACHE_H_

#include "pj/status.h"

enum { PJ_DISK_KEY_SIZE = 32 };

typedef struct pj_disk_cache pj_disk_cache;

// Opens `directory`, making it and its missing parents. The entries used longest ago go when the directory exceeds
// `limit_bytes`. Errors: PERMISSION_DENIED (a symlink, another owner, writable by others: says which and what to do),
// or the system's (no such place, read-only file system ...).
pj_status pj_disk_cache_open(const char *directory, uint64_t limit_bytes, pj_disk_cache **out_cache);

// Opens a directory that is only read: nothing in it is stored, dropped or touched. Root may be the owner, of it and of
// its entries. Errors: as above, and NOT_FOUND.
pj_status pj_disk_cache_open_shared(const char *directory, pj_disk_cache **out_cache);

void pj_disk_cache_close(pj_disk_cache *cache);  // NULL is allowed

// Gives the entry's payload in malloc'ed memory that the caller frees; false where there is none.
bool pj_disk_cache_load(pj_disk_cache *cache, const uint8_t key[PJ_DISK_KEY_SIZE], uint8_t **out_bytes,
                        size_t *out_size);

// Stores a payload, replacing an entry of the same key. Trouble (full disk, read-only file system) is logged once. Not
// for a shared cache.
void pj_disk_cache_store(pj_disk_cache *cache, const uint8_t key[PJ_DISK_KEY_SIZE], const uint8_t *bytes, size_t size);

// Removes an entry, e.g. one that the plugin cannot load, unless the cache is shared; `reason` is logged once.
void pj_disk_cache_drop(pj_disk_cache *cache, const uint8_t key[PJ_DISK_KEY_SIZE], const char *reason);

// Checks the bytes of an entry file against its key and gives where its payload lies in them; on failure returns what
// is wrong with it, else NULL.
const char *pj_disk_entry_parse(const uint8_t *bytes, size_t size, const uint8_t key[PJ_DISK_KEY_SIZE],
                                const uint8_t **out_payload, size_t *out_size);

#endif
