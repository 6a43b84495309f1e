"""Transformers' pipelines, of text and of images, without torchvision: the device by itself, and the CPU's answers."""
import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from PIL import Image
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

SENTENCES = ["A tensor processing unit multiplies matrices.", "Bread needs flour."]
LABELS = dict(num_labels=3, id2label={0: "a", 1: "b", 2: "c"}, label2id={"a": 0, "b": 1, "c": 2})


def text(task: str, model, **options):
    return lambda device: hf.pipeline(task, model=model(), tokenizer=tiny.tokenizer(), **device, **options)


def image(task: str, model_class):
    def build(device):
        torch.manual_seed(0)
        model = model_class(hf.ViTConfig(**tiny.SIZES, image_size=32, patch_size=8, **LABELS)).eval()
        return hf.pipeline(task, model=model, image_processor=ViTImageProcessorPil(size={"height": 32, "width": 32}),
                           **device)

    return build


PIPELINES = {
    "text generation": (text("text-generation", tiny.qwen3), dict(max_new_tokens=6, do_sample=False)),
    "text generation, in batches": (text("text-generation", tiny.qwen3, batch_size=2),
                                    dict(max_new_tokens=6, do_sample=False)),
    "fill mask": (text("fill-mask", tiny.bert), {}),
    "feature extraction": (text("feature-extraction", lambda: tiny.bert(hf.BertModel)), {}),
    "text classification": (text("text-classification", lambda: tiny.bert(hf.BertForSequenceClassification, **LABELS)),
                            dict(top_k=None)),
    "token classification": (text("token-classification", lambda: tiny.bert(hf.BertForTokenClassification, **LABELS)),
                             {}),
    "zero-shot classification": (text("zero-shot-classification", lambda: tiny.bert(
        hf.BertForSequenceClassification, num_labels=2, label2id={"contradiction": 0, "entailment": 1})),
        dict(candidate_labels=["food", "chips"])),
    "image classification": (image("image-classification", hf.ViTForImageClassification), dict(top_k=3)),
    "image features": (image("image-feature-extraction", hf.ViTModel), {}),
}


def questions(name: str) -> list:
    if name.startswith("image"):
        return [Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8))]
    return [s + " <mask>" for s in SENTENCES] if name == "fill mask" else SENTENCES


def assert_equal(got, expected):
    """Words and numbers in lists and dicts; numbers within a float32 rounding that has passed two layers."""
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        got, expected = list(got.values()), list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for g, e in zip(got, expected):
            assert_equal(g, e)
    elif isinstance(expected, (float, np.floating)):
        assert got == pytest.approx(expected, rel=1e-4, abs=1e-5)
    else:
        assert got == expected


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_takes_the_device_by_itself_and_answers_as_on_the_cpu(name):
    build, options = PIPELINES[name]
    on_cpu, by_itself = build({"device": "cpu"}), build({})
    assert on_cpu.device.type == "cpu" and by_itself.device.type == by_itself.model.device.type == "tpu"
    assert_equal(by_itself(questions(name), **options), on_cpu(questions(name), **options))


@pytest.mark.parametrize("device, where", [(None, "tpu:0"), (0, "tpu:0"), ("tpu", "tpu:0"), (-1, "cpu"), ("cpu", "cpu"),
                                           (torch.device("tpu:0"), "tpu:0")], ids=str)
def test_a_pipeline_takes_the_device_that_it_is_told(device, where):
    pipe = hf.pipeline("text-generation", model=tiny.qwen3(), tokenizer=tiny.tokenizer(), device=device)
    assert str(next(pipe.model.parameters()).device) == where


@pytest.mark.parametrize("device_map", ["auto", "tpu"])
def test_a_pipeline_of_a_model_with_a_device_map_stays_where_the_map_says(tmp_path, device_map):
    tiny.qwen3().save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    pipe = hf.pipeline("text-generation", model=str(tmp_path), device_map=device_map)
    assert pipe.device.type == "tpu" and {p.device.type for p in pipe.model.parameters()} == {"tpu"}
    on_cpu = hf.pipeline("text-generation", model=str(tmp_path), device="cpu")
    options = dict(max_new_tokens=4, do_sample=False)
    assert pipe(SENTENCES[0], **options) == on_cpu(SENTENCES[0], **options)
