"""`BaseMultiTurnEnv`: the contract between an author, a driver and the turn loop.

An environment is an immutable specification. Everything that changes during a play is in its `EpisodeState`, so one
environment plays thousands of episodes at once. One step is one reply of the model. No model output can raise an
exception: it becomes an observation or a named end.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar

from msgspec.structs import replace
from pydantic import BaseModel

from ..errors import BadRow, ConfigError, ToolError, describe_unknown
from ..images.coordinates import describe_unit, from_unit, needs_size
from ..images.shown import ShownView
from ..images.source import Source
from ..images.task_images import TaskImage, TaskImages, list_names, name_image
from ..images.view import View
from ..network.data_policy import check_may_leave, keep_on_this_machine
from ..records import Episode, EpisodeTokens, Message, Reply, RunConfig, Scores, Task, Turn
from ..rewards import to_combined
from ..rewards.metrics import Metric
from ..rewards.remote import check_reward_may_ask, is_blocking
from ..tools import TOOLS, Tool, collect_tools
from ..tools.builtin.windows import add_windows
from ..tools.specialists.spec import build_specialists, declare_tools, find_hook
from ..utils import concurrency
from ..utils.frozen import FrozenDict
from . import answers, loop, places, settings
from .answers import check_declaration, runs_code, write_gold_answer
from .places import Part
from .prompts.templates import Prompts
from .state import EpisodeState, PlayableEnv, StepResult
from .tasks import OverviewCache


class BaseMultiTurnEnv(PlayableEnv):
    """Immutable specification of an environment; an author subclasses it.

    Annotated class attributes are settings: `viewbox.make(name, max_turns=6)` overrides them, checked by type and
    range. `ClassVar`s are fixed by the author.
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
    prompts: Prompts  # the texts of the environment, made from `templates`
    _sealed = False

    # ------------------------------------------------------------------ written by an author
    @property
    def tasks(self) -> Sequence[Task] | Iterable[Task]:
        """The tasks to solve."""
        return ()

    def default_reward(self) -> object:
        """The reward used if a run names none."""
        raise ConfigError(f"{self.name}: this environment has no default reward; set reward=…")

    def system_prompt(self, task: Task) -> str:
        """The first sentences of the system prompt; the rules, coordinates and answer format are added."""
        return "You read an image with a viewer's tools."

    def user_message(self, task: Task) -> str:
        """The question; pictures of the task's images precede it."""
        return str(task.prompt.get("question", "Look at the image."))

    def images(self, task: Task) -> Sequence[TaskImage]:
        """The task's images at native resolution. All are shown at the start, of more than 16 the first 16."""
        return task.images

    def count_images(self, task: Task) -> int:
        """How many images a task has; an environment that draws its images may know it without drawing them."""
        return len(self.images(task))

    def tools_of(self, task: Task) -> tuple[str, ...]:
        """The names of the tools offered for a task: all of `tools`, or fewer."""
        return self.tools

    def for_task(self, task: Task) -> "BaseMultiTurnEnv":
        """The environment that plays and scores a task: this one, or one of those that it mixes."""
        return self

    def hidden_arguments(self, task: Task, tool: str) -> Mapping[str, Any]:
        """Values of a tool's `Hidden` arguments, by name; the model never sees them.

        `images`, the task's images as sources, is passed to every tool that declares it.
        """
        return {}

    def validate_answer(self, answer: Mapping[str, Any], task: Task) -> str | None:
        """What is wrong with an answer that fits the schema, as a sentence for the model; None if it is valid."""
        return None

    def on_answer(self, state: EpisodeState, answer: Mapping[str, Any]) -> str | Awaitable[str | None] | None:
        """The user's response to an answer, which continues the episode, or None to end it.

        It may be a coroutine function, as when the user is another model. It is not called on the last turn.
        """
        return None

    def oracle(self, task: Task) -> Sequence[str]:
        """The replies (looks) after which the model can read the answer best; empty if unknown."""
        return ()

    def demonstration(self, task: Task, seed: int, **habits: float) -> Sequence[str]:
        """The replies of a whole episode for a supervised warm start; by default the `oracle`'s and the right answer.

        `habits` are the probabilities of imperfections of a script. Raises `ConfigError` if none can be written.
        """
        try:
            if habits:
                raise ConfigError(f"its demonstrations have no habits; given: {', '.join(habits)}")
            return [*self.oracle(task), self.write_answer(task)]
        except ConfigError as error:
            raise ConfigError(f"{self.name}: this environment has no demonstrations: {error}") from error

    # ------------------------------------------------------------------ called by a driver
    def check_may_train(self) -> None:
        """Raise `ConfigError` if no policy may be trained here; its key is that of the setting that forbids it."""
        for name, specialist in self.specialists.items():
            if specialist.why_not_in_training is not None:
                key = f"specialists.{name}"
                raise ConfigError(f"{key}: {specialist.why_not_in_training}", key=key)

    @property
    def needs_preparing(self) -> bool:
        """Whether `prepare` has something to do: a tool that loads a model or connects to a server."""
        return any(find_hook(self.get_tool(name), "prepare") is not None for name in self.tools)

    def prepare(self) -> None:
        """Load the models of the tools and connect to their servers; what is ready already costs nothing.

        Drivers call it before the first episode, so that a model that cannot be loaded ends the run at its start. If
        nothing calls it, the first call of each tool prepares that tool.

        Raises:
            ConfigError: a tool cannot be prepared; it names the missing package, file or address.
        """
        with keep_on_this_machine(self):
            for name in self.tools:
                prepare = find_hook(self.get_tool(name), "prepare")
                if prepare is not None:
                    prepare()

    def rest(self) -> None:
        """Give back what the tools hold and the next episode can take again, such as memory on the GPU.

        Training calls it between playing and learning; `prepare` takes it back.
        """
        for name in self.tools:
            rest = find_hook(self.get_tool(name), "rest")
            if rest is not None:
                rest()

    def reset(self, task: Task, *, seed: int) -> EpisodeState:
        """Start a play.

        Raises:
            ImageError: an image of the task cannot be opened.
            ConfigError: there are more images than can be shown, and no tool opens the others.
        """
        overview = self._overviews.get(task)
        offered, view = self.get_offered_tools(task), next(iter(overview.views), None)
        self._check_can_see(task, overview.count)
        is_numbering = self.is_numbering_views(offered)
        names = [name_image(number) for number in range(len(overview.views))]
        question = self.prompts.render(
            "question",
            question=self.user_message(task),
            images=overview.count,
            shown=names,
            names=list_names(overview.count),
            first_image=bool(self.boxes) and "image" not in self.place,
            view=0 if view is not None and (self.view_field or len(names) == 1) and is_numbering else None,
            reduced=overview.reduced,
            switchable="open_image" in offered and self.max_turns > 1,
        )
        volumes = {name: one.source.volume for name, one in zip(names, overview.views, strict=True)}
        oriented = [name for name, volume in volumes.items() if volume is not None and volume.sides is not None]
        unknown = [name for name, volume in volumes.items() if volume is not None and volume.sides is None]
        if oriented or unknown:
            is_shared = overview.count in (len(oriented), len(unknown))
            frame = self.prompts.render("volume", oriented=oriented, unknown=unknown, shared=is_shared)
            question = f"{frame}\n{question}"
        question, system = self._share_text(question), self._share_text(self.build_system_prompt(task))
        first = Message("user", (*overview.pictures, question))
        views = tuple(ShownView.of(one, number) for number, one in enumerate(overview.views))
        return EpisodeState(
            task=task,
            seed=seed,
            max_turns=self.max_turns,
            view=view,
            overview=view,
            messages=[Message("system", (system,)), first],
            turns=[Turn("user", question, images=first.images, views=views)],
            tools=offered,
            tool_schemas=self.get_tool_schemas(offered),
            images=self._open_images(task) or (),
            views=list(overview.views),
        )

    async def step(self, state: EpisodeState, reply: Reply | str) -> StepResult:
        """Answer one reply; the reply and the environment's messages are appended to `state.messages`."""
        return await loop.step(self, state, Reply(reply) if isinstance(reply, str) else reply)

    def build_episode(
        self,
        state: EpisodeState,
        run_config: RunConfig | None = None,
        *,
        tokens: EpisodeTokens | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> Episode:
        """The scored record of a play; a play that has not ended is recorded as `cancelled`."""
        info = {**self._describe_record(), **(info or {})}
        record = state.to_episode(self.name, run_config, tokens=tokens, info=info)
        confidence = None if record.answer is None else self.get_confidence(record.answer, record.task)
        return replace(record, scores=self.score(record), confidence=confidence)

    def _describe_record(self) -> dict[str, Any]:
        """What `info` says of the environment, for people who look at the episode: the fields of its answer that name
        the place of a box, and how many images the model saw at a time, if not all."""
        place: dict[str, Any] = {str(key): value for key, value in self.place.items()}
        if self.view_field is not None:
            place["view"] = self.view_field
        return {
            **({"place": place} if place else {}),
            **({} if self.history == "full" else {"last_images": self.history.last_images}),
        }

    async def build_episode_async(
        self,
        state: EpisodeState,
        run_config: RunConfig | None = None,
        *,
        tokens: EpisodeTokens | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> Episode:
        """`build_episode` on an event loop: in a thread if the reward waits for a service, such as a judge."""
        build = partial(self.build_episode, state, run_config, tokens=tokens, info=info)
        return await concurrency.run_in_thread(build) if self._scores_in_thread else build()

    def get_confidence(self, answer: Mapping[str, Any], task: Task) -> float | None:
        """How sure the model is of its answer, in [0, 1], for the record: what the answer states as `confidence`.

        An author may override it, for an answer that states it elsewhere or on another scale.
        """
        stated = answer.get("confidence")
        if isinstance(stated, bool) or not isinstance(stated, int | float) or not 0 <= stated <= 1:
            return None
        return float(stated)

    def score(self, episode: Episode) -> Scores:
        """The reward of an episode and its components; an episode without an answer scores what `None` scores.

        The total is None where nothing can be said about the policy: a fault ended the episode (`Episode.is_fault`), no
        component applies, or one failed. A reward that raises, or returns no finite number in [0, 1], never ends a run.
        """
        with keep_on_this_machine(self):
            scores: Scores = self.reward.score_episode(episode)
        return scores

    async def play_async(self, task: Task, policy: loop.Policy, *, seed: int = 0) -> Episode:
        """Play one episode. `policy` is a function, or a coroutine function, of the messages."""
        with keep_on_this_machine(self):
            if self.needs_preparing:
                await concurrency.run_in_thread(self.prepare)
            state = self.reset(task, seed=seed)

            async def get_reply() -> Reply:
                return await loop.ask_policy(policy, self.apply_history(state.messages))

            await loop.play_to_end(state, get_reply, partial(self.step, state))
            return await self.build_episode_async(state)

    def play(self, task: Task, policy: loop.Policy, *, seed: int = 0) -> Episode:
        """`play_async` without an event loop of one's own, as in scripts and notebooks."""
        return asyncio.run(self.play_async(task, policy, seed=seed))

    # ------------------------------------------------------------------ answers
    def read_answer(self, text: str, task: Task) -> dict[str, Any] | None:
        """The checked answer of a final reply, its boxes as fractions of the original; None if it has none."""
        value = loop.get_final_value(self, text)
        if value is None:
            return None
        answer, problem = self.check_answer(value, task)
        return None if problem else answer

    def check_answer(
        self,
        value: Mapping[str, Any],
        task: Task,
        views: Sequence[View] | None = None,
        images: TaskImages | None = None,
    ) -> tuple[dict[str, Any], str | None]:
        """An answer with its boxes as fractions of the original, and what is wrong with it (None: nothing).

        `views` are those that the episode has shown (`EpisodeState.views`); the default is the overview alone. `images`
        (`EpisodeState.images`) are opened again by default, if boxes may lie on any of them.
        """
        if images is None and (self.place or self.boxes_3d):
            images = self._open_images(task)
        if views is None:  # only boxes in pixels need an image
            views = self._overviews.get(task).views if self.boxes and needs_size(self.coordinates) else ()
        try:
            answer = answers.convert_answer(self, value, views, images)
            problem = self.validate_answer(answer, task)
            answers.check_finite(answer if self._checks_in_thread else {})  # an author's code may have changed it
            return answer, problem
        except ToolError as error:
            return {}, str(error)

    def write_answer(self, task: Task) -> str:
        """The right answer as a model would write it, as JSON text: see `answers.py`. Raises `ConfigError`.

        >>> from viewbox.envs.digits import Digits
        >>> env = Digits()
        >>> env.read_answer(env.write_answer(env.tasks[0]), env.tasks[0])["label"] == env.tasks[0].reference["label"]
        True
        """
        return write_gold_answer(self, task)

    def _open_images(self, task: Task) -> TaskImages | None:
        overview = self._overviews.get(task)
        opened = [view.source for view in overview.views]
        return TaskImages(opened, overview.count, lambda: self.images(task)) if opened else None

    def write_box_3d(self, box: Sequence[float], task: Task, place: Mapping[Part, Any] | None = None) -> list[float]:
        """A box of a volume, (x1, y1, z1, x2, y2, z2) in fractions, as the model writes it: see `places.py`.

        `place` names the image by number ({"image": 1}) if it is not the first.
        """
        source = self._find_slice(task, {"image": (place or {}).get("image")})
        views = self._overviews.get(task).views
        return places.write_box_3d(box, source, self.coordinates, answers.get_axial_size(self, source, views))

    def _find_slice(self, task: Task, place: Mapping[Part, Any]) -> Source | None:
        images = self._open_images(task)
        return None if images is None else places.find_slice(place, {part: part for part in place}, images)

    def write_box(self, box: Sequence[float], task: Task, place: Mapping[Part, Any] | None = None) -> list[float]:
        """A box of the original image (fractions) in the coordinates that the model writes, for gold answers.

        `place` names image, plane and slice ({"image": 1, "slice": 12}) if it is not on the first picture.

        >>> from viewbox.envs.digits import Digits
        >>> Digits(coordinates="per_mille").write_box([0.25, 0.25, 0.5, 0.5], Task("t"))
        [250, 250, 500, 500]
        """
        frame = next(iter(self._overviews.get(task).views), None) if needs_size(self.coordinates) else None
        if frame is not None and place and (source := self._find_slice(task, place)) is not None:
            frame = frame.show(source)
        return list(from_unit(tuple(box), self.coordinates, frame.size if frame else (1, 1)))

    # ------------------------------------------------------------------ tools and prompts
    def get_offered_tools(self, task: Task) -> tuple[str, ...]:
        """The names of the tools offered for a task: those of `tools_of`, and `open_image` if they work on one of
        several images. Raises `ConfigError` for a name that is not in `tools`.
        """
        names = tuple(self.tools_of(task))
        for name in names:
            if name not in self.tools:
                raise ConfigError(
                    f"{self.name}: task {task.id}: {describe_unknown('tool', name, self.tools)}", key="tools"
                )
        works_on_one = "open_image" not in names and any(self.get_tool(name).stateful for name in names)
        return (*names, "open_image") if works_on_one and self.count_shown(task) > 1 else names

    def count_shown(self, task: Task) -> int:
        """How many images of a task are shown at the start; 0 for a bad row, which is told when it is played."""
        try:
            count = self._overviews.counts.get(task)
            return min(self._overviews.max_shown, self.count_images(task) if count is None else count)
        except BadRow:
            return 0

    def _check_can_see(self, task: Task, count: int) -> None:
        """Raise `ConfigError` if a task has more images than are shown at the start, and no tool opens the others."""
        shown = self._overviews.max_shown
        if count <= shown:
            return
        can_open = self.max_turns > 1 and self.max_total_calls != 0 and "open_image" in self.get_offered_tools(task)
        if not can_open or self.get_max_calls("open_image") == 0:
            problem = f"has {count} images, and no tool to open those after the first {shown}, which are shown"
            allowed = f"at most {shown} images, or open_image among the tools and max_turns above 1"
            raise ConfigError(f"{self.name}: task {task.id} {problem}; allowed: {allowed}", key="tools")

    def get_tool_schemas(self, names: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
        """The tools of these names in the OpenAI function format; none if there is one turn only."""
        return self._build_schemas(names) if self.max_turns > 1 else ()

    @property
    def tool_schemas(self) -> tuple[Mapping[str, Any], ...]:
        """All tools in the OpenAI function format; none if there is one turn only."""
        return self.get_tool_schemas(self.tools)

    def _build_tool_schemas(self, names: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
        tools = {name: self.get_tool(name) for name in names}
        return tuple(
            FrozenDict(tool.build_schema(self.coordinates, max_calls=self.get_max_calls(name)))
            for name, tool in tools.items()
        )

    def build_system_prompt(self, task: Task) -> str:
        """The whole system prompt of a task."""
        offered = self.get_offered_tools(task) if self.max_turns > 1 else ()
        is_naming = any(self.get_tool(name).takes_pictures for name in offered)
        return self.prompts.render(
            "system",
            system=self.system_prompt(task),
            unit=describe_unit(self.coordinates) if offered or self.boxes or self.boxes_3d else None,
            answer_format=None if self.answer is None else self.answer_format,
            view_field=self.view_field,
            place={part: self.place.get(part) for part in places.PARTS} if self.place else {},
            boxes_3d=list(self.boxes_3d),
            max_total_calls=self.max_total_calls,
            max_turns=self.max_turns,
            boundary=self.boundary and bool(offered),
            named_images=max(1, self.count_shown(task)) if is_naming else 0,
            tools=bool(offered),
        )

    # ------------------------------------------------------------------ construction
    def __init__(self, *, reward: object = None, **given: Any) -> None:
        for name, value in settings.resolve_settings(type(self), given):
            setattr(self, name, value)
        listed = [*(vars(cls).get("tools", ()) for cls in reversed(type(self).__mro__)), given.get("tools", ())]
        self._toolbox: Mapping[str, Tool] = TOOLS | {
            name: tool for tools in listed for name, tool in collect_tools(tools).items()
        }
        if self.windows:
            self._toolbox = self._toolbox | {"window_level": add_windows(self._toolbox["window_level"], self.windows)}
        self._add_specialists()
        self.prompts = Prompts(self.templates)
        self._check_names()
        check_declaration(self.answer)
        self._overviews = OverviewCache(self.images, self.max_pixels, self.pixel_multiple)
        self._share_text = lru_cache(maxsize=256)(str)  # equal texts of a task's episodes are one object
        self._build_schemas = lru_cache(maxsize=256)(self._build_tool_schemas)
        reward = getattr(type(self), "reward", None) if reward is None else reward
        self.reward = to_combined(self.default_reward() if reward is None else reward)
        self._scores_in_thread = is_blocking(self.reward)
        self._checks_in_thread = runs_code(type(self), BaseMultiTurnEnv) or bool(self.place)  # an image may be opened
        check_reward_may_ask(self, self.reward)
        self._sealed = True

    def _add_specialists(self) -> None:
        try:
            specialists = build_specialists(self.specialists)
            tools = declare_tools(specialists, self._toolbox)
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}", key=error.key, given=error.given) from error
        for name, specialist in specialists.items():
            check_may_leave(
                self,
                specialist.address,
                action=f"specialists.{name} sends {specialist.sends} to",
                allowed="an address on localhost",
                key=f"specialists.{name}",
            )
        self.specialists = FrozenDict(specialists)
        self._toolbox = {**self._toolbox, **tools}
        self.tools = tuple(dict.fromkeys((*self.tools, *tools)))

    def _check_names(self) -> None:
        for key, names, allowed in (("tools", self.tools, self._toolbox), ("max_calls", self.max_calls, self.tools)):
            for name in names:
                if name not in allowed:
                    path = key if key == "tools" else f"{key}.{name}"
                    raise ConfigError(f"{self.name}: {describe_unknown('tool', name, allowed)}", key=path)
        fields = (self.answer_schema or {}).get("properties", {})
        if self.view_field is not None and self.view_field not in fields:
            raise ConfigError(f"{self.name}: view_field = {self.view_field!r}; allowed: a field of the answer")
        for part, field in self.place.items():
            if part not in places.PARTS or field not in fields:
                what = f"{self.name}: place: {part} = {field!r}"
                raise ConfigError(
                    f"{what}; allowed: image, plane or slice, each with a field of the answer", key="place"
                )

    def __setattr__(self, name: str, value: Any) -> None:
        if self._sealed:
            raise AttributeError(f"{self.name}: an environment cannot be changed; make another with {name}={value!r}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self.name}: an environment cannot be changed")
