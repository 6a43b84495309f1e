// Ops of our own: what eager needs between PyTorch's ops.
#include <string.h>

#include "ops/lowering.h"

// pj::copy(Tensor self): the elements of the view, in the memory order of the result.
static void lower_copy(pj_lowering *l) { pj_return(l, 0, pj_tensor(l, 0)); }

// Where elements of the view share memory, the last of them in row-major order is what a loop leaves: each place of the base
// takes the element of the greatest number that is written there. A pass over the base, for views that are rarely written.
static hlo_value write_last(hlo *h, const pj_target *target, hlo_value source) {
  const pj_view *view = &target->view;
  hlo_value base = target->base;
  pj_type old = {.dtype = base.dtype, .rank = base.rank}, flat = {.dtype = view->dtype, .rank = 1};
  memcpy(old.dims, base.dims, sizeof old.dims);
  flat.dims[0] = (int64_t)(pj_type_bytes(&old) / pj_dtype_size(view->dtype));
  hlo_value start = target->start.id < 0 ? hlo_constant_int(h, PJ_S64, view->offset) : target->start;
  hlo_value places = hlo_broadcast_to(h, start, view->rank, view->sizes);
  for (int d = 0; d < view->rank; ++d)
    places = hlo_add(h, places, hlo_mul(h, hlo_iota(h, PJ_S64, view->rank, view->sizes, d),
                                        hlo_constant_int(h, PJ_S64, view->strides[d])));
  int64_t count = hlo_size(places);
  hlo_value numbers = hlo_iota(h, PJ_S64, 1, &count, 0);
  hlo_scatter_spec spec = {.inserted_count = 1, .scatter_count = 1, .index_vector_dim = 1};
  places = hlo_reshape(h, places, 2, (int64_t[]){count, 1});
  hlo_value last = hlo_scatter(h, HLO_MAX, hlo_full(h, PJ_S64, 1, flat.dims, -1), places, numbers, &spec);
  hlo_value none = hlo_constant_int(h, PJ_S64, 0);
  if (view->conj) source = hlo_conj(h, source);
  if (view->neg) source = hlo_neg(h, source);
  hlo_value written = hlo_take(h, hlo_reshape(h, source, 1, &count), hlo_max(h, last, none), 0);
  return pj_view_as_type(h, hlo_select(h, hlo_ge(h, last, none), written, pj_view_as_type(h, base, &flat)), &old);
}

// pj::write(Tensor(a!) self, Tensor source): the base of self after source was written through the view.
static void lower_write(pj_lowering *l) {
  pj_target target = pj_target_of(l);
  if (hlo_failed(l->h)) return;
  hlo_value source = pj_tensor(l, 1);
  bool shared = pj_view_overlaps_itself(&target.view);
  pj_return_target(l, shared ? write_last(l->h, &target, source) : pj_target_write(l, &target, source));
}

// pj::zeros(): what a storage that was never written reads as.
static void lower_zeros(pj_lowering *l) {
  pj_type type = pj_result_type(l, 0);
  pj_return(l, 0, hlo_full(l->h, type.dtype, type.rank, type.dims, 0));
}

// pj::as_type(Tensor self): the same bytes as the result's element type and sizes.
static void lower_as_type(pj_lowering *l) {
  pj_type type = pj_result_type(l, 0);
  pj_return(l, 0, pj_view_as_type(l->h, pj_tensor(l, 0), &type));
}

// pj::grow(self, dim, size): self, in an array of that size along `dim` (ops/room.h)
static void lower_grow(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  pj_type type = pj_result_type(l, 0);
  int64_t low[PJ_MAX_RANK] = {0}, high[PJ_MAX_RANK];
  for (int d = 0; d < x.rank; ++d) high[d] = type.dims[d] - x.dims[d];
  pj_return(l, 0, hlo_pad(l->h, x, hlo_constant(l->h, type.dtype, 0), low, high, NULL));
}

PJ_LOWERINGS(builtin_lowerings) = {
    {"pj::copy", lower_copy, 0, 0, 0},
    {"pj::write", lower_write, PJ_OP_WRITES, 0, 0},
    {"pj::grow", lower_grow},
    {"pj::zeros", lower_zeros, 0, 0, 0},
    {"pj::as_type", lower_as_type, 0, 0, 0},
    {0},
};
