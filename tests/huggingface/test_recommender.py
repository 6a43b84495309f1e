"""What recommenders are made of: bags of embeddings, sparse gradients, jagged tensors, and a DLRM that trains."""
import pytest
import torch

ROWS, WIDTH = 50, 8


def on(device: str, *values):
    return [v.to(device) if isinstance(v, torch.Tensor) else v for v in values]


def bags() -> tuple[torch.Tensor, torch.Tensor]:
    """Indices and offsets of 6 bags, one of them empty."""
    return torch.randint(0, ROWS, (20,)), torch.tensor([0, 3, 3, 9, 14, 20])


def both(build, *inputs, optimizer=None):
    """Output and gradient of a module's weight on the CPU and the device, after a step where there is an optimizer."""
    results = []
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        module = build().to(device)
        steps = optimizer(module.parameters()) if optimizer else None
        out = module(*on(device, *inputs))
        out.square().sum().backward()
        if steps:
            steps.step()
        grad = module.weight.grad
        dense = grad.to_dense() if grad.is_sparse else grad
        results.append([out.detach().cpu(), dense.cpu(), module.weight.detach().cpu(), grad.is_sparse])
    return results


@pytest.mark.parametrize("options", [{}, {"padding_idx": 3}, {"include_last_offset": True}], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_an_embedding_bag_and_its_gradient_are_the_cpus(mode, options):
    expected, got = both(lambda: torch.nn.EmbeddingBag(ROWS, WIDTH, mode=mode, **options), *bags())
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)


def test_per_sample_weights_and_their_gradient_are_the_cpus():
    indices, offsets = bags()
    results = []
    for device in ("cpu", "tpu"):
        torch.manual_seed(1)
        bag = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="sum").to(device)
        weights = torch.rand(20).to(device).requires_grad_()
        out = bag(*on(device, indices, offsets), per_sample_weights=weights)
        out.square().sum().backward()
        results.append([x.detach().cpu() for x in (out, weights.grad, bag.weight.grad)])
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.SparseAdam])
@pytest.mark.parametrize("kind", ["embedding", "bag"])
def test_sparse_gradients_are_sparse_and_an_optimizer_steps_by_them_as_on_the_cpu(kind, optimizer):
    if kind == "embedding":
        build, inputs = lambda: torch.nn.Embedding(ROWS, WIDTH, sparse=True), [torch.randint(0, ROWS, (4, 5))]
    else:
        build, inputs = lambda: torch.nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True), bags()
    expected, got = both(build, *inputs, optimizer=lambda parameters: optimizer(list(parameters), lr=0.1))
    assert got[3] and expected[3]
    for a, b in zip(got[:3], expected[:3]):
        torch.testing.assert_close(a, b)


def jagged(device: str) -> torch.Tensor:
    torch.manual_seed(2)
    return torch.nested.nested_tensor([torch.randn(n, WIDTH) for n in (3, 1, 4)], layout=torch.jagged, device=device)


JAGGED = {
    "to padded": lambda x: x.to_padded_tensor(0.0),
    "sum over a row's items": lambda x: x.sum(dim=1),
    "mean over a row's items": lambda x: x.mean(dim=1),
    "pointwise": lambda x: (x * 2 + x.sigmoid()).values(),
    "linear": lambda x: torch.nn.functional.linear(x, torch.eye(WIDTH, device=x.device)[:4] * 3).values(),
    "softmax": lambda x: x.softmax(-1).values(),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, (WIDTH,)).values(),
    "unbind": lambda x: torch.cat([part.sum(0, keepdim=True) for part in x.unbind()]),
}


@pytest.mark.parametrize("name", JAGGED)
def test_a_jagged_tensor_computes_as_on_the_cpu(name):
    got, expected = JAGGED[name](jagged("tpu")), JAGGED[name](jagged("cpu"))
    assert got.device.type == "tpu"
    torch.testing.assert_close(got.cpu(), expected)


def test_gradients_pass_through_a_jagged_tensor():
    grads = []
    for device in ("cpu", "tpu"):
        torch.manual_seed(3)
        linear = torch.nn.Linear(WIDTH, 3).to(device)
        linear(jagged(device)).values().square().sum().backward()
        grads.append(linear.weight.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0])
