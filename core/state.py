"""One play in progress, what a step returns, and what the turn loop reads of an environment."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

from ..images.task_images import TaskImages, name_image
from ..images.view import View
from ..records import EndReason, Episode, EpisodeTokens, Message, RunConfig, Task, Turn
from ..tools import Tool
from ..utils.box_paths import BoxPath
from ..utils.frozen import FrozenDict
from .messages import drop_older_images
from .parsing.reply import AnswerFields
from .places import Part
from .prompts.answer_format import describe_answer_format
from .prompts.templates import Prompts
from .settings import LoopSettings, ViewSettings


@dataclass(frozen=True)
class StepResult:
    """The environment's answer to one reply: new messages, or the end and its reason.

    `terminated` (the model answered) differs from `truncated` (turns, tokens or time ran out, or a failure).
    """

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
    format (empty if there is one turn only). `images` are the task's images, each opened when first used.
    """

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
    turn: int = 0
    malformed: int = 0
    malformed_in_a_row: int = 0
    refused: int = 0  # replies with calls of which none ran, though one could be read
    tool_calls: int = 0
    finalized: bool = False  # the model was told to finish: its next object is the answer
    notes: list[Mapping[str, Any]] = field(default_factory=list)  # objects sent with `continue: true`
    answer: Mapping[str, Any] | None = None
    end_reason: EndReason | None = None
    terminated: bool = False
    truncated: bool = False
    flags: set[str] = field(default_factory=set)

    @property
    def last_turn(self) -> bool:
        """Whether the next reply is the last one allowed."""
        return self.turn + 1 >= self.max_turns

    def end(self, reason: EndReason) -> StepResult:
        """End the play. Only `answered` is a termination; every other end is a truncation."""
        self.end_reason, self.terminated, self.truncated = reason, reason == "answered", reason != "answered"
        return StepResult((), self.terminated, self.truncated, reason)

    def to_episode(
        self,
        environment: str,
        run_config: RunConfig | None = None,
        *,
        tokens: EpisodeTokens | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> Episode:
        """The record of this play, not yet scored. A play that has not ended is recorded as `cancelled`."""
        end_reason = self.end_reason or self.end("cancelled").end_reason
        assert end_reason is not None
        counts = (info or {}).get("usage", {}).values()  # of an endpoint: prompt and completion tokens
        return Episode(
            task=self.task,
            turns=tuple(self.turns),
            answer=self.answer,
            end_reason=end_reason,
            terminated=self.terminated,
            truncated=self.truncated,
            flags=frozenset(self.flags),
            run_config=run_config or RunConfig(seed=self.seed, max_turns=self.max_turns),
            total_tokens=sum(counts) if tokens is None else len(tokens.prompt_ids) + len(tokens.completion_ids),
            environment=environment,
            system_prompt=self.messages[0].text,
            info={"malformed": self.malformed, **(info or {})},
            tokens=tokens,
        )


class PlayableEnv(ViewSettings, LoopSettings, Protocol):
    """An environment as the turn loop reads it; `BaseMultiTurnEnv` documents the members that an author writes."""

    name: ClassVar[str]
    answer: ClassVar[type[BaseModel] | Mapping[str, Any] | None]
    boxes: ClassVar[tuple[str, ...]]
    view_field: ClassVar[str | None]
    boxes_3d: ClassVar[tuple[str, ...]]
    place: ClassVar[Mapping[Part, str]]
    prompts: Prompts
    _toolbox: Mapping[str, Tool]
    _checks_in_thread: bool  # an author's code checks answers

    def hidden_arguments(self, task: Task, tool: str) -> Mapping[str, Any]: ...
    def check_answer(
        self,
        value: Mapping[str, Any],
        task: Task,
        views: Sequence[View] | None = None,
        images: TaskImages | None = None,
    ) -> tuple[dict[str, Any], str | None]: ...
    def on_answer(self, state: EpisodeState, answer: Any) -> Any: ...

    @cached_property
    def answer_schema(self) -> Mapping[str, Any] | None:
        """The answer as JSON Schema; None if the answer is plain text."""
        return self.answer.model_json_schema() if isinstance(self.answer, type) else self.answer

    @cached_property
    def answer_fields(self) -> AnswerFields | None:
        """What the parser knows of the answer schema; None if the answer is plain text."""
        if self.answer_schema is None:
            return None
        fields, boxes = AnswerFields.from_schema(self.answer_schema), [BoxPath.parse(path) for path in self.boxes]
        lengths = {**dict.fromkeys(self.boxes_3d, 6), **{box.field: 4 for box in boxes if not box.is_list}}
        return replace(fields, lengths=tuple({**dict(fields.lengths), **lengths}.items()))

    @cached_property
    def answer_format(self) -> str:
        """The form of the answer as prompts state it."""
        schema, field = self.answer_schema, self.place.get("image")
        if schema is not None and field is not None:  # the model writes the name, which the schema has as a number
            kept = {
                key: value for key, value in schema["properties"][field].items() if key in ("description", "default")
            }
            schema = {**schema, "properties": {**schema["properties"], field: {**kept, "const": name_image(0)}}}
        return describe_answer_format(schema, self.boxes, self.boxes_3d, turns=self.max_turns > 1)

    @property
    def answer_keys(self) -> list[str]:
        """The keys of the answer object; empty if the answer is plain text."""
        return [*(self.answer_schema or {}).get("properties", {}), "continue"] if self.answer_schema else []

    def get_tool(self, name: str) -> Tool:
        """The tool of that name: the environment's own, or a built-in one."""
        return self._toolbox[name]

    def get_max_calls(self, name: str) -> int | None:
        """How often a tool may be called in an episode; None if it has no limit of its own."""
        return self.max_calls.get(name, self.get_tool(name).max_calls)

    def is_numbering_views(self, offered: Sequence[str]) -> bool:
        """Whether the model is told the numbers of pictures, because answers or tools refer to them."""
        return self.view_field is not None or any(self.get_tool(name).takes_pictures for name in offered)

    def apply_history(self, messages: Sequence[Message]) -> list[Message]:
        """The messages as the model gets them under the `history` policy; the record keeps every image."""
        if self.history == "full":  # messages only ever grow, as training on sampled tokens needs
            return list(messages)
        number_kept = self.history.last_images
        return drop_older_images(messages, number_kept, lambda number: self.prompts.render("dropped", number=number))
