"""Every test begins with the same seed."""
import pytest
import torch
import torch_pjrt  # noqa: F401


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def native():
    """Forbids the CPU fallback."""
    with torch.tpu.set_fallback("error"):
        yield


@pytest.fixture
def fused_eager():
    with torch.tpu.set_eager_mode("fused", length=8):
        yield
