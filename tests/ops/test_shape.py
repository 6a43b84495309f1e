"""Joining, repeating, turning, cutting, padding, patches, copies of views, distances."""
import pytest
import torch

from harness import compare, run, values

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_joins_and_moves_keep_every_dtype(dtype):
    x = values(3, 4, dtype=dtype)
    compare("aten::cat", [x, x.t().contiguous().t(), x[:1]], 0)
    compare("aten::stack", [x, x], -1)
    compare("aten::repeat", x, [2, 1, 3])
    compare("aten::flip", x, [0, -1])
    compare("aten::roll", x, [5, -1], [0, 1])
    compare("aten::tril", x, 1)
    compare("aten::triu", x, -1)


def test_cat_promotes_and_skips_empty_vectors():
    compare("aten::cat", [values(2, 3), values(1, 3, dtype=torch.int64), torch.empty(0)], 0)
    compare("aten::cat", [torch.empty(0, 3), torch.empty(0, 3)], 1)


def test_cat_joins_more_parts_than_fit_in_one_operation():
    compare("aten::cat", [values(1, 2) + i for i in range(130)], 0)


def test_cat_refuses_other_sizes():
    with pytest.raises(RuntimeError):
        run("aten::cat", [values(2, 3), values(2, 4)], 0, results=[values(4, 3)])


@pytest.mark.parametrize("repeats", [[1, 1], [2, 2], [3, 1, 2], [0, 2], [2, 1, 1, 1]], ids=str)
def test_repeat(repeats):
    compare("aten::repeat", values(2, 1), repeats)


def test_roll_and_rot90():
    for k in range(-1, 4):
        compare("aten::rot90", values(2, 3, 4), k, [0, 2])
    compare("aten::roll", values(2, 3), [4])
    compare("aten::roll", values(2, 3), [1, 1], [1, 1])
    compare("aten::roll", torch.empty(0, 3), [1], [0])


def test_block_diag_trace_and_diagonals():
    compare("aten::block_diag", [values(2, 3), values(2), values(), values(1, 2, dtype=torch.int64)])
    compare("aten::trace", values(3, 4))
    compare("aten::trace", values(3, 4, dtype=torch.int32))
    for offset in (0, 2, -1):
        compare("aten::diag_embed", values(2, 3), offset, 0, -1)
        compare("aten::diagonal_copy", values(3, 2, 4), offset, 0, 2)
    for offset, size in ((0, 3), (2, 2), (-1, 2)):
        compare("aten::diagonal_backward", values(2, size), [3, 2, 4], offset, 0, 2)


def test_shuffles():
    compare("aten::channel_shuffle", values(2, 6, 3, 2), 3)
    compare("aten::pixel_shuffle", values(2, 8, 3, 2), 2)
    compare("aten::pixel_unshuffle", values(8, 4, 6), 2)


@pytest.mark.parametrize("name, args", [
    ("slice_copy.Tensor", (1, 1, 100, 2)), ("slice_copy.Tensor", (0, -2, None)), ("narrow_copy", (1, 2, 2)),
    ("select_copy.int", (1, -1)), ("unfold_copy", (1, 3, 2)), ("as_strided_copy", ([2, 2], [5, 2], 1)),
    ("view_copy", ([5, 4],)),
    ("expand_copy", ([2, 4, 5],)), ("permute_copy", ([1, 0],)), ("transpose_copy.int", (0, -1)), ("t_copy", ()),
    ("split_copy.Tensor", (2, 1)), ("split_with_sizes_copy", ([1, 3], 0)), ("unbind_copy.int", (1,)),
    ("unsqueeze_copy", (1,)),
    ("squeeze_copy", ()), ("view_copy.dtype", (torch.int16,)), ("view_copy.dtype", (torch.int32,)), ("alias_copy", ()),
], ids=str)
def test_copies_of_views(name, args):
    compare("aten::" + name, values(4, 5), *args)
    if name not in ("view_copy", "view_copy.dtype"):
        compare("aten::" + name, values(5, 4).t(), *args)


def test_complex_views():
    compare("aten::view_as_real_copy", values(3, 2, dtype=torch.complex64))
    compare("aten::view_as_complex_copy", values(3, 2))
    compare("aten::_conj_copy", values(3, dtype=torch.complex64))


@pytest.mark.parametrize("name, source, args", [
    ("slice_scatter", (4, 2), (1, 1, 4, 2)), ("slice_scatter", (2, 5), (0, -2)), ("select_scatter", (4,), (1, -2)),
    ("diagonal_scatter", (4,), (1,)), ("as_strided_scatter", (2, 2), ([2, 2], [5, 2], 1)),
], ids=str)
def test_scatters_into_views(name, source, args):
    compare("aten::" + name, values(4, 5), values(*source), *args)
    compare("aten::" + name, values(4, 5), values(*source[::-1]).permute(*range(len(source))[::-1]), *args)


def test_as_strided_scatter_refuses_what_lies_outside():
    with pytest.raises(RuntimeError, match="out of bounds"):
        run("aten::as_strided_scatter", values(4, 5), values(3, 3), [3, 3], [10, 1], 0)


def test_gradients_of_views():
    compare("aten::slice_backward", values(4, 2), [4, 7], 1, 1, 6, 3)
    compare("aten::slice_backward", values(4, 0), [4, 7], 1, 3, 3, 1)
    compare("aten::select_backward", values(4), [4, 7], 1, -2)
    compare("aten::unfold_backward", values(2, 3, 4), [2, 8], 1, 4, 2)
    compare("aten::unfold_backward", values(2, 2, 3), [2, 7], 1, 3, 4)


@pytest.mark.parametrize("pad", [[1, 2], [0, 1, 2, 0], [-1, 2, 1, -1], [0, 0, 0, 0, 1, 1]], ids=str)
def test_constant_pad(pad):
    compare("aten::constant_pad_nd", values(2, 3, 4), pad, 1.5)
    compare("aten::constant_pad_nd", values(2, 3, 4, dtype=torch.int64), pad, 7)


def test_constant_pad_refuses_to_cut_too_much():
    with pytest.raises(RuntimeError, match="negative output size"):
        run("aten::constant_pad_nd", values(2, 3), [-2, -2], 0, results=[values(2, 3)])


@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize("dims, pad", [(1, [2, 1]), (2, [1, 0, 2, 3]), (3, [1, 1, 0, 2, 1, 0]),
                                       (2, [-1, 2, 1, -1])], ids=str)
def test_reflection_and_replication(kind, dims, pad):
    x = values(2, 3, *[4, 5, 6][:dims])
    compare(f"aten::{kind}_pad{dims}d", x, pad)
    grad = run(f"aten::{kind}_pad{dims}d", x, pad)[0]
    compare(f"aten::{kind}_pad{dims}d_backward", values(*grad.shape), x, pad)


@pytest.mark.parametrize("kernel, dilation, padding, stride",
                         [([2, 3], [1, 1], [0, 0], [1, 1]), ([2, 2], [2, 1], [1, 2], [2, 3])])
def test_im2col_and_its_adjoint(kernel, dilation, padding, stride):
    x = values(2, 3, 6, 7)
    compare("aten::im2col", x, kernel, dilation, padding, stride)
    columns = torch.nn.functional.unfold(x, kernel, dilation, padding, stride)
    compare("aten::col2im", values(*columns.shape), [6, 7], kernel, dilation, padding, stride)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, INF])
def test_distances_and_their_gradients(p):
    a, b = values(2, 4, 3), values(5, 3) / 2
    compare("aten::_cdist_forward", a, b.expand(2, 5, 3), p, None, rtol=1e-5)
    distance = torch.cdist(a, b.expand(2, 5, 3), p)
    compare("aten::_cdist_backward", values(2, 4, 5), a, b.expand(2, 5, 3).contiguous(), p, distance, rtol=1e-4)
    compare("aten::_pdist_forward", a[0], p, rtol=1e-5)
    compare("aten::_pdist_backward", values(6), a[0], p, torch.pdist(a[0], p), rtol=1e-4)


def test_renorm_and_cross():
    compare("aten::renorm", values(3, 4), 2, 0, 2.0)
    compare("aten::renorm", values(3, 4, 2), 1, -2, 5.0)
    compare("aten::linalg_cross", values(2, 3, 4), values(1, 3, 1), dim=1)
    compare("aten::linalg_cross", values(3, dtype=torch.int64), values(3, dtype=torch.int64) + 2)


def test_special_values_move_unchanged():
    x = torch.tensor([NAN, INF, -INF, -0.0, 1e-45])
    compare("aten::flip", x, [0])
    compare("aten::constant_pad_nd", x, [1, 1], NAN)
    assert torch.signbit(run("aten::flip", x, [0])[0])[1]
