"""Jagged tensors work (sparse COO ones: test_sparse.py); of every other layout each op says in one sentence that the device
has none, and the way out."""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from compare import EXACT, ROUNDING, like_cpu, same

LENGTHS = (3, 1, 5)


def jagged(d, width=8, lengths=LENGTHS, requires_grad=False):
    return torch.nested.nested_tensor([torch.randn(n, width) for n in lengths], layout=torch.jagged,
                                      requires_grad=requires_grad, device=d)


def values(x):
    return x.values() if x.is_nested else x


@pytest.mark.usefixtures("native")
def test_the_usual_modules_take_jagged_tensors():
    def program(d):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.0), nn.RMSNorm(16),
                            nn.Linear(16, 8)).to(d)
        x = jagged(d, requires_grad=True)
        y = net(x)
        (y * y + x.sigmoid()).values().sum().backward()
        words = torch.nested.nested_tensor([torch.tensor([1, 2]), torch.tensor([3])], layout=torch.jagged, device=d)
        return [values(y), values(x.grad), values(nn.Embedding.from_pretrained(torch.eye(4))(words.to("cpu")).to(d))] + [
            p.grad for p in net.parameters()]

    like_cpu(program, **ROUNDING)


@pytest.mark.usefixtures("native")
def test_reductions_padding_and_products_of_jagged_tensors_are_the_cpus():
    def program(d):
        x = jagged(d, requires_grad=True)
        padded = x.to_padded_tensor(-7.0)
        results = [padded, x.sum(1), x.mean(1), x.amax(1), values(x.softmax(1)), values(x.softmax(-1)), x.sum(),
                   values(torch.where(x > 0, x, 0.5)), values(torch.bmm(x, torch.ones(3, 8, 2, device=d))),
                   values(x @ torch.ones(8, 2, device=d)), torch.cat([x, x], -1).values(), *x.unbind()]
        (padded.sum() + x.softmax(1).values().square().sum()).backward()
        return results + [values(x.grad)]

    like_cpu(program, **ROUNDING)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_jagged_tensors_is_that_of_each_sequence(causal):
    torch.manual_seed(0)
    x = jagged("cpu", 24)
    given = x.to("tpu").detach().requires_grad_()

    def heads(t):
        return [part.unflatten(-1, (2, 4)).transpose(-3, -2) for part in t.chunk(3, -1)]

    got = F.scaled_dot_product_attention(*heads(given), is_causal=causal)
    weight = torch.arange(float(sum(LENGTHS))).view(-1, 1, 1)
    (got.transpose(1, 2).values() * weight.to("tpu")).sum().backward()
    parts = [part.detach().requires_grad_() for part in x.unbind()]
    wanted = torch.cat([F.scaled_dot_product_attention(*heads(part), is_causal=causal).transpose(0, 1) for part in parts])
    same(got.transpose(1, 2).values(), wanted, **ROUNDING)
    (wanted * weight).sum().backward()
    same(given.grad.values(), torch.cat([part.grad for part in parts]), **ROUNDING)


def test_a_jagged_tensor_goes_to_the_device_and_back():
    x = jagged("cpu")
    same(x.to("tpu").cpu().values(), x.values(), **EXACT)
    assert "tpu" in repr(x.to("tpu")) and x.to("tpu").size(0) == 3


SPARSE = "no (kernel of it for|compressed) sparse tensors. Keep them on the CPU"
QUANTIZED = "no quantized tensors. Keep them on the CPU|no tensors of type Q"
NESTED = "no strided nested tensors. Make them with layout=torch.jagged"
REFUSED = {
    "to_sparse_csr": (lambda: torch.eye(2, device="tpu").to_sparse_csr().to_dense(), SPARSE),
    "repr of a compressed tensor": (lambda: repr(torch.eye(2).to_sparse_csr().to("tpu")), SPARSE),
    "a compressed tensor with a gradient": (
        lambda: torch.eye(2).to_sparse_csr().to("tpu").requires_grad_().to_dense(), SPARSE),
    "an op of a sparse tensor": (lambda: torch.eye(2).to_sparse().to("tpu").asin(), SPARSE),
    "a product with a sparse tensor": (lambda: torch.eye(2).to_sparse() @ torch.eye(2, device="tpu"), SPARSE),
    "quantize_per_tensor": (lambda: torch.quantize_per_tensor(torch.ones(2, device="tpu"), 0.1, 0, torch.qint8),
                            QUANTIZED),
    "to of a quantized tensor": (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8).to("tpu"),
                                 QUANTIZED),
    "empty of a quantized type": (lambda: torch.empty(2, dtype=torch.qint8, device="tpu"), QUANTIZED),
    "an op of a nested tensor": (lambda: torch.nested.nested_tensor([torch.ones(2)], device="tpu") + 1, NESTED),
    "repr of a nested tensor": (lambda: repr(torch.nested.nested_tensor([torch.ones(2)], device="tpu")), NESTED),
    "a nested tensor with a gradient": (lambda: torch.nested.nested_tensor([torch.ones(2)], device="tpu",
                                                                            requires_grad=True).sin(), NESTED),
    "a nested tensor of tensors with gradients": (lambda: torch.nested.as_nested_tensor(
        [torch.ones(2, device="tpu", requires_grad=True)]).sin(), NESTED),
    "to of a nested tensor": (lambda: torch.nested.nested_tensor([torch.ones(2)]).to("tpu"), NESTED),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_a_layout_that_the_device_has_not_is_named_with_the_way_out(name):
    call, sentence = REFUSED[name]
    with pytest.raises((NotImplementedError, TypeError), match=sentence):
        call()
