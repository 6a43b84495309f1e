"""Changes to modules of PyTorch that `import torch` does not load, made when they are loaded."""
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.changes: dict[str, Callable[[ModuleType], None]] = {}

    def find_spec(self, name, path=None, target=None):
        change = self.changes.pop(name, None)  # so that the search below does not come back here
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


_finder = _Finder()


def after_import(name: str, change: Callable[[ModuleType], None]) -> None:
    """Calls change(module) when the module has been loaded: now, if it is there already."""
    if name in sys.modules:
        change(sys.modules[name])
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.changes[name] = change
