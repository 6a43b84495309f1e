// A program: nodes over values. Strict eager, fused eager, decompositions and torch.compile all are one of these.
//
// Values are numbered: the inputs first, then the results of each node in order.
#ifndef PJ_IR_GRAPH_H_
#define PJ_IR_GRAPH_H_

#include "ir/signature.h"

typedef enum pj_ref_kind { PJ_REF_VALUE, PJ_REF_NUMBER, PJ_REF_CONSTANT } pj_ref_kind;

// What an operand of a node is: a value, a run-time number of the graph, or a constant number.
typedef struct pj_ref {
  pj_ref_kind kind;
  uint32_t index;
} pj_ref;

typedef struct pj_constant {
  pj_dtype dtype;       // PRED, S64, F64 or C128
  double real, imag;
  int64_t integer;
} pj_constant;

typedef struct pj_node {
  const pj_signature *signature;  // borrowed: it belongs to whoever owns the graph
  uint32_t first_ref;             // into refs, signature->operand_count of them
  uint32_t first_value;
} pj_node;

struct pj_graph {
  pj_type *inputs;
  pj_dtype *numbers;              // F64 and C128 take one and two places of the float vector, the others one of the int vector
  pj_constant *constants;
  pj_node *nodes;
  pj_ref *refs;
  pj_type *values;                // types of all values
  uint32_t input_count, number_count, constant_count, node_count, ref_count, value_count;
  uint32_t number_capacity, constant_capacity, node_capacity, ref_capacity, value_capacity, input_capacity;
};
typedef struct pj_graph pj_graph;

pj_status pj_graph_add_input(pj_graph *graph, const pj_type *type, uint32_t *out_value);  // before any node
pj_status pj_graph_add_number(pj_graph *graph, pj_dtype dtype, uint32_t *out_number);
pj_status pj_graph_add_constant(pj_graph *graph, pj_constant constant, uint32_t *out_constant);
// `refs`: one an operand of the signature. INVALID_ARGUMENT when one does not exist or has another type than the
// signature says; one that has room for it is cut to it.
pj_status pj_graph_add_node(pj_graph *graph, const pj_signature *signature, const pj_ref *refs, uint32_t *out_first_value);

void pj_graph_clear(pj_graph *graph);  // frees its arrays

#endif
