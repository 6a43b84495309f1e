"""Trains a DLRM on clicks that a hidden model draws, on device "tpu", and tells how well it ranks unseen clicks.

    python examples/dlrm.py [--steps 300] [--batch 256] [--out out]

DLRM (Naumov et al. 2019): bags of category embeddings and a small network over the numbers meet in pairwise products.
"""
import argparse
import sys
from pathlib import Path

import torch
from tqdm import tqdm

NUMBERS, BAG, WIDTH = 4, 3, 16
CATEGORIES = (1000, 500, 100)


class Clicks:
    """Batches of users' numbers, categories and clicks. A click's log-odds are a product of hidden factors."""

    def __init__(self, seed: int = 0):
        self.draw = torch.Generator().manual_seed(seed)
        hidden = torch.Generator().manual_seed(1234)
        self.factors = [torch.randn(n, 2, generator=hidden) for n in CATEGORIES]
        self.slope = torch.randn(NUMBERS, generator=hidden)

    def batch(self, size: int):
        """numbers f32[size, 4], one i64[size, 3] of indices a category, clicks f32[size]."""
        numbers = torch.randn(size, NUMBERS, generator=self.draw)
        # Few categories are common and many are rare, as in real logs.
        bags = [(n * torch.rand(size, BAG, generator=self.draw) ** 2).long() for n in CATEGORIES]
        a, b, c = (f[bag].mean(1) for f, bag in zip(self.factors, bags))
        odds = 3 * ((a * b).sum(1) + (b * c).sum(1)) + numbers @ self.slope
        return numbers, bags, torch.bernoulli(odds.sigmoid(), generator=self.draw)


class DLRM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bags = torch.nn.ModuleList(torch.nn.EmbeddingBag(n, WIDTH, mode="mean") for n in CATEGORIES)
        for bag in self.bags:
            torch.nn.init.normal_(bag.weight, std=0.1)
        self.bottom = torch.nn.Sequential(torch.nn.Linear(NUMBERS, 32), torch.nn.ReLU(), torch.nn.Linear(32, WIDTH))
        fields = len(CATEGORIES) + 1
        self.top = torch.nn.Sequential(torch.nn.Linear(WIDTH + fields * (fields - 1) // 2, 32), torch.nn.ReLU(),
                                       torch.nn.Linear(32, 1))
        self.register_buffer("pairs", torch.triu_indices(fields, fields, 1), persistent=False)

    def forward(self, numbers: torch.Tensor, categories: list[torch.Tensor]) -> torch.Tensor:
        dense = self.bottom(numbers)
        fields = torch.stack([dense, *(bag(x) for bag, x in zip(self.bags, categories))], 1)
        products = (fields @ fields.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, products], 1)).squeeze(1)


def to(device, numbers, categories, clicks):
    return numbers.to(device), [c.to(device) for c in categories], clicks.to(device)


def train(device: str, steps: int, batch: int):
    """The model and the loss of each step."""
    torch.manual_seed(0)
    model, data, losses = DLRM().to(device), Clicks(), []
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for _ in tqdm(range(steps), desc=f"training on {device}"):
        numbers, categories, clicks = to(device, *data.batch(batch))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(numbers, categories), clicks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return model, torch.stack(losses).cpu().tolist()


def area_under_curve(scores: torch.Tensor, clicks: torch.Tensor) -> float:
    """The chance that a click scores higher than what was not clicked."""
    ranks = scores.argsort().argsort().double() + 1
    positive = clicks.sum().item()
    return ((ranks[clicks > 0].sum() - positive * (positive + 1) / 2) / (positive * (len(clicks) - positive))).item()


def run(steps: int = 300, batch: int = 256) -> dict:
    model, losses = train("tpu", steps, batch)
    compared = min(steps, 10)
    _, expected = train("cpu", compared, batch)
    numbers, categories, clicks = Clicks(seed=99).batch(4096)
    with torch.no_grad():
        scores = model(*to("tpu", numbers, categories, clicks)[:2]).cpu()
    last = losses[-20:]
    return {"losses": losses, "first loss": losses[0], "mean loss of the last 20 steps": sum(last) / len(last),
            "largest difference of the first losses to the CPU's": max(abs(a - b) for a, b in zip(losses, expected)),
            "area under the curve, unseen clicks": area_under_curve(scores, clicks)}


def plot(losses, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="cross entropy, nats", title="DLRM on device tpu")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the loss curve")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.tpu.set_fallback("error")
    report = run(options.steps, options.batch)
    plot(report.pop("losses"), options.out / "dlrm.png")
    for name, value in report.items():
        print(f"{name:<52} {value:.4f}")
    print(f"loss curve: {options.out / 'dlrm.png'}")
    good = report["largest difference of the first losses to the CPU's"] < 1e-3
    good &= options.steps < 300 or report["area under the curve, unseen clicks"] > 0.7
    return not good


if __name__ == "__main__":
    sys.exit(main())
