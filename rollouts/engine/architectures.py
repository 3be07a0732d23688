"""What differs between model architectures: pixel layout, image token counts, position ids.

Found by `model_type`. Supported: Qwen3-VL and Qwen2.5-VL. What models were trained to write is in
`envs/model_profiles.py`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from viewbox.errors import ModelError, describe_unknown


@dataclass(frozen=True)
class Pixels:
    """One image for the vision tower: `values` (patches, patch features) float32, `grid` (t, h, w) in patches."""

    values: torch.Tensor
    grid: tuple[int, int, int]
    tokens: int


@dataclass(frozen=True)
class Family:
    """The Qwen-VL architectures: patch-flattened pixels and three-axis rotary positions (M-RoPE)."""

    model_type: str
    merge: int = 2

    def pixels(self, image_processor: Any, image: Image.Image) -> Pixels:
        """Preprocesses one image; the placeholder takes one token per merged patch."""
        found = image_processor(images=[image.convert("RGB")], return_tensors="pt")
        t, h, w = (int(n) for n in found["image_grid_thw"][0])
        return Pixels(found["pixel_values"].float(), (t, h, w), t * h * w // self.merge**2)

    def positions(
        self, ids: list[int], image_id: int, grids: list[tuple[int, int, int]], start: int
    ) -> tuple[torch.Tensor, int]:
        """M-RoPE positions (3, len(ids)) of a stretch of tokens that begins at position `start`, and the next one.

        Text advances all three axes together; an image's tokens share the time axis and count rows and columns, and
        the text after it goes on at start + max(rows, columns) (Qwen2-VL, arXiv 2409.12191, section 2.1).
        """
        pieces, i, at, images = [], 0, start, iter(grids)
        while i < len(ids):
            if ids[i] == image_id:
                _, h, w = next(images)
                h, w = h // self.merge, w // self.merge
                rows = torch.arange(h).repeat_interleave(w)
                cols = torch.arange(w).repeat(h)
                pieces.append(torch.stack([torch.zeros(h * w, dtype=torch.long), rows, cols]) + at)
                at, i = at + max(h, w), i + h * w
            else:
                end = i
                while end < len(ids) and ids[end] != image_id:
                    end += 1
                pieces.append(torch.arange(at, at + end - i).expand(3, -1))
                at, i = at + end - i, end
        return torch.cat(pieces, dim=1), at

    def tower(self, model: Any) -> Any:
        """The vision tower: the features of an image are its alone to change."""
        return model.get_base_model().model.visual if hasattr(model, "get_base_model") else model.model.visual

    def features(self, model: Any, pixels: list[Pixels]) -> list[tuple[torch.Tensor, ...]]:
        """What the tower makes of each image: (tokens, width), and as many more as layers read them (DeepStack)."""
        given = self.vision_inputs(pixels, model.device, model.dtype)
        found = model.get_image_features(given["pixel_values"], given["image_grid_thw"], return_dict=True)
        layers = [found.pooler_output, *(getattr(found, "deepstack_features", None) or [])]
        return [tuple(one) for one in zip(*layers, strict=True)]

    def feature_bytes(self, features: tuple[torch.Tensor, ...]) -> int:
        return sum(one.nbytes for one in features)

    def feature_inputs(self, features: list[tuple[torch.Tensor, ...]]) -> dict[str, Any]:
        """The model's keyword arguments for images whose features are known, in order."""
        tokens, *deep = zip(*features, strict=True)
        known: dict[str, Any] = {"pooler_output": tokens, "deepstack_features": [*deep]}
        found = BaseModelOutputWithDeepstackFeatures(**known)
        return {"mm_encoder_outputs": {"image": found}}

    def vision_inputs(self, pixels: list[Pixels], device: Any, dtype: Any) -> dict[str, torch.Tensor]:
        """The model's keyword arguments for these images, in order."""
        if not pixels:
            return {}
        values = torch.cat([one.values for one in pixels]).to(device=device, dtype=dtype)
        return {"pixel_values": values, "image_grid_thw": torch.tensor([one.grid for one in pixels], device=device)}


FAMILIES = {name: Family(name) for name in ("qwen3_vl", "qwen2_5_vl")}


def family_of(model_config: Any) -> Family:
    """The family of a transformers config; raises `ModelError` naming those that are supported."""
    name = getattr(model_config, "model_type", "none")
    if name not in FAMILIES:
        raise ModelError(describe_unknown("model_type", name, FAMILIES))
    return FAMILIES[name]
