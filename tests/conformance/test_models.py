"""The suite of Transformers' architectures itself: what is wrong is found and told, and costs one type."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from conformance import results
from conformance.judge import Unbuildable, Wrong
from conformance.models import command, pool, universe
from conformance.models.compare import Noise, same
from conformance.models.inputs import Recipe, make_inputs
from conformance.models.recipes import build, find

ROOT = Path(__file__).resolve().parents[2]


def test_types_run_on_the_device_as_on_the_cpu(tmp_path):
    out = tmp_path / "models.jsonl"
    words = ["models", "--types", "bert,gpt2,vit", "--out", str(out)]
    path = os.pathsep.join(str(Path(p).absolute()) for p in sys.path)
    ended = subprocess.run([sys.executable, "-m", "conformance", *words], cwd=ROOT, capture_output=True, text=True,
                           timeout=600, env={**os.environ, "PYTHONPATH": path})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    head, rows = results.read(out)
    assert head["device"] == "tpu" and "transformers" in head["versions"]
    assert {row["op"]: row["result"] for row in rows} == {"bert": "native", "gpt2": "native", "vit": "native"}
    stages = {row["op"]: row["stages"] for row in rows}
    assert stages["gpt2"]["backward"] == stages["gpt2"]["generate"] == "native"
    assert stages["vit"]["generate"] == "skipped"
    for row in rows:
        assert row["programs"][0] > 0 and row["programs"][1] == 0, row  # the second forward finds all programs


@pytest.fixture(scope="module")
def judge():
    from conformance.models import judge

    return judge


def judged(judge, model_type="gpt2"):
    return judge.judge(model_type, None, "cpu", 60, lambda stage: None)


def test_a_device_that_is_right_passes(judge):
    assert judged(judge)["result"] == "ok"


@pytest.mark.parametrize("stage, spoil", [
    ("forward", lambda trial: trial.model.transformer.h[0].mlp.c_fc.bias.data.add_(0.01)),
    ("backward", lambda trial: trial.model.transformer.wpe.weight.register_hook(lambda grad: grad * 1.01)),
    ("generate", lambda trial: setattr(trial.model.generation_config, "suppress_tokens", [0])),
])
def test_what_is_wrong_is_called_wrong_where_it_is(judge, monkeypatch, stage, spoil):
    """The device is the CPU, and something of the model is changed on the way to it."""
    right = judge.Judge.to_device

    def to_device(self):
        right(self)
        spoil(self.trial)

    monkeypatch.setattr(judge.Judge, "to_device", to_device)
    row = judged(judge)
    assert row["result"] == "wrong" and row["reason"].startswith(f"{stage}: ") and row["stages"][stage] == "wrong", row


def run_types(calls, **limits):
    rows = {}
    pool.run_all(list(calls), lambda name, tell: calls[name](tell), lambda name, row: rows.update({name: row}),
                 **{"limit": 5, "most_bytes": 4 << 30, "jobs": 2, **limits})
    return rows


def test_a_crash_a_hang_and_a_lack_of_memory_cost_one_type():
    def crash(tell):
        tell("forward")
        os.abort()

    rows = run_types({"crash": crash, "hang": lambda tell: time.sleep(1000), "right": lambda tell: {"result": "native"},
                      "large": lambda tell: {"result": str(len(bytearray(8 << 30)))},
                      "right_again": lambda tell: {"result": "native"}})
    assert {name: row["result"] for name, row in rows.items()} == {
        "crash": "crash", "hang": "timeout", "large": "crash", "right": "native", "right_again": "native"}
    assert rows["crash"]["reason"].startswith("forward: SIGABRT") and "5 s" in rows["hang"]["reason"]
    assert "MemoryError" in rows["large"]["reason"]


def noise(**moved):
    return Noise(lambda seed: moved)


def test_an_error_is_allowed_as_far_as_the_cpus_own_answer_moves():
    want = {"x": torch.tensor([1.0, 0.0])}
    same({"x": torch.tensor([1.0, 5e-5])}, want, noise(x=want["x"]))
    with pytest.raises(Wrong, match="off by 0.01"):
        same({"x": torch.tensor([1.0, 0.01])}, want, noise(x=want["x"]))
    moving = noise(x=torch.tensor([1.0, 0.006]))
    same({"x": torch.tensor([1.0, 0.01])}, want, moving)
    with pytest.raises(Wrong):
        same({"x": torch.tensor([1.0, 0.02])}, want, moving)


@pytest.mark.parametrize("got, want", [
    (torch.tensor([1.0, torch.nan]), torch.ones(2)), (torch.tensor([torch.inf]), torch.ones(1)),
    (torch.ones(2), torch.ones(3)), (torch.ones(2), torch.ones(2).double()),
    (torch.tensor([1, 2]), torch.tensor([1, 3])),
    (torch.tensor([True]), torch.tensor([False]))])
def test_a_difference_that_is_no_rounding_is_seen(got, want):
    same({"x": want}, {"x": want}, noise(x=want))
    for a, b in ((got, want), (want, got)):
        with pytest.raises(Wrong):
            same({"x": a}, {"x": b}, noise(x=b))


def test_an_output_that_is_missing_is_seen():
    with pytest.raises(Wrong, match="y is there on one"):
        same({"x": torch.ones(1)}, {"x": torch.ones(1), "y": torch.ones(1)}, noise())


def test_a_choice_that_hangs_on_a_rounding_is_counted_and_not_judged():
    unstable = noise(index=torch.tensor([2, 1]))
    same({"index": torch.tensor([2, 1])}, {"index": torch.tensor([1, 1])}, unstable)
    assert unstable.unstable == 1
    with pytest.raises(Wrong, match="1 of 2"):
        same({"index": torch.tensor([1, 2])}, {"index": torch.tensor([1, 1])}, unstable)


def test_a_recipe_makes_the_same_model_and_inputs_again():
    recipe = find("vit", 60)
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
    first, second = build(recipe, "vit"), build(recipe, "vit")
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))
    inputs, again = make_inputs(first, recipe), make_inputs(second, recipe)
    assert inputs and all(torch.equal(inputs[name], again[name]) for name in inputs | again)


def test_what_does_not_run_on_the_cpu_is_unbuildable_and_says_why():
    with pytest.raises(Unbuildable, match="no model class"):
        find("bark", 5)  # its class only generates


def test_splits_and_shards_are_disjoint_and_together_all():
    dev, held = (universe.select(None, split, (1, 1)) for split in ("dev", "held"))
    assert sorted(dev + held) == sorted(universe.select(None, "all", (1, 1))) and len(dev) > 3 * len(held) > 0
    parts = [universe.select(None, "dev", (i, 3)) for i in (1, 2, 3)]
    assert sorted(sum(parts, [])) == sorted(dev) and len({len(part) // 3 for part in parts}) == 1
    with pytest.raises(ValueError, match="knows no no_such_type"):
        universe.select(["no_such_type"], "all", (1, 1))


def test_of_a_type_that_is_held_out_only_the_result_is_kept():
    held, dev = universe.select(None, "held", (1, 1))[0], universe.select(None, "dev", (1, 1))[0]

    class Options:
        types, reason = None, 300

    assert command._reason(held, "a fault", Options) == "held out"
    assert command._reason(dev, "a fault", Options) == "a fault"
    Options.types = [held]
    assert command._reason(held, "a fault", Options) == "a fault"


def test_a_model_that_draws_gets_the_same_numbers_on_every_device(judge):
    def draw(device):
        torch.manual_seed(0)
        with judge.SameDraws():
            return [torch.rand(3, device=device), torch.empty(3, device=device).normal_(),
                    torch.ones(3).to(device).bernoulli(0.5), torch.randperm(5, device=device),
                    torch.randn_like(torch.ones(2, device=device))]

    for here, there in zip(draw("cpu"), draw("tpu")):
        assert there.device.type == "tpu" and torch.equal(here, there.cpu())
