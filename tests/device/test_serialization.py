"""Saving, loading, copying and moving tensors and modules."""
import copy
import io
import pickle
import tempfile

import pytest
import safetensors.torch
import torch
import torch.nn as nn
import torch.nn.functional as F
from child import run
from compare import EXACT, same


def saved(x):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return file


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm, self.out = nn.Embedding(9, 6), nn.BatchNorm1d(6), nn.Linear(6, 9, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens):
        return self.out(self.norm(self.table(tokens)))


DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
          torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("map_location",
                         ["cpu", "tpu", None, torch.device("tpu:0"), lambda storage, place: storage, {"tpu:0": "cpu"}],
                         ids=["cpu", "tpu", "nowhere", "tpu:0", "function", "table"])
def test_a_tensor_is_loaded_where_it_is_wanted(dtype, map_location):
    x = torch.randn(3, 4).mul(3).to(dtype)
    back = torch.load(saved(x.to("tpu")), map_location=map_location)
    wanted = "cpu" if map_location == "cpu" or callable(map_location) or isinstance(map_location, dict) else "tpu"
    assert back.device.type == wanted
    same(back, x, **EXACT)


def test_a_file_from_the_cpu_is_loaded_onto_the_device_and_back():
    x = {"a": torch.arange(5), "b": [torch.randn(2, 3), 7]}
    on_device = torch.load(saved(x), map_location="tpu")
    assert on_device["a"].device.type == "tpu"
    same(torch.load(saved(on_device), map_location="cpu"), x, **EXACT)


def test_views_that_share_a_storage_share_it_after_loading():
    base = torch.arange(12.0, device="tpu").reshape(3, 4)
    whole, row, turned = torch.load(saved((base, base[1], base.t())))
    assert turned.stride() == (1, 4)
    row.fill_(-1)
    expected = torch.arange(12.0).reshape(3, 4)
    expected[1] = -1
    same((whole, turned), (expected, expected.t()), **EXACT)


@pytest.mark.parametrize("duplicate",
                         [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)),
                          lambda x: torch.load(saved(x), weights_only=False)],
                         ids=["deepcopy", "pickle", "save"])
def test_a_copied_module_is_equal_apart_and_tied_as_before(duplicate):
    model = Tied().to("tpu")
    tokens = torch.tensor([1, 8, 0], device="tpu")
    model(tokens).sum().backward()
    twin = duplicate(model)
    assert twin.out.weight is twin.table.weight and twin.out.weight.device.type == "tpu"
    same(twin.eval()(tokens), model.eval()(tokens), **EXACT)
    with torch.no_grad():
        twin.table.weight.zero_()
    assert model.table.weight.any() and not twin.out.weight.any()


def test_moving_a_module_keeps_its_parameters_tied_and_those_of_its_optimizer():
    model = Tied()
    opt = torch.optim.SGD(model.parameters(), lr=1.0)
    parameter = model.table.weight
    model.to("tpu")
    assert model.out.weight is model.table.weight is parameter and parameter.device.type == "tpu"
    F.cross_entropy(model(torch.tensor([1, 2], device="tpu")), torch.tensor([3, 4], device="tpu")).backward()
    before = parameter.detach().cpu()
    opt.step()
    same(parameter, before - parameter.grad.cpu())
    assert model.cpu().out.weight.device.type == "cpu" and model.out.weight is model.table.weight
    assert model.double().norm.running_mean.dtype is torch.float64


def test_a_training_run_goes_on_from_its_checkpoint():
    def start(device):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).to(device)
        return model, torch.optim.AdamW(model.parameters(), lr=0.05)

    def train(model, opt, steps):
        for step in steps:
            x = torch.linspace(-1, 1, 24).roll(step).reshape(6, 4).to(model[0].weight.device)
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()

    model, opt = start("tpu")
    train(model, opt, range(3))
    file = saved({"model": model.state_dict(), "opt": opt.state_dict()})
    train(model, opt, range(3, 6))
    for device in ("tpu", "cpu"):
        other, other_opt = start(device)
        state = torch.load(file, map_location=device)
        file.seek(0)
        other.load_state_dict(state["model"])
        other_opt.load_state_dict(state["opt"])
        train(other, other_opt, range(3, 6))
        same(list(other.state_dict().values()), list(model.state_dict().values()), rtol=1e-4, atol=1e-5)


def test_parameters_of_meta_tensors_are_filled_on_the_device():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    model.to_empty(device="tpu").load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    same(model(torch.ones(1, 3, device="tpu")), torch.full((1, 2), 3.0))
    with torch.device("tpu"):
        made = nn.Linear(3, 2)
    assert made.weight.device.type == "tpu"
    model.load_state_dict(made.state_dict(), assign=True)
    assert model.weight.data_ptr() == made.weight.data_ptr()


def test_safetensors_saves_and_loads(tmp_path):
    tensors = {"a": torch.randn(3, 4).to("tpu"), "b": torch.randn(5).bfloat16().to("tpu")}
    safetensors.torch.save_file(tensors, tmp_path / "x.safetensors")
    same(safetensors.torch.load_file(tmp_path / "x.safetensors"), tensors, **EXACT)


@pytest.mark.parametrize("device", ["tpu", "tpu:0", torch.device("tpu")])
def test_safetensors_loads_onto_the_device(tmp_path, device):
    tensors, path = {"a": torch.randn(3, 4), "b": torch.randn(5).bfloat16()}, tmp_path / "x.safetensors"
    safetensors.torch.save_file(tensors, path)
    loaded = safetensors.torch.load_file(path, device=device)
    assert all(x.device.type == "tpu" for x in loaded.values())
    same(loaded, tensors, **EXACT)
    with safetensors.safe_open(path, "pt", device=device) as file:
        assert sorted(file.keys()) == ["a", "b"] and file.get_slice("a").get_shape() == [3, 4]
        part, whole = file.get_slice("a")[1:, :2], file.get_tensor("b")
    assert part.device.type == whole.device.type == "tpu"
    same((part, whole), (tensors["a"][1:, :2], tensors["b"]), **EXACT)
    model = nn.Linear(4, 3, bias=False)
    safetensors.torch.save_model(model, path)
    other = nn.Linear(4, 3, bias=False).to("tpu")
    safetensors.torch.load_model(other, path, device=str(device))
    same(other.weight, model.weight, **EXACT)
    with safetensors.safe_open(path, "np") as file:
        assert file.get_tensor("weight").shape == (3, 4)


def test_tensors_print_and_turn_into_python_and_numpy_values():
    x = torch.arange(6.0).reshape(2, 3)
    assert repr(x.to("tpu")) == repr(x)[:-1] + ", device='tpu:0')"
    assert x.to("tpu").tolist() == x.tolist() and (x.to("tpu").cpu().numpy() == x.numpy()).all()
    assert f"{x[1, 1].to('tpu'):.2f}" == "4.00"
    with pytest.raises(TypeError, match="cpu"):
        x.to("tpu").numpy()


# ---- places ----------------------------------------------------------------------------------------------------------


def test_a_place_is_kept_mapped_and_told_when_it_does_not_exist():
    run("""
    import io, copy, pickle
    def saved(x, **how):
        file = io.BytesIO()
        torch.save(x, file, **how)
        return file.getvalue()
    x = torch.arange(6.0, device="tpu:1").reshape(2, 3)
    for data in (saved(x), saved(x, _use_new_zipfile_serialization=False)):
        for place, index in ((None, 1), ("tpu:1", 1), ("tpu:0", 0), ("tpu", 0), ({"tpu:1": "tpu:0"}, 0),
                             (torch.device("tpu", 0), 0), (lambda storage, place: storage.tpu(int(place[-1]) - 1), 0)):
            y = torch.load(io.BytesIO(data), map_location=place)
            assert y.device == torch.device("tpu", index) and y.tolist() == x.tolist(), place
        assert torch.load(io.BytesIO(data), map_location="meta").device.type == "meta"
        kind, text = error(lambda: torch.load(io.BytesIO(data), map_location="tpu:5"))
        assert kind == "RuntimeError" and "device 5 but torch.tpu.device_count() is 2" in text, text
    assert copy.deepcopy(x).device == pickle.loads(pickle.dumps(x)).device == x.device
    """, TORCH_PJRT_CPU_DEVICES="2")


@pytest.mark.parametrize("how", ["zip", "legacy"])
def test_a_file_is_read_on_a_machine_that_has_no_torch_pjrt(tmp_path, how):
    state = {"weight": nn.Parameter(torch.arange(6.0, device="tpu").reshape(2, 3).t()),
             "half": torch.ones(2, device="tpu").bfloat16(), "conj": torch.tensor([1 + 2j], device="tpu").conj()}
    torch.save(state, tmp_path / "x.pt", _use_new_zipfile_serialization=how == "zip")
    run(f"""
    import sys, torch
    sys.modules["torch_pjrt"] = None  # an import would fail
    file = {str(tmp_path / "x.pt")!r}
    x = torch.load(file, map_location="cpu", weights_only=True)
    assert isinstance(x["weight"], torch.nn.Parameter) and x["weight"].stride() == (1, 3) and x["weight"][2, 1] == 5
    assert x["half"].dtype is torch.bfloat16 and x["conj"].tolist() == [1 - 2j]
    try:
        torch.load(file)
    except RuntimeError as e:
        assert "tpu:0" in str(e), e
    else:
        assert False
    """, prelude="", TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_a_file_is_mapped_into_memory_and_moved():
    with tempfile.NamedTemporaryFile() as file:
        x = torch.arange(1000.0)
        torch.save(x.to("tpu"), file.name)
        for place in ("cpu", "tpu", None):
            same(torch.load(file.name, mmap=True, map_location=place), x, **EXACT)
        with torch.serialization.skip_data():
            torch.save(x.to("tpu"), file.name)
        assert torch.load(file.name).shape == (1000,)


def test_subclasses_attributes_and_lazy_bits_are_saved():
    x = torch.tensor([1 + 2j, 3 - 1j], device="tpu")
    same([torch.load(saved(view)) for view in (x.conj(), x.conj().imag)], [x.cpu().conj(), -x.cpu().imag], **EXACT)
    y = torch.ones(2, device="tpu")
    y.note = "kept"
    assert torch.load(saved(y)).note == copy.deepcopy(y).note == "kept"
    leaf = torch.load(saved(nn.Parameter(y, requires_grad=False)))
    assert isinstance(leaf, nn.Parameter) and not leaf.requires_grad
    storage = torch.load(saved(y.untyped_storage()), weights_only=False)
    assert storage.device.type == "tpu" and storage.nbytes() == 8 and not storage.is_shared()


def test_storages_are_read_and_written_byte_by_byte():
    s = torch.arange(6, dtype=torch.uint8, device="tpu").untyped_storage()
    assert (s[1], s.tolist(), bytes(s), s.cpu().tolist(), s.clone().tolist()) == \
        (1, [0, 1, 2, 3, 4, 5], bytes(range(6)), [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])
    s[0] = 9
    assert s.tolist() == [9, 1, 2, 3, 4, 5] and s[1:3].tolist() == [1, 2]
    s.copy_(torch.zeros(6, dtype=torch.uint8).untyped_storage())
    assert s.fill_(3).tolist() == [3] * 6 and s.is_tpu and torch.ones(2).untyped_storage().tpu().device.type == "tpu"
