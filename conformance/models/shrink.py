"""Configurations made small by the names of their fields.

Level 1 shrinks all, each further level less: what a configuration ties together (a width that is heads x head_dim, an image
size that a table of positions has) some level leaves whole.
"""
import re
from typing import Any

from transformers import PretrainedConfig

WIDTH, HEADS, HEAD_DIM, VOCABULARY, EXPERTS, POSITIONS = 64, 4, 16, 256, 4, 512
# What each level still shrinks.
LEVELS = {1: {"layers", "vocabulary", "experts", "feedforward", "width", "positions", "image"},
          2: {"layers", "vocabulary", "experts", "feedforward", "width", "positions"},
          3: {"layers", "vocabulary", "experts", "feedforward"},
          4: {"layers", "vocabulary"},
          5: {"layers"},
          6: set()}


def _name(*words: str) -> re.Pattern:
    return re.compile(f"(^|_)({'|'.join(words)})$")


LAYERS = _name("layers?", "num_hidden", "depth", "n_blocks", "num_blocks", "num_resolutions_layers")
VOCAB = _name("vocab(_size)?(_per_layer_input)?", "n_vocab")
TOKEN = _name("ids?", "token_index", "index")
EXPERT = _name("num(_local)?_experts", "n_(routed_)?experts")
TOP_K = _name("num_experts_per_tok(en)?", "moe_top_?k", "moe_k", "top_k_experts", "num_selected_experts", "expert_top_k")
GROUP = _name("n_group", "topk_group")
FEEDFORWARD = _name("intermediate_(size|dim)", "(ffn|mlp|feedforward)_dim", "d_ff", "d_inner", "dim_feedforward",
                    "(ffn|feed_forward|ffn_hidden|ffn_intermediate)_size")
KV_HEADS = _name("(num|n)_(key_value|kv)_heads", "kv_heads")
HEAD_COUNT = _name("(num|n)(_attention|_attn|_q)?_heads?", "attention_heads", "nhead")
HEAD_SIZE = _name("head_(dim|size)", "d_kv", "d_head", "attention_head_size", "rope_head_dim", "lora_rank", "kv_channels",
                  "mamba_headdim", "key_value_channels")
SIZE = _name("hidden_(size|dim|channels|width)", "d_(model|embed|hidden)", "n_(embd|inner)", "(embed|emb|proj|model|output)_dim",
             "dim", "width", "(embedding|feature)_size", "(embedding|projection)_dim", "channels")
POSITION = _name("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length")
# Names that look like a size and tell a format.
FORMAT = re.compile("conv_|kernel|stride|patch|window|codebook|quant|chunk|sampling|relative|time_embed|type_vocab|max_2d|"
                    "num_channels|in_channels|input_channels|audio_channels|segment|extract|adapter")
SPECIAL = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1, "sep": 3, "cls": 4, "mask": 5}
LAYER_COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers")
LAYER_LISTS = ("layer_types", "layers_block_type", "block_types")


class Shrinker:
    """`mrope`: whether the model rotates by three positions, whose shares must fit the head size."""

    def __init__(self, level: int, mrope: bool):
        self.what, self.mrope = LEVELS[level], mrope
        self.tokens: dict[int, int] = {}  # ids beyond the small vocabulary, and those that they become

    def token(self, field: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or value < VOCABULARY:
            return value
        for prefix, small in SPECIAL.items():
            if field.startswith(prefix):
                return small
        return self.tokens.setdefault(value, VOCABULARY - 1 - len(self.tokens))

    def of_integer(self, field: str, value: int, config: dict[str, Any], layers: int) -> int:
        is_format = FORMAT.search(field)
        if "layers" in self.what and LAYERS.search(field) and not is_format:
            return min(value, layers)
        if "vocabulary" in self.what and VOCAB.search(field) and not is_format:
            return min(value, VOCABULARY)
        if "vocabulary" in self.what and TOKEN.search(field):
            return self.token(field, value)
        if "experts" in self.what:
            for pattern, most in ((EXPERT, EXPERTS), (TOP_K, 2), (GROUP, 1)):
                if pattern.search(field):
                    return min(value, most)
        if "feedforward" in self.what and FEEDFORWARD.search(field):
            return min(value, WIDTH if "width" in self.what else 4 * WIDTH)
        if "width" in self.what and not is_format:
            if KV_HEADS.search(field):
                return 1 if value == 1 else HEADS if value == config.get("num_attention_heads") else 2
            if HEAD_COUNT.search(field) and value > 1:
                return HEADS
            if HEAD_SIZE.search(field):
                return min(value, HEAD_DIM)
            if SIZE.search(field):
                return min(value, WIDTH)
        patch = config.get("patch_size")
        if "image" in self.what and field == "image_size" and isinstance(patch, int):
            return min(value, 4 * patch)
        if "positions" in self.what and POSITION.search(field):
            return min(value, POSITIONS)
        return value

    def of_list(self, field: str, value: list, whole: int | None, layers: int) -> list:
        integers = all(isinstance(x, int) for x in value)
        if "layers" in self.what and whole and len(value) == whole > layers and not field.startswith("conv"):
            return value[:layers]
        if "layers" in self.what and field in ("depths", "num_blocks", "layers_per_stage") and integers:
            return [min(x, 2) for x in value]
        if "vocabulary" in self.what and integers and TOKEN.search(field):
            return [self.token(field, x) for x in value]
        return value

    def of_dict(self, field: str, value: dict) -> dict:
        sections = value.get("mrope_section")
        if "width" in self.what and (sections or self.mrope and field == "rope_parameters"):
            half, share = HEAD_DIM // 2, 3
            if sections is None or len(sections) == 3:
                return {**value, "mrope_section": [half - 2 * share, share, share]}
        return value

    def __call__(self, config: PretrainedConfig) -> dict[str, Any]:
        """The arguments that make a smaller configuration of the same class."""
        fields = {k: v for k, v in vars(config).items() if not k.startswith("_")}
        whole = next((fields[k] for k in LAYER_COUNTS if isinstance(fields.get(k), int)), None)
        kinds = next((fields[k] for k in LAYER_LISTS if isinstance(fields.get(k), list)), [])
        layers = 2
        if kinds and len(kinds) == whole:  # as many layers as show each kind
            layers = max(2, min(8, max(kinds.index(kind) + 1 for kind in kinds)))
        smaller: dict[str, Any] = {}
        for field, value in fields.items():
            if field in ("transformers_version", "architectures", "dtype", "torch_dtype", "model_type"):
                continue
            if isinstance(value, PretrainedConfig):
                new = {**value.to_dict(), **self(value), "model_type": value.model_type}
            elif isinstance(value, int) and not isinstance(value, bool):
                new = self.of_integer(field, value, fields, layers)
            elif isinstance(value, list) and value:
                new = self.of_list(field, value, whole, layers)
            elif isinstance(value, dict):
                new = self.of_dict(field, value)
            else:
                continue
            if new is not value and new != value:
                smaller[field] = new
        return smaller
