"""Forward and backward of every family in the catalogue, against PyTorch on the CPU."""
import catalogue
import pytest
import torch
from catalogue import on, programs

# float32 sums of some thousand terms in another order: a few units in the last place (6e-8) of the largest term.
# The absolute part is for gradients that are 0 but for rounding, such as those of a key's bias in attention.
FLOAT32 = dict(rtol=2e-5, atol=2e-6)


def results(name: str, device: str) -> dict[str, torch.Tensor]:
    """Logits, loss and the gradient of every parameter, on the CPU."""
    model = catalogue.build(name).to(device)
    output = model(**on(catalogue.inputs(name), device))
    output.loss.backward()
    gradients = {f"gradient of {key}": p.grad for key, p in model.named_parameters() if p.grad is not None}
    return {key: t.detach().cpu() for key, t in dict(logits=output.logits, loss=output.loss, **gradients).items()}


def test_logits_loss_and_every_gradient_equal_the_cpus(name):
    expected, got = results(name, "cpu"), results(name, "tpu")
    assert got.keys() == expected.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(got[key], tensor, **FLOAT32, msg=lambda text: f"{key}: {text}")


def test_moving_a_model_keeps_its_parameters_and_their_ties(name):
    model = catalogue.build(name)
    before = dict(model.named_parameters(remove_duplicate=False))
    after = dict(model.to("tpu").named_parameters(remove_duplicate=False))
    assert all(after[key] is parameter and parameter.is_tpu for key, parameter in before.items())


@pytest.mark.eager("strict")
@torch.no_grad()
def test_a_second_forward_makes_no_program(name):
    model, batch = catalogue.build(name).to("tpu"), on(catalogue.inputs(name), "tpu")
    logits, made = [], []
    for _ in range(2):
        torch.tpu.synchronize()  # with a longer queue, equal regions begin at equal points
        logits.append(model(**batch).logits.cpu())
        made.append(programs())
    assert made[1] == made[0]
    assert torch.equal(*logits)


@torch.no_grad()
def test_bfloat16_logits_are_as_near_to_float32_as_the_cpus(name):
    model, batch = catalogue.build(name), catalogue.inputs(name)
    exact = model(**batch).logits
    model = model.to(torch.bfloat16)
    batch = {key: t.to(torch.bfloat16) if t.is_floating_point() else t for key, t in batch.items()}
    expected = model(**batch).logits
    got = model.to("tpu")(**on(batch, "tpu")).logits.cpu()
    assert got.dtype == torch.bfloat16
    # Roundings to bfloat16 fall differently, and an expert may be chosen differently: the distances are only alike.
    distance, limit = (got - exact).norm(), 2 * (expected - exact).norm()
    assert 0 < distance < limit, f"{distance} is not below {limit}"


def test_training_mode_draws_dropout_from_the_seed(name):
    model, batch = catalogue.build(name).to("tpu").train(), on(catalogue.inputs(name), "tpu")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.3
    dropouts = any(isinstance(module, torch.nn.Dropout) for module in model.modules())
    losses = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        model.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        losses.append(loss.item())
        for key, parameter in model.named_parameters():
            assert parameter.grad is None or parameter.grad.isfinite().all(), key
    assert losses[0] == losses[1]
    assert (losses[0] != losses[2]) == dropouts
