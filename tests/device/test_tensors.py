"""What a tensor of the device can do, with the CPU as the truth."""
import copy
import io
import pickle
import warnings

import pytest
import torch
from torch.testing import assert_close

D = "tpu"


def same(program, **tolerance):
    """program(device) gives equal tensors (or lists of them) on both devices."""
    for a, b in zip(_list(program(D)), _list(program("cpu")), strict=True):
        assert_close(a.cpu(), b, **tolerance)
        assert a.stride() == b.stride()


def _list(x):
    return list(x) if isinstance(x, (tuple, list)) else [x]


# ---- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
                                   torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
                                   torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16])
def test_every_dtype_goes_to_the_device_and_back(dtype):
    x = torch.arange(6).reshape(2, 3).to(dtype)
    assert torch.equal(x.to(D).cpu().view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("make", [
    lambda x: x, lambda x: x.t(), lambda x: x[1:], lambda x: x[:, ::2], lambda x: x[0].expand(3, 4), lambda x: x[:0],
    lambda x: x[1, 2], lambda x: x.unfold(1, 2, 1), lambda x: x.diagonal(), lambda x: x[None, :, None].permute(3, 0, 2, 1)])
def test_views_are_read_and_cloned_with_the_strides_of_the_cpu(make):
    same(lambda d: make(torch.arange(12.0).reshape(3, 4).to(d)).clone())
    same(lambda d: make(torch.arange(12.0).reshape(3, 4).to(d)).contiguous())
    x = torch.arange(12.0).reshape(3, 4)
    assert_close(make(x.to(D)).cpu(), make(x))
    assert_close(make(x).to(D).cpu(), make(x))


def test_a_clone_shares_no_later_write():
    def program(d):
        x = torch.arange(4.0).to(d)
        y = x.clone()
        x.add_(1)
        z = torch.empty(4, device=d).copy_(x)
        x.mul_(2)
        y[0] = 9
        return x, y, z
    same(program)


@pytest.mark.eager("strict", "fused")
def test_a_clone_of_a_dense_tensor_runs_no_program():
    x = torch.arange(4.0).to(D)
    before = torch.tpu.counters()["executions"]
    y = x.clone()
    torch.empty_like(y).copy_(x)
    copy.deepcopy(x)
    assert torch.tpu.counters()["executions"] == before


def test_copies_convert_and_broadcast():
    def program(d):
        x = torch.zeros(2, 3, device=d)
        x.copy_(torch.tensor([1, 2, 3]))
        x[0].copy_(torch.tensor([4, 5, 6], device=d))
        return x, x.to(torch.int32), x.half().double(), (x > 2).float()
    same(program)


def test_two_devices_of_host_and_chip_are_refused_together():
    cases = [lambda a, b: a + b, lambda a, b: b + a, lambda a, b: a @ b, lambda a, b: torch.cat([a, b]),
             lambda a, b: b.add_(a), lambda a, b: torch.add(a, a, out=b), lambda a, b: torch.where(a > 0, a, b),
             lambda a, b: torch.nn.functional.layer_norm(a, (2,), b[0])]
    for case in cases:
        with pytest.raises(RuntimeError, match="same device.*(tpu|cpu)"):
            case(torch.ones(2, 2, device=D), torch.ones(2, 2))


def test_cpu_scalars_are_numbers_and_cpu_indices_are_moved():
    def program(d):
        x = torch.arange(12.0, device=d).reshape(3, 4)
        i = torch.tensor([2, 0])
        y = x * torch.tensor(2.0) + torch.tensor(1)
        y[i] = 5.0
        y[x > 9] = torch.tensor(7.0)
        return y, x[i], x[:, i], x[torch.tensor([True, False, True])], torch.where(x > 3, x, torch.tensor(0.0))
    same(program)


# ---- writes ----------------------------------------------------------------------------------------------------------


def test_out_arguments_are_resized_with_one_warning_each():
    a = torch.arange(4.0, device=D)
    empty = torch.empty(0, device=D)
    assert_close(torch.add(a, 1, out=empty).cpu(), torch.arange(4.0) + 1)
    for _ in range(2):  # a new key, and a known one
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.add(a, 1, out=torch.empty(2, device=D))
        assert sum("resized" in str(w.message) for w in caught) == 1


def test_out_arguments_keep_their_dtype_and_strides():
    def program(d):
        a = torch.arange(4.0, device=d)
        double = torch.empty(4, dtype=torch.float64, device=d)
        strided = torch.zeros(2, 8, device=d)[:, ::2]
        torch.add(a, 1, out=double)
        torch.mul(torch.ones(2, 4, device=d), 3, out=strided)
        values, indices = torch.empty(0, device=d), torch.empty(0, dtype=torch.long, device=d)
        torch.sort(a.flip(0), out=(values, indices))
        return double, strided, values, indices, torch.arange(3, out=torch.empty(3, device=d))
    same(program)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(torch.ones(2, device=D), 0.5, out=torch.empty(2, dtype=torch.long, device=D))


def test_in_place_ops_of_another_result_dtype():
    same(lambda d: torch.arange(4.0, device=d).logical_not_())
    same(lambda d: torch.arange(4.0, device=d).eq_(2))
    same(lambda d: torch.arange(4, dtype=torch.int8, device=d).add_(torch.arange(4, device=d)))
    same(lambda d: torch.arange(4.0, device=d, dtype=torch.float16).mul_(torch.arange(4.0, device=d)))


def test_a_resized_storage_keeps_its_bytes():
    def program(d):
        x = torch.arange(6.0, device=d)
        x.resize_(2, 2)
        y = torch.arange(3.0, device=d).resize_(5)
        y[3:] = 0
        s = torch.arange(4.0, device=d)
        s.untyped_storage().resize_(0)
        s.untyped_storage().resize_(16)
        return x, y, s.zero_()
    same(program)


def test_batch_norm_moves_its_running_statistics():
    torch.manual_seed(0)
    m = torch.nn.BatchNorm2d(3)
    n = copy.deepcopy(m).to(D)
    x = torch.randn(2, 3, 4, 4)
    assert_close(n(x.to(D)).cpu(), m(x), rtol=1e-5, atol=1e-5)
    assert_close(n.running_mean.cpu(), m.running_mean)
    assert_close(n.running_var.cpu(), m.running_var)
    assert not torch.equal(n.running_mean.cpu(), torch.zeros(3))
    m.eval(), n.eval()
    assert_close(n(x.to(D)).cpu(), m(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("program", [
    lambda x: x.conj(), lambda x: x.conj().imag, lambda x: x.conj() * 2, lambda x: x.conj().clone(),
    lambda x: torch.view_as_real(x.conj().resolve_conj()), lambda x: x.clone().conj().copy_(x),
    lambda x: x.conj().mul_(1j), lambda x: x.conj().imag.add_(1), lambda x: x.imag.neg_(), lambda x: x.conj() @ x])
def test_lazy_conjugates_and_negatives(program):
    x = torch.tensor([1 + 2j, 3 - 1j])
    a, b = x.to(D), x.clone()
    assert_close(program(a).cpu(), program(b))
    assert_close(a.cpu(), b)


# ---- saving, storages ------------------------------------------------------------------------------------------------


def test_views_that_are_saved_together_share_storage_again():
    x = torch.arange(6.0, device=D)
    for legacy in (False, True):
        f = io.BytesIO()
        torch.save([x, x[2:]], f, _use_new_zipfile_serialization=not legacy)
        f.seek(0)
        a, b = torch.load(f)
        assert a.device.type == D
        a[3] = 9
        assert b[1].item() == 9


def test_pickle_and_deepcopy():
    x = torch.arange(6.0, device=D)
    assert_close(pickle.loads(pickle.dumps(x)).cpu(), x.cpu())
    a, b = copy.deepcopy([x, x[2:]])
    a[3] = 9
    assert b[1].item() == 9 and x[3].item() == 3


def test_storages_can_be_read_written_and_set():
    s = torch.arange(6.0, device=D).untyped_storage()
    assert len(s.tolist()) == 24 and s[4 * 2 + 3] == s.cpu()[4 * 2 + 3]
    x = torch.empty(0, device=D).set_(torch.UntypedStorage(16, device=D), 0, (4,), (1,))
    assert_close(x.cpu(), torch.zeros(4))
    y = torch.empty(0, device=D).set_(x)
    assert y.is_set_to(x)
    y.fill_(2)
    assert_close(x.cpu(), torch.full((4,), 2.0))


def test_addresses_are_unique_and_those_of_empty_tensors_null():
    tensors = [torch.empty(5, device=D) for _ in range(10)]
    assert len({t.data_ptr() for t in tensors}) == 10 and all(t.data_ptr() >= 2**48 for t in tensors)
    assert torch.empty(0, device=D).data_ptr() == 0


def test_what_would_need_the_bytes_on_the_host_is_refused():
    x = torch.ones(3, device=D)
    with pytest.raises(TypeError):
        x.numpy()
    with pytest.raises(RuntimeError):
        x.pin_memory()


@pytest.mark.parametrize("make", [lambda: torch.arange(3.0), lambda: torch.ones(2, 2, dtype=torch.complex64),
                                  lambda: torch.ones(2) > 0, lambda: torch.empty(0), lambda: torch.arange(3)])
def test_repr_is_that_of_the_cpu_with_the_device(make):
    x = make()
    assert repr(x.to(D)).replace(", device='tpu:0'", "") == repr(x)


def test_parameters_stay_the_same_objects_when_their_module_moves():
    m = torch.nn.Linear(2, 2)
    weight = m.weight
    m.to(D)
    assert m.weight is weight and weight.device.type == D


def test_writes_that_overlap_their_source_are_refused_as_on_the_cpu():
    for device in (D, "cpu"):
        x = torch.arange(4.0, device=device)
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:].add_(x[:-1])
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.add(x[:2], 1, out=x[1:3])
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.ones(1, device=device).expand(3).add_(1)
        x.add_(x)
        assert_close(x.cpu(), torch.arange(4.0) * 2)


def test_more_dimensions_than_the_device_has_are_refused():
    with pytest.raises(RuntimeError, match="at most 16 dimensions"):
        torch.ones([1] * 17).to(D)


@pytest.mark.parametrize("causal,masked,key_heads", [(False, False, 4), (True, False, 2), (False, True, 4)])
@pytest.mark.eager("strict")
def test_attention_is_one_program_forward_and_one_backward(causal, masked, key_heads):
    torch.manual_seed(0)
    shapes = [(2, 4, 7, 8), (2, key_heads, 7, 8), (2, key_heads, 7, 8)]
    host = [torch.randn(s) for s in shapes]
    mask = torch.rand(2, 1, 7, 7) > 0.3 if masked else None

    def program(d):
        q, k, v = (t.to(d).requires_grad_() for t in host)
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=None if mask is None else mask.to(d), is_causal=causal, enable_gqa=key_heads != 4)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), [q, k, v])]

    for a, b in zip(program(D), program("cpu"), strict=True):
        assert_close(a.cpu(), b, rtol=1e-4, atol=1e-4)
    ops = [row["op"] for row in torch.tpu.explain()]
    assert "aten::_scaled_dot_product_fused_attention_overrideable" in ops
    assert "aten::_scaled_dot_product_fused_attention_overrideable_backward" in ops
