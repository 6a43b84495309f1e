"""Fused eager (a queue of 8 ops) against strict eager: equal numbers in fewer executions."""
import catalogue
import torch
from catalogue import on


def step(name: str) -> tuple[dict[str, torch.Tensor], int]:
    """Loss and gradients of one step on the CPU, and the executions that it took."""
    model, batch = catalogue.build(name).to("tpu"), on(catalogue.inputs(name), "tpu")
    torch.tpu.synchronize()
    before = torch.tpu.counters()["executions"]
    loss = model(**batch).loss
    loss.backward()
    torch.tpu.synchronize()
    executions = torch.tpu.counters()["executions"] - before
    gradients = {key: p.grad.cpu() for key, p in model.named_parameters() if p.grad is not None}
    return dict(loss=loss.detach().cpu(), **gradients), executions


def test_a_queue_of_eight_gives_the_same_gradients_in_a_third_of_the_executions(name, eager_mode):
    eager_mode("strict")
    strict, strict_executions = step(name)
    eager_mode("fused", length=8)
    fused, fused_executions = step(name)
    assert fused.keys() == strict.keys()
    for key, tensor in strict.items():
        # XLA may fuse a multiplication and an addition into one rounding.
        torch.testing.assert_close(fused[key], tensor, rtol=2e-5, atol=2e-6, msg=lambda text: f"{key}: {text}")
    assert fused_executions * 3 < strict_executions
