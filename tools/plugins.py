"""The PJRT plugins that are installed in this Python, by the core's own table (core/pjrt/known.c)."""
import ctypes
import sys
from pathlib import Path


class _Known(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in ("name", "package", "file", "platform")]


def installed_plugins(library: str | Path, platform: str) -> dict[str, str]:
    """Files of the installed plugins for `platform` by name, the preferred one first; `library` is a libpj.so."""
    core = ctypes.CDLL(str(library))
    core.pj_known_plugins.restype = ctypes.POINTER(_Known)
    count = ctypes.c_size_t()
    table = core.pj_known_plugins(ctypes.byref(count))
    found = {}
    for known in table[:count.value]:
        files = [Path(folder) / known.file.decode() for folder in sys.path]
        file = next((f for f in files if f.is_file()), None)
        if file and known.platform.decode() == platform:
            found[known.name.decode()] = str(file)
    return found
