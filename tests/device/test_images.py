"""Convolutions, pooling, padding and resampling run on the device, forward and backward, without a fallback."""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from compare import same

TURN = [[[0.8, 0.3, 0.1], [-0.2, 1.1, 0.2]]]
OPS = {
    "unfold": lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=1, stride=2),
    "fold": lambda x: F.fold(x.flatten(2).repeat(1, 1, 2)[..., :24], (5, 7), (2, 2)) if x.shape[1] % 4 == 0 else x,
    "pad reflect": lambda x: F.pad(x, (2, 1, 0, 3), mode="reflect"),
    "pad replicate": lambda x: F.pad(x, (1, 2, 3, 0), mode="replicate"),
    "pad circular": lambda x: F.pad(x, (1, 2, 2, 1), mode="circular"),
    "pad constant": lambda x: F.pad(x, (1, -1, -2, 1), value=0.5),
    "nearest": lambda x: F.interpolate(x, scale_factor=(2.0, 1.5), mode="nearest"),
    "nearest-exact": lambda x: F.interpolate(x, size=(5, 11), mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(x, size=(11, 5), mode="bilinear", align_corners=False),
    "bilinear, corners": lambda x: F.interpolate(x, size=(4, 13), mode="bilinear", align_corners=True),
    "bilinear, antialias": lambda x: F.interpolate(x, size=(4, 5), mode="bilinear", antialias=True),
    "bicubic": lambda x: F.interpolate(x, size=(10, 6), mode="bicubic"),
    "area": lambda x: F.interpolate(x, size=(3, 4), mode="area"),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (3, 5)),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1, dilation=1, ceil_mode=True),
    "lp_pool2d": lambda x: F.lp_pool2d(x, 2.0, 2),
    "grid_sample": lambda x: F.grid_sample(x,
                                           F.affine_grid(x.new_tensor(TURN).expand(len(x), 2, 3),
                                                            [len(x), 1, 5, 4], align_corners=False),
                                                            align_corners=False),
    "grid_sample, border": lambda x: F.grid_sample(x, x.new_full((len(x), 3, 2, 2), 0.9), mode="bicubic",
                                                   padding_mode="border",
                                                   align_corners=True),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2), "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[..., :6, :], 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2), "tensor.unfold": lambda x: x.unfold(2, 3, 2).unfold(3, 2, 3),
    "conv2d": lambda x: F.conv2d(x, x.new_ones(6, 2, 3, 2) / 3, x.new_ones(6), stride=(2, 1), padding=(1, 2),
                                 dilation=(1, 2), groups=2),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, x.new_ones(4, 3, 3, 2) / 3, stride=2, padding=1,
                                                     output_padding=1),
    "local_response_norm": lambda x: F.local_response_norm(x, 3), "group_norm": lambda x: F.group_norm(x, 2),
    "instance_norm": lambda x: F.instance_norm(x), "flips": lambda x: x.flip(-1).rot90(1, (2, 3)).roll((1, -2), (2, 3)),
    "normalize": lambda x: F.normalize(x, dim=1),
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("name", OPS)
def test_values_and_gradients_are_the_cpus_without_a_fallback(name, layout, native):
    image = torch.randn(2, 4, 7, 8)

    def program(device):
        x = image.to(device).contiguous(memory_format=layout).requires_grad_()
        y = OPS[name](x)
        (y * torch.linspace(-1, 1, y.numel(), device=device).reshape(y.shape)).sum().backward()
        return y, x.grad

    same(program("tpu"), program("cpu"), rtol=1e-4, atol=1e-4)  # sums over windows


def test_indices_of_a_pooling_are_the_cpus_and_undo_it(native):
    image = torch.randn(2, 3, 6, 6)

    def program(device):
        values, indices = F.max_pool2d(image.to(device), 2, return_indices=True)
        return values, indices, F.max_unpool2d(values, indices, 2)

    same(program("tpu"), program("cpu"))


def test_batch_norm_in_training_keeps_the_cpus_running_statistics(native):
    images = torch.randn(3, 4, 2, 5, 6) * 2 + 1

    def program(device):
        norm = nn.BatchNorm2d(2, momentum=0.3).to(device)
        for image in images:
            y = norm(image.to(device))
        return y, norm.running_mean, norm.running_var, norm.num_batches_tracked, norm.eval()(images[0].to(device))

    same(program("tpu"), program("cpu"), rtol=1e-4, atol=1e-5)
