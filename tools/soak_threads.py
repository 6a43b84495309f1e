"""Eight threads of eager ops, backward passes and transfers until the time is over; every result is compared with the CPU's."""
import json
import random
import sys
import threading
import time

import torch
import torch_pjrt

end = time.monotonic() + 60 * float(sys.argv[1])
done, wrong = [0] * 8, []


def eager(draw):
    n = draw.choice((3, 8, 33))
    a = torch.randn(n, n)
    def f(x):
        for _ in range(10):
            x = (x @ x).tanh() + 0.5
            x[1:, ::2].mul_(0.5)
        return x
    return f(a.clone()), f(a.to("tpu"))


def backward(draw):
    n = draw.choice((2, 5, 16))
    w, x = torch.randn(n, n), torch.randn(7, n)
    def f(w, x):
        w = w.clone().requires_grad_()
        torch.nn.functional.gelu(x @ w).softmax(-1).square().sum().backward()
        return w.grad
    return f(w, x), f(w.to("tpu"), x.to("tpu"))


def transfer(draw):
    x = torch.randn(draw.choice((10, 1000, 100000)))
    y = x.to("tpu")
    return torch.cat([x, 2 * x]), torch.cat([y, 2 * y])


def work(i):
    draw = random.Random(i)
    while time.monotonic() < end and not wrong:
        want, got = draw.choice((eager, backward, transfer))(draw)
        got = got.cpu()
        if not torch.allclose(want, got, rtol=1e-4, atol=1e-5):
            wrong.append((i, (want - got).abs().max()))
        done[i] += 1

torch.set_num_threads(1)
threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(json.dumps({"rounds": done, "wrong": str(wrong), "executions": torch.tpu.counters()["executions"]}))
sys.exit(bool(wrong))
