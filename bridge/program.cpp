// A traced graph as one program: what torch.compile runs. The layouts of its inputs are the key, as for every op; a key
// that was not met before is traced by torch_pjrt.compile, which calls back through a Builder.
#include "program.h"

#include <torch/csrc/autograd/python_variable.h>

#include "decompose.h"

namespace torch_pjrt {

namespace py = pybind11;
using at::Tensor;

Program::Program(const std::string &name, py::function trace, size_t draws)
    : op_(pj_runtime_op(runtime(), name.c_str())), trace_(std::move(trace)), draws_(draws) {}

namespace {

// How each output is given back: a result of the program, or what the trace gave itself (None, a number).
void describe(const py::list &outputs, const py::list &written, Traced *traced, std::vector<Tensor> *results) {
  for (const auto &output : outputs) {
    bool tensor = THPVariable_Check(output.ptr());
    traced->outputs.push_back(tensor ? py::object() : py::reinterpret_borrow<py::object>(output));
    if (tensor) results->push_back(THPVariable_Unpack(output.ptr()));
  }
  for (const auto &pair : written) {
    auto item = py::cast<py::tuple>(pair);
    traced->writes.push_back({py::cast<size_t>(item[0]), results->size()});
    results->push_back(THPVariable_Unpack(item[1].ptr()));
  }
}

}  // namespace

const Traced &Program::traced(pj_device *device, pj_call *call, const py::list &inputs) {
  std::string key(reinterpret_cast<const char *>(call->words), call->word_count * sizeof *call->words);
  auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  Traced traced;
  std::vector<Tensor> results;
  std::vector<pj_tensor_spec> specs;
  Builder builder(call);
  for (size_t i = 0; i < draws_; ++i)
    builder.draw(call->operand_count + static_cast<uint32_t>(2 * i));  // the tensors stand before them
  py::tuple answer = trace_(py::cast(&builder, py::return_value_policy::reference), inputs);
  describe(answer[0], answer[1], &traced, &results);
  for (const Tensor &result : results) specs.push_back(dense_spec_of(result));
  traced.results = results.size();
  traced.draws = builder.drawn();
  if (!results.empty()) builder.finish(device, call, results, specs);
  return known_.emplace(std::move(key), std::move(traced)).first->second;
}

py::list Program::run(const py::list &inputs) {
  Call call(op_);
  c10::DeviceIndex index = -1;
  for (const auto &input : inputs) {
    if (THPVariable_Check(input.ptr())) {
      const Tensor &tensor = THPVariable_Unpack(input.ptr());
      TORCH_CHECK(on_device(tensor), "an input of a compiled program is on ", tensor.device());
      TORCH_CHECK(index < 0 || index == tensor.device().index(), "inputs of a compiled program are on tpu:",
                  static_cast<int>(index), " and ", tensor.device());
      index = tensor.device().index();
      write_tensor(call, tensor);
    } else if (py::isinstance<py::float_>(input)) {
      pj_call_float(call, py::cast<double>(input));
    } else if (input.is_none()) {
      pj_call_none(call);
    } else {
      pj_call_int(call, py::cast<int64_t>(input));
    }
  }
  if (index < 0) index = current_device();
  pj_device *device = device_at(index);
  Seed seed{};
  if (draws_) seed = read_seed({}, index);
  for (size_t i = 0; i < draws_; ++i) {
    pj_call_number_int(call, static_cast<int64_t>(seed.seed), PJ_S64, PJ_WEIGHT_PYTHON);
    pj_call_number_int(call, static_cast<int64_t>(seed.offset), PJ_S64, PJ_WEIGHT_PYTHON);
  }
  const Traced &known = traced(device, call, inputs);
  uint64_t drawn = 0;
  for (size_t i = 0; i < known.draws.size(); ++i) {  // each draw begins where the one before ended, as in eager
    call->ints[2 * i + 1] += static_cast<int64_t>(drawn);
    drawn += known.draws[i];
  }
  py::list outputs;
  const pj_plan *plan = nullptr;
  if (known.results) {
    call->hold = !known.writes.empty();
    check(pj_submit(device, call, &plan));
    TORCH_INTERNAL_ASSERT(plan, "the program that was just traced is not found");
  }
  size_t next = 0;
  for (const py::object &other : known.outputs)
    outputs.append(other ? other : py::cast(take_result(call, plan, next++, index)));
  for (const auto &write : known.writes) {
    const Tensor &target = THPVariable_Unpack(py::handle(inputs[write.input]).ptr());
    write_held(target, call->results[write.result], pj_plan_result(plan, write.result)->strides);
  }
  if (!known.writes.empty()) {
    pj_call_clear(call);  // the call's references would keep the old values from being donated
    check(pj_device_end_op(device));
  }
  if (drawn) advance_seed({}, index, drawn);
  return outputs;
}

}  // namespace torch_pjrt
