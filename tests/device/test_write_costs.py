"""A write costs what it writes: the buffer is donated and changed in place, and nothing of its size is allocated.

Counted, not timed: benchmarks/compare.py has the times.
"""
import pytest
import torch

ROWS, WIDTH = 64 * 1024, 64   # 16 MiB of float32
BYTES = ROWS * WIDTH * 4
INDEX = torch.arange(0, 160, 10)


def whole():
    return torch.zeros(ROWS, WIDTH, device="tpu")


def typed_view_of_bytes():
    """As vLLM allocates a KV cache: int8 bytes, written through a bfloat16 view."""
    return torch.zeros(BYTES, dtype=torch.int8, device="tpu").view(torch.bfloat16).view(ROWS, 2 * WIDTH)


def layer_of_shared_buffer():
    """One of four layers that lie behind each other in one byte buffer."""
    base = torch.zeros(BYTES, dtype=torch.int8, device="tpu").view(torch.bfloat16)
    return base.view(4, ROWS // 4, 2 * WIDTH)[2]


def interleaved_layer():
    """One of four layers whose rows alternate in one buffer: a strided view."""
    base = torch.zeros(BYTES, dtype=torch.int8, device="tpu").view(torch.bfloat16)
    return base.as_strided((ROWS // 4, 2 * WIDTH), (8 * WIDTH, 1), 2 * WIDTH)


BUFFERS = [whole, typed_view_of_bytes, layer_of_shared_buffer, interleaved_layer]


def index_put(x, index, rows):
    x[index] = rows


def slice_assignment(x, index, rows):
    x[5:21] = rows


def index_copy(x, index, rows):
    x.index_copy_(0, index, rows)


def scatter(x, index, rows):
    x.scatter_(0, index[:, None].expand(-1, x.shape[1]), rows)


def index_add(x, index, rows):
    x.index_add_(0, index, rows)


def index_fill(x, index, rows):
    x.index_fill_(0, index, 3.0)


WRITES = [index_put, slice_assignment, index_copy, scatter, index_add, index_fill]


def run(write, make, device):
    x = make() if device == "tpu" else make().cpu()
    rows = torch.arange(16.0 * x.shape[1]).reshape(16, -1).to(x.dtype).to(device)
    index = INDEX.to(device)
    write(x, index, rows)  # the first write may bring the buffer to another type, once
    if device == "tpu":
        torch.tpu.synchronize()
        torch.tpu.reset_peak_memory_stats()
        before, seen = torch.tpu.counters(), len(torch.tpu.explain())
        peak = torch.tpu.memory_allocated()
        write(x, index, rows + 1)
        torch.tpu.synchronize()
        after = torch.tpu.counters()
        programs = torch.tpu.explain()[seen:]
        assert after["donations"] - before["donations"] == 1
        assert torch.tpu.max_memory_allocated() - peak < BYTES // 16
        assert all(p["temp_bytes"] < BYTES // 16 for p in programs), programs
        write(x, index, rows + 2)
        assert torch.tpu.counters()["compiles"] == after["compiles"]
    else:
        write(x, index, rows + 1)
        write(x, index, rows + 2)
    return x


@pytest.mark.parametrize("make", BUFFERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__)
def test_a_write_changes_the_buffer_in_place_and_gives_the_cpus_values(write, make):
    x, y = run(write, make, "tpu"), run(write, make, "cpu")
    torch.testing.assert_close(x.cpu(), y, rtol=0, atol=0)
