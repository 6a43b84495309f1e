"""All tests run in each eager mode, but for those that say what happens in one: tools/test.py runs them once a mode
(TORCH_PJRT_EAGER)."""
from torch_pjrt import _env

MODE = _env.get("TORCH_PJRT_EAGER")


def pytest_configure(config):
    config.addinivalue_line("markers", "eager(*modes): says what happens in these eager modes, so it runs in no other")


def pytest_collection_modifyitems(config, items):
    def runs(item):
        marker = item.get_closest_marker("eager")
        return not marker or MODE in marker.args

    others = [item for item in items if not runs(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if runs(item)]
