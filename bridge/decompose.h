// A program of several ops, built while PyTorch's decomposition of an op runs over fake tensors.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "kernel.h"

namespace torch_pjrt {

// A fake tensor is a view of its storage, and a storage is a value of the program: the same rule as for real tensors.
class Builder {
 public:
  explicit Builder(const pj_call *call);
  ~Builder();
  Builder(const Builder &) = delete;
  Builder &operator=(const Builder &) = delete;

  // For Python: the fake tensor stands for the call's operand of that number, or for memory that nobody wrote.
  void input(const at::Tensor &fake, uint32_t operand);
  void empty(const at::Tensor &fake);
  // Two more operands of the call, from `operand` on, are the seed and offset of one random op.
  void draw(uint32_t operand) { draws_.push_back(operand); }
  // How many numbers each random op that was appended takes.
  const std::vector<uint64_t> &drawn() const { return drawn_; }
  // Whether the storage of an input was written.
  bool changed(const at::Tensor &fake) const;
  // Whether node() may be called for the overload: it has a lowering, or an in-place form of one.
  bool can_lower(const std::string &name);
  // Appends the op; `arguments` in the order of its schema, `results` the fake tensors that it gives.
  void node(const std::string &name, const pybind11::list &arguments, const std::vector<at::Tensor> &results);

  uint32_t write_tensor(pj_call *call, const at::Tensor &tensor);  // appends a TENSOR; gives its value
  // Makes the plan of the call, with these results.
  void finish(pj_device *device, const pj_call *call, const std::vector<at::Tensor> &outputs,
              const std::vector<pj_tensor_spec> &specs);

 private:
  static constexpr uint32_t kZeros = UINT32_MAX;
  void hold(const at::Tensor &tensor, uint32_t value);
  void write(const at::Tensor &target, uint32_t source, const pj_tensor_spec &spec);
  pj_builder *builder_ = nullptr;
  std::unordered_map<const c10::StorageImpl *, uint32_t> values_;
  std::unordered_map<const c10::StorageImpl *, uint32_t> inputs_;
  std::vector<c10::Storage> held_;  // so that no address is used twice
  std::vector<uint32_t> draws_;
  std::vector<uint64_t> drawn_;
};

// Dense: the tensor's own strides, or row-major ones where those have gaps.
pj_tensor_spec dense_spec_of(const at::Tensor &tensor);

void note_failure(const std::string &op, const std::string &reason);  // torch_pjrt.decompose.failures

}  // namespace torch_pjrt
