"""torch.tpu: generators, streams, memory, threads, processes, what the device says of itself."""
import os
import subprocess
import sys
import threading

import pytest
import torch
from torch.testing import assert_close

D = "tpu"


def test_generators_repeat_and_their_state_is_16_bytes():
    g = torch.Generator(device=D).manual_seed(3)
    a = torch.rand(4, generator=g, device=D)
    state = g.get_state()
    b = torch.randn(3, device=D, generator=g)
    assert state.numel() == 16
    g.set_state(state)
    assert torch.equal(torch.randn(3, device=D, generator=g), b)
    g.manual_seed(3)
    assert torch.equal(torch.rand(4, generator=g, device=D), a)
    with pytest.raises(RuntimeError):
        torch.rand(2, device=D, generator=torch.Generator())


def test_fork_rng_restores_the_device_generator():
    torch.manual_seed(5)
    with torch.random.fork_rng(device_type=D):
        torch.rand(3, device=D)
    a = torch.rand(3, device=D)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3, device=D), a)


def test_streams_and_events():
    stream = torch.Stream(D)
    with torch.tpu.stream(stream):
        assert torch.tpu.current_stream() == stream
        x = torch.ones(3, device=D) + 1
    assert torch.tpu.current_stream() != stream
    begin, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    begin.record()
    x = x * 2
    end.record()
    end.synchronize()
    assert end.query() and begin.elapsed_time(end) >= 0
    stream.wait_event(end)
    x.record_stream(stream)
    stream.synchronize()
    assert stream.query()


def test_memory_goes_up_and_down():
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    x = torch.ones(100_000, device=D)
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() >= before + 400_000
    assert torch.accelerator.memory_allocated() == torch.tpu.memory_allocated()
    del x
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() <= before + 1000
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total


def test_fallbacks_are_listed_warned_of_once_and_can_be_errors():
    library = torch.library.Library("torch_pjrt_test", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CPU")
    x = torch.ones(2, device=D)
    with pytest.warns(UserWarning, match="torch_pjrt_test::double"):
        assert_close(torch.ops.torch_pjrt_test.double(x).cpu(), torch.full((2,), 2.0))
    torch.ops.torch_pjrt_test.double(x)
    assert torch.tpu.fallbacks()["torch_pjrt_test::double"] == 2
    with torch.tpu.set_fallback("error"), pytest.raises(NotImplementedError, match="torch_pjrt_test::double"):
        torch.ops.torch_pjrt_test.double(x)
    with pytest.raises(ValueError):
        torch.tpu.set_fallback("loud")


@pytest.mark.eager("strict")
def test_a_decomposition_runs_as_one_program_with_writes_through_views():
    from torch_pjrt import decompose

    library = torch.library.Library("torch_pjrt_test", "FRAGMENT")
    library.define("shuffle(Tensor x) -> (Tensor, Tensor)")

    def shuffle(x):
        y = torch.empty_like(x).copy_(x)
        y[1:3].add_(1)
        y.t()[0].mul_(2)
        z = torch.zeros_like(x)
        z.add_(y[None][0])
        return z.t(), y.sum(0)

    decompose._table()[torch.ops.torch_pjrt_test.shuffle.default] = shuffle
    x = torch.arange(16.0).reshape(4, 4)
    before = torch.tpu.counters()
    got = torch.ops.torch_pjrt_test.shuffle(x.to(D))
    again = torch.ops.torch_pjrt_test.shuffle(x.to(D))
    after = torch.tpu.counters()
    for results in (got, again):
        for a, b in zip(results, shuffle(x), strict=True):
            assert_close(a.cpu(), b)
    assert after["decompositions"] - before["decompositions"] == 1
    assert after["executions"] - before["executions"] == 2
    assert "torch_pjrt_test::shuffle" not in torch.tpu.fallbacks()


def test_autocast_uses_the_lists_of_cuda():
    a = torch.ones(2, 2, device=D)
    with torch.autocast(D, dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
        assert torch.exp(a.bfloat16()).dtype == torch.float32
        assert (a + a).dtype == torch.float32


def test_many_threads_run_ops_and_collect():
    errors = []

    def work(i):
        try:
            for k in range(20):
                assert_close((torch.full((3,), float(i), device=D) * k).cpu(), torch.full((3,), float(i * k)))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not errors and not any(t.is_alive() for t in threads)


def test_a_thread_that_holds_the_gil_does_not_block_another_one_for_ever():
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            [torch.empty(1, device=D) for _ in range(20)]  # frees tensors with the GIL held

    spinner = threading.Thread(target=spin)
    spinner.start()
    try:
        for n in range(5, 15):  # new keys: meta kernels in Python, compiles
            torch.nn.functional.gelu(torch.ones(n, device=D)).cpu()
    finally:
        stop.set()
        spinner.join(60)
    assert not spinner.is_alive()


def test_backward_runs_on_the_engines_thread():
    x = torch.ones(3, device=D, requires_grad=True)
    seen = []
    x.register_hook(lambda g: seen.append(g.cpu()))
    (x * x).sum().backward()
    assert_close(seen[0], torch.full((3,), 2.0))


def test_a_forked_child_is_told_and_the_parent_goes_on():
    torch.ones(1, device=D).cpu()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.ones(1, device=D)
        except RuntimeError as error:
            code = 0 if "fork" in str(error) and torch.tpu._is_in_bad_fork() else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert_close((torch.ones(2, device=D) + 1).cpu(), torch.full((2,), 2.0))


def run(code, **environment):
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, text=True, capture_output=True)


def test_a_wrong_plugin_is_told_in_one_sentence_at_first_use_and_not_at_import():
    result = run("import torch; print('imported'); torch.ones(1, device='tpu')", TORCH_PJRT_PLUGIN="/nowhere.so")
    assert "imported" in result.stdout
    assert "TORCH_PJRT_PLUGIN=/nowhere.so is neither a file nor a known plugin" in result.stderr.splitlines()[-1]


def test_the_package_can_be_imported_first():
    result = run("import torch_pjrt, torch; print((torch.ones(2, device='tpu') + 1).sum().item())")
    assert result.stdout.strip() == "4.0", result.stderr


def test_several_devices_in_one_process():
    code = ("import torch; a = torch.ones(3, device='tpu:1'); b = a.to('tpu:0') + 1; print(torch.tpu.device_count(), "
            "a.device, (b.to('tpu:1') + a).sum().item())\n"
            "try: a + b\nexcept RuntimeError as e: print('same device' in str(e))\n"
            "with torch.tpu.device(1): print(torch.ones(1, device='tpu').device)")
    result = run(code, TORCH_PJRT_CPU_DEVICES="2")
    assert result.stdout.split("\n")[:3] == ["2 tpu:1 9.0", "True", "tpu:1"], result.stderr


def test_ctrl_c_ends_a_wait_with_keyboard_interrupt():
    code = ("import torch, signal\n"
            "x = torch.randn(1500, 1500, device='tpu'); (x @ x).sum().item()\n"
            "signal.signal(signal.SIGALRM, signal.default_int_handler); signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
            "try:\n  for _ in range(10000): (x @ x).sum().item()\n"
            "except KeyboardInterrupt: print('interrupted')\n"
            "print((torch.ones(1, device='tpu') + 1).item())")
    assert run(code).stdout.split() == ["interrupted", "2.0"]
