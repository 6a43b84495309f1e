"""Which PJRT plugin to load, and the start of the runtime on first use."""
import atexit
import os
import pathlib
import sys
import threading
import time

from torch_pjrt import _C, _env, logs

_lock = threading.Lock()
fallback_chosen = False  # by torch.tpu.set_fallback, which then outranks the environment

# Called once the runtime runs.
after_start = []


def _find(plugin: dict) -> str | None:
    """The file of a known plugin's package, if that is installed."""
    for folder in sys.path:
        path = pathlib.Path(folder or ".") / plugin["file"]
        if path.is_file():
            return str(path)
    return None


def _has_tpu() -> bool:
    """Whether this machine has TPU chips: their device nodes, or a forced choice by libtpu's own variable."""
    return bool(os.environ.get("TPU_LIBRARY_PATH")) or any(pathlib.Path(d).exists() for d in ("/dev/accel0", "/dev/vfio/0"))


def select() -> str:
    """The path of the plugin to load. RuntimeError, which says what to install, when there is none."""
    known = _C.known_plugins()
    chosen = _env.get("TORCH_PJRT_PLUGIN")
    if chosen:
        if os.path.isfile(chosen):
            return chosen
        for plugin in known:
            if chosen in (plugin["name"], plugin["package"]):
                if path := _find(plugin):
                    return path
                raise RuntimeError(f"TORCH_PJRT_PLUGIN={chosen}: that plugin is not installed; "
                                   f"run: pip install {plugin['package']}")
        names = ", ".join(plugin["name"] for plugin in known)
        raise RuntimeError(f"TORCH_PJRT_PLUGIN={chosen} is neither a file nor a known plugin ({names})")
    if library := os.environ.get("TPU_LIBRARY_PATH"):
        return library
    platforms = (["tpu"] if _has_tpu() else []) + ["cpu"]
    for platform in platforms:
        for plugin in known:
            if plugin["platform"] == platform and (path := _find(plugin)):
                return path
    cpu = next(plugin["package"] for plugin in known if plugin["platform"] == "cpu")
    raise RuntimeError(f"no PJRT plugin was found; run: pip install libtpu (for TPUs) or pip install {cpu} (to run on "
                       "this machine's CPU), or set TORCH_PJRT_PLUGIN to a plugin's path")


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


def _client_options(path: str) -> dict:
    platform = next((p["platform"] for p in _C.known_plugins() if path.endswith(p["file"])), "")
    return {"cpu_device_count": _cpu_devices()} if platform == "cpu" else {}


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
        path = select()
        worker = pathlib.Path(__file__).with_name("pj-worker")
        workers = _env.get("TORCH_PJRT_WORKERS")
        cache, eager = _env.get("TORCH_PJRT_CACHE_DIR"), _env.get("TORCH_PJRT_EAGER")
        _C.start(plugin=path, client_options=_client_options(path),
                 cache_directory=os.path.expanduser(cache) if cache else "",
                 cache_limit=_env.get("TORCH_PJRT_CACHE_BYTES"), worker=str(worker) if workers and worker.exists() else "",
                 workers=workers, compile_timeout_ms=_env.get("TORCH_PJRT_COMPILE_TIMEOUT_MS"),
                 worker_memory=_env.get("TORCH_PJRT_WORKER_BYTES"),
                 queue_length=1 if eager == "strict" else _env.get("TORCH_PJRT_QUEUE"), adaptive=eager == "adaptive")
        if not fallback_chosen:
            _C.set_fallback(_env.get("TORCH_PJRT_FALLBACK"))
        atexit.register(_settle_backward)
        atexit.register(_C.stop_compiles)
        _C.set_index_mode(("deferred", "strict", "off").index(_env.get("TORCH_PJRT_INDEX_CHECK")))
        logs.listen()
        for call in after_start:
            call()
