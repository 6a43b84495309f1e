"""What is written has a type that the target takes, or the call is refused as on the CPU."""
import pytest
import torch

TYPES = [(torch.int64, torch.float32), (torch.float32, torch.float64), (torch.float32, torch.int64),
         (torch.bfloat16, torch.float32), (torch.float32, torch.float32)]


def first(d):
    return torch.zeros(1, dtype=torch.int64, device=d)


# x: 6 elements of the first type; s(n): n elements of the second; d: device
CALLS = {
    "index_add_": lambda x, s, d: x.index_add_(0, first(d), s(1)), "index_add": lambda x, s, d: x.index_add(0, first(d), s(1)),
    "index_copy_": lambda x, s, d: x.index_copy_(0, first(d), s(1)), "scatter_": lambda x, s, d: x.scatter_(0, first(d), s(1)),
    "scatter": lambda x, s, d: x.scatter(0, first(d), s(1)), "scatter_add_": lambda x, s, d: x.scatter_add_(0, first(d), s(1)),
    "scatter_reduce_": lambda x, s, d: x.scatter_reduce_(0, first(d), s(1), "sum"),
    "index_reduce_": lambda x, s, d: x.index_reduce_(0, first(d), s(1), "prod"), "put_": lambda x, s, d: x.put_(first(d), s(1)),
    "masked_scatter_": lambda x, s, d: x.masked_scatter_(x > 0, s(6)),
    "index_put_": lambda x, s, d: x.index_put_((first(d),), s(1)),
    "index_put_ accumulate": lambda x, s, d: x.index_put_((first(d),), s(1), accumulate=True),
    "x[i] =": lambda x, s, d: x.__setitem__(first(d), s(1)), "index_fill_": lambda x, s, d: x.index_fill_(0, first(d), s(1)[0]),
    "masked_fill_": lambda x, s, d: x.masked_fill_(x > 0, s(1)[0]), "copy_": lambda x, s, d: x.copy_(s(6)),
    "gather out": lambda x, s, d: torch.gather(x, 0, first(d), out=s(1)), "take out": lambda x, s, d: torch.take(x, first(d), out=s(1)),
    "index_select out": lambda x, s, d: torch.index_select(x, 0, first(d), out=s(1)),
    "addmm_": lambda x, s, d: x.reshape(2, 3).addmm_(s(2).reshape(2, 1), s(3).reshape(1, 3)),
    "addmm": lambda x, s, d: torch.addmm(x.reshape(2, 3), s(2).reshape(2, 1), s(3).reshape(1, 3)),
    "mm out": lambda x, s, d: torch.mm(x.reshape(2, 3), x.reshape(3, 2), out=s(4).reshape(2, 2)),
    "lerp_": lambda x, s, d: x.lerp_(s(6), 0.5), "where": lambda x, s, d: torch.where(x > 0, x, s(6)),
    "sum out": lambda x, s, d: torch.sum(x, 0, out=s(1)[0]), "cumsum out": lambda x, s, d: torch.cumsum(x, 0, out=s(6)),
    "sort out": lambda x, s, d: torch.sort(x, out=(s(6), first(d).expand(6).clone())),
    "max out": lambda x, s, d: torch.max(x, 0, out=(s(1)[0], first(d)[0])), "argmax out": lambda x, s, d: torch.argmax(x, 0, out=s(1)[0]),
    "aminmax out": lambda x, s, d: torch.aminmax(x, dim=0, out=(s(1)[0], s(1)[0])),
    "median out": lambda x, s, d: torch.median(x, 0, out=(s(1)[0], first(d)[0])),
    "topk out": lambda x, s, d: torch.topk(x, 1, out=(s(1), first(d))), "kthvalue out": lambda x, s, d: torch.kthvalue(x, 1, 0, out=(s(1)[0], first(d)[0])),
    "mode out": lambda x, s, d: torch.mode(x, 0, out=(s(1)[0], first(d)[0])), "tril out": lambda x, s, d: torch.tril(x.reshape(2, 3), out=s(6).reshape(2, 3)),
    "masked_select out": lambda x, s, d: torch.masked_select(x, x > 0, out=s(6)), "nonzero out": lambda x, s, d: torch.nonzero(x, out=s(6).reshape(6, 1)),
    "dot out": lambda x, s, d: torch.dot(x, x, out=s(1)[0]), "searchsorted out": lambda x, s, d: torch.searchsorted(x, x, out=s(6)),
    "bucketize out": lambda x, s, d: torch.bucketize(x, x, out=s(6)), "norm out": lambda x, s, d: torch.linalg.vector_norm(x, out=s(1)[0]),
    "complex out": lambda x, s, d: torch.complex(x, x, out=torch.ones(6, dtype=torch.complex128, device=d)),
    "foreach mul_": lambda x, s, d: torch._foreach_mul_([x], [s(6)]), "foreach add_": lambda x, s, d: torch._foreach_add_([x], [s(6)]),
    "foreach copy_": lambda x, s, d: torch._foreach_copy_([x], [s(6)]), "foreach mul_ number": lambda x, s, d: torch._foreach_mul_([x], 1.5),
    "foreach mul_ numbers": lambda x, s, d: torch._foreach_mul_([x], [1.5]), "foreach mul_ tensor": lambda x, s, d: torch._foreach_mul_([x], s(1)[0]),
    "foreach sqrt_": lambda x, s, d: torch._foreach_sqrt_([x]), "foreach addcmul_": lambda x, s, d: torch._foreach_addcmul_([x], [s(6)], [s(6)]),
    "foreach lerp_": lambda x, s, d: torch._foreach_lerp_([x], [s(6)], 0.5), "foreach pow_": lambda x, s, d: torch._foreach_pow_([x], 0.5),
    "foreach div_": lambda x, s, d: torch._foreach_div_([x], 2), "foreach clamp_": lambda x, s, d: torch._foreach_clamp_min_([x], 0.5),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("types", TYPES, ids=lambda types: " ".join(str(t)[6:] for t in types))
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_taken_or_refused_as_on_the_cpu(name, types):
    def outcome(device):
        x = torch.ones(6, dtype=types[0], device=device)
        try:
            CALLS[name](x, lambda n: torch.ones(n, dtype=types[1], device=device), device)
        except Exception as e:
            assert str(e)
            return type(e)
        return x.cpu().tolist()

    assert outcome("tpu") == outcome("cpu")
