"""viewbox: environments in which a vision-language model reads an image with a viewer's tools.

    import viewbox
    env = viewbox.make("digits")
    episode = env.play(env.tasks[0], lambda messages: '{"label": "one", "bbox": [0, 0, 9, 9]}')
    episode.scores.components

A name is imported when it is first used: `import viewbox` loads neither torch nor numpy. The block below is read by
type checkers, and at run time as text.
"""

import ast
from importlib import import_module
from pkgutil import get_data
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from .core.base import BaseMultiTurnEnv as BaseMultiTurnEnv
    from .core.contract import StepResult as StepResult
    from .engines.models import connect as connect
    from .engines.models import load_model as load_model
    from .engines.scripted import ScriptedPolicy as ScriptedPolicy
    from .envs import make as make
    from .errors import ConfigError as ConfigError
    from .errors import ImageError as ImageError
    from .errors import ModelError as ModelError
    from .errors import StoreError as StoreError
    from .errors import ToolError as ToolError
    from .errors import ToolFault as ToolFault
    from .errors import ViewboxError as ViewboxError
    from .images.files import open_image as open_image
    from .images.ref import ImageRef as ImageRef
    from .images.view import View as View
    from .records import Episode as Episode
    from .records import EpisodeTokens as EpisodeTokens
    from .records import Message as Message
    from .records import Reply as Reply
    from .records import RunConfig as RunConfig
    from .records import Scores as Scores
    from .records import Task as Task
    from .records import ToolCall as ToolCall
    from .records import ToolResult as ToolResult
    from .records import Turn as Turn
    from .rewards import BrierReward as BrierReward
    from .rewards import CombinedReward as CombinedReward
    from .rewards import ExactMatchReward as ExactMatchReward
    from .rewards import FormatReward as FormatReward
    from .rewards import IoUReward as IoUReward
    from .rewards import LabelSetF1Reward as LabelSetF1Reward
    from .rewards import RankingReward as RankingReward
    from .rewards import TokenF1Reward as TokenF1Reward
    from .rewards import ToolUseReward as ToolUseReward
    from .rewards import check_rewards as check_rewards
    from .rollouts.ask import Answer as Answer
    from .rollouts.ask import ask as ask
    from .rollouts.ask import ask_async as ask_async
    from .rollouts.ask import open_session as open_session
    from .rollouts.play import play_many as play_many
    from .rollouts.scoring.summary import summarize as summarize
    from .rollouts.store.reader import load as load
    from .rollouts.store.writer import EpisodeWriter as EpisodeWriter
    from .tools import Box as Box
    from .tools import Hidden as Hidden
    from .tools import Picture as Picture
    from .tools import Point as Point
    from .tools import Range as Range
    from .tools import Tool as Tool
    from .tools import ToolOutput as ToolOutput
    from .tools.tool import tool as tool


def _read_homes() -> dict[str, str]:
    """Public name → the module that defines it, from the imports above."""
    body = ast.parse(get_data(__name__, "__init__.py") or b"").body  # the package may lie in a zip file
    (block,) = (node for node in body if isinstance(node, ast.If))
    imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
    return {alias.name: f"{__name__}.{node.module}" for node in imports for alias in node.names}


_HOMES = _read_homes()
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'viewbox' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
