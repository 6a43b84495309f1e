"""Trains a small FLUX transformer by flow matching to draw digits, on device "tpu", then draws one of each.

    python examples/flux_step.py [--steps 400] [--out out]

The data are scikit-learn's 8x8 digits; the digit's number stands where a prompt's embedding does. One step is
--steps 1.
"""
import argparse
import sys
from pathlib import Path

import torch
from tqdm import tqdm

SIDE, PATCH, WORD = 8, 2, 32
PATCHES = (SIDE // PATCH) ** 2


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """f32[1797, 16, 4], patches of the images between -1 and 1, and i64[1797], the digits."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return to_patches(torch.tensor(data.images, dtype=torch.float32) / 8 - 1), torch.tensor(data.target)


def to_patches(images: torch.Tensor) -> torch.Tensor:
    n = SIDE // PATCH
    return images.view(-1, n, PATCH, n, PATCH).transpose(2, 3).reshape(-1, PATCHES, PATCH * PATCH)


def to_images(patches: torch.Tensor) -> torch.Tensor:
    n = SIDE // PATCH
    return patches.view(-1, n, n, PATCH, PATCH).transpose(2, 3).reshape(-1, SIDE, SIDE)


class Digits(torch.nn.Module):
    """diffusers' FLUX transformer, conditioned on a digit."""

    def __init__(self, width: int = 64):
        super().__init__()
        from diffusers import FluxTransformer2DModel

        self.words = torch.nn.Embedding(10, WORD)
        self.flux = FluxTransformer2DModel(
            in_channels=PATCH * PATCH, num_layers=2, num_single_layers=2, attention_head_dim=16,
            num_attention_heads=width // 16, joint_attention_dim=WORD, pooled_projection_dim=WORD,
            axes_dims_rope=(4, 6, 6))
        row, column = torch.meshgrid(*(2 * [torch.arange(float(SIDE // PATCH))]), indexing="ij")
        self.register_buffer("places", torch.stack([torch.zeros(PATCHES), row.flatten(), column.flatten()], 1))
        self.register_buffer("no_place", torch.zeros(1, 3))

    def forward(self, noisy: torch.Tensor, t: torch.Tensor, digit: torch.Tensor) -> torch.Tensor:
        """The velocity from images to noise: f32[n, 16, 4] of f32[n, 16, 4], f32[n] times in [0, 1], i64[n] digits."""
        word = self.words(digit)
        return self.flux(hidden_states=noisy, timestep=t, encoder_hidden_states=word[:, None], pooled_projections=word,
                         txt_ids=self.no_place, img_ids=self.places).sample


def train(device: str, steps: int, batch: int):
    """The model and the loss of each step; a step's noise is drawn on the host, the same for every device."""
    torch.manual_seed(0)
    model, (images, labels) = Digits().to(device), digits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draw, losses = torch.Generator().manual_seed(1), []
    for _ in tqdm(range(steps), desc=f"training on {device}"):
        chosen = torch.randint(0, len(images), (batch,), generator=draw)
        clean, noise = images[chosen].to(device), torch.randn(batch, PATCHES, PATCH * PATCH, generator=draw).to(device)
        t = torch.rand(batch, generator=draw).to(device)
        noisy = torch.lerp(clean, noise, t[:, None, None])
        loss = (model(noisy, t, labels[chosen].to(device)) - (noise - clean)).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return model, torch.stack(losses).cpu().tolist()


@torch.no_grad()
def draw_digits(model: Digits, steps: int = 20) -> torch.Tensor:
    """f32[10, 8, 8]: from noise along the velocity, Euler's steps."""
    device = model.places.device
    x = torch.randn(10, PATCHES, PATCH * PATCH, generator=torch.Generator().manual_seed(2)).to(device)
    for i in range(steps, 0, -1):
        x = x - model(x, torch.full((10,), i / steps, device=device), torch.arange(10, device=device)) / steps
    return to_images(x).cpu()


def run(steps: int = 400, batch: int = 32) -> dict:
    model, losses = train("tpu", steps, batch)
    _, expected = train("cpu", min(steps, 3), batch)
    last = losses[-20:]
    return {"model": model, "first loss": losses[0], "mean loss of the last 20 steps": sum(last) / len(last),
            "largest difference of the first losses to the CPU's": max(abs(a - b) for a, b in zip(losses, expected))}


def plot(images, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 10, figsize=(10, 1.4))
    for digit, (axis, image) in enumerate(zip(axes, images)):
        axis.imshow(image, cmap="gray", vmin=-1, vmax=1)
        axis.set_title(str(digit))
        axis.axis("off")
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the drawing")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.tpu.set_fallback("error")
    report = run(options.steps, options.batch)
    plot(draw_digits(report.pop("model")), options.out / "flux.png")
    for name, value in report.items():
        print(f"{name:<52} {value:.4f}")
    print(f"drawing: {options.out / 'flux.png'}")
    good = report["largest difference of the first losses to the CPU's"] < 1e-3
    return not (good and (options.steps < 400 or report["mean loss of the last 20 steps"] < 0.5))


if __name__ == "__main__":
    sys.exit(main())
