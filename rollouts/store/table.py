"""Saved episodes as a data frame, for notebooks: `viewbox.load(run).to_pandas()`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError
from ...records import Episode
from ...utils.frozen import thaw

if TYPE_CHECKING:
    from pandas import DataFrame

    from .reader import EpisodeReader

MAX_COLUMNS = 512  # names come from the episodes: those of forged ones are left out


def build_table(episodes: "EpisodeReader") -> "DataFrame":
    """A row for each episode. A column is missing if no episode has it, and a value is missing if its episode has none.

    line, task, environment, step, index, sample   where it is stored, and what was played
    end_reason, turns, tool_calls, tools, tokens   how it went; `tools` names those that succeeded, in a text
    total, reward.<component>                      its scores
    answer.<field>, reference.<field>              the answer and the right answer, flattened one level

    Raises:
        ConfigError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise ConfigError("to_pandas: pandas is not installed; install it with: pip install pandas") from error
    return pandas.DataFrame(_list_rows(episodes))


def _list_rows(episodes: "EpisodeReader") -> list[dict[str, Any]]:
    rows, names = [], set[str]()
    for episode in episodes:
        row = {"line": episodes.line, **_build_row(episode)}
        new = row.keys() - names
        if len(names) + len(new) > MAX_COLUMNS:
            row = {name: value for name, value in row.items() if name in names}
        names.update(row)
        rows.append(row)
    return rows


def _build_row(episode: Episode) -> dict[str, Any]:
    scores = episode.scores
    return {
        "task": episode.task.id,
        "environment": episode.environment,
        **{name: episode.info[name] for name in ("step", "index", "sample") if name in episode.info},
        "end_reason": episode.end_reason,
        "turns": episode.num_turns,
        "tool_calls": episode.tool_call_count,
        "tools": ", ".join(sorted(episode.tools_used())),
        "tokens": episode.total_tokens,
        "total": scores.total if scores else None,
        **_flatten("reward", scores.components if scores else {}),
        **_flatten("answer", episode.answer or {}),
        **_flatten("reference", episode.task.reference),
    }


def _flatten(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a mapping as columns; what is inside a field stays as plain lists and dicts."""
    return {f"{name}.{key}": thaw(value) for key, value in values.items()}
