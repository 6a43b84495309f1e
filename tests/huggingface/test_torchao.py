"""torchao's weight-only quantization: weights stay packed on the device, and compute what they do on the CPU."""
import gc

import peft
import pytest
import tiny
import torch
import transformers as hf
from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup

WIDTH, DEPTH = 512, 4
CONFIGS = {
    "int8": Int8WeightOnlyConfig(),
    "float8": Float8WeightOnlyConfig(),
    "int4, a byte each": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(64)),
}
ALLOWED = {"int8": 1.02, "float8": 1.02, "int4, a byte each": 1.08}  # bytes a weight, with the scales


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH))).to(torch.bfloat16)


def allocated() -> int:
    gc.collect()
    torch.tpu.synchronize()
    return torch.tpu.memory_allocated()


@pytest.mark.parametrize("first", ["quantized on the device", "moved when quantized"])
@pytest.mark.parametrize("name", CONFIGS)
def test_weights_stay_packed_on_the_device_and_compute_as_on_the_cpu(name, first):
    x = torch.randn(4, WIDTH, dtype=torch.bfloat16)
    on_cpu, model, before = network(), network(), allocated()
    quantize_(on_cpu, CONFIGS[name])
    if first == "quantized on the device":
        quantize_(model.to("tpu"), CONFIGS[name])
    else:
        quantize_(model, CONFIGS[name])
        model.to("tpu")
    weights = DEPTH * WIDTH * WIDTH
    assert weights <= allocated() - before <= ALLOWED[name] * weights
    with torch.no_grad():
        got = model(x.to("tpu"))
    # A rounding of bfloat16 in each of the four layers.
    torch.testing.assert_close(got.cpu(), on_cpu(x).detach(), rtol=0.02, atol=0.002)
    del got
    assert allocated() - before <= ALLOWED[name] * weights


class Int4Linear(torch.nn.Module):
    """Two weights a byte, a scale a row, unpacked by shifts in the forward pass. It stands for torchao's int4, which is
    packed by kernels of CUDA and XPU only (0.18)."""

    def __init__(self, weight: torch.Tensor):
        super().__init__()
        scale = weight.abs().amax(1, keepdim=True) / 7
        levels = (weight / scale).round().to(torch.int8) + 8
        self.register_buffer("packed", (levels[:, ::2] | levels[:, 1::2] << 4).to(torch.uint8))
        self.register_buffer("scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = torch.stack([self.packed & 15, self.packed >> 4], -1).flatten(1).to(x.dtype) - 8
        return torch.nn.functional.linear(x, levels * self.scale)


@pytest.mark.parametrize("compiled", [False, True])
def test_two_int4_weights_stay_in_a_byte_and_compute_as_on_the_cpu(compiled):
    x, before = torch.randn(4, WIDTH, dtype=torch.bfloat16), allocated()
    model = torch.nn.Sequential(*(Int4Linear(layer.weight.detach()) for layer in network()))
    expected = model(x)
    model.to("tpu")
    weights = DEPTH * WIDTH * WIDTH
    assert allocated() - before <= 0.51 * weights
    got = (torch.compile(model) if compiled else model)(x.to("tpu")).cpu()
    torch.testing.assert_close(got, expected, rtol=0.02, atol=0.002)  # as above
    assert allocated() - before <= 0.51 * weights


@pytest.mark.parametrize("name", CONFIGS)
def test_a_compiled_forward_computes_the_same(name):
    model, x = network().to("tpu"), torch.randn(4, WIDTH, dtype=torch.bfloat16, device="tpu")
    quantize_(model, CONFIGS[name])
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model)(x), model(x), rtol=0.02, atol=0.002)  # as above


@pytest.mark.parametrize("name", ["int8", "float8"])
def test_transformers_quantizes_while_it_loads_onto_the_device(tmp_path, name):
    tiny.qwen3().save_pretrained(tmp_path)

    def load(device):
        return hf.AutoModelForCausalLM.from_pretrained(tmp_path, device_map=device, dtype=torch.float32,
                                                       quantization_config=hf.TorchAoConfig(CONFIGS[name]))

    on_cpu, model, x = load("cpu"), load("tpu"), tiny.tokens()
    weight = model.model.layers[0].mlp.up_proj.weight
    assert weight.device.type == "tpu" and "torchao" in type(weight).__module__
    # The weights are the same integers; sums of them times activations are taken in another order.
    torch.testing.assert_close(model(x.to("tpu")).logits.cpu(), on_cpu(x).logits, rtol=1e-3, atol=1e-3)
    options = dict(max_new_tokens=4, do_sample=False)
    assert torch.equal(model.generate(x.to("tpu"), **options).cpu(), on_cpu.generate(x, **options))


def test_lora_trains_over_torchaos_int8_weights_as_on_the_cpu():
    def run(device):
        model = tiny.qwen3()
        quantize_(model.model, CONFIGS["int8"])
        torch.manual_seed(1)
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"])
        return tiny.train(peft.get_peft_model(model, config).to(device))

    # Steps of AdamW let a rounding difference of the first grow.
    torch.testing.assert_close(run("tpu"), run("cpu"), rtol=1e-3, atol=1e-3)
