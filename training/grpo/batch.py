"""The tokens of episodes as tensors: prompts padded left, completions right, pixels in the model's own layout."""

from collections.abc import Sequence
from typing import Any

import torch

from viewbox.records import EpisodeTokens
from viewbox.rollouts.engine.chat_tokens import ChatTokens


def describe_mismatch(episode: EpisodeTokens, tokens: ChatTokens) -> str | None:
    """Why an episode cannot be trained on: it has more or fewer image tokens than its images need. None if it can."""
    ids = (*episode.prompt_ids, *episode.completion_ids)
    placeholders = ids.count(tokens.image_id)
    features = sum(tokens.get_pixels(image).tokens for image in episode.images)
    if placeholders == features:
        return None
    return f"{placeholders} image tokens for {features} image features ({len(episode.images)} images)"


def collate(
    episodes: Sequence[EpisodeTokens], tokens: ChatTokens, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """A batch of B episodes as tensors, under the names that TRL's loss reads.

    Returns:
        prompt_ids, prompt_mask: (B, P), padded left.
        completion_ids, completion_mask, tool_mask, logprobs: (B, C), padded right. `tool_mask` is 1 on sampled tokens.
        mm_token_type_ids: (B, P + C), 1 on image tokens.
        pixel_values, image_grid_thw, num_images: of all images in order, and how many an episode has; absent if the
            batch has no image.
        image_keys: (B, largest number of images in an episode) int64, padded right; equal images have equal keys.
    """
    prompt = max(len(episode.prompt_ids) for episode in episodes)
    completion = max(1, *(len(episode.completion_ids) for episode in episodes))
    shape = (len(episodes), completion)
    out: dict[str, Any] = {
        "prompt_ids": torch.full((len(episodes), prompt), tokens.pad_id),
        "prompt_mask": torch.zeros(len(episodes), prompt, dtype=torch.long),
        "completion_ids": torch.full(shape, tokens.pad_id),
        "completion_mask": torch.zeros(shape, dtype=torch.long),
        "tool_mask": torch.zeros(shape, dtype=torch.long),
        "logprobs": torch.zeros(shape),
        "image_keys": torch.zeros(len(episodes), max(len(episode.images) for episode in episodes), dtype=torch.long),
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
            out["image_keys"][i, k] = int(image.hash[:15], 16)
    out = {name: value.to(device) for name, value in out.items()}
    out["mm_token_type_ids"] = (torch.cat([out["prompt_ids"], out["completion_ids"]], 1) == tokens.image_id).int()
    pixels = [tokens.get_pixels(image) for episode in episodes for image in episode.images]
    if pixels:
        out |= tokens.architecture.build_vision_inputs(pixels, device, torch.float32)
        out["num_images"] = [len(episode.images) for episode in episodes]
    return out


def build_model_inputs(batch: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the model's forward pass for a collated batch."""
    vision = ("pixel_values", "image_grid_thw", "mm_token_type_ids") if "pixel_values" in batch else ()
    return {
        "input_ids": torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
        "attention_mask": torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
        **{name: batch[name] for name in vision},
    }
