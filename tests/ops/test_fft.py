import pytest
import torch
from checks import CONTRACTION, make
from harness import compare

REAL = [make(torch.float32, 4, 6, 5), make(torch.float32, 4, 6, 5).transpose(0, 2), make(torch.float32, 9)]


@pytest.mark.parametrize("norm", [0, 1, 2])
@pytest.mark.parametrize("x", REAL, ids=["dense", "transposed", "odd"])
def test_fourier_transforms_equal_the_cpus(x, norm):
    z = torch.complex(x, x.flip(0))
    for dims in ([0], [2, 0], [0, 1, 2]) if x.dim() == 3 else ([0],):
        for forward in (True, False):
            compare("aten::_fft_c2c", z, dims, norm, forward, **CONTRACTION)
            compare("aten::_fft_r2c", x, dims, norm, forward, **CONTRACTION)
        half = torch.ops.aten._fft_r2c(x, dims, 0, True)
        compare("aten::_fft_c2r", half, dims, norm, x.shape[dims[-1]], **CONTRACTION)
        compare("aten::_fft_c2r", z, dims, norm, 2 * (z.shape[dims[-1]] - 1), **CONTRACTION)


def test_float64_and_conjugate_inputs_are_transformed():
    compare("aten::_fft_r2c", torch.randn(3, 4, dtype=torch.float64), [1], 0, True)
    compare("aten::_fft_c2c", make(torch.complex64, 3, 4).conj(), [1], 0, True, **CONTRACTION)
    compare("aten::_fft_c2c", make(torch.complex64, 3, 4), [], 0, True)
