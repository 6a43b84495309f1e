"""Which PJRT plugin is loaded; docs/plugins.md says the order."""
import os
import pathlib
import sys
from typing import NamedTuple

from torch_pjrt import _chips, _core, _env


class Choice(NamedTuple):
    path: str
    platform: str  # of the core's table; "" for a file that is not in it
    why: str
    variable: str = ""  # the environment variable that names it; its file is then the user's word


def _find(plugin: _core.Plugin) -> str | None:
    """The file of a known plugin's package, if that is installed."""
    for folder in sys.path:
        path = pathlib.Path(folder or ".") / plugin.file
        if path.is_file():
            return str(path)
    return None


def _named(name: str) -> Choice:
    """By TORCH_PJRT_PLUGIN."""
    variable = "TORCH_PJRT_PLUGIN"
    if os.path.isfile(name):
        return Choice(name, platform_of(name), "the file that it names", variable)
    for plugin in _core.known_plugins():
        if name in (plugin.name, plugin.package):
            if path := _find(plugin):
                return Choice(path, plugin.platform, f"the package {plugin.package}, which it names", variable)
            raise RuntimeError(f"{variable}={name}: that plugin is not installed; run: pip install {plugin.package}")
    names = ", ".join(plugin.name for plugin in _core.known_plugins())
    raise RuntimeError(f"{variable}={name} is neither a file nor a known plugin ({names})")


def platform_of(path: str) -> str:
    return next((p.platform for p in _core.known_plugins() if path.endswith(p.file)), "")


def select() -> Choice:
    """RuntimeError, which says what to install, when there is no plugin."""
    if name := _env.get("TORCH_PJRT_PLUGIN"):
        return _named(name)
    # Without a chip libtpu is not even loaded: it would ask the cloud's metadata server for minutes. Its own variable is no
    # wish for it: `import jax` sets it for the whole process and its children wherever libtpu is installed.
    has_chip = bool(_chips.device_files())
    if has_chip and (library := _env.get("TPU_LIBRARY_PATH")):
        return Choice(library, "tpu", "libtpu's file, which it names", "TPU_LIBRARY_PATH")
    for platform in ["tpu", "cpu"] if has_chip else ["cpu"]:
        for plugin in _core.known_plugins():
            if plugin.platform == platform and (path := _find(plugin)):
                why = {"tpu": "this machine has TPU chips", "cpu": "the first installed CPU plugin of the table"}
                return Choice(path, platform, f"{why[platform]} ({plugin.package})")
    cpu = next(plugin.package for plugin in _core.known_plugins() if plugin.platform == "cpu")
    raise RuntimeError(f"no PJRT plugin was found; run: pip install libtpu (for TPUs) or pip install {cpu} (to run on "
                       "this machine's CPU), or set TORCH_PJRT_PLUGIN to a plugin's path")
