"""Configurations made small by the names of their fields.

Level 1 shrinks all, each further level less: what a configuration ties together (a width that is heads x head_dim, an
image size that a table of positions has) some level leaves whole.
"""
import re
from typing import Any

from transformers import PretrainedConfig

WIDTH, HEADS, HEAD_DIM, VOCABULARY, EXPERTS, POSITIONS = 64, 4, 16, 256, 4, 512
# What each level still shrinks; "deep": to more layers than two, for models whose kinds of layers come by a period.
EVERYTHING = {"layers", "vocabulary", "experts", "feedforward", "width", "positions", "image"}
LEVELS = {1: EVERYTHING, 2: EVERYTHING | {"deep"}, 3: EVERYTHING - {"image"},
          4: EVERYTHING - {"image", "width", "positions"}, 5: {"layers", "vocabulary"}, 6: {"layers"}, 7: set()}
FEW, SEVERAL = 2, 8  # layers


def _name(*words: str) -> re.Pattern:
    return re.compile(f"(^|_)({'|'.join(words)})$")


LAYERS = _name("layers?", "num_hidden", "depth", "n_blocks", "num_blocks", "num_resolutions_layers")
VOCAB = _name("vocab(_size)?(_per_layer_input)?", "n_vocab")
TOKEN = _name("ids?", "token_index", "index")
EXPERT = _name("num(_local)?_experts", "n_(routed_)?experts")
TOP_K = _name("num_experts_per_tok(en)?", "moe_top_?k", "moe_k", "top_k_experts", "num_selected_experts",
              "expert_top_k")
GROUP = _name("n_group", "topk_group", "num_expert_groups?")
FEEDFORWARD = _name("intermediate_(size|dim)", "(ffn|mlp|feedforward)_dim", "d_ff", "d_inner", "dim_feedforward",
                    "(ffn|feed_forward|ffn_hidden|ffn_intermediate)_size")
KV_HEADS = _name("(num|n)_(key_value|kv)_heads", "kv_heads")
HEAD_COUNT = _name("(num|n)(_attention|_attn|_q)?_heads?", "attention_heads", "nhead")
HEAD_SIZE = _name("head_(dim|size)", "d_kv", "d_head", "attention_head_size", "rope_head_dim", "rotary_dim",
                  "lora_rank", "kv_channels", "mamba_headdim", "key_value_channels")
SIZE = _name("hidden_(size|dim|channels|width)", "d_(model|embed|hidden)", "n_(embd|inner)",
             "(embed|emb|proj|model|output|codebook|embedding|projection)_dim", "dim", "width",
             "(embedding|feature)_size", "channels", "groups")
FILTERS = _name("(num|n)_filters")  # doubled by each stage
POSITION = _name("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length")
# Names that look like a size and tell a format.
FORMAT = re.compile("conv_|kernel|stride|patch|window|codebook(?!_dim)|quant|chunk|sampling|relative|time_embed|"
                    "type_vocab|max_2d|num_channels|in_channels|input_channels|audio_channels|segment|extract|adapter")
NO_SIZE = ("transformers_version", "architectures", "dtype", "torch_dtype", "model_type", "_out_features")
SPECIAL = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1, "sep": 3, "cls": 4, "mask": 5}
# What a default configuration may leave open and a model needs.
OPEN = {"prediction_length": 8, "context_length": 16, "vocab_size": VOCABULARY, "n_routed_experts": EXPERTS,
        "n_shared_experts": 1, "num_experts": EXPERTS, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
        "pad_token_id": 0, "mask_token_id": 5}
LAYER_COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers")
LAYER_LISTS = ("layer_types", "layers_block_type", "block_types")


def _by_layer(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(str(k).isdecimal() for k in value)


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
                expand = config.get("mamba_expand") if field.startswith("mamba") else 1
                return HEADS * expand if isinstance(expand, int) else HEADS
            if field == "qk_head_dim":  # a part with positions and one without
                return min(value, 2 * HEAD_DIM)
            if HEAD_SIZE.search(field):
                return min(value, HEAD_DIM)
            if FILTERS.search(field):
                return min(value, WIDTH // 8)
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

    def of_dict(self, field: str, value: dict, config: dict[str, Any], layers: int) -> dict:
        if "layers" in self.what and _by_layer(value):
            return {k: v for k, v in value.items() if int(k) < layers}
        sections = value.get("mrope_section")
        if "width" in self.what and (sections or self.mrope and field == "rope_parameters"):
            factor = value.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1
            half = int(HEAD_DIM * factor) // 2
            share = 3 * half // 8
            if sections is None or len(sections) == 3:
                return {**value, "mrope_section": [half - 2 * share, share, share]}
        return value

    def __call__(self, config: PretrainedConfig) -> dict[str, Any]:
        """The arguments that make a smaller configuration of the same class."""
        fields = {k: v for k, v in vars(config).items() if not k.startswith("_") or k == "_out_features"}
        whole = next((fields[k] for k in LAYER_COUNTS if isinstance(fields.get(k), int)), None)
        kinds = next((fields[k] for k in LAYER_LISTS if isinstance(fields.get(k), list)), [])
        outputs = fields.get("_out_features") or []
        stages = [name for name in fields.get("stage_names", ()) if name != "stem"]
        layers = max(SEVERAL if "deep" in self.what else FEW, len(outputs) if stages else 0)
        if kinds and len(kinds) == whole:  # as many layers as show each kind
            layers = max(layers, min(SEVERAL, max(kinds.index(kind) + 1 for kind in kinds)))
        smaller: dict[str, Any] = {}
        if "layers" in self.what and whole and len(stages) == whole > layers and outputs:  # a backbone: the last ones
            smaller["out_features"] = [f"stage{i}" for i in range(layers - len(outputs) + 1, layers + 1)]
            smaller["out_indices"] = None
        for field, value in fields.items():
            if field in NO_SIZE:
                continue
            if isinstance(value, PretrainedConfig):
                own = {k: v for k, v in value.to_diff_dict().items() if not _by_layer(v)}  # which the class makes again
                new = {**own, **self(value), "model_type": value.model_type}
            elif isinstance(value, int) and not isinstance(value, bool):
                new = self.of_integer(field, value, fields, layers)
            elif isinstance(value, list) and value:
                new = self.of_list(field, value, whole, layers)
            elif isinstance(value, dict):
                new = self.of_dict(field, value, fields, layers)
            elif value is None and "vocabulary" in self.what:
                new = HEAD_DIM if field == "head_dim" and "width" in self.what else OPEN.get(field)
            else:
                continue
            if new is not value and new != value:
                smaller[field] = new
        return smaller
