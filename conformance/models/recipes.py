"""Finds what runs on the CPU: the class, how far its configuration is shrunk, and the inputs."""
import inspect
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from transformers import PretrainedConfig, PreTrainedModel

from conformance.judge import Unbuildable, first_line
from conformance.models.compare import named_tensors
from conformance.models.configs import base_config, small_config
from conformance.models.inputs import IMAGE_FORMS, MASKS, SPECTRA, Recipe, Words, make_inputs
from conformance.models.shrink import LEVELS
from conformance.models.universe import model_classes, modeling_source

MOST_PARAMETERS = 220_000_000
# Tried in this order where the inputs before did not run.
IMAGE_VARIANTS = [dict(image=i) for i in range(1, 9)] + [dict(size=224), dict(size=64)]
SOUND_VARIANTS = [dict(sound=i) for i in range(1, 5)] + [dict(frames=64), dict(frames=64, sound=1), dict(frames=1024),
                                                       dict(frames=1024, sound=1)]
OTHER_VARIANTS = [dict(batch=1), dict(length=64), dict(length=64, batch=1), dict(mask=False)]
TOKEN_FIELDS = ("image_token_id", "image_token_index", "audio_token_id", "audio_token_index", "video_token_id",
                "speech_token_id", "speech_token_index", "audio_token_ids")
# "Image features and image tokens do not match, tokens: 0, features: 4": how many tokens there must be.
COUNTS = re.compile(r"tokens?:?\s*=?\s*\(?(\d+)\)?.{0,40}?features?:?\s*=?\s*(?:torch\.Size\(\[)?(\d+)", re.I | re.S)


def _rotates_by_three(base: PretrainedConfig) -> bool:
    """Whether a model of the configuration, or of a part of it, takes positions in three sections."""
    parts = [base, *(part for part in vars(base).values() if isinstance(part, PretrainedConfig))]
    return any("mrope_section" in modeling_source(type(part)) for part in parts)


def config(recipe: Recipe, model_type: str) -> PretrainedConfig:
    base = base_config(model_type)
    return small_config(base, recipe.level, _rotates_by_three(base))


def build(recipe: Recipe, model_type: str) -> PreTrainedModel:
    """The model of a recipe with random weights, always the same, on the CPU."""
    model_class = next(c for c in model_classes(model_type) if c.__name__ == recipe.model)
    return _built(model_class, config(recipe, model_type), recipe.own)


KERNEL = 16  # a last dimension up to here is that of a kernel; beyond, that of the inputs of a linear map


def _draw(p: torch.Tensor) -> None:
    """Weights that keep the size of what goes through, and biases and scales of which no two are equal. The weights
    that classes begin with make most of a small model vanish, and many of its choices ties."""
    if not p.is_floating_point() or not p.dim():
        return
    if p.dim() == 1:
        p.add_(0.1 * torch.randn(p.shape))
        return
    inputs = p.shape[-1] if p.shape[-1] > KERNEL else p[0].numel()
    p.copy_(torch.randn(p.shape) / max(1, inputs)**0.5)


def _built(model_class: type, small: PretrainedConfig, own: bool) -> PreTrainedModel:
    torch.manual_seed(0)
    model = model_class(small).float().eval()
    if not own:
        with torch.no_grad():
            for p in model.parameters():
                _draw(p)
    return model


def _check_size(model_class: type, small: PretrainedConfig, level: int) -> None:
    """Unbuildable where the model is too large, which the meta device tells, or may be and cannot be built there."""
    try:
        with torch.device("meta"):
            count = sum(p.numel() for p in model_class(small).parameters())
    except Exception:
        if "width" in LEVELS[level]:
            return
        raise
    if count > MOST_PARAMETERS:
        raise Unbuildable(f"{count / 1e6:.0f} million parameters")


def _modes(model: PreTrainedModel, full: bool) -> list[str]:
    signature = inspect.signature(model.forward).parameters
    several = any(n.startswith(("pixel_values", "input_features", "input_values", "image")) for n in signature)
    if full:
        masked = any(n in signature for n in MASKS)
        return (["full", "masked"] if masked else ["full"]) if several else []
    return (["grid"] if several else []) + ["plain", "text", "main", "documented"]


def _variants(model: PreTrainedModel, mode: str) -> list[dict]:
    names = inspect.signature(model.forward).parameters
    sees = mode != "text" and any(n.startswith(("pixel", "image", "video")) for n in names)
    sounds = ("input_f", "input_v", "audio", "past_v", "wave", "spec")
    hears = mode != "text" and any(n.startswith(sounds) for n in names)
    high, wide = Words(model.config, Recipe()).image_size()
    square = [dict(size=min(high, wide))] if high != wide else []
    return [{}, SOUND_VARIANTS[0] if hears else OTHER_VARIANTS[0], *(square + IMAGE_VARIANTS if sees else []),
            *(SOUND_VARIANTS if hears else []), *OTHER_VARIANTS]


def _token_ids(model: PreTrainedModel, message: str) -> list[int]:
    """The tokens that stand for another modality, those that the message names first."""
    found = [name for name in TOKEN_FIELDS if isinstance(getattr(model.config, name, None), int)]
    found.sort(key=lambda name: name.split("_")[0] not in message.lower())
    return [getattr(model.config, name) for name in found]


def _with_tokens(recipe: Recipe, model: PreTrainedModel, error: Exception) -> Recipe | None:
    """The recipe with as many placeholder tokens as the error asks for."""
    counts, ids = COUNTS.search(str(error)), _token_ids(model, str(error))
    if not counts or not ids:
        return None
    wanted = int(counts[2])
    if wanted > 4096:  # elements, not features
        wanted //= max(1, getattr(model.config.get_text_config(), "hidden_size", 64))
    return replace(recipe, tokens=((ids[0], wanted // recipe.batch if wanted % recipe.batch == 0 else wanted),))


# "mat1 and mat2 shapes cannot be multiplied (32x640 and 1024x64)": a spectrum needs 1024/640 of the channels given.
PRODUCT = re.compile(r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)")


def _with_mel_bins(recipe: Recipe, model: PreTrainedModel, error: Exception) -> Recipe | None:
    """The recipe with as many channels of a spectrum as the error asks for."""
    sizes = PRODUCT.search(str(error))
    if not sizes or recipe.mel or not any(SPECTRA.match(n) for n in inspect.signature(model.forward).parameters):
        return None
    given, wanted = int(sizes[1]), int(sizes[2])
    bins = Words(model.config, recipe)["mel_bins"] * wanted
    return replace(recipe, mel=bins // given) if bins % given == 0 else None


# "not enough values to unpack (expected 5, got 4)": how many dimensions there must be.
UNPACKED = re.compile(r"values to unpack \(expected (\d+)(?:, got (\d+))?\)")


def _with_dimensions(recipe: Recipe, error: Exception) -> Recipe | None:
    """The recipe with images of as many dimensions as the error asks for."""
    found = UNPACKED.search(str(error))
    if not found or recipe.image or recipe.sound:
        return None
    form = next((i for i, text in enumerate(IMAGE_FORMS) if text.count(",") + 1 == int(found[1])), 0)
    return replace(recipe, image=form) if form else None


def _runs(model: PreTrainedModel, recipe: Recipe) -> Recipe:
    """The recipe, perhaps repaired, if the model runs with its inputs; else raises what the model raises."""
    for _ in range(3):
        try:
            torch.manual_seed(0)
            with torch.no_grad():
                output = model(**make_inputs(model, recipe))
            floats = [x for _, x in named_tensors(output) if x.is_floating_point()]
            if not floats:
                raise Unbuildable("no floating tensor in the output")
            if not any(x.isnan().any() for x in floats):
                return recipe
            if recipe.own:
                raise Unbuildable("NaN in the output")
            return _runs(_built(type(model), model.config, own=True), replace(recipe, own=True))
        except Exception as error:
            repaired = _with_tokens(recipe, model, error) or _with_mel_bins(recipe, model, error) or \
                _with_dimensions(recipe, error)
            if repaired is None or repaired == recipe:
                raise
            failure, recipe = error, repaired
    raise failure


def _attempts(model_type: str, seconds: float, errors: list[str]) -> Iterator[tuple[PreTrainedModel, Recipe]]:
    begin = time.monotonic()
    classes = model_classes(model_type)
    if not classes:
        raise Unbuildable("no model class of this type can be imported")
    base = base_config(model_type)
    mrope = _rotates_by_three(base)
    # First what is usual at the levels that give small models, then all that may help at each level.
    plan = [(full, level, slice(2)) for full in (True, False) for level in (1, 4, 2, 3)]
    plan += [(full, level, slice(None)) for full in (True, False) for level in LEVELS]
    for full, level, some in plan:
        for model_class in classes[:2 if full else 3]:
            try:
                small = small_config(base, level, mrope)
                _check_size(model_class, small, level)
                model = _built(model_class, small, own=False)
            except Exception as error:
                errors.append(f"{model_class.__name__} at level {level}: {type(error).__name__}: {first_line(error)}")
                continue
            for mode in _modes(model, full):
                for variant in _variants(model, mode)[some]:
                    if full and time.monotonic() - begin > seconds / 2:
                        break
                    batch = 2 if "image" in LEVELS[level] else 1  # a large image at a time
                    yield model, Recipe(model_class.__name__, level, mode, **{"batch": batch, **variant})


def find(model_type: str, seconds: float, tell: Callable[[str], None] = lambda stage: None) -> Recipe:
    """The first recipe that runs on the CPU; Unbuildable, with what the first attempts said, after so many seconds."""
    until, errors = time.monotonic() + seconds, []
    for model, recipe in _attempts(model_type, seconds, errors):
        tell(f"{recipe.model} level {recipe.level} {recipe.mode}")
        if time.monotonic() > until:
            errors.insert(0, f"no inputs found in {seconds:g} s")
            break
        try:
            return _runs(model, recipe)
        except Exception as error:
            text = f"{recipe.mode}{recipe.level}: {type(error).__name__}: {first_line(error)}"
            if text not in errors:
                errors.append(text)
    raise Unbuildable(" | ".join(errors)[:2000])
