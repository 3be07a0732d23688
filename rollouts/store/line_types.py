"""The fields of the records in a line, with their types, as msgspec reads and checks them in one step.

Each structure mirrors a record: a test compares their fields and defaults. `decode.py` makes the records. What JSON
gives holds no cycles: `gc=False`.
"""

from typing import Annotated, Literal

import msgspec

from ...records import EndReason, Nudge

Scalar = str | int | float | bool | None
Flat = Scalar | list[Scalar] | dict[str, Scalar]
Nested = Scalar | list[Flat] | dict[str, Flat]
Deep = Scalar | list[Nested] | dict[str, Nested]
Values = dict[str, Scalar | list[Deep] | dict[str, Deep]]  # what is nested deeper is left to the careful way


class ImageLine(msgspec.Struct, gc=False):
    """The fields of an `ImageRef` that are read."""

    hash: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-zA-Z]{1,128}\Z")]
    width: int
    height: int
    mode: str


class ViewLine(msgspec.Struct, gc=False):
    """A `ShownView`."""

    image: int | None = None
    corners: tuple[float, ...] = (0.0, 0.0, 1.0, 1.0)
    turned: bool = False
    plane: str | None = None
    slice: int | None = None
    slices: int | None = None
    time: int | None = None
    window: str | None = None
    area: tuple[float, ...] | None = None


class CallLine(msgspec.Struct, gc=False):
    """A `ToolCall`."""

    id: str
    name: str
    arguments: Values | str = {}


class ResultLine(msgspec.Struct, gc=False):
    """A `ToolResult`."""

    tool_name: str
    description: str = ""
    error: str | None = None
    image: ImageLine | None = None
    mime_type: str | None = None
    facts: Values = {}
    formatted_results: str | None = None
    call_id: str | None = None
    arguments: Values | None = None
    views: list[ViewLine] = []
    raised: str = ""


class TurnLine(msgspec.Struct, gc=False):
    """A `Turn`."""

    role: Literal["user", "assistant", "tool_result"]
    content: str = ""
    tool_calls: list[CallLine] = []
    tool_results: list[ResultLine] = []
    images: list[ImageLine] = []
    nudge: Nudge = ""
    views: list[ViewLine] = []


class TaskLine(msgspec.Struct, gc=False):
    """A `Task`."""

    id: str
    images: list[ImageLine] = []
    prompt: Values = {}
    reference: Values = {}
    metadata: Values = {}


class ScoresLine(msgspec.Struct, gc=False):
    """`Scores`."""

    total: float | None
    components: dict[str, float | None] = {}
    faults: dict[str, str] = {}


class RunConfigLine(msgspec.Struct, frozen=True, gc=False):
    """A `RunConfig`."""

    model_name: str = ""
    temperature: float | None = None
    seed: int | None = 0
    max_tokens: int | None = None
    max_turns: int | None = None
    versions: dict[str, str] = {}


class EpisodeLine(msgspec.Struct, gc=False):
    """An `Episode`, and where its tokens are."""

    task: TaskLine
    turns: list[TurnLine] = []
    answer: Values | None = None
    end_reason: EndReason = "answered"
    terminated: bool = False
    truncated: bool = False
    flags: list[str] = []
    scores: ScoresLine | None = None
    run_config: RunConfigLine = RunConfigLine()
    confidence: float | None = None
    total_tokens: int = 0
    environment: str = ""
    system_prompt: str = ""
    info: Values = {}
    stored_tokens: msgspec.Raw = msgspec.Raw()


class TokensLine(msgspec.Struct):
    """`stored_tokens`: a shard, and the place in it."""

    file: str
    prompt_length: int
    prompt_images: int
    images: list[ImageLine]
    offset: int
    rows: int
    crc: int
