#include "base/map.h"

#include <stdlib.h>
#include <string.h>

// Multiply-and-fold of two words at a time: the keys of ops are 10 to 100 words, and hashing them is on the hot path.
static uint64_t fold(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t pj_hash_words(const uint64_t *words, size_t count) {
  const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xc2b2ae3d27d4eb4fu;
  uint64_t h = count * k0;
  size_t i = 0;
  for (; i + 2 <= count; i += 2) h = fold(words[i] ^ h ^ k0, words[i + 1] ^ k1) + k1;
  if (i < count) h = fold(words[i] ^ h ^ k0, k1 ^ 0x165667b19e3779f9u);
  return h ^ h >> 29;
}

static pj_map_entry *slot_of(pj_map_entry *entries, size_t capacity, uint64_t hash, const uint64_t *key, uint32_t words) {
  for (size_t i = hash & (capacity - 1);; i = (i + 1) & (capacity - 1)) {
    pj_map_entry *e = &entries[i];
    if (!e->key) return e;
    if (e->hash == hash && e->words == words && key && !memcmp(e->key, key, words * sizeof *key)) return e;
  }
}

void *pj_map_find(const pj_map *map, uint64_t hash, const uint64_t *key, uint32_t words) {
  return map->count ? slot_of(map->entries, map->capacity, hash, key, words)->value : NULL;
}

static bool grow(pj_map *map) {
  size_t capacity = map->capacity ? 2 * map->capacity : 64;
  pj_map_entry *entries = calloc(capacity, sizeof *entries);
  if (!entries) return false;
  for (size_t i = 0; i < map->capacity; ++i) {
    pj_map_entry *e = &map->entries[i];
    if (e->key) *slot_of(entries, capacity, e->hash, NULL, 0) = *e;
  }
  free(map->entries);
  map->entries = entries;
  map->capacity = capacity;
  return true;
}

bool pj_map_add(pj_map *map, uint64_t hash, const uint64_t *key, uint32_t words, void *value) {
  if (2 * (map->count + 1) > map->capacity && !grow(map)) return false;
  uint64_t *copy = malloc((words + 1) * sizeof *copy);
  if (!copy) return false;
  memcpy(copy, key, words * sizeof *copy);
  *slot_of(map->entries, map->capacity, hash, key, words) = (pj_map_entry){hash, copy, words, value};
  ++map->count;
  return true;
}

void pj_map_clear(pj_map *map, void (*free_value)(void *)) {
  for (size_t i = 0; i < map->capacity; ++i) {
    if (!map->entries[i].key) continue;
    free(map->entries[i].key);
    if (free_value) free_value(map->entries[i].value);
  }
  free(map->entries);
  *map = (pj_map){0};
}

void *pj_map_find_or_add(pj_map *map, uint64_t hash, const uint64_t *key, uint32_t words, size_t size) {
  void *value = pj_map_find(map, hash, key, words);
  if (value || !(value = calloc(1, size))) return value;
  if (pj_map_add(map, hash, key, words, value)) return value;
  free(value);
  return NULL;
}
