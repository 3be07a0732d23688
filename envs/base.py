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
from threading import Condition
from typing import Annotated, Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
from cachetools import LRUCache, cached
from PIL import Image
from pydantic import BaseModel, BeforeValidator, Field

from viewbox.envs import answers, concurrency, history, loop, settings
from viewbox.envs.parsing.reply import AnswerFields
from viewbox.envs.prompts import templates
from viewbox.envs.prompts.templates import Prompts
from viewbox.envs.rules import Rules
from viewbox.envs.state import EpisodeState, Reply, StepResult
from viewbox.envs.task_images import Images, opened
from viewbox.envs.tools import TOOLS, Tool, collect_tools, to_tool_names
from viewbox.errors import ConfigError, ToolError, describe_unknown
from viewbox.frozen import FrozenDict
from viewbox.images.coordinates import Coordinates, describe_unit, needs_size
from viewbox.images.ref import ImageRef
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.records import Episode, Message, Scores, Task, Turn
from viewbox.rewards import to_combined
from viewbox.rewards.metrics import Metric
from viewbox.rewards.remote import is_blocking, refuse_remote

MAX_TURNS_CEILING = 30
OVERVIEWS = 2**29  # bytes of native pixels whose overviews are kept; the least recently used go first


class BaseMultiTurnEnv(Rules):
    """Immutable specification of an environment; an author subclasses it.

    Annotated class attributes are the settings: `viewbox.make(name, max_turns=6)` overrides them, checked by type.
    """

    name: ClassVar[str] = "environment"
    answer: ClassVar[type[BaseModel] | Mapping[str, Any] | None] = None
    restricted: ClassVar[bool] = False  # its images must stay on this machine: no endpoint elsewhere, no tracker
    boxes: ClassVar[tuple[str, ...]] = ()  # answer fields that hold a box, in the frame of the (first) original image
    view_field: ClassVar[str | None] = None  # the answer's field that names the view its boxes were seen in, by number
    metrics: ClassVar[Mapping[str, Metric]] = {}  # of many episodes together, by name: what a paper would report

    # A class may also list functions and `Tool`s here; an instance holds their names. They win over built-in tools.
    tools: Annotated[
        tuple[str, ...], BeforeValidator(to_tool_names), Field(description="names of the tools the model may call")
    ] = (
        "zoom",
        "crop",
        "adjust_contrast",
        "reset",
    )
    coordinates: Annotated[
        Coordinates,
        Field(description="how points and boxes are written; default in a run: as the model was trained to"),
    ] = "unit"
    prompts: Prompts  # made of `templates`
    max_pixels: Annotated[int, Field(ge=256, description="largest view, in pixels (width x height)")] = 512 * 512
    pixel_multiple: Annotated[
        int, Field(ge=1, description="sides of a view are multiples of this; default in a run: the model's patch grid")
    ] = 1

    def __init__(self, *, reward: Any = None, **given: Any) -> None:
        self.__dict__.update(settings.checked(type(self), given))
        kept: LRUCache = LRUCache(OVERVIEWS, getsizeof=_bytes)
        self.__dict__["_overviews"] = (
            WeakValueDictionary()
        )  # of what is in use, by the id of the source, which it holds
        self.__dict__["_overview_of"] = cached(kept, condition=Condition())(self._open)
        self.__dict__["_text"] = lru_cache(maxsize=256)(str)  # one copy of equal texts: those of a task's episodes
        self.__dict__["_schemas_of"] = lru_cache(maxsize=256)(self._schemas)
        if self.max_turns > MAX_TURNS_CEILING:
            warnings.warn(f"max_turns = {self.max_turns}: clamped to {MAX_TURNS_CEILING}", stacklevel=2)
            self.__dict__["max_turns"] = MAX_TURNS_CEILING
        listed = [*(vars(cls).get("tools", ()) for cls in reversed(type(self).__mro__)), given.get("tools", ())]
        self.__dict__["_toolbox"] = TOOLS | {
            name: item for items in listed for name, item in collect_tools(items).items()
        }
        for name in self.tools:
            if name not in self._toolbox:  # type: ignore[attr-defined]
                raise ConfigError(f"{self.name}: {describe_unknown('tool', name, self._toolbox)}", key="tools")  # type: ignore[attr-defined]
        self.__dict__["max_calls"] = FrozenDict(self.max_calls)
        self.__dict__["templates"] = FrozenDict({**type(self).templates, **self.templates})
        self.__dict__["prompts"] = Prompts(self.templates)
        for name in self.max_calls:
            if name not in self.tools:
                raise ConfigError(f"{self.name}: {describe_unknown('tool', name, self.tools)}", key=f"max_calls.{name}")
        if self.view_field is not None and self.view_field not in (self.answer_schema or {}).get("properties", {}):
            raise ConfigError(f"{self.name}: view_field = {self.view_field!r} is no field of the answer")
        if self.pixel_multiple**2 > self.max_pixels:
            raise ConfigError(
                f"{self.name}: max_pixels = {self.max_pixels}; allowed with pixel_multiple = {self.pixel_multiple}: "
                f"at least {self.pixel_multiple**2}",
                key="max_pixels",
            )
        chosen = getattr(type(self), "reward", None) if reward is None else reward
        self.__dict__["reward"] = to_combined(self.default_reward() if chosen is None else chosen)
        if self.restricted:
            refuse_remote(self.reward, self.name)

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

    def images(self, task: Task) -> Sequence[ImageRef | Image.Image | np.ndarray | Source]:
        """The task's images at native resolution; the first is shown, `open_image` shows another."""
        return task.images

    def tools_of(self, task: Task) -> tuple[str, ...]:
        """The names of the tools offered for a task: all of `tools`, or fewer."""
        return self.tools

    def hidden_arguments(self, task: Task, tool: str) -> Mapping[str, Any]:
        """What a tool is given that the model never sees: its arguments marked `Hidden`, by name.

        `images`, the task's images as sources, is given to every tool that declares it.
        """
        return {}

    def validate_answer(self, answer: Mapping[str, Any], task: Task) -> str | None:
        """What is wrong with an answer that fits the schema, in words; None where nothing is."""
        return None

    def on_answer(self, state: EpisodeState, answer: Any) -> Any:
        """A user's words in reply to an answer (the episode goes on), or None: the episode ends.

        It may be a coroutine function: a user may be another model. On the last turn nobody is asked.
        """
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
    def answer_fields(self) -> AnswerFields | None:
        """What helps to read an answer that is not quite where it should be; None where plain text answers."""
        return None if self.answer_schema is None else AnswerFields.from_schema(self.answer_schema)

    @property
    def answer_keys(self) -> list[str]:
        """The keys of the final object; none where plain text answers."""
        return [*(self.answer_schema or {}).get("properties", {}), "continue"] if self.answer_schema else []

    @cached_property
    def skeleton(self) -> str:
        """The answer's shape, as prompts and nudges state it."""
        return templates.skeleton(self.answer_schema, self.boxes, turns=self.max_turns > 1)

    def numbers_views(self, offered: Sequence[str]) -> bool:
        """Whether pictures are told their numbers: where answers or tools name them."""
        return self.view_field is not None or any(self.tool(name).takes_pictures for name in offered)

    def tool(self, name: str) -> Tool:
        """The tool of that name: the environment's own, or viewbox's."""
        return self._toolbox[name]  # type: ignore[attr-defined]

    def shown(self, messages: Sequence[Message]) -> list[Message]:
        """The messages as the model is shown them, under the `history` policy."""
        return history.shown(messages, self.history, lambda number: self.prompts.render("dropped", number=number))

    @cached_property
    def tool_schemas(self) -> tuple[Mapping[str, Any], ...]:
        """All the tools, in the OpenAI function format; none where there is one turn only."""
        return self.schemas(self.tools)

    def schemas(self, names: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
        """The tools of these names, as a conversation that offers them states them (`EpisodeState.tool_schemas`)."""
        return self._schemas_of(names)  # type: ignore[attr-defined]

    def offered(self, task: Task) -> tuple[str, ...]:
        """The names of the tools offered for a task; raises `ConfigError` where one of them is not in `tools`."""
        names = tuple(self.tools_of(task))
        for name in names:
            if name not in self.tools:
                raise ConfigError(
                    f"{self.name}: task {task.id}: {describe_unknown('tool', name, self.tools)}", key="tools"
                )
        return names

    def limit(self, name: str) -> int | None:
        """How often a tool may be called in an episode; None: no limit of its own."""
        return self.max_calls.get(name, self.tool(name).max_calls)

    def _schemas(self, names: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
        if self.max_turns == 1:
            return ()
        one = {name: self.tool(name).build_schema(self.coordinates, max_calls=self.limit(name)) for name in names}
        return tuple(FrozenDict(schema) for schema in one.values())

    def opening(self, task: Task) -> str:
        """The whole system prompt."""
        offered = self.offered(task) if self.max_turns > 1 else ()
        return self.prompts.render(
            "opening",
            system=self.system_prompt(task),
            unit=describe_unit(self.coordinates),
            skeleton=None if self.answer is None else self.skeleton,
            view_field=self.view_field,
            total_calls=self.total_calls,
            max_turns=self.max_turns,
            boundary=self.boundary and bool(offered),
            named_images=any(self.tool(name).takes_pictures for name in offered),
            tools=bool(offered),
        )

    def _open(self, task: Task) -> tuple[View, ImageRef, int] | None:
        """The overview, its picture, and how many images there are."""
        pictures = self.images(task)
        if not pictures:
            return None
        source = opened(pictures[0])
        view = View.of(source, max_pixels=self.max_pixels, multiple=self.pixel_multiple)
        view = self._overviews.setdefault(id(source), view)  # type: ignore[attr-defined]
        return view, view.to_ref(), len(pictures)

    # ------------------------------------------------------------------ the turn loop
    def reset(self, task: Task, *, seed: int) -> EpisodeState:
        """A new play; raises `ImageError` where the task's image cannot be opened."""
        offered = self.offered(task)
        found = self._overview_of(task)  # type: ignore[attr-defined]
        view, shown, count = found or (None, None, 0)
        question = self.prompts.render(
            "question",
            question=self.user_message(task),
            images=count,
            first_image=bool(self.boxes),
            view=0 if view is not None and self.numbers_views(offered) else None,
            switchable="open_image" in offered and self.max_turns > 1,
        )
        question, opening = self._text(question), self._text(self.opening(task))  # type: ignore[attr-defined]
        first = Message("user", (shown, question) if shown else (question,))
        messages = [Message("system", (opening,)), first]
        turn = Turn("user", question, images=(shown,) if shown else ())
        images = () if view is None else Images(view.source, count, lambda: self.images(task))
        views = [] if view is None else [view]
        return EpisodeState(self, task, seed, view, view, messages, [turn], offered, images, views)

    async def step(self, state: EpisodeState, reply_: Reply | str) -> StepResult:
        """The environment's answer to one reply. Never raises for what the model said."""
        return await loop.step(self, state, Reply(reply_) if isinstance(reply_, str) else reply_)

    def read_answer(self, text: str, task: Task) -> dict[str, Any] | None:
        """The answer a final reply gives, checked and with boxes as fractions of the original; None: none usable."""
        value = loop.final_value(self, text)
        if value is None:
            return None
        answer, problem = self.check_answer(value, task)
        return None if problem else answer

    def check_answer(
        self, value: Mapping[str, Any], task: Task, views: Sequence[View] | None = None
    ) -> tuple[dict[str, Any], str | None]:
        """An answer with its boxes as fractions of the original, and what is wrong with it, in words.

        `views` are those an episode has shown (`EpisodeState.views`); without them only the overview is known.
        """
        if views is None:  # fractions need no image; pixels are of the overview, which shows the whole original
            found = needs_size(self.coordinates) and self.boxes and self._overview_of(task)  # type: ignore[attr-defined]
            views = [found[0]] if found else []
        try:
            answer = answers.check(self, value, views)
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
            said = policy(self.shown(state.messages))
            said = await said if inspect.isawaitable(said) else said
            said = Reply(said) if isinstance(said, str) else said
            state.messages.append(Message("assistant", (said.text,), tool_calls=said.tool_calls))
            await self.step(state, said)
        return await concurrency.run(state.episode) if is_blocking(self.reward) else state.episode()

    def play(self, task: Task, policy: Callable[[list[Message]], Any], *, seed: int = 0) -> Episode:
        """`play_async` for scripts and notebooks without an event loop of their own."""
        return asyncio.run(self.play_async(task, policy, seed=seed))


def _bytes(opened: tuple[View, ImageRef, int] | None) -> int:
    """What an opened overview holds on to: native pixels (of the whole volume, where there is one) and the picture."""
    if opened is None:
        return 1
    view, shown, _ = opened
    volume = view.source.volume
    return (view.source.pixels if volume is None else volume.voxels).nbytes + shown.width * shown.height * 3
