"""Every model test runs with the CPU fallback forbidden."""
import pytest
import torch

import catalogue


@pytest.fixture(autouse=True)
def nothing_falls_back():
    with torch.tpu.set_fallback("error"):
        yield


@pytest.fixture
def fused_eager():
    torch.tpu.set_eager_mode("fused", length=8)
    yield
    torch.tpu.set_eager_mode("strict")


def pytest_generate_tests(metafunc):
    """`name` runs over all families, `generator` over those that generate."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", catalogue.FAMILIES)
    if "generator" in metafunc.fixturenames:
        metafunc.parametrize("generator", [n for n, f in catalogue.FAMILIES.items() if f.prompt])
