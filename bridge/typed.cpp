// Kernels with the C++ signature of their op, for the commonest signatures.
//
// PyTorch boxes the arguments of a boxed kernel: each tensor on the stack is a reference. In torch 2.13 the second
// reference to a tensor that Python knows must keep its Python object alive, and takes the GIL to do so; giving it up
// takes it again. That is 0.12 us a tensor. A typed kernel lends its caller's tensors to the stack instead.
#include "kernel.h"

#include <ATen/core/boxing/KernelFunction.h>

namespace torch_pjrt {

using at::Tensor;
using c10::IValue;
using c10::Scalar;
using c10::TypeKind;

namespace {

IValue lend(const Tensor &tensor) { return c10::MaybeOwnedTraits<Tensor>::createBorrow(tensor); }
template <typename T>
IValue lend(const T &value) { return value; }

// What an argument of this C++ type is in a schema. A written tensor is a Tensor &, all others are const.
template <typename T>
constexpr TypeKind kKind = TypeKind::AnyType;
template <>
constexpr TypeKind kKind<const Tensor &> = TypeKind::TensorType;
template <>
constexpr TypeKind kKind<Tensor &> = TypeKind::TensorType;
template <>
constexpr TypeKind kKind<Tensor> = TypeKind::TensorType;
template <>
constexpr TypeKind kKind<const Scalar &> = TypeKind::NumberType;
template <>
constexpr TypeKind kKind<int64_t> = TypeKind::IntType;
template <>
constexpr TypeKind kKind<double> = TypeKind::FloatType;
template <>
constexpr TypeKind kKind<bool> = TypeKind::BoolType;

template <typename T>
bool fits(const c10::Argument &argument) {
  bool written = argument.alias_info() && argument.alias_info()->isWrite();
  return argument.real_type()->kind() == kKind<T> && written == std::is_same_v<T, Tensor &> && !argument.is_out();
}

template <typename Signature>
struct Typed;

template <typename Result, typename... Arguments>
struct Typed<Result(Arguments...)> final : c10::OperatorKernel {
  explicit Typed(Op &op) : op(op) {}

  Result operator()(Arguments... arguments) {
    Run run(op);
    run.stack.reserve(sizeof...(Arguments));
    (run.stack.push_back(lend(arguments)), ...);
    run_op(run);
    if constexpr (std::is_same_v<Result, Tensor &>) return std::get<0>(std::tie(arguments...));
    else return std::move(run.stack.back()).toTensor();
  }

  static bool matches(const c10::FunctionSchema &schema) {
    const auto &all = schema.arguments();
    size_t i = 0;
    return all.size() == sizeof...(Arguments) && schema.returns().size() == 1 && fits<Result>(schema.returns()[0]) &&
           (fits<Arguments>(all[i++]) && ...);
  }

  Op &op;
};

// The kernel for the first signature that is the schema's.
template <typename... Signatures>
std::optional<TypedKernel> first_of(const c10::FunctionSchema &schema, Op &op) {
  std::optional<TypedKernel> found;
  auto consider = [&]<typename Signature>(Signature *) {
    if (found || !Typed<Signature>::matches(schema)) return;
    auto kernel = std::make_unique<Typed<Signature>>(op);
    found = {c10::KernelFunction::makeFromUnboxedFunctor<false, Typed<Signature>>(std::move(kernel)),
             c10::impl::CppSignature::make<Signature>()};
  };
  (consider(static_cast<Signatures *>(nullptr)), ...);
  return found;
}

}  // namespace

std::optional<TypedKernel> typed_kernel(const c10::FunctionSchema &schema, Op &op) {
  using T = const Tensor &;
  using S = const Scalar &;
  return first_of<Tensor(T), Tensor(T, S), Tensor(T, T), Tensor(T, T, S), Tensor(T, S, S), Tensor(T, T, T),
                  Tensor(T, T, T, S), Tensor(T, T, T, S, S), Tensor(T, int64_t, bool), Tensor(T, S, bool),
                  Tensor(T, T, S, bool), Tensor &(Tensor &), Tensor &(Tensor &, S), Tensor &(Tensor &, T),
                  Tensor &(Tensor &, T, S), Tensor &(Tensor &, S, S), Tensor &(Tensor &, T, T),
                  Tensor &(Tensor &, T, T, S)>(schema, op);
}

}  // namespace torch_pjrt
