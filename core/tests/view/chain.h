// Random views, made as PyTorch makes them, one operation on the other; and what they mean: element by element
// addressing of a byte array.
#ifndef PJ_TESTS_VIEW_CHAIN_H_
#define PJ_TESTS_VIEW_CHAIN_H_

#include "view/program.h"

typedef struct chain_random {
  uint64_t state;
} chain_random;

uint64_t chain_next(chain_random *random);
int64_t chain_below(chain_random *random, int64_t bound);  // 0 for bound <= 1

// A random base (dimensions 0 to 6) and a view of it after up to six random operations.
void chain_make(chain_random *random, pj_type *out_base, pj_view *out_view);

// Random bytes for an array of the type; PRED elements are 0 or 1. The caller frees them.
char *chain_bytes(chain_random *random, const pj_type *type);

pj_type chain_type(const pj_view *view);  // of the view's elements

// The view's elements, conj and neg applied. The caller frees them.
char *chain_read(const pj_view *view, const char *base);

// Writes the elements of `source` into the base.
void chain_write(const pj_view *view, char *base, const char *source);

// "f32 [4,5] -> f32 sizes [5,4] strides [1,5] offset 0", valid until the next call.
const char *chain_text(const pj_type *base, const pj_view *view);

#endif
