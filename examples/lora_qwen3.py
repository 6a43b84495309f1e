"""Adapts a small Qwen3 from English to Python with LoRA, on device "tpu": the base stays as it is.

    python examples/lora_qwen3.py [--base-steps 150] [--steps 150]

The base learns the text of CPython's language reference first, the adapter then source code of the standard library.
Ends with status 1 when code did not become likelier, the base has changed, or the merged model says something else.
"""
import argparse
import inspect
import sys

import torch
from tqdm import tqdm

CONTEXT, BATCH = 64, 8


def english() -> torch.Tensor:
    from pydoc_data.topics import topics

    return as_bytes("\n".join(topics.values()))


def code(*modules: str) -> torch.Tensor:
    return as_bytes("\n".join(inspect.getsource(__import__(name)) for name in modules))


def as_bytes(text: str) -> torch.Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.long)


def small_qwen3(width: int):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(
        vocab_size=256, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=width // 4, max_position_embeddings=2 * CONTEXT, bos_token_id=None,
        eos_token_id=None, pad_token_id=0))


def batches(tokens: torch.Tensor, count: int, seed: int):
    draw = torch.Generator().manual_seed(seed)
    for _ in range(count):
        starts = torch.randint(0, len(tokens) - CONTEXT, (BATCH,), generator=draw)
        yield torch.stack([tokens[s:s + CONTEXT] for s in starts.tolist()])


def train(model, tokens: torch.Tensor, steps: int, rate: float, name: str) -> list[float]:
    """The losses, nats a byte; trains what requires a gradient."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    losses = []
    for batch in tqdm(batches(tokens, steps, 1), total=steps, desc=name):
        batch = batch.to(model.device)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).cpu().tolist()


@torch.no_grad()
def loss_of(model, tokens: torch.Tensor) -> float:
    losses = [model(input_ids=b, labels=b).loss for b in (x.to(model.device) for x in batches(tokens, 8, 2))]
    return torch.stack(losses).mean().item()


def run(base_steps: int = 150, steps: int = 150, width: int = 128) -> dict:
    import peft

    base = small_qwen3(width).to("tpu")
    train(base, english(), base_steps, 3e-3, "base: English")
    held_out = code("textwrap")
    report = {"code, before": loss_of(base, held_out)}
    model = peft.get_peft_model(base, peft.LoraConfig(r=8, lora_alpha=32, target_modules="all-linear",
                                                      task_type="CAUSAL_LM"))
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    train(model, code("argparse", "inspect", "typing"), steps, 1e-2, "adapter: Python")
    report["code, with the adapter"] = loss_of(model, held_out)
    trained, every = model.get_nb_trainable_parameters()
    report["trained share of the weights"] = trained / every
    report["the base is as it was"] = all(torch.equal(p, frozen[n]) for n, p in model.named_parameters() if n in frozen)
    report["code, merged"] = loss_of(model.merge_and_unload(), held_out)
    return report


def failures(report: dict, least: float = 0.2):
    """What is not as it should be, in words; code is to become likelier by `least` nats a byte."""
    if not report["code, with the adapter"] < report["code, before"] - least:
        yield f"code did not become likelier by {least} nats a byte"
    if not report["the base is as it was"]:
        yield "training the adapter changed the base"
    if not abs(report["code, merged"] - report["code, with the adapter"]) < 1e-3:
        yield "the merged model says something else than the adapted one"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-steps", type=int, default=150)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--width", type=int, default=128)
    options = parser.parse_args()
    torch.tpu.set_fallback("error")
    report = run(options.base_steps, options.steps, options.width)
    for name, value in report.items():
        print(f"{name:<30} {value if isinstance(value, bool) else round(value, 4)}")
    problems = list(failures(report))
    for problem in problems:
        print("NOT AS IT SHOULD BE:", problem, file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
