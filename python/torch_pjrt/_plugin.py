"""The start of the runtime on first use."""
import atexit
import os
import pathlib
import threading
import time
import warnings

from torch_pjrt import _C, _chips, _env, _selection, logs

_lock = threading.Lock()
fallback_chosen = False  # by torch.tpu.set_fallback, which then outranks the environment

# Called once the runtime runs.
after_start = []


def select() -> str:
    """The path of the plugin to load. RuntimeError, which says what to install, when there is none."""
    return _selection.select().path


def available() -> bool:
    """Whether a plugin can be found; nothing is started."""
    try:
        select()
        return True
    except (RuntimeError, ValueError):
        return False


def _cpu_devices() -> int:
    """How many devices a CPU plugin makes: as many as libtpu's mask names, for a process that sees some of the chips."""
    count, chips = _env.get("TORCH_PJRT_CPU_DEVICES"), _env.get("TPU_VISIBLE_CHIPS")
    if chips and "TORCH_PJRT_CPU_DEVICES" in os.environ and max(chips) >= count:
        raise ValueError(f"TPU_VISIBLE_CHIPS={os.environ['TPU_VISIBLE_CHIPS']}: TORCH_PJRT_CPU_DEVICES={count} makes "
                         f"only the chips 0 to {count - 1}")
    return len(chips) or count


def _tell_holders() -> None:
    """Before libtpu is started, which may wait for ever for a chip that another process has."""
    mask = os.environ.get("TPU_VISIBLE_CHIPS", "")
    for pid, command, file in _chips.holders()[0]:
        warnings.warn(f"the TPU chip {file} is open in process {pid} ({command}), and a chip belongs to one process: "
                      f"end that one, or choose other chips by TPU_VISIBLE_CHIPS (now {mask or 'all'})", stacklevel=2)


def _backward_threads_sleep() -> bool:
    for task in pathlib.Path("/proc/self/task").iterdir():
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        if name.startswith("pt_autograd") and rest.split()[0] != "S":
            return False
    return True


def _settle_backward() -> None:
    """At exit, before the interpreter goes: waits until PyTorch's backward threads have dropped what they hold of Python.

    The device's thread may drop a pass's last references (to the caller's contextvars, to gradients) after backward() has
    returned, and needs the GIL for it; without an interpreter it aborts the process (torch 2.13, Engine::thread_main).
    """
    end, calm = time.monotonic() + 5, 0
    while calm < 2 and time.monotonic() < end:
        time.sleep(0.001)  # without the GIL, which they may be waiting for
        try:
            calm = calm + 1 if _backward_threads_sleep() else 0
        except OSError:  # a thread ended meanwhile
            calm = 0


def start() -> None:
    """Starts the runtime, once per process."""
    with _lock:
        if _C.is_started():
            return
        _env.check()
        plugin = _selection.select()
        if plugin.platform == "tpu":
            _tell_holders()
        worker = pathlib.Path(__file__).with_name("pj-worker")
        workers = _env.get("TORCH_PJRT_WORKERS")
        cache, shared = _env.get("TORCH_PJRT_CACHE_DIR"), _env.get("TORCH_PJRT_SHARED_CACHE")
        _C.start(plugin=plugin.path,
                 client_options={"cpu_device_count": _cpu_devices()} if plugin.platform == "cpu" else {},
                 cache_directory=os.path.expanduser(cache), shared_cache_directory=os.path.expanduser(shared),
                 cache_limit=_env.get("TORCH_PJRT_CACHE_BYTES"), worker=str(worker) if workers and worker.exists() else "",
                 workers=workers, compile_timeout_ms=_env.get("TORCH_PJRT_COMPILE_TIMEOUT_MS"),
                 worker_memory=_env.get("TORCH_PJRT_WORKER_BYTES"),
                 eager=_env.EAGER_MODES.index("blocking" if _env.get("TORCH_PJRT_BLOCKING") else _env.get("TORCH_PJRT_EAGER")),
                 queue_length=_env.get("TORCH_PJRT_QUEUE"))
        if not fallback_chosen:
            _C.set_fallback(_env.get("TORCH_PJRT_FALLBACK"))
        atexit.register(_settle_backward)
        atexit.register(_C.stop_compiles)
        _C.set_index_mode(("deferred", "strict", "off").index(_env.get("TORCH_PJRT_INDEX_CHECK")))
        logs.listen()
        for call in after_start:
            call()
