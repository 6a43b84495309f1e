"""Views and writes: whoever looks at a storage sees the last write, whichever view it went through."""
import pytest
import torch
import torch.nn as nn
from compare import ROUNDING, like_cpu, same


def counting(device, *shape):
    return torch.arange(float(torch.Size(shape).numel()), device=device).reshape(shape)


def views_of_views(d):
    x = counting(d, 3, 5, 4)
    x[:2].transpose(1, 2)[0, 1:].mul_(-10)
    x[..., 1::2].add_(0.25)
    x.view(15, 4)[7].fill_(-5)
    x[1].t().diagonal().copy_(torch.tensor([9.0, 8.0, 7.0, 6.0], device=d))
    x.permute(1, 2, 0)[4, ..., 2] = 3
    x.flatten()[::7].neg_()
    x.unflatten(1, (5, 1)).select(1, 3).squeeze(1).sub_(x[:, 0])
    return x


def older_views(d):
    x = torch.ones(8, device=d)
    left, right, odd = x[:5], x[3:], x[1::2]
    x *= 2
    left += 1
    right.sub_(torch.arange(5.0, device=d))
    odd.square_()
    x.data.add_(0.5)
    return x, left, right, odd, x.detach()


def overlapping_writes(d):
    x = counting(d, 7)
    x[1:].copy_(x[:-1].clone())
    x[2:5] = x[:3] + x[4:7]
    y = torch.zeros(4, 5, device=d)
    y[:, 2] = torch.tensor([1.0, 2.0, 3.0, 4.0], device=d)
    y[[0, 3], [4, 1]] += 5
    y[torch.tensor([True, False, True, False], device=d)] *= 2
    y.index_put_((torch.tensor([1, 1, 2], device=d), torch.tensor([0, 0, 3], device=d)), torch.ones(3, device=d),
                 accumulate=True)
    y[1:3, ::2][:, 1:] -= y[:2, :2]
    return x, y


def slice_then_reduce(d):
    x = counting(d, 4, 6) + 1
    x[:, 2:5] *= 0.5
    return x.norm(dim=0), x.norm(), x[1:].sum(), x.t().contiguous()


def strided_windows(d):
    x = torch.arange(30, dtype=torch.int32, device=d)
    x.as_strided((3, 2), (7, 2), 4).mul_(100)
    windows = x.as_strided((9, 4), (3, 1))
    x[3] = -1
    return x, windows, windows.sum(0), x.as_strided((2, 2, 2), (0, 5, 1), 2)


def dtype_views(d):
    x = torch.arange(12, dtype=torch.int32, device=d)
    halves = x.view(torch.int16)
    halves[2:6] = 7
    bits = torch.tensor([1.0, -2.0, 0.5], device=d).view(torch.int32)
    bits.bitwise_xor_(torch.tensor(-2**31, dtype=torch.int32, device=d))
    floats, there_and_back = bits.view(torch.float32), x.view(torch.uint8).view(torch.int32)
    return x, halves, x.view(torch.uint8), x.view(3, 4).view(torch.int64), floats, there_and_back


def complex_views(d):
    z = torch.tensor([[1 + 2j, 3 - 1j], [0.5j, -4]], device=d)
    torch.view_as_real(z)[..., 1].mul_(2)
    z.real[0] = 9
    z.conj().imag.add_(1)
    pairs = torch.view_as_complex(counting(d, 3, 2))
    pairs.mul_(1j)
    return z, z.mH, z.conj().resolve_conj(), pairs, z.t().conj() @ z, z.imag.neg()


def out_arguments(d):
    x, y = counting(d, 3, 4), torch.zeros(4, 6, device=d)
    torch.add(x, 1, out=y[1:, 1:5])
    torch.mul(y[:, :2], 3, out=y[:, 4:])
    z = torch.empty(0, device=d)
    torch.matmul(x, x.t(), out=z)
    return y, z


def setting_and_swapping(d):
    x, y = counting(d, 6), torch.zeros(2, 3, device=d)
    y.set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    y.mul_(-1)
    w = nn.Parameter(torch.ones(3, device=d))
    w.data = x[:3]
    w.data.add_(10)
    a, b = torch.ones(2, device=d), torch.zeros(2, device=d)
    torch.utils.swap_tensors(a, b)
    return x, y, w, a, b


def resizing(d):
    x = counting(d, 6)
    x.resize_(2, 3).add_(1)
    y = x.view(-1)
    x.resize_(2, 2)
    x.t_()
    x.unsqueeze_(0)
    x[0, 0, 1] = 99
    return x, y


def clones_are_apart(d):
    x = counting(d, 4, 3)
    clones = [x.clone(), x.t().contiguous(), x.contiguous().clone(), x.detach().clone(), x.to(torch.float32, copy=True),
              x.reshape(12).clone()]
    x.zero_()
    clones[0][1] = -1
    return x, clones


def loops_of_writes(d):
    x = torch.zeros(5, 6, device=d)
    for i in range(5):
        for j in range(0, 6, 2):
            x[i, j] = i * j + 1
        x[i] += x[i - 1] if i else 1
    return x


PROGRAMS = [views_of_views, older_views, overlapping_writes, slice_then_reduce, strided_windows, dtype_views,
            complex_views, out_arguments,
            setting_and_swapping, resizing, clones_are_apart, loops_of_writes]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_every_view_sees_every_write(program):
    like_cpu(program, **ROUNDING)


@pytest.mark.parametrize("write", [
    lambda d: torch.zeros(1, device=d).expand(3).add_(1),
    lambda d: torch.zeros(2, 1, device=d).expand(2, 3).mul_(torch.ones(3, device=d)),
    lambda d: torch.add(torch.ones(3, device=d), 1, out=torch.zeros(1, device=d).expand(3)),
    lambda d: torch.zeros(3, 1, device=d).expand(3, 2).exp_()])
def test_a_write_to_elements_that_share_memory_is_refused(write):
    for device in ("cpu", "tpu"):
        with pytest.raises(RuntimeError, match="single memory location"):
            write(device)


@pytest.mark.parametrize("write, expected", [
    (lambda x: x[1:].copy_(x[:-1]), [0, 0, 1, 2, 3, 4]), (lambda x: x[:-1].copy_(x[1:]), [1, 2, 3, 4, 5, 5]),
    (lambda x: x[::2].sub_(x[:3]), [0, 1, 1, 3, 2, 5]),
    (lambda x: x.view(2, 3).copy_(x.view(3, 2).t()), [0, 2, 4, 1, 3, 5])])
def test_a_write_reads_what_was_there_before_where_it_overlaps(write, expected):
    """The CPU leaves these to chance."""
    x = torch.arange(6.0, device="tpu")
    write(x)
    same(x, torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("write", [lambda x: x[1:].mul_(x[:-1]), lambda x: torch.add(x[:-1], 1, out=x[1:])])
def test_a_write_that_overlaps_its_input_in_part_is_refused_as_on_the_cpu(write):
    for device in ("cpu", "tpu"):
        x = torch.arange(6.0, device=device)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            write(x)
        same(x, torch.arange(6.0))


@pytest.mark.parametrize("view", [
    lambda x: x.t(), lambda x: x[1:, ::2], lambda x: x.unsqueeze(1).expand(-1, 3, -1), lambda x: x.view(-1)[3:],
    lambda x: x.narrow(1, 2, 3),
    lambda x: x.diagonal(1), lambda x: x.unfold(1, 3, 2), lambda x: x.view(2, 2, 6).movedim(0, -1),
    lambda x: x.as_strided((2, 3), (1, 5), 2),
    lambda x: x.view(torch.int32), lambda x: x.detach(), lambda x: x.chunk(2, 1)[1], lambda x: x.split(3)[1],
    lambda x: x.unbind(1)[4]])
def test_a_view_has_the_cpus_geometry_and_shares_the_storage(view):
    base = torch.randn(4, 6)
    x = base.to("tpu")
    a, b = view(x), view(base)
    assert (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())
    assert a.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert a.data_ptr() - x.data_ptr() == b.data_ptr() - base.data_ptr()
    same(a, b)


@pytest.mark.parametrize("rank", [4, 5])
def test_channels_last_keeps_strides_and_values(rank):
    layout = torch.channels_last if rank == 4 else torch.channels_last_3d
    conv = (nn.Conv2d if rank == 4 else nn.Conv3d)(3, 4, 3, padding=1)
    norm = (nn.BatchNorm2d if rank == 4 else nn.BatchNorm3d)(4)
    image = torch.randn(2, 3, *range(4, 2 + rank))

    def program(device):
        x = image.to(device).to(memory_format=layout)
        model = nn.Sequential(conv, norm, nn.ReLU()).to(device).to(memory_format=layout)
        y = model(x)
        made = torch.empty_like(y).fill_(1), y + 1, y.clone(), y.contiguous(), torch.cat([y, y]), (y * y)[:, 1:]
        return x, y, *made, y.to(torch.bfloat16)

    expected = program("cpu")
    results = program("tpu")
    for a, b in zip(results, expected, strict=True):
        assert a.stride() == b.stride()
        # bfloat16 has 8 bits.
        same(a, b, rtol=1e-2 if b.dtype is torch.bfloat16 else 1e-4, atol=1e-4)


def test_an_alias_made_by_detach_or_data_bumps_the_version_as_on_the_cpu():
    def program(device):
        x = torch.ones(3, device=device)
        versions = [x._version]
        for write in (lambda: x.add_(1), lambda: x[1:].zero_(), lambda: x.detach().mul_(2), lambda: x.data.mul_(2),
                      lambda: x.copy_(x)):
            write()
            versions.append(x._version)
        return versions

    assert program("tpu") == program("cpu")
