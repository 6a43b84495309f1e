"""Upsampling and grid sampling, and their gradients.

Sums of many products in another order differ by more than the default tolerance; gradients are held to rtol 1e-4,
atol 1e-4.
"""
import itertools

import pytest
import torch

from harness import compare, compare_wide, values

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
SUMMED = {"rtol": 1e-4, "atol": 1e-4}
SIZES = [4, 5, 6]
NEAREST = ["upsample_nearest", "_upsample_nearest_exact"]
LINEAR = {"upsample_linear": 1, "upsample_bilinear": 2, "upsample_trilinear": 3, "upsample_bicubic": 2}


@pytest.mark.parametrize("name", NEAREST)
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("size, scales", [([7, 3, 6], None), ([8, 10, 9], [2.0, 2.0, 1.6])], ids=str)
def test_nearest(name, dims, size, scales):
    sizes, scales = size[:dims], scales[:dims] if scales else [None] * dims
    compare(f"aten::{name}{dims}d", values(2, 3, *SIZES[:dims]), sizes, *scales)
    compare(f"aten::{name}{dims}d_backward", values(2, 3, *sizes), sizes, [2, 3, *SIZES[:dims]], *scales, **CLOSE)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size, scales", [([7, 3, 6], None), ([8, 10, 9], [2.0, 2.0, 1.6]), ([1, 4, 2], None)], ids=str)
def test_interpolation(name, align_corners, size, scales):
    dims = LINEAR[name]
    sizes, scales = size[:dims], scales[:dims] if scales else [None] * dims
    compare(f"aten::{name}{dims}d", values(2, 3, *SIZES[:dims]), sizes, align_corners, *scales, **CLOSE)
    compare(f"aten::{name}{dims}d_backward", values(2, 3, *sizes), sizes,
            [2, 3, *SIZES[:dims]], align_corners, *scales, **SUMMED)


@pytest.mark.parametrize("name", ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [[3, 4], [11, 9], [2, 15]], ids=str)
def test_antialiased(name, align_corners, size):
    compare("aten::" + name, values(1, 2, 8, 9), size, align_corners, **SUMMED)
    compare(f"aten::{name}_backward", values(1, 2, *size), size, [1, 2, 8, 9], align_corners, **SUMMED)


def test_half_types_and_integers():
    compare_wide("aten::upsample_bilinear2d", values(1, 2, 4, 5, dtype=torch.bfloat16), [7, 9], False)
    image = (values(1, 2, 4, 5) * 40).abs().clamp(max=255).to(torch.uint8)
    compare("aten::upsample_nearest2d", image, [7, 9])
    # The CPU's weights for bytes are fixed-point numbers of 16 bits: what is nearly half may be rounded the other way.
    for name in ("upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"):
        compare("aten::" + name, image, [7, 3], False, atol=1, rtol=0)


def test_gradients_of_images_too_large_for_a_matrix():
    size = 2100
    compare("aten::upsample_linear1d_backward", values(1, 1, 2 * size), [2 * size], [1, 1, size], False, **SUMMED)


@pytest.mark.parametrize("mode, padding, align_corners", itertools.product([0, 1, 2], [0, 1, 2], [False, True]))
def test_grid_sampler_2d_and_its_gradients(mode, padding, align_corners):
    x, grid = values(2, 3, 5, 6), values(2, 4, 3, 2) / 3
    compare("aten::grid_sampler_2d", x, grid, mode, padding, align_corners, **SUMMED)
    compare("aten::grid_sampler_2d_backward", values(2, 3, 4, 3), x,
            grid, mode, padding, align_corners, [True, True], **SUMMED)


@pytest.mark.parametrize("mode, padding, align_corners", [(0, 0, False), (0, 2, True), (1, 1, False)])
def test_grid_sampler_3d_and_its_gradients(mode, padding, align_corners):
    x, grid = values(2, 3, 4, 5, 6), values(2, 2, 3, 2, 3) / 3
    compare("aten::grid_sampler_3d", x, grid, mode, padding, align_corners, **SUMMED)
    compare("aten::grid_sampler_3d_backward", values(2, 3, 2, 3, 2), x,
            grid, mode, padding, align_corners, [True, True], **SUMMED)
