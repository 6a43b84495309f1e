// Result types that no meta kernel of PyTorch tells, or that one tells wrongly.
#include <string.h>

#include "ops/dynamic.h"

pj_type pj_argument_type(const pj_signature *s, int i) {
  const pj_operand *o = &s->operands[s->arguments[i].first];
  pj_type type = {.dtype = o->own, .rank = o->view.rank};
  memcpy(type.dims, o->view.sizes, sizeof type.dims);
  return type;
}

bool pj_argument_present(const pj_signature *s, int i) { return s->arguments[i].kind != PJ_ARG_NONE; }

pj_type pj_vector_type(pj_dtype dtype, int64_t size) { return (pj_type){.dtype = dtype, .rank = 1, .dims = {size}}; }

// (sums, edges)
static int histogram_types(const pj_signature *s, pj_type *out) {
  pj_dtype dtype = pj_argument_type(s, 0).dtype;
  int64_t edges = s->arguments[1].kind == PJ_ARG_INT ? s->arguments[1].integer + 1 : pj_argument_type(s, 1).dims[0];
  out[0] = pj_vector_type(dtype, edges > 0 ? edges - 1 : 0);   // no bins: the lowering tells
  out[1] = pj_vector_type(dtype, edges > 0 ? edges : 0);
  return 2;
}

// The gradient of argument 1.
static int like_argument_1(const pj_signature *s, pj_type *out) {
  out[0] = pj_argument_type(s, 1);
  return 1;
}

// (hy, cy, workspace). PyTorch's meta kernel wants biases.
static int lstm_types(const pj_signature *s, pj_type *out) {
  out[0] = out[1] = pj_argument_type(s, 2);
  out[2] = pj_argument_type(s, 0);
  return 3;
}

// (w, norms). PyTorch's meta kernel, a decomposition, takes the norm of a vector over all its elements; the CPU's takes
// none of them together. Norms of bfloat16 are float32.
static int weight_norm_types(const pj_signature *s, pj_type *out) {
  out[0] = pj_argument_type(s, 0);
  out[1] = pj_argument_type(s, 1);
  if (out[1].dtype == PJ_BF16) out[1].dtype = PJ_F32;
  return 2;
}

// PyTorch has a meta kernel for it, but one that takes bfloat16 only. A wrong rank is told by the lowering.
static int grouped_mm_types(const pj_signature *s, pj_type *out) {
  pj_type a = pj_argument_type(s, 0), b = pj_argument_type(s, 1);
  int64_t rows = a.rank > 1 ? a.dims[a.rank - 2] : 0, columns = b.rank ? b.dims[b.rank - 1] : 0;
  if (a.rank != b.rank) {
    out[0] = (pj_type){.dtype = a.dtype, .rank = 2, .dims = {rows, columns}};
  } else {
    int64_t groups = a.rank == 3 ? a.dims[0] : pj_argument_present(s, 2) ? pj_argument_type(s, 2).dims[0] : 0;
    out[0] = (pj_type){.dtype = a.dtype, .rank = 3, .dims = {groups, rows, columns}};
  }
  return 1;
}

// One list of edges a dimension: (bins + 1) of each. More dimensions than results can be told by the lowering.
static int histogramdd_edges_types(const pj_signature *s, pj_type *out) {
  const pj_argument *bins = &s->arguments[1];
  int count = bins->count < PJ_DYNAMIC_RESULTS ? (int)bins->count : PJ_DYNAMIC_RESULTS;
  for (int i = 0; i < count; ++i)
    out[i] = pj_vector_type(pj_argument_type(s, 0).dtype, bins->ints[i] > 0 ? bins->ints[i] + 1 : 0);
  return count;
}

// A dimension for each list of bins, which are counts or edges.
static int histogramdd_types(const pj_signature *s, pj_type *out) {
  const pj_argument *bins = &s->arguments[1];
  int rank = bins->count < PJ_MAX_RANK ? (int)bins->count : PJ_MAX_RANK;
  out[0] = (pj_type){.dtype = pj_argument_type(s, 0).dtype, .rank = rank};
  for (int i = 0; i < rank; ++i) {
    int64_t count = bins->kind == PJ_ARG_INTS ? bins->ints[i]
                                              : s->operands[s->elements[bins->first + (uint32_t)i]].view.sizes[0] - 1;
    out[0].dims[i] = count > 0 ? count : 0;
  }
  return 1;
}

// (a, tau)
static int geqrf_types(const pj_signature *s, pj_type *out) {
  pj_type a = pj_argument_type(s, 0);
  out[0] = out[1] = a;
  if (a.rank < 2) return 2;   // the lowering tells
  int64_t rows = a.dims[a.rank - 2], columns = a.dims[a.rank - 1];
  out[1].rank = a.rank - 1;
  out[1].dims[a.rank - 2] = rows < columns ? rows : columns;
  return 2;
}

// (solution, residuals, rank, singular_values); the last argument says whether there are residuals
int pj_lstsq_types(const pj_signature *s, pj_type *out) {
  pj_type a = pj_argument_type(s, 0), b = pj_argument_type(s, 1);
  const pj_argument *driver = &s->arguments[3];
  const char *name = driver->kind == PJ_ARG_STRING ? driver->text : "gelsy";
  int batches = a.rank - 2;
  int64_t rows = a.rank > 1 ? a.dims[batches] : 0, columns = a.rank > 1 ? a.dims[batches + 1] : 0;
  pj_dtype real = pj_real_dtype(a.dtype);
  out[0] = b;
  if (a.rank > 1 && b.rank > batches) out[0].dims[batches] = columns;
  out[1] = pj_vector_type(real, 0);
  if (s->arguments[4].integer) {
    out[1] = b;
    out[1].dtype = real;
    out[1].rank = batches + 1;
    out[1].dims[batches] = b.rank == a.rank ? b.dims[b.rank - 1] : 1;
  }
  out[2] = pj_vector_type(PJ_S64, 0);
  out[3] = pj_vector_type(real, 0);
  if (strcmp(name, "gels") && a.rank > 1) {
    out[2] = a;
    out[2].dtype = PJ_S64;
    out[2].rank = batches;
    if (strcmp(name, "gelsy")) {
      out[3] = a;
      out[3].dtype = real;
      out[3].rank = batches + 1;
      out[3].dims[batches] = rows < columns ? rows : columns;
    }
  }
  return 4;
}

// (neg_log_likelihood, log_alpha); the last argument is the length of the longest target
int pj_ctc_types(const pj_signature *s, pj_type *out) {
  pj_type log_probs = pj_argument_type(s, 0);
  int64_t times = log_probs.dims[0], batch = log_probs.rank > 1 ? log_probs.dims[1] : 0;
  out[0] = pj_vector_type(log_probs.dtype, batch);
  out[1] = (pj_type){.dtype = log_probs.dtype, .rank = 3, .dims = {batch, times, 2 * s->arguments[6].integer + 1}};
  return 2;
}

#define TYPED(name, types) {name, NULL, name, 0, types, false}
static const pj_dynamic_op TYPED_OPS[] = {
    TYPED("aten::histogram.bin_ct", histogram_types),
    TYPED("aten::histogram.bins_tensor", histogram_types),
    TYPED("aten::_histogramdd_bin_edges", histogramdd_edges_types),
    TYPED("aten::_histogramdd_from_bin_cts", histogramdd_types),
    TYPED("aten::_histogramdd_from_bin_tensors", histogramdd_types),
    TYPED("aten::fractional_max_pool3d_backward", like_argument_1),
    TYPED("aten::multi_margin_loss_backward", like_argument_1),
    TYPED("aten::multilabel_margin_loss_backward", like_argument_1),
    TYPED("aten::_ctc_loss_backward", like_argument_1),
    TYPED("aten::_ctc_loss_backward.Tensor", like_argument_1),
    TYPED("aten::_grouped_mm", grouped_mm_types),
    TYPED("aten::_thnn_fused_lstm_cell", lstm_types),
    TYPED("aten::_weight_norm_interface", weight_norm_types),
    TYPED("aten::geqrf", geqrf_types),
};

const pj_dynamic_op *pj_typed_find(const char *name) {
  for (size_t i = 0; i < sizeof TYPED_OPS / sizeof *TYPED_OPS; ++i)
    if (!strcmp(TYPED_OPS[i].name, name)) return &TYPED_OPS[i];
  return NULL;
}
