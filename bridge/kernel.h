// What the boxed kernel and the ways round it know of an op.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
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
  int16_t source;           // argument of the overload; -1: None; Mutation::kOutDtype
  bool constant = false;    // a number that is part of the key
  bool special = false;     // a number that is where pj_number_is_special
  bool shape_only = false;  // a tensor of which only dtype and sizes are
  bool dtype_only = false;  // and of these not the sizes
  bool lengths = false;     // integers of which only the largest is
  bool number = false;      // a 0-d CPU tensor may stand here
  // A number that is the schema's default (alpha=1) is part of the key: programs without it are smaller, and there are
  // at most two.
  std::optional<c10::IValue> usual;
};

constexpr uint32_t kDynamic = 4;  // pj_op_flags: result sizes depend on data
constexpr uint32_t PJ_OP_RANDOM = 1, PJ_OP_WRITES = 2;

// Of each return: none for a tensor (or list of them) that the program computes, else what is returned as it is: an
// undefined tensor or a number.
using Layout = std::vector<std::optional<c10::IValue>>;

struct NumberRule {
  enum class Demand;
  const char *op;
  size_t argument;
  Demand demand;
  const char *refusal = "";  // PyTorch's sentence, up to the number
};

// What an op asks of memory that its written arguments share.
struct OverlapRule {
  bool may_share = false;  // elements of the target may share their memory
  uint32_t apart = 0;      // bits of the twin's arguments that may have none of the target's memory
};

struct Op {
  explicit Op(const c10::OperatorHandle &handle);
  void resolve() { if (C10_UNLIKELY(!is_resolved_.load(std::memory_order_acquire))) ask_core(); }
  void remember(const pj_plan *plan, std::shared_ptr<const Layout> layout);
  std::shared_ptr<const Layout> layout(const pj_plan *plan);  // nullptr: all returns are the plan's results
  // Keys (the words of calls) that no decomposition was found for.
  bool is_hopeless(const std::string &key);
  void give_up(const std::string &key);

  c10::OperatorHandle handle;
  std::string name;
  size_t argument_count = 0, return_count = 0;  // of the schema
  const Mutation *mutation = nullptr;
  std::vector<Argument> arguments;   // in the twin's order
  std::vector<bool> result_is_list;  // of the twin's returns
  int device = -1, generator = -1, output_mask = -1;  // argument positions
  bool supported = true;             // the core's words can say its arguments and results
  bool composite = false;            // PyTorch has a CompositeExplicitAutograd kernel
  bool numbers = false;              // takes 0-d CPU tensors as numbers
  bool indices = false;              // argument 1 is a list of index tensors
  bool random = false;
  bool foreach = false;              // of lists whose tensors may be on several devices
  bool range = false;                // arange: its numbers say its length
  bool has_lengths = false;          // some argument is lengths

  const NumberRule *number_rule = nullptr;
  OverlapRule overlap;

  const std::string &twin_name() const { return twin_name_; }
  const pj_op *twin = nullptr;   // the functional overload: itself, if it does not mutate
  const pj_op *plain = nullptr;  // of a hidden mutation: the op itself, when it does not write
  bool lowering = false, plain_lowering = false;
  uint32_t flags = 0;

 private:
  void ask_core();  // what the core knows of it: on first use, as it needs the runtime

  std::string twin_name_;
  std::once_flag resolved_;
  std::atomic<bool> is_resolved_{false};
  std::mutex mutex_;
  std::atomic<bool> has_layouts_{false};
  std::unordered_map<const pj_plan *, std::shared_ptr<const Layout>> layouts_;
  std::unordered_set<std::string> hopeless_;
};

// One run of an op: its arguments, the last on the stack, are replaced by its results.
struct Run {
  Run(Op &op, torch::jit::Stack &stack) : op(op), stack(stack), first(stack.size() - op.argument_count) {}
  // With the call's own stack. Tensors among the arguments are lent: the caller holds them, the stack does not.
  explicit Run(Op &op) : op(op), stack(call.stack()), first(0), lent(true) {}
  ~Run() { if (lent) drop(); }
  Run(const Run &) = delete;
  Run &operator=(const Run &) = delete;

  c10::IValue &argument(size_t i) { return stack[first + i]; }
  bool lowered() const { return op.lowering || (op.plain_lowering && !mutates); }
  void own();   // the arguments, if they are lent: before they are given to PyTorch
  void drop();  // takes the arguments off the stack

  Op &op;
  Call call;
  torch::jit::Stack &stack;
  size_t first;                          // of the arguments on the stack
  bool lent = false;
  bool mutates = false;                  // results are written into arguments
  c10::DeviceIndex index = -1;           // the one device of all tensors; -1: not known yet
  std::shared_ptr<const Layout> layout;  // of a new plan
};

// With lent arguments an op that mutates leaves nothing on the stack: its results are the caller's own tensors.
void run_op(Run &run);

// ---- typed.cpp ------------------------------------------------------------------------------------------------------

struct TypedKernel {
  c10::KernelFunction kernel;
  c10::impl::CppSignature signature;
};
// nullopt: the schema has none of the signatures that have typed kernels.
std::optional<TypedKernel> typed_kernel(const c10::FunctionSchema &schema, Op &op);

// ---- words.cpp ------------------------------------------------------------------------------------------------------

[[noreturn]] void mixed_devices(const Op &op, const c10::Device &a, const c10::Device &b);

// Writes arguments into the words of a call, and checks that all tensors are on one device.
class Writer {
 public:
  Writer(const Op &op, pj_call *call) : op_(op), call_(call) {}
  virtual ~Writer() = default;
  void write(const Argument &argument, const c10::IValue &value);
  c10::DeviceIndex index = -1;  // of the tensors that were written

 protected:
  virtual void device_tensor(const Argument &argument, const at::Tensor &tensor);
  virtual void number_written() {}
  const Op &op_;
  pj_call *call_;

 private:
  void tensor(const Argument &argument, const at::Tensor &tensor);
  void number(const c10::Scalar &value, pj_dtype own, int weight);
  void scalar(const c10::Scalar &value, bool constant);
};

// ---- numbers.cpp ----------------------------------------------------------------------------------------------------

const NumberRule *find_number_rule(const std::string &name);  // of an overload; nullptr: it takes any number
void check_numbers(Run &run);  // of an op with a rule; throws what the CPU throws

// ---- overlap.cpp ----------------------------------------------------------------------------------------------------

OverlapRule find_overlap_rule(const std::string &name);  // of an overload
void check_overlap(Run &run);                            // of a run that writes; throws what the CPU throws
// Runs an op whose target's elements share memory, where writing the last of them is not what the op means.
bool run_shared_write(Run &run);

// ---- dtypes.cpp -----------------------------------------------------------------------------------------------------

enum class WrittenTypes { kAny, kCast, kExact };  // what a written argument's type must be able to do with the result's
void check_same_types(Run &run);                  // throws for arguments of different types where the op wants one
WrittenTypes written_types(const Run &run);
// `arguments` of the overload against the `results` of its twin.
void check_written_types(Run &run, const std::vector<c10::IValue> &arguments, const torch::jit::Stack &results,
                         WrittenTypes demand);

// ---- refusals.cpp ---------------------------------------------------------------------------------------------------

void check_refusals(Run &run);  // throws what the CPU throws, where PyTorch's meta kernel says it otherwise

// ---- meta.cpp -------------------------------------------------------------------------------------------------------

struct Meta {
  std::vector<pj_tensor_spec> specs;     // of the plan's results
  std::shared_ptr<const Layout> layout;  // nullptr: the op returns just these
};
// nullopt: PyTorch has no meta kernel, or it would have to know values. Throws what the arguments deserve.
std::optional<Meta> run_meta(Run &run);
pj_tensor_spec spec_of(c10::ScalarType type, c10::IntArrayRef sizes, c10::IntArrayRef strides);

// ---- kernel.cpp -----------------------------------------------------------------------------------------------------

// Result i of a submitted call, as a tensor.
at::Tensor take_result(pj_call *call, const pj_plan *plan, size_t i, c10::DeviceIndex index);
// Elements of the largest result: how many numbers a random op takes from the generator.
uint64_t largest_result(const pj_tensor_spec *specs, size_t count);

// ---- op.cpp ---------------------------------------------------------------------------------------------------------

Op *find_op(const std::string &name);  // of an ATen or other overload, by its full name; nullptr: there is none

// ---- decompose.cpp --------------------------------------------------------------------------------------------------

// Makes the plan of the call from PyTorch's decomposition of the op, as one program. False: it has none that the core
// can lower; remembered for the key.
bool decompose(Run &run, pj_call *call, const std::optional<Meta> &meta);

// ---- fallback.cpp ---------------------------------------------------------------------------------------------------

// Runs the op on the CPU with copies of its arguments, and says so.
void run_on_cpu(Op &op, torch::jit::Stack *stack);

}  // namespace torch_pjrt
