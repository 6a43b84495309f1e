"""Threads: ops of several at once, compiles that others wait for, and no deadlock (child.run has a time limit)."""
import pytest
from child import run


def test_eight_threads_compute_what_one_does():
    run("""
    import threading
    def work(i, out):
        x = torch.full((4, 4), float(i), device="tpu")
        for k in range(20):
            x = (x @ x).clamp(-50, 50) + k * 0.5
            x[1:, ::2].mul_(0.5)
            if k % 5 == 0:
                x.sum().item()
        out[i] = x.cpu()
    want = {}
    for i in range(8):
        x = torch.full((4, 4), float(i))
        for k in range(20):
            x = (x @ x).clamp(-50, 50) + k * 0.5
            x[1:, ::2].mul_(0.5)
        want[i] = x
    for mode in ("strict", "fused"):
        torch.tpu.set_eager_mode(mode, 16)
        out = {}
        threads = [threading.Thread(target=work, args=(i, out)) for i in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        for i in range(8):
            torch.testing.assert_close(out[i], want[i])
    """)


@pytest.mark.eager("strict")
def test_threads_that_need_the_same_new_program_compile_it_once():
    run("""
    import threading
    x = torch.arange(31.0).to("tpu")
    results = []
    start = threading.Barrier(6)
    def work():
        start.wait()
        results.append((x * 3).cpu())
    threads = [threading.Thread(target=work) for _ in range(6)]
    before = torch.tpu.counters()["compiles"]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(results) == 6 and all(torch.equal(r, 3 * torch.arange(31.0)) for r in results)
    assert torch.tpu.counters()["compiles"] == before + 1
    """, TORCH_PJRT_CACHE_DIR="")


@pytest.mark.eager("strict")
def test_python_runs_on_while_another_thread_compiles():
    run("""
    import threading, time
    compiling = threading.Thread(target=lambda: error(lambda: torch.ones(3, device="tpu")))
    torch.tpu.init()
    compiling.start()
    steps, start = 0, time.monotonic()
    while compiling.is_alive():
        steps += 1
        time.sleep(0.01)
    # The compiler hangs for 3 s: a GIL that is held would leave a step or two.
    assert time.monotonic() - start > 2 and steps > 50, (time.monotonic() - start, steps)
    """, PJ_WORKER_FAULT="hang", TORCH_PJRT_COMPILE_TIMEOUT_MS="3000", TORCH_PJRT_CACHE_DIR="")


def test_destructors_that_use_the_device_and_threads_that_drop_tensors_do_not_deadlock():
    run("""
    import gc, threading, weakref
    class Dropped:
        def __init__(self): self.x = torch.ones(8, device="tpu"); self.me = self  # a cycle: __del__ runs anywhere
        def __del__(self): (self.x + 1).sum()
    stop = False
    def drop():
        for _ in range(100):  # an end, so that what one collection waits for cannot pile up for ever in the other thread
            if stop: break
            for _ in range(20): Dropped()
            gc.collect()
    def compute():
        for n in range(1, 30):
            torch.ones(n % 7 + 1, device="tpu").mul(n).cpu()
    droppers = [threading.Thread(target=drop) for _ in range(2)]
    workers = [threading.Thread(target=compute) for _ in range(3)]
    [t.start() for t in droppers + workers]
    [t.join() for t in workers]
    stop = True
    [t.join() for t in droppers]
    works()
    """)


def test_backward_runs_on_its_own_thread_with_hooks_that_use_the_device_or_raise():
    run("""
    w = torch.ones(4, device="tpu", requires_grad=True)
    seen = []
    w.register_hook(lambda g: seen.append((g * 2).cpu().tolist()))
    (w * w).sum().backward()
    assert seen == [[4.0] * 4] and w.grad.tolist() == [2] * 4
    def bad(g): raise ValueError("from the hook")
    handle = w.register_hook(bad)
    assert error(lambda: (w * w).sum().backward()) == ("ValueError", "from the hook")
    handle.remove()
    (w * w).sum().backward()
    assert w.grad.tolist() == [4] * 4
    """)


def test_a_program_that_ends_with_a_backward_pass_ends_well():
    for _ in range(4):
        run("""
        w = torch.ones(4, device="tpu", requires_grad=True)
        (w * w).sum().backward()
        """)


def test_first_use_on_many_threads_starts_the_runtime_once():
    run("""
    import threading
    results = []
    start = threading.Barrier(8)
    def work():
        start.wait()
        results.append((torch.ones(2, device="tpu") + 1).tolist())
    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == [[2, 2]] * 8
    """)


def test_a_thread_that_ends_leaves_its_tensors_to_the_others():
    run("""
    import threading
    kept = []
    def make(): kept.append(torch.arange(5.0).to("tpu") * 2)
    t = threading.Thread(target=make); t.start(); t.join()
    assert kept[0].tolist() == [0, 2, 4, 6, 8]
    """)


def test_the_current_device_belongs_to_the_thread():
    run("""
    import threading
    torch.tpu.set_device(1)
    seen = []
    t = threading.Thread(target=lambda: seen.append(torch.ones(1, device="tpu").device.index)); t.start(); t.join()
    assert seen == [0] and torch.ones(1, device="tpu").device.index == 1
    """, TORCH_PJRT_CPU_DEVICES="2")


def test_copies_in_both_directions_between_devices_at_once_do_not_deadlock():
    run("""
    import threading
    def work(a, b):
        x = torch.arange(100.0).to(f"tpu:{a}")
        for _ in range(50):
            y = (x + 1).to(f"tpu:{b}")
            x = (y - 1).to(f"tpu:{a}")
        assert torch.equal(x.cpu(), torch.arange(100.0))
        done.append(a)
    done = []
    threads = [threading.Thread(target=work, args=(i % 2, 1 - i % 2)) for i in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(done) == 6
    """, TORCH_PJRT_CPU_DEVICES="2")
