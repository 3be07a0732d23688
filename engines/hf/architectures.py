"""What differs between model architectures, asked of transformers: position ids, image features, the vision tower.

Nothing here names a model. A model can be played if its images become patches with a grid, its own `get_rope_index`
computes positions, its forward takes image features, and every layer attends to all tokens before. Qwen3-VL and
Qwen2.5-VL are tested; others are compared with a plain forward when they are loaded (`check_parity`). The conventions
that a model was trained on (coordinates, tool calls) are in `engines/model_profiles.py`.

Used of transformers, and checked by `tests/engines/hf/test_transformers_contract.py`:

| name | what is relied on |
| --- | --- |
| `MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING` | the class of a config, with the output layer |
| `MODEL_MAPPING` | the same without it |
| `get_rope_index` of the latter | the positions of ids and grids; it reads the config and no weights |
| `get_image_features(…, return_dict=True)` | `pooler_output`, and perhaps `deepstack_features`, of the type annotated |
| `forward(mm_encoder_outputs={"image": …})` | takes these features instead of pixels |
| `get_decoder()` | the language model: the other children of `model.model` are the vision tower |
"""

import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args, get_type_hints

import torch
from PIL import Image
from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, MODEL_MAPPING, PretrainedConfig
from transformers.utils import ModelOutput

from ...errors import ModelError
from .cache_layers import find_layers

TESTED = ("qwen2_5_vl", "qwen3_vl")


@dataclass(frozen=True)
class Pixels:
    """One preprocessed image: `values` (patches, patch features) float32, `grid` (t, h, w) in patches."""

    values: torch.Tensor
    grid: tuple[int, int, int]
    tokens: int  # image tokens in the prompt


class Architecture:
    """The models of one config: patch-flattened pixels and rotary positions of three axes (M-RoPE).

    Raises:
        ModelError: such a model cannot be played; the message says what it lacks.
    """

    def __init__(self, config: PretrainedConfig) -> None:
        self.config, self.model_type = config, str(getattr(config, "model_type", "none"))
        if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING or type(config) not in MODEL_MAPPING:
            raise self._refuse("is no model of images and text in transformers")
        self._base = MODEL_MAPPING[type(config)]
        rope = getattr(self._base, "get_rope_index", None)
        if rope is None or "image_grid_thw" not in inspect.signature(rope).parameters:
            raise self._refuse("has no `get_rope_index` for images with a grid")
        self.merge: int = config.vision_config.spatial_merge_size  # patches merged into one token, along each side

    def check_forward(self) -> None:
        """Raise `ModelError` if this engine cannot run the model; a server or verl may, with the same tokens."""
        forward = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(self.config)].forward
        if "mm_encoder_outputs" not in inspect.signature(forward).parameters:
            raise self._refuse("takes no image features (`mm_encoder_outputs`)")
        try:
            find_layers(self.config.get_text_config())
        except ModelError as error:
            raise self._refuse(f"has {error}") from None

    def _refuse(self, reason: str) -> ModelError:
        return ModelError(f"model_type {self.model_type!r:.80} {reason}; tested: {', '.join(TESTED)}")

    @cached_property
    def _positions(self) -> Any:
        """The model's class without its weights, for its method `get_rope_index`."""
        shell = self._base.__new__(self._base)
        torch.nn.Module.__init__(shell)
        shell.config = self.config
        return shell

    @cached_property
    def _features(self) -> type[ModelOutput]:
        """The type of what the vision tower returns."""
        found = get_type_hints(self._base.get_image_features)["return"]
        return next(one for one in (found, *get_args(found)) if isinstance(one, type) and issubclass(one, ModelOutput))

    def preprocess(self, image_processor: Any, image: Image.Image) -> Pixels:
        """Preprocesses one image. Raises what the image processor raises."""
        output = image_processor(images=[image.convert("RGB")], return_tensors="pt")
        t, h, w = (int(n) for n in output["image_grid_thw"][0])
        return Pixels(output["pixel_values"].float(), (t, h, w), t * h * w // self.merge**2)

    def count_tokens(self, image_processor: Any, width: int, height: int) -> int:
        """Return the tokens in the prompt of an image of this size, without its pixels: vLLM counts them so too.

        Raises:
            ValueError: the image processor rejects the size.
        """
        return int(image_processor.get_number_of_image_patches(height, width, {})) // self.merge**2

    def compute_positions(
        self, ids: list[int], image_id: int, grids: list[tuple[int, int, int]], start: int
    ) -> tuple[torch.Tensor, int]:
        """Return the positions of consecutive tokens, as the model's own `get_rope_index` counts them.

        For Qwen-VL (M-RoPE, arXiv 2409.12191, section 2.1) text advances all three axes together. The tokens of an
        image share the time axis and count rows and columns; the text after it continues at the largest of them + 1.

        Args:
            grids: (t, h, w) in patches of each image among `ids`.
            start: position of the first token.

        Returns:
            The positions, (3, len(ids)), and the position of the next token.
        """
        tokens = torch.tensor([ids])
        found, _ = self._positions.get_rope_index(
            tokens,
            mm_token_type_ids=(tokens == image_id).int(),
            image_grid_thw=torch.tensor(grids) if grids else None,
        )
        positions = found[:, 0] + start
        return positions, int(positions.max()) + 1

    def get_vision_tower(self, model: Any) -> torch.nn.Module:
        """Return what image features depend on, also inside a PEFT model: all beside the language model."""
        model = model.get_base_model() if hasattr(model, "get_base_model") else model
        decoder = model.get_decoder()
        parts = [child for child in model.model.children() if child is not decoder]
        return parts[0] if len(parts) == 1 else torch.nn.ModuleList(parts)

    def get_pixel_dtype(self, model: Any) -> torch.dtype:
        """Return the type in which pixels are kept: that of the vision tower's weights if it has two bytes, else
        float32."""
        dtype = next(self.get_vision_tower(model).parameters()).dtype
        return dtype if dtype.is_floating_point and dtype.itemsize == 2 else torch.float32

    def encode_images(self, model: Any, pixels: list[Pixels]) -> list[tuple[torch.Tensor, ...]]:
        """Return the features of each image: (tokens, width), then one more such tensor for each DeepStack layer."""
        inputs = self.build_vision_inputs(pixels, model.device, model.dtype)
        output = model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"], return_dict=True)
        layers = [output.pooler_output, *(getattr(output, "deepstack_features", None) or [])]
        return [tuple(image) for image in zip(*layers, strict=True)]

    def count_feature_bytes(self, features: tuple[torch.Tensor, ...]) -> int:
        """Return the size of one image's features."""
        return sum(layer.nbytes for layer in features)

    def build_feature_inputs(self, features: list[tuple[torch.Tensor, ...]]) -> dict[str, object]:
        """Return the model's keyword arguments for images whose features are known, in order."""
        tokens, *deep = zip(*features, strict=True)
        layers: dict[str, Any] = {"deepstack_features": [*deep]} if deep else {}
        return {"mm_encoder_outputs": {"image": self._features(pooler_output=tokens, **layers)}}

    def build_vision_inputs(
        self, pixels: list[Pixels], device: torch.device | str, dtype: torch.dtype
    ) -> dict[str, torch.Tensor]:
        """Return the model's keyword arguments for images given as pixels, in order; {} for no images."""
        if not pixels:
            return {}
        values = torch.cat([image.values for image in pixels]).to(device=device, dtype=dtype)
        return {"pixel_values": values, "image_grid_thw": torch.tensor([image.grid for image in pixels], device=device)}


def get_architecture(model_config: PretrainedConfig) -> Architecture:
    """Return the architecture of a transformers config. Raise `ModelError`: see `Architecture`."""
    return Architecture(model_config)
