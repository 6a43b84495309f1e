"""Generation of the decoders and encoder-decoders in the catalogue, against PyTorch on the CPU."""
import catalogue
import pytest
import torch
import transformers
from catalogue import on, programs

NEW_TOKENS = 6


@pytest.mark.eager("strict", "fused")
def test_greedy_tokens_equal_the_cpus_and_a_second_call_makes_no_program(generator):
    model, prompt = catalogue.build(generator), catalogue.prompt(generator)
    options = dict(do_sample=False, max_new_tokens=NEW_TOKENS)
    expected = model.generate(**prompt, **options)
    model, prompt = model.to("tpu"), on(prompt, "tpu")
    first = model.generate(**prompt, **options).cpu()
    before = programs()
    second = model.generate(**prompt, **options).cpu()
    made = programs() - before
    assert torch.equal(first, expected)
    assert torch.equal(second, expected)
    assert made == 0


def test_sampled_tokens_follow_the_seed(generator):
    model, prompt = catalogue.build(generator).to("tpu"), on(catalogue.prompt(generator), "tpu")
    samples = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        samples.append(model.generate(**prompt, do_sample=True, top_k=20, top_p=0.9, temperature=1.5,
                                      max_new_tokens=NEW_TOKENS).cpu())
    assert torch.equal(samples[0], samples[1])
    assert not torch.equal(samples[0], samples[2])


def decoder(attention: str) -> transformers.PreTrainedModel:
    """The cache of a layer takes 1 KiB a token and sequence in each of keys and values."""
    torch.manual_seed(0)
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=128, max_position_embeddings=512, attn_implementation=attention)).eval()


# Programs a doubling of the length: with SDPA a larger array, keys and values joined, attention; without it the copy for each
# head, two products, their scale, the mask and the softmax take the place of attention.
@pytest.mark.eager("strict")
@pytest.mark.parametrize("attention, padded, most", [("sdpa", False, 4), ("sdpa", True, 4), ("eager", False, 9)])
def test_a_growing_cache_needs_a_few_programs_a_doubling_and_none_in_a_second_pass(attention, padded, most):
    model, ids = decoder(attention), torch.arange(20).view(2, 10)
    mask = torch.ones_like(ids)
    if padded:
        mask[0, :4] = 0
    new = 170  # 180 in all: arrays of 32, 64, 128 and 256
    options = dict(do_sample=False, max_new_tokens=new, min_new_tokens=new)
    expected = model.generate(ids, attention_mask=mask, **options)
    model, ids, mask = model.to("tpu"), ids.to("tpu"), mask.to("tpu")
    made = []

    def count(_, scores: torch.Tensor) -> torch.Tensor:
        made.append(programs())
        return scores

    for _ in range(2):
        tokens = model.generate(ids, attention_mask=mask, logits_processor=[count], **options)
        assert torch.equal(tokens.cpu(), expected)
    before, after = 6, new  # the first tokens show that the cache and ranges grow
    per_token = [b - a for a, b in zip(made, made[1:])]
    assert sum(per_token[before:after - 1]) <= 3 * most, [(i, n) for i, n in enumerate(per_token) if n]
    assert made[-1] == made[after - 1], "a second pass"
