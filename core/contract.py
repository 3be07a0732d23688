"""The author's half of an environment, and the state of a play: all that the turn loop reads.

`AuthoredEnv` is what an author declares and the hooks to override; `BaseMultiTurnEnv` (`base.py`) adds the
driver's half. Pydantic checks an answer in one call that nothing can interrupt, so an answer's model that lets the time
grow without bounds is refused.
"""

from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, lru_cache
from re import Pattern
from typing import Any, ClassVar, Literal

from pydantic import AliasChoices, AliasPath, BaseModel

from ..errors import ConfigError
from ..images.coordinates import Coordinates
from ..images.source import Source
from ..images.task_images import TaskImage, TaskImages
from ..images.view import View
from ..records import EndReason, Message, Task, Turn
from ..rewards.metrics import Metric
from ..tools import Tool
from ..utils.docstrings import restore_docstring
from ..utils.frozen import FrozenDict
from ..utils.json_schema import check_schema
from .prompts.answer_format import AnswerFormat
from .prompts.templates import Prompts
from .settings import LoopSettings, ViewSettings
from .tasks import OverviewCache

Part = Literal["image", "plane", "slice"]  # of the place of a box
PARTS: tuple[Part, ...] = ("image", "plane", "slice")


@dataclass(frozen=True)
class StepResult:
    """The environment's answer to one reply: new messages, or the end and its reason.
    `terminated` (the model answered) differs from `truncated` (turns, tokens or time ran out, or a failure)."""

    messages: tuple[Message, ...] = ()
    terminated: bool = False
    truncated: bool = False
    end_reason: EndReason | None = None
    info: Mapping[str, Any] = field(default_factory=FrozenDict)

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated or self.end_reason is not None


@dataclass
class EpisodeState:
    """One play in progress.

    `views` are the views whose pictures were shown, by number; the first is the overview of the task's first image.
    `tools` are the tools offered for this task, by name, and `tool_schemas` describes them in the OpenAI function
    format (empty if there is one turn only). `images` are the task's images, each opened when first used."""

    task: Task
    seed: int
    max_turns: int
    view: View | None
    overview: View | None
    messages: list[Message]
    turns: list[Turn]
    tools: tuple[str, ...] = ()
    tool_schemas: tuple[Mapping[str, Any], ...] = ()
    images: TaskImages | tuple[()] = ()
    views: list[View] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)  # of each tool that ran, failed ones included
    faults: Counter[str] = field(default_factory=Counter)  # of each tool, where they are told
    tells_faults: bool = False  # whether the model reads that a tool failed; else the episode ends
    has_person: bool = False  # a person answers the model's questions, and no user that the environment simulates
    turn: int = 0
    malformed: int = 0
    malformed_before: int = 0  # before a person went on
    first_turn: int = 0  # of those that count, since a person went on
    malformed_in_a_row: int = 0
    refused: int = 0  # replies with calls of which none ran, though one could be read
    tool_calls: int = 0
    finalized: bool = False  # the model was told to finish: its next object is the answer
    notes: list[Mapping[str, Any]] = field(default_factory=list)  # objects sent with `continue: true`
    answer: Mapping[str, Any] | None = None
    end_reason: EndReason | None = None
    terminated: bool = False
    truncated: bool = False
    error: str = ""  # why it ended as `error`, if no exception says so
    flags: set[str] = field(default_factory=set)

    @property
    def last_turn(self) -> bool:
        """Whether the next reply is the last one allowed."""
        return self.turn + 1 >= self.max_turns

    def end(self, reason: EndReason) -> StepResult:
        """End the play. Only `answered` is a termination; every other end is a truncation."""
        self.end_reason, self.terminated, self.truncated = reason, reason == "answered", reason != "answered"
        return StepResult((), self.terminated, self.truncated, reason)


class Toolbox(dict[str, Tool]):
    """Tools by name.

    Args:
        tools: built-in ones, the environment's own, and those of its specialists.
        max_calls: calls of a tool in an episode, where they differ from the tool's own limit.
        coordinates: how the model writes points and boxes.
        max_turns: of an episode; in a single turn no tool can be called, and none is described.

    >>> from viewbox.tools import TOOLS
    >>> box = Toolbox(TOOLS, {"zoom": 3})
    >>> box.get_max_calls("zoom"), box.build_schemas(("zoom",))[0]["function"]["name"]
    (3, 'zoom')
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        max_calls: Mapping[str, int] = FrozenDict(),
        coordinates: Coordinates = "unit",
        max_turns: int = 2,
    ) -> None:
        super().__init__(tools)
        self._max_calls, self._coordinates, self._max_turns = max_calls, coordinates, max_turns
        self.build_schemas = lru_cache(maxsize=256)(self._build_schemas)

    def get_max_calls(self, name: str) -> int | None:
        """Return how often a tool may be called in an episode; None if it has no limit of its own."""
        return self._max_calls.get(name, self[name].max_calls)

    def takes_pictures(self, names: Iterable[str]) -> bool:
        """Return whether one of these tools takes pictures by their names."""
        return any(self[name].takes_pictures for name in names)

    def limit_calls(self, most: int) -> "Toolbox":
        """Return the same tools, described as before, each of which may be called so often."""
        limited = copy(self)
        limited._max_calls = dict.fromkeys(self, most)
        return limited

    def _build_schemas(self, names: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
        """Return the tools of these names in the OpenAI function format; none if there is one turn only."""
        return tuple(
            FrozenDict(self[name].build_schema(self._coordinates, max_calls=self.get_max_calls(name)))
            for name in (names if self._max_turns > 1 else ())
        )


class AuthoredEnv(ViewSettings, LoopSettings):
    """What an author writes. Annotated class attributes are settings: `viewbox.make(name, max_turns=6)` overrides them,
    checked by type and range. `ClassVar`s are fixed by the author."""

    name: ClassVar[str] = "environment"
    answer: ClassVar[type[BaseModel] | Mapping[str, Any] | None] = None  # None: the answer is plain text
    restricted: ClassVar[bool] = False  # images must stay on this machine: no endpoint elsewhere, no tracker
    boxes: ClassVar[tuple[str, ...]] = ()  # where the answer has boxes (`bbox`, `boxes[]`, `items[].box`), in the
    # frame of the first original image
    boxes_3d: ClassVar[tuple[str, ...]] = ()  # where the answer has boxes of a volume: see `places.py`
    place: ClassVar[Mapping[Part, str]] = {}  # answer fields with image, plane, slice of the boxes: {"slice": "slice"}
    view_field: ClassVar[str | None] = None  # the answer field that names, by number, the view its boxes refer to
    right: ClassVar[Mapping[str, float]] = {}  # least scores of components in a right answer; empty: the total 0.5
    metrics: ClassVar[Mapping[str, Metric]] = {}  # metrics over many episodes, by name: what a paper would report
    reward: Any  # an author may set a default; an environment holds it as a `CombinedReward`

    # Made of these declarations when an environment is created
    prompts: Prompts
    toolbox: Toolbox
    tool_schemas: tuple[Mapping[str, Any], ...]  # of all its tools, in the OpenAI function format
    answer_format: AnswerFormat
    _coercion: Any  # `answers.Coercion` of its schema
    _overviews: OverviewCache
    _checks_in_thread: bool  # an author's code checks answers, or an image may be opened

    @property
    def tasks(self) -> Sequence[Task] | Iterable[Task]:
        """The tasks to solve."""
        return ()

    def make_task(self, question: str, images: Any = (), **prompt: object) -> Task:
        """Return the task of a person's own question and images, which has no right answer."""
        return Task(images=images, prompt={"question": question, **prompt})

    def read_prompt(self, task: Task, name: str, what: str) -> Any:
        """Return a field of a task's prompt, which the environment needs; raise `ConfigError` that says for what."""
        if name in task.prompt:
            return task.prompt[name]
        names = ", ".join(map(str, task.prompt)) or "nothing"
        problem = f"task {task.id}: prompt.{name} is missing, {what}; given: {names}"
        raise ConfigError(f"{self.name}: {problem}", key="prompt")

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

    def hidden_arguments(self, task: Task, tool: str) -> Mapping[str, object]:
        """Return the values of a tool's `Hidden` arguments, by name; the model never sees them.
        `images`, the task's images as sources, is passed to every tool that declares it."""
        return {}

    def swap_view(self, task: Task, tool: str, reply: int, view: View, own: Sequence[Source]) -> View:
        """Return the picture that a call in a reply, counted from 1, works on: `view`, but in `swaps.py`."""
        return view

    def validate_answer(self, answer: Mapping[str, object], task: Task) -> str | None:
        """Say what is wrong with an answer that fits the schema, as a sentence for the model; None if it is valid."""
        return None

    def on_answer(self, state: EpisodeState, answer: Mapping[str, object]) -> str | Awaitable[str | None] | None:
        """Return the user's response to an answer, which continues the episode, or None to end it.
        It may be a coroutine function, as when the user is another model. It is not called on the last turn."""
        return None

    def find_question(self, answer: Mapping[str, Any]) -> str | None:
        """Return what an answer asks its user instead of answering; None if it answers."""
        return None

    def continue_task(self, task: Task, answer: Mapping[str, Any] | None, text: str) -> Task:
        """Return the task once a person goes on with `text` after an answer (None: there was none)."""
        return task

    def oracle(self, task: Task) -> Sequence[str]:
        """Return the replies (looks) after which the model can read the answer best; empty if unknown."""
        return ()


def check_declaration(answer: type[BaseModel] | Mapping[str, Any] | None) -> None:
    """Raise `ConfigError` for an answer that takes unbounded time to check, or a schema that cannot be used."""
    if isinstance(answer, type):
        _check_model(answer)
    elif answer is not None:
        check_schema(answer)


@cache
def runs_code(env: Any) -> bool:
    """Return whether an author's code sees an answer: `validate_answer`, a validator, or a serializer."""
    replaced: bool = env.validate_answer is not AuthoredEnv.validate_answer
    answer: Any = env.answer
    return replaced or (isinstance(answer, type) and any(map(_is_code, _iter_core_parts(answer))))


@cache
def list_other_names(answer: type[BaseModel]) -> frozenset[str]:
    """Return the keys that a model reads besides those of its JSON Schema: further aliases, fields by their names."""
    names: list[Any] = []
    for part in _iter_core_parts(answer):
        model: Any = part.get("cls") if part.get("type") == "model" else None
        for name, declared in getattr(model, "model_fields", {}).items():
            alias, config = declared.validation_alias, model.model_config
            names += alias.choices if isinstance(alias, AliasChoices) else [alias]
            names += [name] if config.get("populate_by_name") or config.get("validate_by_name") else []
    return frozenset(str(label.path[0] if isinstance(label, AliasPath) else label) for label in names)


@cache
def _check_model(model: type[BaseModel]) -> None:
    if any(map(_is_backtracking, _iter_core_parts(model))):
        raise ConfigError(
            f"{model.__name__}: a pattern is matched by Python's `re`, which may never end; allowed: a pattern given "
            "as text, without regex_engine='python-re'",
            key="answer",
        )
    for part in _iter_core_parts(model):
        restore_docstring(part.get("cls"))
        if isinstance(part.get("pattern"), str):
            check_schema({"pattern": part["pattern"]})
    definitions = model.model_json_schema().get("$defs", {})
    for name, part in definitions.items():
        unions = [inner["anyOf"] for inner in _iter_parts(part) if isinstance(inner.get("anyOf"), list)]
        if any(_branches_into(name, union, definitions) for union in unions):
            raise ConfigError(
                f"{model.__name__}: two members of a union in {name} hold {name} again, so the time to check an answer "
                "doubles with each level; allowed: Field(discriminator=...), or one such member",
                key="answer",
            )


def _iter_core_parts(model: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every part of a model's pydantic core schema."""
    model.model_json_schema()  # completes a model with forward references
    return _iter_parts(model.__pydantic_core_schema__, "metadata", "config")


def _iter_parts(schema: Any, *skipped: str) -> Iterator[Mapping[str, Any]]:
    """Yield every mapping in a schema, but what is under the keys `skipped`."""
    if isinstance(schema, Mapping):
        yield schema
        schema = [item for key, item in schema.items() if key not in skipped]
    if isinstance(schema, list | tuple):
        for item in schema:
            yield from _iter_parts(item, *skipped)


def _is_backtracking(part: Mapping[str, Any]) -> bool:
    config = part.get("config")
    by_config = isinstance(config, Mapping) and config.get("regex_engine") == "python-re"
    return by_config or part.get("regex_engine") == "python-re" or isinstance(part.get("pattern"), Pattern)


def _is_code(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    is_function = isinstance(kind, str) and kind.startswith("function-")
    return is_function or any(part.get(key) for key in ("custom_init", "post_init", "computed_fields"))


def _branches_into(name: str, union: list[Any], definitions: Mapping[str, Any]) -> bool:
    """Return whether an answer can be read as two members of the union that both hold `name`: two objects, or two
    lists."""
    kinds = Counter(_get_kind(member, definitions) for member in union if name in _find_references(member, definitions))
    return any(count > 1 for count in kinds.values())


def _get_kind(member: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    seen: set[str] = set()
    while isinstance(member.get("$ref"), str) and member["$ref"] not in seen:
        seen.add(member["$ref"])
        member = definitions.get(member["$ref"].rpartition("/")[2], {})
    return str(member.get("type", "object"))


def _find_references(schema: Any, definitions: Mapping[str, Any]) -> set[str]:
    """Return the definitions that a part reaches."""
    references: set[str] = set()
    pending = [schema]
    while pending:
        for part in _iter_parts(pending.pop()):
            reference = part.get("$ref")
            name = reference.rpartition("/")[2] if isinstance(reference, str) else None
            if name is not None and name not in references:
                references.add(name)
                pending.append(definitions.get(name))
    return references
