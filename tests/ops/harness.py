"""Runs one ATen overload through the core, without PyTorch's dispatcher: CPU tensors go in, CPU tensors come out.

The library and the plugin are found by PJ_LIBRARY and PJ_PLUGIN, else in the build folder and in the installed
packages.
"""
import ctypes
import glob
import os
import struct
import sys
from ctypes import byref, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
from plugins import installed_plugins  # noqa: E402

MAX_RANK = 16
DTYPES = {torch.bool: 1, torch.int8: 2, torch.int16: 3, torch.int32: 4, torch.int64: 5, torch.uint8: 6, torch.uint16: 7,
          torch.uint32: 8, torch.uint64: 9, torch.float16: 10, torch.float32: 11, torch.float64: 12, torch.bfloat16: 13,
          torch.complex64: 14, torch.complex128: 15, torch.float8_e5m2: 16, torch.float8_e4m3fn: 17}
TORCH_DTYPES = {number: dtype for dtype, number in DTYPES.items()}
ERRORS = {11: IndexError, 12: NotImplementedError, 100: TypeError, 101: ValueError}
RANDOM, WRITES, DYNAMIC = 1, 2, 4


class Call(ctypes.Structure):
    _fields_ = ([(name, c_void_p) for name in ("op", "words", "operands", "floats", "ints", "results")] +
                [(name, c_uint32) for name in (
                    "word_count", "operand_count", "float_count", "int_count", "result_count", "word_capacity",
                    "operand_capacity", "float_capacity", "int_capacity", "result_capacity")] +
                [("grown", c_void_p)] + [(name, c_bool) for name in ("writes_base", "room", "hold")])


class Spec(ctypes.Structure):
    _fields_ = [("dtype", c_int), ("rank", c_int), ("sizes", c_int64 * MAX_RANK), ("strides", c_int64 * MAX_RANK)]


class RuntimeOptions(ctypes.Structure):
    _fields_ = [("plugin_path", c_char_p), ("client_options", c_void_p), ("client_option_count", c_size_t),
                ("cache_directory", c_char_p), ("shared_cache_directory", c_char_p), ("cache_limit_bytes", c_uint64),
                ("worker_path", c_char_p), ("worker_count", c_int), ("compile_timeout_ms", c_int),
                ("worker_memory_bytes", c_uint64), ("eager", c_int), ("queue_length", c_int), ("hooks", c_void_p * 5)]


def find_library():
    found = [os.environ.get("PJ_LIBRARY"), *glob.glob(str(ROOT / "build" / "**" / "libpj.so"), recursive=True)]
    return next(path for path in found if path)


def find_plugin():
    return os.environ.get("PJ_PLUGIN") or next(iter(installed_plugins(find_library(), "cpu").values()))


class Core:
    def __init__(self):
        lib = self.lib = ctypes.CDLL(find_library())
        for name in ("pj_runtime_device", "pj_runtime_op", "pj_storage_create_with", "pj_value_dims",
                     "pj_storage_value"):
            getattr(lib, name).restype = c_void_p
        for name in ("pj_runtime_create", "pj_submit", "pj_plan_create", "pj_device_end_op", "pj_value_from_host",
                     "pj_value_to_host", "pj_device_synchronize", "pj_call_resolve"):
            getattr(lib, name).restype = c_void_p
        lib.pj_status_text.restype = c_char_p
        lib.pj_plan_result.restype = ctypes.POINTER(Spec)
        for name in ("pj_plan_result_count", "pj_value_bytes"):
            getattr(lib, name).restype = c_size_t
        for name in ("pj_op_flags", "pj_op_statics", "pj_op_shape_only", "pj_op_specials", "pj_op_lengths"):
            getattr(lib, name).restype = c_uint32
        for name in ("pj_op_has_lowering", "pj_number_is_special"):
            getattr(lib, name).restype = c_bool
        options = RuntimeOptions(plugin_path=find_plugin().encode())
        self.runtime = c_void_p()
        self.check(lib.pj_runtime_create(byref(options), byref(self.runtime)))
        self.device = c_void_p(lib.pj_runtime_device(self.runtime, 0))

    def check(self, status):
        if not status:
            return
        code = self.lib.pj_status_code(c_void_p(status))
        text = self.lib.pj_status_text(c_void_p(status)).decode()
        self.lib.pj_status_free(c_void_p(status))
        raise ERRORS.get(code, RuntimeError)(text)


class Words:
    """The words of a call; numbers' values go beside them."""

    def __init__(self, core, op):
        lib = core.lib
        self.core, self.statics, self.shape_only = core, lib.pj_op_statics(op), lib.pj_op_shape_only(op)
        self.specials, self.lengths = lib.pj_op_specials(op), lib.pj_op_lengths(op)
        self.words, self.values, self.floats, self.ints, self.storages = [], [], [], [], []

    def tensor(self, x, shape_only=False):
        rank = x.dim()
        if shape_only:
            self.words += [2 | DTYPES[x.dtype] << 8 | rank << 16 | DTYPES[x.dtype] << 24 | rank << 32 | 1 << 40,
                           *x.shape]
            return
        # The base is the tensor's whole storage in the memory order of the tensor when it covers it, else flat.
        elements = x.untyped_storage().nbytes() // x.element_size()
        if x.is_contiguous() and elements == x.numel():
            base = list(x.shape)
        else:
            base = [elements]
        flat = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage(), 0, (elements,))
        dims = (c_int64 * MAX_RANK)(*base)
        value = c_void_p()
        self.core.check(self.core.lib.pj_value_from_host(self.core.device, c_void_p(flat.data_ptr()), DTYPES[x.dtype],
                                                         len(base), dims, byref(value)))
        identity = base == list(x.shape) and x.is_contiguous() and not x.is_conj() and not x.is_neg()
        flags = 1 if identity else (2 if x.is_conj() else 0) | (4 if x.is_neg() else 0)
        self.words += [1 | DTYPES[x.dtype] << 8 | rank << 16 | DTYPES[x.dtype] << 24 | len(base) << 32 | flags << 40,
                       *base]
        if not identity:
            self.words += [*x.shape, *x.stride(), x.storage_offset()]
        self.values.append(value)

    def number(self, value, own=None, weight=0):
        if isinstance(value, bool):
            kind, default = 1, 1
            self.ints.append(value)
        elif isinstance(value, int):
            kind, default = 5, 5
            self.ints.append(value)
        elif isinstance(value, float):
            kind, default = 12, 12
            self.floats.append(value)
        else:
            kind, default = 15, 15
            self.floats += [value.real, value.imag]
        self.words.append(4 | kind << 8 | (own or default) << 16 | weight << 24)

    def is_constant(self, i, value):
        special = self.specials >> i & 1 and not isinstance(value, complex)
        return self.statics >> i & 1 or (special and self.core.lib.pj_number_is_special(c_double(value)))

    def argument(self, i, type_, value):
        kind = type_.kind()
        if value is None or isinstance(value, (torch.device, torch.layout, torch.memory_format, torch.Generator)):
            self.words.append(0)  # what only the caller needs
        elif kind == "OptionalType":
            self.argument(i, type_.getElementType(), value)
        elif isinstance(value, torch.Tensor):
            self.tensor(value, bool(self.shape_only >> i & 1))
        elif kind == "TensorType":
            self.number(value)
        elif kind == "ListType" and type_.getElementType().kind() in ("TensorType", "OptionalType"):
            self.words.append(3 | len(value) << 8)
            for element in value:
                self.words.append(0) if element is None else self.tensor(element)
        elif kind in ("NumberType", "FloatType") and not self.is_constant(i, value):
            self.number(float(value) if kind == "FloatType" else value)
        elif isinstance(value, bool):
            self.words.append(10 | value << 8)
        elif isinstance(value, int):
            self.words += [6, value & (1 << 64) - 1]
        elif isinstance(value, float):
            self.words += [8, struct.unpack("Q", struct.pack("d", value))[0]]
        elif isinstance(value, torch.dtype):
            self.words.append(12 | DTYPES[value] << 8)
        elif isinstance(value, str):
            data = value.encode()
            padded = data + bytes(-len(data) % 8)
            self.words += [13 | len(data) << 8, *struct.unpack(f"{len(padded) // 8}Q", padded)]
        elif kind == "ListType":
            element = type_.getElementType().kind()
            if element == "BoolType":
                self.words += [11 | len(value) << 8, *map(int, value)]
            elif element == "FloatType":
                self.words += [9 | len(value) << 8, *(struct.unpack("Q", struct.pack("d", v))[0] for v in value)]
            elif element == "NumberType" or self.lengths >> i & 1:
                self.words.append(5 | len(value) << 8)
                for v in value:
                    self.number(v)
            else:
                value = [value] if isinstance(value, int) else value
                self.words += [7 | len(value) << 8, *(v & (1 << 64) - 1 for v in value)]
        else:
            raise TypeError(f"argument {i}: {value!r} of {type_}")


_core = None


def core():
    global _core
    _core = _core or Core()
    return _core


def overload(name):
    packet, _, rest = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), rest or "default")


def bound(schema, args, kwargs):
    values = []
    for i, argument in enumerate(schema.arguments):
        if not argument.kwarg_only and i < len(args):
            values.append(args[i])
        elif argument.name in kwargs:
            values.append(kwargs[argument.name])
        else:
            values.append(argument.default_value)
    return values


def spec_of(x):
    spec = Spec(dtype=DTYPES[x.dtype], rank=x.dim())
    for i in range(x.dim()):
        spec.sizes[i], spec.strides[i] = x.shape[i], x.stride(i)
    return spec


def flat_results(results):
    if isinstance(results, torch.Tensor):
        return [results]
    out = []
    for result in results:
        out += flat_results(result) if isinstance(result, (list, tuple)) else [] if result is None else [result]
    return out


def to_meta(value):
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_meta, value))
    return torch.device("meta") if isinstance(value, torch.device) else value


def to_cpu(value):
    lib = core().lib
    rank = lib.pj_value_rank(c_void_p(value))
    dims = (c_int64 * MAX_RANK).from_address(lib.pj_value_dims(c_void_p(value)))
    out = torch.empty([dims[i] for i in range(rank)], dtype=TORCH_DTYPES[lib.pj_value_dtype(c_void_p(value))])
    core().check(lib.pj_value_to_host(core().device, c_void_p(value), c_void_p(out.data_ptr())))
    return out


def prepare(name, values, schema, writes_base=False, random=(0, 0), extra=()):
    lib = core().lib
    op = c_void_p(lib.pj_runtime_op(core().runtime, name.encode()))
    if not lib.pj_op_has_lowering(op):
        raise NotImplementedError(f"{name} has no lowering")
    words = Words(core(), op)
    for i, (argument, value) in enumerate(zip(schema.arguments, values)):
        words.argument(i, argument.real_type if hasattr(argument, "real_type") else argument.type, value)
    if lib.pj_op_flags(op) & RANDOM:
        for number in random:
            words.number(number)
    call = Call(op=op, writes_base=writes_base)
    lib.pj_call_grow(byref(call), len(words.words))
    call.word_count = len(words.words)
    (c_uint64 * len(words.words)).from_address(call.words or 0)[:] = words.words
    for value in words.values:
        lib.pj_call_grow(byref(call), 0)
        (c_void_p * (call.operand_count + 1)).from_address(call.operands)[call.operand_count] = value.value
        call.operand_count += 1
    for number in words.floats:
        lib.pj_call_grow(byref(call), 0)
        (c_double * (call.float_count + 1)).from_address(call.floats)[call.float_count] = number
        call.float_count += 1
    for number in words.ints:
        lib.pj_call_grow(byref(call), 0)
        (c_int64 * (call.int_count + 1)).from_address(call.ints)[call.int_count] = number
        call.int_count += 1
    return call


def submit(call, specs):
    """The results of a prepared call, each a CPU tensor with the strides that its spec says."""
    lib, device = core().lib, core().device
    try:
        plan = c_void_p()
        core().check(lib.pj_submit(device, byref(call), byref(plan)))
        if not plan.value:
            array = (Spec * len(specs))(*specs) if specs is not None else None
            core().check(lib.pj_plan_create(device, byref(call), array, c_size_t(len(specs or []))))
            core().check(lib.pj_submit(device, byref(call), byref(plan)))
        core().check(lib.pj_device_end_op(device))
        outs = []
        results = (c_void_p * call.result_count).from_address(call.results) if call.result_count else []
        for i in range(call.result_count):
            value, spec = to_cpu(results[i]), lib.pj_plan_result(plan, c_size_t(i)).contents
            sizes, strides = spec.sizes[:spec.rank], spec.strides[:spec.rank]
            outs.append(value.flatten().as_strided(sizes, strides) if value.numel() else value.reshape(sizes))
        core().check(lib.pj_device_synchronize(device, c_bool(True)))
        return outs
    finally:
        lib.pj_call_destroy(byref(call))


def run(name, *args, results=None, random=(0, 0), **kwargs):
    """Results of the overload on the device, as a flat list of CPU tensors. Their types come from PyTorch's meta
    kernel, or from `results`, a list of tensors like them (ops without a meta kernel). `random`: seed and offset of
    random ops."""
    op = overload(name)
    values = bound(op._schema, args, kwargs)
    call = prepare(name, values, op._schema, random=random)
    if core().lib.pj_op_flags(c_void_p(call.op)) & DYNAMIC:
        core().check(core().lib.pj_call_resolve(core().device, byref(call)))
        return submit(call, None)
    if results is None:
        kwargs = {key: to_meta(value) for key, value in kwargs.items()}
        if any(argument.name == "device" for argument in op._schema.arguments):
            kwargs["device"] = torch.device("meta")
        results = op(*to_meta(args), **kwargs)
    return submit(call, [spec_of(x) for x in flat_results(results)])


def run_in_place(name, view, *args, **kwargs):
    """The overload called in place through `view`: gives what the whole storage of `view` holds afterwards."""
    op = overload(name)
    call = prepare(name, bound(op._schema, (view, *args), kwargs), op._schema, writes_base=True)
    whole = torch.empty(0, dtype=view.dtype).set_(view.untyped_storage())
    base = view if view.is_contiguous() and view.numel() == whole.numel() else whole
    return submit(call, [spec_of(base)])[0].flatten()


# rtol, atol: PyTorch's defaults for comparisons across devices.
TOLERANCES = {torch.bfloat16: (1.6e-2, 1e-5), torch.float16: (1e-3, 1e-5), torch.float32: (1.3e-6, 1e-5),
              torch.complex64: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7), torch.complex128: (1e-7, 1e-7)}


def compare(name, *args, rtol=None, atol=None, meta=True, **kwargs):
    """The overload gives on the device what it gives on CPU: dtype, sizes, values, NaN included."""
    expected = flat_results(overload(name)(*args, **kwargs))
    got = run(name, *args, results=None if meta else expected, **kwargs)
    assert len(got) == len(expected), f"{name}: {len(got)} results, CPU gives {len(expected)}"
    for i, (g, e) in enumerate(zip(got, expected)):
        r, a = TOLERANCES.get(e.dtype, (0, 0))
        torch.testing.assert_close(g, e.resolve_conj().resolve_neg(), rtol=r if rtol is None else rtol,
                                   atol=a if atol is None else atol, equal_nan=True,
                                   msg=lambda text: f"{name} result {i}: {text}")


def widened(value):
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, (list, tuple)):
        return type(value)(map(widened, value))
    return torch.float64 if value in (torch.float16, torch.bfloat16) else value


def compare_wide(name, *args, rtol=None, atol=None, meta=True, **kwargs):
    """As `compare`; half types are held to the float64 result, narrowed: PyTorch's CPU kernels round some intermediate
    results to half, the device rounds once."""
    exact = flat_results(overload(name)(*args, **kwargs))
    wide = flat_results(overload(name)(*widened(args), **{key: widened(value) for key, value in kwargs.items()}))
    got = run(name, *args, results=None if meta else exact, **kwargs)
    assert len(got) == len(exact), f"{name}: {len(got)} results, CPU gives {len(exact)}"
    for i, (g, e, w) in enumerate(zip(got, exact, wide)):
        r, a = TOLERANCES.get(e.dtype, (0, 0))
        torch.testing.assert_close(g, w.to(e.dtype).resolve_conj().resolve_neg(), rtol=r if rtol is None else rtol,
                                   atol=a if atol is None else atol, equal_nan=True,
                                   msg=lambda text: f"{name}({g.dtype}) result {i}: {text}")


def values(*shape, dtype=torch.float32):
    """Reproducible numbers around 0, of any dtype."""
    generator = torch.Generator().manual_seed(0)
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, generator=generator)
    return (torch.randn(shape, generator=generator) * 4).to(dtype)
