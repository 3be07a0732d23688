"""What an export must know of the model: its environments, pixel bounds of images, the length of prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...configs.schema import Config
from ...core.base import BaseMultiTurnEnv
from ...engines.hf import loading
from ...engines.hf.chat_tokens import ChatTokens
from ...envs.from_config import build_envs
from ...records import Task


@dataclass(frozen=True)
class OpenedEnvironments:
    """The environments of a config and the tokens of its model.

    Args:
        env: plays the tasks of training.
        held_out: plays those of validation.
        tokens: the way from messages to tokens.
        pixels: `min_pixels` and `max_pixels` of an image.
        model_folder: of the model; None if it is one of the hub.
    """

    env: BaseMultiTurnEnv
    held_out: BaseMultiTurnEnv
    tokens: ChatTokens
    pixels: Mapping[str, int]
    model_folder: Path | None

    def measure_prompts(self, env: BaseMultiTurnEnv, tasks: Sequence[Task], count: int) -> int:
        """The tokens of the longest prompt among `count` tasks, evenly spaced."""
        step = max(1, len(tasks) // count)
        return max(self._measure(env.for_task(tasks[number]), tasks[number]) for number in range(0, len(tasks), step))

    def _measure(self, env: BaseMultiTurnEnv, task: Task) -> int:
        state = env.reset(task, seed=0)
        ids, _ = self.tokens.encode_prompt(state.messages, state.tool_schemas, env.reply_format, env.prompts)
        return len(ids)


def open_environments(config: Config) -> OpenedEnvironments:
    """Builds the environments for the model of a config, without its weights.

    Raises:
        ConfigError: a setting of an environment is invalid, or the model's folder is not there.
        ModelError: the model cannot be loaded.
    """
    model_config, processor = loading.load_processor(config.model)
    env, held_out = build_envs(config, loading.get_view_settings(model_config, processor))
    loading.set_max_pixels(processor, config.model.max_pixels or env.max_pixels)
    folder = loading.find_model_folder(str(config.model.name))
    size = processor.image_processor.size
    pixels = {"min_pixels": int(size["shortest_edge"]), "max_pixels": int(size["longest_edge"])}
    return OpenedEnvironments(env, held_out, ChatTokens(processor, model_config), pixels, folder)
