"""Every model test runs with the CPU fallback forbidden."""
import pytest
import torch
import torch_pjrt

import catalogue


@pytest.fixture(autouse=True)
def nothing_falls_back():
    with torch.tpu.set_fallback("error"):
        yield


@pytest.fixture
def eager_mode():
    """torch.tpu.set_eager_mode, undone at the end: the suite may run in another mode."""
    with torch.tpu.set_eager_mode(torch.tpu.get_eager_mode()):
        yield torch.tpu.set_eager_mode


def pytest_generate_tests(metafunc):
    """`name` runs over all families, `generator` over those that generate."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", catalogue.FAMILIES)
    if "generator" in metafunc.fixturenames:
        metafunc.parametrize("generator", [n for n, f in catalogue.FAMILIES.items() if f.prompt])
