"""What SECURITY.md promises: no network, only trusted compiled programs, programs of the plugin file that made them."""
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch_pjrt  # noqa: F401
from child import PRELUDE, run
from test_cache import WORK, counts, entries
from torch_pjrt import _selection

# A seccomp filter that ends a process at once when it asks for an internet socket. Its children inherit it, also across
# exec.
NO_NETWORK = """
import ctypes, struct
LOAD, EQUAL, RETURN, KILL, ALLOW = 0x20, 0x15, 0x06, 0x80000000, 0x7FFF0000  # linux/filter.h, linux/seccomp.h
code = b"".join(struct.pack("HBBI", *i) for i in [
    (LOAD, 0, 0, 0), (EQUAL, 0, 4, 41),                   # the system call; x86-64's socket
    (LOAD, 0, 0, 16), (EQUAL, 1, 0, 2), (EQUAL, 0, 1, 10),  # its first argument; AF_INET, AF_INET6
    (RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW)])
buffer = ctypes.create_string_buffer(code, len(code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0, ctypes.get_errno()  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
"""


def test_import_compile_and_training_open_no_internet_socket():
    run("""
    model = torch.nn.Linear(4, 2).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.compile(model)(torch.randn(8, 4, device="tpu")).square().mean().backward()
    optimizer.step()
    works()
    counters = torch.tpu.counters()
    # A compile worker that had been ended would be a failure, or a reason to do without.
    assert counters["compiles"] >= 2 and counters["worker_failures"] == 0, counters
    assert not torch_pjrt._C.own_process_reason()
    """, prelude=NO_NETWORK + PRELUDE, TORCH_PJRT_CACHE_DIR="")


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
def test_the_trap_of_the_test_above_closes_also_in_a_child(family):
    child = f"import socket; socket.socket(socket.{family})"
    done = subprocess.run([sys.executable, "-c", NO_NETWORK + f"""
import socket, subprocess, sys
socket.socketpair()
sys.exit(-subprocess.run([sys.executable, "-c", {child!r}]).returncode)
"""])
    assert done.returncode == signal.SIGSYS


@pytest.mark.eager("strict")
def test_programs_come_from_a_shared_cache_that_is_never_written(tmp_path):
    shared = tmp_path / "shared"
    compiles, _ = counts(run(WORK, TORCH_PJRT_CACHE_DIR=str(shared)))
    shared.chmod(0o555)
    before = {p: p.stat().st_mtime_ns for p in shared.iterdir()}
    for own in ("", str(tmp_path / "own")):
        more = WORK + "assert (x - 1).sum().item() == 20"  # what the shared one does not hold
        added, loads = counts(run(more, TORCH_PJRT_CACHE_DIR=own, TORCH_PJRT_SHARED_CACHE=str(shared)))
        assert (added, loads) == (0, compiles)
    assert before == {p: p.stat().st_mtime_ns for p in shared.iterdir()}
    assert len(entries(tmp_path / "own")) >= 2  # the plugin's digest and the new program


def test_a_shared_cache_that_cannot_be_trusted_is_told_and_not_used(tmp_path):
    """Each reason not to trust one is a test of the core (tests/run/disk_cache_test.c)."""
    tmp_path.chmod(0o775)
    output = run("works()", TORCH_PJRT_CACHE_DIR="", TORCH_PJRT_SHARED_CACHE=str(tmp_path))
    assert "chmod go-w" in output and "going on without it" in output, output


@pytest.mark.eager("strict")
def test_a_touched_plugin_file_keeps_its_programs_and_a_changed_one_loses_them(tmp_path):
    """The change keeps the file's size and time, and the loader does not read it: which section holds ELF's names."""
    plugin, cache = tmp_path / "plugin.so", str(tmp_path / "cache")
    shutil.copy(_selection.select().path, plugin)

    def start():
        return counts(run(WORK, TORCH_PJRT_PLUGIN=str(plugin), TORCH_PJRT_CACHE_DIR=cache))

    compiles, _ = start()
    os.utime(plugin)
    assert start() == (0, compiles)
    times = plugin.stat()
    with plugin.open("r+b") as file:
        file.seek(62)  # e_shstrndx
        file.write(b"\0\0")
    os.utime(plugin, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert start() == (compiles, 0)
