"""The models that compare.py trains and decodes with, in PyTorch; models_jax.py has the same in JAX. Weights and inputs come
from one NumPy generator, so that the contenders' losses can be compared."""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY, WIDTH, HEADS, KV_HEADS, HEAD, INNER = 256, 256, 4, 2, 64, 768
BATCH, LENGTH = 8, 128
LEARNING_RATE, BETAS, EPSILON, DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01


def tokens():
    return np.random.default_rng(1).integers(0, VOCABULARY, (BATCH, LENGTH + 1))


def images():
    draw = np.random.default_rng(1)
    return draw.standard_normal((32, 3, 32, 32)).astype(np.float32), draw.integers(0, 10, 32)


def weights(shapes):
    """Name -> float32 array, for name -> shape: normal with the deviation of 1/sqrt(fan in); norms' weights are 1, biases 0."""
    draw = np.random.default_rng(0)
    made = {}
    for name, shape in shapes.items():
        if len(shape) > 1:
            made[name] = (draw.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))).astype(np.float32)
        else:
            made[name] = (np.zeros if name.endswith("bias") else np.ones)(shape, np.float32)
    return made


def load(model):
    model.load_state_dict({name: torch.from_numpy(w) for name, w in
                           weights({name: tuple(p.shape) for name, p in model.named_parameters()}).items()}, strict=False)
    return model


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


def rotary(positions, dtype):
    angle = positions[:, None] * (10000.0 ** (-torch.arange(0, HEAD, 2, device=positions.device) / HEAD))[None]
    return torch.cat([angle, angle], -1).cos().to(dtype), torch.cat([angle, angle], -1).sin().to(dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm, self.q_norm, self.k_norm = RMSNorm(WIDTH), RMSNorm(WIDTH), RMSNorm(HEAD), RMSNorm(HEAD)
        self.q, self.k, self.v, self.o = (nn.Linear(a, b, bias=False) for a, b in (
            (WIDTH, HEADS * HEAD), (WIDTH, KV_HEADS * HEAD), (WIDTH, KV_HEADS * HEAD), (HEADS * HEAD, WIDTH)))
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in (
            (WIDTH, INNER), (WIDTH, INNER), (INNER, WIDTH)))

    def heads(self, x):
        h = self.attention_norm(x)
        b, t, _ = x.shape
        q = self.q_norm(self.q(h).view(b, t, HEADS, HEAD)).transpose(1, 2)
        k = self.k_norm(self.k(h).view(b, t, KV_HEADS, HEAD)).transpose(1, 2)
        return q, k, self.v(h).view(b, t, KV_HEADS, HEAD).transpose(1, 2)

    def finish(self, x, attended):
        x = x + self.o(attended.transpose(1, 2).reshape(x.shape))
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))

    def forward(self, x, cos, sin):
        q, k, v = self.heads(x)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return self.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))

    def decode(self, x, cos, sin, cache, position, mask):
        q, k, v = self.heads(x)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        keys, values = cache[0].index_copy_(2, position, k), cache[1].index_copy_(2, position, v)
        return self.finish(x, F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True))


class Qwen(nn.Module):
    """Qwen3's layers: RMSNorm, grouped-query attention with normalised heads, rotary positions, SwiGLU, tied embeddings."""

    def __init__(self, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm = RMSNorm(WIDTH)

    def forward(self, ids):
        x = self.embedding(ids)
        cos, sin = rotary(torch.arange(ids.shape[1], device=ids.device), x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embedding.weight)

    def decode(self, ids, position, caches):
        """The next token of each row; `ids` [batch, 1], `position` [1]."""
        x = self.embedding(ids)
        cos, sin = rotary(position, x.dtype)
        mask = torch.arange(caches[0][0].shape[2], device=ids.device)[None] <= position[:, None]
        for layer, cache in zip(self.layers, caches):
            x = layer.decode(x, cos, sin, cache, position, mask)
        return F.linear(self.norm(x), self.embedding.weight)[:, -1].argmax(-1, keepdim=True)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + self.short(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


class LSTM(nn.Module):
    """One cell over 100 steps."""

    STEPS, BATCH, WIDTH = 100, 16, 128

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(self.WIDTH, self.WIDTH)

    def forward(self, x):
        h = c = torch.zeros(self.BATCH, self.WIDTH, device=x.device)
        for step in range(self.STEPS):
            h, c = self.cell(x[step], (h, c))
        return h.square().mean()
