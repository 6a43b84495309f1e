// From a graph to StableHLO: parameters, every node's lowering in order, results.
#ifndef PJ_OPS_PROGRAM_H_
#define PJ_OPS_PROGRAM_H_

#include "hlo/hlo.h"
#include "ir/graph.h"

typedef struct pj_program_spec {
  const uint32_t *outputs;      // value numbers, each a node's result
  uint32_t output_count;
  const int32_t *aliases;       // one an input: the output (index into outputs) that takes over its buffer, or -1; NULL: none
  hlo_precision precision;      // of float32 contractions
  bool index_checks;            // nodes may add out-of-range flags
} pj_program_spec;

typedef struct pj_program_text {
  char *text;                   // StableHLO
  size_t size;
  uint32_t *checked_nodes;      // nodes with an out-of-range flag; when there are any, one more result, PRED[count], has the flags
  uint32_t checked_count;
} pj_program_text;

// Parameters in order: the inputs, then f64[floats] and s64[ints] where the graph has such numbers.
// Errors: those of the lowerings, with PyTorch's text where it is known; UNIMPLEMENTED when a node has no lowering.
pj_status pj_program_write(const pj_graph *graph, const pj_program_spec *spec, pj_program_text *out_program);
void pj_program_text_free(pj_program_text *program);

#endif
