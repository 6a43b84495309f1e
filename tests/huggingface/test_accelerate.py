"""Accelerate in one process."""
import accelerate
import pytest
import tiny
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState


def network(dropout: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(dropout), torch.nn.GELU(),
                               torch.nn.Linear(16, 1))


class Training:
    """prepare, then epochs of backward, clip and AdamW over one order of batches."""

    def __init__(self, dropout: float = 0.0, **options):
        AcceleratorState._reset_state(reset_partial_state=True)  # it is the process's, and a test is not one
        GradientState._reset_state()
        self.accelerator = Accelerator(**options)
        self.device = self.accelerator.device.type
        model = network(dropout)
        generator = torch.Generator().manual_seed(1)
        data = torch.utils.data.TensorDataset(*(torch.randn(32, n, generator=generator) for n in (8, 1)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=8)
        self.model, self.optimizer, self.loader, self.schedule = self.accelerator.prepare(
            model, optimizer, torch.utils.data.DataLoader(data, batch_size=8), schedule)

    def epoch(self) -> list[float]:
        losses = []
        for x, y in self.loader:
            with self.accelerator.accumulate(self.model):
                loss = (self.model(x) - y).square().mean()
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 0.5)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
            losses.append(self.accelerator.gather(loss.detach()).item())
        return losses


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}], ids=str)
def test_the_accelerator_takes_the_device_by_itself_and_trains_as_on_the_cpu(options):
    on_cpu = Training(cpu=True, **options)
    expected = [*on_cpu.epoch(), *on_cpu.epoch()]
    training = Training(**options)
    assert training.device == "tpu" and on_cpu.device == "cpu"
    assert {p.device.type for p in training.model.parameters()} == {"tpu"}
    # Steps of an optimizer let a rounding difference of the first grow.
    torch.testing.assert_close([*training.epoch(), *training.epoch()], expected, rtol=1e-4, atol=1e-5)


def test_mixed_precision_computes_in_bfloat16():
    on_cpu, on_tpu = Training(cpu=True, mixed_precision="bf16"), Training(mixed_precision="bf16")
    # bfloat16 has 8 bits.
    torch.testing.assert_close(on_tpu.epoch(), on_cpu.epoch(), rtol=0.02, atol=0.01)
    with on_tpu.accelerator.autocast():
        assert on_tpu.model[0](torch.ones(2, 8, device="tpu")).dtype == torch.bfloat16


def test_fp16_mixed_precision_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="fp16 mixed precision requires a device in .* [(]not 'tpu'"):
        Training(mixed_precision="fp16")


def test_a_saved_state_goes_on_with_the_same_dropout_and_the_same_losses(tmp_path):
    first = Training(dropout=0.5)
    first.epoch()
    first.accelerator.save_state(tmp_path)
    expected = first.epoch()
    torch.manual_seed(99)
    second = Training(dropout=0.5)
    second.accelerator.load_state(tmp_path)
    assert second.epoch() == expected


def test_accelerates_random_states_of_the_device_are_seeded_and_synchronized():
    accelerate.utils.set_seed(7)
    first = torch.rand(4, device="tpu")
    accelerate.utils.set_seed(7)
    assert torch.equal(torch.rand(4, device="tpu"), first)


def test_get_max_memory_tells_the_device_first_and_takes_what_the_user_gives():
    known = accelerate.utils.get_max_memory()
    assert list(known) == [*range(torch.tpu.device_count()), "cpu"] and 0 < known[0] <= torch.tpu.mem_get_info()[1]
    given = {"cpu": 10**9, 0: "1MB"}
    assert list(accelerate.utils.get_max_memory(given).items()) == [(0, 10**6), ("cpu", 10**9)]


def test_cpu_offload_keeps_the_weights_on_the_host_and_computes_on_the_device():
    model, x = network(), torch.randn(4, 8)
    expected = model(x)
    offloaded = accelerate.cpu_offload(model, execution_device=torch.device("tpu"))
    got = offloaded(x.to("tpu"))
    assert got.device.type == "tpu" and {p.device.type for p in offloaded.parameters()} == {"meta"}
    torch.testing.assert_close(got.cpu(), expected)


def test_a_checkpoint_is_dispatched_with_device_map_auto(tmp_path):
    tiny.qwen3().save_pretrained(tmp_path)
    with accelerate.init_empty_weights():
        empty = tiny.qwen3()
    model = accelerate.load_checkpoint_and_dispatch(empty, tmp_path, device_map="auto",
                                                    no_split_module_classes=["Qwen3DecoderLayer"])
    x = tiny.tokens()
    assert {p.device.type for p in model.parameters()} == {"tpu"}
    torch.testing.assert_close(model(x.to("tpu")).logits.cpu(), tiny.qwen3()(x).logits)
