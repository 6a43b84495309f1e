// Ops that move elements without computing: joining, repeating, turning, rolling, shuffling.
#include "ops/lowering.h"

// aten::cat(tensors, dim): empty 1-d tensors are skipped, whatever the shape of the others
static void lower_cat(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  int dim = pj_dim(l, 1, type.rank), count = 0, total = pj_list_count(l, 0);
  hlo_value result = {.id = -1}, part[64];
  for (int i = 0; i < total; ++i) {
    hlo_value x = pj_list_tensor(l, 0, i);
    if (hlo_failed(h)) return;
    if (x.rank == 1 && x.dims[0] == 0) continue;
    bool fits = x.rank == type.rank;
    for (int d = 0; fits && d < x.rank; ++d) fits = d == dim || x.dims[d] == type.dims[d];
    if (!pj_require(l, fits, PJ_INVALID_ARGUMENT, "Sizes of tensors must match except in dimension %d.", dim)) return;
    if (count == (int)(sizeof part / sizeof *part)) {
      result = part[0] = hlo_concatenate(h, part, count, dim);
      count = 1;
    }
    part[count++] = hlo_convert(h, x, type.dtype);
  }
  result = count ? hlo_concatenate(h, part, count, dim) : hlo_full(h, type.dtype, type.rank, type.dims, 0);
  pj_return(l, 0, result);
}
