"""`BaseMultiTurnEnv`: the contract between an author, a driver and the turn loop.

An environment is an immutable specification. Everything that changes during a play is in its `EpisodeState`, so one
environment plays thousands of episodes at once. One step is one reply of the model. No model output can raise an
exception: it becomes an observation or a named end.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from ..errors import BadRow, ConfigError, describe_unknown
from ..images.coordinates import describe_unit
from ..images.shown import ShownView
from ..images.task_images import list_names, name_image
from ..network import background
from ..network.data_policy import RESTRICTED, check_may_leave, keep_on_this_machine
from ..network.errors import AddressError
from ..records import Episode, EpisodeTokens, Message, Reply, RunConfig, Scores, Task, Turn
from ..rewards import to_combined
from ..rewards.fields import read_confidence
from ..rewards.remote import check_reward_may_ask
from ..tools import TOOLS, Tool, collect_tools
from ..tools.builtin.windows import add_windows
from ..tools.specialists.spec import build_specialists, declare_tools, find_hook
from ..utils import concurrency
from ..utils.frozen import FrozenDict
from . import answers, loop, places, settings
from .contract import PARTS, AuthoredEnv, EpisodeState, Part, StepResult, Toolbox, check_declaration, runs_code
from .messages import apply_history
from .prompts.answer_format import AnswerFormat
from .prompts.templates import Prompts
from .tasks import OverviewCache

log = logging.getLogger("viewbox.envs")
HOOKS: tuple[Literal["prepare"], Literal["release"]] = ("prepare", "release")
Env = TypeVar("Env", bound="BaseMultiTurnEnv")


class BaseMultiTurnEnv(AuthoredEnv):
    """Immutable specification of an environment. An author subclasses it, and overrides what `AuthoredEnv` declares."""

    _sealed = False

    def for_task(self, task: Task) -> "BaseMultiTurnEnv":
        """Return the environment that plays and scores a task: this one, or one of those that it mixes."""
        return self

    def demonstration(self, task: Task, seed: int, **habits: float) -> Sequence[str]:
        """Return the replies of a whole episode for a supervised warm start; by default the `oracle`'s and the right
        answer. `habits` are the probabilities of imperfections of a script. Raise `ConfigError` if none can be
        written."""
        try:
            if habits:
                raise ConfigError(f"its demonstrations have no habits; given: {', '.join(habits)}")
            return [*self.oracle(task), self.write_answer(task)]
        except ConfigError as error:
            raise ConfigError(f"{self.name}: this environment has no demonstrations: {error}") from error

    def play_unanswered(self) -> "BaseMultiTurnEnv":
        """Return the environment in which a row of data without a right answer is a task, too, which has no score."""
        return self

    def check_may_train(self) -> None:
        """Raise `ConfigError` if no policy may be trained here; its key is that of the setting that forbids it."""
        self._check_specialists("why_not_in_training")

    def check_may_ask(self) -> None:
        """Raise `ConfigError` if nobody may ask something of their own here, as of an invented literature."""
        self._check_specialists("why_not_for_a_person")

    def _check_specialists(self, reason: str) -> None:
        for name, specialist in self.specialists.items():
            if (problem := getattr(specialist, reason)) is not None:
                key = f"specialists.{name}"
                raise ConfigError(f"{key}: {problem}", key=key)

    def prepare(self) -> None:
        """Load the models of the tools and connect to their servers; what is ready already costs nothing.
        Drivers call it before the first episode, so that a model that cannot be loaded ends the run at its start. If
        nothing calls it, the first call of each tool prepares that tool.

        Raises:
            ConfigError: a tool cannot be prepared; it names the missing package, file or address.
        """
        with keep_on_this_machine(self):
            for prepare in self._hooks["prepare"]:
                prepare()

    def prepare_to_serve(self) -> None:
        """`prepare`; where faults are told, a server that cannot be reached is one when it is called."""
        try:
            self.prepare()
        except ConfigError as error:
            if self.on_tool_fault == "end" or not isinstance(error.__cause__, AddressError | TimeoutError):
                raise
            log.warning("%s: %s", self.name, error)

    def release(self) -> None:
        """Give back what the tools hold and the next episode can take again, such as memory on the GPU.
        Training calls it between playing and learning; `prepare` takes it back."""
        for release in self._hooks["release"]:
            release()

    def reset(self, task: Task, *, seed: int) -> EpisodeState:
        """Start a play. Raise `ImageError` if an image of the task cannot be opened. Raise `ConfigError` if there are
        more images than can be shown, and no tool opens the others."""
        overview = self._overviews.get(task)
        offered, view = get_offered_tools(self, task), next(iter(overview.views), None)
        self._check_can_see(task, overview.count)
        is_numbering = self.view_field is not None or self.toolbox.takes_pictures(offered)
        names = [name_image(number) for number in range(len(overview.views))]
        question = self.prompts.render(
            "question",
            question=self.user_message(task),
            images=overview.count,
            shown=names,
            names=list_names(overview.count),
            view=0 if view is not None and (self.view_field or len(names) == 1) and is_numbering else None,
            reduced=overview.reduced,
            switchable="open_image" in offered and self.max_turns > 1,
        )
        sources = {name: shown.source for name, shown in zip(names, overview.views, strict=True)}
        oriented = [name for name, shown in sources.items() if shown.sides and shown.volume and shown.volume.planes]
        lettered = [name for name, shown in sources.items() if shown.sides and name not in oriented]
        unknown = [name for name, shown in sources.items() if shown.volume and not shown.sides]
        placed = {"oriented": oriented, "lettered": lettered, "unknown": unknown}
        if any(placed.values()):
            frame = self.prompts.render("volume", **placed, shared=overview.count in map(len, placed.values()))
            question = f"{frame}\n{question}"
        question, system = self._share_text(question), self._share_text(self.build_system_prompt(task))
        first = Message("user", (*overview.pictures, question))
        views = tuple(ShownView.of(shown, number) for number, shown in enumerate(overview.views))
        return EpisodeState(
            task=task,
            seed=seed,
            max_turns=self.max_turns,
            view=view,
            overview=view,
            messages=[Message("system", (system,)), first],
            turns=[Turn("user", question, images=first.images, views=views)],
            tools=offered,
            tool_schemas=self.toolbox.build_schemas(offered),
            images=self._overviews.open_images(task) or (),
            views=list(overview.views),
            tells_faults=self.on_tool_fault == "tell",
        )

    @property
    def answer_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of an answer as the model writes it; None if it is text, or names an image of several."""
        return None if "image" in self.place else self.answer_format.schema

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
        scored: bool = True,
    ) -> Episode:
        """Return the scored record of a play; a play that has not ended is recorded as `cancelled`.
        A person's own question is not `scored`: no reward is asked."""
        end_reason = state.end_reason or state.end("cancelled").end_reason
        assert end_reason is not None
        info = {
            "malformed": state.malformed_before + state.malformed,
            **({"error": state.error} if state.error else {}),
            **(info or {}),
        }
        counts = info.get("usage", {}).values()  # of an endpoint: prompt and completion tokens
        record = Episode(
            task=state.task,
            turns=tuple(state.turns),
            answer=state.answer,
            end_reason=end_reason,
            terminated=state.terminated,
            truncated=state.truncated,
            flags=frozenset(state.flags),
            run_config=run_config or RunConfig(seed=state.seed, max_turns=state.max_turns),
            total_tokens=sum(counts) if tokens is None else len(tokens.prompt_ids) + len(tokens.completion_ids),
            environment=self.name,
            system_prompt=state.messages[0].text,
            info={**self._describe_for_viewers(), **info, RESTRICTED: bool(self.restricted)},
            tokens=tokens,
            confidence=read_confidence((state.answer or {}).get("confidence"), 1.0),
        )
        return replace(record, scores=self.score(record)) if scored else record

    def _describe_for_viewers(self) -> dict[str, Any]:
        """Return the answer's fields that name the place of a box; how many images the model saw at a time, if not
        all; from when on a target is seen, and what is right."""
        place: dict[str, Any] = {str(key): value for key, value in self.place.items()}
        if self.view_field is not None:
            place["view"] = self.view_field
        shown: dict[str, Any] = {}
        if self.history != "full" and self.history.last_images is not None:
            shown = {"last_images": self.history.last_images}
        at = self.seen_at.model_dump(exclude_none=True)
        looks = {**({"at": at} if at else {}), **({"right": dict(self.right)} if self.right else {})}
        return {**({"place": place} if place else {}), **shown, **({"looks": looks} if looks else {})}

    def score(self, episode: Episode) -> Scores:
        """Return the reward of an episode and its components; an episode without an answer scores what `None` scores.

        The total is None where nothing can be said about the policy: a fault ended the episode (`Episode.is_fault`), no
        component applies, or one failed. A reward that raises, or returns no finite number in [0, 1], never ends a run.
        """
        env = self.for_task(episode.task)
        with keep_on_this_machine(env):
            scores: Scores = env.reward.score_episode(episode)
        return scores

    async def play_async(
        self, task: Task, policy: loop.Policy, *, seed: int = 0, on_question: loop.OnQuestion | None = None
    ) -> Episode:
        """Play one episode.

        Args:
            task: perhaps one of your own, without a reference: then it has no score.
            policy: a function, or a coroutine function, of the messages.
            seed: of the episode.
            on_question: takes what the model asks back and returns the answer, or None to leave it at that; may be a
                coroutine function. By default the user that the environment simulates answers.
        """
        env = self.for_task(task)
        with keep_on_this_machine(env):
            if type(env).prepare is not BaseMultiTurnEnv.prepare or env._hooks["prepare"]:
                await concurrency.run_in_thread(env.prepare_to_serve)
            state = env.reset(task, seed=seed)
            state.tells_faults, state.has_person = env.on_tool_fault != "end", on_question is not None

            async def get_reply() -> Reply:
                return await loop.ask_policy(policy, apply_history(env, state.messages))

            await loop.play_to_end(state, get_reply, partial(env.step, state))
            while on_question and (said := await loop.hear(env, state, on_question)):
                loop.go_on(env, state, said, is_reply=True)
                await loop.play_to_end(state, get_reply, partial(env.step, state))
            return await build_episode_async(env, state)

    def play(
        self, task: Task, policy: loop.Policy, *, seed: int = 0, on_question: loop.OnQuestion | None = None
    ) -> Episode:
        """`play_async` without an event loop of one's own, as in scripts and notebooks."""
        work = self.play_async(task, policy, seed=seed, on_question=on_question)
        try:
            asyncio.get_running_loop()  # that of a notebook
        except RuntimeError:
            return concurrency.run(work)
        return background.run(work, "viewbox-play")

    def read_answer(self, text: str, task: Task) -> dict[str, Any] | None:
        """Return the checked answer of a final reply, its boxes as fractions of the original; None if it has none."""
        value = loop.get_final_value(self, text)
        if value is None:
            return None
        answer, problem = answers.check_answer(self, value, task)
        return None if problem else answer

    def write_answer(self, task: Task) -> str:
        """Return the right answer as a model would write it, as JSON text: see `places.py`. Raise `ConfigError`.

        >>> from viewbox.envs.digits import Digits
        >>> env = Digits()
        >>> env.read_answer(env.write_answer(env.tasks[0]), env.tasks[0])["label"] == env.tasks[0].reference["label"]
        True
        """
        return places.write_gold_answer(self, task)

    def write_box(self, box: Sequence[float], task: Task, place: Mapping[Part, object] | None = None) -> list[float]:
        """Return a box of the original image (fractions) in the coordinates that the model writes, for gold answers.
        One of 6 numbers, (x1, y1, z1, x2, y2, z2), is a box of a volume. `place` names image, plane and slice
        ({"image": 1, "slice": 12}) if it is not on the first picture.

        >>> from viewbox.envs.digits import Digits
        >>> Digits(coordinates="per_mille").write_box([0.25, 0.25, 0.5, 0.5], Task("t"))
        [250, 250, 500, 500]
        """
        return places.write_box(self, box, task, place)

    def _check_can_see(self, task: Task, count: int) -> None:
        """Raise `ConfigError` if a task has more images than are shown at the start, and no tool opens the others."""
        shown = self._overviews.max_shown
        if count <= shown:
            return
        can_open = self.max_turns > 1 and self.max_total_calls != 0 and "open_image" in get_offered_tools(self, task)
        if not can_open or self.toolbox.get_max_calls("open_image") == 0:
            problem = f"has {count} images, and no tool to open those after the first {shown}, which are shown"
            allowed = f"at most {shown} images, or open_image among the tools and max_turns above 1"
            raise ConfigError(f"{self.name}: task {task.id} {problem}; allowed: {allowed}", key="tools")

    def build_system_prompt(self, task: Task) -> str:
        """Return the whole system prompt of a task."""
        offered = get_offered_tools(self, task) if self.max_turns > 1 else ()
        is_naming = self.toolbox.takes_pictures(offered)
        return self.prompts.render(
            "system",
            system=self.system_prompt(task),
            unit=describe_unit(self.coordinates) if offered or self.boxes or self.boxes_3d else None,
            answer_format=None if self.answer is None else self.answer_format.text,
            view_field=self.view_field,
            place={part: self.place.get(part) for part in PARTS} if self.place else {},
            boxes=list(self.boxes),
            boxes_3d=list(self.boxes_3d),
            changes_view=any(self.toolbox[name].stateful for name in offered),
            several=count_shown(self, task) > 1,
            max_total_calls=self.max_total_calls,
            max_turns=self.max_turns,
            boundary=self.boundary and bool(offered),
            named_images=max(1, count_shown(self, task)) if is_naming else 0,
            tools=bool(offered),
        )

    def __init__(self, *, reward: object = None, **given: Any) -> None:
        for name, value in settings.resolve_settings(type(self), given):
            setattr(self, name, value)
        listed = [*(vars(cls).get("tools", ()) for cls in reversed(type(self).__mro__)), given.get("tools", ())]
        self.toolbox = self._build_toolbox({name: tool for one in listed for name, tool in collect_tools(one).items()})
        self.prompts = Prompts(self.templates)
        self._check_tools()
        hooks = {kind: [find_hook(self.toolbox[name], kind) for name in self.tools] for kind in HOOKS}
        self._hooks = {kind: [hook for hook in candidates if hook is not None] for kind, candidates in hooks.items()}
        self.tool_schemas = self.toolbox.build_schemas(self.tools)
        check_declaration(self.answer)
        schema = self.answer.model_json_schema() if isinstance(self.answer, type) else self.answer
        self._coercion = answers.Coercion(schema or {}, self.answer)
        self._check_place((schema or {}).get("properties", {}))
        self.answer_format = AnswerFormat.of(
            schema, self.boxes, self.boxes_3d, image_field=self.place.get("image"), turns=self.max_turns > 1
        )
        self._overviews = OverviewCache(self.images, self.max_pixels, self.pixel_multiple)
        self._share_text = lru_cache(maxsize=256)(str)  # equal texts of a task's episodes are one object
        reward = getattr(type(self), "reward", None) if reward is None else reward
        self.reward = to_combined(self.default_reward() if reward is None else reward)
        author: Any = type(self)
        self._checks_in_thread = runs_code(author) or bool(self.place)
        check_reward_may_ask(self, self.reward)
        self._sealed = True

    def _build_toolbox(self, own: dict[str, Tool]) -> Toolbox:
        """Build the specialists and collect all tools; the specialists' are offered, too."""
        tools = TOOLS | own
        if self.windows:
            tools["window_level"] = add_windows(tools["window_level"], self.windows)
        try:
            specialists = build_specialists(self.specialists)
            declared = declare_tools(specialists, tools)
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}", key=error.key) from error
        for name, specialist in specialists.items():
            check_may_leave(
                self,
                specialist.address,
                action=f"specialists.{name} sends {specialist.sends} to",
                allowed="an address on localhost",
                key=f"specialists.{name}",
            )
            self._check_timeout(f"specialists.{name}.timeout", specialist.waits)
        self.specialists = FrozenDict(specialists)
        self.tools = tuple(dict.fromkeys((*self.tools, *declared)))
        return Toolbox({**tools, **declared}, self.max_calls, self.coordinates, self.max_turns)

    def _check_timeout(self, key: str, waits: float | None) -> None:
        """Raise `ConfigError` for a server that would be cut off before its own time is over."""
        if waits is not None and self.tool_timeout is not None and waits >= self.tool_timeout:
            problem = f"a call is abandoned after tool_timeout = {self.tool_timeout:g} seconds"
            allowed = "less, or a longer tool_timeout"
            raise ConfigError(f"{self.name}: {key} = {waits:g}: {problem}; allowed: {allowed}", key=key)

    def _check_tools(self) -> None:
        for key, names, allowed in (("tools", self.tools, self.toolbox), ("max_calls", self.max_calls, self.tools)):
            for name in names:
                if name not in allowed:
                    path = key if key == "tools" else f"{key}.{name}"
                    raise ConfigError(f"{self.name}: {describe_unknown('tool', name, allowed)}", key=path)

    def _check_place(self, fields: Mapping[str, Any]) -> None:
        if self.view_field is not None and self.view_field not in fields:
            raise ConfigError(f"{self.name}: view_field = {self.view_field!r}; allowed: a field of the answer")
        for part, field in self.place.items():
            if part not in PARTS or field not in fields:
                what = f"{self.name}: place: {part} = {field!r}"
                allowed = "image, plane or slice, each with a field of the answer"
                raise ConfigError(f"{what}; allowed: {allowed}", key="place")

    def __setattr__(self, name: str, value: Any) -> None:
        if self._sealed:
            raise AttributeError(f"{self.name}: an environment cannot be changed; make another with {name}={value!r}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self.name}: an environment cannot be changed")


async def build_episode_async(
    env: BaseMultiTurnEnv,
    state: EpisodeState,
    run_config: RunConfig | None = None,
    *,
    tokens: EpisodeTokens | None = None,
    info: Mapping[str, object] | None = None,
    scored: bool = True,
) -> Episode:
    """`env.build_episode` on an event loop: in a thread if the reward waits for a service, such as a judge."""
    build = partial(env.build_episode, state, run_config, tokens=tokens, info=info, scored=scored)
    return await concurrency.run_in_thread(build) if scored and env.reward.is_blocking else build()


def get_offered_tools(env: AuthoredEnv, task: Task) -> tuple[str, ...]:
    """Return the names of the tools offered for a task: those of `tools_of`, and `open_image` if they work on one of
    several images. Raise `ConfigError` for a name that is not in `tools`."""
    names = tuple(env.tools_of(task))
    for name in names:
        if name not in env.tools:
            raise ConfigError(f"{env.name}: task {task.id}: {describe_unknown('tool', name, env.tools)}", key="tools")
    works_on_one = "open_image" not in names and any(env.toolbox[name].stateful for name in names)
    return (*names, "open_image") if works_on_one and count_shown(env, task) > 1 else names


def count_shown(env: AuthoredEnv, task: Task) -> int:
    """Count the images of a task that are shown at the start; 0 for a bad row, which is told when it is played."""
    try:
        count = env._overviews.counts.get(task)
        return min(env._overviews.max_shown, env.count_images(task) if count is None else count)
    except BadRow:
        return 0


def remove_tools(env: Env, *, refuse: bool = False) -> Env:
    """Return an environment without tools; tasks, turns, answer and reward are those of `env`.

    Args:
        env: stays as it is.
        refuse: the prompt still offers the tools, and every call is refused. A policy that has learned to call before
            it answers may not answer at all if no tool is offered.

    >>> from viewbox.envs.digits import Digits
    >>> env = remove_tools(Digits())
    >>> env.name, env.reset(env.tasks[0], seed=0).tools
    ('digits', ())
    """
    if hasattr(env, "parts"):  # of a mixture
        return vary(env, parts={key: remove_tools(part, refuse=refuse) for key, part in env.parts.items()})
    change = {"toolbox": env.toolbox.limit_calls(0)} if refuse else {"tools_of": lambda task: ()}
    return vary(env, prepare=lambda: None, **change)  # no tool is called, so none needs its model


def vary(env: Env, **attributes: Any) -> Env:
    """Return a copy with other attributes, such as `reward`. It shares the caches of `env`: both show the same images
    and describe the same tools."""
    copy = object.__new__(type(env))
    vars(copy).update(vars(env) | attributes)
    return copy
