"""The conventions that models were trained on, by `model_type`: the defaults of environments and endpoints.

Every entry names its sources, which stand only here. None means that a value is unknown: the environment's own default
then applies, as for every model that is not listed. The table in `docs/models.md` is made from this one. A setting in a
config or on the command line overrides it.
"""

import re
from dataclasses import dataclass

from ..core.messages import ToolImages
from ..core.settings import ReplyFormat
from ..images.coordinates import Coordinates

THINK = (("<think>", "</think>"),)
MODEL_SETTINGS = ("coordinates", "pixel_multiple", "reply_format", "thinking")  # of an environment


@dataclass(frozen=True)
class ModelDefaults:
    """The conventions of one kind of model.

    `kinds` are its model types. `names` is a regular expression for the names under which endpoints serve the model.
    `tool_images` is "tool" if the chat template shows the image of a tool message. `pixel_multiple` is set if the model
    writes coordinates in pixels: if sides are multiples of it, the image processor does not resize the image and shift
    the coordinates."""

    kinds: tuple[str, ...] = ()
    names: str = r"(?!)"  # matches nothing
    source: str = ""
    coordinates: Coordinates | None = None
    reply_format: ReplyFormat | None = None
    thinking: tuple[tuple[str, str], ...] | None = None
    tool_images: ToolImages = "user"
    pixel_multiple: int | None = None

    def to_settings(self) -> dict[str, object]:
        """Return the known values, as settings of an environment."""
        return {name: value for name in MODEL_SETTINGS if (value := getattr(self, name)) is not None}


# A served name is matched in this order.
MODELS = (
    ModelDefaults(
        ("qwen2_vl",),
        r"qwen-?2-?vl",
        "coordinates: arXiv 2409.12191, section 2 (boxes in [0, 1000)); the chat template has no tools",
        coordinates="per_mille",
    ),
    ModelDefaults(
        ("qwen2_5_vl",),
        r"qwen-?2[.-]?5-?vl",
        "coordinates: arXiv 2502.13923 and QwenLM/Qwen3-VL issue 676 (pixels of the resized input); format: the chat "
        "template of its language model, Qwen2.5 (its own has no tools); multiple: patch 14 x merge 2",
        coordinates="pixel",
        reply_format="hermes",
        pixel_multiple=28,
    ),
    ModelDefaults(
        ("qwen3_vl", "qwen3_vl_moe"),
        r"qwen-?3-?vl",
        "coordinates: the cookbook 2d_grounding of QwenLM/Qwen3-VL (0 to 1000); the rest: chat template",
        coordinates="per_mille",
        reply_format="hermes",
        thinking=THINK,
        tool_images="tool",
    ),
    ModelDefaults(
        ("qwen3_5", "qwen3_5_moe"),
        r"qwen-?3\.[56]",
        "coordinates: QwenLM/Qwen3.8-Flash-Next issue 4 (0 to 1000, as before); the rest: chat template (parameters as "
        "XML tags)",
        coordinates="per_mille",
        thinking=THINK,
        tool_images="tool",
    ),
    ModelDefaults(
        ("gemma3",),
        r"gemma-?3(?![\dn])|medgemma",
        "format: Gemma's documentation of function calling (name and parameters as JSON, or Python calls); the chat "
        "template has no tools and no thinking; coordinates are not documented (google/gemma-3-4b-it discussion 38: "
        "Gemini's, likely)",
        reply_format="json",
    ),
    ModelDefaults(
        ("gemma4",),
        r"gemma-?4(?!\d)",
        "coordinates: gemma4.md of huggingface/blog, written with checkpoints of every size before their release (0 to "
        "1000; its own box_2d has y first, where the prompt asks for x first); thinking: chat template; calls: chat "
        "template (call:name{…})",
        coordinates="per_mille",
        thinking=(("<|channel>thought", "<channel|>"), *THINK),
    ),
    ModelDefaults(
        ("internvl",),
        r"internvl-?[23]",
        "coordinates: InternVL's documentation, chat data format, grounding (0 to 1000); format: the chat template of "
        "its language model, Qwen2.5 or Qwen3",
        coordinates="per_mille",
        reply_format="hermes",
    ),
    ModelDefaults(
        ("mistral3",),
        r"mistral-small-?3\.|magistral|ministral-?3",
        "thinking: Magistral's system prompt; calls: chat template ([TOOL_CALLS]), which takes text only from a tool; "
        "boxes are documented for Mistral Large 4 only (Mistral's cookbook)",
        thinking=(("[THINK]", "[/THINK]"), *THINK),
    ),
    ModelDefaults(
        ("glm4v", "glm4v_moe", "glm46v"),
        r"glm-?4\.[156]v|glm-?4v",
        "coordinates: the skill glmv-grounding of zai-org, zai-org/GLM-V issue 114 and the model card of GLM-4.5V "
        "(scaled by 1000); thinking: model card; "
        "calls: chat template of GLM-4.5V and 4.6V (arguments as XML tags)",
        coordinates="per_mille",
        thinking=THINK,
    ),
    ModelDefaults(
        ("lfm2_vl",),
        r"lfm-?2(\.5)?-?vl",
        "coordinates: cookbook/visual-grounding of Liquid4All/leap-finetune (fractions, in boxes of LFM2.5-VL's own "
        "format); calls: chat template of LFM2.5-VL (Python calls)",
        coordinates="unit",
    ),
    ModelDefaults(
        ("smolvlm", "idefics3", "llava", "llava_next", "llava_onevision", "aya_vision"),
        source="nothing was found; LLaVA 1.5 writes fractions of the image padded to a square (haotian-liu/LLaVA issue "
        "606), but its processor in transformers crops the image instead",
    ),
    ModelDefaults(
        ("kimi_vl",),
        r"kimi-?vl",
        "coordinates: the demo of MoonshotAI/Kimi-VL and its issues 52 and 56 (fractions); thinking: the model card of "
        "Kimi-VL-A3B-Thinking",
        coordinates="unit",
        thinking=(("◁think▷", "◁/think▷"), *THINK),
    ),
    ModelDefaults(
        ("mllama",),
        r"llama-?3\.2.*vision",
        "format: chat template (a JSON object with name and parameters); coordinates are not documented",
        reply_format="json",
    ),
)


def get_model_defaults(model_type: str) -> ModelDefaults:
    """Return the conventions of a `model_type` (of a transformers config); all unknown if it is not in the table."""
    return next((model for model in MODELS if model_type in model.kinds), ModelDefaults())


def find_model_defaults(name: str) -> ModelDefaults:
    """Return the conventions of the model that is served under a name; all unknown if it matches none.

    >>> [find_model_defaults(name).kinds for name in ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen3-vl:8b", "gpt-x")]
    [('qwen2_5_vl',), ('qwen3_vl', 'qwen3_vl_moe'), ()]
    """
    plain = name.lower().replace("_", "-")
    return next((model for model in MODELS if re.search(model.names, plain)), ModelDefaults())
