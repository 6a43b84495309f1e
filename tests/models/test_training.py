"""Training steps of every family in the catalogue, against PyTorch on the CPU."""
import catalogue
import pytest
import torch
from catalogue import on, programs

STEPS = 3


def train(name: str, device: str, fused: bool) -> tuple[list[float], dict[str, torch.Tensor], list[int]]:
    """Losses, the parameters afterwards on the CPU, and how many programs existed after each step."""
    model, batch = catalogue.build(name).to(device), on(catalogue.inputs(name), device)
    # A large epsilon: AdamW divides each gradient by its own size, which would make gradients that are 0 but for
    # rounding into whole steps of random sign.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-3, weight_decay=0.1, fused=fused or None)
    losses, made = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        made.append(programs())
    return losses, {key: p.detach().cpu() for key, p in model.named_parameters()}, made


@pytest.mark.eager("strict", "fused")
@pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])
def test_adamw_steps_give_the_cpus_losses_and_parameters_and_the_third_makes_no_program(name, fused):
    losses, parameters, _ = train(name, "cpu", fused)
    got_losses, got_parameters, made = train(name, "tpu", fused)
    torch.testing.assert_close(got_losses, losses, rtol=1e-5, atol=1e-5)
    # A gradient's relative error of 2e-5 times the learning rate, three times over, with epsilon's slope 1/1e-3.
    for key, parameter in parameters.items():
        torch.testing.assert_close(got_parameters[key], parameter, rtol=2e-5, atol=2e-5,
                                   msg=lambda text: f"{key}: {text}")
    assert made[2] == made[1]
