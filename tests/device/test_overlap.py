"""Writes into memory that several elements, or an argument, share are taken or refused as on the CPU."""
import pytest
import torch
from compare import same

SHARED = {
    "a row for all": lambda d: torch.arange(4.0).to(d).expand(3, 4),
    "a column for all": lambda d: torch.arange(3.0).to(d).reshape(3, 1).expand(3, 4),
    "one number": lambda d: torch.ones(()).to(d).expand(3, 4),
    "part of a tensor": lambda d: torch.arange(20.0).to(d).reshape(5, 4)[2].expand(3, 4),
    "windows": lambda d: torch.arange(12.0).to(d).as_strided((3, 4), (3, 1), 2),
    "windows of one step": lambda d: torch.arange(12.0).to(d).as_strided((3, 4), (1, 1), 2),
    "windows of half": lambda d: torch.arange(12.0).to(d).as_strided((3, 4), (2, 1)),
}


def i(d, *values):
    return torch.tensor(values, device=d)


def some(d):
    return torch.arange(12, device=d).reshape(3, 4) % 5 == 0


def ones(d, *sizes):
    return torch.ones(sizes, device=d)


# What is written does not depend on what was there, so that the order of the CPU's loop does not matter.
WRITES = {
    "fill_": lambda x, d: x.fill_(3), "fill_ tensor": lambda x, d: x.fill_(torch.tensor(3.0, device=d)),
    "zero_": lambda x, d: x.zero_(), "copy_": lambda x, d: x.copy_(torch.arange(12.0, device=d).reshape(3, 4)),
    "copy_ from the CPU": lambda x, d: x.copy_(torch.arange(12.0).reshape(3, 4)), "copy_ number": lambda x, d: x.copy_(ones(d)),
    "masked_fill_": lambda x, d: x.masked_fill_(torch.ones(3, 4, dtype=torch.bool, device=d), 7.0),
    "index_fill_": lambda x, d: x.index_fill_(0, i(d, 1), 7.0), "x[...] =": lambda x, d: x.__setitem__(slice(None), 2.0),
    "x[i] =": lambda x, d: x.__setitem__((i(d, 0, 1),), 2.0), "index_put_": lambda x, d: x.index_put_((i(d, 1),), ones(d)),
    "zeros out": lambda x, d: torch.zeros(3, 4, out=x), "full out": lambda x, d: torch.full((3, 4), 2.0, out=x),
    "foreach_zero_": lambda x, d: torch._foreach_zero_([x]), "threshold_": lambda x, d: torch.threshold_(x, 50.0, 3.0),
    "foreach_copy_": lambda x, d: torch._foreach_copy_([x], [ones(d, 3, 4)]),
    "clamp_": lambda x, d: x.clamp_(0.5, 1.5), "bmm out": lambda x, d: torch.bmm(ones(d, 1, 3, 2), ones(d, 1, 2, 4), out=x[None]),
    "mm out": lambda x, d: torch.mm(ones(d, 3, 2), ones(d, 2, 4), out=x), "cat out": lambda x, d: torch.cat([ones(d, 3, 4)], out=x),
    "add out": lambda x, d: torch.add(ones(d, 3, 4), 1, out=x), "relu_": lambda x, d: x.relu_(),
    "index_add_": lambda x, d: x.index_add_(0, i(d, 0), ones(d, 1, 4)), "scatter_": lambda x, d: x.scatter_(0, i(d, *[0] * 4)[None], 1.0),
    "stack out": lambda x, d: torch.stack([ones(d, 4)] * 3, out=x),
}
ON_STRIDE_0 = {
    "masked_fill_ some": lambda x, d: x.masked_fill_(some(d), 7.0),
    "masked_fill_ tensor": lambda x, d: x.masked_fill_(some(d), torch.tensor(7.0, device=d)),
    "x[mask] =": lambda x, d: x.__setitem__(some(d), 7.0), "tril_": lambda x, d: x.tril_(1), "triu_": lambda x, d: x.triu_(),
    "add_": lambda x, d: x.add_(1), "foreach_add_": lambda x, d: torch._foreach_add_([x], 1), "exp_": lambda x, d: x.exp_(),
    "index_put_ accumulate": lambda x, d: x.index_put_((i(d, 1),), ones(d), accumulate=True),
    "foreach_mul_": lambda x, d: torch._foreach_mul_([x], [ones(d, 3, 4)]),
}
RANDOM = {
    "uniform_": lambda x, d: x.uniform_(), "normal_": lambda x, d: x.normal_(), "random_": lambda x, d: x.random_(),
    "bernoulli_": lambda x, d: x.bernoulli_(0.5), "exponential_": lambda x, d: x.exponential_(),
    "geometric_": lambda x, d: x.geometric_(0.5), "cauchy_": lambda x, d: x.cauchy_(), "log_normal_": lambda x, d: x.log_normal_(),
}


def outcome(make, write, device):
    """What the whole memory holds afterwards, or the error."""
    x = make(device)
    whole = torch.empty(0, device=device).set_(x.untyped_storage())
    try:
        write(x, device)
    except RuntimeError as e:
        return type(e), str(e).split(".")[0]
    return whole.cpu()


def check(make, write):
    expected, got = outcome(make, write, "cpu"), outcome(make, write, "tpu")
    assert isinstance(expected, tuple) == isinstance(got, tuple), (expected, got)
    assert got == expected if isinstance(expected, tuple) else torch.equal(got, expected), (expected, got)


@pytest.mark.filterwarnings("ignore:Use of")
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("shared", SHARED)
def test_a_write_is_taken_or_refused_as_on_the_cpu(name, shared):
    if shared == "windows of one step" and name in ("copy_", "copy_ from the CPU"):
        # Of equal strides the CPU's loop takes neither first: which element stays is not told by the sizes' order.
        return check(SHARED[shared], lambda x, d: WRITES[name](x, d).zero_())
    check(SHARED[shared], WRITES[name])


@pytest.mark.filterwarnings("ignore:Use of")
@pytest.mark.parametrize("name", ON_STRIDE_0)
@pytest.mark.parametrize("shared", [name for name in SHARED if "windows" not in name])
def test_a_write_of_some_elements_reaches_all_that_share_their_memory(name, shared):
    check(SHARED[shared], ON_STRIDE_0[name])


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("shared", SHARED)
def test_random_numbers_are_written_or_refused_as_on_the_cpu(name, shared):
    expected, got = (outcome(SHARED[shared], RANDOM[name], d) for d in ("cpu", "tpu"))
    assert got == expected if isinstance(expected, tuple) else isinstance(got, torch.Tensor)


def test_the_deprecated_writes_warn_as_on_the_cpu():
    for device in ("cpu", "tpu"):
        for write in (lambda x: x.masked_fill_(some(device), 1.0), lambda x: x.index_fill_(0, i(device, 0), 1.0),
                      lambda x: x.index_put_((i(device, 0),), ones(device))):
            with pytest.warns(UserWarning, match="on expanded tensors is deprecated"):
                write(SHARED["a row for all"](device))


def indices(d):
    return torch.arange(6, device=d)


# Calls whose written tensor is also read.
ITSELF = {
    "index_add_": lambda x, d: x.index_add_(0, indices(d), x), "index_copy_": lambda x, d: x.index_copy_(0, indices(d), x),
    "scatter_": lambda x, d: x.scatter_(0, indices(d), x), "scatter_add_": lambda x, d: x.scatter_add_(0, indices(d), x),
    "scatter_reduce_": lambda x, d: x.scatter_reduce_(0, indices(d), x, "sum"), "put_": lambda x, d: x.put_(indices(d), x),
    "index_put_": lambda x, d: x.index_put_((indices(d),), x), "masked_scatter_": lambda x, d: x.masked_scatter_(x > 2, x),
    "gather": lambda x, d: torch.gather(x, 0, indices(d), out=x), "take": lambda x, d: torch.take(x, indices(d), out=x),
    "index_select": lambda x, d: torch.index_select(x, 0, indices(d), out=x), "cat": lambda x, d: torch.cat([x[:0], x], out=x),
    "masked_select": lambda x, d: torch.masked_select(x, x > -1, out=x), "add": lambda x, d: torch.add(x, x, out=x),
    "kthvalue": lambda x, d: torch.kthvalue(x.reshape(6, 1), 1, 1, out=(x, indices(d))), "where": lambda x, d: torch.where(x > 1, x, x, out=x),
    "index_add": lambda x, d: torch.index_add(x, 0, i(d, 0), ones(d, 1), out=x), "sort": lambda x, d: torch.sort(x, out=(x, indices(d))),
    "take_along_dim": lambda x, d: torch.take_along_dim(x, indices(d), 0, out=x), "lerp_": lambda x, d: x.lerp_(x, 0.5),
    "part": lambda x, d: torch.mul(x[:5], 2, out=x[1:]), "softmax": lambda x, d: torch.softmax(x, 0, out=x),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", ITSELF)
def test_a_target_that_is_also_read_is_taken_or_refused_as_on_the_cpu(name):
    expected, got = (outcome(lambda d: torch.arange(6.0).to(d), ITSELF[name], d) for d in ("cpu", "tpu"))
    if isinstance(expected, tuple) or isinstance(got, tuple):
        assert got == expected
    else:
        same(got, expected)
