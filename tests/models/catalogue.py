"""Small Transformers models with random weights, one entry a model family, each with the inputs of one batch.

Sizes are the smallest that keep what makes the family special: grouped-query attention, experts, sliding windows,
relative positions, convolutions in front, tied embeddings.
"""
from dataclasses import dataclass
from typing import Callable

import torch
import torch_pjrt  # noqa: F401
import transformers as hf

VOCABULARY, BATCH, LENGTH = 64, 2, 12
# Token 0 pads. Nothing ends a generation early.
TEXT = dict(vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=None, eos_token_id=None)
DECODER = dict(**TEXT, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, head_dim=8, max_position_embeddings=64)


def tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (BATCH, length))


def text() -> dict[str, torch.Tensor]:
    """Tokens and labels; the second row is padded on the left."""
    ids, mask = tokens(), torch.ones(BATCH, LENGTH, dtype=torch.long)
    ids[1, :3], mask[1, :3] = 0, 0
    return dict(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100))


@dataclass(frozen=True)
class Family:
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[], dict[str, torch.Tensor]]
    prompt: Callable[[], dict[str, torch.Tensor]] | None = None  # of models that generate


def causal(config: hf.PretrainedConfig) -> Family:
    return Family(lambda: hf.AutoModelForCausalLM.from_config(config), text, lambda: dict(input_ids=tokens()))


FAMILIES = {
    "qwen3": causal(hf.Qwen3Config(**DECODER)),
    "llama": causal(hf.LlamaConfig(**DECODER)),
    # A padding token has an embedding of zeros, which ties its experts; which of them top-k takes is not defined.
    "mixtral": causal(hf.MixtralConfig(**{**DECODER, "pad_token_id": None}, num_local_experts=4,
                                       num_experts_per_tok=2)),
    "gemma3": causal(hf.Gemma3TextConfig(**DECODER, sliding_window=6, query_pre_attn_scalar=8,
                                         layer_types=["sliding_attention", "full_attention"])),
    "gpt2": causal(hf.GPT2Config(**TEXT, n_embd=32, n_layer=2, n_head=4, n_positions=64)),
    "bert": Family(
        lambda: hf.BertForMaskedLM(hf.BertConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48,
                                                 num_hidden_layers=2, num_attention_heads=4,
                                                 max_position_embeddings=64)), text),
    "t5": Family(
        lambda: hf.T5ForConditionalGeneration(hf.T5Config(
            vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0,
            eos_token_id=None)),
        text, lambda: dict(input_ids=tokens())),
    "vit": Family(
        lambda: hf.ViTForImageClassification(hf.ViTConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=32,
            patch_size=8, num_labels=5)),
        lambda: dict(pixel_values=torch.randn(BATCH, 3, 32, 32), labels=torch.randint(0, 5, (BATCH,)))),
    "whisper": Family(
        lambda: hf.WhisperForConditionalGeneration(hf.WhisperConfig(
            vocab_size=VOCABULARY, d_model=32, num_mel_bins=8, encoder_layers=2, encoder_attention_heads=4,
            decoder_layers=2, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
            max_source_positions=16, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=None,
            decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)),
        lambda: dict(input_features=torch.randn(BATCH, 8, 32), labels=tokens()),
        lambda: dict(input_features=torch.randn(BATCH, 8, 32))),
}


def build(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return FAMILIES[name].build().eval()


def inputs(name: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return FAMILIES[name].inputs()


def prompt(name: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(2)
    return FAMILIES[name].prompt()


def on(batch: dict[str, torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    return {name: tensor.to(device) for name, tensor in batch.items()}


def programs() -> int:
    """How many programs the process has made: compiled, or loaded from the cache on disk."""
    counters = torch.tpu.counters()
    return counters["compiles"] + counters["cache_loads"]
