"""One contender of compare.py: prints its version, then answers each case's name on stdin with the seconds that one
repetition takes, by the clock on the wall and of the process's CPU time."""
import json
import sys
import time

MIB_64 = 16 * 1024 * 1024  # floats


class Clock:
    """Wall and CPU seconds since it was made, over `repeat`."""

    def __init__(self, repeat):
        self.repeat = repeat
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def read(self):
        return (time.perf_counter() - self.wall) / self.repeat, (time.process_time() - self.cpu) / self.repeat


def timed(repeat, work, finish):
    """Seconds of one of `repeat` calls, the last of which is waited for."""
    clock = Clock(repeat)
    for _ in range(repeat):
        result = work()
    finish(result)
    return clock.read()


def losses_of(run, steps=5):
    """The losses of the first steps, which every contender must agree on."""
    return [run().item() for _ in range(steps)]


def steps_of(make, wait, repeat):
    """A case of a model, which is made at the first call and told by `losses` what its first steps gave."""
    run = None

    def measure():
        nonlocal run
        if not run:
            run = make()
            measure.losses = losses_of(run)
        return timed(repeat, run, wait)
    measure.losses = []
    return measure


def torch_models(device, compiled, wait):
    import torch
    import torch.nn.functional as F

    import models as m

    compile = (lambda model: torch.compile(model, backend="tpu" if device == "tpu" else "inductor")) if compiled else lambda f: f

    def trainer(model, loss, *batch):
        model = model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=m.LEARNING_RATE, betas=m.BETAS, eps=m.EPSILON, weight_decay=m.DECAY,
                                      fused=True)
        batch = [torch.as_tensor(x).to(device) for x in batch]
        forward = compile(lambda *batch: loss(model, *batch))

        def run():
            value = forward(*batch)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            return value
        return run

    def qwen(layers, dtype):
        ids = m.tokens()
        return trainer(m.load(m.Qwen(layers)).to(dtype), lambda f, x, y: F.cross_entropy(f(x).float().flatten(0, 1), y.flatten()),
                       ids[:, :-1].copy(), ids[:, 1:].copy())

    def lstm():
        import numpy as np
        model = m.load(m.LSTM()).to(device)
        x = torch.from_numpy(np.random.default_rng(1).standard_normal((m.LSTM.STEPS, m.LSTM.BATCH, m.LSTM.WIDTH)).astype("float32"))
        x, forward = x.to(device), compile(model)

        def run():
            model.zero_grad()
            value = forward(x)
            value.backward()
            return value
        return run

    def decode(layers, length):
        model = m.load(m.Qwen(layers)).to(device)
        caches = [[torch.zeros(m.BATCH, m.KV_HEADS, length, m.HEAD, device=device) for _ in range(2)] for _ in range(layers)]
        ids, position = torch.zeros(m.BATCH, 1, dtype=torch.long, device=device), torch.zeros(1, dtype=torch.long, device=device)
        step = compile(model.decode)

        @torch.no_grad()
        def run():
            nonlocal ids
            ids = step(ids, position, caches)
            position.add_(1)
            return ids.float().mean()
        return run

    def chain(size, ops=1000):
        x = torch.ones(size, device=device)

        def run():
            y = x
            for _ in range(ops // 2):
                y = (y + 1) * 0.5
            return y
        return run

    f32, bf16 = torch.float32, torch.bfloat16
    cases = {f"train_{layers}": steps_of(lambda layers=layers: qwen(layers, f32), wait, 2) for layers in (2, 4, 8, 16)}
    return cases | {
        "train_bf16": steps_of(lambda: qwen(4, bf16), wait, 2),
        "train_resnet": steps_of(lambda: trainer(m.load(m.ResNet()), lambda f, x, y: F.cross_entropy(f(x), y), *m.images()), wait, 2),
        "lstm": steps_of(lstm, wait, 2),
        "decode": steps_of(lambda: decode(4, 1024), wait, 16),
        "chain_small": lambda: timed(3, chain(9), wait),
        "chain_large": lambda: timed(1, chain(4 * 1024 * 1024, 100), wait),
    }


def torch_cases(device, compiled):
    import torch

    def wait(_):
        if device == "tpu":
            torch.tpu.synchronize()

    a, b = torch.ones(9, device=device), torch.ones(9, device=device)

    def add(repeat=5000):
        x = a
        clock = Clock(repeat)
        for _ in range(repeat):
            x = x + b
        wait(x)
        return clock.read()

    host = torch.ones(MIB_64)
    there = host.to(device)
    scalar = torch.ones((), device=device)
    square = torch.ones(512, 512, device=device)
    many = torch.ones(4 * 1024 * 1024, device=device)
    on_tpu = device == "tpu"
    index, rows = torch.arange(0, 160, 10, device=device), torch.ones(16, 64, device=device)

    def write(mib):
        buffer = torch.zeros(mib * 1024 * 1024 // 256, 64, device=device)

        def put(repeat=200):
            def work():
                buffer[index] = rows
                return buffer
            return timed(repeat, work, wait)
        return put

    return {
        "add": add,
        "to_device": lambda: timed(3, (lambda: host.to(device)) if on_tpu else host.clone, wait),
        "to_host": lambda: timed(3, there.cpu if on_tpu else there.clone, wait),
        "item": lambda: timed(2000, scalar.item, wait),
        "write_1": write(1),
        "write_256": write(256),
        "matmul": lambda: timed(10, lambda: square @ square, wait),
        "exp": lambda: timed(5, many.exp, wait),
    } | torch_models(device, compiled, wait), f"torch {torch.__version__}"


def jax_cases():
    import jax
    import jax.numpy as jnp
    import numpy as np

    a, b = jnp.ones(9), jnp.ones(9)

    def add(repeat=5000):
        x = a
        clock = Clock(repeat)
        for _ in range(repeat):
            x = jnp.add(x, b)
        x.block_until_ready()
        return clock.read()

    host = np.ones(MIB_64, np.float32)
    there = jnp.asarray(host)
    scalar, square, many = jnp.ones(()), jnp.ones((512, 512)), jnp.ones(4 * 1024 * 1024)
    exp = jax.jit(jnp.exp)

    def wait(x):
        jax.block_until_ready(x)

    import models_jax as m

    def decode():
        run = m.decoder(4, 1024)
        return lambda: run().mean()

    def lstm():
        run = m.lstm()
        return lambda: run()[0]

    cases = {f"train_{layers}": steps_of(lambda layers=layers: m.train_qwen(layers, jnp.float32), wait, 2) for layers in (2, 4, 8, 16)}
    return cases | {
        "train_bf16": steps_of(lambda: m.train_qwen(4, jnp.bfloat16), wait, 2),
        "train_resnet": steps_of(m.train_resnet, wait, 2),
        "lstm": steps_of(lstm, wait, 2),
        "decode": steps_of(decode, wait, 16),
        "add": add,
        "to_device": lambda: timed(3, lambda: jax.device_put(host), wait),
        "to_host": lambda: timed(3, lambda: np.array(there + 0), lambda _: None),
        "item": lambda: timed(2000, scalar.item, lambda _: None),
        "matmul": lambda: timed(10, lambda: square @ square, wait),
        "exp": lambda: timed(5, lambda: exp(many), wait),
    }, f"jax {jax.__version__} on {jax.devices()[0].platform}"


def first_step():
    """One training step of a small transformer layer: compiles and seconds, as JSON."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(4, 16, 64).to("tpu")
    torch.tpu.synchronize()
    begin = time.perf_counter()
    model(x).square().mean().backward()
    optimizer.step()
    torch.tpu.synchronize()
    counters = torch.tpu.counters()
    print(json.dumps({"compiles": counters["compiles"], "cache_loads": counters["cache_loads"],
                      "first_step_seconds": time.perf_counter() - begin}))


def main():
    name = sys.argv[1]
    if name == "first_step":
        first_step()
        return
    cases, version = {"ours": lambda: torch_cases("tpu", False), "compiled": lambda: torch_cases("tpu", True),
                      "torch": lambda: torch_cases("cpu", False), "jax": jax_cases}[name]()
    print(version, flush=True)
    for line in sys.stdin:
        case = cases[line.strip()]
        seconds = case()
        print(json.dumps({"seconds": seconds, "losses": getattr(case, "losses", [])}), flush=True)


if __name__ == "__main__":
    main()
