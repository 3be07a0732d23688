"""What differs between model architectures: pixel layout, image token counts, position ids.

`get_architecture` looks them up by `model_type`; Qwen3-VL and Qwen2.5-VL are supported. The conventions that a model
was trained on (coordinates, tool calls) are in `engines/model_profiles.py`.

Used of transformers, and checked by `tests/engines/hf/test_transformers_contract.py`:

| name | what is relied on |
| --- | --- |
| `model.model.visual` | the vision tower |
| `model.get_image_features(…, return_dict=True)` | `pooler_output`, and `deepstack_features` of Qwen3-VL |
| `forward(mm_encoder_outputs={"image": …})` | takes these features instead of pixels |
| `qwen3_vl.modeling_qwen3_vl.BaseModelOutputWithDeepstackFeatures` | the type of these features |
"""

from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from transformers import PretrainedConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from ...errors import ModelError, describe_unknown


@dataclass(frozen=True)
class Pixels:
    """One preprocessed image: `values` (patches, patch features) float32, `grid` (t, h, w) in patches."""

    values: torch.Tensor
    grid: tuple[int, int, int]
    tokens: int  # image tokens in the prompt


@dataclass(frozen=True)
class Architecture:
    """The Qwen-VL architectures: patch-flattened pixels and three-axis rotary positions (M-RoPE)."""

    model_type: str
    merge: int = 2  # patches merged into one token, along each side

    def preprocess(self, image_processor: Any, image: Image.Image) -> Pixels:
        """Preprocesses one image. Raises what the image processor raises."""
        output = image_processor(images=[image.convert("RGB")], return_tensors="pt")
        t, h, w = (int(n) for n in output["image_grid_thw"][0])
        return Pixels(output["pixel_values"].float(), (t, h, w), t * h * w // self.merge**2)

    def count_tokens(self, image_processor: Any, width: int, height: int) -> int:
        """The tokens in the prompt of an image of this size, without its pixels: vLLM counts them so too.

        Raises:
            ValueError: the image processor rejects the size.
        """
        return int(image_processor.get_number_of_image_patches(height, width, {})) // self.merge**2

    def compute_positions(
        self, ids: list[int], image_id: int, grids: list[tuple[int, int, int]], start: int
    ) -> tuple[torch.Tensor, int]:
        """The M-RoPE positions of consecutive tokens (Qwen2-VL, arXiv 2409.12191, section 2.1).

        Text advances all three axes together. The tokens of an image share the time axis and count rows and columns;
        the text after it continues at start + max(rows, columns).

        Args:
            ids: token ids.
            image_id: id of the image placeholder.
            grids: (t, h, w) in patches of each image among `ids`.
            start: position of the first token.

        Returns:
            The positions, (3, len(ids)), and the position of the next token.
        """
        pieces, i, position, images = [], 0, start, iter(grids)
        while i < len(ids):
            if ids[i] == image_id:
                _, h, w = next(images)
                h, w = h // self.merge, w // self.merge
                rows = torch.arange(h).repeat_interleave(w)
                cols = torch.arange(w).repeat(h)
                pieces.append(torch.stack([torch.zeros(h * w, dtype=torch.long), rows, cols]) + position)
                position, i = position + max(h, w), i + h * w
            else:
                end = i
                while end < len(ids) and ids[end] != image_id:
                    end += 1
                pieces.append(torch.arange(position, position + end - i).expand(3, -1))
                position, i = position + end - i, end
        return torch.cat(pieces, dim=1), position

    def get_vision_tower(self, model: Any) -> torch.nn.Module:
        """The module that image features depend on, also inside a PEFT model."""
        return model.get_base_model().model.visual if hasattr(model, "get_base_model") else model.model.visual

    def get_pixel_dtype(self, model: Any) -> torch.dtype:
        """The type in which pixels are kept: that of the vision tower's weights if it has two bytes, else float32."""
        dtype = next(self.get_vision_tower(model).parameters()).dtype
        return dtype if dtype.is_floating_point and dtype.itemsize == 2 else torch.float32

    def encode_images(self, model: Any, pixels: list[Pixels]) -> list[tuple[torch.Tensor, ...]]:
        """The features of each image: (tokens, width), then one more such tensor for each DeepStack layer."""
        inputs = self.build_vision_inputs(pixels, model.device, model.dtype)
        output = model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"], return_dict=True)
        layers = [output.pooler_output, *(getattr(output, "deepstack_features", None) or [])]
        return [tuple(image) for image in zip(*layers, strict=True)]

    def count_feature_bytes(self, features: tuple[torch.Tensor, ...]) -> int:
        """The size of one image's features."""
        return sum(layer.nbytes for layer in features)

    def build_feature_inputs(self, features: list[tuple[torch.Tensor, ...]]) -> dict[str, Any]:
        """The model's keyword arguments for images whose features are known, in order."""
        tokens, *deep = zip(*features, strict=True)
        layers: dict[str, Any] = {"pooler_output": tokens, "deepstack_features": [*deep]}
        return {"mm_encoder_outputs": {"image": BaseModelOutputWithDeepstackFeatures(**layers)}}

    def build_vision_inputs(
        self, pixels: list[Pixels], device: torch.device | str, dtype: torch.dtype
    ) -> dict[str, torch.Tensor]:
        """The model's keyword arguments for images given as pixels, in order; {} for no images."""
        if not pixels:
            return {}
        values = torch.cat([image.values for image in pixels]).to(device=device, dtype=dtype)
        return {"pixel_values": values, "image_grid_thw": torch.tensor([image.grid for image in pixels], device=device)}


ARCHITECTURES = {name: Architecture(name) for name in ("qwen3_vl", "qwen2_5_vl")}


def get_architecture(model_config: PretrainedConfig) -> Architecture:
    """The architecture of a transformers config.

    Raises:
        ModelError: it is not supported; the message names those that are.
    """
    name = getattr(model_config, "model_type", "none")
    if name not in ARCHITECTURES:
        raise ModelError(describe_unknown("model_type", name, ARCHITECTURES))
    return ARCHITECTURES[name]
