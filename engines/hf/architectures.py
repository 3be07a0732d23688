"""What differs between models, asked of transformers: pixels, image tokens, position ids, masks, image features.

Nothing here names a model. `parity.py` compares the engine with a plain forward of the model when a run starts, so what
is asked here need not be believed. The conventions that a model was trained on (coordinates, tool calls) are in
`engines/model_profiles.py`.

Used of transformers here, in `attention_masks.py` and in `model_parts.py`, and checked by
`tests/engines/hf/test_transformers_contract.py`:

| name | what is relied on |
| --- | --- |
| `MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING` | the class of a config, with the output layer |
| `MODEL_MAPPING` | the same without it |
| `processor(text=…, images=…)` | repeats its placeholder for an image as often as its features need |
| `get_rope_index` of the latter | the positions of an image's tokens; it reads the config and no weights |
| `get_image_features(…, return_dict=True)` | `pooler_output`, perhaps `deepstack_features`, and tensors of its own |
| `forward(mm_encoder_outputs={"image": …})` | takes these features instead of pixels |
| `forward(attention_mask={kind: …})` | a mask for each of `layer_types`, as the base model gives its decoder |
| `get_decoder()` | the language model: the other children of `model.model` are the vision tower |
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, MODEL_MAPPING, PretrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ...errors import ModelError
from ...images.source import render_picture
from .attention_masks import CHUNKED, FULL, SLIDING, AttentionMasks
from .cache_layers import find_layers
from .model_parts import get_base_model, list_vision_parts

MAX_SIZES = 4096  # of images, whose texts are remembered
PLACEHOLDERS = "image_token", "boi_token", "image_placeholder_token"  # of processors and tokenizers
USUAL = BaseModelOutputWithPooling.__annotations__  # tensors of a tower's output, of which forwards read the pooled one
STATES = "linear_attention", "conv"  # kinds of layers that carry a state and attend to nothing


@dataclass(frozen=True)
class Pixels:
    """One preprocessed image, `tokens` image tokens in a prompt: `inputs` of the vision tower, by the processor's
    names. In the text of a prompt, `text` stands for it: these tokens, and marks around and between them."""

    inputs: Mapping[str, torch.Tensor]
    tokens: int
    text: str

    @property
    def grid(self) -> tuple[int, ...]:
        """Return (t, h, w) in patches, of a model that counts so; else ()."""
        return tuple(int(n) for n in self.inputs["image_grid_thw"][0]) if "image_grid_thw" in self.inputs else ()

    @property
    def numbers(self) -> int:
        return max(values.numel() for values in self.inputs.values())

    @property
    def nbytes(self) -> int:
        return sum(values.nbytes for values in self.inputs.values())

    def to(self, dtype: torch.dtype) -> "Pixels":
        values = {name: x.to(dtype) if x.is_floating_point() else x for name, x in self.inputs.items()}
        return Pixels(values, self.tokens, self.text)


class Architecture:
    """The models of one config, with their processor if texts and pixels are needed. Raise `ModelError` for what a
    model lacks; `failure` is what `parity.py` found out about one that seems to lack nothing."""

    def __init__(self, config: PretrainedConfig, processor: Any = None, failure: str | None = None) -> None:
        self.config, self.processor, self.failure = config, processor, failure
        self.model_type = str(getattr(config, "model_type", "none"))
        if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING or type(config) not in MODEL_MAPPING:
            advice = "docs/architectures.md lists those that are"
            raise self.refuse(f"is no model of images and text in transformers; {advice}")
        if getattr(config, "is_encoder_decoder", False):
            raise self.refuse("reads its prompt with an encoder: a conversation cannot grow")
        self._base = MODEL_MAPPING[type(config)]
        self._forward = inspect.signature(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)].forward).parameters
        ids = (getattr(config, name, None) for name in ("image_token_id", "image_token_index"))
        self.image_id: int = next((i for i in ids if i is not None), -1)
        if self.image_id < 0:
            raise self.refuse("has no token for images in its config (`image_token_id`)")
        self._blocks: dict[tuple[int, ...], tuple[torch.Tensor, int]] = {}  # positions of an image, by its grid
        self._shown: dict[Any, tuple[int, str]] = {}  # tokens and text of an image, by its size and what the tower gets
        self.masks = AttentionMasks(config.get_text_config(), self.image_id)
        self._output: tuple[type, list[tuple[int, ...] | None], list[str]] | None = None  # of the tower: see below

    def refuse(self, reason: str) -> ModelError:
        return ModelError(f"model_type {self.model_type!r:.80} {reason}", key="model.name")

    @property
    def has_states(self) -> bool:
        """Whether a layer carries a state from token to token, so that replies cannot share a prompt in one row."""
        return not self.masks.kinds <= {FULL, SLIDING, CHUNKED}

    @property
    def takes_features(self) -> bool:
        """Whether the model's forward takes image features in place of pixels, in the order of the image tokens."""
        return "mm_encoder_outputs" in self._forward and self.failure is None

    @property
    def has_backbone(self) -> bool:
        """Whether a part of the model makes hidden states of features; its output layer then stands beside it."""
        whole = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(self.config)]
        return self.takes_features and self._base is not whole

    @property
    def shares_prompts(self) -> bool:
        """Whether the loss computes a prompt once for all episodes that begin with it (`training/grpo/logprobs.py`)."""
        return self.has_backbone and not self.has_states

    @cached_property
    def axes(self) -> int:
        """The axes of a token's position: 1, or more where images have rows and columns."""
        if self._shell is None:
            return 1
        return len(self._shell.get_rope_index(**self._select_rope(input_ids=torch.zeros(1, 2, dtype=torch.long)))[0])

    @cached_property
    def _shell(self) -> Any:
        """The model's class without its weights, for its method `get_rope_index`; None if it has none."""
        if not hasattr(self._base, "get_rope_index"):
            return None
        shell = self._base.__new__(self._base)
        torch.nn.Module.__init__(shell)
        shell.config = self.config
        vision = getattr(self.config, "vision_config", None)
        shell.spatial_merge_size = getattr(vision, "spatial_merge_size", None)  # some models read it there
        return shell

    @cached_property
    def _tower_arguments(self) -> frozenset[str]:
        if self.find_lack() is not None:  # then the whole model takes them
            own = ("input_ids", "position_ids", "attention_mask")
            return frozenset(name for name in self._forward if name not in own and not name.endswith("token_type_ids"))
        return frozenset(inspect.signature(self._base.get_image_features).parameters)

    def find_lack(self) -> str | None:
        """Return what the model lacks to be played on the engine's own cache; None if nothing is missing."""
        if not self.takes_features:
            return self.failure or "its forward takes no `mm_encoder_outputs`"
        if not self.has_backbone:
            return "its output layer is part of its language model"
        if unknown := self.masks.kinds - {FULL, SLIDING, CHUNKED, *STATES}:
            return f"it has layers of {', '.join(sorted(unknown))}, whose masks are not known"
        if self.axes > 1 and "image_grid_thw" not in inspect.signature(self._base.get_image_features).parameters:
            return "its images have positions of rows and columns, and no `image_grid_thw`"
        try:
            find_layers(self.config.get_text_config())
        except ModelError as error:
            return f"it has {error}"
        return None

    def check_forward(self) -> None:
        """Raise `ModelError` if this engine cannot run the model; a server or verl may, with the same tokens."""
        if "cross_attention_mask" in self._forward:
            raise self.refuse("lets text see the images after it (`cross_attention_mask`): a conversation cannot grow")
        if (lack := self.find_lack()) is None:
            return
        needed = [
            name for name, one in self._forward.items() if one.default is one.empty and one.kind < one.VAR_KEYWORD
        ]
        if "pixel_values" not in self._forward or needed[1:] not in ([], ["pixel_values"], ["input_ids"]):
            more = ", ".join(f"`{name}`" for name in needed[1:]) or "no `pixel_values`"
            raise self.refuse(f"cannot be played here: {lack}, and needs {more}")

    def keep_logits(self, places: Any) -> dict[str, Any]:
        """Return the argument that asks for the logits at some places, if the model's forward takes it."""
        return {"logits_to_keep": places} if "logits_to_keep" in self._forward else {}

    @cached_property
    def placeholder(self) -> str:
        """The text that a chat template writes for an image."""
        owners = (self.processor, self.processor.tokenizer)
        named = (getattr(owner, name, None) for name in PLACEHOLDERS for owner in owners)
        candidates = [*dict.fromkeys(one for one in named if one), self.processor.tokenizer.decode([self.image_id])]
        for parts in ([{"type": "image"}, {"type": "text", "text": "q"}], [{"type": "image"}]):
            try:
                text = self.processor.apply_chat_template([{"role": "user", "content": parts}], tokenize=False)
            except Exception:  # `ChatTemplate` says what is wrong with it
                continue
            candidates = [one for one in candidates if text.count(one) == 1] or candidates
        return str(candidates[0])

    def preprocess(self, image: Image.Image) -> Pixels:
        """Return one image as the vision tower takes it, alone. Raise what the processor raises, and `ModelError`. Once
        a size is known, the image processor alone is asked, which takes half the time."""
        image = render_picture(image)
        alone = self._select(self.processor.image_processor(images=[image], return_tensors="pt"))
        key = image.size, *(values.shape for values in alone.values())  # also of the settings of the processor
        if (known := self._shown.get(key)) is not None:
            return Pixels(alone, *known).to(torch.float32)
        try:
            output = self.processor(
                text=[self.placeholder], images=[image], return_tensors="pt", add_special_tokens=False
            )
        except ValueError as error:
            repeated = getattr(self.processor, "image_token", self.placeholder)
            if self.processor.tokenizer.encode(repeated, add_special_tokens=False) == [self.image_id]:
                raise
            raise self.refuse(
                f"has image token {self.image_id}, and {type(self.processor).__name__}'s {repeated!r:.60} is another "
                "text to the tokenizer: are the processor and tokenizer in its folder those of another model?"
            ) from error
        ids, inputs = output["input_ids"][0].tolist(), self._select(output)
        text = self.processor.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if self.image_id not in ids:
            raise self.refuse(
                f"has image token {self.image_id}, and {type(self.processor).__name__} writes none for a picture "
                f"({text!r:.60}): are the processor and tokenizer in its folder those of another model?"
            )
        if inputs.keys() == alone.keys() and all(torch.equal(inputs[name], alone[name]) for name in inputs):
            if len(self._shown) >= MAX_SIZES:
                self._shown = {}
            self._shown[key] = ids.count(self.image_id), text
        return Pixels(inputs, ids.count(self.image_id), text).to(torch.float32)

    def _select(self, output: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        arguments = {name: value for name, value in output.items() if name in self._tower_arguments}
        if lists := [name for name, value in arguments.items() if not isinstance(value, torch.Tensor)]:
            raise self.refuse(
                f"has a processor that gives `{lists[0]}` as a {type(arguments[lists[0]]).__name__}, not a tensor"
            )
        return arguments

    def compute_positions(self, ids: list[int], images: Sequence[Pixels], start: int) -> tuple[torch.Tensor, int]:
        """Return the positions of consecutive tokens from `start`, (axes, len(ids)), and the position of the next
        token. Text advances all axes together. With three axes (M-RoPE, arXiv 2409.12191, section 2.1) the tokens of an
        image share the time axis and count rows and columns; the text after it continues at the largest of them + 1."""
        if self.axes == 1 or not images:
            return torch.arange(start, start + len(ids)).expand(self.axes, -1), start + len(ids)
        parts, place = [], 0
        for image in images:
            first = ids.index(self.image_id, place)
            block, length = self._compute_block(image)
            parts += [torch.arange(start, start + first - place).expand(self.axes, -1), block + (start + first - place)]
            start, place = start + first - place + length, first + image.tokens
        parts.append(torch.arange(start, start + len(ids) - place).expand(self.axes, -1))
        return torch.cat(parts, dim=1), start + len(ids) - place

    def _compute_block(self, image: Pixels) -> tuple[torch.Tensor, int]:
        """Return the positions of an image's tokens after position 0, (3, tokens), and how far they advance."""
        if image.grid not in self._blocks:
            tokens = torch.full((1, image.tokens), self.image_id)
            inputs = {"image_grid_thw": image.inputs["image_grid_thw"], "mm_token_type_ids": torch.ones_like(tokens)}
            positions, _ = self._shell.get_rope_index(**self._select_rope(input_ids=tokens, **inputs))
            self._blocks[image.grid] = positions[:, 0], int(positions.max()) + 1
        return self._blocks[image.grid]

    def _select_rope(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        inputs = {
            "attention_mask": torch.ones_like(inputs["input_ids"]),
            "mm_token_type_ids": 0 * inputs["input_ids"],
        } | inputs
        known = inspect.signature(self._shell.get_rope_index).parameters
        return {name: values for name, values in inputs.items() if name in known}

    def to_position_ids(self, positions: torch.Tensor) -> torch.Tensor:
        return positions if self.axes > 1 else positions[0]

    def build_token_types(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the arguments of the model's forward that say where image tokens stand, (rows, width) each."""
        names = [name for name in self._forward if name.endswith("token_type_ids")]
        return dict.fromkeys(names, (ids == self.image_id).int())

    def learn_masks(self, model: Any) -> None:
        """Learn which tokens see which. Raise `ModelError` if text sees what comes after it."""
        if not self.masks.learn(model, self.build_token_types):
            raise self.refuse("reads its prompt in both directions: a conversation cannot grow")

    def get_vision_tower(self, model: Any) -> torch.nn.Module:
        """Return what image features depend on, also inside a PEFT model: all beside the language model."""
        parts = list_vision_parts(get_base_model(model))
        return parts[0] if len(parts) == 1 else torch.nn.ModuleList(parts)

    def get_pixel_dtype(self, model: Any) -> torch.dtype:
        """Return the type in which pixels are kept: that of the vision tower's weights if it has two bytes, else
        float32."""
        dtype = next(self.get_vision_tower(model).parameters()).dtype
        return dtype if dtype.is_floating_point and dtype.itemsize == 2 else torch.float32

    def encode_images(self, model: Any, pixels: Sequence[Pixels]) -> list[tuple[torch.Tensor, ...]]:
        """Return the features of each image: (tokens, width), one more such tensor for each DeepStack layer, then the
        tensors of the tower's output that have a name of their own. Raise `ModelError` if there are more or fewer than
        image tokens."""
        if sum(image.tokens for image in pixels) == 1:  # Mistral 3 squeezes the axis of a single feature away
            return self.encode_images(model, [*pixels, *pixels])[: len(pixels)]
        inputs = self.build_vision_inputs(pixels, model.device, model.dtype)
        output = get_base_model(model).model.get_image_features(**inputs, return_dict=True)
        layers = [output.pooler_output, *(getattr(output, "deepstack_features", None) or [])]
        extra = [name for name in output if name not in USUAL and isinstance(output[name], torch.Tensor)]
        shapes = [None if isinstance(layer, list | tuple) else layer.shape[1:] for layer in layers]
        self._output = type(output), shapes, extra  # no shape of a list
        flat = [
            torch.cat([item.flatten(0, -2) for item in (layer if isinstance(layer, list | tuple) else [layer])])
            for layer in layers
        ]
        counts = [image.tokens for image in pixels]
        if any(len(layer) != sum(counts) for layer in flat):
            raise self.refuse(f"gives {len(flat[0])} features for {sum(counts)} image tokens")
        shared = tuple(output[name] for name in extra)
        return [(*item, *shared) for item in zip(*(torch.split(layer, counts) for layer in flat), strict=True)]

    def build_feature_inputs(self, features: Sequence[tuple[torch.Tensor, ...]]) -> dict[str, object]:
        """Return the model's keyword arguments for images whose features `encode_images` gave, in order."""
        assert self._output is not None
        kind, shapes, extra = self._output
        layers = zip(zip(*(feature[: len(shapes)] for feature in features), strict=True), shapes, strict=True)
        pooled, *deep = [layer if shape is None else torch.cat(layer).reshape(-1, *shape) for layer, shape in layers]
        more: dict[str, Any] = dict(zip(extra, features[0][len(shapes) :], strict=True))
        more |= {"deepstack_features": deep} if deep else {}
        return {"mm_encoder_outputs": {"image": kind(pooler_output=pooled, **more)}}

    def build_vision_inputs(
        self, pixels: Sequence[Pixels], device: torch.device | str, dtype: torch.dtype
    ) -> dict[str, torch.Tensor]:
        """Return the model's keyword arguments for images given as pixels, in order. Smaller ones are padded with
        zeros, which every tower leaves out by sizes, masks or as an empty tile."""
        images = [image.to(dtype).inputs for image in pixels]
        axes = self._joined if len(images) > 1 and self.processor is not None else {}
        names = images[0] if images else ()
        return {name: _join([image[name] for image in images], axes.get(name, 0)).to(device) for name in names}

    @cached_property
    def _joined(self) -> dict[str, int]:
        """The axis along which the processor joins the inputs of several images, by name: the one that grows."""
        pictures, settings = [Image.new("RGB", (64, 48))], {"return_tensors": "pt", "add_special_tokens": False}
        single, two = (
            self.processor(text=[self.placeholder * count], images=pictures * count, **settings) for count in (1, 2)
        )
        shapes = {name: (single[name].shape, two[name].shape) for name in single if name in self._tower_arguments}
        grown = {name: [a < b for a, b in zip(*pair, strict=True)] for name, pair in shapes.items()}
        return {name: axes.index(True) for name, axes in grown.items() if any(axes)}


def _join(values: Sequence[torch.Tensor], axis: int) -> torch.Tensor:
    """Join tensors along an axis, padded with zeros at the end of the others."""
    sizes = [max(size) for size in zip(*(one.shape for one in values), strict=True)]

    def pad(one: torch.Tensor) -> torch.Tensor:
        missing = [size - length for size, length in zip(sizes, one.shape, strict=True)]
        missing[axis] = 0
        return (
            torch.nn.functional.pad(one, [n for size in reversed(missing) for n in (0, size)]) if any(missing) else one
        )

    return torch.cat([pad(one) for one in values], dim=axis)
