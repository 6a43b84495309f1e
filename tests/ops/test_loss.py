"""Losses and their gradients give what PyTorch gives on CPU."""
import pytest
import torch
from checks import compare_but
from harness import compare_wide, run

FLOATS = [torch.float32, torch.bfloat16]
REDUCTIONS = [0, 1, 2]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_negative_log_likelihood_of_classes(reduction):
    torch.manual_seed(0)
    for dtype in FLOATS:
        x, target = torch.randn(6, 5).log_softmax(1).to(dtype), torch.tensor([0, 4, 2, -100, 1, 3])
        weight = (torch.rand(5) + 0.5).to(dtype)
        for w in (None, weight):
            compare_wide("aten::nll_loss_forward", x, target, w, reduction, -100)
            total = torch.tensor(3.5, dtype=dtype)
            grad = torch.randn(6).to(dtype) if reduction == 0 else torch.tensor(0.5, dtype=dtype)
            compare_wide("aten::nll_loss_backward", grad, x, target, w, reduction, -100, total)
    x, target = torch.randn(2, 5, 3, 4), torch.randint(0, 5, (2, 3, 4))
    compare_wide("aten::nll_loss2d_forward", x, target, None, reduction, 2)
    grad = torch.randn(2, 3, 4) if reduction == 0 else torch.tensor(0.5)
    compare_wide("aten::nll_loss2d_backward", grad, x, target, None, reduction, 2, torch.tensor(9.0))


def test_one_sample_without_a_batch_and_no_sample_at_all():
    compare_wide("aten::nll_loss_forward", torch.randn(5), torch.tensor(3), None, 1, -100)
    compare_wide("aten::nll_loss_forward", torch.randn(0, 5), torch.zeros(0, dtype=torch.int64), None, 1, -100)
    compare_wide("aten::nll_loss_forward", torch.randn(2, 5), torch.tensor([-100, -100]), None, 1, -100)


def test_a_class_of_minus_infinity_is_read_only_where_it_is_the_target():
    x = torch.tensor([[0.0, -float("inf"), -1.0]])
    compare_wide("aten::nll_loss_forward", x, torch.tensor([2]), None, 2, -100)
    compare_wide("aten::nll_loss_forward", x, torch.tensor([1]), None, 2, -100)


PAIRS = {"mse_loss": (), "smooth_l1_loss": (0.7,), "huber_loss": (0.7,), "soft_margin_loss": ()}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", PAIRS)
def test_a_loss_of_pairs_and_its_gradient(name, reduction):
    torch.manual_seed(0)
    for dtype in FLOATS:
        x, y = torch.randn(4, 5).to(dtype), torch.randn(4, 5).to(dtype)
        grad = torch.randn(4, 5).to(dtype) if reduction == 0 else torch.tensor(0.5, dtype=dtype)
        compare_wide("aten::" + name, x, y, reduction, *PAIRS[name])
        compare_wide(f"aten::{name}_backward", grad, x, y, reduction, *PAIRS[name])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(reduction):
    torch.manual_seed(0)
    for dtype in FLOATS:
        x, y, w = torch.rand(4, 5).to(dtype), torch.rand(4, 5).to(dtype), torch.rand(5).to(dtype)
        x[0, 0], x[0, 1] = 0.0, 1.0
        grad = torch.randn(4, 5).to(dtype) if reduction == 0 else torch.tensor(0.5, dtype=dtype)
        compare_wide("aten::binary_cross_entropy", x, y, w, reduction)
        # Where x is 0 or 1 the slope is a difference over 1e-12: the digits of the quotient are held, not its size.
        compare_wide("aten::binary_cross_entropy_backward", grad, x, y, w, reduction,
                     rtol=1e-5 if dtype == torch.float32 else None)
        compare_wide("aten::binary_cross_entropy_with_logits", x * 8 - 4, y, w, torch.rand(5).to(dtype), reduction)


@pytest.mark.parametrize("p, reduction", [(1, 0), (2, 1), (1, 2)])
def test_margin_losses_of_classes(p, reduction):
    x, target, weight = torch.randn(4, 5), torch.tensor([0, 4, 2, 2]), torch.rand(5)
    grad = torch.randn(4) if reduction == 0 else torch.tensor(0.5)
    compare_wide("aten::multi_margin_loss", x, target, p, 0.9, weight, reduction)
    compare_wide("aten::multi_margin_loss_backward", grad, x, target, p, 0.9, weight, reduction, meta=False)
    labels = torch.tensor([[1, 2, -1, 0, 3], [0, -1, 2, 1, 1], [-1, 0, 1, 2, 3], [4, 3, 2, 1, 0]])
    compare_wide("aten::multilabel_margin_loss_forward", x, labels, reduction)
    is_target = torch.ops.aten.multilabel_margin_loss_forward(x, labels, reduction)[1]
    compare_wide("aten::multilabel_margin_loss_backward", grad, x, labels, reduction, is_target, meta=False)


def test_only_the_first_two_powers_of_a_margin():
    with pytest.raises(RuntimeError, match="p == 1 and p == 2"):
        run("aten::multi_margin_loss", torch.randn(2, 3), torch.tensor([0, 1]), 3, 1.0, None, 1,
            results=[torch.empty(())])


# log_alpha (result 1) is unwritten memory past the end of a sequence, on the CPU.
PADDED = torch.tensor([[1, 1, 2, 4], [1, 2, 3, 4], [2, 2, 0, 0]])
CTC = [(PADDED, [7, 5, 6], [4, 4, 1], 0), (PADDED[:, :3], [7, 7, 7], [3, 0, 2], 0),
       (torch.tensor([1, 3, 4, 0, 3]), [7, 5, 0], [3, 2, 0], 2),
       (torch.zeros(3, 0, dtype=torch.int64), [7, 0, 3], [0, 0, 0], 0)]
IMPOSSIBLE = (PADDED, [7, 5, 2], [4, 4, 2], 0)


@pytest.mark.parametrize("targets, inputs, lengths, blank", [*CTC, IMPOSSIBLE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ctc_and_its_gradient(targets, inputs, lengths, blank, dtype):
    torch.manual_seed(0)
    log_probs, grad = torch.randn(7, 3, 5, dtype=dtype).log_softmax(2), torch.randn(3, dtype=dtype)
    compare_but("aten::_ctc_loss", (1,), log_probs, targets, inputs, lengths, blank)
    expected, expected_alpha = torch.ops.aten._ctc_loss(log_probs, targets, inputs, lengths, blank)
    tensors = torch.tensor(inputs), torch.tensor(lengths)
    loss, alpha = run("aten::_ctc_loss.Tensor", log_probs, targets, *tensors, blank)
    torch.testing.assert_close(loss, expected)
    assert alpha.shape == expected_alpha.shape
    for zero_infinity in (False, True):
        gradient = torch.ops.aten._ctc_loss_backward(grad, log_probs, targets, inputs, lengths, expected, expected_alpha,
                                                     blank, zero_infinity)
        for overload, ends in (("", (inputs, lengths)), (".Tensor", tensors)):
            got = run("aten::_ctc_loss_backward" + overload, grad, log_probs, targets, *ends, loss, alpha, blank,
                      zero_infinity)[0]
            # Exponentials of sums of up to 7 logarithms: a rounding of the sum is a relative error of the result.
            torch.testing.assert_close(got, gradient, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_ctc_refuses_labels_and_places_out_of_range():
    log_probs, ends = torch.randn(7, 2, 5).log_softmax(2), (torch.tensor([7, 7]), torch.tensor([2, 2]))
    with pytest.raises(IndexError):
        run("aten::_ctc_loss.Tensor", log_probs, torch.tensor([[1, 9], [1, 2]]), *ends)
    with pytest.raises(IndexError):
        run("aten::_ctc_loss.Tensor", log_probs, torch.tensor([1, 2, 3]), *ends)
    with pytest.raises(RuntimeError, match="blank must be in label range"):
        run("aten::_ctc_loss.Tensor", log_probs, torch.tensor([[1, 2], [1, 2]]), *ends, 5)
    with pytest.raises(RuntimeError, match="size batch_size"):
        run("aten::_ctc_loss.Tensor", log_probs, torch.tensor([[1, 2], [1, 2]]), torch.tensor([7]), ends[1])
