"""The author's half of an environment: what it declares, and the hooks that it may override.

`BaseMultiTurnEnv` (`base.py`) adds the driver's half. The turn loop reads an environment as it is declared here.
"""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from ..errors import ConfigError
from ..images.task_images import TaskImage
from ..records import Task
from ..rewards.metrics import Metric
from .places import Part
from .prompts.answer_format import AnswerFormat
from .prompts.templates import Prompts
from .settings import LoopSettings, ViewSettings
from .state import EpisodeState
from .tasks import OverviewCache
from .toolbox import Toolbox


class AuthoredEnv(ViewSettings, LoopSettings):
    """What an author writes. Annotated class attributes are settings: `viewbox.make(name, max_turns=6)` overrides them,
    checked by type and range. `ClassVar`s are fixed by the author.
    """

    name: ClassVar[str] = "environment"
    answer: ClassVar[type[BaseModel] | Mapping[str, Any] | None] = None  # None: the answer is plain text
    restricted: ClassVar[bool] = False  # images must stay on this machine: no endpoint elsewhere, no tracker
    boxes: ClassVar[tuple[str, ...]] = ()  # where the answer has boxes (`bbox`, `boxes[]`, `items[].box`), in the
    # frame of the first original image
    boxes_3d: ClassVar[tuple[str, ...]] = ()  # where the answer has boxes of a volume: see `places.py`
    place: ClassVar[Mapping[Part, str]] = {}  # answer fields with image, plane, slice of the boxes: {"slice": "slice"}
    view_field: ClassVar[str | None] = None  # the answer field that names, by number, the view its boxes refer to
    metrics: ClassVar[Mapping[str, Metric]] = {}  # metrics over many episodes, by name: what a paper would report
    reward: Any  # an author may set a default; an environment holds it as a `CombinedReward`

    # Made of these declarations when an environment is created
    prompts: Prompts
    toolbox: Toolbox
    tool_schemas: tuple[Mapping[str, Any], ...]  # of all its tools, in the OpenAI function format
    answer_format: AnswerFormat
    _overviews: OverviewCache
    _checks_in_thread: bool  # an author's code checks answers, or an image may be opened

    @property
    def tasks(self) -> Sequence[Task] | Iterable[Task]:
        """The tasks to solve."""
        return ()

    def default_reward(self) -> object:
        """Return the reward used if a run names none."""
        raise ConfigError(f"{self.name}: this environment has no default reward; set reward=…")

    def system_prompt(self, task: Task) -> str:
        """Return the first sentences of the system prompt; the rules, coordinates and answer format are added."""
        return "You read an image with a viewer's tools."

    def user_message(self, task: Task) -> str:
        """Return the question; pictures of the task's images precede it."""
        return str(task.prompt.get("question", "Look at the image."))

    def images(self, task: Task) -> Sequence[TaskImage]:
        """Return the task's images at native resolution. All are shown at the start, of more than 16 the first 16."""
        return task.images

    def count_images(self, task: Task) -> int:
        """Count a task's images; an environment that draws its images may know it without drawing them."""
        return len(self.images(task))

    def tools_of(self, task: Task) -> tuple[str, ...]:
        """Return the names of the tools offered for a task: all of `tools`, or fewer."""
        return self.tools

    def hidden_arguments(self, task: Task, tool: str) -> Mapping[str, Any]:
        """Return the values of a tool's `Hidden` arguments, by name; the model never sees them.

        `images`, the task's images as sources, is passed to every tool that declares it.
        """
        return {}

    def validate_answer(self, answer: Mapping[str, Any], task: Task) -> str | None:
        """Say what is wrong with an answer that fits the schema, as a sentence for the model; None if it is valid."""
        return None

    def on_answer(self, state: EpisodeState, answer: Mapping[str, Any]) -> str | Awaitable[str | None] | None:
        """Return the user's response to an answer, which continues the episode, or None to end it.

        It may be a coroutine function, as when the user is another model. It is not called on the last turn.
        """
        return None

    def oracle(self, task: Task) -> Sequence[str]:
        """Return the replies (looks) after which the model can read the answer best; empty if unknown."""
        return ()
