"""A viewbox environment for Gymnasium: `gymnasium.make("viewbox/digits-v0")` after importing this module.

    import gymnasium
    import viewbox.integrations.gymnasium  # registers the ids

    env = gymnasium.make("viewbox/digits-v0", split="test")
    observation, info = env.reset(seed=7)
    observation, reward, terminated, truncated, info = env.step('{"label": "two", "bbox": [0, 0, 500, 500]}')

One step is one reply of the model, as text. An observation has a fixed form, as Gymnasium demands: the new text and the
newest picture. `info["messages"]` holds the chat messages by which the conversation grew: the reply as the environment
keeps it, and what it answers, with every picture in its own size.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from ..core.messages import to_openai_messages
from ..envs import make
from ..errors import ConfigError
from ..records import Message
from ..registry import ENVIRONMENTS
from ..utils.frozen import thaw
from .session import EpisodeSession, check_installed, list_tasks, pick_task

check_installed("gymnasium", "viewbox[gym]")
import gymnasium  # noqa: E402
from gymnasium import spaces  # noqa: E402

__all__ = ["AnyText", "ViewboxGymEnv", "register_environments"]

MAX_TEXT = 2**20  # characters of an observation or of a reply
Observation = dict[str, Any]
Size = tuple[int, int]  # height and width
Info = dict[str, Any]


class AnyText(spaces.Space[str]):
    """Texts of at most `max_length` characters, of any alphabet, where `spaces.Text` lists every character that it
    allows; `sample` draws short ones.

    >>> AnyText(5).contains("été"), AnyText(2).contains("été"), AnyText(5).contains(3)
    (True, False, False)
    """

    def __init__(self, max_length: int = MAX_TEXT, *, seed: int | np.random.Generator | None = None) -> None:
        self.max_length = max_length
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask: object = None, probability: object = None) -> str:
        letters = self.np_random.integers(ord(" "), ord("~") + 1, size=int(self.np_random.integers(1, 65)))
        return "".join(map(chr, letters))[: self.max_length]

    def contains(self, x: object) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def __repr__(self) -> str:
        return f"AnyText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText) and other.max_length == self.max_length


class ViewboxGymEnv(gymnasium.Env[Observation, str]):
    """The environment `environment`, a name that `viewbox.make` takes, with `settings`, as a Gymnasium environment. The
    reward is 0 until the episode ends, and then the environment's score. The last `info` has `end_reason` and `record`,
    the `Episode`; an episode without a score has the reward 0 and says why in `info["no_score"]`. Raise `ConfigError`.

    Args:
        image_size: height and width of the pictures in observations; None: of the first task's, side by side. A smaller
            picture lies in the top left corner of a black frame, a larger one is made smaller.
        render_mode: `rgb_array`: `render` returns the newest picture.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(
        self, environment: str, *, image_size: Size | None = None, render_mode: str | None = None, **settings: Any
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"render_mode: {render_mode!r}; allowed: rgb_array or None", key="render_mode")
        self.session = EpisodeSession(make(environment, **settings))
        self.tasks = list_tasks(self.session.env)
        self.render_mode = render_mode
        if image_size is None:
            images = [image for message in self.session.open(self.tasks[0], seed=0) for image in message.images]
            image_size = max((one.height for one in images), default=1), max(1, sum(one.width for one in images))
        height, width = image_size
        self.action_space = AnyText()
        self.observation_space = spaces.Dict(
            {"text": AnyText(), "image": spaces.Box(0, 255, (height, width, 3), np.uint8)}
        )
        self._picture = np.zeros((height, width, 3), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[Observation, Info]:
        """Start an episode. `options={"task": n}` chooses the task; otherwise it is drawn, fixed by `seed`. `info` has
        `messages`, `tools` (schemas in the OpenAI format) and the id of the `task`. The text teaches the tools, because
        a step takes nothing but text."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(len(self.tasks)))
        task = pick_task(self.tasks, (options or {}).get("task", drawn), "options.task")
        episode_seed = int(self.np_random.integers(2**31)) if seed is None else seed
        messages = self.session.open(task, seed=episode_seed)
        self._picture = np.zeros_like(self._picture)
        messages[0] = Message("system", (messages[0].text + self.session.describe_tools(),))
        info = {
            "messages": to_openai_messages(messages, text_calls=True),
            "tools": [thaw(schema) for schema in self.session.get_state().tool_schemas],
            "task": task.id,
        }
        return self._observe(messages), info

    def step(self, action: str) -> tuple[Observation, float, bool, bool, Info]:
        """Answer one reply of the model."""
        if not isinstance(action, str):
            raise TypeError(f"an action is the model's reply as text; given: {type(action).__name__}")
        state = self.session.get_state()
        start = len(state.messages)
        result = self.session.step(action)
        new = state.messages[start:]
        info: Info = {"messages": to_openai_messages(new, text_calls=True)}
        reward = 0.0
        if state.end_reason is not None:
            record = self.session.build_episode()
            info |= {"end_reason": record.end_reason, "record": record}
            problem = record.explain_missing_score()
            if problem is None and record.scores is not None and record.scores.total is not None:
                reward = float(record.scores.total)
            else:
                info["no_score"] = problem
        return self._observe(list(result.messages)), reward, state.terminated, state.truncated, info

    def render(self) -> object:
        """Return the newest picture, (height, width, 3); None without `render_mode`."""
        return None if self.render_mode is None else self._picture.copy()

    def _observe(self, messages: list[Message]) -> Observation:
        """Return the new text, and the newest picture, at the start all of them from left to right; black if there is
        none."""
        text = "\n\n".join(message.text for message in messages if message.text)[:MAX_TEXT]
        images = [image for message in messages for image in message.images]
        frame = np.zeros_like(self._picture)
        if images:
            height, width = frame.shape[:2]
            opened = [shown.open().convert("RGB") for shown in (images if messages[-1].role == "user" else images[-1:])]
            picture = Image.new("RGB", (sum(shown.width for shown in opened), max(shown.height for shown in opened)))
            for number, shown in enumerate(opened):
                picture.paste(shown, (sum(left.width for left in opened[:number]), 0))
            picture.thumbnail((width, height))  # changes nothing if it fits
            frame[: picture.height, : picture.width] = np.asarray(picture)
            self._picture = frame
        return {"text": text, "image": frame.copy()}


def register_environments() -> None:
    """Register every environment of viewbox as `viewbox/NAME-v0`; what is registered already stays."""
    for name in ENVIRONMENTS:
        id_ = f"viewbox/{name}-v0"
        if id_ not in gymnasium.registry:
            gymnasium.register(
                id_, entry_point="viewbox.integrations.gymnasium:ViewboxGymEnv", kwargs={"environment": name}
            )


register_environments()
