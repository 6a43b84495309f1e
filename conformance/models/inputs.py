"""Inputs of a model, made from what it says itself: the signature of `forward`, the shapes in its documentation, the
numbers of its configuration.

A shape is written as Transformers' documentation writes it, "batch_size, num_channels, height, width": each word is an
entry of WORDS, or the field of that name in the configuration.
"""
import inspect
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Recipe:
    """How to make a model and its inputs. `image`, `sound`: which of the forms below; `size`, `frames`, `mel`: 0 for
    what the configuration says. `own`: the weights are those that the class begins with. `tokens`: (id, how many) that
    stand for what another modality brings."""
    model: str = ""
    level: int = 1
    mode: str = "plain"
    batch: int = 2
    length: int = 32
    image: int = 0
    sound: int = 0
    size: int = 0
    frames: int = 0
    mel: int = 0
    own: bool = False
    mask: bool = True
    tokens: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Without what is as usual."""
        return {f.name: v for f, v in zip(fields(self), asdict(self).values()) if v != f.default}

    @staticmethod
    def from_json(found: dict[str, Any]) -> "Recipe":
        return Recipe(**{**found, "tokens": tuple(tuple(pair) for pair in found.get("tokens", ()))})


# Which arguments are given (`mode`). full: text and every other modality; masked: and the masks of these; grid: text,
# and the sizes of images; plain: what a default call has; text: tokens alone; main: the main input alone; documented:
# all that have a documented shape.
MODALITIES = ("pixel_values", "image_grid_thw", "image_grid_hw", "image_sizes", "input_features", "input_values",
              "bbox", "spatial_shapes", "pixel_values_videos", "audio_values", "input_audio_features",
              "image_position_ids", "pixel_position_ids", "num_frames_per_video")
MASKS = ("feature_attention_mask", "input_features_mask", "audio_attention_mask", "padding_mask", "audio_mask",
         "pixel_attention_mask", "pixel_mask")
GRIDS = ("image_grid_thw", "image_grid_hw", "grid_thw", "spatial_shapes", "pixel_attention_mask", "image_sizes")
# Not among the documented ones: what replaces another input, what training or a cache brings.
NOT_GIVEN = re.compile("labels|embeds$|past_key_values|head_mask|encoder_outputs|cache|return_|output_|_mask$|masks$|"
                       "position_ids|target|bool_masked_pos|mask_time_indices|decoder_(?!input_ids)")

# The forms that images, spectra, waves and series come in; a recipe says which.
PATCHES = "num_patches, num_channels * temporal_patch_size * patch_size * patch_size"
IMAGE_FORMS = ("batch_size, num_channels, height, width", PATCHES,
               "batch_size, num_frames, num_channels, height, width", "batch_size, 1, num_channels, height, width",
               "num_patches, num_channels, patch_size, patch_size",
               "batch_size, num_patches, num_channels * patch_size * patch_size",
               "num_patches, num_channels * patch_size * patch_size",
               "batch_size, 2, num_channels, height, width", "batch_size, 1, 1, num_channels, height, width")
SPECTRUM_FORMS = ("batch_size, mel_bins, spectrum_length", "batch_size, spectrum_length, mel_bins",
                  "batch_size, 1, 1001, 64", "batch_size, 1, spectrum_length, mel_bins", "spectrum_length, mel_bins")
WAVE_FORMS = ("batch_size, 16000", "batch_size, audio_channels, 8000", "batch_size, max_length, mel_bins",
              "batch_size, 64, mel_bins", "batch_size, 1, 16000")
SERIES_FORMS = ("batch_size, past", "batch_size, past, series")
IMAGES = re.compile("^(.*pixel_values.*|images|images_values|source_images)$")
SPECTRA = re.compile("^(input_features|audio_features|input_audio_features|audio_input_features|clean_input_features)$")
WAVES = re.compile("^(input_values|audio_values|audio|waveform|spectrogram)$")
SERIES = re.compile("^(past|future)_(values|observed_mask|time_features)$")
MEL_BINS = ("num_mel_bins", "n_mels", "feature_size", "input_feat_per_channel", "input_dim", "mel_bins",
            "num_freq_bins", "input_size")


class Words(dict):
    """The numbers that the words of shapes stand for, of one model and recipe."""

    def __init__(self, config: PretrainedConfig, recipe: Recipe):
        self.config, self.recipe = config, recipe
        B = recipe.batch
        positions = self.number(("max_position_embeddings", "n_positions", "max_target_positions"), "text", 0)
        T = min(recipe.length, positions) if positions > 1 else recipe.length
        high, wide = self.image_size()
        merge = self.number(("spatial_merge_size", "merge_size", "downsample_factor"), "vision", 2)
        patches = 4 * merge * merge
        past = self.number(("context_length",), "", 32)
        lags = self.field(("lags_sequence",), "") or [0]
        super().__init__(
            batch_size=B, num_images=B, num_videos=B, num_audios=B, num_images_or_videos=1, point_batch_size=1,
            num_points=1, num_boxes=1, length=T, sequence_length=T, seq_len=T, input_ids_length=T, text_seq_len=T,
            target_sequence_length=T, text_sequence_length=T, encoder_sequence_length=T, height=high, width=wide,
            image_size=high, frame_size=high, merge=merge, num_patches=patches, total_patches=patches,
            max_patches=patches,
            num_channels=self.number(("num_channels", "in_channels", "in_chans", "image_channels"), "vision", 3),
            num_frames=recipe.frames or self.number(("num_frames", "frames_per_clip"), "vision", 8),
            patch_size=self.number(("patch_size", "spatial_patch_size"), "vision", 14),
            temporal_patch_size=self.number(("temporal_patch_size",), "vision", 2),
            mel_bins=recipe.mel or self.number(MEL_BINS, "audio|encoder|speech", 80),
            spectrum_length=recipe.frames or 2 * self.number(("max_source_positions",), "audio|encoder", 100),
            audio_channels=self.number(("audio_channels",), "", 1), max_length=self.number(("max_length",), "", 100),
            past=past + max(lags), future=self.number(("prediction_length",), "", 8), episode_length=T, entity_length=4,
            series=self.number(("num_input_channels", "input_size"), "", 1), num_visual_features=4, visual_pos_dim=4,
            max_mention_length=4, act_dim=self.number(("act_dim", "max_action_dim", "action_dim"), "", 4),
            time_features=self.number(("num_time_features",), "", 0), frames=16, num_latents=16)

    def parts(self, hint: str) -> list[Any]:
        """The configuration and its parts, those whose name has the hint first."""
        first, then, todo = [], [], [("", self.config)]
        while todo:
            name, part = todo.pop(0)
            values = part if isinstance(part, dict) else vars(part)
            (first if hint and re.search(hint, name) else then).append(part)
            todo += [(f"{name}.{k}", v) for k, v in values.items()
                     if isinstance(v, PretrainedConfig) or isinstance(v, dict) and k.endswith("config")]
        return first + then

    def field(self, names: tuple[str, ...], hint: str) -> Any:
        for part in self.parts(hint):
            for name in names:
                value = part.get(name) if isinstance(part, dict) else getattr(part, name, None)
                if value is not None and not isinstance(value, bool):
                    return value
        return None

    def number(self, names: tuple[str, ...], hint: str, default: int) -> int:
        value = self.field(names, hint)
        value = value[0] if isinstance(value, (list, tuple)) and value else value
        return value if isinstance(value, int) else default

    def image_size(self) -> tuple[int, int]:
        size = self.recipe.size or self.field(("image_size", "img_size", "crop_size"), "vision") or 224
        if isinstance(size, dict):
            size = size.get("height", 224), size.get("width", 224)
        size = tuple(size) if isinstance(size, (list, tuple)) else (size,)
        return (size[0], size[1 if len(size) > 1 else 0])

    def __missing__(self, word: str) -> int:
        value = self.number((word,), "", 0)
        if not value:
            raise KeyError(word)
        return value

    def shape(self, text: str) -> list[int]:
        return [int(eval(word, {"__builtins__": {}}, self)) for word in text.split(",") if word.strip()]


DOCUMENTED = re.compile(r"^\s*(\w+) \(`?(?:torch\.)?(\w*Tensor)[^)]*?of shape `?\(+([^)]*)\)", re.M)


def documented(model: PreTrainedModel) -> dict[str, tuple[str, str]]:
    """Argument: (type of tensor, shape) from the documentation of `forward`."""
    return {m[1]: (m[2], m[3]) for m in DOCUMENTED.finditer(type(model).forward.__doc__ or "")}


class Maker:
    """Makes the inputs of one model by one recipe."""

    def __init__(self, model: PreTrainedModel, recipe: Recipe):
        self.recipe, self.words = recipe, Words(model.config, recipe)
        self.signature = inspect.signature(model.forward).parameters
        self.documented = documented(model)
        self.main = getattr(model, "main_input_name", None) or "input_ids"
        self.generator = torch.Generator().manual_seed(0)
        vocabulary = self.words.number(("vocab_size", "n_vocab"), "text|decoder", 256)
        self.highest = max(8, min(vocabulary, 256) - 60) if vocabulary > 80 else vocabulary
        self.made: dict[str, torch.Tensor] = {}

    def normal(self, shape: str) -> torch.Tensor:
        return torch.randn(self.words.shape(shape), generator=self.generator)

    def tokens(self, batch: int, length: int) -> torch.Tensor:
        lowest = 6 if self.highest > 8 else 0  # below are the tokens that pad, begin and end
        ids = torch.randint(lowest, self.highest, (batch, length), generator=self.generator)
        at = 1
        for token, count in self.recipe.tokens:
            if (missing := at + count + 1 - ids.shape[1]) > 0:
                more = torch.randint(lowest, self.highest, (batch, missing + 1), generator=self.generator)
                ids = torch.cat([ids, more], 1)
            ids[:, at:at + count] = token
            at += count + 1
        return ids

    def image(self, name: str) -> torch.Tensor:
        form = self.recipe.image
        if not form and any(grid in self.signature for grid in ("image_grid_thw", "grid_thw", "image_grid_hw")):
            form = 1
        shape = IMAGE_FORMS[form]
        if not form and "video" in name:
            shape = IMAGE_FORMS[2]
        return self.normal(shape)

    def series(self, name: str) -> torch.Tensor:
        shape = SERIES_FORMS[1 if self.recipe.sound or self.words["series"] > 1 else 0]
        shape = "batch_size, past, time_features" if name.endswith("features") else shape
        if name.startswith("future"):
            shape = shape.replace("past", "future")
        x = self.normal(shape)
        return torch.ones_like(x) if "mask" in name else x

    def grid(self, name: str) -> torch.Tensor:
        side = 2 * self.words["merge"]
        return torch.tensor([[1, side, side] if "thw" in name else [side, side]])

    def value(self, name: str) -> torch.Tensor | None:
        """The argument of that name; None where nothing says what it is."""
        words, recipe, ids = self.words, self.recipe, self.made.get("input_ids")
        like_ids = ids.shape if ids is not None else (recipe.batch, words["length"])
        if name == "input_ids":
            return self.tokens(recipe.batch, words["length"])
        if name in ("decoder_input_ids", "text_input_ids", "tokens"):
            codebooks = words.number(("num_codebooks",), "decoder", 1) if "num_codebooks" in self.shape_of(name) else 1
            sizes = recipe.batch * codebooks, words["length"]
            return torch.randint(0, max(2, self.highest), sizes, generator=self.generator)
        if name in ("attention_mask", "text_attention_mask"):
            return torch.ones(like_ids, dtype=torch.long)
        if name in ("token_type_ids", "mm_token_type_ids"):
            special = torch.zeros(like_ids, dtype=torch.long)
            for token, _ in recipe.tokens:
                special[ids == token] = 1
            return special
        if name == "position_ids":
            return torch.arange(words["length"])[None].expand(recipe.batch, words["length"])
        if name in ("image_grid_thw", "image_grid_hw", "grid_thw", "video_grid_thw", "image_grid_hws", "grid_hws"):
            return self.grid(name)
        if name == "spatial_shapes":
            side = 2 * words["merge"]
            return torch.tensor([[side, side]] * recipe.batch)
        if name in ("image_sizes", "target_sizes"):
            return torch.tensor([[words["height"], words["width"]]] * recipe.batch)
        if name == "pixel_attention_mask" and recipe.image != 3:
            return torch.ones(words.shape("batch_size, num_patches"), dtype=torch.long)
        if name == "pixel_attention_mask":
            return torch.ones(words.shape("batch_size, 1, height, width"), dtype=torch.long)
        if name in ("image_position_ids", "pixel_position_ids"):
            side = 2 * words["merge"]
            at = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="xy"), -1)
            return at.reshape(1, side * side, 2).expand(recipe.batch, side * side, 2)
        if name in ("bbox", "input_boxes"):
            corners = torch.tensor([1, 2, 5, 8]).expand(*like_ids, 4)
            return corners / 10 if self.documented.get(name, ("",))[0] == "FloatTensor" else corners
        if IMAGES.match(name):
            return self.image(name)
        if SPECTRA.match(name):
            return self.normal(SPECTRUM_FORMS[recipe.sound % len(SPECTRUM_FORMS)])
        if WAVES.match(name):
            return self.normal(WAVE_FORMS[recipe.sound % len(WAVE_FORMS)])
        if SERIES.match(name):
            return self.series(name)
        if name == "pixel_mask":
            return torch.ones(words.shape("batch_size, height, width"), dtype=torch.long)
        if name in MASKS:
            return torch.ones(words.shape("batch_size, spectrum_length"), dtype=torch.long)
        if name in ("inputs_embeds", "hidden_states", "encoder_hidden_states", "input_embeds"):
            width = words.number(("hidden_size", "d_model", "embed_dim", "n_embd", "dim"), "", 64)
            packed = "grid_thw" in self.signature or "batch" not in self.shape_of(name, "batch")
            if packed:
                return self.normal(PATCHES)
            return torch.randn(recipe.batch, words["length"], width, generator=self.generator)
        if name in ("timestep", "timesteps", "time_step") and name not in self.documented:
            return torch.ones(recipe.batch)
        return self.from_documentation(name)

    def shape_of(self, name: str, otherwise: str = "") -> str:
        return self.documented.get(name, ("", otherwise))[1]

    def from_documentation(self, name: str) -> torch.Tensor | None:
        if name not in self.documented:
            mask = torch.ones(self.recipe.batch, self.words["length"], dtype=torch.long)
            return mask if name.endswith("mask") else None
        kind, text = self.documented[name]
        try:
            shape = self.words.shape(text)
        except Exception:
            return None
        if name.endswith(("mask", "masks")):
            return torch.ones(shape, dtype=torch.bool if kind == "BoolTensor" else torch.long)
        if kind in ("LongTensor", "IntTensor"):
            return torch.zeros(shape, dtype=torch.long)
        if kind == "BoolTensor":
            return torch.zeros(shape, dtype=torch.bool)
        # Points, boxes and times lie in the image, the visual positions in the unit square: all are in [0, 1) here.
        inside = name.endswith(("points", "boxes", "pos", "times"))
        return (torch.rand if inside else torch.randn)(shape, generator=self.generator)

    def names(self) -> list[str]:
        signature, mode = self.signature, self.recipe.mode
        required = [n for n, p in signature.items() if p.default is p.empty
                    and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        text = ["input_ids"] if "input_ids" in signature else []
        main = [self.main] if self.main in signature or any(p.kind == p.VAR_KEYWORD for p in signature.values()) else []
        chosen = {"text": text or main, "main": main}.get(mode, text + main)
        if mode in ("full", "masked", "grid"):
            wanted = {"full": MODALITIES, "masked": MODALITIES + MASKS, "grid": GRIDS}[mode]
            chosen += [n for n in wanted if n in signature]
            if "pixel_values" in chosen and "pixel_values_videos" in chosen:  # one of the two is enough
                chosen.remove("pixel_values_videos")
        if mode in ("full", "masked") and text:
            chosen += [n for n in ("mm_token_type_ids", "token_type_ids") if n in signature]
        if mode == "documented":
            chosen += [n for n in signature if n in self.documented and not NOT_GIVEN.search(n)]
        chosen += required
        if "input_ids" in chosen and "attention_mask" in signature and self.recipe.mask:
            chosen.append("attention_mask")
        if "decoder_input_ids" in signature and mode != "main":
            chosen.append("decoder_input_ids")
        return list(dict.fromkeys(chosen))

    def __call__(self) -> dict[str, torch.Tensor]:
        for name in self.names():
            value = self.value(name)
            if value is not None:
                self.made[name] = value
        return self.made


def make_inputs(model: PreTrainedModel, recipe: Recipe) -> dict[str, torch.Tensor]:
    """The same inputs each time, on the CPU."""
    return Maker(model, recipe)()
