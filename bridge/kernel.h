// What the boxed kernel and the ways round it know of an op.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "bridge.h"

namespace torch_pjrt {

// A row of mutation_table.inc: what an overload writes, and the functional overload that computes it.
struct Mutation {
  enum Kind { kInPlace, kOut, kHidden, kMetadata, kNone };
  static constexpr int kOutDtype = -2;  // in `inputs`: the dtype of the out= argument
  const char *overload;
  Kind kind;
  const char *twin;
  int input_count;
  int8_t inputs[24];  // twin argument i is argument inputs[i] of the overload; -1: None
  int write_count;
  struct {
    int8_t argument, result;
  } writes[16];
  int condition;  // kHidden: the boolean argument that says whether it writes; else -1
};

enum class Kind : uint8_t {
  kTensor, kTensors, kNumber, kNumbers, kInt, kInts, kFloats, kBool, kBools, kString, kDtype, kLayout, kPinMemory, kDevice,
  kGenerator
};

// How an argument of the twin is written into the words.
struct Argument {
  Kind kind;
  int16_t source;   // argument of the overload; -1: None; Mutation::kOutDtype
  bool constant;    // a number that is part of the key
  bool shape_only;  // a tensor of which only dtype and sizes are
  bool number;      // a 0-d CPU tensor may stand here
};

constexpr uint32_t kDynamic = 4;  // pj_op_flags: result sizes depend on data
constexpr uint32_t PJ_OP_RANDOM = 1, PJ_OP_WRITES = 2;

// Of each return: none for a tensor (or list of them) that the program computes, else what is returned as it is: an
// undefined tensor or a number.
using Layout = std::vector<std::optional<c10::IValue>>;

struct Op {
  explicit Op(const c10::OperatorHandle &handle);
  void resolve();  // what the core knows of it: on first use, as it needs the runtime
  void remember(const pj_plan *plan, std::shared_ptr<const Layout> layout);
  std::shared_ptr<const Layout> layout(const pj_plan *plan);  // nullptr: all returns are the plan's results

  c10::OperatorHandle handle;
  std::string name;
  const Mutation *mutation = nullptr;
  std::vector<Argument> arguments;   // in the twin's order
  std::vector<bool> result_is_list;  // of the twin's returns
  int device = -1, generator = -1, output_mask = -1;  // argument positions
  bool supported = true;             // the core's words can say its arguments and results
  bool composite = false;            // PyTorch has a CompositeExplicitAutograd kernel
  bool numbers = false;              // takes 0-d CPU tensors as numbers
  bool indices = false;              // argument 1 is a list of index tensors
  bool random = false;
  bool range = false;                // arange: its numbers say its length

  const pj_op *twin = nullptr;   // the functional overload: itself, if it does not mutate
  const pj_op *plain = nullptr;  // of a hidden mutation: the op itself, when it does not write
  bool lowering = false, plain_lowering = false;
  uint32_t flags = 0;

 private:
  std::string twin_name_;
  std::once_flag resolved_;
  std::mutex layouts_mutex_;
  std::atomic<bool> has_layouts_{false};
  std::unordered_map<const pj_plan *, std::shared_ptr<const Layout>> layouts_;
};

void run_op(Op &op, torch::jit::Stack *stack);

// fallback.cpp: runs the op on the CPU with copies of its arguments, and says so.
void run_on_cpu(Op &op, torch::jit::Stack *stack);

}  // namespace torch_pjrt
