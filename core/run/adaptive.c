// Adaptive eager: hardly anybody waits for the program of a region. A region that was not met before runs op by op, with
// the programs that strict eager has. One that comes again and again is worth a program: it is compiled in the background
// while the region goes on op by op.
//
// Fused ops may round otherwise than the same ops one by one, so when the program takes over must not depend on how long
// a compile takes: it is always the same time that the region comes, and then it is waited for. Equal runs give equal
// numbers. Where equal calls must give equal bits too, no region becomes a program.
//
// What comes again soon is a loop's body, and worth a program at once; what comes again late may be a function that is called
// now and then. And the same ops over ever new shapes, as a loop makes whose lengths grow, are not worth a program a shape,
// though each shape comes again when the loop does: the more shapes they came in, the more often one of them has to come.
#include <stdlib.h>

#include "run/internal.h"

// ---- op by op ---------------------------------------------------------------------------------------------------------

static void use(uint32_t *last, uint32_t ref, uint32_t q) {
  if (last[ref] < q) last[ref] = q;
}

// The op that makes output k: the last one whose outputs begin at k or before.
static uint32_t maker_of(const pj_region *region, uint32_t k) {
  uint32_t low = 0, high = region->queued_count;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (region->queued[middle].first_output <= k) low = middle;
    else high = middle;
  }
  return low;
}

// The op that uses each input and output of the region last. An old value that an op replaces is used by that op: it
// comes back if the op fails.
uint32_t *pj_region_last_uses(const pj_region *region) {
  uint32_t most = region->input_count > region->output_count ? region->input_count : region->output_count;
  uint32_t *last = calloc(2 * (size_t)most + 2, sizeof *last);
  if (!last) return NULL;
  uint32_t end = region->ref_count;
  for (uint32_t q = region->queued_count; q-- > 0;) {
    const pj_queued *queued = &region->queued[q];
    for (uint32_t r = queued->first_ref; r < end; ++r) use(last, region->refs[r], q);
    end = queued->first_ref;
    for (uint32_t i = 0; i < queued->plan->result_count; ++i) use(last, 2 * (queued->first_output + i) + 1, q);
  }
  for (uint32_t u = 0; u < region->undo_count; ++u) {
    const struct pj_undo *undo = &region->undo[u];
    bool made = undo->new_value->region == region->id && undo->new_value->ref & 1;
    if (made && undo->borrowed) use(last, undo->old_value->ref, maker_of(region, undo->new_value->ref / 2));
  }
  return last;
}

pj_status pj_run_each(pj_device *device, pj_region *region, const uint32_t *last) {
  pj_status status = NULL;
  while (region->done < region->queued_count && !status) {
    pj_region *one = pj_region_create(device);
    one->why = region->why;
    pj_region_take_op(one, region, region->done, last);
    status = pj_region_run(device, one);
    if (!status) {
      ++region->done;
    } else if (pj_is_put_back(device, status)) {
      pj_region_return_op(one, region, region->done);
    } else {
      pj_region_fail(region, status);
      pj_region_settle(region, true);  // before the values go that come back
    }
    pj_region_give_back(device, one);
  }
  return status;
}

// ---- in the background --------------------------------------------------------------------------------------------------

// A region that comes gives it a weight. With enough of it its program is compiled; the next time it runs.
enum { SOON = 64 /* regions */, WEIGHT_SOON = 3, WEIGHT = 1, ENOUGH = WEIGHT + WEIGHT_SOON };

static uint32_t enough(uint32_t shapes) { return ENOUGH + WEIGHT_SOON * (shapes - 1); }

typedef struct pj_sighting {
  uint64_t last;         // device->seen when it came last; 0: never
  uint32_t weight;
  uint32_t *shapes;      // that its ops came in
  bool submitted;        // to the background compiler
  bool refused;          // it could not be compiled, and goes on op by op
  pj_program *program;   // once it is compiled
} pj_sighting;

typedef struct job {
  pj_device *device;
  pj_sighting *sighting;
  pj_lowered lowered;
  uint64_t hash;
  uint32_t words;
  struct job *next;
  uint64_t key[];
} job;

struct pj_background {
  pj_runtime *runtime;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  job *first, **last;
  bool busy, stop;
};

static bool stopped(void *context) {
  pj_background *b = context;
  pthread_mutex_lock(&b->lock);
  bool stop = b->stop;
  pthread_mutex_unlock(&b->lock);
  return stop;
}

static void job_free(job *j) {
  pj_lowered_free(&j->lowered);
  free(j);
}

static void finish(job *j, pj_status status) {
  pj_device *device = j->device;
  pthread_mutex_lock(&device->lock);
  if (!status) j->sighting->program = pj_program_keep(device, j->hash, j->key, j->words, &j->lowered);
  j->sighting->refused = !j->sighting->program;
  pthread_cond_broadcast(&device->idle);
  pthread_mutex_unlock(&device->lock);
  if (status && pj_status_code(status) != PJ_CANCELLED)
    pj_program_refused(device->runtime, &j->lowered);
  pj_status_free(status);
  job_free(j);
}

static void *compile_jobs(void *argument) {
  pj_background *b = argument;
  pthread_mutex_lock(&b->lock);
  while (!b->stop) {
    job *j = b->first;
    if (!j) {
      pthread_cond_wait(&b->changed, &b->lock);
      continue;
    }
    if (!(b->first = j->next)) b->last = &b->first;
    b->busy = true;
    pthread_mutex_unlock(&b->lock);
    finish(j, pj_program_compile(b->runtime, &j->lowered, stopped, b));
    pthread_mutex_lock(&b->lock);
    b->busy = false;
    pthread_cond_broadcast(&b->changed);
  }
  pthread_mutex_unlock(&b->lock);
  return NULL;
}

// The runtime's background compiler, started on first need; NULL when there can be none (any more).
static pj_background *background_of(pj_runtime *runtime) {
  pthread_mutex_lock(&runtime->lock);
  pj_background *b = runtime->background;
  if (!b && !runtime->stopped && (b = calloc(1, sizeof *b))) {
    b->runtime = runtime;
    b->last = &b->first;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    if (pthread_create(&b->thread, NULL, compile_jobs, b)) {
      pthread_mutex_destroy(&b->lock);
      pthread_cond_destroy(&b->changed);
      free(b);
      b = NULL;
    }
    runtime->background = b;
  }
  pthread_mutex_unlock(&runtime->lock);
  return b;
}

static bool submit(pj_device *device, const pj_region *region, const pj_outside *outside, uint64_t hash,
                   pj_sighting *sighting) {
  pj_background *b = background_of(device->runtime);
  job *j = b ? calloc(1, sizeof *j + region->key_count * sizeof *region->key) : NULL;
  if (!j) return false;
  *j = (job){.device = device, .sighting = sighting, .hash = hash, .words = region->key_count};
  memcpy(j->key, region->key, region->key_count * sizeof *region->key);
  pthread_mutex_unlock(&device->lock);  // asks for the user's source line
  pj_status status = pj_program_lower(device->runtime, region, outside, &j->lowered);
  pthread_mutex_lock(&device->lock);
  if (status) {
    pj_status_free(status);  // told when the op itself is run
    free(j);
    return false;
  }
  pthread_mutex_lock(&b->lock);
  *b->last = j;
  b->last = &j->next;
  pthread_cond_broadcast(&b->changed);
  pthread_mutex_unlock(&b->lock);
  return true;
}

static bool is_compiling(const pj_device *device, const void *context) {
  (void)device;
  const pj_sighting *sighting = context;
  return !sighting->program && !sighting->refused;
}

// The region's ops in their order and how they are wired, whatever the shapes.
static uint64_t hash_of_ops(pj_device *device, const pj_region *region) {
  uint32_t words = region->queued_count + region->ref_count;
  pj_reserve(&device->scratch, 0, words, &device->scratch_capacity, sizeof *device->scratch);
  uint64_t *word = device->scratch;
  for (uint32_t q = 0; q < region->queued_count; ++q) *word++ = region->queued[q].plan->op->id;
  for (uint32_t r = 0; r < region->ref_count; ++r) *word++ = region->refs[r];
  return pj_hash_words(device->scratch, words);
}

// Most regions of a program that never repeats itself are met once: only their hash is kept.
static pj_sighting *see(pj_device *device, const pj_region *region, uint64_t hash) {
  pj_sighting *sighting = pj_map_find_or_add(&device->sightings, hash, &hash, 1, sizeof *sighting);
  if (!sighting) return NULL;
  if (!sighting->shapes) {
    uint64_t ops = hash_of_ops(device, region);
    sighting->shapes = pj_map_find_or_add(&device->shapes, ops, &ops, 1, sizeof *sighting->shapes);
    if (!sighting->shapes) return NULL;
    ++*sighting->shapes;
  }
  ++device->seen;
  sighting->weight += sighting->last && device->seen - sighting->last <= SOON ? WEIGHT_SOON : WEIGHT;
  sighting->last = device->seen;
  return sighting;
}

pj_status pj_adaptive_find(pj_device *device, const pj_region *region, const pj_outside *outside, uint64_t hash,
                           pj_program **out_program) {
  const pj_hooks *hooks = &device->runtime->hooks;
  if (hooks->repeats && hooks->repeats()) return NULL;
  pj_sighting *sighting = see(device, region, hash);
  if (!sighting || sighting->refused) return NULL;
  if (!sighting->submitted) {
    if (sighting->weight < enough(*sighting->shapes)) return NULL;
    sighting->submitted = true;
    sighting->refused = !submit(device, region, outside, hash, sighting);
    return NULL;
  }
  PJ_TRY(pj_device_wait_while(device, is_compiling, sighting, "a program that compiles in the background"));
  *out_program = sighting->program;
  return NULL;
}

void pj_runtime_wait_for_compiles(pj_runtime *runtime) {
  if (atomic_load(&runtime->forked)) return;
  pthread_mutex_lock(&runtime->lock);
  pj_background *b = runtime->background;
  pthread_mutex_unlock(&runtime->lock);
  if (!b) return;
  pthread_mutex_lock(&b->lock);
  while (b->first || b->busy) pthread_cond_wait(&b->changed, &b->lock);
  pthread_mutex_unlock(&b->lock);
}

void pj_runtime_stop_compiles(pj_runtime *runtime) {
  if (atomic_load(&runtime->forked)) return;
  pthread_mutex_lock(&runtime->lock);
  pj_background *b = runtime->background;
  runtime->background = NULL;
  runtime->stopped = true;
  pthread_mutex_unlock(&runtime->lock);
  if (!b) return;
  pthread_mutex_lock(&b->lock);
  b->stop = true;
  pthread_cond_broadcast(&b->changed);
  pthread_mutex_unlock(&b->lock);
  pthread_join(b->thread, NULL);
  while (b->first) {
    job *j = b->first;
    b->first = j->next;
    finish(j, pj_error(PJ_CANCELLED, "the compiler was stopped"));
  }
  pthread_mutex_destroy(&b->lock);
  pthread_cond_destroy(&b->changed);
  free(b);
}
