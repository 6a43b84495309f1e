// Calls as words that come from outside: they are decoded and lowered, or refused with a sentence, whatever they say.
#include "fuzz.h"
#include "ir/graph.h"
#include "ops/lowering.h"
#include "ops/program.h"
#include "pj/run.h"
#include "test.h"

// An input is an op, then its results, then the words of the call.
enum { MOST_RESULTS = 3 };

static const char *const OPS[] = {"aten::add.Tensor", "aten::index_select", "aten::cat", "aten::as_strided_copy", "aten::sum.dim_IntList"};
enum { OP_COUNT = sizeof OPS / sizeof *OPS };

static const uint64_t *read_result(const uint64_t *at, const uint64_t *end, pj_result *out_result) {
  memset(out_result, 0, sizeof *out_result);
  if (at == end) return at;
  out_result->logical.dtype = (pj_dtype)(*at & 0xff);
  out_result->logical.rank = (int32_t)(*at >> 8 & 0xff);
  ++at;
  for (int i = 0; i < out_result->logical.rank && i < PJ_MAX_RANK && end - at >= 2; ++i) {
    out_result->logical.dims[i] = (int64_t)*at++;
    out_result->strides[i] = (int64_t)*at++;
  }
  return at;
}

// What every reader of a signature does with it. The first error is the outcome.
static pj_status use(const pj_signature *s) {
  pj_graph graph = {0};
  pj_ref *refs = calloc(s->operand_count + 1, sizeof *refs);
  uint32_t *outputs = calloc(s->result_count + 1, sizeof *outputs);
  pj_status status = NULL;
  for (uint32_t i = 0; i < s->operand_count && !status; ++i) {
    const pj_operand *o = &s->operands[i];
    refs[i].kind = o->is_number ? PJ_REF_NUMBER : PJ_REF_VALUE;
    if (o->is_number) status = pj_graph_add_number(&graph, o->base.dtype, &refs[i].index);
    else if (o->has_value) status = pj_graph_add_input(&graph, &o->base, &refs[i].index);
    pj_view_is_identity(&o->view, &o->base);
    pj_view_covers(&o->view, pj_type_bytes(&o->base));
    pj_view_overlaps_itself(&o->view);
  }
  uint32_t first = 0;
  if (!status) status = pj_graph_add_node(&graph, s, refs, &first);
  for (uint32_t i = 0; i < s->result_count; ++i) outputs[i] = first + i;
  pj_program_spec spec = {.outputs = outputs, .output_count = s->result_count, .index_checks = true};
  pj_program_text text = {0};
  if (!status) status = pj_program_write(&graph, &spec, &text);
  if (!status) pj_program_text_free(&text);
  pj_graph_clear(&graph);
  free(refs);
  free(outputs);
  return status;
}

// How far the input came.
typedef enum outcome { REFUSED, DECODED, LOWERED } outcome;

static outcome try_words(const uint64_t *at, size_t count) {
  const uint64_t *end = at + count;
  if (at == end) return REFUSED;
  const char *op = OPS[(*at & 0xff) % OP_COUNT];
  bool writes_base = *at >> 8 & 1;
  uint32_t result_count = (uint32_t)(*at >> 16 & 0xff) % (MOST_RESULTS + 1);
  ++at;
  pj_result results[MOST_RESULTS];
  for (uint32_t i = 0; i < result_count; ++i) at = read_result(at, end, &results[i]);
  pj_signature *s = NULL;
  pj_status status = pj_signature_create(op, at, (uint32_t)(end - at), writes_base, results, result_count, &s);
  outcome reached = REFUSED;
  if (!status) {
    char text[60];
    pj_signature_text(s, text, sizeof text);
    status = use(s);
    reached = status ? DECODED : LOWERED;
  }
  if (status && !*pj_status_text(status)) abort();
  pj_status_free(status);
  pj_signature_destroy(s);
  return reached;
}

static outcome try_bytes(const uint8_t *bytes, size_t size) {
  // Of their exact size and aligned, so that a sanitizer sees each byte read beyond them.
  size_t count = size / sizeof(uint64_t);
  uint64_t *words = malloc(count ? count * sizeof *words : 1);
  memcpy(words, bytes, count * sizeof *words);
  outcome reached = try_words(words, count);
  free(words);
  return reached;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  try_bytes(bytes, size);
  return 0;
}

#ifndef PJ_LIBFUZZER
static void put_f32(pj_call *call, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  int64_t base[] = {4, 6}, sizes[] = {rows, columns}, strides[] = {row_stride, column_stride};
  pj_call_graph_tensor(call, PJ_F32, 2, base, PJ_F32, 2, sizes, strides, 0, 0);
}

static void put_add(pj_call *call) {
  put_f32(call, 4, 6, 6, 1);
  put_f32(call, 4, 6, 0, 1);
  pj_call_number_float(call, 2, PJ_F64, PJ_WEIGHT_PYTHON);
}

static void put_index_select(pj_call *call) {
  int64_t four = 4, one = 1;
  put_f32(call, 4, 6, 6, 1);
  pj_call_int(call, 0);
  pj_call_graph_tensor(call, PJ_S64, 1, &four, PJ_S64, 1, &four, &one, 0, 0);
}

static void put_cat(pj_call *call) {
  pj_call_tensors(call, 2);
  put_f32(call, 2, 6, 6, 1);
  put_f32(call, 2, 6, 12, 1);
  pj_call_int(call, 0);
}

static void put_as_strided(pj_call *call) {
  put_f32(call, 4, 6, 6, 1);
  pj_call_ints(call, (int64_t[]){4, 6}, 2);
  pj_call_ints(call, (int64_t[]){6, 1}, 2);
  pj_call_int(call, 0);
}

static void put_sum(pj_call *call) {
  put_f32(call, 4, 6, 6, 1);
  pj_call_ints(call, (int64_t[]){1}, 1);
  pj_call_bool(call, true);
  pj_call_dtype(call, PJ_F32);
}

static void put_everything(pj_call *call) {
  pj_call_none(call);
  pj_call_string(call, "mean and more", 13);
  pj_call_floats(call, (double[]){1, 2, 3}, 3);
  pj_call_bools(call, (bool[]){true, false}, 2);
  pj_call_float(call, 0.5);
  pj_call_shape(call, PJ_BF16, 2, (int64_t[]){3, 5});
  pj_call_numbers(call, 2);
  pj_call_number_bool(call, true, PJ_PRED, PJ_WEIGHT_ZERO_DIM);
  pj_call_number_complex(call, 1, 2, PJ_C64, PJ_WEIGHT_PYTHON);
}

static void make_seed(uint64_t op, void (*put)(pj_call *), uint64_t columns, fuzz_seed *out_seed) {
  pj_call call = {0};
  put(&call);
  uint64_t head[] = {op | 1 << 16, PJ_F32 | 2 << 8, 4, columns, columns, 1};
  memcpy(out_seed->bytes, head, sizeof head);
  memcpy(out_seed->bytes + sizeof head, call.words, call.word_count * sizeof *call.words);
  out_seed->size = sizeof head + call.word_count * sizeof *call.words;
  pj_call_destroy(&call);
}

static void mutated_calls_are_lowered_or_refused(void) {
  static const struct {
    void (*put)(pj_call *);
    uint64_t op, columns;
    outcome good;
  } SEEDS[] = {{put_add, 0, 6, LOWERED},        {put_index_select, 1, 6, LOWERED}, {put_cat, 2, 6, LOWERED},
               {put_as_strided, 3, 6, LOWERED}, {put_sum, 4, 1, LOWERED},          {put_everything, 0, 6, DECODED}};
  enum { SEED_COUNT = sizeof SEEDS / sizeof *SEEDS };
  int reached[LOWERED + 1] = {0};
  for (int i = 0; i < FUZZ_MUTATIONS; ++i) {
    int k = i % SEED_COUNT;
    fuzz_seed s;
    make_seed(SEEDS[k].op, SEEDS[k].put, SEEDS[k].columns, &s);
    if (i < SEED_COUNT) CHECK(try_bytes(s.bytes, s.size) == SEEDS[k].good);
    fuzz_mutate(&s);
    ++reached[try_bytes(s.bytes, s.size)];
  }
  printf("# %d refused, %d decoded, %d lowered\n", reached[REFUSED], reached[DECODED], reached[LOWERED]);
  CHECK(reached[REFUSED] > 0 && reached[DECODED] > 0 && reached[LOWERED] > 0);
}

int main(void) {
  RUN(mutated_calls_are_lowered_or_refused);
  return test_end();
}
#endif
