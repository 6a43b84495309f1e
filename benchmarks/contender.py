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


def torch_cases(device):
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
    }, f"torch {torch.__version__}"


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

    return {
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
    cases, version = {"ours": lambda: torch_cases("tpu"), "torch": lambda: torch_cases("cpu"), "jax": jax_cases}[name]()
    print(version, flush=True)
    for line in sys.stdin:
        print(*cases[line.strip()](), flush=True)


if __name__ == "__main__":
    main()
