"""generate() in each of its modes gives the CPU's tokens; greedy text of every family is in tests/models."""
import copy

import pytest
import tiny
import torch
import transformers as hf

NEW = 8


@pytest.fixture(scope="module")
def prompt():
    """Two prompts, one of them padded on the left."""
    torch.manual_seed(1)
    ids, mask = tiny.tokens(2, 9), torch.ones(2, 9, dtype=torch.long)
    ids[1, :4], mask[1, :4] = tiny.PAD, 0
    return dict(input_ids=ids, attention_mask=mask)


def sliding() -> hf.PreTrainedModel:
    torch.manual_seed(0)
    return hf.AutoModelForCausalLM.from_config(hf.Gemma3TextConfig(
        **tiny.SIZES, vocab_size=tiny.TOKENS, num_key_value_heads=2, head_dim=8, max_position_embeddings=128,
        sliding_window=6, query_pre_attn_scalar=8, layer_types=["sliding_attention", "full_attention"],
        pad_token_id=tiny.PAD, bos_token_id=tiny.BEGIN, eos_token_id=tiny.END))


def generate(model: hf.PreTrainedModel, device: str, prompt: dict, **options) -> torch.Tensor:
    """The new tokens, on the CPU; `options` holds functions of the device where it holds models."""
    options = {name: value(device) if callable(value) else value for name, value in options.items()}
    there = {name: value.to(device) for name, value in prompt.items()}
    out = model.eval().to(device).generate(**there, **{"max_new_tokens": NEW, "do_sample": False, **options})
    assert out.device.type == device
    return out.cpu()


MODES = {
    "greedy": {},
    "beam": dict(num_beams=3),
    "beam, more than one returned": dict(num_beams=4, num_return_sequences=2, length_penalty=0.5, early_stopping=True),
    "beam, no repeated bigram": dict(num_beams=2, no_repeat_ngram_size=2),
    "static cache": dict(cache_implementation="static"),
    "repetition penalty": dict(repetition_penalty=1.3, min_new_tokens=4),
    "prompt lookup": dict(prompt_lookup_num_tokens=2),
    "in chunks": dict(prefill_chunk_size=4),
    "stop string": dict(stop_strings=["~"], tokenizer=lambda _: tiny.tokenizer()),
}
ONE_ROW = {"prompt lookup"}  # assistants take one prompt


@pytest.mark.parametrize("mode", MODES)
def test_tokens_are_the_cpus(prompt, mode):
    rows = {name: value[:1] for name, value in prompt.items()} if mode in ONE_ROW else prompt
    expected, got = (generate(tiny.qwen3(), device, rows, **MODES[mode]) for device in ("cpu", "tpu"))
    assert torch.equal(got, expected)


@pytest.mark.parametrize("cache", [None, "static", "hybrid"])
def test_a_sliding_window_gives_the_cpus_tokens_beyond_its_length(prompt, cache):
    options = dict(cache_implementation=cache)
    expected, got = (generate(sliding(), device, prompt, max_new_tokens=12, **options) for device in ("cpu", "tpu"))
    assert torch.equal(got, expected)


def test_an_assistant_proposes_and_the_text_is_that_of_the_model_alone(prompt):
    row = {name: value[:1] for name, value in prompt.items()}

    def assistant(device):
        return tiny.qwen3(num_hidden_layers=1).eval().to(device)

    alone = generate(tiny.qwen3(), "cpu", row)
    assert torch.equal(generate(tiny.qwen3(), "tpu", row, assistant_model=assistant), alone)


def test_a_compiled_forward_generates_the_cpus_tokens(prompt):
    model = tiny.qwen3()
    expected = generate(copy.deepcopy(model), "cpu", prompt, cache_implementation="static")
    model.forward = torch.compile(model.forward)
    assert torch.equal(generate(model, "tpu", prompt, cache_implementation="static"), expected)


def test_sampling_follows_the_seed_and_the_models_probabilities(prompt):
    model = tiny.qwen3().eval().to("tpu")
    row = {name: value[:1].to("tpu") for name, value in prompt.items()}

    def sample(seed, **options):
        torch.manual_seed(seed)
        return model.generate(**row, do_sample=True, **{"max_new_tokens": 1, **options})[:, 9:].cpu()

    long = dict(max_new_tokens=NEW, temperature=0.7, top_k=40, top_p=0.9, min_p=0.01)
    assert torch.equal(sample(0, **long), sample(0, **long)) and not torch.equal(sample(0, **long), sample(1, **long))
    drawn = sample(0, num_return_sequences=4096, top_k=5, temperature=0.3).flatten()
    logits = tiny.qwen3().eval()(**{name: value.cpu() for name, value in row.items()}).logits[0, -1] / 0.3
    best = logits.topk(5)
    counts = torch.bincount(drawn, minlength=tiny.TOKENS)[best.indices]
    assert counts.sum() == 4096
    # Five standard deviations of a share of 4096 draws are at most 5 * 0.5 / 64.
    torch.testing.assert_close(counts / 4096, best.values.softmax(0), rtol=0, atol=0.04)


def test_scores_and_hidden_states_come_on_the_device_and_are_the_cpus(prompt):
    def run(device):
        there = {name: value.to(device) for name, value in prompt.items()}
        out = tiny.qwen3().eval().to(device).generate(**there, max_new_tokens=3, return_dict_in_generate=True,
                                                      output_scores=True, output_hidden_states=True)
        return [*out.scores, *(layer for step in out.hidden_states for layer in step)]

    for got, expected in zip(run("tpu"), run("cpu"), strict=True):
        assert got.device.type == "tpu"
        torch.testing.assert_close(got.cpu(), expected)


def test_a_streamer_gets_the_text_as_it_comes(prompt):
    class Pieces(hf.TextStreamer):
        pieces = []

        def on_finalized_text(self, text, stream_end=False):
            self.pieces.append(text)

    row = {name: value[:1] for name, value in prompt.items()}
    out = generate(tiny.qwen3(), "tpu", row, streamer=lambda _: Pieces(tiny.tokenizer(), skip_prompt=True))
    assert "".join(Pieces.pieces) == tiny.tokenizer().decode(out[0, 9:])
