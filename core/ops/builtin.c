// Ops of our own: what eager needs between PyTorch's ops.
#include "ops/lowering.h"

// pj::copy(Tensor self): the elements of the view, in the memory order of the result.
static void lower_copy(pj_lowering *l) { pj_return(l, 0, pj_tensor(l, 0)); }

// pj::write(Tensor(a!) self, Tensor source): the base of self after source was written through the view.
static void lower_write(pj_lowering *l) {
  pj_target target = pj_target_of(l);
  pj_return_target(l, pj_target_write(l, &target, pj_tensor(l, 1)));
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

PJ_LOWERINGS(builtin_lowerings) = {
    {"pj::copy", lower_copy, 0, 0, 0},
    {"pj::write", lower_write, PJ_OP_WRITES, 0, 0},
    {"pj::zeros", lower_zeros, 0, 0, 0},
    {"pj::as_type", lower_as_type, 0, 0, 0},
    {0},
};
