"""Every test begins with the same seed."""
import pytest
import torch
import torch_pjrt


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
    before = torch_pjrt._C.queue_length()
    torch.tpu.set_eager_mode("fused", length=8)
    yield
    torch_pjrt._C.set_queue_length(before)
