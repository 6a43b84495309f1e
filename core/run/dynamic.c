// Ops whose result sizes depend on data: count, read, then the op of that size.
#include "ops/dynamic.h"

#include "run/internal.h"

enum { MOST_COUNTS = 16 };

// A call of `op` with the same arguments.
static void copy_call(const pj_call *from, const pj_op *op, pj_call *to) {
  *to = (pj_call){.op = op};
  memcpy(pj_call_take(to, from->word_count), from->words, from->word_count * sizeof *from->words);
  for (uint32_t i = 0; i < from->operand_count; ++i) {
    pj_call_grow(to, 0);
    pj_value_retain(from->operands[i]);
    to->operands[to->operand_count++] = from->operands[i];
  }
  pj_reserve(&to->floats, 0, from->float_count, &to->float_capacity, sizeof *to->floats);
  pj_reserve(&to->ints, 0, from->int_count, &to->int_capacity, sizeof *to->ints);
  if (from->float_count) memcpy(to->floats, from->floats, from->float_count * sizeof *to->floats);
  if (from->int_count) memcpy(to->ints, from->ints, from->int_count * sizeof *to->ints);
  to->float_count = from->float_count;
  to->int_count = from->int_count;
}

static pj_status read_counts(pj_device *device, const pj_call *call, const pj_dynamic_op *dynamic, int64_t *out_counts) {
  pj_call count;
  copy_call(call, pj_runtime_op(device->runtime, dynamic->count), &count);
  pj_tensor_spec type = {.dtype = PJ_S64, .rank = 1, .sizes = {dynamic->counts}, .strides = {1}};
  pj_status status = pj_submit_own(device, &count, &type, 1);
  if (!status) status = pj_value_to_host(device, count.results[0], out_counts);
  pj_call_destroy(&count);
  return status;
}

pj_status pj_call_resolve(pj_device *device, pj_call *call) {
  PJ_TRY(pj_runtime_check(device->runtime));
  const pj_dynamic_op *dynamic = pj_dynamic_find(call->op->name);
  if (!dynamic || dynamic->counts > MOST_COUNTS)
    return pj_error(PJ_INTERNAL, "%s is not in the table of dynamic ops", call->op->name);
  int64_t counts[MOST_COUNTS];
  if (dynamic->count) {
    PJ_TRY(read_counts(device, call, dynamic, counts));
    for (int i = 0; i < dynamic->counts; ++i) pj_call_int(call, counts[i]);
  }
  call->op = pj_runtime_op(device->runtime, dynamic->value);
  return NULL;
}

pj_status pj_dynamic_results(const pj_call *call, pj_tensor_spec out_specs[PJ_DYNAMIC_RESULTS], size_t *out_count) {
  const pj_dynamic_op *dynamic = pj_dynamic_find(call->op->name);
  if (!dynamic) return pj_error(PJ_UNIMPLEMENTED, "%s has neither result types nor a rule for them", call->op->name);
  pj_signature *signature;
  PJ_TRY(pj_signature_create(call->op->name, call->words, call->word_count, false, NULL, 0, &signature));
  pj_type types[PJ_DYNAMIC_RESULTS];
  int count = dynamic->types(signature, types);
  pj_signature_destroy(signature);
  for (int i = 0; i < count; ++i) {
    out_specs[i] = pj_dense_spec(&types[i]);
    if (!dynamic->by_column) continue;
    out_specs[i].strides[0] = 1;
    out_specs[i].strides[1] = types[i].dims[0];
  }
  *out_count = (size_t)count;
  return NULL;
}
