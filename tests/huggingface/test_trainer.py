"""Transformers' Trainer with nothing said about a device: it takes tpu, and trains as on the CPU."""
import pytest
import tiny
import torch
import transformers as hf

STEPS = 6


class Texts(torch.utils.data.Dataset):
    """16 texts of random tokens."""

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        self.rows = torch.randint(1, 256, (16, 10), generator=generator)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def arguments(folder, kind=hf.TrainingArguments, **options):
    return kind(**{**dict(output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=4, learning_rate=1e-2,
                          logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True), **options})


def train(folder, resume=None, model=None, **options):
    model = model or tiny.qwen3(attention_dropout=options.pop("dropout", 0.0))
    trainer = hf.Trainer(model, arguments(folder, **options), train_dataset=Texts(), eval_dataset=Texts())
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def losses(trainer):
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def norms(trainer):
    return [row["grad_norm"] for row in trainer.state.log_history if "grad_norm" in row]


def place(trainer):
    return {p.device.type for p in trainer.model.parameters()}


@pytest.mark.parametrize("options", [
    {}, {"gradient_accumulation_steps": 2}, {"optim": "adafactor"}, {"gradient_checkpointing": True},
    {"lr_scheduler_type": "cosine", "warmup_steps": 2, "weight_decay": 0.1, "label_smoothing_factor": 0.1}], ids=str)
def test_the_trainer_takes_the_device_by_itself_and_its_losses_are_the_cpus(tmp_path, options):
    on_cpu, by_itself = train(tmp_path, use_cpu=True, **options), train(tmp_path, **options)
    assert place(on_cpu) == {"cpu"} and place(by_itself) == {"tpu"} and by_itself.args.device.type == "tpu"
    assert len(losses(by_itself)) == STEPS and losses(by_itself)[-1] < losses(by_itself)[0]
    # Six steps of AdamW let a rounding difference of the first grow.
    torch.testing.assert_close(losses(by_itself), losses(on_cpu), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(norms(by_itself)[:3], norms(on_cpu)[:3], rtol=1e-3, atol=1e-3)


def test_bf16_training_computes_in_bfloat16_and_its_losses_are_the_cpus_within_that_types_rounding(tmp_path):
    on_cpu, on_tpu, exact = (train(tmp_path, **options) for options in (
        {"use_cpu": True, "bf16": True}, {"bf16": True}, {}))
    assert place(on_tpu) == {"tpu"} and {p.dtype for p in on_tpu.model.parameters()} == {torch.float32}
    # bfloat16 has 8 bits; the losses are about 5.5.
    torch.testing.assert_close(losses(on_tpu), losses(on_cpu), rtol=0.01, atol=0)
    assert losses(on_tpu) != losses(exact)


def test_a_resumed_training_goes_on_with_the_same_dropout_and_the_same_losses(tmp_path):
    options = dict(dropout=0.3, save_strategy="steps", save_steps=3, seed=5)
    whole = train(tmp_path / "whole", **options)
    resumed = train(tmp_path / "resumed", resume=str(tmp_path / "whole" / "checkpoint-3"), **options)
    assert losses(resumed)[:3] == losses(whole)[:3]  # what the checkpoint says
    # The same programs on the same numbers; only which of them already run fused may differ.
    torch.testing.assert_close(losses(resumed)[3:], losses(whole)[3:], rtol=1e-6, atol=0)
    for (name, a), b in zip(whole.model.named_parameters(), resumed.model.parameters()):
        torch.testing.assert_close(a, b, msg=name)


def test_evaluation_and_prediction_give_the_cpus_numbers(tmp_path):
    def run(**options):
        trainer = train(tmp_path, eval_strategy="steps", eval_steps=3, per_device_eval_batch_size=5, max_steps=3,
                        **options)
        return trainer.evaluate()["eval_loss"], torch.tensor(trainer.predict(Texts()).predictions)

    torch.testing.assert_close(run(), run(use_cpu=True), rtol=1e-3, atol=2e-3)  # after three steps


def test_torch_compile_trains_to_the_same_losses(tmp_path):
    eager = train(tmp_path)
    compiled = train(tmp_path, torch_compile=True)
    # Steps of an optimizer let a rounding difference of the first grow.
    torch.testing.assert_close(losses(compiled), losses(eager), rtol=1e-3, atol=1e-3)


def test_the_seq2seq_trainer_trains_and_generates_in_evaluation_as_on_the_cpu(tmp_path):
    def run(**options):
        torch.manual_seed(0)
        model = hf.T5ForConditionalGeneration(hf.T5Config(
            vocab_size=tiny.TOKENS, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0,
            decoder_start_token_id=tiny.PAD, pad_token_id=tiny.PAD, eos_token_id=None))
        trainer = hf.Seq2SeqTrainer(model, arguments(
            tmp_path, hf.Seq2SeqTrainingArguments, predict_with_generate=True, generation_max_length=6,
            max_steps=3, **options), train_dataset=Texts(), eval_dataset=Texts())
        trainer.train()
        assert place(trainer) == {"cpu" if options else "tpu"}
        return losses(trainer), torch.tensor(trainer.predict(Texts()).predictions)

    (losses_tpu, text_tpu), (losses_cpu, text_cpu) = run(), run(use_cpu=True)
    # Steps of an optimizer let a rounding difference of the first grow.
    torch.testing.assert_close(losses_tpu, losses_cpu, rtol=1e-3, atol=1e-3)
    assert torch.equal(text_tpu, text_cpu)


def test_the_trainer_on_a_model_of_device_map_auto_trains_on_the_device(tmp_path):
    tiny.qwen3().save_pretrained(tmp_path / "model")
    model = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "model", device_map="auto")
    trainer = train(tmp_path, model=model)
    assert place(trainer) == {"tpu"}
    # Steps of an optimizer let a rounding difference of the first grow.
    torch.testing.assert_close(losses(trainer), losses(train(tmp_path, use_cpu=True)), rtol=1e-3, atol=1e-3)
