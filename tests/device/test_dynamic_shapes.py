"""Ops whose result's shape depends on the values."""
import pytest
import torch
from compare import like_cpu, same

VALUES = torch.tensor([[0, 5, 0, 2], [3, 0, 0, 2], [5, 5, 1, 0]])

OPS = {
    "nonzero": lambda x: x.nonzero(), "nonzero, tuple": lambda x: x.nonzero(as_tuple=True),
    "argwhere": lambda x: torch.argwhere(x > 2),
    "mask": lambda x: x[x > 0], "mask of rows": lambda x: x[x.sum(1) > 7],
    "mask and index": lambda x: x[x[:, 0] > 0, 1],
    "mask after a slice": lambda x: x[1:][x[1:] > 1], "masked_select": lambda x: torch.masked_select(x, x.sum(0) > 4),
    "where": lambda x: torch.where(x > 0),
    "unique": lambda x: torch.unique(x),
    "unique, all": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique, columns": lambda x: torch.unique(torch.cat([x, x], 1), dim=1),
    "unique_consecutive": lambda x: torch.unique_consecutive(x.sort(1)[0], return_counts=True),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, torch.tensor([2, 0, 3], device=x.device), dim=0),
    "bincount": lambda x: torch.bincount(x.flatten()),
    "bincount, weights": lambda x: torch.bincount(x.flatten(), x.flatten() * 0.5, minlength=9),
    "histc": lambda x: torch.histc(x.float(), 4),
    "none at all": lambda x: (x[x > 9], (x > 9).nonzero(), torch.unique(x[x > 9])),
    "one_hot": lambda x: torch.nn.functional.one_hot(x), "combinations": lambda x: torch.combinations(x[1]),
    "isin": lambda x: x[torch.isin(x, x[0, 1:3])],
    "write by mask": lambda x: x.index_put((x > 2,), x[x > 2] * 10),
    "masked_scatter": lambda x: x.masked_scatter(x == 0, x.flatten() + 1),
    "topk of a count": lambda x: x.flatten().topk(int((x > 0).sum())).values,
    "split by sizes": lambda x: x.flatten().split(x[:, 3].long().add(1).tolist() + [5]),
    "segment": lambda x: torch.cat([row[row > 0] for row in x]),
    "tensor_split": lambda x: x.flatten().tensor_split(x[0, 1::2].cpu().sort()[0]),
    "trim_zeros": lambda x: x[:, : int(x.any(0).nonzero().max()) + 1],
    "padded": lambda x: torch.nn.utils.rnn.pad_sequence([r[r > 0] for r in x]),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32], ids=["int64", "float32"])
@pytest.mark.parametrize("name", OPS)
def test_the_values_decide_the_shape_as_on_the_cpu(name, dtype):
    x = VALUES.to(dtype)
    try:
        expected = OPS[name](x)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            OPS[name](x.to("tpu"))
    else:
        same(OPS[name](x.to("tpu")), expected)


@pytest.mark.parametrize("count", [0, 1, 2, 33, 64])
def test_every_count_of_hits_is_right(count):
    x = torch.zeros(64)
    x[torch.randperm(64)[:count]] = torch.arange(1.0, count + 1)
    y = x.to("tpu")
    same((y.nonzero(), y[y > 0], y.unique(), y.count_nonzero()), (x.nonzero(), x[x > 0], x.unique(), x.count_nonzero()))


def test_gradients_flow_through_a_selection():
    def program(device):
        x = torch.linspace(-1, 1, 12, device=device).reshape(3, 4).requires_grad_()
        y = x * 2
        (y[y > 0].square().sum() + y.masked_select(y < -1).sum() + y[(y > 0.5).any(1)].prod()).backward()
        return x.grad

    like_cpu(program)


def test_a_sequence_of_growing_length_is_right_at_every_length():
    def program(device):
        tokens, out = torch.zeros(1, 0, dtype=torch.int64, device=device), []
        for step in range(1, 9):
            tokens = torch.cat([tokens, torch.tensor([[step * step % 7]], device=device)], 1)
            out.append(tokens.cumsum(1).float().softmax(1).sum() + tokens.max() + torch.arange(step, device=device)[-1])
        return torch.stack(out)

    like_cpu(program)


def test_packed_sequences_are_the_cpus():
    def program(device):
        torch.manual_seed(1)
        rnn = torch.nn.GRU(3, 4, batch_first=True)
        x = torch.randn(3, 5, 3)
        rnn, x = rnn.to(device), x.to(device)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 2, 3]), batch_first=True,
                                                         enforce_sorted=False)
        out, state = rnn(packed)
        return torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0], state

    like_cpu(program, rtol=1e-4, atol=1e-5)
