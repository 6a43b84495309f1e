"""What other devices stumble over, one test each."""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from compare import EXACT, ROUNDING, counted, like_cpu, same

pytestmark = pytest.mark.usefixtures("native")


def lazy_bits(d):
    x = torch.tensor([[1 + 2j, 3 - 4j], [0.5j, 2]], device=d)
    y = x.clone()
    y.conj().add_(1j)
    y.conj().imag.mul_(2)
    return (x.conj().resolve_conj(), x.conj().imag.resolve_neg(), torch.view_as_real(x.conj().resolve_conj()), x.mH @ x,
            x.conj().clone(), x.conj().sum(), x.imag.neg(), y, x.adjoint().contiguous(), torch.conj_physical(x))


def test_lazy_conjugates_are_resolved():
    like_cpu(lazy_bits, **ROUNDING)


def test_the_fused_recurrent_cells_run():
    def program(d):
        results = []
        for make in (nn.LSTM, nn.GRU):
            torch.manual_seed(0)
            net = make(3, 4, 2, bidirectional=True).to(d)
            out, _ = net(torch.linspace(-1, 1, 30).reshape(5, 2, 3).to(d))
            out.sum().backward()
            results += [out] + [p.grad for p in net.parameters()]
            packed = nn.utils.rnn.pack_padded_sequence(torch.ones(5, 2, 3).to(d), [5, 3])
            results.append(net(packed)[0].data)
        for cell in (nn.LSTMCell, nn.GRUCell):
            torch.manual_seed(0)
            out = cell(3, 4).to(d)(torch.ones(2, 3).to(d))
            results += [out] if isinstance(out, torch.Tensor) else list(out)
        return results

    like_cpu(program, **ROUNDING)


def test_histograms_of_integers_count():
    x = torch.tensor([0, 1, 2, 2, 3, 3, 3])
    for dtype in (torch.int32, torch.int64):  # the CPU has none: Transformers' mixtures of experts ask other devices
        same(torch.histc(x.to("tpu", dtype), bins=4, min=0, max=3), torch.tensor([1, 1, 2, 3]).to(dtype), **EXACT)


def test_grouped_products_are_those_of_the_groups():
    a, b = torch.randn(8, 16), torch.randn(3, 16, 8)
    ends = torch.tensor([3, 3, 8], dtype=torch.int32)
    expected = torch.cat([a[:3] @ b[0], a[3:] @ b[2]])
    # bfloat16 has 8 bits, and the inputs are rounded to it: sums of 16 products of about 1.
    for dtype, tolerance in ((torch.float32, ROUNDING), (torch.bfloat16, dict(rtol=2e-2, atol=2e-1))):
        for grouped in (torch._grouped_mm, F.grouped_mm):
            got = grouped(a.to("tpu", dtype), b.to("tpu", dtype), offs=ends.to("tpu"))
            assert got.dtype is dtype
            same(got.float(), expected, **tolerance)


def test_truncated_normals_are_truncated():
    x = nn.init.trunc_normal_(torch.empty(2000, device="tpu"), mean=1, std=2, a=-1, b=2)
    assert -1 <= x.min() and x.max() <= 2 and 0.3 < x.mean() < 0.7 and x.unique().numel() > 1900


def test_a_storage_is_emptied_and_filled_again():
    x = torch.arange(6.0, device="tpu").reshape(2, 3)
    view, storage = x[1], x.untyped_storage()
    storage.resize_(0)  # as FSDP does between uses
    assert storage.nbytes() == 0 and x.shape == (2, 3)
    storage.resize_(24)
    x.copy_(torch.ones(2, 3))
    same((x, view), (torch.ones(2, 3), torch.ones(3)), **EXACT)
    assert x.data_ptr() == storage.data_ptr() == view.data_ptr() - 12


def surgery(d):
    x, y = torch.arange(4.0, device=d), torch.zeros(2, 2, device=d)
    y.set_(x.untyped_storage(), 0, (2, 2), (2, 1))
    y[0, 0] = 9
    z = torch.empty(0, device=d).set_(x.untyped_storage(), 1, (3,), (1,))
    z.mul_(2)
    w = torch.ones(5, device=d).set_(torch.arange(6.0, device=d))
    v = torch.ones(3, device=d)
    v.resize_(5)[3:] = 7
    u = torch.ones(2, device=d)
    u.set_()
    return x, y, z, w, v, u


def test_storages_are_set_and_grown():
    like_cpu(surgery, **EXACT)


def data_assignment(d):
    p = nn.Parameter(torch.ones(2, device=d))
    before = p.data_ptr()
    p.data = torch.zeros(3, 3, device=d)
    assert p.data_ptr() != before
    view = p.data
    view[0] = 5
    p.data[1].fill_(2)
    (p * p).sum().backward()
    half = torch.ones(2, device=d)
    half.data = half.data.to(torch.float16)
    assert half.dtype is torch.float16
    p.grad.data.zero_()
    return p, p.grad, half


def test_data_is_assigned_and_shared():
    like_cpu(data_assignment, **EXACT)
    p = nn.Parameter(torch.ones(2, device="tpu"))
    p.data = torch.zeros(3)
    assert p.device.type == "cpu"
    p.data = p.data.to("tpu")
    assert p.device.type == "tpu" and p.is_leaf


def test_tensors_swap():
    a, b = torch.ones(2, device="tpu"), torch.zeros(3, device="tpu")
    torch.utils.swap_tensors(a, b)
    same((a, b), (torch.zeros(3), torch.ones(2)), **EXACT)


def test_the_repr_of_a_huge_tensor_reads_its_edges_only():
    x = torch.arange(1 << 22, device="tpu").reshape(2048, 2048)
    text = []
    work = counted(lambda: text.append(repr(x)))
    assert "".join(text[0].split()) == "".join(repr(x.cpu()).split())[:-1] + ",device='tpu:0')"
    assert work["bytes_to_host"] < 2000


# ---- attention -------------------------------------------------------------------------------------------------------


def flex_programs():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def plain(q, k, v):
        return flex_attention(q, k, v)

    def score_mod(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1)

    def block_mask(q, k, v):
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device=q.device)
        return flex_attention(q, k, v, block_mask=mask)

    return plain, score_mod, block_mask


@pytest.mark.parametrize("program", flex_programs(), ids=lambda f: f.__name__)
def test_flex_attention_works(program):
    q, k, v = (torch.randn(2, 2, 128, 16) for _ in range(3))
    same(program(q.to("tpu"), k.to("tpu"), v.to("tpu")), program(q, k, v), **ROUNDING)


def test_flex_attention_has_gradients():
    """The CPU has none, so the reference is scaled_dot_product_attention."""
    q, k, v = (torch.randn(1, 2, 128, 16) for _ in range(3))
    gradients = []
    for device, attend in (("tpu", flex_programs()[2]),
                           ("cpu", lambda *x: F.scaled_dot_product_attention(*x, is_causal=True))):
        leaves = [x.to(device).requires_grad_() for x in (q, k, v)]
        attend(*leaves).square().sum().backward()
        gradients.append([x.grad for x in leaves])
    same(*gradients, **ROUNDING)


def attend_each(q, k, v, bounds_q, bounds_k, window):
    """The reference of varlen_attn: sequence by sequence, a mask aligned at the ends."""
    results = []
    for (bq, eq), (bk, ek) in zip(zip(bounds_q, bounds_q[1:]), zip(bounds_k, bounds_k[1:])):
        a, b, c = q[bq:eq].transpose(0, 1), k[bk:ek].transpose(0, 1), v[bk:ek].transpose(0, 1)
        groups = a.shape[0] // b.shape[0]
        ahead = torch.arange(bk - ek, 0)[None, :] - torch.arange(bq - eq, 0)[:, None]
        keep = ((ahead >= -window[0]) | (window[0] < 0)) & ((ahead <= window[1]) | (window[1] < 0))
        scores = (a @ b.repeat_interleave(groups, 0).mT / a.shape[-1] ** 0.5).masked_fill(~keep, float("-inf"))
        results.append((torch.ops.aten._safe_softmax(scores, -1) @ c.repeat_interleave(groups, 0)).transpose(0, 1))
    return torch.cat(results)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("key_heads", [4, 2])
def test_attention_of_sequences_of_different_lengths_is_that_of_each(window, key_heads):
    from torch.nn.attention.varlen import varlen_attn

    bounds_q, bounds_k = [0, 3, 3, 10], [0, 4, 6, 13]
    tensors = torch.randn(10, 4, 8), torch.randn(13, key_heads, 8), torch.randn(13, key_heads, 8)
    weight = torch.randn(10, 4, 8)
    on_cpu = [x.clone().requires_grad_() for x in tensors]
    expected = attend_each(*on_cpu, bounds_q, bounds_k, window)
    (expected * weight).sum().backward()
    on_device = [x.to("tpu").requires_grad_() for x in tensors]
    bounds = [torch.tensor(b, dtype=torch.int32, device="tpu") for b in (bounds_q, bounds_k)]
    got = varlen_attn(*on_device, *bounds, 7, 7, window_size=window, enable_gqa=key_heads != 4)
    (got * weight.to("tpu")).sum().backward()
    same(got, expected, **ROUNDING)
    same([x.grad for x in on_device], [x.grad for x in on_cpu], **ROUNDING)


@pytest.mark.eager("strict")  # the cuts of the queue come round after several batches
def test_lengths_that_change_from_batch_to_batch_do_not_compile_for_ever():
    from torch.nn.attention.varlen import varlen_attn

    x = torch.randn(24, 2, 4).to("tpu").requires_grad_()

    def batch(first):
        bounds = torch.tensor([0, first, 24], dtype=torch.int32).to("tpu")
        longest = max(first, 24 - first)
        varlen_attn(x, x, x, bounds, bounds, longest, longest).sum().backward()

    for first in range(1, 7):
        batch(first)
    assert counted(lambda: [batch(first) for first in range(7, 12)])["programs"] == 0


def test_rows_after_the_last_sequence_get_zeros_and_what_is_not_there_is_told():
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    x = torch.randn(6, 2, 4)
    bounds = torch.tensor([0, 4], dtype=torch.int32, device="tpu")
    out, logsumexp = varlen_attn(*[x.to("tpu")] * 3, bounds, bounds, 4, 4, return_aux=AuxRequest(lse=True))
    same(out, torch.cat([attend_each(x, x, x, [0, 4], [0, 4], (-1, -1)), torch.zeros(2, 2, 4)]), **ROUNDING)
    scores = x[:4].transpose(0, 1) @ x[:4].transpose(0, 1).mT / 2
    same(logsumexp[:, :4], scores.logsumexp(-1), **ROUNDING)
    assert (logsumexp[:, 4:] == -torch.inf).all()
    with pytest.raises(RuntimeError, match="no seqused_k, alibi_slopes, block_table"):
        varlen_attn(*[x.to("tpu")] * 3, bounds, bounds, 4, 4, seqused_k=bounds[1:])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_margin_losses_of_one_sample_are_numbers(reduction):
    def program(d):
        x = torch.tensor([0.1, -0.4, 0.8], device=d, requires_grad=True)
        one = F.multi_margin_loss(x, torch.tensor(1, device=d), reduction=reduction)
        several = F.multilabel_margin_loss(x, torch.tensor([2, 0, -1], device=d), reduction=reduction)
        batch = F.multi_margin_loss(x, torch.tensor([1], device=d), reduction=reduction)
        (one + several + batch.sum()).backward()
        return one, several, batch, x.grad

    like_cpu(program, **ROUNDING)


def test_the_weight_norm_of_a_vector_is_that_of_each_element():
    def program(d):
        return torch._weight_norm_interface(torch.tensor([3.0, -4.0], device=d), torch.tensor([2.0, 5.0], device=d), 0)

    like_cpu(program, **ROUNDING)
