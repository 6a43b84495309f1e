// The CPU fallback: visible, counted, and never for random ops.
#include "kernel.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>

namespace torch_pjrt {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

namespace {

std::atomic<FallbackMode> g_mode{FallbackMode::kWarn};

struct Counts {
  std::mutex mutex;
  std::unordered_map<std::string, int64_t> by_op;
};
Counts &counts() {
  static auto *leaked = new Counts;
  return *leaked;
}

IValue to_cpu(const IValue &value) {
  auto move = [](const Tensor &tensor) { return tensor.defined() && on_device(tensor) ? read_tensor(tensor) : tensor; };
  if (value.isTensor()) return move(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor &tensor : value.toTensorVector()) list.push_back(move(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const IValue &element : value.toListRef())
      list.push_back(element.isNone() ? std::nullopt : std::optional<Tensor>(move(element.toTensor())));
    return list;
  }
  if (value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1) return c10::Device(c10::kCPU);
  return value;
}

IValue to_device(const IValue &value, c10::Device device) {
  auto move = [&](const Tensor &tensor) {
    return tensor.defined() && tensor.device().is_cpu() ? tensor.to(device) : tensor;
  };
  if (value.isTensor()) return move(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor &tensor : value.toTensorVector()) list.push_back(move(tensor));
    return list;
  }
  return value;
}

void write_back(const IValue &to, const IValue &from, bool resize) {
  if (to.isTensor() && to.toTensor().defined()) {
    const Tensor &target = to.toTensor(), &source = from.toTensor();
    if (resize && target.sizes() != source.sizes()) target.resize_(source.sizes());
    target.copy_(source);
  } else if (to.isTensorList()) {
    auto targets = to.toTensorVector(), sources = from.toTensorVector();
    for (size_t i = 0; i < targets.size(); ++i) write_back(targets[i], sources[i], resize);
  }
}

// The Python error that is set, when the user has made warnings errors.
python_error python_error_now() {
  python_error error;
  error.persist();
  return error;
}

// "aten::add.Tensor(f32[3], f32[3])": the op with its tensors.
std::string call_text(const Op &op, const Stack &arguments) {
  std::ostringstream text;
  const char *between = "";
  auto put = [&](const Tensor &tensor) {
    if (!tensor.defined()) return;
    text << between << pj_dtype_name(to_pj(tensor.scalar_type())) << "[";
    for (int64_t i = 0; i < tensor.dim(); ++i) text << (i ? "," : "") << tensor.size(i);
    text << "]";
    between = ", ";
  };
  text << op.name << "(";
  for (const IValue &value : arguments) {
    if (value.isTensor()) put(value.toTensor());
    if (value.isTensorList())
      for (const Tensor &tensor : value.toTensorVector()) put(tensor);
  }
  text << ")";
  return text.str();
}

void report(const Op &op, const Stack &arguments) {
  FallbackMode mode = g_mode;
  std::string hint = "; torch.tpu.fallbacks() lists such ops, torch.tpu.set_fallback() chooses what happens";
  TORCH_CHECK_NOT_IMPLEMENTED(!op.random, op.name, " is random and has no lowering for the tpu device; the CPU is not used "
                              "for it, since its generator would give other numbers");
  TORCH_CHECK_NOT_IMPLEMENTED(mode != FallbackMode::kError, op.name, " has no lowering for the tpu device", hint);
  bool first;
  {
    std::lock_guard lock(counts().mutex);
    first = counts().by_op[op.name]++ == 0;
  }
  pj_runtime_count_fallback(runtime());
  if (pj_trace_is_told(runtime(), PJ_SPAN_FALLBACK))
    pj_trace_fallback(runtime(), call_text(op, arguments).c_str());
  if (first && mode == FallbackMode::kWarn) {
    // Not TORCH_WARN: it reaches Python's warnings only on some ways into an op.
    pybind11::gil_scoped_acquire gil;
    std::string text = op.name + " has no lowering for the tpu device and runs on the CPU" + hint;
    if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1)) throw python_error_now();
  }
}

}  // namespace

FallbackMode fallback_mode() { return g_mode; }
void set_fallback_mode(FallbackMode mode) { g_mode = mode; }

std::unordered_map<std::string, int64_t> fallback_counts() {
  std::lock_guard lock(counts().mutex);
  return counts().by_op;
}

void reset_fallback_counts() {
  std::lock_guard lock(counts().mutex);
  counts().by_op.clear();
}

void run_on_cpu(Op &op, Stack *stack) {
  const auto &schema = op.handle.schema();
  size_t first = stack->size() - schema.arguments().size();
  std::vector<IValue> own(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  report(op, own);
  c10::Device device(c10::DeviceType::PrivateUse1, current_device());
  bool found = false;
  auto see = [&](const Tensor &tensor) {
    if (!found && tensor.defined() && on_device(tensor)) device = tensor.device(), found = true;
  };
  Stack moved;
  for (const IValue &value : own) {
    if (value.isTensor()) see(value.toTensor());
    if (value.isTensorList())
      for (const Tensor &tensor : value.toTensorVector()) see(tensor);
    moved.push_back(to_cpu(value));
  }
  std::vector<IValue> arguments = moved;
  op.handle.callBoxed(&moved);

  auto is_written = [&](size_t i) {
    const auto *alias = schema.arguments()[i].alias_info();
    if (alias && alias->isWrite()) return true;
    if (op.mutation && op.mutation->kind == Mutation::kHidden)
      for (int w = 0; w < op.mutation->write_count; ++w)
        if (op.mutation->writes[w].argument == static_cast<int>(i)) return true;
    return false;
  };
  for (size_t i = 0; i < own.size(); ++i)
    if (is_written(i)) write_back(own[i], arguments[i], schema.arguments()[i].is_out());

  stack->resize(first);
  for (size_t r = 0; r < moved.size(); ++r) {
    const auto *alias = schema.returns()[r].alias_info();
    bool returned = false;
    for (size_t i = 0; alias && i < own.size() && !returned; ++i) {
      const auto *other = schema.arguments()[i].alias_info();
      if (other && other->beforeSets() == alias->beforeSets()) {
        stack->push_back(own[i]);
        returned = true;
      }
    }
    if (!returned) stack->push_back(to_device(moved[r], device));
  }
}

}  // namespace torch_pjrt
