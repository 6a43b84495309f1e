"""datasets gives tensors of the device."""
import datasets
import pytest
import torch

ROWS = {"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "label": [0, 1, 2], "text": ["a", "b", "c"]}


@pytest.mark.parametrize("device", ["tpu", "tpu:0", torch.device("tpu")], ids=repr)
def test_set_format_makes_tensors_on_the_device(device):
    rows = datasets.Dataset.from_dict(ROWS)
    rows.set_format("torch", columns=["x", "label"], device=device)
    for got, x, label in ((rows[1], [3.0, 4.0], 1), (rows[:2], [[1.0, 2.0], [3.0, 4.0]], [0, 1])):
        assert got["x"].device == got["label"].device == torch.device("tpu:0")
        assert got["x"].tolist() == x and got["label"].tolist() == label and got["label"].dtype == torch.int64


def test_a_loader_over_it_gives_batches_on_the_device():
    rows = datasets.Dataset.from_dict(ROWS).with_format("torch", columns=["x", "label"], device="tpu")
    batches = list(torch.utils.data.DataLoader(rows, batch_size=2))
    assert [b["x"].tolist() for b in batches] == [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]
    assert all(value.device.type == "tpu" for b in batches for value in b.values())


def test_map_runs_a_model_on_the_device_and_stores_what_it_gives():
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 3)
    expected = model(torch.tensor(ROWS["x"])).detach()
    model.to("tpu")

    def embed(batch):
        with torch.no_grad():
            return {"embedding": model(batch["x"])}

    rows = datasets.Dataset.from_dict(ROWS).with_format("torch", device="tpu").map(embed, batched=True, batch_size=2)
    torch.testing.assert_close(torch.tensor(rows.with_format("numpy")["embedding"][:]), expected)
