// Writing calls down: PyTorch's arguments as the words of a pj_call.
#include "kernel.h"

#include <ATen/ops/_local_scalar_dense_native.h>

namespace torch_pjrt {

using at::Tensor;
using c10::IValue;

struct Call::Frames {
  std::vector<std::unique_ptr<Frame>> all;
  size_t depth = 0;
  ~Frames() {
    if (!in_bad_fork())
      for (auto &frame : all) pj_call_destroy(&frame->call);
  }
};

static thread_local Call::Frames t_frames;

Call::Call(const pj_op *op) : frames_(t_frames) {
  if (frames_.depth == frames_.all.size()) frames_.all.push_back(std::make_unique<Frame>());
  frame_ = frames_.all[frames_.depth++].get();
  frame_->call.op = op;
}

Call::~Call() {
  pj_call_clear(&frame_->call);
  frame_->stack.clear();
  --frames_.depth;
}

void write_tensor(pj_call *call, const Tensor &tensor) {
  const auto *impl = tensor.unsafeGetTensorImpl();
  size_t bytes;
  pj_storage *storage = storage_of(*impl->unsafe_storage().unsafeGetStorageImpl(), &bytes);
  int64_t offset = impl->storage_offset();
  if (C10_UNLIKELY(bytes)) {
    TORCH_CHECK(bytes % impl->itemsize() == 0, "a storage that starts ", bytes, " bytes into another cannot be read as ",
                tensor.scalar_type());
    offset += static_cast<int64_t>(bytes / impl->itemsize());
  }
  check_rank(impl->dim());
  pj_call_tensor(call, storage, to_pj(tensor.scalar_type()), static_cast<int>(impl->dim()), impl->sizes().data(),
                 impl->strides().data(), offset, math_bits(tensor));
}

void write_held(const Tensor &target, pj_value *source, const int64_t *source_strides) {
  const auto *impl = target.unsafeGetTensorImpl();
  size_t bytes;
  pj_storage *storage = storage_of(*impl->unsafe_storage().unsafeGetStorageImpl(), &bytes);
  check(pj_storage_write(storage, source, source_strides, to_pj(target.scalar_type()),
                         static_cast<int>(impl->dim()), impl->sizes().data(), impl->strides().data(),
                         impl->storage_offset() + static_cast<int64_t>(bytes / impl->itemsize()), math_bits(target)));
}

void write_through(const Tensor &target, pj_value *source, c10::IntArrayRef source_strides) {
  write_held(target, source, source_strides.data());
  check(pj_device_end_op(device_at(target.device().index())));
}

// ---- arguments ------------------------------------------------------------------------------------------------------

namespace {

pj_dtype number_dtype(const c10::Scalar &value) {
  return value.isFloatingPoint() ? PJ_F64 : value.isComplex() ? PJ_C128 : value.isBoolean() ? PJ_PRED : PJ_S64;
}

}  // namespace

void mixed_devices(const Op &op, const c10::Device &a, const c10::Device &b) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b,
              "! (when calling ", op.name, ")");
}

void Writer::number(const c10::Scalar &value, pj_dtype own, int weight) {
  if (value.isFloatingPoint()) {
    pj_call_number_float(call_, value.toDouble(), own, weight);
  } else if (value.isComplex()) {
    auto number = value.toComplexDouble();
    pj_call_number_complex(call_, number.real(), number.imag(), own, weight);
  } else if (value.isBoolean()) {
    pj_call_number_bool(call_, value.toBool(), own, weight);
  } else {
    pj_call_number_int(call_, value.toLong(), own, weight);
  }
  number_written();
}

static bool is_usual(const Argument &argument, const c10::IValue &value) {
  if (!argument.usual) return false;
  if (value.isInt()) return argument.usual->isInt() && value.toInt() == argument.usual->toInt();
  return value.isDouble() && argument.usual->isDouble() && value.toDouble() == argument.usual->toDouble();
}

static bool is_special(const Argument &argument, const c10::IValue &value) {
  if (!argument.special) return false;
  c10::Scalar number = value.toScalar();
  return number.isBoolean() || (!number.isComplex() && pj_number_is_special(number.toDouble()));
}

void Writer::scalar(const c10::Scalar &value, bool constant) {
  if (!constant || value.isComplex()) {
    number(value, number_dtype(value), PJ_WEIGHT_PYTHON);
  } else if (value.isFloatingPoint()) {
    pj_call_float(call_, value.toDouble());
  } else if (value.isBoolean()) {
    pj_call_bool(call_, value.toBool());
  } else {
    pj_call_int(call_, value.toLong());
  }
}

void Writer::tensor(const Argument &argument, const Tensor &tensor) {
  if (!tensor.defined()) {
    pj_call_none(call_);
    return;
  }
  c10::Device device = tensor.device();
  if (C10_UNLIKELY(device.type() != c10::DeviceType::PrivateUse1)) {
    if (device.is_cpu() && tensor.dim() == 0 && argument.number && op_.numbers) {
      bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
      number(at::native::_local_scalar_dense_cpu(tensor), to_pj(tensor.scalar_type()),
             wrapped ? PJ_WEIGHT_PYTHON : PJ_WEIGHT_ZERO_DIM);
      return;
    }
    mixed_devices(op_, c10::Device(c10::DeviceType::PrivateUse1, index < 0 ? current_device() : index), device);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::Layout::Strided, op_.name,
                              ": the tpu device has only strided tensors, not ", tensor.layout());
  if (index < 0) {
    index = device.index();
  } else if (index != device.index()) {
    mixed_devices(op_, c10::Device(c10::DeviceType::PrivateUse1, index), device);
  }
  device_tensor(argument, tensor);
}

void Writer::device_tensor(const Argument &argument, const Tensor &tensor) {
  if (argument.shape_only) {
    pj_call_shape(call_, to_pj(tensor.scalar_type()), argument.dtype_only ? 0 : static_cast<int>(tensor.dim()), tensor.sizes().data());
  } else {
    write_tensor(call_, tensor);
  }
}

void Writer::write(const Argument &argument, const IValue &value) {
  if (value.isNone()) {
    pj_call_none(call_);
    return;
  }
  switch (argument.kind) {
    case Kind::kTensor: tensor(argument, value.toTensor()); break;
    case Kind::kTensors: {
      if (value.isTensorList()) {
        auto list = value.toTensorList();
        pj_call_tensors(call_, static_cast<uint32_t>(list.size()));
        for (const auto &element : list) {
          const Tensor held = element;
          tensor(argument, held);
        }
      } else {
        auto list = value.toListRef();
        pj_call_tensors(call_, static_cast<uint32_t>(list.size()));
        for (const IValue &element : list)
          tensor(argument, element.isNone() ? Tensor() : element.toTensor());
      }
      break;
    }
    case Kind::kNumber:
      scalar(value.toScalar(), argument.constant || is_usual(argument, value) || is_special(argument, value));
      break;
    case Kind::kNumbers: {
      auto list = value.toListRef();
      pj_call_numbers(call_, static_cast<uint32_t>(list.size()));
      for (const IValue &element : list) scalar(element.toScalar(), false);
      break;
    }
    case Kind::kInt: pj_call_int(call_, value.toInt()); break;
    case Kind::kInts: {
      if (value.isInt()) {  // int[1] arguments take a bare int
        pj_call_int(call_, value.toInt());
        break;
      }
      auto list = value.toDimVector();
      if (argument.lengths) {
        pj_call_numbers(call_, static_cast<uint32_t>(list.size()));
        for (int64_t length : list) number(length, PJ_S64, PJ_WEIGHT_PYTHON);
        break;
      }
      pj_call_ints(call_, list.data(), static_cast<uint32_t>(list.size()));
      break;
    }
    case Kind::kFloats: {
      auto list = value.toDoubleVector();
      pj_call_floats(call_, list.data(), static_cast<uint32_t>(list.size()));
      break;
    }
    case Kind::kBool: pj_call_bool(call_, value.toBool()); break;
    case Kind::kBools: {
      auto list = value.toBoolList();
      c10::SmallVector<bool, 8> values(list.begin(), list.end());
      pj_call_bools(call_, values.data(), static_cast<uint32_t>(values.size()));
      break;
    }
    case Kind::kString: {
      auto text = value.toStringView();
      pj_call_string(call_, text.data(), text.size());
      break;
    }
    case Kind::kDtype: pj_call_dtype(call_, to_pj(value.toScalarType())); break;
    case Kind::kLayout:
      // torch.where makes a tensor of a number by the options of a jagged one; it is a dense one on the CPU, too.
      TORCH_CHECK_NOT_IMPLEMENTED(value.toLayout() == c10::Layout::Strided || op_.name == "aten::scalar_tensor", op_.name,
                                  ": the tpu device has only strided tensors, not ", value.toLayout());
      pj_call_none(call_);
      break;
    case Kind::kPinMemory:
      TORCH_CHECK(!value.toBool(), "Only dense CPU tensors can be pinned");
      pj_call_none(call_);
      break;
    case Kind::kDevice:
    case Kind::kGenerator: pj_call_none(call_); break;
  }
}

}  // namespace torch_pjrt
