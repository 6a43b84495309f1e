"""Teaches a small Qwen3 by reinforcement (GRPO) to write lower-case letters, on device "tpu".

    python examples/grpo.py [--steps 60] [--out out]

The reward is a rule that anyone can check: the share of a completion's characters that are lower-case letters. The
model begins with random weights, so the reward begins at the share of such characters among all bytes, about a tenth.
"""
import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched

import torch

PROMPTS = ["red", "green", "blue", "black", "white", "grey", "pink", "brown"]
NEW_TOKENS = 8


def byte_tokenizer():
    """A token a byte, and three special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                                   padding_side="left")


def small_qwen3(tokenizer):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id))


def share_of_letters(completions, **_):
    """The share of lower-case letters in each completion."""
    return [sum("a" <= c <= "z" for c in text) / max(len(text), 1) for text in completions]


def run(steps: int, folder: Path) -> dict:
    import datasets
    import trl

    tokenizer = byte_tokenizer()
    # Prompts of one length, so that no step meets a new shape.
    rows = datasets.Dataset.from_dict({"prompt": [p.ljust(5) for p in PROMPTS]})
    trainer = trl.GRPOTrainer(
        small_qwen3(tokenizer), share_of_letters, processing_class=tokenizer, train_dataset=rows,
        args=trl.GRPOConfig(str(folder), max_steps=steps, per_device_train_batch_size=16, num_generations=8,
                            max_completion_length=NEW_TOKENS, learning_rate=3e-3, lr_scheduler_type="constant",
                            logging_steps=1, save_strategy="no", report_to=[], bf16=False, gradient_checkpointing=False,
                            seed=0))
    trainer.train()
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    tenth = max(1, len(rewards) // 10)
    return {"rewards": rewards, "device": trainer.model.device.type, "first tenth": sum(rewards[:tenth]) / tenth,
            "last tenth": sum(rewards[-tenth:]) / tenth}


def plot(rewards, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.plot(rewards)
    axes.set(xlabel="step", ylabel="share of lower-case letters", title="GRPO on device tpu", ylim=(0, 1))
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the reward's curve")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.tpu.set_fallback("error")
    report = run(options.steps, options.out / "grpo")
    plot(report["rewards"], options.out / "grpo.png")
    print(f"on {report['device']}: the reward went from {report['first tenth']:.3f} to {report['last tenth']:.3f}; "
          f"curve: {options.out / 'grpo.png'}")
    return not (report["device"] == "tpu" and report["last tenth"] > report["first tenth"] + 0.2)


if __name__ == "__main__":
    sys.exit(main())
