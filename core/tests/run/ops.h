// A few ops on vectors of float32, for tests of the queue.
#ifndef PJ_TESTS_RUN_OPS_H_
#define PJ_TESTS_RUN_OPS_H_

#include "pj/run.h"
#include "tests/test.h"

static inline pj_storage *from_host(pj_device *device, const float *data, int64_t count) {
  pj_value *value = NULL;
  CHECK_OK(pj_value_from_host(device, data, PJ_F32, 1, &count, &value));
  return value ? pj_storage_create_with(device, value) : NULL;
}

static inline void to_host(pj_storage *storage, float *data) {
  pj_value *value = pj_storage_value(storage);
  CHECK_OK(pj_value_to_host(pj_storage_device(storage), value, data));
  pj_value_release(value);
}

static inline void put_vector(pj_call *call, pj_storage *storage, int64_t count) {
  int64_t one = 1;
  pj_call_tensor(call, storage, PJ_F32, 1, &count, &one, 0, 0);
}

// `call` must be an op with one result of `count` elements.
static inline pj_status submit(pj_device *device, pj_call *call, int64_t count) {
  const pj_plan *plan = NULL;
  PJ_TRY(pj_submit(device, call, &plan));
  if (plan) return NULL;
  pj_tensor_spec result = {.dtype = PJ_F32, .rank = 1, .sizes = {count}, .strides = {1}};
  PJ_TRY(pj_plan_create(device, call, &result, 1));
  PJ_TRY(pj_submit(device, call, &plan));
  CHECK(plan != NULL);
  return NULL;
}

// *out_storage = a + b, NULL after an error
static inline pj_status try_add(pj_storage *a, pj_storage *b, int64_t count, pj_storage **out_storage) {
  pj_device *device = pj_storage_device(a);
  pj_call call = {.op = pj_runtime_op(pj_device_runtime(device), "aten::add.Tensor")};
  put_vector(&call, a, count);
  put_vector(&call, b, count);
  pj_call_number_int(&call, 1, PJ_S64, PJ_WEIGHT_PYTHON);
  pj_status status = submit(device, &call, count);
  *out_storage = NULL;
  if (!status) {
    pj_value_retain(call.results[0]);
    *out_storage = pj_storage_create_with(device, call.results[0]);
  }
  pj_call_destroy(&call);
  return status;
}

static inline pj_storage *add(pj_storage *a, pj_storage *b, int64_t count) {
  pj_storage *sum;
  CHECK_OK(try_add(a, b, count, &sum));
  return sum;
}

// [a, b]
static inline pj_storage *join(pj_storage *a, int64_t a_count, pj_storage *b, int64_t b_count) {
  pj_device *device = pj_storage_device(a);
  pj_call call = {.op = pj_runtime_op(pj_device_runtime(device), "aten::cat")};
  pj_call_tensors(&call, 2);
  put_vector(&call, a, a_count);
  put_vector(&call, b, b_count);
  pj_call_int(&call, 0);
  CHECK_OK(submit(device, &call, a_count + b_count));
  pj_value *result = call.result_count ? call.results[0] : NULL;
  if (result) pj_value_retain(result);
  pj_call_destroy(&call);
  return result ? pj_storage_create_with(device, result) : NULL;
}

// storage[:] = storage[:] * number
static inline pj_status try_scale(pj_storage *storage, double number, int64_t count) {
  pj_device *device = pj_storage_device(storage);
  pj_call call = {.op = pj_runtime_op(pj_device_runtime(device), "aten::mul.Tensor"), .hold = true};
  int64_t one = 1;
  put_vector(&call, storage, count);
  pj_call_number_float(&call, number, PJ_F64, PJ_WEIGHT_PYTHON);
  pj_status status = submit(device, &call, count);
  if (!status) status = pj_storage_write(storage, call.results[0], &one, PJ_F32, 1, &count, &one, 0, 0);
  pj_call_destroy(&call);
  return status ? status : pj_device_end_op(device);
}

static inline void scale(pj_storage *storage, double number, int64_t count) { CHECK_OK(try_scale(storage, number, count)); }

static inline pj_counters counters_of(pj_runtime *runtime) {
  pj_counters counters;
  pj_runtime_counters(runtime, &counters);
  return counters;
}

#endif
