"""One play in progress, and what a step returns."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..images.task_images import TaskImages
from ..images.view import View
from ..records import EndReason, Episode, EpisodeTokens, Message, RunConfig, Task, Turn
from ..utils.frozen import FrozenDict


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
            confidence=None if self.answer is None else _read_confidence(self.answer),
        )


def _read_confidence(answer: Mapping[str, Any]) -> float | None:
    """How sure the model is of its answer, in [0, 1]: what it states as `confidence`."""
    stated = answer.get("confidence")
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not 0 <= stated <= 1:
        return None
    return float(stated)
