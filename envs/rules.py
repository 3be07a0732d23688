"""The rules of the turn loop as settings: every constant of it has a name, a default and a range, here.

`docs/loop.md` says what each rule does and which test holds it.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from viewbox.envs.parsing.reply import MAX_BYTES

Count = Annotated[int, Field(ge=0)]
ReplyFormat = Literal["native", "hermes", "fenced", "json"]


class LastImages(BaseModel):
    """The history policy that shows the model its last few images only; of older ones a placeholder is left."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    last_images: Annotated[int, Field(ge=1)]


class Rules:
    """What an environment's turn loop goes by; `BaseMultiTurnEnv` inherits them all as settings."""

    max_turns: Annotated[int, Field(ge=1, description="replies of the model in an episode, the answer included")] = 10
    max_calls: Annotated[
        dict[str, Count],
        Field(description="how often a tool may be called in an episode, by name; others as often as turns allow"),
    ] = {}  # noqa: RUF012  (an instance has its own, frozen)
    total_calls: Annotated[Count | None, Field(description="calls of tools in an episode, all together")] = None
    calls_per_reply: Annotated[
        int, Field(ge=1, description="calls of one reply that are run; those after them are answered with an error")
    ] = 16
    tool_time_limit: Annotated[
        float | None, Field(gt=0, description="seconds a call may take before it is given up")
    ] = 60.0
    tool_text_limit: Annotated[int, Field(ge=100, description="characters of a tool's text that the model reads")] = (
        8000
    )
    boundary: Annotated[
        bool, Field(description="wrap each tool's text in marks with a random code: it is data, not instructions")
    ] = True
    nudges_in_a_row: Annotated[
        Count, Field(description="malformed replies in a row after which the model is told to finish")
    ] = 2
    malformed_limit: Annotated[int, Field(ge=1, description="malformed replies in all that end the episode")] = 5
    max_reply_bytes: Annotated[
        int, Field(ge=1024, description="UTF-8 bytes of a reply; a longer one is malformed, unread")
    ] = MAX_BYTES
    idle_turns: Annotated[
        int | None, Field(ge=1, description="turns without any tool call after which notes are met with: finish")
    ] = 3
    history: Annotated[
        Literal["full"] | LastImages,
        Field(description="full: messages only grow (training); {last_images: k}: older ones become placeholders"),
    ] = "full"
    reply_format: Annotated[
        ReplyFormat,
        Field(description="how tool calls are taught (native: as the API or the chat template does); all are read"),
    ] = "native"
    thinking: Annotated[
        tuple[tuple[str, str], ...],
        Field(description="pairs of tags around thinking, which never counts. Default in a run: the model's own"),
    ] = (("<think>", "</think>"),)
    templates: Annotated[
        dict[str, str],
        Field(description="Jinja2 texts by name, over those of envs/templates: what the environment says"),
    ] = {}  # noqa: RUF012
