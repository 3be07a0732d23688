"""`BaseMultiTurnEnv`: the turn loop as environment steps.

An environment is an immutable specification; everything that changes during one play is in its `EpisodeState`, so one
environment plays thousands of episodes at once. One step is one model reply. Nothing a model says raises: it becomes
an observation, or a named end. `terminated` (the model answered) is not `truncated` (turns or tokens ran out).
"""

import asyncio
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar

from PIL import Image
from pydantic import BaseModel, Field, ValidationError

from viewbox.envs import loop, prompts, reply, settings, tools
from viewbox.envs.coordinates import Coordinates, to_unit, unit_name
from viewbox.envs.frozen import FrozenDict, thaw
from viewbox.envs.image import View
from viewbox.envs.state import EpisodeState, Reply, StepResult
from viewbox.envs.types import Episode, ImageRef, Message, Scores, Task, Turn
from viewbox.errors import ConfigError, ToolError, unknown
from viewbox.rewards import guarded

MAX_TURNS_CEILING = 30


class BaseMultiTurnEnv:
    """Immutable specification of an environment; an author subclasses it.

    Annotated class attributes are the settings: `viewbox.make(name, max_turns=6)` overrides them, checked by type.
    """

    name: ClassVar[str] = "environment"
    answer: ClassVar[type[BaseModel] | Mapping[str, Any] | None] = None
    restricted: ClassVar[bool] = False  # its images must stay on this machine: no endpoint elsewhere, no tracker
    boxes: ClassVar[tuple[str, ...]] = ()  # answer fields that hold a box, in the frame of the original image

    max_turns: Annotated[int, Field(ge=1, description="replies of the model in an episode, the answer included")] = 10
    tools: Annotated[tuple[str, ...], Field(description="names of the tools the model may call")] = (
        "zoom",
        "crop",
        "adjust_contrast",
        "reset",
    )
    coordinates: Annotated[
        Coordinates,
        Field(description="how points and boxes are written; default in a run: as the model was trained to"),
    ] = "unit"
    max_pixels: Annotated[int, Field(ge=256, description="largest view, in pixels (width x height)")] = 512 * 512
    pixel_multiple: Annotated[
        int, Field(ge=1, description="sides of a view are multiples of this; default in a run: the model's patch grid")
    ] = 1

    def __init__(self, *, reward: Any = None, **given: Any) -> None:
        self.__dict__.update(settings.checked(type(self), given))
        self.__dict__["_overview_of"] = lru_cache(maxsize=256)(self._open)
        if self.max_turns > MAX_TURNS_CEILING:
            warnings.warn(f"max_turns = {self.max_turns}: clamped to {MAX_TURNS_CEILING}", stacklevel=2)
            self.__dict__["max_turns"] = MAX_TURNS_CEILING
        for name in self.tools:
            if name not in tools.TOOLS:
                raise ConfigError(f"{self.name}: {unknown('tool', name, tools.TOOLS)}", key="tools")
        if self.pixel_multiple**2 > self.max_pixels:
            raise ConfigError(
                f"{self.name}: max_pixels = {self.max_pixels}; allowed with pixel_multiple = {self.pixel_multiple}: "
                f"at least {self.pixel_multiple**2}",
                key="max_pixels",
            )
        chosen = getattr(type(self), "reward", None) if reward is None else reward
        self.__dict__["reward"] = guarded(self.default_reward() if chosen is None else chosen)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self.name}: an environment cannot be changed; make another with {name}={value!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self.name}: an environment cannot be changed")

    reward: ClassVar[Any] = None  # an author's default; every instance has its own, guarded

    # ------------------------------------------------------------------ an author writes these
    @property
    def tasks(self) -> Sequence[Task] | Iterable[Task]:
        """What there is to solve."""
        return ()

    def default_reward(self) -> Any:
        """The reward used where a run names none."""
        raise ConfigError(f"{self.name}: this environment has no default reward; give reward=…")

    def system_prompt(self, task: Task) -> str:
        """What the model is told first. The base class adds coordinates and the shape of the answer."""
        return "You read an image with a viewer's tools."

    def user_message(self, task: Task) -> str:
        """The question; the overview image stands before it."""
        return str(task.prompt.get("question", "Look at the image."))

    def images(self, task: Task) -> Sequence[Image.Image]:
        """The task's images at native resolution."""
        return [ref.open() for ref in task.images]

    def validate_answer(self, answer: Mapping[str, Any], task: Task) -> str | None:
        """What is wrong with an answer that fits the schema, in words; None where nothing is."""
        return None

    def on_answer(self, state: EpisodeState, answer: Any) -> str | None:
        """A user's words in reply to an answer (the episode goes on), or None: the episode ends."""
        return None

    def oracle(self, task: Task) -> Sequence[str]:
        """The replies (looks) after which the model's own reading is the best it can do; none where unknown."""
        return ()

    def demonstration(self, task: Task, seed: int, **habits: float) -> Sequence[str]:
        """The replies of a scripted viewer, for a supervised warm start."""
        raise ConfigError(f"{self.name}: this environment has no scripted viewer; train on saved `episodes`")

    # ------------------------------------------------------------------ what the model is shown
    @cached_property
    def answer_schema(self) -> Mapping[str, Any] | None:
        """The answer as JSON Schema."""
        if isinstance(self.answer, type):
            return self.answer.model_json_schema()
        return self.answer

    @cached_property
    def skeleton(self) -> str:
        """The answer's shape, as prompts and nudges state it."""
        return prompts.skeleton(self.answer_schema, self.boxes)

    @cached_property
    def tool_schemas(self) -> tuple[Mapping[str, Any], ...]:
        """The tools offered, in the OpenAI function format; none where there is one turn only."""
        if self.max_turns == 1:
            return ()
        return tuple(FrozenDict(tools.get(name).schema(self.coordinates)) for name in self.tools)

    def opening(self, task: Task) -> str:
        """The whole system prompt."""
        parts = [self.system_prompt(task), prompts.COORDINATES.format(unit=unit_name(self.coordinates))]
        if self.answer is not None:
            parts.append(prompts.ANSWER.format(skeleton=self.skeleton))
        return "\n".join(parts)

    def _open(self, task: Task) -> tuple[View, ImageRef] | None:
        pictures = self.images(task)
        if not pictures:
            return None
        view = View.of(pictures[0], max_pixels=self.max_pixels, multiple=self.pixel_multiple)
        return view, ImageRef.of(view.render())

    # ------------------------------------------------------------------ the turn loop
    def reset(self, task: Task, *, seed: int) -> EpisodeState:
        """A new play; raises `ImageError` where the task's image cannot be opened."""
        opened = self._overview_of(task)  # type: ignore[attr-defined]
        view, shown = opened if opened else (None, None)
        question = self.user_message(task)
        first = Message("user", (shown, question) if shown else (question,))
        messages = [Message("system", (self.opening(task),)), first]
        turn = Turn("user", question, images=(shown,) if shown else ())
        return EpisodeState(self, task, seed, view, view, messages, [turn])

    async def step(self, state: EpisodeState, reply_: Reply | str) -> StepResult:
        """The environment's answer to one reply. Never raises for what the model said."""
        return await loop.step(self, state, Reply(reply_) if isinstance(reply_, str) else reply_)

    def read_answer(self, text: str, task: Task) -> dict[str, Any] | None:
        """The answer a final reply gives, checked and with boxes as fractions of the original; None: none usable."""
        value = loop.value(self, loop.parse(self, text))
        if value is None:
            return None
        answer, problem = self.check_answer(value, task)
        return None if problem else answer

    def check_answer(self, value: Mapping[str, Any], task: Task) -> tuple[dict[str, Any], str | None]:
        """An answer with its boxes as fractions of the original, and what is wrong with it, in words."""
        answer: dict[str, Any] = thaw(value)
        if isinstance(self.answer, type):
            try:
                answer = self.answer.model_validate(answer).model_dump(mode="json")
            except ValidationError as error:
                first = error.errors()[0]
                return {}, f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        elif self.answer is not None:
            problem = reply.violation(answer, self.answer)
            if problem is not None:
                return {}, problem
        size = (1, 1)
        if self.coordinates == "pixel" and self.boxes:  # of the overview, which shows the whole original
            opened = self._overview_of(task)  # type: ignore[attr-defined]
            size = opened[0].size if opened else size
        try:
            for name in self.boxes:
                if answer.get(name) is not None:
                    if not _is_box(answer[name]):
                        return {}, f"{name}: a box is 4 numbers [x1, y1, x2, y2]"
                    x1, y1, x2, y2 = to_unit(answer[name], self.coordinates, size, name)
                    if x1 >= x2 or y1 >= y2:
                        return {}, f"{name}: needs x1 < x2 and y1 < y2"
                    answer[name] = [x1, y1, x2, y2]
        except ToolError as error:
            return {}, str(error)
        return answer, self.validate_answer(answer, task)

    # ------------------------------------------------------------------ judging and playing
    def score(self, episode: Episode) -> Scores:
        """The reward of an episode, taken apart; an episode without an answer scores what `None` scores.

        A reward that raises, or is not a finite number in [0, 1], counts 0 and is logged: it never ends a run.
        """
        total, parts = self.reward.score(episode.answer, episode.task.reference, episode)
        return Scores(0.0 if total is None else total, parts)

    async def play_async(self, task: Task, policy: Callable[[list[Message]], Any], *, seed: int = 0) -> Episode:
        """One episode with a function of the messages as the policy (it may be a coroutine function)."""
        state = self.reset(task, seed=seed)
        while state.end_reason is None:
            said = policy(list(state.messages))
            said = await said if inspect.isawaitable(said) else said
            state.messages.append(Message("assistant", (said if isinstance(said, str) else said.text,)))
            await self.step(state, said)
        return state.episode()

    def play(self, task: Task, policy: Callable[[list[Message]], Any], *, seed: int = 0) -> Episode:
        """`play_async` for scripts and notebooks without an event loop of their own."""
        return asyncio.run(self.play_async(task, policy, seed=seed))


def _is_box(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 4
        and all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    )
