// DLPack to libraries that read host memory. (Between tensors of the device, PyTorch's own export of the address does.)
#include "bridge.h"

#include <ATen/DLConvertor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

namespace torch_pjrt {

// On a CPU plugin the consumer reads the device's own memory, without a copy. Values never change and may be shared by
// tensors, so the capsule says that it is for reading only.
DLManagedTensorVersioned *to_host_dlpack(const at::Tensor &tensor) {
  TORCH_CHECK(on_device(tensor) && !tensor.requires_grad() && !math_bits(tensor),
              "only a tpu tensor that needs no gradient and is no lazy conjugate or negative can be exported");
  size_t offset;
  pj_storage *storage = storage_of(*tensor.storage().unsafeGetStorageImpl(), &offset);
  check(pj_storage_compact(storage));
  pj_value *value = pj_storage_value(storage);
  uint64_t flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  at::Tensor host;
  if (value && tensor.numel()) {
    std::shared_ptr<pj_value> held(value, pj_value_release);
    const void *bytes;
    check(pj_value_host_pointer(pj_storage_device(storage), value, &bytes));
    auto *first = static_cast<char *>(const_cast<void *>(bytes)) + offset + tensor.storage_offset() * tensor.itemsize();
    host = at::from_blob(first, tensor.sizes(), tensor.strides(), [held](void *) {}, tensor.options().device(at::kCPU));
  } else {
    if (value) pj_value_release(value);
    host = read_tensor(tensor);  // nothing was ever written: zeros
    flags = DLPACK_FLAG_BITMASK_IS_COPIED;
  }
  DLManagedTensorVersioned *managed = at::toDLPackVersioned(host);
  managed->flags |= flags;
  return managed;
}

}  // namespace torch_pjrt
