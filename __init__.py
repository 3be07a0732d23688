"""viewbox: environments in which a vision-language model reads an image with a viewer's tools.

    import viewbox
    env = viewbox.make("digits")
    episode = env.play(env.tasks[0], lambda messages: '{"label": "one", "bbox": [0, 0, 9, 9]}')
    episode.scores.components

A name is imported when it is first used: `import viewbox` loads neither torch nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

_HOMES = {  # public name → the module that defines it; type checkers read the same table below
    "make": "viewbox.envs",
    "BaseMultiTurnEnv": "viewbox.core.base",
    "Reply": "viewbox.records",
    "StepResult": "viewbox.core.state",
    "Box": "viewbox.tools",
    "Hidden": "viewbox.tools",
    "Picture": "viewbox.tools",
    "Point": "viewbox.tools",
    "Range": "viewbox.tools",
    "Tool": "viewbox.tools",
    "ToolOutput": "viewbox.tools",
    "tool": "viewbox.tools.tool",
    "ConfigError": "viewbox.errors",
    "ImageError": "viewbox.errors",
    "ModelError": "viewbox.errors",
    "StoreError": "viewbox.errors",
    "ToolError": "viewbox.errors",
    "ToolFault": "viewbox.errors",
    "ViewboxError": "viewbox.errors",
    "open_image": "viewbox.images.files",
    "ImageRef": "viewbox.images.ref",
    "View": "viewbox.images.view",
    "Episode": "viewbox.records",
    "EpisodeTokens": "viewbox.records",
    "Message": "viewbox.records",
    "RunConfig": "viewbox.records",
    "Scores": "viewbox.records",
    "Task": "viewbox.records",
    "ToolCall": "viewbox.records",
    "ToolResult": "viewbox.records",
    "Turn": "viewbox.records",
    "BrierReward": "viewbox.rewards",
    "CombinedReward": "viewbox.rewards",
    "ExactMatchReward": "viewbox.rewards",
    "FormatReward": "viewbox.rewards",
    "IoUReward": "viewbox.rewards",
    "LabelSetF1Reward": "viewbox.rewards",
    "RankingReward": "viewbox.rewards",
    "TokenF1Reward": "viewbox.rewards",
    "ToolUseReward": "viewbox.rewards",
    "check_rewards": "viewbox.rewards",
    "play_many": "viewbox.rollouts.play",
    "ScriptedPolicy": "viewbox.engines.scripted",
    "summarize": "viewbox.rollouts.scoring.summary",
    "EpisodeWriter": "viewbox.rollouts.store.writer",
    "load": "viewbox.rollouts.store.reader",
}
__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from .core.base import BaseMultiTurnEnv as BaseMultiTurnEnv
    from .core.state import StepResult as StepResult
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'viewbox' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
