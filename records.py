"""The records that all rooms share: frozen, deeply immutable, with an exact JSON round trip.

They are msgspec structs: a record is also the form of its JSON, and msgspec checks what is read from disk. Lists become
tuples and dicts become `FrozenDict` when a record is made, so that episodes and threads can share it without copying.
To change one, make another: `msgspec.structs.replace(task, id="b")`.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
from msgspec.structs import force_setattr

from .images.ref import ImageRef
from .images.shown import ShownView
from .utils.frozen import FrozenDict, Record, freeze, sort_set, thaw

EndReason = Literal["answered", "max_turns", "max_tokens", "malformed", "timeout", "error", "cancelled"]
Nudge = Literal["", "malformed", "finalize", "notes"]
FAULTS: frozenset[EndReason] = frozenset({"timeout", "error", "cancelled"})  # not the policy's own doing
NO_ID = "\0"  # one is made
if TYPE_CHECKING:
    TaskRefs = tuple[Any, ...]  # given in many forms
else:
    TaskRefs = tuple[ImageRef, ...]  # held in one


class Task(Record, frozen=True):
    """One task: the images, the question, and the right answer.

    >>> Task(prompt={"question": "Why?"}).id
    'own-25f0b4a1fc'

    Args:
        id: unique within its environment. Without one, it is made of what the task asks.
        images: paths, Pillow images, arrays, `ImageRef`s or what `viewbox.open_image` returns; the task holds
            `ImageRef`s of them. Empty if the environment draws them from `metadata` (a seed).
        prompt: what the environment's question is made of.
        reference: the right answer; it never reaches the model. Boxes are (x1, y1, x2, y2) in fractions of the
            original image. Arrays become tuples.
        metadata: anything else about the task.
    """

    id: str = NO_ID
    images: TaskRefs = ()
    prompt: Mapping[str, Any] = FrozenDict()
    reference: Mapping[str, Any] = FrozenDict()
    metadata: Mapping[str, Any] = FrozenDict()

    def __post_init__(self) -> None:
        if type(self.images) is not tuple or any(type(item) is not ImageRef for item in self.images):
            from .images.task_images import to_references

            force_setattr(self, "images", to_references(self.images))
        super().__post_init__()
        force_setattr(self, "reference", freeze(thaw(self.reference)))
        if self.id == NO_ID:
            asked = json.dumps([[image.hash for image in self.images], thaw(self.prompt)], sort_keys=True, default=str)
            force_setattr(self, "id", f"own-{hashlib.sha256(asked.encode()).hexdigest()[:10]}")


class ToolCall(Record, frozen=True):
    """A tool call as the model made it; `arguments` is a mapping, or JSON text that is not parsed yet."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str = FrozenDict()


@dataclass(frozen=True)
class Reply:
    """One reply of a policy: what a generator returns and an environment steps on.

    `finish_reason` is "stop", "length" (cut off), "tool_calls", "content_filter", "refusal", "budget" (no token was
    left for a reply, which is then empty), or the server's own word, which counts as "stop". `output_ids` and
    `logprobs` are those of the sampled tokens; empty if the policy has no tokens. `reasoning` is thinking that stands
    beside the text: it is stored, and neither read nor sent back."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    output_ids: tuple[int, ...] = field(default=(), repr=False)
    logprobs: tuple[float, ...] = field(default=(), repr=False)
    reasoning: str = ""

    def to_message(self) -> "Message":
        """Return the reply as the assistant message of the conversation."""
        return Message("assistant", (self.text,), tool_calls=self.tool_calls)


class ToolResult(Record, frozen=True):
    """The output of a tool call: text and facts for the model, and perhaps a picture; or an error.

    Args:
        tool_name: the tool that was called.
        description: the sentence that begins the text.
        error: why the call failed; None if it succeeded.
        image: the picture for the model.
        mime_type: of `image`; None without one.
        facts: numbers and labels by name.
        formatted_results: the text the model reads, if it is not made of `description` and `facts`.
        call_id: of the `ToolCall` that this answers.
        arguments: with which the tool ran: those of the call, checked, with defaults filled in, and points and boxes as
            fractions of the picture. None if it did not run.
        raised: the exception of the tool, or the last of two: a fault of the environment's. If there is no `error`, the
            call succeeded when it was tried once more.
        views: what `image` shows of the task's images, in parts if several stand side by side; empty if it shows none
            of them. For people who look at the episode: no model reads it.

    >>> ToolResult("zoom", "zoomed in", facts={"factor": 2.0}).text
    'zoomed in (factor: 2.0)'
    """

    tool_name: str
    description: str = ""
    error: str | None = None
    image: ImageRef | None = None
    mime_type: str | None = None
    facts: Mapping[str, Any] = FrozenDict()
    formatted_results: str | None = None
    call_id: str | None = None
    arguments: Mapping[str, Any] | None = None
    views: tuple[ShownView, ...] = ()
    raised: str = ""

    _sparse: ClassVar = frozenset({"views", "raised"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image is not None and self.mime_type is None:
            force_setattr(self, "mime_type", "image/png")
        if self.image is None and self.mime_type is not None:
            raise ValueError("a ToolResult has an image and its MIME type, or neither")

    @property
    def success(self) -> bool:
        """Whether the call succeeded."""
        return self.error is None

    @property
    def is_fault(self) -> bool:
        """Whether the tool raised, and the call did not succeed when it was tried once more."""
        return bool(self.raised) and not self.success

    @property
    def was_run(self) -> bool:
        """Whether the tool ran; if not, the call was refused: unreadable, unknown, over a limit, wrong arguments."""
        return self.success or self.arguments is not None or bool(self.raised)

    @property
    def text(self) -> str:
        """What the model reads."""
        if self.error is not None:
            return f"error: {self.error}"
        if self.formatted_results is not None:
            return self.formatted_results
        facts = ", ".join(f"{key}: {_format_fact(value)}" for key, value in self.facts.items())
        return f"{self.description} ({facts})" if facts else self.description

    def to_data_url(self) -> str | None:
        """Return the picture as a `data:image/png;base64,…` URL; None without one."""
        return None if self.image is None else self.image.to_data_url()


def _format_fact(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}" if value.is_integer() else f"{value:.4g}"
    if isinstance(value, tuple | list | frozenset):
        value = sort_set(value) if isinstance(value, frozenset) else value
        return "[" + ", ".join(_format_fact(item) for item in value) + "]"
    return "null" if value is None else str(value)


class Message(Record, frozen=True):
    """One message of a conversation with a model: text and images in order.

    Args:
        role: who speaks.
        content: its parts in order, each text or an image.
        tool_call_id, name: of the call that a `tool` message answers.
        tool_calls: of an assistant message whose calls stand beside its text, not in it.
        reasoning: of a recorded assistant message: thinking beside its text. A policy is never shown it.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: tuple[str | ImageRef, ...]
    tool_call_id: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part for part in self.content if isinstance(part, str))

    @property
    def images(self) -> tuple[ImageRef, ...]:
        """The image parts."""
        return tuple(part for part in self.content if isinstance(part, ImageRef))


class Turn(Record, frozen=True):
    """One turn of an episode as it is stored: a user message, a reply of the model, or the results of its calls.

    Args:
        nudge: of a user message that asks the model to go on: why the environment sent it.
        views: what the images of a user message show of the task's images, in order; empty if it is not known.
        reasoning: of a reply: thinking that stood beside its text.
        finish_reason: of a reply, unless it is "stop" or "tool_calls".
    """

    role: Literal["user", "assistant", "tool_result"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    images: tuple[ImageRef, ...] = ()
    nudge: Nudge = ""
    views: tuple[ShownView, ...] = ()
    reasoning: str = ""
    finish_reason: str = ""

    _sparse: ClassVar = frozenset({"nudge", "views", "reasoning", "finish_reason"})


class RunConfig(Record, frozen=True):
    """The model, the sampling and the software versions that produced an episode.
    `temperature` is None if none was sent, so that it was the server's own. `max_pixels` and `max_side` are the most
    that the model's processor keeps of a picture; None: it is not known, as behind an endpoint."""

    model_name: str = ""
    temperature: float | None = None
    seed: int | None = 0
    max_tokens: int | None = None
    max_turns: int | None = None
    versions: Mapping[str, str] = FrozenDict()
    max_pixels: int | None = None
    max_side: int | None = None

    _sparse: ClassVar = frozenset({"max_pixels", "max_side"})


class Scores(Record, frozen=True):
    """The score of an episode.

    Args:
        total: None if the episode has no score: no component applies, one failed, or a fault ended the episode.
        components: the score of each component by name; None: it does not apply, or failed.
        faults: why components failed, by name.
        turns: what each reply earned of `total`, in order: they sum to it. Empty if no component says so.
    """

    total: float | None
    components: Mapping[str, float | None] = FrozenDict()
    faults: Mapping[str, str] = FrozenDict()
    turns: tuple[float, ...] = ()

    _sparse: ClassVar = frozenset({"turns"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("total", self.total), *self.components.items(), *(("turns", turn) for turn in self.turns)):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"score {name!r} is {value}: scores are finite")


class EpisodeTokens(Record, frozen=True):
    """The tokens of an episode, stored in a file beside the line of JSON.

    Args:
        prompt_ids: token ids of the prompt, (P,).
        completion_ids: token ids of everything after the prompt, in order, (C,).
        mask: 1 for tokens that the policy sampled, 0 for those of the environment, (C,).
        logprobs: natural log at the sampling temperature, before any filtering; 0 where `mask` is 0, (C,).
        images: those whose placeholders stand in `prompt_ids + completion_ids`, in that order.
        prompt_images: how many of `images` belong to the prompt.
        replies: how many tokens the policy sampled for each of its replies; empty if it is not known.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    images: tuple[ImageRef, ...] = ()
    prompt_images: int = 0
    replies: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.completion_ids) == len(self.mask) == len(self.logprobs):
            raise ValueError(
                f"completion_ids ({len(self.completion_ids)}), mask ({len(self.mask)}) and logprobs "
                f"({len(self.logprobs)}) must have one length"
            )
        if self.replies and sum(self.replies) != sum(self.mask):
            raise ValueError(f"replies of {sum(self.replies)} tokens, of {sum(self.mask)} that were sampled")


if TYPE_CHECKING:
    Tokens = EpisodeTokens | None
else:
    Tokens = msgspec.Raw  # a line says where they are


class Episode(Record, frozen=True):
    """One finished episode: what is stored, scored and trained on.

    Args:
        task: the task with its reference answer.
        turns: everything that was said and shown, in order.
        answer: the validated final answer; None if there is none.
        end_reason: why the episode ended.
        terminated: whether it ended with an answer.
        truncated: whether it was cut off by a limit.
        flags: what was unusual about it.
        scores: of the reward; None if it was not scored.
        run_config: what produced it.
        confidence: of the answer, in [0, 1]; None if it states none.
        total_tokens: of prompt and completion together; of an endpoint those that it counted, summed over its replies;
            0 if nobody counted them.
        environment: its name.
        system_prompt: the text before the first turn.
        info: anything else about the episode, as JSON values.
        tokens: for training; not part of the JSON.
    """

    task: Task
    turns: tuple[Turn, ...] = ()
    answer: Mapping[str, Any] | None = None
    end_reason: EndReason = "answered"
    terminated: bool = False
    truncated: bool = False
    flags: frozenset[str] = frozenset()
    scores: Scores | None = None
    run_config: RunConfig = RunConfig()
    confidence: float | None = None
    total_tokens: int = 0
    environment: str = ""
    system_prompt: str = ""
    info: Mapping[str, Any] = FrozenDict()
    tokens: Tokens = msgspec.field(default=None, name="stored_tokens")

    _beside: ClassVar = frozenset({"tokens"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.tokens, msgspec.Raw):
            force_setattr(self, "tokens", None)  # only a folder of episodes has the rows
        if self.confidence is not None and not 0.0 <= self.confidence <= 1.0:  # NaN fails too
            raise ValueError(f"confidence is {self.confidence}; allowed: a number in [0, 1], or None")

    @property
    def is_fault(self) -> bool:
        """Whether a fault ended it (`FAULTS`), which says nothing about the policy: it has no score.

        >>> [Episode(Task("a"), end_reason=reason).is_fault for reason in ("error", "max_turns")]
        [True, False]
        """
        return self.end_reason in FAULTS

    def explain_missing_score(self) -> str | None:
        """Return why it has no score, in a line; None if it has one.

        >>> Episode(Task("a"), scores=Scores(None, faults={"judge": "could not be reached"})).explain_missing_score()
        "the reward 'judge' failed: could not be reached"
        """
        if self.is_fault:
            reason = self.info.get("error")
            return f"{self.end_reason}: {reason}" if reason else self.end_reason
        if self.scores is not None and self.scores.total is not None:
            return None
        faults = dict(self.scores.faults) if self.scores else {}
        for name, reason in faults.items():
            return f"the reward {name!r} failed: {reason}"
        return "it was not scored" if self.scores is None else "no reward applies"

    @property
    def num_turns(self) -> int:
        """How many replies the policy made."""
        return sum([turn.role == "assistant" for turn in self.turns])

    @property
    def tool_call_count(self) -> int:
        """How many tool calls the policy made, those included that were refused."""
        return sum([len(turn.tool_calls) for turn in self.turns])

    @property
    def run_call_count(self) -> int:
        """How many of them a tool ran."""
        return sum([result.was_run for turn in self.turns for result in turn.tool_results])

    def tools_used(self) -> set[str]:
        """Return the names of the tools that were called successfully."""
        return {result.tool_name for turn in self.turns for result in turn.tool_results if result.success}
