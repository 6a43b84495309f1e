"""All tests run in strict eager mode, and again with 8 ops a region (TORCH_PJRT_EAGER=fused TORCH_PJRT_QUEUE=8)."""
import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "strict_eager: says what happens when every op runs at its call, so it runs in no other mode")


@pytest.fixture(autouse=True)
def _strict_eager(request, monkeypatch):
    if not request.node.get_closest_marker("strict_eager"):
        yield
        return
    import torch

    monkeypatch.setenv("TORCH_PJRT_EAGER", "strict")
    with torch.tpu.set_eager_mode("strict"):
        yield
