"""Eight threads of eager ops, backward passes and transfers until the minutes are over. What a thread computes twice on the
device must have the same bits, and be near what the CPU gives."""
import json
import random
import sys
import threading
import time

import torch
import torch_pjrt

THREADS = 8
end = time.monotonic() + 60 * float(sys.argv[1])
rounds, wrong = [0] * THREADS, []


def eager(draw):
    n = draw.choice((3, 8, 33))

    def compute(x):
        for _ in range(10):
            x = (x @ x / n).tanh() + 0.5  # contracts, so that roundings stay small
            x[1:, ::2].mul_(0.5)
        return x
    return compute, torch.randn(n, n)


def backward(draw):
    n = draw.choice((2, 5, 16))

    def compute(x):
        w = x.clone().requires_grad_()
        torch.nn.functional.gelu(x @ w).softmax(-1).square().sum().backward()
        return w.grad
    return compute, torch.randn(n, n)


def transfer(draw):
    return lambda x: torch.cat([x, 2 * x]), torch.randn(draw.choice((10, 1000, 100000)))


def work(i):
    draw = random.Random(i)
    while time.monotonic() < end and not wrong:
        kind = draw.choice((eager, backward, transfer))
        compute, x = kind(draw)
        want, *got = compute(x), compute(x.to("tpu")).cpu(), compute(x.to("tpu")).cpu()
        if not torch.equal(*got) or not torch.allclose(want, got[0], rtol=1e-4, atol=1e-5):
            wrong.append((kind.__name__, x.shape, torch.equal(*got), float((want - got[0]).abs().max())))
        rounds[i] += 1


torch.set_num_threads(1)
threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps({"rounds": rounds, "wrong": wrong, "executions": torch.tpu.counters()["executions"]}))
sys.exit(bool(wrong))
