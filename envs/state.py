"""One play in progress, and what passes between it and a policy: a reply in, a step's result out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from viewbox.envs import settings
from viewbox.frozen import FrozenDict
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.records import EndReason, Episode, EpisodeTokens, Message, RunConfig, Task, ToolCall, Turn

if TYPE_CHECKING:
    from viewbox.envs.base import BaseMultiTurnEnv


@dataclass(frozen=True)
class Reply:
    """One reply of the policy. `finish_reason` "length": it was cut off."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"


@dataclass(frozen=True)
class StepResult:
    """What the environment says to a reply: new messages, or the end and its reason."""

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

    `views` are those whose pictures were shown, by number; the first is the overview of the task's first image.
    `tools` are the names this task offers, `images` its images, each opened when it is asked for.
    """

    env: "BaseMultiTurnEnv"
    task: Task
    seed: int
    view: View | None
    overview: View | None
    messages: list[Message]
    turns: list[Turn]
    tools: tuple[str, ...] = ()
    images: Sequence[Source] = ()
    views: list[View] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)  # of each tool, also those that failed
    turn: int = 0
    malformed: int = 0
    malformed_in_a_row: int = 0
    tool_calls: int = 0
    finalized: bool = False  # the model was told to finish: its next object is the answer
    notes: list[Mapping[str, Any]] = field(default_factory=list)  # the objects it said `continue: true` with
    answer: Mapping[str, Any] | None = None
    end_reason: EndReason | None = None
    terminated: bool = False
    truncated: bool = False
    flags: set[str] = field(default_factory=set)

    @property
    def tool_schemas(self) -> tuple[Mapping[str, Any], ...]:
        """The tools this play offers, in the OpenAI function format; none where there is one turn only."""
        return self.env.schemas(self.tools)

    @property
    def last_turn(self) -> bool:
        """Whether the reply that comes next is the last one allowed."""
        return self.turn + 1 >= self.env.max_turns

    def end(self, reason: EndReason) -> StepResult:
        """Ends the play; only `answered` is a termination, the other ends are truncations."""
        self.end_reason, self.terminated, self.truncated = reason, reason == "answered", reason != "answered"
        return StepResult((), self.terminated, self.truncated, reason)

    def episode(
        self,
        run_config: RunConfig | None = None,
        *,
        tokens: EpisodeTokens | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> Episode:
        """The record of this play, scored. A play that has not ended is recorded as `cancelled`."""
        if self.end_reason is None:
            self.end("cancelled")
        assert self.end_reason is not None
        bare = Episode(
            task=self.task,
            turns=tuple(self.turns),
            answer=self.answer,
            end_reason=self.end_reason,
            terminated=self.terminated,
            truncated=self.truncated,
            flags=frozenset(self.flags),
            run_config=run_config or RunConfig(seed=self.seed, max_turns=self.env.max_turns),
            total_tokens=0 if tokens is None else len(tokens.prompt_ids) + len(tokens.completion_ids),
            environment=self.env.name,
            system_prompt=self.messages[0].text,
            info={"malformed": self.malformed, **(info or {})},
            tokens=tokens,
        )
        return settings.replace(bare, scores=self.env.score(bare))
