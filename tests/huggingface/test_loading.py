"""from_pretrained onto the device: where the weights are, what they compute, and what memory loading takes."""
import json

import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM

LAYERS = ("model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "model.rotary_emb", "lm_head")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen3")
    tiny.qwen3().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def inputs():
    torch.manual_seed(1)
    return tiny.tokens()


@pytest.fixture(scope="module")
def expected(saved, inputs):
    return AutoModelForCausalLM.from_pretrained(saved)(inputs).logits.detach()


def load(saved, **options):
    return AutoModelForCausalLM.from_pretrained(saved, **options)


def places(model) -> set[str]:
    return {str(p.device) for p in model.parameters()} | {str(b.device) for b in model.buffers()}


@pytest.mark.parametrize("device_map, where", [
    ("tpu", "tpu:0"), ({"": "tpu:0"}, "tpu:0"), ({"": 0}, "tpu:0"), (torch.device("tpu"), "tpu:0"), (0, "tpu:0"),
    ("auto", "tpu:0"), ("balanced", "tpu:0"), ("sequential", "tpu:0")], ids=repr)
def test_every_device_map_loads_onto_the_device_and_computes_as_the_cpu(saved, inputs, expected, device_map, where):
    model = load(saved, device_map=device_map)
    assert places(model) == {where}
    torch.testing.assert_close(model(inputs.to("tpu")).logits.cpu(), expected)


def test_device_map_auto_puts_on_the_cpu_what_the_device_is_said_not_to_hold(saved, inputs, expected):
    sizes = {name: sum(p.numel() * p.element_size() for p in tiny.qwen3().get_submodule(name).parameters())
             for name in LAYERS}
    room = sizes["model.embed_tokens"] + sizes["model.layers.0"] + sizes["model.layers.1"]  # one is kept free
    model = load(saved, device_map="auto", max_memory={0: f"{room // 1000 + 1}KB", "cpu": "1GB"})
    assert set(model.hf_device_map.values()) == {0, "cpu"}
    torch.testing.assert_close(model(inputs.to("tpu")).logits.cpu(), expected)


def test_a_split_map_offloads_a_layer_to_the_cpu_and_another_to_the_disk(saved, inputs, expected, tmp_path):
    split = {**dict.fromkeys(LAYERS, "tpu"), "model.layers.0": "cpu", "model.layers.1": "disk"}
    model = load(saved, device_map=split, offload_folder=tmp_path)
    logits = model(inputs.to("tpu")).logits
    assert logits.device.type == "tpu"
    torch.testing.assert_close(logits.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, "auto"], ids=str)
def test_dtype_is_taken_over(saved, inputs, dtype):
    model, on_cpu = load(saved, device_map="tpu", dtype=dtype), load(saved, dtype=dtype)
    assert {p.dtype for p in model.parameters()} == {p.dtype for p in on_cpu.parameters()}
    # A rounding of these types, in logits of about 0.3.
    torch.testing.assert_close(model(inputs.to("tpu")).logits.cpu(), on_cpu(inputs).logits, rtol=0.02, atol=0.004)


def test_under_a_device_context_weights_come_to_the_device_and_save_and_load_again(saved, inputs, expected, tmp_path):
    with torch.device("tpu"):
        model = load(saved)
    assert places(model) == {"tpu:0"}
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(load(tmp_path)(inputs).logits, expected)


ON_TWO_DEVICES = """
import sys, torch
from transformers import AutoModelForCausalLM
folder, inputs = sys.argv[1], torch.arange(1, 13).reshape(1, 12)
expected = AutoModelForCausalLM.from_pretrained(folder)(inputs).logits
second = AutoModelForCausalLM.from_pretrained(folder, device_map={"": "tpu:1"})
assert {str(p.device) for p in second.parameters()} == {"tpu:1"}
torch.testing.assert_close(second(inputs.to("tpu:1")).logits.cpu(), expected)
both = AutoModelForCausalLM.from_pretrained(folder, device_map="auto")
assert {str(p.device) for p in both.parameters()} == {"tpu:0", "tpu:1"}, both.hf_device_map
torch.testing.assert_close(both(inputs.to("tpu")).logits.cpu(), expected)
"""


def test_with_two_devices_a_map_names_the_second_and_auto_takes_both(saved, process):
    process(ON_TWO_DEVICES, saved, TORCH_PJRT_CPU_DEVICES="2")


# Prints bytes: of the weights, of the host's and the CPU plugin's own memory (file pages are not of it), of the device.
MEMORY = """
import json, sys, threading, time, torch, transformers
from transformers.models.qwen3 import modeling_qwen3

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024

torch.ones(4, device="tpu").sum().item()
before, peak, done = anonymous(), 0, False
def watch():
    global peak
    while not done:
        peak = max(peak, anonymous())
        time.sleep(0.001)
watcher = threading.Thread(target=watch)
watcher.start()
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], device_map="tpu")
torch.tpu.synchronize()
done = True
watcher.join()
weights = sum(p.numel() * p.element_size() for p in model.parameters())
print(json.dumps([weights, peak - before, torch.tpu.max_memory_allocated()]))
"""


def test_loading_takes_less_than_1_2_times_the_weights_of_host_and_device_memory_together(tmp_path, process):
    model = tiny.qwen3(hidden_size=512, intermediate_size=1536, num_hidden_layers=16)
    model.save_pretrained(tmp_path, max_shard_size="40MB")
    weights, both, device = json.loads(process(MEMORY, tmp_path).splitlines()[-1])
    assert weights > 150e6
    assert device < 1.2 * weights and both < 1.2 * weights, (weights, both, device)
