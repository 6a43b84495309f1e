"""Which PJRT plugin to load, and the start of the runtime on first use."""
import os
import pathlib
import sys
import threading

from torch_pjrt import _C, _env

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


def _client_options(path: str) -> dict:
    platform = next((p["platform"] for p in _C.known_plugins() if path.endswith(p["file"])), "")
    return {"cpu_device_count": _env.get("TORCH_PJRT_CPU_DEVICES")} if platform == "cpu" else {}


def start() -> None:
    """Starts the runtime, once per process."""
    with _lock:
        if _C.is_started():
            return
        _env.check()
        path = select()
        worker = pathlib.Path(__file__).with_name("pj-worker")
        workers = _env.get("TORCH_PJRT_WORKERS")
        cache = _env.get("TORCH_PJRT_CACHE_DIR")
        _C.start(plugin=path, client_options=_client_options(path),
                 cache_directory=os.path.expanduser(cache) if cache else "",
                 cache_limit=_env.get("TORCH_PJRT_CACHE_BYTES"), worker=str(worker) if workers and worker.exists() else "",
                 workers=workers, compile_timeout_ms=_env.get("TORCH_PJRT_COMPILE_TIMEOUT_MS"),
                 worker_memory=_env.get("TORCH_PJRT_WORKER_BYTES"), queue_length=_env.get("TORCH_PJRT_QUEUE"))
        if not fallback_chosen:
            _C.set_fallback(_env.get("TORCH_PJRT_FALLBACK"))
        _C.set_index_mode(("deferred", "strict", "off").index(_env.get("TORCH_PJRT_INDEX_CHECK")))
        for call in after_start:
            call()
