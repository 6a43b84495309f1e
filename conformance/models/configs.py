"""A configuration to begin with: the default one, or where there is none a composition of small parts."""
from typing import Any

from transformers import PretrainedConfig

from conformance.models.shrink import HEAD_DIM, HEADS, LEVELS, OPEN, VOCABULARY, WIDTH, Shrinker
from conformance.models.universe import config_class

LAYERS = dict(num_hidden_layers=2, num_attention_heads=HEADS, hidden_size=WIDTH, intermediate_size=WIDTH)
TEXT = dict(model_type="bert", vocab_size=VOCABULARY, **LAYERS)
DECODER = dict(TEXT, is_decoder=True, add_cross_attention=True)
IMAGE = dict(model_type="vit", image_size=32, patch_size=8, **LAYERS)
SOUND = dict(model_type="wav2vec2", vocab_size=VOCABULARY, **LAYERS)
TEXT_TO_TEXT = dict(model_type="t5", d_model=WIDTH, num_layers=2, num_heads=HEADS, d_kv=HEAD_DIM, d_ff=WIDTH,
                    vocab_size=VOCABULARY)
CAUSAL = dict(model_type="llama", vocab_size=VOCABULARY, num_key_value_heads=2, **LAYERS)
CODEC = dict(model_type="encodec", num_filters=4, hidden_size=16, codebook_dim=16, codebook_size=64, num_lstm_layers=1)
# What configurations that have no default are made of: by their parts' names.
COMPOSITIONS = (
    dict(encoder=TEXT, decoder=DECODER), dict(encoder=IMAGE, decoder=DECODER), dict(encoder=SOUND, decoder=DECODER),
    dict(vision_config=IMAGE, text_config=TEXT), dict(text_config=TEXT), dict(text_config=CAUSAL),
    dict(audio_config=SOUND, text_config=CAUSAL), dict(vision_config=IMAGE, text_config=CAUSAL),
    dict(text_encoder=TEXT_TO_TEXT, audio_encoder=CODEC,
         decoder=dict(vocab_size=64, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS, ffn_dim=WIDTH)),
    dict(text_encoder=TEXT_TO_TEXT), dict(question_encoder=dict(TEXT, model_type="dpr"), generator=TEXT_TO_TEXT),
)
# A backbone from another package, which need not be here; all of its kind give a pyramid of images.
FOREIGN_BACKBONE = "timm_backbone"


def _own_backbone(stages: list[int] | None) -> dict[str, Any]:
    return dict(model_type="resnet", embedding_size=16, hidden_sizes=[16, 16, 32, 32], depths=[1, 1, 1, 1],
                out_features=[f"stage{i}" for i in (1, 2, 3, 4)[-len(stages or [4]):]])


def _first(attempts: Any) -> PretrainedConfig:
    errors = []
    for attempt in attempts:
        try:
            return attempt()
        except Exception as error:
            errors.append(error)
    raise errors[0]


def _filled(config: PretrainedConfig) -> dict[str, Any]:
    """What is to be set of a configuration before anything is made smaller."""
    changes: dict[str, Any] = {k: v for k, v in OPEN.items() if getattr(config, k, v) is None}
    for field, part in vars(config).items():
        if isinstance(part, PretrainedConfig) and part.model_type == FOREIGN_BACKBONE:
            changes[field] = _own_backbone(part.out_indices)
    return changes


def base_config(model_type: str) -> PretrainedConfig:
    """The type's default configuration, or the first composition that it takes; raises the first error of all."""
    make = config_class(model_type)
    config = _first([make, *(lambda parts=parts: make(**parts) for parts in COMPOSITIONS)])
    changes = _filled(config)
    if changes:
        composed = {k: v for k, v in vars(config).items() if isinstance(v, PretrainedConfig) and k not in changes}
        config = _first([lambda: make(**changes), lambda: make(**composed, **changes)])
    return config


def small_config(base: PretrainedConfig, level: int, mrope: bool) -> PretrainedConfig:
    if not LEVELS[level]:
        return base
    kept = {k: getattr(base, k) for k in OPEN if getattr(base, k, None) is not None}
    return type(base)(**{**kept, **Shrinker(level, mrope)(base)})
