"""The bad calls that PyTorch's own tests know (torch.testing OpInfo.error_inputs) are refused on the device too."""
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

# Bad calls that the device takes, and why: (op, number of the call)
TAKEN = {
    # Whether probabilities are negative, infinite or of sum 0 is known when the program runs; PyTorch's CUDA kernels assert it
    # on the device, which ends the process.
    **{("multinomial", n): "depends on data" for n in range(7, 21)},
    # The target overlaps an argument only after PyTorch has resized it (which it warns of).
    ("gather", 7): "the target is resized",
    ("cat", 6): "the target is resized",
}


def on_device(value, storages):
    """The value with its CPU tensors on the device; tensors that shared memory share it there."""
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout != torch.strided:
            return value
        storage = value.untyped_storage()
        if storage._cdata not in storages:
            bytes_ = torch.empty(0, dtype=torch.uint8).set_(storage)
            storages[storage._cdata] = (value, bytes_.to("tpu"))
        there = torch.empty(0, dtype=value.dtype, device="tpu")
        return there.set_(storages[storage._cdata][1].untyped_storage(), value.storage_offset(), value.size(), value.stride())
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(on_device(v, storages) for v in value)
    if isinstance(value, dict):
        return {k: on_device(v, storages) for k, v in value.items()}
    return torch.device("tpu") if isinstance(value, torch.device) else "tpu" if value == "cpu" else value


def raises(call):
    try:
        call()
        torch.tpu.synchronize()
    except Exception as e:
        return bool(str(e))
    return False


OPS = {f"{op.name} {op.variant_test_name}".strip(): op for op in op_db if op.error_inputs_func is not None}


@pytest.mark.parametrize("name", OPS)
def test_bad_calls_are_refused(name):
    op = OPS[name]
    with warnings.catch_warnings(), torch.tpu.set_fallback("silent"):
        warnings.simplefilter("ignore")
        for n, bad in enumerate(op.error_inputs("cpu")):
            sample = bad.sample_input
            storages = {}
            args = on_device([sample.input, *sample.args], storages), on_device(sample.kwargs, storages)
            if not raises(lambda: op.op(sample.input, *sample.args, **sample.kwargs)):
                continue
            expected = (op.name, n) not in TAKEN
            assert raises(lambda: op.op(*args[0], **args[1])) == expected, (n, sample.summary(), str(bad.error_regex))
