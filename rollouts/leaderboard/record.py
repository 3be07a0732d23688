"""What the file of a leaderboard holds. Reading it checks every type and size: the file may be somebody else's."""

from typing import Annotated

from msgspec import Meta, Struct

MAX_TEXT = 200  # characters of a name
MAX_PATH = 1000
MAX_COMMAND = 8000
MAX_ROWS = 10_000
FORMAT = 1

Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Path = Annotated[str, Meta(min_length=1, max_length=MAX_PATH)]
Command = Annotated[str, Meta(max_length=MAX_COMMAND)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Number = Annotated[float, Meta(ge=-1e15, le=1e15)]


class Figure(Struct, frozen=True, forbid_unknown_fields=True):
    """A mean over `count` episodes with its 95 % interval, which is None for a single task."""

    mean: Number
    low: Number | None
    high: Number | None
    count: Count


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """The figures of one run.

    Args:
        run: its folder, relative to that of the leaderboard: the name of the row.
        model, environment: their names, as the run gives them.
        played: digest of the ids of its tasks. Rewards of rows with the same one can be compared.
        settings: digest of the settings of the environment and of the reward.
        tasks, episodes: how many were played.
        skipped: lines of the run that cannot be read.
        reward: the stored reward, over the episodes that have one.
        tool_gain: the reward with tools minus that without, of an evaluation.
        calls, tokens: tool calls and sampled tokens of an episode.
        command: it plays or trains the run again, from the folder of the leaderboard; empty: see `no_command`.
        no_command: why there is no command.
        viewbox: the version that made the row.
    """

    run: Path
    model: Text
    environment: Text
    played: Text
    settings: Text
    tasks: Count
    episodes: Count
    skipped: Count
    reward: Figure | None
    tool_gain: Figure | None
    calls: Figure | None
    tokens: Figure | None
    command: Command
    no_command: Text
    viewbox: Text


class Leaderboard(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)]
    rows: Annotated[list[Row], Meta(max_length=MAX_ROWS)]
