"""Tensors that go to other libraries and processes: DLPack, NumPy, pinned memory, loaders, shared memory."""
import gc
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from compare import EXACT, counted, same
from torch.utils.data import DataLoader, Dataset, TensorDataset

# ---- DLPack ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("export", [lambda x: x, torch.utils.dlpack.to_dlpack,
                                    lambda x: x.__dlpack__(max_version=(1, 0))],
                         ids=["tensor", "capsule", "versioned capsule"])
def test_a_tensor_of_the_device_is_imported_without_a_copy_and_shares_its_storage(export):
    x = torch.arange(24.0, device="tpu").reshape(4, 6)
    part = torch.from_dlpack(export(x[1:, ::2]))
    assert part.device == x.device and part.data_ptr() == x[1:].data_ptr() and part.stride() == (6, 2)
    part.mul_(-1)
    part[0].zero_()
    part[1:2].copy_(torch.full((1, 3), 5.0))
    expected = torch.arange(24.0).reshape(4, 6)
    expected[1:, ::2] *= -1
    expected[1, ::2], expected[2, ::2] = 0, 5
    same((x, part), (expected, expected[1:, ::2]), **EXACT)
    row = torch.from_dlpack(export(x[3]))
    row.copy_(torch.ones(6, device="tpu"))  # covers its own storage, and only a part of x's
    expected[3] = 1
    same(x, expected, **EXACT)
    del x
    gc.collect()
    same(part, expected[1:, ::2], **EXACT)


def test_numpy_reads_the_devices_own_memory_and_cannot_write_it():
    x = torch.arange(24.0, device="tpu").reshape(4, 6)
    work = {}
    work.update(counted(lambda: work.update(array=np.from_dlpack(x[1:, ::2].t(), device="cpu"))))
    array = work["array"]
    assert not array.flags.writeable and work["host_reads"] == work["bytes_to_host"] == 0
    expected = np.arange(24.0, dtype=np.float32).reshape(4, 6)[1:, ::2].T
    np.testing.assert_array_equal(array, expected)
    again = np.from_dlpack(x, device="cpu")
    assert again.ctypes.data + 24 == array.ctypes.data
    x.add_(1).mul_(0)  # not in place: somebody reads the value
    del x, again
    gc.collect()
    np.testing.assert_array_equal(array, expected)


def test_a_copy_is_made_where_it_is_asked_for_or_the_consumer_is_old():
    x = torch.arange(6.0, device="tpu")
    for array in (np.from_dlpack(x, device="cpu", copy=True), torch.from_dlpack(x.__dlpack__(dl_device=(1, 0)))):
        before = x.cpu()
        array[0] = 9
        same(x, before, **EXACT)
        same(torch.as_tensor(array)[1:], before[1:], **EXACT)
    host = torch.from_dlpack(x, device="cpu")
    assert host.device.type == "cpu"
    for empty in (torch.empty(3, device="tpu"), torch.empty(0, 2, device="tpu")):
        assert np.from_dlpack(empty, device="cpu").tolist() == empty.tolist()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float64, torch.complex64],
                         ids=str)
def test_every_type_that_numpy_has_goes_both_ways(dtype):
    x = torch.tensor([0, 1, 1, 0]).to(dtype)
    np.testing.assert_array_equal(np.from_dlpack(x.to("tpu"), device="cpu"), x.numpy())
    back = torch.from_dlpack(x.numpy(), device="tpu") if dtype is not torch.bool else torch.from_dlpack(x, device="tpu")
    assert back.device.type == "tpu"
    same(back, x, **EXACT)


def test_what_dlpack_cannot_say_is_refused():
    x = torch.ones(2, device="tpu")
    assert x.__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLExtDev, 0)
    for bad, words in ((x.clone().requires_grad_(), "gradient"), (x.to(torch.complex64).conj(), "conjugate"),
                       (x.to(torch.complex64).conj().imag, "negative")):
        for device in (None, (1, 0)):
            with pytest.raises(BufferError, match=words):
                bad.__dlpack__(dl_device=device, max_version=(1, 0))
    with pytest.raises(BufferError, match="without a copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(x)


# ---- NumPy -----------------------------------------------------------------------------------------------------------


def test_numpy_is_told_to_copy_to_the_host_first():
    x = torch.ones(3, device="tpu")
    for use in (x.numpy, lambda: np.asarray(x), lambda: np.array(x), lambda: np.sin(x), lambda: x + np.ones(3)):
        with pytest.raises(TypeError, match="can't convert tpu:0 device type tensor to numpy.*cpu"):
            use()
    assert x.numpy(force=True).tolist() == [1, 1, 1]
    assert not hasattr(x, "__cuda_array_interface__")
    same(torch.as_tensor(np.arange(3.0), device="tpu"), torch.arange(3.0, dtype=torch.float64), **EXACT)
    same(np.float32(2) * x, torch.full((3,), 2.0), **EXACT)


# ---- pinned memory and loaders ---------------------------------------------------------------------------------------


def test_pinned_memory_is_told_from_other_memory():
    x = torch.arange(5.0)
    for pinned in (x.pin_memory(), x.pin_memory("tpu"), torch.empty(5, pin_memory=True).copy_(x),
                   x.to("tpu").to("cpu").pin_memory()):
        assert pinned.is_pinned() and pinned[2:].is_pinned() and pinned.device.type == "cpu" and not x.is_pinned()
        assert pinned.pin_memory() is pinned
        same(pinned.to("tpu", non_blocking=True), x, **EXACT)
    assert not x.to("tpu").is_pinned() and not x.to("tpu").cpu().is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        x.to("tpu").pin_memory()


def test_a_pinned_source_may_be_written_as_soon_as_its_copy_has_returned():
    source = torch.zeros(1 << 20).pin_memory()
    copies = []
    for i in range(5):
        source.fill_(i)
        copies.append(source.to("tpu", non_blocking=True))
    same([c[::4097] for c in copies], [torch.full((256,), float(i)) for i in range(5)], **EXACT)


@pytest.mark.parametrize("options", [
    dict(), dict(pin_memory=True), dict(num_workers=2), dict(num_workers=2, pin_memory=True, persistent_workers=True),
    dict(pin_memory=True, pin_memory_device="tpu")], ids=str)
def test_a_loader_feeds_the_device(options):
    torch.ones(1, device="tpu").add_(1)  # the workers are forked from a process that uses the device
    data = TensorDataset(torch.arange(20.0).reshape(10, 2), torch.arange(10))
    for _ in range(2):
        total = torch.zeros(2, device="tpu")
        for x, y in DataLoader(data, batch_size=3, **options):
            assert x.is_pinned() is y.is_pinned() is bool(options.get("pin_memory"))
            total += x.to("tpu", non_blocking=True).sum(0) * 1
        same(total, torch.tensor([90.0, 100.0]), **EXACT)


class OnDevice(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.full((2,), float(i), device="tpu")


def test_a_loaders_own_process_may_use_the_device_and_its_forked_workers_are_told_not_to():
    same(torch.stack([b.sum() for b in DataLoader(OnDevice(), batch_size=2)]), torch.tensor([2.0, 10.0]), **EXACT)
    with pytest.raises(RuntimeError, match="Cannot re-initialize tpu in forked subprocess.*'spawn'"):
        list(DataLoader(OnDevice(), batch_size=2, num_workers=1))


def test_a_loader_shuffles_with_the_devices_generator():
    data = TensorDataset(torch.arange(20.0))
    with torch.device("tpu"):
        loaders = [DataLoader(data, batch_size=6, shuffle=True, generator=torch.Generator("tpu").manual_seed(3))
                   for _ in range(2)]
        order = [torch.cat([x for (x,) in loader]) for loader in loaders]
    assert order[0].tolist() == order[1].tolist() != sorted(order[0].tolist()) == data.tensors[0].tolist()


# ---- other processes -------------------------------------------------------------------------------------------------

SHARE = "tpu memory cannot be shared between processes: send tensor.cpu"


def test_memory_of_the_device_is_not_shared_and_that_is_told():
    x = torch.ones(3, device="tpu")
    assert not x.is_shared()
    with pytest.raises(RuntimeError, match=SHARE):
        x.share_memory_()
    with pytest.raises(RuntimeError, match=SHARE):
        torch.nn.Linear(2, 2).to("tpu").share_memory()
    queue = mp.get_context("spawn").SimpleQueue()
    with pytest.raises(RuntimeError, match=SHARE):
        queue.put(x)
    with pytest.raises(RuntimeError, match=SHARE):
        ForkingPickler.dumps(x)
    queue.put(x.cpu())
    same(queue.get().to("tpu"), torch.ones(3), **EXACT)


def test_a_spawned_process_uses_the_device_and_answers_through_a_queue(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import torch, torch.multiprocessing as mp

def work(rank, inbox, outbox):
    x = inbox.get().to("tpu")
    outbox.put((rank, (x * 2).tolist()))

if __name__ == "__main__":
    torch.ones(1, device="tpu").item()
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    processes = mp.spawn(work, (inbox, outbox), nprocs=2, join=False)
    for i in range(2):
        inbox.put(torch.full((3,), i + 1.0))
    answers = [outbox.get(timeout=120) for _ in range(2)]
    assert sorted(rank for rank, _ in answers) == [0, 1]
    assert sorted(sum(x) for _, x in answers) == [6, 12]
    processes.join()
    print("both answered")
""")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=240)
    assert "both answered" in done.stdout, done.stderr
