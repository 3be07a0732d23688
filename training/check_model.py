"""What a model's folder says before its weights are read: whether it is whole, and whether an episode fits it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewbox.configs.schema import Config, ModelSection
from viewbox.errors import ConfigError, ModelError, describe_unknown, suggest_nearest
from viewbox.records import Task


@dataclass(frozen=True)
class Policy:
    """A local model without its weights."""

    config: Any
    processor: Any
    view_settings: dict[str, Any]


def find(section: ModelSection) -> Policy | None:
    """The model of a folder; None for a hub name and for one that is built. Raises `ConfigError` and `ModelError`."""
    if section.name is None:
        return None
    from viewbox.rollouts.engine.architectures import FAMILIES
    from viewbox.rollouts.engine.loading import load_processor, resolve, view_settings

    path, given = Path(resolve(section.name)), f"model.name = {section.name!r}"
    if not path.exists():
        if section.name.startswith(("/", ".", "~")) or section.name.count("/") > 1:
            folders = [str(one) for one in path.parent.glob("*/")]
            raise ConfigError(
                f"{given}: no such folder{suggest_nearest(path, folders)}; allowed: a model's folder or a hub name"
            )
        return None
    if not path.is_dir():
        raise ConfigError(f"{given}: a file; allowed: a folder with config.json, weights and processor, or a hub name")
    try:
        kind = json.loads((path / "config.json").read_text())["model_type"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        found = ", ".join(sorted(one.name for one in path.iterdir())[:8]) or "nothing"
        why = "has no config.json" if isinstance(error, FileNotFoundError) else f"config.json cannot be read ({error})"
        raise ConfigError(f"{given}: {why}; allowed: a folder as save_pretrained leaves it (found: {found})") from error
    if kind not in FAMILIES:
        raise ModelError(f"{given}: {describe_unknown('model_type', str(kind), FAMILIES)}")
    config, processor = load_processor(section)
    if not [*path.glob("*.safetensors"), *path.glob("*.bin")]:
        raise ConfigError(f"{given}: the folder holds no weights; allowed: *.safetensors beside config.json")
    return Policy(config, processor, view_settings(config, processor))


def budget(policy: Policy, config: Config, env: Any, task: Task) -> None:
    """Raises `ConfigError` where an episode of the first task cannot fit the model, or an image the episode."""
    from viewbox.rollouts.engine.chat_tokens import ChatTokens
    from viewbox.rollouts.engine.loading import bound_pixels

    bound_pixels(policy.processor, config.model.max_pixels or env.max_pixels)
    tokens = ChatTokens(policy.processor, policy.config)
    state = env.reset(task, seed=0)
    prompt, images = tokens.opening(state.messages, state.tool_schemas, env.reply_format, env.prompts)
    room = config.rollout.max_completion_tokens
    image = max((tokens.pixels(one).tokens for one in images), default=0)
    if state.tool_schemas and image >= room:
        raise ConfigError(
            f"env.max_pixels = {env.max_pixels}: what a tool shows takes {image} tokens and would never fit an "
            f"episode; allowed: fewer than rollout.max_completion_tokens = {room}"
        )
    context = getattr(policy.config.get_text_config(), "max_position_embeddings", None)
    if context is not None and len(prompt) + room > context:
        raise ConfigError(
            f"rollout.max_completion_tokens = {room}: with a prompt of {len(prompt)} tokens an episode would not fit "
            f"the model's context of {context}; allowed: at most {max(0, context - len(prompt))}"
        )
