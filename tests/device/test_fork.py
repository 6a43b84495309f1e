"""What a forked child may do, and that the parent goes on."""
from child import run


def test_a_child_forked_after_use_is_told_and_both_processes_live():
    run("""
    import os, pickle
    x = torch.ones(3, device="tpu") + 1
    torch.tpu.synchronize()
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        uses = (lambda: torch.ones(3, device="tpu"), lambda: x + 1, lambda: x.cpu(), lambda: x.add_(1), lambda: repr(x),
                lambda: torch.ones(3).to("tpu"), torch.tpu.synchronize, torch.tpu.memory_allocated, torch.tpu.counters,
                lambda: torch.tpu.set_eager_mode("fused"), lambda: x[0].item(), lambda: x.untyped_storage().resize_(0),
                torch.tpu.init)
        said = [error(use) for use in uses] + [torch.tpu._is_in_bad_fork(), (torch.ones(3) + 1).tolist()]
        del x
        os.write(write, pickle.dumps(said))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    *said, bad_fork, cpu = pickle.loads(os.read(read, 1 << 20))
    assert bad_fork and cpu == [2, 2, 2] and len(said) == 13
    for kind, text in said:
        assert kind == "RuntimeError" and "fork" in text and "'spawn' start method" in text, (kind, text)
    assert (x + 1).tolist() == [3, 3, 3] and not torch.tpu._is_in_bad_fork()
    """)


def test_a_child_forked_before_use_has_a_device_of_its_own():
    run("""
    import os
    pid = os.fork()
    assert not torch.tpu._is_in_bad_fork()
    works()
    if not pid:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    """)


def test_the_exit_of_a_child_that_holds_tensors_is_clean():
    run("""
    import os, sys
    xs = [torch.ones(3, device="tpu") * i for i in range(5)]
    pid = os.fork()
    if not pid:
        sys.exit(0)  # with destructors and atexit
    assert os.waitpid(pid, 0)[1] == 0
    assert [x[0].item() for x in xs] == [0, 1, 2, 3, 4]
    """)


def test_data_loader_workers_make_cpu_tensors_and_the_parent_moves_them():
    run("""
    from torch.utils.data import DataLoader, TensorDataset
    works()
    data = TensorDataset(torch.arange(8.0))
    sums = [batch.to("tpu").sum().item() for (batch,) in DataLoader(data, batch_size=4, num_workers=2, pin_memory=True)]
    assert sums == [6, 22], sums
    """)


def test_a_data_loader_worker_that_uses_the_device_is_told_through_the_loader():
    run("""
    from torch.utils.data import DataLoader
    works()

    class Moving:
        def __len__(self): return 2
        def __getitem__(self, i): return torch.ones(2).to("tpu")

    kind, text = error(lambda: list(DataLoader(Moving(), num_workers=1)))
    assert kind == "RuntimeError" and "'spawn' start method" in text, (kind, text)
    works()
    """)


def test_a_fork_in_the_middle_of_other_threads_work_leaves_both_alive():
    run("""
    import os, threading
    stop = False
    x = torch.ones(64, device="tpu")
    def work():
        y = x
        while not stop:
            y = y + 1
    threads = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in threads]
    for _ in range(10):
        pid = os.fork()
        if not pid:
            os._exit(0 if error(lambda: x + 1)[0] == "RuntimeError" else 1)
        assert os.waitpid(pid, 0)[1] == 0
    stop = True
    [t.join() for t in threads]
    works()
    """)
