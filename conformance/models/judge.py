"""One type on the device and on the CPU: outputs, every gradient, a few generated tokens; and how many programs it
took."""
import contextlib
import random
from dataclasses import replace
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from transformers import PreTrainedModel

from conformance.judge import RESULTS, Skipped, Unbuildable, first_line, reference
from conformance.models.compare import Noise, Tensors, named_tensors, perturbed, same
from conformance.models.inputs import Recipe, make_inputs
from conformance.models.pool import Tell
from conformance.models.recipes import build, find
from conformance.samples import Draws
from conformance.worker import judged

LONGER = 16  # tokens more than the recipe has
NEW_TOKENS = 2  # the first from the whole text, the second with the cache


class SameDraws(TorchDispatchMode):
    """Random numbers of ops inside come from the CPU's generator, so that a model that draws (a mask of patches, a
    noise to begin with) gets the same ones on every device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        drops = any(a.name == "dropout_p" for a in func._schema.arguments)  # which models do not, but in training
        if drops or torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        device = next((x.device for x in args if isinstance(x, torch.Tensor)), kwargs.get("device"))
        if "generator" in kwargs:
            kwargs["generator"] = None

        def here(x: Any) -> Any:
            return x.cpu() if isinstance(x, torch.Tensor) else torch.device("cpu") if isinstance(x, torch.device) else x

        drawn = func(*tree_map(here, args), **tree_map(here, kwargs))
        if func._schema.is_mutable:
            return args[0].copy_(drawn)
        return tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, drawn)


def _seed() -> None:
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


def _on_cpu(tensors: Tensors) -> Tensors:
    return {name: x.detach().cpu().clone() for name, x in tensors.items()}


def _moved(inputs: Tensors, device: str) -> Tensors:
    return {name: x.to(device) for name, x in inputs.items()}


def _copied(inputs: Tensors) -> Tensors:
    """Some models write into their inputs."""
    return {name: x.clone() for name, x in inputs.items()}


def _loss(outputs: Tensors) -> torch.Tensor | None:
    """A weighted mean of all that can be differentiated, with weights of both signs, so that no gradient vanishes by
    symmetry (the mean of a normalised row would)."""
    generator = torch.Generator().manual_seed(1)
    terms = []
    for x in outputs.values():
        if x.requires_grad and x.numel() and not x.is_complex():
            weights = torch.randn(x.shape, generator=generator).to(x.device, x.dtype)
            sane = torch.where(x.detach().abs() < 1e30, x, torch.zeros_like(x))  # masks hold the least number there is
            terms.append((sane * weights).mean())
    return sum(terms) if terms else None


class Trial:
    """A model with its inputs. Each answer is a dict of CPU tensors by name."""

    def __init__(self, model_type: str, recipe: Recipe):
        self.type, self.recipe = model_type, recipe
        self.model: PreTrainedModel = build(recipe, model_type)
        self.inputs = make_inputs(self.model, recipe)
        self.draws = False

    def mode(self) -> contextlib.AbstractContextManager:
        return SameDraws() if self.draws else contextlib.nullcontext()

    def forward(self, inputs: Tensors) -> Tensors:
        _seed()
        with self.mode():
            return dict(named_tensors(self.model(**_copied(inputs))))

    def backward(self, outputs: Tensors) -> Tensors:
        """The gradients of all parameters that have one."""
        self.model.zero_grad()
        loss = _loss(outputs)
        if loss is None:
            raise Skipped("nothing in the output can be differentiated")
        with self.mode():
            loss.backward()
        return {f"grad {name}": p.grad for name, p in self.model.named_parameters() if p.grad is not None}

    def generate(self, inputs: Tensors) -> Tensors:
        """Scores by step, and the tokens; the whole output where the class has a generate() of another form."""
        given = {name: x for name, x in _copied(inputs).items() if not name.startswith("decoder_input")}
        _seed()
        with self.mode(), torch.no_grad():
            output = self.model.generate(**given, max_new_tokens=NEW_TOKENS, do_sample=False, num_beams=1,
                                         return_dict_in_generate=True, output_scores=True)
        if not getattr(output, "scores", None):
            return dict(named_tensors(output, "generated"))
        return {**{f"scores[{i}]": s for i, s in enumerate(output.scores)}, "tokens": output.sequences}

    def noise(self, answer) -> Noise:
        """`answer(trial)`: the Tensors whose noise is asked for."""
        def run(seed: int) -> Tensors:
            other = Trial(self.type, self.recipe)
            other.draws = self.draws
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for p in other.model.parameters():
                    if p.is_floating_point():
                        p.copy_(perturbed(p, generator))
            other.inputs = {name: perturbed(x, generator) if x.is_floating_point() else x
                            for name, x in other.inputs.items()}
            return _on_cpu(answer(other))

        return Noise(run)


def _both(trial: Trial) -> Tensors:
    outputs = trial.forward(trial.inputs)
    return {**outputs, **trial.backward(outputs)}


def _same_generation(got: Tensors, want: Tensors, noise: Noise) -> None:
    """Scores step by step. Where two tokens score the same but for noise, the rest of the text is another one, and only
    what comes before is compared."""
    steps = [name for name in want if name.startswith("scores")]
    for name in steps:
        if name not in got:
            break
        same({name: got[name]}, {name: want[name]}, noise)
        if not torch.equal(got[name].argmax(-1), want[name].argmax(-1)):
            return
    same({k: v for k, v in got.items() if k not in steps}, {k: v for k, v in want.items() if k not in steps}, noise)


def _programs(device: str) -> int | None:
    module = getattr(torch, torch.device(device).type, None)
    if not hasattr(module, "counters"):
        return None
    counters = module.counters()
    return counters["compiles"] + counters["cache_loads"]


class Judge:
    def __init__(self, model_type: str, recipe: Recipe, device: str, tell: Tell):
        self.device, self.tell = device, tell
        tell("CPU")
        self.trial = Trial(model_type, recipe)
        self.words: dict[str, tuple[str, str]] = {}
        self.programs: list[int | None] = []
        self.unstable, self.worst = 0, 0.0

    def stage(self, name: str, question) -> bool:
        """Asks, and keeps the result; whether to go on."""
        self.tell(name)
        self.words[name] = judged(question, self.device)
        return self.words[name][0] not in ("error", "wrong")

    def keep(self, noise: Noise) -> None:
        self.unstable += noise.unstable
        self.worst = max(self.worst, noise.worst)

    def counted(self, call) -> Any:
        before = _programs(self.device)
        result = call()
        self.programs.append(None if before is None else _programs(self.device) - before)
        return result

    def on_cpu(self) -> None:
        """What is wanted; gradients and generated tokens only where the CPU gives some."""
        trial = self.trial
        with Draws() as draws:
            reference(lambda: trial.forward(trial.inputs))
        trial.draws = draws.random
        outputs = reference(lambda: trial.forward(trial.inputs))
        self.outputs = _on_cpu(outputs)
        try:
            self.gradients = _on_cpu(reference(lambda: trial.backward(outputs)))
        except (Unbuildable, Skipped) as reason:
            self.gradients, self.no_gradients = None, reason
        trial.model.zero_grad()
        self.tokens = None
        if callable(getattr(trial.model, "generate", None)):
            self.tell("CPU generate")
            with contextlib.suppress(Exception):
                self.tokens = _on_cpu(trial.generate(trial.inputs))
        self.long = None
        if "input_ids" in trial.inputs:
            long = replace(trial.recipe, length=trial.recipe.length + LONGER)
            with contextlib.suppress(Exception), torch.no_grad():
                inputs = make_inputs(trial.model, long)
                trial.forward(inputs)
                self.long = inputs

    def forward(self) -> None:
        trial = self.trial
        noise = trial.noise(lambda other: other.forward(other.inputs))
        self.there = self.counted(lambda: trial.forward(self.moved))
        same(_on_cpu(self.there), self.outputs, noise)
        self.keep(noise)

    def backward(self) -> None:
        if self.gradients is None:
            raise type(self.no_gradients)(str(self.no_gradients))
        noise = self.trial.noise(_both)
        same(_on_cpu(self.trial.backward(self.there)), self.gradients, noise)
        self.keep(noise)

    def again(self) -> None:
        with torch.no_grad():
            self.counted(lambda: self.trial.forward(self.moved))
            if self.long is not None:
                self.counted(lambda: self.trial.forward(_moved(self.long, self.device)))

    def generate(self) -> None:
        if self.tokens is None:
            raise Skipped("the CPU generates nothing")
        noise = self.trial.noise(lambda other: other.generate(other.inputs))
        _same_generation(_on_cpu(self.trial.generate(self.moved)), self.tokens, noise)
        self.keep(noise)

    def to_device(self) -> None:
        """Takes a model that has never run: some keep tensors from their first call where .to() does not find them."""
        draws, self.trial = self.trial.draws, Trial(self.trial.type, self.trial.recipe)
        self.trial.draws = draws
        self.trial.model.to(self.device)
        self.moved = _moved(self.trial.inputs, self.device)

    def on_device(self) -> None:
        self.tell("to the device")
        self.to_device()
        if self.stage("forward", self.forward):
            self.stage("backward", self.backward)
        self.there = None
        if self.words["forward"][0] != "error" and self.stage("again", self.again):
            self.stage("generate", self.generate)

    def row(self) -> dict[str, Any]:
        worst = max(self.words, key=lambda stage: RESULTS.index(self.words[stage][0]))
        result, reason = self.words[worst]
        return {"result": result, "reason": f"{worst}: {reason}" if reason else "",
                "stages": {stage: word for stage, (word, _) in self.words.items()}, "programs": self.programs,
                "unstable": self.unstable, "error": float(f"{self.worst:.1e}")}


def _on_cpu_with(model_type: str, recipe: Recipe, device: str, tell: Tell) -> Judge | None:
    """A judge with the CPU's answers; None where the recipe does not run."""
    try:
        judge = Judge(model_type, recipe, device, tell)
        judge.on_cpu()
        return judge
    except Exception:
        return None


def judge(model_type: str, recipe: Recipe | None, device: str, seconds: float, tell: Tell) -> dict[str, Any]:
    """The row of a type: its result is that of its worst stage."""
    if torch.device(device).type == "tpu":
        torch.tpu.set_fallback("silent")  # a fallback is a result, not an error
        torch.tpu.set_eager_mode("strict")  # the other modes make programs in the background, at no certain time
    try:
        judge = _on_cpu_with(model_type, recipe, device, tell) if recipe else None
        if judge is None:  # there is no recipe, or it is one of another Transformers
            judge = Judge(model_type, find(model_type, seconds, tell), device, tell)
            judge.on_cpu()
    except Unbuildable as reason:
        return {"result": "unbuildable", "reason": str(reason)}
    try:
        judge.on_device()
    except Exception as error:  # on the way to the device
        judge.words["to the device"] = "error", f"{type(error).__name__}: {first_line(error)}"
    return {"model": judge.trial.recipe.model, **judge.row()}
