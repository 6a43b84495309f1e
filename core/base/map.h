// A hash map from keys of 64-bit words to pointers. Keys are copied; values belong to the caller. Not thread-safe.
#ifndef PJ_BASE_MAP_H_
#define PJ_BASE_MAP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pj_map_entry {
  uint64_t hash;
  uint64_t *key;    // NULL: free
  uint32_t words;
  void *value;
} pj_map_entry;

typedef struct pj_map {
  pj_map_entry *entries;
  size_t capacity, count;  // capacity is a power of two, or 0
} pj_map;

uint64_t pj_hash_words(const uint64_t *words, size_t count);

// The value of the key, or NULL.
void *pj_map_find(const pj_map *map, uint64_t hash, const uint64_t *key, uint32_t words);

// Adds a key that is not in the map. False when host memory is exhausted.
bool pj_map_add(pj_map *map, uint64_t hash, const uint64_t *key, uint32_t words, void *value);
// What is under the key, or `size` bytes of zeros that are put there, for free(); NULL: no host memory.
void *pj_map_find_or_add(pj_map *map, uint64_t hash, const uint64_t *key, uint32_t words, size_t size);

// Frees the keys and the table; calls `free_value` (may be NULL) for each value.
void pj_map_clear(pj_map *map, void (*free_value)(void *));

#endif
