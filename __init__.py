"""viewbox: environments in which a vision-language model reads an image with a viewer's tools.

    import viewbox
    env = viewbox.make("digits")
    episode = env.play(env.tasks[0], lambda messages: '{"label": "one", "bbox": [0, 0, 9, 9]}')
    episode.scores.components

Names are imported when they are first used, so `import viewbox` loads neither torch nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "make": "viewbox.envs",
    "BaseMultiTurnEnv": "viewbox.envs.base",
    "Reply": "viewbox.envs.base",
    "StepResult": "viewbox.envs.base",
    "ScriptedPolicy": "viewbox.rollouts.policies",
    "View": "viewbox.images.view",
    "Episode": "viewbox.records",
    "ImageRef": "viewbox.images.ref",
    "Scores": "viewbox.records",
    "Task": "viewbox.records",
    "ToolCall": "viewbox.records",
    "ToolResult": "viewbox.records",
    "Turn": "viewbox.records",
    "CombinedReward": "viewbox.rewards",
    "ExactMatchReward": "viewbox.rewards",
    "IoUReward": "viewbox.rewards",
    "TokenF1Reward": "viewbox.rewards",
    "play_many": "viewbox.rollouts.play",
    "summarize": "viewbox.rollouts.scoring.summary",
    "load": "viewbox.rollouts.store.writer",
    "Writer": "viewbox.rollouts.store.writer",
    "ViewboxError": "viewbox.errors",
}
__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from viewbox.envs import make as make
    from viewbox.envs.base import BaseMultiTurnEnv as BaseMultiTurnEnv
    from viewbox.envs.base import Reply as Reply
    from viewbox.envs.base import StepResult as StepResult
    from viewbox.images.view import View as View
    from viewbox.records import Episode as Episode
    from viewbox.records import Task as Task
    from viewbox.rollouts.play import play_many as play_many
    from viewbox.rollouts.policies import ScriptedPolicy as ScriptedPolicy
    from viewbox.rollouts.store.writer import Writer as Writer
    from viewbox.rollouts.store.writer import load as load


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'viewbox' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
