"""The local engine: continuous batching of multi-turn episodes with images on one HuggingFace model (needs torch).

`engine` has `HFGenerator`, `chat_tokens` `ChatTokens`, `loading` `load_model`; `docs/engine.md` explains the rest.
Here are the names that a module of the table `engines` has (`engines/table.py`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...configs.schema import Config
from ...core.base import BaseMultiTurnEnv
from ..settings import LocalSettings as Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .chat_tokens import ChatTokens
    from .engine import HFGenerator
    from .vision_cache import VisionCache


sends_weights = False


def check(config: Config, envs: Sequence[BaseMultiTurnEnv]) -> None:
    """Every run can use it."""


def build(
    settings: Settings,
    tokens: "ChatTokens",
    model: "PreTrainedModel",
    *,
    model_name: str = "",
    vision_cache: "VisionCache | None" = None,
) -> "HFGenerator":
    """Build the generator of a model in this process."""
    from .engine import HFGenerator

    return HFGenerator(model, tokens, settings, model_name=model_name, vision_cache=vision_cache)
