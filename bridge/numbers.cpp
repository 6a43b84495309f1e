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
    {"aten::normal_", 2, Demand::kNotNegative, "normal expects std >= 0.0, but found std "},
    {"aten::normal_functional", 2, Demand::kNotNegative, "normal expects std >= 0.0, but found std "},
    {"aten::normal.Tensor_float", 1, Demand::kNotNegative, "normal expects std >= 0.0, but found std "},
    {"aten::normal.float_float", 1, Demand::kNotNegative, "normal expects std >= 0.0, but found std "},
    {"aten::log_normal", 2, Demand::kPositive, "log_normal_ expects std > 0.0, but found std="},
    {"aten::log_normal_", 2, Demand::kPositive, "log_normal_ expects std > 0.0, but found std="},
    {"aten::cauchy", 2, Demand::kPositive, "cauchy_ expects sigma > 0.0, but found sigma="},
    {"aten::cauchy_", 2, Demand::kPositive, "cauchy_ expects sigma > 0.0, but found sigma="},
    {"aten::exponential", 1, Demand::kPositive, "exponential_ expects lambda > 0.0, but found lambda="},
    {"aten::exponential_", 1, Demand::kPositive, "exponential_ expects lambda > 0.0, but found lambda="},
    {"aten::geometric", 1, Demand::kOpenProbability, "geometric_ expects p to be in (0, 1), but got p="},
    {"aten::geometric_", 1, Demand::kOpenProbability, "geometric_ expects p to be in (0, 1), but got p="},
    {"aten::bernoulli.p", 1, Demand::kProbability, "bernoulli_ expects p to be in [0, 1], but got p="},
    {"aten::bernoulli_.float", 1, Demand::kProbability, "bernoulli_ expects p to be in [0, 1], but got p="},
    {"aten::native_dropout", 1, Demand::kProbability, "dropout probability has to be between 0 and 1, but got "},
    {"aten::uniform", 1, Demand::kNotAbove, "uniform_ expects to return a [from, to) range, but found from="},
    {"aten::uniform_", 1, Demand::kNotAbove, "uniform_ expects to return a [from, to) range, but found from="},
    {"aten::rrelu_with_noise", 2, Demand::kNotAbove, "rrelu_with_noise expects lower <= upper, but found lower="},
    {"aten::rrelu_with_noise_", 2, Demand::kNotAbove, "rrelu_with_noise expects lower <= upper, but found lower="},
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
  double x = number.toDouble();
  switch (rule.demand) {
    case Demand::kNotNegative: TORCH_CHECK(x >= 0, rule.refusal, x); return;
    case Demand::kPositive: TORCH_CHECK(x > 0, rule.refusal, x); return;
    case Demand::kProbability: TORCH_CHECK(x >= 0 && x <= 1, rule.refusal, x); return;
    case Demand::kOpenProbability: TORCH_CHECK(x > 0 && x < 1, rule.refusal, x); return;
    case Demand::kNotAbove: {
      double bound = run.argument(rule.argument + 1).toScalar().toDouble();
      TORCH_CHECK(x <= bound, rule.refusal, x, " > ", run.op.handle.schema().arguments()[rule.argument + 1].name(), "=",
                  bound);
      return;
    }
    case Demand::kFits:
    case Demand::kIntegerPower: return;
  }
}

}  // namespace torch_pjrt
