"""PEFT on the device: adapters are trained, merged, saved and loaded, over float and over int8 weights."""
import peft
import pytest
import tiny
import torch

CONFIGS = {
    "lora": peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False),
    "lora of one matrix": peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False),
    "dora": peft.LoraConfig(r=4, use_dora=True, target_modules=["q_proj", "down_proj"], init_lora_weights=False),
    "ia3": peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"],
                          init_ia3_weights=False),
    "prompt": peft.PromptTuningConfig(num_virtual_tokens=3),
}


def adapted(config, device: str) -> peft.PeftModel:
    model = tiny.qwen3()
    torch.manual_seed(1)
    config.task_type = "CAUSAL_LM"
    return peft.get_peft_model(model, config).to(device)


def logits(model) -> torch.Tensor:
    device = next(model.parameters()).device
    ids = torch.randint(1, 256, (2, 7), generator=torch.Generator().manual_seed(3)).to(device)
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits.cpu()


@pytest.mark.parametrize("name", CONFIGS)
def test_an_adapter_trains_as_on_the_cpu_and_leaves_the_base_alone(name):
    on_cpu, on_tpu = adapted(CONFIGS[name], "cpu"), adapted(CONFIGS[name], "tpu")
    base = {n: p.detach().cpu().clone() for n, p in on_tpu.named_parameters() if not p.requires_grad}
    assert base
    # Steps of AdamW let a rounding difference of the first grow.
    torch.testing.assert_close(tiny.train(on_tpu), tiny.train(on_cpu), rtol=1e-4, atol=1e-4)
    for n, p in on_tpu.named_parameters():
        if n in base:
            assert torch.equal(p.cpu(), base[n]), n


def test_a_trained_adapter_merges_into_the_weights_and_comes_out_again():
    model = adapted(CONFIGS["lora"], "tpu")
    tiny.train(model)
    before = logits(model)
    model.merge_adapter()
    torch.testing.assert_close(logits(model), before)
    model.unmerge_adapter()
    torch.testing.assert_close(logits(model), before)
    merged = model.merge_and_unload()
    assert type(merged) is type(tiny.qwen3()) and {p.device.type for p in merged.parameters()} == {"tpu"}
    torch.testing.assert_close(logits(merged), before)


def test_a_saved_adapter_loads_onto_the_device_and_onto_the_cpu(tmp_path):
    model = adapted(CONFIGS["lora"], "tpu")
    tiny.train(model)
    model.save_pretrained(tmp_path)
    for device in ("tpu", "cpu"):
        loaded = peft.PeftModel.from_pretrained(tiny.qwen3().to(device), tmp_path)
        assert {p.device.type for p in loaded.parameters()} == {device}
        torch.testing.assert_close(logits(loaded), logits(model))


def test_several_adapters_are_switched_and_disabled():
    model = adapted(CONFIGS["lora"], "tpu")
    first = logits(model)
    model.add_adapter("other", CONFIGS["dora"])
    model.set_adapter("other")
    assert {p.device.type for p in model.parameters()} == {"tpu"}
    assert not torch.allclose(logits(model), first)
    model.set_adapter("default")
    torch.testing.assert_close(logits(model), first)
    with model.disable_adapter():
        torch.testing.assert_close(logits(model), tiny.qwen3()(torch.randint(
            1, 256, (2, 7), generator=torch.Generator().manual_seed(3))).logits.detach())


class Int8Linear(torch.nn.Linear):
    """A frozen linear layer whose weight is int8 with a scale a row, widened in the forward pass: QLoRA's base."""

    def __init__(self, linear: torch.nn.Linear):
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        self.weight = torch.nn.Parameter((linear.weight.detach() / scale).round().to(torch.int8), requires_grad=False)
        self.register_buffer("scale", scale)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight.to(x.dtype) * self.scale, self.bias)


def test_lora_trains_over_int8_base_weights_that_stay_int8_on_the_device():
    def build(device):
        model = tiny.qwen3()
        for layer in model.model.layers:
            for block in (layer.self_attn, layer.mlp):
                for name, child in list(block.named_children()):
                    if isinstance(child, torch.nn.Linear):
                        setattr(block, name, Int8Linear(child))
        torch.manual_seed(1)
        config = peft.LoraConfig(r=4, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj", "down_proj"])
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        return peft.get_peft_model(model, config).to(device)

    on_cpu, on_tpu = build("cpu"), build("tpu")
    # Steps of AdamW let a rounding difference of the first grow.
    torch.testing.assert_close(tiny.train(on_tpu), tiny.train(on_cpu), rtol=1e-4, atol=1e-4)
    packed = [p for p in on_tpu.parameters() if p.dtype == torch.int8]
    assert len(packed) == 14 and {p.device.type for p in packed} == {"tpu"}
