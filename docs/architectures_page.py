"""Writes docs/architectures.md: which models of images and text play here, by type. `python docs/architectures_page.py`

For each type that transformers knows, a tiny random model is built from its own config class: the default config, with
its sizes made small by the names that sizes have, and `OVERRIDES` where names are not enough. Its processor is built
from its own classes and a tokenizer that has the tokens which its source names. Then the probe that begins each run
compares what the engine plays with a plain forward of the model (`engines/hf/parity.py`).
"""

import copy
import functools
import inspect
import itertools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image
from transformers import (
    FEATURE_EXTRACTOR_MAPPING,
    IMAGE_PROCESSOR_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_MAPPING,
    VIDEO_PROCESSOR_MAPPING,
)
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from viewbox.engines.hf.architectures import Architecture
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.hf.own_forward import compute_logits
from viewbox.engines.hf.parity import build_steps, compare
from viewbox.engines.hf.tiny_model import build_tokenizer as build_base_tokenizer
from viewbox.errors import ModelError
from viewbox.utils.terminal import describe_error

PAGE = Path(__file__).parent / "architectures.md"
WIDTH, SIDE, PATCH = 64, 32, 8  # of all states; of a picture; of a patch
BOUND = 1e-5  # of the probe's total variation, in float32
NO_SIZES = ("num_frames", "num_channels", "in_channels", "num_labels", "temporal_patch_size", "spatial_merge_size")
SIZES: tuple[tuple[str, int], ...] = (  # the first pattern that a name matches says its size, if it is not smaller
    (r"vocab_size", 0),  # that of the tokenizer
    (r"image_size|img_size|force_image_size", SIDE),
    (r"patch_size$", PATCH),
    (r"index_topk|kpool", 16),
    (r"topk_group|n_group|num_.*shared|n_shared", 1),
    (r"experts_per_tok|top_?k|moe_k", 2),
    (r"num_.*experts|n_routed_experts|moe_num", 4),
    (r"kv_lora_rank|q_lora_rank|o_lora_rank|lora", 16),
    (r"rope_head_dim", 8),
    (r"head_dim|head_size|kv_channels", 16),
    (r"num_key_value_heads|num_kv_heads|kv_heads", 2),
    (r"num.*heads|n_heads?$|_heads$", 4),
    (r"num_.*layers|n_layers?$|depths?$|_layers$|layer_num", 2),
    (r"moe.*intermediate|expert.*intermediate", 32),
    (r"intermediate|ffn|mlp_dim|inner|feed_?forward|mlp_hidden", 128),
    (r"sliding_window|window_size|chunk_size", 48),
    (r"max_position_embeddings|max_seq", 4096),
    (r"hidden|embed|width|d_model|n_embd|_dims?$|^dim$|channels|hidden_sizes", WIDTH),
)  # fmt: skip
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}PLACEHOLDER{% else %}{{ p.text }}{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def find_model_class(config_class: Any) -> Any:
    found = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[config_class]
    return found[0] if isinstance(found, tuple) else found


# ---------------------------------------------------------------------- configs
def shrink(given: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """Return a config's dict with small sizes."""
    given = {name: value for name, value in given.items() if name not in ("id2label", "label2id", "per_layer_config")}
    made = {name: shrink_value(name, value, vocabulary, given) for name, value in given.items()}
    layers = next((made[name] for name in ("num_hidden_layers", "n_layer", "num_layers") if made.get(name)), None)
    heads = next((n for n in ("num_attention_heads", "num_heads") if given.get(n)), None)
    for name in ("num_key_value_heads",):
        if heads and given.get(name) == given[heads]:
            made[name] = made[heads]
    for name, value in given.items():
        if (
            layers
            and isinstance(value, list)
            and len(value) == given.get("num_hidden_layers")
            and "layer_types" not in name
        ):
            made[name] = made[name][:layers]
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value) and "layer" in name:
            made[name] = list(dict.fromkeys(value))[:4]
            if layers and name in ("layer_types", "mlp_layer_types"):
                made["num_hidden_layers"] = max(2, len(made[name]), made["num_hidden_layers"])
    for name in ("layer_types", "mlp_layer_types"):
        if isinstance(made.get(name), list):
            made[name] = (made[name] * made["num_hidden_layers"])[: made["num_hidden_layers"]]
    return made


def shrink_value(name: str, value: Any, vocabulary: int, given: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping) and not all(isinstance(one, str) for one in value):
        return value
    if isinstance(value, Mapping):
        return shrink(value, vocabulary)
    if name == "mrope_section":
        return [2, 1, 1] if given.get("partial_rotary_factor") == 0.5 else [4, 2, 2]
    if name.endswith(("indexes", "indices", "layer_ids")) and isinstance(value, list | tuple) and value:
        return [0, 1]
    if name == "vision_feature_layer":
        return [-1, -2] if isinstance(value, list | tuple) else -1
    if name in NO_SIZES or isinstance(value, bool) or name.endswith(("_id", "_index", "_ids", "_token")):
        return value
    if name == "hidden_act" or not isinstance(value, int | list | tuple):
        return value
    found = next((size for pattern, size in SIZES if re.search(pattern, name)), None)
    if found is None:
        return value
    if isinstance(value, int):
        return min(value, found or vocabulary) if value > 0 else value
    if all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        return [min(one, found) for one in value]
    return value


def merge(given: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in changes.items():
        given[name] = merge(given.get(name) or {}, value) if isinstance(value, Mapping) else value
    return given


def build_config(config_class: Any, tokenizer: Any, image_id: int, marks: Sequence[int] = ()) -> Any:
    """Return a tiny config; its tokens are the tokenizer's, and a list of tokens those that stand around a picture."""
    given = config_class().to_dict()
    vision = getattr(config_class, "sub_configs", {}).get("vision_config")
    if "vision_config" in given and not given["vision_config"] and hasattr(vision, "model_type"):
        given["vision_config"] = vision().to_dict()
    rope = given.get("text_config", {}).get("rope_parameters")
    if hasattr(MODEL_MAPPING.get(config_class, None), "get_rope_index") and rope:
        rope.setdefault("mrope_section", [0])
    made = merge(shrink(given, len(tokenizer)), copy.deepcopy(OVERRIDES.get(config_class.model_type, {})))
    for name in ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype"):
        made.pop(name, None)
    for name in ("image_token_id", "image_token_index"):
        if hasattr(config_class, name) or name in config_class.attribute_map:
            made[name] = image_id
    special = iter(range(len(tokenizer) - 1, 0, -1))

    def set_ids(part: dict[str, Any]) -> None:
        for name, value in part.items():
            if isinstance(value, dict):
                set_ids(value)
            elif not isinstance(name, str):
                continue
            elif name in ("image_token_id", "image_token_index"):
                part[name] = image_id
            elif name == "eos_token_id":
                part[name] = tokenizer.eos_token_id
            elif name == "pad_token_id":
                part[name] = tokenizer.pad_token_id
            elif name.endswith(("_token_id", "_token_index")) and isinstance(value, int):
                part[name] = min(value, next(special))
            elif name.endswith("_token_ids") and isinstance(value, list | tuple):
                part[name] = [around for around, _ in zip(itertools.chain(marks, special), value, strict=False)]

    set_ids(made)
    if "vocabulary_map" in given:  # the codes of pictures are words
        codes = {
            f"IMGIMG{''.join(chr(ord('A') + int(digit)) for digit in str(code))}Z": 100 + code for code in range(64)
        }
        if config_class.model_type == "emu3":
            codes = {f"<|visual token {code:06d}|>": 100 + code for code in range(64)} | {"<|extra_200|>": 99}
        made["vocabulary_map"] = {"<image>": image_id, **codes}
    return config_class(**made)


def build_model(config: Any) -> Any:
    """Return a model with weights so wide that its logits tell tokens and pictures apart."""
    torch.manual_seed(0)
    model = find_model_class(type(config))(config).float().eval()
    size = sum(weight.numel() for weight in model.parameters())
    if size > 5e7:
        raise ValueError(f"{size / 1e6:.0f} M weights")
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.1)
        elif not weight.isfinite().all():
            torch.nn.init.zeros_(weight)
    for name, weight in model.named_parameters():
        if "gate" in name and not weight.any():  # closed at first: pictures would not be seen
            torch.nn.init.constant_(weight, 0.5)
    return model


# ---------------------------------------------------------------------- processors
@functools.cache
def get_base_tokenizer() -> Any:
    return build_base_tokenizer(["what the model said a picture q p\n"] * 4, 400)


def find_class(mapping: Any, config_class: Any) -> Any:
    try:
        found = mapping.get(config_class, None)
    except Exception:
        return None
    if isinstance(found, dict):
        return found.get("torchvision") or next((one for one in found.values() if one is not None), None)
    if isinstance(found, tuple):
        return next((one for one in found if one is not None), None)
    return found


def build_tokenizer(processor_class: Any) -> Any:
    """Return a tokenizer with all tokens that the source of a processor names."""
    from tokenizers import AddedToken

    tokenizer = copy.deepcopy(get_base_tokenizer())
    source = Path(inspect.getfile(processor_class)).read_text(encoding="utf-8") if processor_class else ""
    texts = re.findall(r"[\"'](<[^\"'\s{}]{1,40}>|\[[A-Z_]+\]|\|[A-Z_]+\|)[\"']", source)
    texts += re.findall(r"<[A-Z]+_[A-Z]+>", source)
    names = sorted(set(re.findall(r"tokenizer\.(\w+_token)\b", source)))
    own = ("bos_token", "eos_token", "pad_token", "unk_token", "mask_token", "sep_token")
    named = {name: f"<{name}>" for name in names if name not in own and not name.startswith("add_")}
    added = [*dict.fromkeys([*texts, *named.values(), "<image>", "<bos>", "<unk>"])]
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=False) for text in added])
    tokenizer.bos_token, tokenizer.unk_token = "<bos>", "<unk>"
    tokenizer._set_model_specific_special_tokens(named) if named else None
    for name, text in named.items():
        if not hasattr(tokenizer, name):
            setattr(tokenizer, name, text)
    return tokenizer


def build_image_processor(image_class: Any, changes: Mapping[str, Any]) -> Any:
    """Return an image processor whose pictures are small."""
    defaults = {name: getattr(image_class, name) for name in dir(image_class) if not name.startswith("_")}
    given: dict[str, Any] = {}
    for name in ("size", "crop_size", "max_image_size", "min_image_size", "tile_size", "image_size"):
        value = defaults.get(name)
        if isinstance(value, Mapping):
            given[name] = {key: shrink_edge(key, number) for key, number in value.items()}
        elif isinstance(value, int) and value > SIDE:
            given[name] = SIDE
    if isinstance(defaults.get("patch_size"), int):
        given["patch_size"] = PATCH
    if isinstance(defaults.get("patch_size"), Mapping):
        given["patch_size"] = {"height": PATCH, "width": PATCH}
    if isinstance(defaults.get("image_grid_pinpoints"), list):
        given["image_grid_pinpoints"] = [[2 * SIDE, SIDE], [SIDE, 2 * SIDE], [2 * SIDE, 2 * SIDE]]
    for name, value in (("min_pixels", (2 * PATCH) ** 2), ("max_pixels", (2 * SIDE) ** 2)):
        if isinstance(defaults.get(name), int):
            given[name] = value
    return image_class(**{**given, **changes})


def shrink_edge(key: str, value: Any) -> Any:
    if value is None:
        return value
    if value > 8000 or value < 0:  # counts pixels
        return (2 * PATCH) ** 2 if key.startswith(("shortest", "min")) else (2 * SIDE) ** 2
    return (2 * PATCH) ** 2 if key == "shortest_edge" and value > 2000 else SIDE


def build_processor(config_class: Any, tokenizer: Any, config: Any, count: int | None) -> Any:
    """Return the processor of a type, of its own classes.

    Args:
        count: features that a picture or tile has.
    """
    kind = config_class.model_type
    processor_class = find_class(PROCESSOR_MAPPING, config_class)
    if processor_class is None:
        raise LookupError("transformers has no processor class for it")
    changes = PROCESSORS.get(kind, {})
    image_class = find_class(IMAGE_PROCESSOR_MAPPING, config_class) or transformers.Qwen2VLImageProcessor
    image_class = changes.get("image_class", image_class)
    known = inspect.signature(processor_class.__init__).parameters
    parts: dict[str, Any] = {
        "tokenizer": tokenizer,
        "image_processor": build_image_processor(image_class, changes.get("images", {})),
    }
    if "video_processor" in known:
        videos = find_class(VIDEO_PROCESSOR_MAPPING, config_class) or transformers.Qwen2VLVideoProcessor
        parts["video_processor"] = videos()
    if "feature_extractor" in known and (sound := find_class(FEATURE_EXTRACTOR_MAPPING, config_class)):
        parts["feature_extractor"] = sound()
    vision = getattr(config, "vision_config", None)
    merge_size = getattr(vision, "spatial_merge_size", None) or getattr(config, "spatial_merge_size", None)
    offers = {
        "patch_size": PATCH,
        "img_size": SIDE,
        "image_size": SIDE,
        "spatial_merge_size": merge_size,
        "downsample_factor": getattr(config, "downsample_factor", None),
        "vision_feature_select_strategy": getattr(config, "vision_feature_select_strategy", None),
    } | dict.fromkeys(("image_seq_length", "image_seq_len", "num_image_tokens", "num_query_tokens"), count)
    parts |= {n: v for n, v in offers.items() if n in known and v is not None}
    return processor_class(**{**parts, **changes.get("parts", {})})


class StandIn:
    """A processor of a type whose own needs released files: its image processor, and its image token repeated."""

    def __init__(self, tokenizer: Any, image_processor: Any, image_token: str, count: Any) -> None:
        self.tokenizer, self.image_processor, self.image_token = tokenizer, image_processor, image_token
        self.count = count  # pixel inputs -> tokens
        self.chat_template = ""

    def __call__(self, text: Any, images: Any, **settings: Any) -> Any:
        inputs = dict(self.image_processor(images=images, return_tensors="pt"))
        first, last = (
            self.tokenizer.decode([i]) for i in (START["vision_start_token_id"], START["vision_end_token_id"])
        )
        shown = text[0].replace(self.image_token, f"{first}{self.image_token * self.count(inputs)}{last}")
        return {**self.tokenizer([shown], return_tensors="pt", add_special_tokens=False), **inputs}

    def apply_chat_template(self, messages: Any, **settings: Any) -> Any:
        return self.tokenizer.apply_chat_template(messages, chat_template=self.chat_template, **settings)


def find_placeholder(processor: Any) -> tuple[str, int, list[int]]:
    """Return the text for a picture, the token that stands for its features, and those around and between these."""
    tokenizer = processor.tokenizer
    tokens = [
        getattr(o, n, None)
        for n in ("image_placeholder_token", "image_token", "boi_token", "fake_image_token", "start_image_token")
        for o in (processor, tokenizer)
    ]
    found = getattr(processor, "image_token_id", None)
    if found is None or isinstance(found, list):
        text = next(one for one in tokens if isinstance(one, str))
        found = tokenizer.convert_tokens_to_ids(text)
    image = Image.linear_gradient("L").resize((48, 40)).convert("RGB")
    problem: Exception | None = None
    results: list[tuple[int, str, int, list[int]]] = []
    for one in dict.fromkeys(t for t in tokens if isinstance(t, str)):
        try:
            output = processor(text=[one], images=[image], return_tensors="pt", add_special_tokens=False)
        except Exception as error:
            problem = problem or error
            continue
        ids = output["input_ids"][0].tolist()
        special = [i for i in ids if i in tokenizer.added_tokens_decoder]
        image_id = found if ids.count(found) > 1 else max(special, key=special.count)
        results.append((ids.count(image_id), one, image_id, [i for i in dict.fromkeys(special) if i != image_id]))
    if not results:
        raise problem or LookupError("no placeholder")
    return max(results, key=lambda result: result[0])[1:]


# ---------------------------------------------------------------------- what plays
@dataclass
class Row:
    """What became of a type."""

    kind: str
    result: str = ""
    difference: str = ""
    processor: str = ""
    reason: str = ""

    def get_outcome(self) -> tuple[str, str, str]:
        """Return what types of one row of the table share, as its cells say it."""
        cells = (self.result, self.processor, self.reason)
        result, processor, reason = (cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
        return result, processor, reason


def try_type(config_class: Any) -> Row:
    """Return how a type plays."""
    row = Row(config_class.model_type)
    try:
        tokenizer = build_tokenizer(find_class(PROCESSOR_MAPPING, config_class))
        config = build_config(config_class, tokenizer, tokenizer.convert_tokens_to_ids("<image>"))
        Architecture(config).check_forward()
        row.processor = "own"
        processor, config = fit_processor(config_class, tokenizer, config, row)
        model = build_model(config)
    except ModelError as error:
        return refuse(row, error)
    except Exception as error:
        row.result, row.processor, row.reason = "could not be built", "", describe_error(error, 110)
        return row
    try:
        tokens = ChatTokens(processor, config)
        if (problem := find_problem(model, tokens)) is not None:
            row.result, row.reason = "could not be built", problem
            return row
        found = compare(model, tokens)
        row.difference = f"{found.difference:.0e}"
        if found.difference > BOUND:
            found.check(tokens)
    except ModelError as error:
        return refuse(row, error)
    lack = tokens.architecture.find_lack()
    row.result, row.reason = ("exact, last resort", lack) if lack else ("exact", "")
    if not lack and tokens.architecture.has_states:
        row.result = "exact, with states"
    return row


def refuse(row: Row, error: ModelError) -> Row:
    """Return a row with the reason why a run would end."""
    row.result, row.reason = "refused", str(error).removeprefix(f"model_type {row.kind!r}").lstrip(": ")
    row.reason = re.split("; allowed|; docs/", row.reason)[0]
    return row


@torch.no_grad()
def find_problem(model: Any, tokens: ChatTokens) -> str | None:
    """Return why the tiny model says nothing: its own forward fails, or does not depend on what the pictures show."""
    try:
        steps = build_steps(tokens)
    except Exception:  # `compare` says why
        return None
    ids = torch.tensor([[i for some, _ in steps for i in some]])
    pictures = [picture for _, some in steps for picture in some]
    other = [
        replace(one, inputs={name: -x if x.is_floating_point() else x for name, x in one.inputs.items()})
        for one in pictures
    ]
    try:
        seen, unlike = (
            compute_logits(model, tokens.architecture, ids, some)[0, -1].softmax(-1) for some in (pictures, other)
        )
    except Exception as error:
        return f"its own forward fails: {describe_error(error, 110)}"
    return None if (seen - unlike).abs().sum() > 1e-4 else "it does not tell pictures apart"


def fit_processor(config_class: Any, tokenizer: Any, config: Any, row: Row) -> tuple[Any, Any]:
    """Return a processor, and a config whose image token is the processor's."""
    try:
        count = count_features(config)
        processor = build_processor(config_class, tokenizer, config, count)
        placeholder, image_id, marks = find_placeholder(processor)
        if len(tokenizer) > config.get_text_config().vocab_size:
            raise ValueError("it adds tokens")
    except Exception:
        row.processor = "stand-in"
        placeholder, image_id, marks = "<image>", tokenizer.convert_tokens_to_ids("<image>"), [*START.values()][:2]
        changes = PROCESSORS.get(config_class.model_type, {})
        image_class = changes.get("image_class") or find_class(IMAGE_PROCESSOR_MAPPING, config_class)
        images = build_image_processor(image_class or transformers.Qwen2VLImageProcessor, changes.get("images", {}))
        processor = StandIn(tokenizer, images, "<image>", functools.partial(count_inputs, build_model(config)))
    config = build_config(config_class, tokenizer, image_id, marks)
    template = TEMPLATE.replace("PLACEHOLDER", placeholder)
    processor.chat_template = tokenizer.chat_template = template
    return processor, config


@torch.no_grad()
def count_inputs(model: Any, inputs: Mapping[str, Any]) -> int:
    """Return how many features the vision tower gives for the outputs of an image processor."""
    known = inspect.signature(model.model.get_image_features).parameters
    output = model.model.get_image_features(**{n: x for n, x in inputs.items() if n in known}, return_dict=True)
    pooled = output.pooler_output
    return sum(one.flatten(0, -2).shape[0] for one in (pooled if isinstance(pooled, list | tuple) else [pooled]))


def count_features(config: Any) -> int | None:
    """Return how many features one square picture has, where a model takes such."""
    model = build_model(config)
    for shape in ((1, 3, SIDE, SIDE), (1, 1, 3, SIDE, SIDE)):
        try:
            return count_inputs(model, {"pixel_values": torch.rand(shape), "image_sizes": torch.tensor([[SIDE, SIDE]])})
        except Exception:
            continue
    return None


def list_types() -> list[Any]:
    """Return the config classes of all types, by name."""
    return sorted(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.keys(), key=lambda one: one.model_type)


INTRO = """# Which models play here

viewbox asks transformers what a model needs ([engine](engine.md)); it has no list of models. This table is what comes
of it for each type of `AutoModelForImageTextToText` in transformers VERSION, tried with a tiny random model of the
type's own config class (`python docs/architectures_page.py`). Your own model:
`viewbox rollout --model FOLDER --check-model`.

- *exact*: on the engine's cache, turn by turn, image features computed once. *with states*: its layers carry a state
  from token to token. *last resort*: by the model's own forward and its own cache, the whole conversation again at each
  turn, which is slower. A model at which the engine fails and its own forward does not plays so, too.
- *differs by*: the largest total variation between the engine's distribution of a next token and that of a plain
  forward of the whole conversation (two turns, three pictures), in float32. All that is exact stays below 1e-5.
- *refused*: a run ends when it starts, with this reason. *could not be built*: here, as a tiny model; nothing is said
  about the type.
- *processor*: own, of the classes of the type, with small sizes and a small vocabulary. A stand-in has the type's
  image processor, and repeats the image token as often as its tower gives features. The chat template is one for all;
  those of released models are in `tests/support/families`.

SUMMARY Types of one outcome share a row.

| plays | differs by, at most | processor | why | `model_type` |
|---|---|---|---|---|
"""


def build_page(rows: list[Row]) -> str:
    """Return the whole page."""
    counts = Counter(row.result for row in rows)
    summary = f"{len(rows)} types: " + ", ".join(f"{count} {result}" for result, count in counts.most_common()) + "."
    intro = INTRO.replace("VERSION", transformers.__version__).replace("SUMMARY", summary)
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.get_outcome(), []).append(row)
    shared = sorted(groups.items(), key=lambda group: (-counts[group[1][0].result], group[1][0].result, -len(group[1])))
    return intro + "".join(f"{write_group(*group)}\n" for group in shared)


def write_group(outcome: tuple[str, str, str], rows: list[Row]) -> str:
    """Return the row of the table for the types that have one outcome."""
    result, processor, reason = outcome
    largest = max((row.difference for row in rows if row.difference), key=float, default="")
    kinds = ", ".join(f"`{row.kind}`" for row in rows)
    return f"| {result} | {largest} | {processor} | {reason} | {kinds} |"


GRIDS = [[2 * SIDE, SIDE], [SIDE, 2 * SIDE], [2 * SIDE, 2 * SIDE]]
CLS = {"parts": {"num_additional_image_tokens": 1}}  # of CLIP, as in the released processor
START = {"vision_start_token_id": 5, "vision_end_token_id": 6, "audio_start_token_id": 7}
OVERRIDES: dict[str, dict[str, Any]] = {
    "chameleon": {"vq_config": {"num_embeddings": 64}},
    "emu3": {"vq_config": {"codebook_size": 64}},
    "qwen2_5_omni_thinker": START,
    "qwen3_omni_moe_thinker": START,
    "aria": {"projector_patch_to_query_dict": {1225: 4}, "vision_config": {"image_size": 490, "patch_size": 14}},
    "gemma4": {"vision_config": {"position_embedding_size": 1024}},
    "gemma4_unified": {"vision_config": {"mm_posemb_size": 1120}},
    "gemma3": {"mm_tokens_per_image": 4},
    "got_ocr2": {"vision_config": {"image_size": 512}},
    "granite4_vision": {
        "image_grid_pinpoints": GRIDS,
        "deepstack_layer_map": [[-1, 0]],
        "spatial_target_layers": [1],
        "downsample_rate": "1/2",
    },
    "cohere_compass": {
        "text_config": {
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]}
            }
        }
    },
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense", "sparse"]}},
    "diffusion_gemma": {"text_config": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}},
    "dots3_note": {"audio_config": {"adapter_input_size": WIDTH, "hidden_size": WIDTH}},
    "ernie4_5_vl_moe": {"text_config": {"rope_parameters": {"mrope_section": [3, 3, 2]}}},
    "hunyuan_vl": {
        "text_config": {
            "head_dim": 16,
            "rope_parameters": {"rope_type": "dynamic", "alpha": 1000.0, "mrope_section": [2, 2, 2, 2], "factor": 1.0},
        }
    },
    "inkling_mm_model": {"vision_config": {"patch_size": 40}},
    "llama4": {
        "vision_config": {
            "vision_output_dim": WIDTH,
            "projector_input_dim": WIDTH,
            "projector_output_dim": WIDTH,
            "intermediate_size": 256,
        }
    },
    "mllama": {
        "vision_config": {"vision_output_dim": 3 * WIDTH},
        "text_config": {"cross_attention_layers": [1], "num_hidden_layers": 3},
    },
    "muse_glimmer": {"out_hidden_size": 4 * WIDTH},
    "muse_spark": {"out_hidden_size": 4 * WIDTH},
    "qwen4_exp": {
        "text_config": {
            "indexer_compress_ratio": 4,
            "indexer_budget": 16,
            "indexer_head_dim": 16,
            "indexer_n_heads": 4,
            "indexer_kv_heads": 1,
        }
    },
    "kimi_k25": {"text_config": {"head_dim": 8}},
    "llava_next": {"image_grid_pinpoints": GRIDS},
    "llava_next_video": {"image_grid_pinpoints": GRIDS},
    "llava_onevision": {"image_grid_pinpoints": GRIDS},
    "deepseek_vl_hybrid": {"high_res_vision_config": {"image_size": SIDE}},
}
PROCESSORS: dict[str, dict[str, Any]] = {
    "molmo2": {"images": {"overlap_margins": [1, 1]}},
    "aria": {"images": {"max_image_size": 490}, "parts": {"size_conversion": {490: 4}}},
    "cohere2_vision": {"images": {"patch_size": 2}},
    "deepseek_vl_hybrid": {
        "images": {"high_res_size": {"height": SIDE, "width": SIDE}},
        "parts": {"num_image_tokens": 16},
    },
    "got_ocr2": {"images": {"size": {"height": 512, "width": 512}}},
    "lfm2_vl": {
        "images": {"encoder_patch_size": PATCH, "tile_size": 64, "max_image_tokens": 16, "min_image_tokens": 4}
    },
    "llava": CLS,
    "llava_next": CLS,
    "llava_next_video": CLS,
    "muse_glimmer": {"images": {"max_image_tokens": 16}},
    "step3p7": {"images": {"vision_patch_size": PATCH, "downsampler_stride": 2}},
    "granite_docling": {"parts": {"image_seq_len": 1}},
    "inkling2": {"images": {"size": {"height": 2 * PATCH, "width": 2 * PATCH}}},
    "inkling_mm_model": {"images": {"patch_size": 40}},
    "paligemma": {"images": {"image_seq_length": 16}},
    "video_llava": {"images": {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}},
    "llava_onevision": {"parts": {"num_image_tokens": 16}},
}


def main() -> None:
    """Write the page; with names of types, print their rows."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    chosen = [one for one in list_types() if not sys.argv[1:] or one.model_type in sys.argv[1:]]
    rows = []
    for one in chosen:
        rows.append(try_type(one))
        print(write_group(rows[-1].get_outcome(), rows[-1:]), flush=True)
    if not sys.argv[1:]:
        PAGE.write_text(build_page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
