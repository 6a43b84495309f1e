"""TRL's trainers on tiny models, a few steps each, with nothing said about a device."""
import datasets
import peft
import pytest
import tiny
import torch
import trl

WORDS = ["red", "green", "blue", "black", "white", "grey", "pink", "brown"]
COMMON = dict(max_steps=3, per_device_train_batch_size=4, learning_rate=1e-2, logging_steps=1, save_strategy="no",
              report_to=[], disable_tqdm=True, gradient_checkpointing=False, bf16=False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Where a trainer needs the model a second time, as a reference, it loads it from here."""
    folder = tmp_path_factory.mktemp("qwen3")
    tiny.qwen3().save_pretrained(folder)
    return str(folder)


def history(trainer, name: str) -> list[float]:
    return [row[name] for row in trainer.state.log_history if name in row]


def compare(build, folder, *names: str) -> None:
    """Trains with use_cpu, then by itself, and compares what was logged."""
    on_cpu = build(str(folder), use_cpu=True, **COMMON)
    on_cpu.train()
    by_itself = build(str(folder), **COMMON)
    by_itself.train()
    assert [{p.device.type for p in t.model.parameters()} for t in (by_itself, on_cpu)] == [{"tpu"}, {"cpu"}]
    for name in names:
        assert len(history(by_itself, name)) == COMMON["max_steps"], name
        # Steps of an optimizer let a rounding difference of the first grow.
        torch.testing.assert_close(history(by_itself, name), history(on_cpu, name), rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.parametrize("options", [{}, {"packing": True, "max_length": 16}], ids=str)
def test_sft_logs_the_losses_of_the_cpu(tmp_path, options):
    rows = datasets.Dataset.from_dict({"text": [f"{a} and {b}" for a in WORDS for b in WORDS[:2]]})

    def build(folder, **common):
        return trl.SFTTrainer(tiny.qwen3(), trl.SFTConfig(folder, **common, **options), train_dataset=rows,
                              processing_class=tiny.tokenizer())

    compare(build, tmp_path, "loss", "mean_token_accuracy")


def test_sft_with_lora_logs_the_losses_of_the_cpu(tmp_path):
    rows = datasets.Dataset.from_dict({"prompt": WORDS, "completion": WORDS[1:] + WORDS[:1]})

    def build(folder, **common):
        return trl.SFTTrainer(tiny.qwen3(), trl.SFTConfig(folder, **common), train_dataset=rows,
                              processing_class=tiny.tokenizer(),
                              peft_config=peft.LoraConfig(r=4, target_modules="all-linear"))

    compare(build, tmp_path, "loss")


def test_dpo_logs_the_losses_and_rewards_of_the_cpu(tmp_path, saved):
    rows = datasets.Dataset.from_dict({"prompt": WORDS, "chosen": [w + "!" for w in WORDS],
                                       "rejected": [w + "?" for w in WORDS]})

    def build(folder, **common):
        return trl.DPOTrainer(saved, args=trl.DPOConfig(folder, **common), train_dataset=rows,
                              processing_class=tiny.tokenizer())

    compare(build, tmp_path, "loss", "rewards/chosen", "rewards/rejected")


def share_of_letters(completions, **_):
    """The share of lower-case letters in a completion."""
    return [sum(c.islower() for c in text) / max(len(text), 1) for text in completions]


@pytest.mark.parametrize("options", [{}, {"beta": 0.1, "num_iterations": 2}], ids=str)
def test_grpo_with_a_rule_reward_generates_and_trains_on_the_device(tmp_path, saved, options):
    rows = datasets.Dataset.from_dict({"prompt": WORDS})
    config = trl.GRPOConfig(str(tmp_path), **COMMON, num_generations=4, max_completion_length=6, **options)
    trainer = trl.GRPOTrainer(saved, share_of_letters, args=config, train_dataset=rows,
                              processing_class=tiny.tokenizer())
    trainer.train()
    assert {p.device.type for p in trainer.model.parameters()} == {"tpu"}
    assert any(not torch.equal(p.cpu(), b) for p, b in zip(trainer.model.parameters(), tiny.qwen3().parameters()))
    rewards = history(trainer, "reward")
    generations = -(-COMMON["max_steps"] // options.get("num_iterations", 1))
    assert len(rewards) == generations and all(0 <= r <= 1 for r in rewards) and max(rewards) > 0
    assert all(torch.tensor(history(trainer, name)).isfinite().all() for name in ("loss", "grad_norm"))


def test_grpo_gives_the_cpus_loss_on_given_completions(tmp_path):
    """Sampling differs from the CPU's generator, so generate() gives the same tokens on both."""
    rows = datasets.Dataset.from_dict({"prompt": WORDS})

    def build(folder, **common):
        model, draw = tiny.qwen3(), torch.Generator().manual_seed(4)

        def given(input_ids, **_):
            new = torch.randint(0, 256, (len(input_ids), 6), generator=draw)
            return torch.cat([input_ids, new.to(input_ids.device)], 1)

        model.generate = given
        return trl.GRPOTrainer(model, share_of_letters, processing_class=tiny.tokenizer(), train_dataset=rows,
                               args=trl.GRPOConfig(folder, **common, num_generations=4, max_completion_length=6))

    compare(build, tmp_path, "loss", "grad_norm", "reward")
