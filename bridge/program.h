// A traced graph that is called like a function: torch.compile.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "kernel.h"

namespace torch_pjrt {

// What a trace for one key says of the program's results.
struct Traced {
  std::vector<pybind11::object> outputs;  // empty: the next result; else what is returned as it is
  struct Write {
    size_t input, result;
  };
  std::vector<Write> writes;              // inputs that the graph writes, and the results that they take
  size_t results;                         // of the program, those that are written included
  std::vector<uint64_t> draws;            // random numbers that each draw takes from the generator
};

class Program {
 public:
  // `trace(builder, inputs)` gives (outputs, written): fake tensors, None and numbers, and a list of (input, fake tensor).
  // `draws`: random ops at most. `name` is what explain() says.
  Program(const std::string &name, pybind11::function trace, size_t draws);
  // Inputs: tensors of one tpu device, ints, floats, None. Holds the GIL, as all that it keeps is Python's.
  pybind11::list run(const pybind11::list &inputs);

 private:
  const Traced &traced(pj_device *device, pj_call *call, const pybind11::list &inputs);
  const pj_op *op_;
  pybind11::function trace_;
  size_t draws_;
  std::unordered_map<std::string, Traced> known_;  // by the words of the call
};

}  // namespace torch_pjrt
