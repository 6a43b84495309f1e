"""The models of models.py in JAX: one jitted function a step, parameters and optimizer state donated."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import models as m


def rms_norm(x, weight):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(jnp.square(y), -1, keepdims=True) + 1e-6)).astype(x.dtype) * weight


def rotary(positions, dtype):
    angle = positions[:, None] * (10000.0 ** (-jnp.arange(0, m.HEAD, 2) / m.HEAD))[None]
    return (jnp.concatenate([f(angle)] * 2, -1).astype(dtype) for f in (jnp.cos, jnp.sin))


def rotate(x, cos, sin):
    a, b = jnp.split(x, 2, -1)
    return x * cos[:, None] + jnp.concatenate([-b, a], -1) * sin[:, None]


def heads(p, name, x):
    h = rms_norm(x, p[name + "attention_norm.weight"])
    b, t, _ = x.shape
    q = rms_norm((h @ p[name + "q.weight"].T).reshape(b, t, m.HEADS, m.HEAD), p[name + "q_norm.weight"])
    k = rms_norm((h @ p[name + "k.weight"].T).reshape(b, t, m.KV_HEADS, m.HEAD), p[name + "k_norm.weight"])
    return q, k, (h @ p[name + "v.weight"].T).reshape(b, t, m.KV_HEADS, m.HEAD)


def finish(p, name, x, attended):
    x = x + attended.reshape(x.shape) @ p[name + "o.weight"].T
    h = rms_norm(x, p[name + "mlp_norm.weight"])
    return x + (jax.nn.silu(h @ p[name + "gate.weight"].T) * (h @ p[name + "up.weight"].T)) @ p[name + "down.weight"].T


def qwen(p, layers, ids):
    x = p["embedding.weight"][ids]
    cos, sin = rotary(jnp.arange(ids.shape[1]), x.dtype)
    for i in range(layers):
        name = f"layers.{i}."
        q, k, v = heads(p, name, x)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        x = finish(p, name, x, jax.nn.dot_product_attention(q, k, v, is_causal=True))
    return rms_norm(x, p["norm.weight"]) @ p["embedding.weight"].T


def cross_entropy(logits, labels):
    logits = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(logits, labels[..., None], -1))


def adamw(p, state, gradients, step):
    """Every parameter as PyTorch's AdamW, in the parameter's dtype."""
    b1, b2 = m.BETAS

    def update(w, mean, square, g):
        mean = b1 * mean + (1 - b1) * g
        square = b2 * square + (1 - b2) * g * g
        w = w * (1 - m.LEARNING_RATE * m.DECAY)
        rate, scale = m.LEARNING_RATE / (1 - b1**step), jnp.sqrt(1 - b2**step)
        return (w - (rate * mean / (jnp.sqrt(square) / scale + m.EPSILON)).astype(w.dtype)).astype(w.dtype), mean, square

    new = {k: update(w, *state[k], gradients[k]) for k, w in p.items()}
    return {k: v[0] for k, v in new.items()}, {k: v[1:] for k, v in new.items()}


def trainer(loss, p, *batch):
    """A function that takes one step and gives the loss."""
    state = {k: (jnp.zeros_like(w), jnp.zeros_like(w)) for k, w in p.items()}

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(p, state, number, *batch):
        value, gradients = jax.value_and_grad(loss)(p, *batch)
        return *adamw(p, state, gradients, number), value

    number = 0

    def run():
        nonlocal p, state, number
        number += 1
        p, state, value = step(p, state, jnp.float32(number), *batch)
        return value

    return run


def qwen_weights(layers, dtype=jnp.float32):
    shapes = {name: tuple(p.shape) for name, p in m.Qwen(layers).named_parameters()}
    return {name: jnp.asarray(w, dtype) for name, w in m.weights(shapes).items()}


def train_qwen(layers, dtype):
    ids = m.tokens().astype(np.int32)

    def loss(p, x, y):
        return cross_entropy(qwen(p, layers, x), y)

    return trainer(loss, qwen_weights(layers, dtype), jnp.asarray(ids[:, :-1]), jnp.asarray(ids[:, 1:]))


def convolve(x, w, stride, pad):
    return jax.lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW"))


def batch_norm(p, name, x):
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    y = (x - mean[:, None, None]) * jax.lax.rsqrt(variance + 1e-5)[:, None, None]
    return y * p[name + ".weight"][:, None, None] + p[name + ".bias"][:, None, None], (mean, variance)


def train_resnet():
    p = {k: jnp.asarray(w) for k, w in m.weights({n: tuple(w.shape) for n, w in m.ResNet().named_parameters()}).items()}
    x, y = m.images()

    def loss(p, x, y):
        x = jax.nn.relu(convolve(x, p["stem.weight"], 1, 1))
        for i, stride in enumerate((1, 2, 2)):
            name = f"blocks.{i}."
            h, _ = batch_norm(p, name + "norm1", convolve(x, p[name + "conv1.weight"], stride, 1))
            h, _ = batch_norm(p, name + "norm2", convolve(jax.nn.relu(h), p[name + "conv2.weight"], 1, 1))
            short = convolve(x, p[name + "short.weight"], stride, 0) if stride > 1 else x
            x = jax.nn.relu(h + short)
        return cross_entropy(x.mean((2, 3)) @ p["head.weight"].T + p["head.bias"], y)

    return trainer(loss, p, jnp.asarray(x), jnp.asarray(y.astype(np.int32)))


def lstm():
    p = {k: jnp.asarray(w) for k, w in m.weights({n: tuple(w.shape) for n, w in m.LSTM().named_parameters()}).items()}
    x = jnp.asarray(np.random.default_rng(1).standard_normal((m.LSTM.STEPS, m.LSTM.BATCH, m.LSTM.WIDTH)).astype(np.float32))

    def cell(p, carry, x):
        h, c = carry
        gates = x @ p["cell.weight_ih"].T + p["cell.bias_ih"] + h @ p["cell.weight_hh"].T + p["cell.bias_hh"]
        i, f, g, o = jnp.split(gates, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), None

    def loss(p, x):
        zero = jnp.zeros((m.LSTM.BATCH, m.LSTM.WIDTH))
        (h, _), _ = jax.lax.scan(partial(cell, p), (zero, zero), x)
        return jnp.square(h).mean()

    step = jax.jit(jax.value_and_grad(loss))
    return lambda: step(p, x)


def decoder(layers, length):
    """A function that decodes one token for every row after the last."""
    p = qwen_weights(layers)
    shape = (m.BATCH, length, m.KV_HEADS, m.HEAD)

    @partial(jax.jit, donate_argnums=(2,))
    def step(ids, position, caches):
        x = p["embedding.weight"][ids]
        cos, sin = rotary(position, x.dtype)
        mask = (jnp.arange(length)[None] <= position[:, None])[None, None]
        new = []
        for i, (keys, values) in enumerate(caches):
            name = f"layers.{i}."
            q, k, v = heads(p, name, x)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            keys = jax.lax.dynamic_update_slice_in_dim(keys, k, position[0], 1)
            values = jax.lax.dynamic_update_slice_in_dim(values, v, position[0], 1)
            new.append((keys, values))
            x = finish(p, name, x, jax.nn.dot_product_attention(q, keys, values, mask=mask))
        logits = rms_norm(x, p["norm.weight"]) @ p["embedding.weight"].T
        return logits[:, -1].argmax(-1, keepdims=True).astype(ids.dtype), position + 1, new

    state = [jnp.zeros((m.BATCH, 1), jnp.int32), jnp.zeros(1, jnp.int32), [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(layers)]]

    def run():
        state[:] = step(*state)
        return state[0]

    return run
