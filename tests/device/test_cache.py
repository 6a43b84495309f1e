"""The cache of compiled programs on disk: second starts, many processes, full disks, damaged and foreign entries."""
import concurrent.futures
import os
import stat
import subprocess
from pathlib import Path

import pytest
from child import run
from test_selection import compile_library

WORK = """
x = torch.arange(8.0).to("tpu")
assert (x * 2 + 1).sum().item() == 64 and (x @ x).item() == 140
c = torch.tpu.counters()
print("compiles", c["compiles"], "loads", c["cache_loads"])
"""


def counts(output: str) -> tuple[int, int]:
    words = output.split()
    i = words.index("compiles")
    return int(words[i + 1]), int(words[i + 3])


def entries(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if len(p.name) == 64]


@pytest.mark.eager("strict")
def test_a_second_start_compiles_nothing_and_the_directory_is_private(tmp_path):
    folder = tmp_path / "new" / "cache"
    compiles, loads = counts(run(WORK, TORCH_PJRT_CACHE_DIR=str(folder)))
    assert compiles >= 3 and loads == 0
    assert counts(run(WORK, TORCH_PJRT_CACHE_DIR=str(folder))) == (0, compiles)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in entries(folder))


def test_processes_that_fill_one_cache_at_once_all_work(tmp_path):
    def start(_):
        return counts(run(WORK, TORCH_PJRT_CACHE_DIR=str(tmp_path / "cache")))

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(start, range(2)))
    total = sum(done[0])
    assert all(sum(d) == total for d in done)
    assert counts(run(WORK, TORCH_PJRT_CACHE_DIR=str(tmp_path / "cache"))) == (0, total)
    assert not [p for p in (tmp_path / "cache").iterdir() if len(p.name) != 64]  # no temporary file is left


DAMAGES = ["cut short", "a bit flipped", "empty", "text", "the entry of another program", "a directory"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_entry_is_dropped_and_made_again(tmp_path, damage):
    folder = tmp_path / "cache"
    compiles, _ = counts(run(WORK, TORCH_PJRT_CACHE_DIR=str(folder)))
    files = sorted(entries(folder), key=lambda p: p.stat().st_size)[1:]  # the smallest is the plugin's digest
    contents = [p.read_bytes() for p in files]
    for i, (path, content) in enumerate(zip(files, contents)):
        if damage == "a directory":
            path.unlink()
            path.mkdir()
            continue
        flipped = content[:200] + bytes([content[200] ^ 1]) + content[201:]
        path.write_bytes({"cut short": content[:-100], "a bit flipped": flipped, "empty": b"", "text": b"hello" * 1000,
                          "the entry of another program": contents[i - 1]}[damage])
    output = run(WORK, TORCH_PJRT_CACHE_DIR=str(folder))
    assert counts(output) == (compiles, 0)
    told = output.count("torch_pjrt: compile cache")  # each trouble once; a directory cannot be removed and made again
    assert told == (2 if damage == "a directory" else 1) and str(folder) in output, output
    if damage != "a directory":
        assert counts(run(WORK, TORCH_PJRT_CACHE_DIR=str(folder))) == (0, compiles)


def test_a_full_disk_under_the_cache_is_told_once_and_everything_works(tmp_path):
    """RLIMIT_FSIZE stands for the full disk: a write fails in the middle of an entry."""
    output = run("""
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    """ + WORK.replace("\n", "\n    "), TORCH_PJRT_CACHE_DIR=str(tmp_path / "cache"))
    assert output.count("cannot store an entry") == 1 and "going on without" in output, output
    assert all(p.stat().st_size <= 1000 and len(p.name) == 64 for p in (tmp_path / "cache").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system needs root")
@pytest.mark.eager("strict")
def test_a_file_system_without_room_is_told_once_and_everything_works(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        output = run(WORK, TORCH_PJRT_CACHE_DIR=str(folder))
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert output.count("No space left on device") == 1 and counts(output)[0] >= 3, output


@pytest.mark.parametrize("trouble", ["a file", "a link", "open to others", "no path"])
@pytest.mark.eager("strict")
def test_a_directory_that_cannot_be_used_is_told_and_everything_works_without_it(tmp_path, trouble):
    folder = tmp_path / "cache"
    if trouble == "a file":
        folder.write_text("")
    elif trouble == "a link":
        (tmp_path / "real").mkdir()
        folder.symlink_to(tmp_path / "real")
    elif trouble == "open to others":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder = Path("/proc/none/cache")
    output = run(WORK, TORCH_PJRT_CACHE_DIR=str(folder))
    assert "going on without it" in output and str(folder.parent) in output and counts(output)[0] >= 3, output


def test_the_size_limit_holds(tmp_path):
    run("""
    for n in range(1, 25):
        (torch.ones(n, device="tpu") + 1).cpu()
    """, TORCH_PJRT_CACHE_DIR=str(tmp_path), TORCH_PJRT_CACHE_BYTES="60000")
    assert 0 < sum(p.stat().st_size for p in tmp_path.iterdir()) <= 64000


@pytest.mark.eager("strict")
def test_without_a_directory_nothing_is_kept(tmp_path):
    for _ in range(2):
        compiles, loads = counts(run(WORK, TORCH_PJRT_CACHE_DIR="", HOME=str(tmp_path)))
        assert compiles >= 3 and loads == 0
    assert not list(tmp_path.iterdir())


CPU_INFO = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
FILE *fopen(const char *path, const char *mode) {
  FILE *(*open)(const char *, const char *) = (FILE *(*)(const char *, const char *))dlsym(RTLD_NEXT, "fopen");
  return open(strcmp(path, "/proc/cpuinfo") ? path : getenv("CPU_INFO"), mode);
}
"""


@pytest.mark.eager("strict")
def test_a_program_is_not_taken_from_the_cache_on_a_cpu_of_other_features(tmp_path):
    library, folder, text = tmp_path / "cpuinfo.so", tmp_path / "cache", Path("/proc/cpuinfo").read_text()
    (tmp_path / "cpuinfo.c").write_text(CPU_INFO)
    compile_library(library, tmp_path / "cpuinfo.c")

    def start(cpu_info: str) -> tuple[int, int]:
        (tmp_path / "info").write_text(cpu_info)
        return counts(run(WORK, TORCH_PJRT_CACHE_DIR=str(folder), LD_PRELOAD=str(library), CPU_INFO=str(tmp_path / "info")))

    compiles, loads = start(text)
    assert compiles and not loads
    assert start(text.replace("cpu MHz\t\t: ", "cpu MHz\t\t: 1")) == (0, compiles)  # changes from moment to moment
    assert start(text.replace(" sse2 ", " ")) == (compiles, 0)
