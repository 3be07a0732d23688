"""The tokens of episodes as tensors: prompts padded left, completions right; images by key, their pixels apart.

A batch names its images by keys. Their pixels stay on the host, each distinct image once (`collect_pixels`), until the
part of a batch that shows them goes through the model. `add_pixels` is for a plain forward pass of a whole batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ...engines.hf.architectures import Pixels
from ...engines.hf.chat_tokens import ChatTokens
from ...engines.hf.vision_cache import KEY_DIGITS
from ...images.ref import ImageRef
from ...records import EpisodeTokens


def collate(
    episodes: Sequence[EpisodeTokens], tokens: ChatTokens, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """A batch of B episodes as tensors, under the names that TRL's loss reads.

    Returns:
        prompt_ids, prompt_mask: (B, P), padded left.
        completion_ids, completion_mask, tool_mask, logprobs: (B, C), padded right. `tool_mask` is 1 on sampled tokens.
        mm_token_type_ids: (B, P + C), 1 on image tokens.
        image_keys: (B, N) int64, padded right, N the largest number of images in an episode; equal images have equal
            keys.
        image_grids: (B, N, 3), (t, h, w) of each image in patches; 0 where an episode has fewer images.
    """
    prompt = max(len(episode.prompt_ids) for episode in episodes)
    completion = max(1, *(len(episode.completion_ids) for episode in episodes))
    shape = (len(episodes), completion)
    images = max(len(episode.images) for episode in episodes)
    out: dict[str, Any] = {
        "prompt_ids": torch.full((len(episodes), prompt), tokens.pad_id),
        "prompt_mask": torch.zeros(len(episodes), prompt, dtype=torch.long),
        "completion_ids": torch.full(shape, tokens.pad_id),
        "completion_mask": torch.zeros(shape, dtype=torch.long),
        "tool_mask": torch.zeros(shape, dtype=torch.long),
        "logprobs": torch.zeros(shape),
        "image_keys": torch.zeros(len(episodes), images, dtype=torch.long),
        "image_grids": torch.zeros(len(episodes), images, 3, dtype=torch.long),
    }
    for i, episode in enumerate(episodes):
        p, c = len(episode.prompt_ids), len(episode.completion_ids)
        out["prompt_ids"][i, prompt - p :] = torch.tensor(episode.prompt_ids)
        out["prompt_mask"][i, prompt - p :] = 1
        out["completion_ids"][i, :c] = torch.tensor(episode.completion_ids)
        out["completion_mask"][i, :c] = 1
        out["tool_mask"][i, :c] = torch.tensor(episode.mask)
        out["logprobs"][i, :c] = torch.tensor(episode.logprobs)
        for k, image in enumerate(episode.images):
            out["image_keys"][i, k] = get_image_key(image)
            out["image_grids"][i, k] = torch.tensor(tokens.get_pixels(image).grid)
    out = {name: value.to(device) for name, value in out.items()}
    out["mm_token_type_ids"] = (torch.cat([out["prompt_ids"], out["completion_ids"]], 1) == tokens.image_id).int()
    return out


def get_image_key(image: ImageRef) -> int:
    """The key of an image in a batch."""
    return int(image.hash[:KEY_DIGITS], 16)


def collect_pixels(episodes: Iterable[EpisodeTokens], tokens: ChatTokens) -> dict[int, Pixels]:
    """The pixels of each distinct image of the episodes, on the host, by key."""
    images = {get_image_key(image): image for episode in episodes for image in episode.images}
    return {key: tokens.get_pixels(image) for key, image in images.items()}


def add_pixels(batch: dict[str, Any], episodes: Sequence[EpisodeTokens], tokens: ChatTokens) -> dict[str, Any]:
    """The batch of these episodes with `pixel_values` and `image_grid_thw` of all images in order, if it has any."""
    pixels = [tokens.get_pixels(image) for episode in episodes for image in episode.images]
    return batch | tokens.architecture.build_vision_inputs(pixels, batch["prompt_ids"].device, torch.float32)


def get_sampled(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(B, C): 1 on the tokens the policy sampled and is trained on."""
    return batch["completion_mask"] * batch["tool_mask"]


def build_model_inputs(batch: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the model's forward pass for a collated batch with its pixels (`add_pixels`)."""
    vision = ("pixel_values", "image_grid_thw", "mm_token_type_ids") if "pixel_values" in batch else ()
    return {
        "input_ids": torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
        "attention_mask": torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
        **{name: batch[name] for name in vision},
    }
