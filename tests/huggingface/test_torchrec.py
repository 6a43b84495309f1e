"""TorchRec's modules for one process: keyed jagged tensors and collections of embeddings."""
import pytest
import torch

torchrec = pytest.importorskip("torchrec", reason="torchrec asks for FBGEMM's CUDA build; docs/huggingface.md has the way")

KEYS = ["user", "item"]


def features(device: str) -> "torchrec.KeyedJaggedTensor":
    """Two features of three samples, one of them empty."""
    return torchrec.KeyedJaggedTensor(keys=KEYS, values=torch.tensor([1, 2, 3, 4, 5, 6, 7]),
                                      lengths=torch.tensor([2, 0, 1, 1, 2, 1])).to(torch.device(device))


def bags(pooling) -> torch.nn.Module:
    torch.manual_seed(0)
    return torchrec.EmbeddingBagCollection(device=torch.device("cpu"), tables=[
        torchrec.EmbeddingBagConfig(name=key, embedding_dim=8, num_embeddings=10 * (i + 1), feature_names=[key],
                                    pooling=pooling) for i, key in enumerate(KEYS)])


def sequences() -> torch.nn.Module:
    torch.manual_seed(0)
    return torchrec.EmbeddingCollection(device=torch.device("cpu"), tables=[
        torchrec.EmbeddingConfig(name=key, embedding_dim=8, num_embeddings=10, feature_names=[key]) for key in KEYS])


def both(build, read):
    """Outputs and gradients on the CPU and the device."""
    results = []
    for device in ("cpu", "tpu"):
        module = build().to(device)
        outputs = read(module(features(device)))
        sum(out.square().sum() for out in outputs).backward()
        assert {out.device.type for out in outputs} == {device}
        results.append([x.detach().cpu() for x in [*outputs, *(p.grad for p in module.parameters())]])
    return results


@pytest.mark.parametrize("pooling", ["SUM", "MEAN"])
def test_a_collection_of_embedding_bags_is_the_cpus(pooling):
    pooling = torchrec.PoolingType[pooling]
    expected, got = both(lambda: bags(pooling), lambda out: [out[key] for key in KEYS])
    torch.testing.assert_close(got, expected)


def test_a_collection_of_sequences_is_the_cpus():
    expected, got = both(sequences, lambda out: [out[key].values() for key in KEYS])
    torch.testing.assert_close(got, expected)


def test_fbgemms_own_ops_give_the_cpus_numbers_by_the_counted_fallback():
    """Offsets and permutations of keyed jagged tensors are ops of FBGEMM, which has no kernels for this device."""
    with torch.tpu.set_fallback("silent"):
        check_permuted()
    assert "fbgemm::permute_2D_sparse_data" in torch.tpu.fallbacks()


def check_permuted():
    got, expected = features("tpu"), features("cpu")
    for a, b in ((got, expected), (got.permute([1, 0]), expected.permute([1, 0]))):
        assert a.keys() == b.keys()
        for key in b.keys():
            assert a[key].values().device.type == "tpu"
            assert torch.equal(a[key].values().cpu(), b[key].values())
            assert torch.equal(a[key].lengths().cpu(), b[key].lengths())
