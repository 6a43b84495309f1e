// Numbers that an op refuses. They are run-time inputs of its program, and PyTorch's meta kernel, which is asked once a
// key, knows few of them: so they are checked here at every call.
#include "kernel.h"

#include <c10/core/ScalarTypeToTypeMeta.h>

namespace torch_pjrt {

using c10::IValue;
using c10::Scalar;
using c10::ScalarType;

enum class NumberRule::Demand { kNotNegative, kPositive, kProbability, kOpenProbability, kNotAbove, kFits, kIntegerPower };

namespace {

using Demand = NumberRule::Demand;

// As aten/src/ATen/native/DistributionTemplates.h, Dropout.cpp, Activation.cpp and Fill.cpp check (torch 2.13).
const NumberRule kRules[] = {
    {"aten::normal_", 2, Demand::kNotNegative},
    {"aten::normal_functional", 2, Demand::kNotNegative},
    {"aten::normal.Tensor_float", 1, Demand::kNotNegative},
    {"aten::normal.float_float", 1, Demand::kNotNegative},
    {"aten::log_normal", 2, Demand::kPositive},
    {"aten::log_normal_", 2, Demand::kPositive},
    {"aten::cauchy", 2, Demand::kPositive},
    {"aten::cauchy_", 2, Demand::kPositive},
    {"aten::exponential", 1, Demand::kPositive},
    {"aten::exponential_", 1, Demand::kPositive},
    {"aten::geometric", 1, Demand::kOpenProbability},
    {"aten::geometric_", 1, Demand::kOpenProbability},
    {"aten::bernoulli.p", 1, Demand::kProbability},
    {"aten::bernoulli_.float", 1, Demand::kProbability},
    {"aten::native_dropout", 1, Demand::kProbability},
    {"aten::uniform", 1, Demand::kNotAbove},
    {"aten::uniform_", 1, Demand::kNotAbove},
    {"aten::rrelu_with_noise", 2, Demand::kNotAbove},
    {"aten::rrelu_with_noise_", 2, Demand::kNotAbove},
    {"aten::pow.Tensor_Scalar", 1, Demand::kIntegerPower},
    {"aten::pow.Tensor_Scalar_out", 1, Demand::kIntegerPower},
    {"aten::pow_.Scalar", 1, Demand::kIntegerPower},
    {"aten::_foreach_pow.Scalar", 1, Demand::kIntegerPower},
    {"aten::_foreach_pow_.Scalar", 1, Demand::kIntegerPower},
    {"aten::full", 1, Demand::kFits},
    {"aten::full_like", 1, Demand::kFits},
    {"aten::fill.Scalar", 1, Demand::kFits},
    {"aten::fill_.Scalar", 1, Demand::kFits},
    {"aten::masked_fill.Scalar", 2, Demand::kFits},
    {"aten::masked_fill_.Scalar", 2, Demand::kFits},
};

// Of the tensor that the number is written into; nullopt: its own.
std::optional<ScalarType> target_type(Run &run) {
  const auto &schema = run.op.handle.schema();
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    if (schema.arguments()[i].name() == "dtype" && !run.argument(i).isNone()) return run.argument(i).toScalarType();
  if (run.argument(0).isTensor()) return run.argument(0).toTensor().scalar_type();
  return std::nullopt;
}

// Scalar::to checks the range.
void check_fits(const Scalar &number, ScalarType type) {
  switch (type) {
#define FITS(T, name) \
  case ScalarType::name: (void)number.to<T>(); break;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(FITS)
#undef FITS
    default: break;
  }
}

void check_power(Run &run, const Scalar &exponent) {
  if (!exponent.isIntegral(/*includeBool=*/true) || exponent.toLong() >= 0) return;
  auto check = [](const at::Tensor &base) {
    TORCH_CHECK(!c10::isIntegralType(base.scalar_type(), /*includeBool=*/true),
                "Integers to negative integer powers are not allowed.");
  };
  if (run.argument(0).isTensor()) return check(run.argument(0).toTensor());
  for (const at::Tensor &base : run.argument(0).toTensorVector()) check(base);
}

}  // namespace

const NumberRule *find_number_rule(const std::string &name) {
  for (const NumberRule &rule : kRules)
    if (name == rule.op) return &rule;
  return nullptr;
}

void check_numbers(Run &run) {
  const NumberRule &rule = *run.op.number_rule;
  const IValue &value = run.argument(rule.argument);
  if (value.isNone() || value.isTensor()) return;
  Scalar number = value.toScalar();
  if (rule.demand == Demand::kFits) {
    if (auto type = target_type(run)) check_fits(number, *type);
    return;
  }
  if (rule.demand == Demand::kIntegerPower) return check_power(run, number);
  const auto &arguments = run.op.handle.schema().arguments();
  double x = number.toDouble();
  auto demand = [&](bool met, const char *what) {
    TORCH_CHECK(met, run.op.name, " expects ", arguments[rule.argument].name(), " ", what, ", but found ", x);
  };
  switch (rule.demand) {
    case Demand::kNotNegative: return demand(x >= 0, ">= 0");
    case Demand::kPositive: return demand(x > 0, "> 0");
    case Demand::kProbability: return demand(x >= 0 && x <= 1, "in [0, 1]");
    case Demand::kOpenProbability: return demand(x > 0 && x < 1, "in (0, 1)");
    case Demand::kNotAbove: {
      double bound = run.argument(rule.argument + 1).toScalar().toDouble();
      TORCH_CHECK(x <= bound, run.op.name, " expects ", arguments[rule.argument].name(), " <= ",
                  arguments[rule.argument + 1].name(), ", but found ", x, " > ", bound);
      return;
    }
    case Demand::kFits:
    case Demand::kIntegerPower: return;
  }
}

}  // namespace torch_pjrt
