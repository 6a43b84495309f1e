"""The core's library by ctypes: what is asked of it without PyTorch, so also where PyTorch does not work."""
import ctypes
import functools
import os
import pathlib
from collections.abc import Callable

FILE = pathlib.Path(__file__).with_name("libpj.so.0")


class Plugin(ctypes.Structure):
    """A published plugin package (pj_known_plugin): name, package, file below site-packages, platform."""

    _fields_ = [(name, ctypes.c_char_p) for name in ("name_", "package_", "file_", "platform_")]

    name, package, file, platform = (property(lambda self, field=field: getattr(self, field).decode())
                                     for field, _ in _fields_)


class Entry(ctypes.Structure):
    """An entry of the cache of compiled programs (pj_cache_entry); used: seconds since 1970. It lives during its visit.
    RuntimeError where it cannot be removed."""

    _fields_ = [("name_", ctypes.c_char_p), ("bytes", ctypes.c_uint64), ("used", ctypes.c_int64),
                ("in_", ctypes.c_void_p)]

    @property
    def name(self) -> str:
        return self.name_.decode()

    def check(self) -> str:
        """What is wrong with it, "" for nothing."""
        return (library().pj_cache_entry_check(ctypes.byref(self)) or b"").decode()

    def remove(self) -> None:
        _check(library().pj_cache_entry_remove(ctypes.byref(self)))


_Visit = ctypes.CFUNCTYPE(None, ctypes.POINTER(Entry), ctypes.c_void_p)

# Result and arguments of the functions of pj/version.h, pj/status.h, pj/pjrt.h and pj/cache.h that are called.
_FUNCTIONS = {
    "pj_version": (ctypes.c_char_p,),
    "pj_abi": (ctypes.c_int,),
    "pj_status_text": (ctypes.c_char_p, ctypes.c_void_p),
    "pj_status_free": (None, ctypes.c_void_p),
    "pj_known_plugins": (ctypes.POINTER(Plugin), ctypes.POINTER(ctypes.c_size_t)),
    "pj_cache_default_limit": (ctypes.c_uint64,),
    "pj_cache_scan": (ctypes.c_void_p, ctypes.c_char_p, _Visit, ctypes.c_void_p),
    "pj_cache_entry_check": (ctypes.c_char_p, ctypes.POINTER(Entry)),
    "pj_cache_entry_remove": (ctypes.c_void_p, ctypes.POINTER(Entry)),
}


@functools.cache
def library() -> ctypes.CDLL:
    """OSError when the file is absent or no library that loads here."""
    core = ctypes.CDLL(str(FILE))
    for name, (result, *arguments) in _FUNCTIONS.items():
        getattr(core, name).restype, getattr(core, name).argtypes = result, arguments
    return core


def _check(status: int | None) -> None:
    if status:
        text = library().pj_status_text(status).decode()
        library().pj_status_free(status)
        raise RuntimeError(text)


@functools.cache
def known_plugins() -> list[Plugin]:
    """The core's table, in the order of preference within a platform."""
    count = ctypes.c_size_t()
    table = library().pj_known_plugins(ctypes.byref(count))
    return table[:count.value]


def scan_cache(directory: str, visit: Callable[[Entry], None]) -> None:
    """Calls visit(entry) for each entry; for none where there is no such directory yet. RuntimeError: one that the
    runtime refuses, with the reason."""
    failures = []
    if not os.path.lexists(directory):
        return

    def call(entry, _):
        try:
            visit(entry.contents)
        except Exception as error:  # must not cross C
            failures.append(error)

    _check(library().pj_cache_scan(directory.encode(), _Visit(call), None))
    if failures:
        raise failures[0]
