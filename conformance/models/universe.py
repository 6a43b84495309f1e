"""The types of the installed Transformers, their classes, and which of them are held out."""
import hashlib
import importlib.util
from pathlib import Path

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto import configuration_auto, modeling_auto

# A class of the first mapping that knows the type says most about it: it has a head, takes every modality, generates.
FIRST_MAPPINGS = ("MODEL_FOR_CAUSAL_LM", "MODEL_FOR_IMAGE_TEXT_TO_TEXT", "MODEL_FOR_MULTIMODAL_LM",
                  "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM", "MODEL_FOR_SPEECH_SEQ_2_SEQ", "MODEL_FOR_MASKED_LM", "MODEL")


def _mappings() -> list[dict]:
    first = [f"{name}_MAPPING_NAMES" for name in FIRST_MAPPINGS]
    others = sorted(name for name in dir(modeling_auto)
                    if name.startswith("MODEL_") and name.endswith("_MAPPING_NAMES") and name not in first)
    return [getattr(modeling_auto, name) for name in first + others]


def _digest(model_type: str) -> str:
    return hashlib.md5(model_type.encode()).hexdigest()


def held_out(model_type: str) -> bool:
    """Whether the type is one that nobody looks at while mending: about 3 of 16, the same ones for ever."""
    return _digest(model_type)[0] in "012"


def known() -> list[str]:
    """Every type, in an order that has nothing to do with its name, so that any beginning of it is a fair sample."""
    return sorted(configuration_auto.CONFIG_MAPPING_NAMES, key=_digest)


def class_names(model_type: str) -> list[str]:
    """The classes that Transformers' mappings name for the type, the most telling first."""
    named = [mapping[model_type] for mapping in _mappings() if model_type in mapping]
    return list(dict.fromkeys(name for value in named for name in ([value] if isinstance(value, str) else value)))


def mapped() -> list[str]:
    """The types that have a model class; the others are parts of configurations."""
    with_class = set().union(*_mappings())
    return [model_type for model_type in known() if model_type in with_class]


def config_class(model_type: str) -> type[PretrainedConfig]:
    return configuration_auto.CONFIG_MAPPING[model_type]


def modeling_source(config: type[PretrainedConfig]) -> str:
    """The text of the module that has the models of a configuration; empty where there is none."""
    name = config.__module__.replace("configuration_", "modeling_")
    spec = importlib.util.find_spec(name) if name != config.__module__ else None
    return Path(spec.origin).read_text() if spec else ""


def _computes(model_class: type | None) -> bool:
    """Not so a class that only encodes or generates, and one that could not be imported."""
    return getattr(model_class, "forward", torch.nn.Module.forward) is not torch.nn.Module.forward


def model_classes(model_type: str) -> list[type[PreTrainedModel]]:
    """The classes that can be imported here; those that the mappings do not name, after them."""
    config = config_class(model_type)
    found = [getattr(transformers, name, None) for name in class_names(model_type)]
    try:
        module = importlib.import_module(config.__module__.replace("configuration_", "modeling_"))
    except ImportError:
        return [c for c in found if _computes(c)]
    found += [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, PreTrainedModel)
              and getattr(c, "config_class", None) is config and not c.__name__.endswith("PreTrainedModel")]
    return list(dict.fromkeys(c for c in found if _computes(c)))


def select(types: list[str] | None, split: str, shard: tuple[int, int]) -> list[str]:
    """The mapped types of a split ("dev", "held", "all") and a shard i of n, or those that are named."""
    if types:
        if strange := sorted(set(types) - set(known())):
            raise ValueError(f"this Transformers ({transformers.__version__}) knows no {', '.join(strange)}")
        return types
    chosen = [t for t in mapped() if split == "all" or held_out(t) == (split == "held")]
    return chosen[shard[0] - 1::shard[1]]
