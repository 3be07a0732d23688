"""The records every room shares: frozen, deeply immutable, with an exact JSON round trip.

They are plain dataclasses, so a program builds them without ceremony; whatever comes back from disk is checked by
pydantic (`from_json`). Lists become tuples and dicts become `FrozenDict` on the way in, so a record can be shared
between tasks and threads without copying.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from viewbox.frozen import FrozenDict, Record
from viewbox.images.ref import ImageRef

EndReason = Literal["answered", "max_turns", "max_tokens", "malformed", "timeout", "error", "cancelled"]


@dataclass(frozen=True)
class Task(Record):
    """One thing to solve: what is shown, what is asked, and what the right answer is.

    `images` may be empty where the environment draws them from `metadata` (a seed); `reference` never reaches the
    model. Boxes in `reference` are (x1, y1, x2, y2) fractions of the original image.
    """

    id: str
    images: tuple[ImageRef, ...] = ()
    prompt: Mapping[str, Any] = field(default_factory=FrozenDict)
    reference: Mapping[str, Any] = field(default_factory=FrozenDict)
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict)


@dataclass(frozen=True)
class ToolCall(Record):
    """A call as the model made it; `arguments` is a mapping, or a string of JSON not yet parsed."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=FrozenDict)


@dataclass(frozen=True)
class ToolResult(Record):
    """What a tool gave back: words and numbers for the model, perhaps a picture; or the reason it could not.

    >>> ToolResult("zoom", "zoomed in", facts={"factor": 2.0}).text
    'zoomed in (factor: 2.0)'
    """

    tool_name: str
    description: str = ""
    error: str | None = None
    image: ImageRef | None = None
    mime_type: str | None = None
    facts: Mapping[str, Any] = field(default_factory=FrozenDict)
    formatted_results: str | None = None
    call_id: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image is not None and self.mime_type is None:
            object.__setattr__(self, "mime_type", "image/png")
        if self.image is None and self.mime_type is not None:
            raise ValueError("a ToolResult has an image and its MIME type, or neither")

    @property
    def success(self) -> bool:
        return self.error is None

    @property
    def text(self) -> str:
        """What the model reads."""
        if self.error is not None:
            return f"error: {self.error}"
        if self.formatted_results is not None:
            return self.formatted_results
        listed = ", ".join(f"{key}: {_short(value)}" for key, value in self.facts.items())
        return f"{self.description} ({listed})" if listed else self.description

    def to_data_url(self) -> str | None:
        return None if self.image is None else self.image.to_data_url()


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}" if value.is_integer() else f"{value:.4g}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_short(item) for item in value) + "]"
    return str(value)


@dataclass(frozen=True)
class Message(Record):
    """What goes over the wire to a model: parts in order, each a string or an image."""

    role: Literal["system", "user", "assistant", "tool"]
    content: tuple[str | ImageRef, ...]
    tool_call_id: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()  # of an assistant message that called natively, not in its text

    @property
    def text(self) -> str:
        return "".join(part for part in self.content if isinstance(part, str))

    @property
    def images(self) -> tuple[ImageRef, ...]:
        return tuple(part for part in self.content if isinstance(part, ImageRef))


@dataclass(frozen=True)
class Turn(Record):
    """One entry of the record of a play."""

    role: Literal["user", "assistant", "tool_result"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    images: tuple[ImageRef, ...] = ()


@dataclass(frozen=True)
class RunConfig(Record):
    """What produced an episode."""

    model_name: str = ""
    temperature: float = 1.0
    seed: int = 0
    max_tokens: int | None = None
    max_turns: int | None = None
    versions: Mapping[str, str] = field(default_factory=FrozenDict)


@dataclass(frozen=True)
class Scores(Record):
    """A reward taken apart: `total`, and each component by name (`None`: not applicable)."""

    total: float
    components: Mapping[str, float | None] = field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in {"total": self.total, **self.components}.items():
            if value is not None and not math.isfinite(value):
                raise ValueError(f"score {name!r} is {value}: scores are finite")


@dataclass(frozen=True)
class EpisodeTokens:
    """The token side of an episode, kept in a file beside the JSON line.

    `completion_ids` holds everything after the prompt, in order; `mask` is 1 on the tokens the policy sampled and 0 on
    what the environment said; `logprobs` (natural log at the sampling temperature, before any filtering) is 0 where
    `mask` is 0. `images` are the pictures whose placeholders stand in `prompt_ids + completion_ids`, in that order;
    the first `prompt_images` of them belong to the prompt.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    images: tuple[ImageRef, ...] = ()
    prompt_images: int = 0

    def __post_init__(self) -> None:
        if not len(self.completion_ids) == len(self.mask) == len(self.logprobs):
            raise ValueError(
                f"completion_ids ({len(self.completion_ids)}), mask ({len(self.mask)}) and logprobs "
                f"({len(self.logprobs)}) must have one length"
            )


@dataclass(frozen=True)
class Episode(Record):
    """One play, complete: what is stored, scored and trained on."""

    task: Task
    turns: tuple[Turn, ...] = ()
    answer: Mapping[str, Any] | None = None
    end_reason: EndReason = "answered"
    terminated: bool = False
    truncated: bool = False
    flags: frozenset[str] = frozenset()
    scores: Scores | None = None
    run_config: RunConfig = field(default_factory=RunConfig)
    confidence: float = 1.0
    total_tokens: int = 0
    environment: str = ""
    system_prompt: str = ""
    info: Mapping[str, Any] = field(default_factory=FrozenDict)
    tokens: EpisodeTokens | None = field(default=None, repr=False, compare=False, metadata={"beside": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.confidence <= 1.0:  # NaN fails too
            raise ValueError(f"confidence is {self.confidence}; allowed: a number in [0, 1]")

    @property
    def num_turns(self) -> int:
        """How many replies the policy gave."""
        return sum(turn.role == "assistant" for turn in self.turns)

    @property
    def tool_call_count(self) -> int:
        return sum(len(turn.tool_calls) for turn in self.turns)

    def tools_used(self) -> set[str]:
        """The names of the tools that were called with success."""
        return {result.tool_name for turn in self.turns for result in turn.tool_results if result.success}
