// Trains a network of two layers in C alone, on any PJRT plugin: which of 400 points lie in the first or third quadrant.
//
//   mlp [plugin.so]     or PJ_PLUGIN=plugin.so mlp
//
// First op by op, then the same with a training step fused into one program. Ends with status 1 when it does not learn.
#include <math.h>
#include <pj/run.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 400, HIDDEN = 1024, STEPS = 400, REPORT_EVERY = 100, SKIPPED = 77, PATH_ROOM = 4096 };

static const double LEARNING_RATE = 0.3;
static pj_device *device;

static void must(pj_status status) {
  if (!status) return;
  fprintf(stderr, "mlp: %s\n", pj_status_text(status));
  exit(1);
}

// ---- tensors --------------------------------------------------------------------------------------------------------

// A matrix or vector of float32, as PyTorch sees it: a strided view of a storage.
typedef struct tensor {
  pj_storage *storage;
  int rank;
  int64_t sizes[2], strides[2];
} tensor;

static tensor matrix(pj_storage *storage, int64_t rows, int64_t columns) {
  return (tensor){storage, 2, {rows, columns}, {columns, 1}};
}

static tensor vector(pj_storage *storage, int64_t count) { return (tensor){storage, 1, {count}, {1}}; }

// The same memory, read the other way round.
static tensor transposed(tensor t) {
  return (tensor){t.storage, 2, {t.sizes[1], t.sizes[0]}, {t.strides[1], t.strides[0]}};
}

static pj_storage *to_device(const float *data, int64_t count) {
  pj_value *value;
  must(pj_value_from_host(device, data, PJ_F32, 1, &count, &value));
  return pj_storage_create_with(device, value);
}

static void to_host(tensor t, float *out_data) {
  pj_value *value = pj_storage_value(t.storage);
  must(pj_value_to_host(device, value, out_data));
  pj_value_release(value);
}

// ---- ops ------------------------------------------------------------------------------------------------------------

static pj_call begin(const char *overload) {
  return (pj_call){.op = pj_runtime_op(pj_device_runtime(device), overload)};
}

static void put(pj_call *call, tensor t) {
  pj_call_tensor(call, t.storage, PJ_F32, t.rank, t.sizes, t.strides, 0, 0);
}

// Queues the op; its only result has the type of `shape`. The first time its plan is made.
static void submit(pj_call *call, tensor shape) {
  const pj_plan *plan;
  must(pj_submit(device, call, &plan));
  if (plan) return;
  pj_tensor_spec spec = {.dtype = PJ_F32, .rank = shape.rank};
  for (int i = 0; i < shape.rank; ++i) {
    spec.sizes[i] = shape.sizes[i];
    spec.strides[i] = shape.strides[i];
  }
  must(pj_plan_create(device, call, &spec, 1));
  must(pj_submit(device, call, &plan));
}

// Ends the call and gives its result, which the caller releases.
static tensor result(pj_call *call, tensor shape) {
  submit(call, shape);
  pj_value_retain(call->results[0]);
  shape.storage = pj_storage_create_with(device, call->results[0]);
  pj_call_destroy(call);
  return shape;
}

static tensor addmm(tensor bias, tensor a, tensor b) {
  pj_call call = begin("aten::addmm");
  put(&call, bias);
  put(&call, a);
  put(&call, b);
  pj_call_float(&call, 1);  // beta and alpha
  pj_call_float(&call, 1);
  return result(&call, matrix(NULL, a.sizes[0], b.sizes[1]));
}

static tensor mm(tensor a, tensor b) {
  pj_call call = begin("aten::mm");
  put(&call, a);
  put(&call, b);
  return result(&call, matrix(NULL, a.sizes[0], b.sizes[1]));
}

static tensor unary(const char *overload, tensor x) {
  pj_call call = begin(overload);
  put(&call, x);
  return result(&call, matrix(NULL, x.sizes[0], x.sizes[1]));
}

// a + alpha * b
static tensor add(tensor a, tensor b, double alpha) {
  pj_call call = begin("aten::add.Tensor");
  put(&call, a);
  put(&call, b);
  pj_call_number_float(&call, alpha, PJ_F64, PJ_WEIGHT_PYTHON);
  return result(&call, matrix(NULL, a.sizes[0], a.sizes[1]));
}

// gradient where the activation is above zero, else 0
static tensor relu_backward(tensor gradient, tensor activation) {
  pj_call call = begin("aten::threshold_backward");
  put(&call, gradient);
  put(&call, activation);
  pj_call_number_float(&call, 0, PJ_F64, PJ_WEIGHT_PYTHON);
  return result(&call, matrix(NULL, gradient.sizes[0], gradient.sizes[1]));
}

static tensor sum_rows(tensor x) {
  pj_call call = begin("aten::sum.dim_IntList");
  put(&call, x);
  pj_call_ints(&call, (int64_t[]){0}, 1);
  pj_call_bool(&call, false);  // keepdim
  pj_call_none(&call);         // dtype
  return result(&call, vector(NULL, x.sizes[1]));
}

// parameter -= rate * gradient. The new value is written over the old one, whose buffer is donated to the program.
static void descend(tensor parameter, tensor gradient, double rate) {
  pj_call call = begin("aten::add.Tensor");
  call.hold = true;
  put(&call, parameter);
  put(&call, gradient);
  pj_call_number_float(&call, -rate, PJ_F64, PJ_WEIGHT_PYTHON);
  submit(&call, parameter);
  must(pj_storage_write(parameter.storage, call.results[0], parameter.strides, PJ_F32, parameter.rank, parameter.sizes,
                        parameter.strides, 0, 0));
  pj_call_destroy(&call);
  must(pj_device_end_op(device));
}

// ---- the task -------------------------------------------------------------------------------------------------------

// Uniform in [-1, 1): the upper bits of a linear congruential generator (Knuth's MMIX constants).
static uint64_t random_state;

static float uniform(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (float)(random_state >> 40) / (1 << 23) - 1;
}

static pj_storage *uniform_storage(int64_t count, double scale) {
  float *data = malloc((size_t)count * sizeof *data);
  if (!data) exit(1);
  for (int64_t i = 0; i < count; ++i) data[i] = (float)scale * uniform();
  pj_storage *storage = to_device(data, count);
  free(data);
  return storage;
}

typedef struct network { tensor w1, b1, w2, b2; } network;

// One step of gradient descent on the mean binary cross-entropy. Gives the probabilities before it.
static tensor step(const network *net, tensor x, tensor y) {
  tensor h1 = addmm(net->b1, x, net->w1), a = unary("aten::relu", h1);
  tensor z = addmm(net->b2, a, net->w2), p = unary("aten::sigmoid", z);
  tensor dz = add(p, y, -1);  // of the summed loss; the mean's 1 / POINTS goes into the rate
  tensor da = mm(dz, transposed(net->w2)), dh1 = relu_backward(da, a);
  tensor dw2 = mm(transposed(a), dz), db2 = sum_rows(dz), dw1 = mm(transposed(x), dh1), db1 = sum_rows(dh1);
  const double rate = LEARNING_RATE / POINTS;
  descend(net->w1, dw1, rate);
  descend(net->b1, db1, rate);
  descend(net->w2, dw2, rate);
  descend(net->b2, db2, rate);
  tensor temporaries[] = {h1, a, z, dz, da, dh1, dw2, db2, dw1, db1};
  for (size_t i = 0; i < sizeof temporaries / sizeof *temporaries; ++i) pj_storage_release(temporaries[i].storage);
  return p;
}

static double loss_of(const float *probabilities, const float *labels, double *out_accuracy) {
  double loss = 0, right = 0;
  for (int i = 0; i < POINTS; ++i) {
    double p = labels[i] > 0 ? probabilities[i] : 1 - probabilities[i];
    loss -= log(fmax(p, 1e-12)) / POINTS;
    right += p > 0.5;
  }
  *out_accuracy = right / POINTS;
  return loss;
}

// Trains with regions of `length` ops and prints what it took. Whether it learned.
static bool train(pj_runtime *runtime, int length) {
  random_state = 1;
  float points[2 * POINTS], labels[POINTS], probabilities[POINTS];
  for (int i = 0; i < POINTS; ++i) {
    points[2 * i] = uniform();
    points[2 * i + 1] = uniform();
    labels[i] = points[2 * i] * points[2 * i + 1] > 0 ? 1.0f : 0.0f;
  }
  pj_runtime_set_eager(runtime, length > 1 ? PJ_EAGER_FUSED : PJ_EAGER_STRICT, length);
  pj_runtime_reset_counters(runtime);
  tensor x = matrix(to_device(points, 2 * POINTS), POINTS, 2), y = matrix(to_device(labels, POINTS), POINTS, 1);
  network net = {matrix(uniform_storage(2 * HIDDEN, 1), 2, HIDDEN), vector(uniform_storage(HIDDEN, 1), HIDDEN),
                 matrix(uniform_storage(HIDDEN, 1 / sqrt(HIDDEN)), HIDDEN, 1), vector(uniform_storage(1, 0), 1)};
  double first = 0, loss = 0, accuracy = 0;
  for (int i = 0; i <= STEPS; ++i) {
    tensor p = step(&net, x, y);
    if (i % REPORT_EVERY == 0) {
      to_host(p, probabilities);
      loss = loss_of(probabilities, labels, &accuracy);
      if (i == 0) first = loss;
      printf("  step %3d  loss %.4f  accuracy %.3f\n", i, loss, accuracy);
    }
    pj_storage_release(p.storage);
    must(pj_device_synchronize(device, false));  // ends the region: the next step finds the same program
  }
  pj_counters counters;
  pj_runtime_counters(runtime, &counters);
  printf("  %llu compiles, %llu executions, %llu buffers donated\n", (unsigned long long)counters.compiles,
         (unsigned long long)counters.executions, (unsigned long long)counters.donations);
  tensor all[] = {x, y, net.w1, net.b1, net.w2, net.b2};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) pj_storage_release(all[i].storage);
  return loss < first / 2 && accuracy > 0.95 && counters.donations > 0;
}

int main(int count, char **arguments) {
  const char *plugin = count > 1 ? arguments[1] : getenv("PJ_PLUGIN");
  if (!plugin || !*plugin) {
    printf("skipped: give a PJRT plugin's file, or set PJ_PLUGIN\n");
    return SKIPPED;
  }
  char worker[PATH_ROOM];
  must(pj_default_worker_path(worker, sizeof worker));
  pj_runtime *runtime;
  must(pj_runtime_create(&(pj_runtime_options){.plugin_path = plugin, .worker_path = worker}, &runtime));
  device = pj_runtime_device(runtime, 0);
  printf("op by op:\n");
  bool learned = train(runtime, 1);
  printf("a program for each step:\n");
  learned &= train(runtime, 64);
  pj_runtime_destroy(runtime);
  return !learned;
}
