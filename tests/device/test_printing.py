"""A tensor's text is the CPU's with the device's name; it is made from one read, and compiles nothing for small tensors."""
import pytest
import torch
from compare import counted

SPECIALS = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-30, 12345.678])
SMALL = {
    "scalar": torch.tensor(2.5), "integer": torch.tensor(7), "bool": torch.tensor([True, False]),
    "row": torch.linspace(-1, 1, 7), "matrix": torch.arange(12.0).reshape(3, 4), "wide": torch.linspace(-1e5, 1e5, 60),
    "specials": SPECIALS, "cube": torch.arange(24).reshape(2, 3, 4), "bfloat16": torch.linspace(0, 3, 5).bfloat16(),
    "float16": torch.linspace(0, 3, 5).half(), "float64": torch.linspace(0, 3, 5).double(),
    "complex": torch.complex(torch.arange(3.0), -torch.arange(3.0)), "uint8": torch.arange(5, dtype=torch.uint8),
    "float8": torch.linspace(0, 3, 5).to(torch.float8_e5m2), "int32": torch.arange(5, dtype=torch.int32),
    "transposed": torch.arange(12.0).reshape(3, 4).t(), "summarized": torch.arange(2000.0).reshape(40, 50),
    "empty": torch.empty(0, 3), "images": torch.arange(48.0).reshape(1, 3, 4, 4).to(memory_format=torch.channels_last),
}



def without_device(text):
    assert text.count("device='tpu:0'") == 1
    return text.replace(", device='tpu:0'", "", 1).replace(",\n       device='tpu:0'", "", 1)


@pytest.mark.eager("strict", "fused")
@pytest.mark.parametrize("text", [repr, str, "{}".format], ids=["repr", "str", "format"])
@pytest.mark.parametrize("name", SMALL)
def test_a_small_tensor_is_read_once_and_compiles_nothing(name, text):
    x = SMALL[name].to("tpu")
    if text == "{}".format and x.dim() == 0:
        text = repr  # a number's own format
    found = []
    work = counted(lambda: found.append(text(x)))
    assert work["programs"] == work["executions"] == 0 and work["host_reads"] == (x.numel() > 0)
    assert without_device(found[0]).split() == text(SMALL[name]).split()


@pytest.mark.eager("strict", "fused")
@pytest.mark.parametrize("view", [
    lambda x: x[1], lambda x: x[:, ::2], lambda x: x.t()[1:], lambda x: x[2, 3], lambda x: x.flatten()[5:9],
    lambda x: x.expand(2, 4, 6), lambda x: x.view(torch.int32)[1:], lambda x: x.as_strided((3, 3), (1, 1), 2)])
def test_a_view_of_a_small_tensor_compiles_nothing(view):
    host = torch.arange(24.0).reshape(4, 6)
    x = view(host.to("tpu"))
    found = []
    work = counted(lambda: found.extend([repr(x), x.tolist()]))
    assert work["programs"] == work["executions"] == 0 and work["host_reads"] == 2
    assert without_device(found[0]).split() == repr(view(host)).split() and found[1] == view(host).tolist()


@pytest.mark.parametrize("shape, dtype", [
    ((2_000_000,), torch.float32), ((1500, 2000), torch.float32), ((3, 800_000), torch.int64), ((800_000, 3), torch.float32),
    ((30, 40, 50, 60), torch.bfloat16), ((900, 1000), torch.complex64), ((3000, 2000), torch.float8_e4m3fn)])
def test_of_a_huge_tensor_only_what_is_printed_is_read(shape, dtype, native):
    count = torch.Size(shape).numel()
    host = ((torch.arange(count) * 37 % 1009).float() / 8).to(dtype).reshape(shape)
    x = host.to("tpu")
    found = []
    work = counted(lambda: found.append(repr(x)))
    assert work["host_reads"] == 1 and work["executions"] == 1 and work["bytes_to_host"] <= 6 ** 4 * 8
    assert without_device(found[0]).split() == repr(host).split()


def test_print_options_are_those_of_the_cpu():
    host = torch.arange(2_000_000.0).reshape(1000, 2000) / 7
    x = host.to("tpu")
    for options in (dict(edgeitems=1), dict(edgeitems=0), dict(precision=2, sci_mode=True), dict(linewidth=200, edgeitems=5)):
        with torch._tensor_str.printoptions(**options):
            assert without_device(repr(x)).split() == repr(host).split()
            assert without_device(repr(x[0])).split() == repr(host[0]).split()


def test_what_autograd_knows_is_printed_as_on_the_cpu():
    x = torch.arange(3.0).to("tpu").requires_grad_()
    assert repr(x) == "tensor([0., 1., 2.], device='tpu:0', requires_grad=True)"
    assert repr(x * 2) == "tensor([0., 2., 4.], device='tpu:0', grad_fn=<MulBackward0>)"
    assert repr(torch.nn.Parameter(x.detach())).startswith("Parameter containing:\ntensor([0., 1., 2.], device='tpu:0'")
    assert repr(torch.complex(x, x).detach().conj()) == "tensor([0.-0.j, 1.-1.j, 2.-2.j], device='tpu:0')"
    assert repr(torch.complex(x, x).detach().conj().imag) == "tensor([-0., -1., -2.], device='tpu:0')"
