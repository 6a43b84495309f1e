"""Generation of the decoders and encoder-decoders in the catalogue, against PyTorch on the CPU."""
import catalogue
import pytest
import torch
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
