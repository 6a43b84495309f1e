// One boxed kernel for every op: writes the call down, runs its plan, and wraps the results. On a new key it asks
// PyTorch's meta kernel what comes out, and makes the plan from the op's lowering; where there is none it takes PyTorch's
// own composite, PyTorch's decomposition, or the CPU, in that order.
#include "kernel.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/nonzero.h>

namespace torch_pjrt {

using at::Tensor;
using c10::DeviceIndex;
using c10::IValue;
using c10::ScalarType;
using torch::jit::Stack;

Tensor take_result(pj_call *call, const pj_plan *plan, size_t i, DeviceIndex index) {
  const pj_tensor_spec *spec = pj_plan_result(plan, i);
  pj_value *value = std::exchange(call->results[i], nullptr);  // with the call's reference
  auto rank = static_cast<size_t>(spec->rank);
  return make_tensor(pj_storage_create_with(device_at(index), value), index, to_torch(spec->dtype),
                     {spec->sizes, rank}, {spec->strides, rank});
}

Tensor device_copy(const Tensor &source, ScalarType type, c10::IntArrayRef strides) {
  static const pj_op *op = pj_runtime_op(runtime(), "pj::copy");
  DeviceIndex index = source.device().index();
  Call call(op);
  write_tensor(call, source);
  pj_call_dtype(call, to_pj(type));
  pj_call_ints(call, strides.data(), static_cast<uint32_t>(strides.size()));
  const pj_plan *plan = nullptr;
  check(pj_submit(device_at(index), call, &plan));
  if (!plan) {
    pj_tensor_spec spec = spec_of(type, source.sizes(), strides);
    check(pj_plan_create(device_at(index), call, &spec, 1));
    check(pj_submit(device_at(index), call, &plan));
  }
  return take_result(call, plan, 0, index);
}

uint64_t largest_result(const pj_tensor_spec *specs, size_t count) {
  uint64_t most = 0;
  for (size_t i = 0; i < count; ++i) {
    uint64_t elements = 1;
    for (int d = 0; d < specs[i].rank; ++d) elements *= static_cast<uint64_t>(specs[i].sizes[d]);
    most = std::max(most, elements);
  }
  return most;
}

namespace {

// Index of the first result of each of the twin's returns, and the count of all at the end.
using Groups = c10::SmallVector<size_t, 8>;

// Calls visit(tensor) for each tensor that the op writes: (argument index, tensor, result index).
template <typename Visit>
void for_each_write(Run &run, const Groups &group_first, Visit visit) {
  const Mutation *mutation = run.op.mutation;
  for (int w = 0; w < mutation->write_count; ++w) {
    const IValue &value = run.argument(static_cast<size_t>(mutation->writes[w].argument));
    size_t result = group_first[static_cast<size_t>(mutation->writes[w].result)];
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit(value.toTensor(), result);
    } else if (value.isTensorList()) {
      for (const Tensor &tensor : value.toTensorVector()) visit(tensor, result++);
    }
  }
}

// Lists of a functional op are of equal length; what is written has the length of its argument.
Groups result_groups(Run &run, size_t total) {
  const Op &op = run.op;
  size_t lists = 0;
  for (bool list : op.result_is_list) lists += list;
  size_t length = lists ? (total - (op.result_is_list.size() - lists)) / lists : 0;
  Groups first{0};
  for (size_t r = 0; r < op.result_is_list.size(); ++r) {
    size_t count = op.result_is_list[r] ? length : 1;
    if (run.mutates)
      for (int w = 0; w < op.mutation->write_count; ++w) {
        if (op.mutation->writes[w].result != static_cast<int>(r)) continue;
        const IValue &target = run.argument(static_cast<size_t>(op.mutation->writes[w].argument));
        count = target.isTensorList() ? target.toTensorList().size() : target.isTensor() && target.toTensor().defined();
      }
    first.push_back(first.back() + count);
  }
  return first;
}

// ---- results --------------------------------------------------------------------------------------------------------

void push_result(Run &run, pj_call *call, const pj_plan *plan, size_t r, const Groups &first) {
  if (run.op.result_is_list[r]) {
    c10::List<Tensor> list;
    for (size_t i = first[r]; i < first[r + 1]; ++i) list.push_back(take_result(call, plan, i, run.index));
    run.stack.emplace_back(std::move(list));
  } else {
    run.stack.emplace_back(take_result(call, plan, first[r], run.index));
  }
}

// Replaces the arguments on the stack by what the mutating overload returns: its written arguments, and own results.
void return_mutated(Run &run, pj_call *call, const pj_plan *plan, const Groups &first) {
  const Mutation *mutation = run.op.mutation;
  const auto &schema = run.op.handle.schema();
  if (run.lent) return run.drop();
  std::vector<IValue> arguments(run.stack.begin() + static_cast<std::ptrdiff_t>(run.first), run.stack.end());
  run.stack.resize(run.first);
  size_t next_own = 0;
  auto is_written = [&](size_t r) {
    for (int w = 0; w < mutation->write_count; ++w)
      if (mutation->writes[w].result == static_cast<int>(r)) return true;
    return false;
  };
  for (const auto &result : schema.returns()) {
    if (const auto *alias = result.alias_info()) {
      for (size_t i = 0; i < arguments.size(); ++i) {
        const auto *other = schema.arguments()[i].alias_info();
        if (other && other->beforeSets() == alias->beforeSets()) {
          run.stack.push_back(arguments[i]);
          break;
        }
      }
    } else {
      while (is_written(next_own)) ++next_own;
      push_result(run, call, plan, next_own++, first);
    }
  }
}

void resize_out(const Tensor &out, const pj_tensor_spec *spec) {
  c10::IntArrayRef sizes(spec->sizes, static_cast<size_t>(spec->rank));
  if (at::native::resize_output(out, sizes))
    out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, {spec->strides, static_cast<size_t>(spec->rank)});
}

std::optional<at::Generator> generator_of(Run &run) {
  if (run.op.generator < 0) return std::nullopt;
  return run.argument(static_cast<size_t>(run.op.generator)).toOptional<at::Generator>();
}

// ---- indices --------------------------------------------------------------------------------------------------------

// x[mask] = number needs no positions, and so no wait for the device to count them.
bool try_masked_fill(Run &run) {
  if (run.op.name != "aten::index_put_" || run.argument(3).toBool()) return false;
  const Tensor self = run.argument(0).toTensor(), value = run.argument(2).toTensor();
  if (value.numel() != 1 || value.scalar_type() != self.scalar_type()) return false;
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes) return false;
  Tensor mask;
  int64_t before = 0, position = 0;
  for (const IValue &element : run.argument(1).toListRef()) {
    Tensor index = element.isNone() ? Tensor() : element.toTensor();
    if (index.defined()) {
      if (mask.defined() || index.scalar_type() != ScalarType::Bool || index.dim() == 0) return false;
      mask = index;
      before = position;
    }
    ++position;
  }
  if (!mask.defined() || before + mask.dim() > self.dim()) return false;
  for (int64_t i = 0; i < mask.dim(); ++i)
    if (mask.size(i) != self.size(before + i)) return false;
  if (!on_device(mask)) mask = mask.to(self.device());
  for (int64_t i = before + mask.dim(); i < self.dim(); ++i) mask = mask.unsqueeze(-1);
  self.masked_fill_(mask, value.dim() ? value.reshape({}) : value);
  run.stack.resize(run.first);
  run.stack.emplace_back(self);
  return true;
}

// CPU indices come to the device; masks become positions.
void prepare_indices(Run &run) {
  const Tensor &self = run.argument(0).toTensor();
  TORCH_CHECK(on_device(self), "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and tpu! (when calling ", run.op.name, ")");
  bool change = false;
  for (const IValue &element : run.argument(1).toListRef()) {
    if (element.isNone() || !element.toTensor().defined()) continue;
    const Tensor &index = element.toTensor();
    change |= !on_device(index) || index.scalar_type() == ScalarType::Bool || index.scalar_type() == ScalarType::Byte;
  }
  if (!change) return;
  c10::List<std::optional<Tensor>> list;
  int64_t dim = 0, position = 0;
  for (const IValue &element : run.argument(1).toListRef()) {
    Tensor index = element.isNone() ? Tensor() : element.toTensor();
    if (!index.defined()) {
      list.push_back(std::nullopt);
      ++dim;
    } else if (index.scalar_type() == ScalarType::Bool || index.scalar_type() == ScalarType::Byte) {
      for (int64_t i = 0; i < index.dim(); ++i)
        TORCH_CHECK_INDEX(dim + i < self.dim() && index.size(i) == self.size(dim + i), "The shape of the mask ",
                          index.sizes(), " at index ", i, " does not match the shape of the indexed tensor ",
                          self.sizes(), " at index ", dim + i);
      Tensor positions = at::nonzero(index);
      for (int64_t i = 0; i < index.dim(); ++i)
        list.push_back((on_device(positions) ? positions : positions.to(self.device())).select(1, i));
      dim += index.dim();
    } else {
      list.push_back(on_device(index) ? index : index.to(self.device()));
      ++dim;
    }
    ++position;
  }
  run.argument(1) = std::move(list);
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

// Whether an op with an unannotated write (batch norm) writes in this call.
bool writes_hidden(Run &run) {
  const Mutation *mutation = run.op.mutation;
  if (!run.argument(static_cast<size_t>(mutation->condition)).toBool()) return false;
  for (int w = 0; w < mutation->write_count; ++w) {
    const IValue &target = run.argument(static_cast<size_t>(mutation->writes[w].argument));
    if (!target.isTensor() || !target.toTensor().defined()) return false;
  }
  return true;
}

// Lists whose tensors are on several devices: PyTorch's composite goes through them one by one.
bool mixes_devices(Run &run) {
  std::optional<c10::Device> first;
  for (const Argument &argument : run.op.arguments) {
    if (argument.kind != Kind::kTensors || argument.source < 0) continue;
    // By reference: another reference to each tensor of an optimizer's lists would cost more than the check.
    for (const IValue &element : run.argument(static_cast<size_t>(argument.source)).toListRef()) {
      c10::Device device = element.toTensor().device();
      if (first && device != *first) return true;
      first = device;
    }
  }
  return false;
}

// A device= argument that is not ours, or another one of ours: zeros_like(x, device="cpu").
bool for_another_device(Run &run) {
  if (C10_UNLIKELY(run.op.foreach)) return mixes_devices(run);
  if (run.op.device < 0) return false;
  const IValue &device = run.argument(static_cast<size_t>(run.op.device));
  if (device.isNone()) return false;
  if (device.toDevice().type() != c10::DeviceType::PrivateUse1) return true;
  run.index = device.toDevice().index() == -1 ? current_device() : device.toDevice().index();
  device_at(run.index);  // throws where there is none
  const IValue &first = run.argument(0);
  return first.isTensor() && on_device(first.toTensor()) && first.toTensor().device().index() != run.index;
}

void run_composite(Run &run) {
  run.own();
  run.op.handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, run.stack);
}

// An op that writes a few places of its first argument can do so in the storage's own value, at the cost of the places.
void prepare_base_write(Run &run, pj_call *call) {
  if (!(run.op.flags & PJ_OP_WRITES) || run.op.mutation->write_count != 1 || run.op.mutation->kind != Mutation::kInPlace ||
      run.op.mutation->writes[0].argument != 0)
    return;
  const Tensor &self = run.argument(0).toTensor();
  if (!on_device(self) || covers_storage(self) || math_bits(self) || !self.numel()) return;
  size_t bytes;
  pj_storage *storage = storage_of(*self.storage().unsafeGetStorageImpl(), &bytes);
  check(pj_storage_rebase(storage, to_pj(self.scalar_type()), static_cast<int>(self.dim()), self.sizes().data(),
                          self.strides().data(),
                          self.storage_offset() + static_cast<int64_t>(bytes / self.itemsize())));
  call->writes_base = true;
}

void write_call(Run &run, pj_call *call) {
  Writer writer(run.op, call);
  writer.index = run.index;
  const Mutation *mutation = run.op.mutation;
  if (run.mutates) {
    check_overlap(run);
    call->hold = true;
    prepare_base_write(run, call);
  }
  IValue none;
  for (const Argument &argument : run.op.arguments) {
    if (argument.source >= 0) {
      writer.write(argument, run.argument(static_cast<size_t>(argument.source)));
    } else if (argument.source == Mutation::kOutDtype) {
      pj_call_dtype(call, to_pj(run.argument(static_cast<size_t>(mutation->writes[0].argument)).toTensor().scalar_type()));
    } else {
      pj_call_none(call);
    }
  }
  run.index = writer.index;
  if (run.mutates) {
    for (int w = 0; w < mutation->write_count; ++w) {
      const IValue &value = run.argument(static_cast<size_t>(mutation->writes[w].argument));
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      const Tensor &target = value.toTensor();
      if (!on_device(target) || (run.index >= 0 && target.device().index() != run.index))
        mixed_devices(run.op, target.device(), c10::Device(c10::DeviceType::PrivateUse1, run.index));
      run.index = target.device().index();
    }
  }
  if (run.index < 0) run.index = current_device();
}

// The length of a range is the one result size that depends on run-time numbers, so it is part of the key: computed in
// doubles and in integers, since PyTorch takes one or the other by the result's dtype.
void write_range_length(Run &run, pj_call *call) {
  double numbers[3] = {0, 0, 1};  // start, end, step
  size_t count = 0;
  for (const Argument &argument : run.op.arguments) count += argument.kind == Kind::kNumber;
  for (size_t i = 0; i < count; ++i) {  // arange(end), arange(start, end), arange(start, end, step)
    c10::Scalar value = run.argument(i).toScalar();
    numbers[count == 1 ? 1 : i] = value.isComplex() ? value.toComplexDouble().real() : value.toDouble();
  }
  pj_call_float(call, std::ceil((numbers[1] - numbers[0]) / numbers[2]));
  for (double &number : numbers) number = std::trunc(number);
  pj_call_float(call, std::ceil((numbers[1] - numbers[0]) / numbers[2]));
}

// What of lengths is part of the key: the largest says result sizes, and PyTorch's meta kernel, which is asked once a key,
// refuses negative ones.
void write_longest(Run &run, pj_call *call) {
  for (const Argument &argument : run.op.arguments) {
    if (!argument.lengths) continue;
    int64_t longest = 0, shortest = 0;
    for (int64_t length : run.argument(static_cast<size_t>(argument.source)).toDimVector()) {
      longest = std::max(longest, length);
      shortest = std::min(shortest, length);
    }
    pj_call_int(call, longest);
    pj_call_bool(call, shortest < 0);
  }
}

// After the schema's arguments: what a written argument's type is, since results take it, and, at the very end, seed and
// offset of a random op.
void write_extras(Run &run, pj_call *call) {
  if (run.op.range) write_range_length(run, call);
  if (run.op.has_lengths) write_longest(run, call);
  if (run.mutates && !(run.op.flags & kDynamic))
    for (int w = 0; w < run.op.mutation->write_count; ++w) {
      const IValue &value = run.argument(static_cast<size_t>(run.op.mutation->writes[w].argument));
      if (value.isTensor() && value.toTensor().defined()) pj_call_dtype(call, to_pj(value.toTensor().scalar_type()));
    }
  if (run.op.flags & PJ_OP_RANDOM) {
    Seed seed = read_seed(generator_of(run), run.index);
    pj_call_number_int(call, static_cast<int64_t>(seed.seed), PJ_S64, PJ_WEIGHT_PYTHON);
    pj_call_number_int(call, static_cast<int64_t>(seed.offset), PJ_S64, PJ_WEIGHT_PYTHON);
  }
}

void store_results(Run &run, pj_call *call, const pj_plan *plan, const Groups &first) {
  pj_device *device = device_at(run.index);
  if (call->writes_base) {
    const Tensor &self = run.argument(0).toTensor();
    size_t bytes;
    pj_storage_set(storage_of(*self.storage().unsafeGetStorageImpl(), &bytes), call->results[0]);
  } else {
    for_each_write(run, first, [&](const Tensor &target, size_t result) {
      const pj_tensor_spec *spec = pj_plan_result(plan, result);
      if (run.op.flags & kDynamic)  // nonzero, masked_select: no meta kernel has asked
        TORCH_CHECK(to_torch(spec->dtype) == target.scalar_type(), "Expected out tensor to have dtype ", to_torch(spec->dtype),
                    ", but got ", target.scalar_type(), " instead");
      if (run.op.mutation->kind == Mutation::kOut) resize_out(target, spec);
      write_held(target, call->results[result], spec->strides);
    });
  }
  return_mutated(run, call, plan, first);
  pj_call_clear(call);  // the call's references would keep the old values from being donated
  check(pj_device_end_op(device));
}

// Makes the plan of a new key. False: the op ran some other way and its results are on the stack.
bool learn(Run &run, pj_call *call) {
  pj_device *device = device_at(run.index);
  if (run.op.flags & kDynamic) {
    check(pj_plan_create(device, call, nullptr, 0));
    return true;
  }
  // Asked also without a lowering: it checks the arguments as PyTorch does.
  std::optional<Meta> meta = run_meta(run);
  if (run.lowered()) {  // where the meta kernel cannot tell, the core may have a rule
    pj_status status = pj_plan_create(device, call, meta ? meta->specs.data() : nullptr, meta ? meta->specs.size() : 0);
    if (meta) run.layout = meta->layout;
    if (!status) return true;
    if (pj_status_code(status) != PJ_UNIMPLEMENTED) check(status);
    pj_status_free(status);
  }
  if (run.op.composite) {
    run_composite(run);
    return false;
  }
  if (decompose(run, call, meta)) return true;
  run.own();
  run_on_cpu(run.op, &run.stack);
  return false;
}

}  // namespace

void Run::own() {
  if (!lent) return;
  for (size_t i = first; i < stack.size(); ++i) {
    IValue owned = stack[i];
    if (stack[i].isTensor()) c10::MaybeOwnedTraits<IValue>::destroyBorrow(stack[i]);
    stack[i] = std::move(owned);
  }
  lent = false;
}

void Run::drop() {
  for (size_t i = first; lent && i < stack.size(); ++i)
    if (stack[i].isTensor()) c10::MaybeOwnedTraits<IValue>::destroyBorrow(stack[i]);
  lent = false;
  stack.resize(first);
}

void run_op(Run &run) {
  Op &op = run.op;
  op.resolve();
  run.mutates = op.mutation && (op.mutation->kind != Mutation::kHidden || writes_hidden(run));
  bool plain = op.mutation && !run.mutates;  // batch norm in eval
  if (C10_UNLIKELY(for_another_device(run) || ((!op.supported || !run.lowered()) && op.composite))) {
    TORCH_CHECK(op.composite, op.name, " on a tpu tensor cannot make a result on another device");
    run_composite(run);
    return;
  }
  if (C10_UNLIKELY(op.number_rule != nullptr)) check_numbers(run);
  if (!op.supported) {
    run.own();
    run_on_cpu(op, &run.stack);
    return;
  }
  if (C10_UNLIKELY(op.overlap.may_share) && run.mutates && run_shared_write(run)) return;
  if (op.indices) {
    if (try_masked_fill(run)) return;
    prepare_indices(run);
  }
  pj_call *call = run.call;
  call->op = plain ? op.plain : op.twin;
  write_call(run, call);
  write_extras(run, call);
  pj_device *device = device_at(run.index);
  if (op.flags & kDynamic) check(pj_call_resolve(device, call));
  const pj_plan *plan = nullptr;
  check(pj_submit(device, call, &plan));
  if (C10_UNLIKELY(!plan)) {
    if (!learn(run, call)) return;
    check(pj_submit(device, call, &plan));
    TORCH_INTERNAL_ASSERT(plan, op.name, ": the plan that was just made is not found");
    if (run.layout) op.remember(plan, run.layout);
  }
  if (op.flags & PJ_OP_RANDOM)
    advance_seed(generator_of(run), run.index, largest_result(pj_plan_result(plan, 0), pj_plan_result_count(plan)));
  if (run.mutates) {
    store_results(run, call, plan, result_groups(run, 0));
    return;
  }
  run.drop();
  if (auto layout = op.layout(plan)) {
    size_t next = 0;
    for (const auto &other : *layout)
      run.stack.push_back(other ? *other : IValue(take_result(call, plan, next++, run.index)));
    return;
  }
  auto first = result_groups(run, pj_plan_result_count(plan));
  // A hidden mutation returns fewer than its twin.
  for (size_t r = 0; r < op.return_count; ++r) push_result(run, call, plan, r, first);
}

}  // namespace torch_pjrt
