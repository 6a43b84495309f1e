#include <string.h>

#include "ops/lowering.h"

// X(family): ops/<family>.c defines <family>_lowerings.
#define FAMILIES(X) \
  X(pointwise) X(activation) X(compare) X(reduction) X(statistics) X(scan) X(matmul) X(grouped_matmul) X(attention) \
  X(convolution) X(pooling) X(norm) X(softmax) X(loss) X(shape) X(factory) X(index) X(scatter) X(sort) X(search) \
  X(random) X(sampling) X(reparameterize) X(foreach) X(optimizer) X(recurrent) X(linalg) X(lu) X(orthogonal) X(svd) \
  X(fft) X(resample) X(dynamic) X(special) X(bessel) X(airy) X(polynomial) X(builtin) X(subview) X(padding) \
  X(patches) X(distance) X(embedding) X(adaptive) X(grid_sampler) X(histogram) X(ctc_loss) X(segment) X(jagged) \
  X(least_squares)

#define DECLARE(family) extern const pj_lowering_entry family##_lowerings[];
FAMILIES(DECLARE)
#define LIST(family) family##_lowerings,
static const pj_lowering_entry *const TABLES[] = {FAMILIES(LIST)};

const pj_lowering_entry *pj_lowering_find(const char *name) {
  for (size_t t = 0; t < sizeof TABLES / sizeof *TABLES; ++t)
    for (const pj_lowering_entry *entry = TABLES[t]; entry->name; ++entry)
      if (!strcmp(entry->name, name)) return entry;
  return NULL;
}
