"""The conventions that models were trained on, by `model_type`: the defaults of environments and endpoints.

Every entry names its sources. None means that a value is unknown: the environment's own default then applies. The table
in `docs/models.md` is made from this one. A setting in a config or on the command line overrides it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..core.messages import ToolImages
from ..core.settings import ReplyFormat
from ..images.coordinates import Coordinates

THINK = (("<think>", "</think>"),)


MODEL_SETTINGS = ("coordinates", "pixel_multiple", "reply_format", "thinking")  # of an environment


@dataclass(frozen=True)
class ModelDefaults:
    """The conventions of one `model_type`.

    `names` is a regular expression for the names under which endpoints serve the model. `tool_images` is "tool" if the
    chat template shows the image of a tool message. `pixel_multiple` is set if the model writes coordinates in pixels:
    if sides are multiples of it, the image processor does not resize the image and shift the coordinates.
    """

    source: str = "default"
    names: str = r"(?!)"  # matches nothing
    coordinates: Coordinates | None = None
    reply_format: ReplyFormat | None = None
    thinking: tuple[tuple[str, str], ...] | None = None
    tool_images: ToolImages = "user"
    pixel_multiple: int | None = None

    def to_settings(self) -> dict[str, Any]:
        """The known values, as settings of an environment."""
        return {name: value for name in MODEL_SETTINGS if (value := getattr(self, name)) is not None}


# A served name is matched in this order, so specific patterns come before general ones.
MODELS: Final[Mapping[str, ModelDefaults]] = {
    "qwen2_vl": ModelDefaults(
        "coordinates: arXiv 2409.12191, section 2 (boxes in [0, 1000)); the chat template has no tools",
        names=r"qwen-?2-?vl",
        coordinates="per_mille",
    ),
    "qwen2_5_vl": ModelDefaults(
        "coordinates: arXiv 2502.13923 and QwenLM/Qwen3-VL issue 676 (pixels of the resized input); format: the chat "
        "template of its language model, Qwen2.5 (its own has no tools); multiple: patch 14 x merge 2",
        names=r"qwen-?2[.-]?5-?vl",
        coordinates="pixel",
        reply_format="hermes",
        pixel_multiple=28,
    ),
    "qwen3_vl_moe": ModelDefaults(
        "as qwen3_vl",
        names=r"qwen-?3-?vl.*-a\d+b",
        coordinates="per_mille",
        reply_format="hermes",
        thinking=THINK,
        tool_images="tool",
    ),
    "qwen3_vl": ModelDefaults(
        "coordinates: the cookbook 2d_grounding of QwenLM/Qwen3-VL (0 to 1000); the rest: chat template",
        names=r"qwen-?3-?vl",
        coordinates="per_mille",
        reply_format="hermes",
        thinking=THINK,
        tool_images="tool",
    ),
    "qwen3_5_moe": ModelDefaults(
        "as qwen3_5",
        names=r"qwen-?3\.[56].*-a\d+b",
        coordinates="per_mille",
        reply_format="hermes",
        thinking=THINK,
        tool_images="tool",
    ),
    "qwen3_5": ModelDefaults(
        "coordinates: QwenLM/Qwen3.8-Flash-Next issue 4 (0 to 1000, as before); format: that of Qwen3, since the chat "
        "template's own (parameters as XML tags) is not read; the rest: chat template",
        names=r"qwen-?3\.[56]",
        coordinates="per_mille",
        reply_format="hermes",
        thinking=THINK,
        tool_images="tool",
    ),
    "gemma3": ModelDefaults(
        "format: Gemma's documentation of function calling (a JSON object with name and parameters); the chat template "
        "has no tools and no thinking, coordinates are not documented (google/gemma-3-4b-it discussion 38)",
        names=r"gemma-?3(?![\dn])|medgemma",
        reply_format="json",
    ),
    "gemma4": ModelDefaults(
        "thinking: chat template; its tool syntax is not read, and no documentation of coordinates was found",
        names=r"gemma-?4(?!\d)",
        thinking=(("<|channel>thought", "<channel|>"), *THINK),
    ),
    "llava_onevision": ModelDefaults("default (the chat template has no tools)", names=r"llava-?onevision"),
    "llava_next": ModelDefaults(
        "default (the chat template has no tools; haotian-liu/LLaVA issue 606: boxes were fractions of the padded "
        "square, which viewbox does not support)",
        names=r"llava-?(v?1\.6|next)",
    ),
    "idefics3": ModelDefaults("default (the chat template has no tools)", names=r"idefics-?3"),
    "smolvlm": ModelDefaults("default (the chat template has no tools)", names=r"smolvlm"),
    "internvl": ModelDefaults(
        "coordinates: InternVL's documentation, chat data format, grounding (0 to 1000); format: the chat template of "
        "its language model, Qwen2.5 or Qwen3",
        names=r"internvl-?[23]",
        coordinates="per_mille",
        reply_format="hermes",
    ),
    "mistral3": ModelDefaults(
        "thinking: Magistral's system prompt; the chat template's tool syntax ([TOOL_CALLS]) is not read",
        names=r"mistral-small-?3\.|magistral|ministral-?3",
        thinking=(("[THINK]", "[/THINK]"), *THINK),
    ),
    "pixtral": ModelDefaults("default (the chat template's tool syntax, [TOOL_CALLS], is not read)", names=r"pixtral"),
    "glm4v_moe": ModelDefaults(
        "as glm4v", names=r"glm-?4\.5v|glm-?4\.6v(?!-flash)", coordinates="per_mille", thinking=THINK
    ),
    "glm46v": ModelDefaults("as glm4v", names=r"glm-?4\.6v-flash", coordinates="per_mille", thinking=THINK),
    "glm4v": ModelDefaults(
        "coordinates: zai-org/GLM-V issue 114 and the model card of GLM-4.5V (scaled by 1000); thinking: model card; "
        "the chat template's tool syntax (arguments as XML tags) is not read",
        names=r"glm-?4\.1v|glm-?4v",
        coordinates="per_mille",
        thinking=THINK,
    ),
    "kimi_vl": ModelDefaults(
        "coordinates: the demo of MoonshotAI/Kimi-VL and its issues 52 and 56 (fractions); thinking: the model card of "
        "Kimi-VL-A3B-Thinking",
        names=r"kimi-?vl",
        coordinates="unit",
        thinking=(("◁think▷", "◁/think▷"), *THINK),
    ),
    "mllama": ModelDefaults(
        "format: chat template (a JSON object with name and parameters); coordinates are not documented",
        names=r"llama-?3\.2.*vision",
        reply_format="json",
    ),
    "minicpmv": ModelDefaults("default", names=r"minicpm-?(v|o)"),
}


def get_model_defaults(model_type: str) -> ModelDefaults:
    """The conventions of a `model_type` (of a transformers config); all unknown if it is not in the table.

    >>> get_model_defaults("qwen3_vl").to_settings()
    {'coordinates': 'per_mille', 'reply_format': 'hermes', 'thinking': (('<think>', '</think>'),)}
    >>> get_model_defaults("other").to_settings()
    {}
    """
    return MODELS.get(model_type, ModelDefaults())


def find_model_type(name: str) -> str | None:
    """The `model_type` that a served model's name matches; None if it matches none.

    >>> find_model_type("Qwen/Qwen2.5-VL-7B-Instruct"), find_model_type("qwen3-vl:8b"), find_model_type("gpt-x")
    ('qwen2_5_vl', 'qwen3_vl', None)
    """
    plain = name.lower().replace("_", "-")
    return next((kind for kind, model in MODELS.items() if re.search(model.names, plain)), None)


def find_model_settings(name: str) -> dict[str, Any]:
    """The environment settings that follow from a served model's name; {} if the name is unknown.

    >>> find_model_settings("Qwen/Qwen2.5-VL-7B-Instruct"), find_model_settings("gpt-x")
    ({'coordinates': 'pixel', 'pixel_multiple': 28, 'reply_format': 'hermes'}, {})
    """
    kind = find_model_type(name)
    return {} if kind is None else get_model_defaults(kind).to_settings()


def build_markdown_table() -> str:
    """The table in `docs/models.md`."""
    rows = ["| `model_type` | reply format | coordinates | thinking | a tool's image | source |", "|" + "---|" * 6]
    for kind, model in MODELS.items():
        size = f" (sides in multiples of {model.pixel_multiple})" if model.pixel_multiple else ""
        tags = ", ".join(f"`{opening}` `{closing}`" for opening, closing in model.thinking or ()).replace("|", "\\|")
        cells = (model.reply_format or "default", f"{model.coordinates or 'default'}{size}", tags or "default")
        place = "in its message" if model.tool_images == "tool" else "in a user message"
        rows.append(f"| `{kind}` | {' | '.join(cells)} | {place} | {model.source} |")
    return "\n".join(rows) + "\n"


def get_model_settings(env: object) -> dict[str, Any]:
    """The settings of an environment that follow from the model it was made for."""
    return {name: getattr(env, name) for name in MODEL_SETTINGS}
