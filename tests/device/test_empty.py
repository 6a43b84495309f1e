"""Tensors without elements."""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from compare import like_cpu

SHAPES = [(0, 5), (3, 0), (0,), (2, 0, 4), (0, 0)]
OF_ANY_SHAPE = {
    "add": lambda x: x + 1, "mul": lambda x: x * x, "sum": lambda x: x.sum(), "sum of rows": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(),
    "prod": lambda x: x.prod(0), "any": lambda x: (x > 0).any(), "all": lambda x: (x > 0).all(-1),
    "norm": lambda x: x.norm(),
    "var": lambda x: x.var(), "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(0),
    "cumsum": lambda x: x.cumsum(-1),
    "sort": lambda x: x.sort(-1), "nonzero": lambda x: x.nonzero(), "mask": lambda x: x[x > 0],
    "where": lambda x: torch.where(x > 0),
    "flip": lambda x: x.flip(0), "clone": lambda x: x.t().clone() if x.dim() == 2 else x.clone(),
    "cat": lambda x: torch.cat([x, x], -1),
    "stack": lambda x: torch.stack([x, x]), "reshape": lambda x: x.reshape(7, 0), "unique": lambda x: x.unique(),
    "to": lambda x: x.to(torch.int64),
    "fill": lambda x: x.clone().fill_(3).add_(1), "copy": lambda x: torch.empty_like(x).copy_(x),
    "isnan": lambda x: x.isnan().sum(),
    "topk": lambda x: x.topk(0),
    "index_select": lambda x: x.index_select(0, torch.empty(0, dtype=torch.int64, device=x.device)),
    "dropout": lambda x: F.dropout(x), "gelu": lambda x: F.gelu(x),
    "mse": lambda x: F.mse_loss(x, x + 1, reduction="sum"),
    "foreach": lambda x: torch._foreach_add([x, x + 1], 2), "tolist": lambda x: torch.tensor(x.tolist()),
}
OF_ONE_SHAPE = {
    "no rows times a matrix": lambda d: torch.ones(0, 5, device=d) @ torch.ones(5, 3, device=d),
    "a sum of no products": lambda d: torch.ones(4, 0, device=d) @ torch.ones(0, 3, device=d),
    "addmm over nothing": lambda d: torch.addmm(torch.ones(2, 3, device=d), torch.ones(2, 0, device=d),
                                                torch.ones(0, 3, device=d)),
    "bmm of no batch": lambda d: torch.bmm(torch.ones(0, 2, 3, device=d), torch.ones(0, 3, 2, device=d)),
    "linear": lambda d: F.linear(torch.ones(0, 5, device=d), torch.ones(2, 5, device=d), torch.ones(2, device=d)),
    "layer_norm": lambda d: F.layer_norm(torch.ones(0, 5, device=d), (5,)),
    "conv2d": lambda d: F.conv2d(torch.ones(0, 3, 5, 5, device=d), torch.ones(2, 3, 3, 3, device=d)),
    "max_pool2d": lambda d: F.max_pool2d(torch.ones(0, 3, 4, 4, device=d), 2),
    "embedding": lambda d: F.embedding(torch.empty(0, 2, dtype=torch.int64, device=d), torch.ones(3, 4, device=d)),
    "attention": lambda d: F.scaled_dot_product_attention(*[torch.ones(0, 2, 3, 4, device=d)] * 3),
    "index_put": lambda d: torch.ones(3, device=d).index_put_((torch.empty(0, dtype=torch.int64, device=d),),
                                                              torch.ones(0, device=d)),
    "slice write": lambda d: torch.ones(3, 2, device=d)[1:1].fill_(7),
    "mask write": lambda d: torch.ones(3, device=d).masked_fill_(torch.zeros(3, dtype=torch.bool, device=d), 2),
    "factories": lambda d: [torch.zeros(0, device=d), torch.arange(0, device=d), torch.eye(0, device=d),
                            torch.rand(0, device=d),
                            torch.randperm(0, device=d), torch.tensor([], device=d), torch.linspace(0, 1, 0, device=d)],
    "cat with the old empty tensor": lambda d: torch.cat([torch.empty(0, device=d), torch.ones(2, 3, device=d)]),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", OF_ANY_SHAPE)
def test_an_op_on_no_elements_gives_what_the_cpu_gives(name, shape):
    def program(device):
        return OF_ANY_SHAPE[name](torch.empty(shape, device=device))

    try:
        program("cpu")
    except Exception as expected:
        with pytest.raises(type(expected)):
            program("tpu")
    else:
        like_cpu(program)


@pytest.mark.parametrize("name", OF_ONE_SHAPE)
def test_a_call_with_nothing_in_it_gives_what_the_cpu_gives(name):
    like_cpu(OF_ONE_SHAPE[name])


def test_gradients_flow_through_an_empty_batch():
    def program(device):
        model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2)).to(device)
        x = torch.empty(0, 3, device=device, requires_grad=True)
        model(x).sum().backward()
        return [x.grad] + [p.grad for p in model.parameters()]

    like_cpu(program)


def test_a_view_of_no_elements_has_the_cpus_strides():
    for view in (lambda x: x[:, :0], lambda x: x[2:2].t(), lambda x: x[:0].expand(4, 0, 5),
                 lambda x: x.new_empty(0, 3).transpose(0, 1)):
        a, b = view(torch.ones(4, 5, device="tpu")), view(torch.ones(4, 5))
        assert (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())
