"""Reads stored episodes one line at a time. The docstring of `layout.py` describes the folder.

Only the lines are read. Images stay references to their files, and token files are opened only on request. The folder
may be somebody else's: only regular files in it are read, what is forged costs its own line, and no link leads out.
"""

import sys
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from msgspec.structs import force_setattr

from ...errors import ConfigError, StoreError
from ...records import Episode, EpisodeTokens, Scores
from ...rewards.looks import read_looks
from ...utils.frozen import thaw
from . import columns
from .layout import LINES, check_format, count_finished, find_episodes_folder, iter_images, locate_images
from .lines import MAX_LINE, LinePart, check_scores, decode_episode, is_passed_over, open_lines, read_lines
from .tokens import decode_place, decode_rows, read_rows

if TYPE_CHECKING:
    from pandas import DataFrame

MAX_COLUMNS = 512  # of a data frame: names come from the episodes, and those of forged ones are left out
MAX_UNREADABLE = 100  # unreadable lines that are kept with their reason


class EpisodeReader(Sequence[Episode]):
    """The episodes of a folder, in the order they were appended; see `load`.

    It can be walked as often as you like, each time from the first episode, and reads one line at a time. `len`, an
    index and a slice (a list) need the place of every line: the first use reads the file once, and episodes that are
    appended later do not count. `next` goes on in the last walk.

    `line` is the line number of the last episode and `crc` the checksum of that line. `skipped` counts the lines that
    could not be read in this walk; `unreadable` gives the reason by line number, for the first 100 of them."""

    def __init__(
        self, path: Path, *, tokens: bool, errors: Literal["raise", "skip"], scores: str | None = None
    ) -> None:
        self.folder = find_episodes_folder(path)
        if errors not in ("raise", "skip"):
            raise StoreError(f"errors={errors!r}; allowed: 'raise', 'skip'")
        self.line = self.skipped = 0
        self._content: bytes | None = None  # of the line
        self.unreadable: dict[int, str] = {}
        check_format(self.folder)
        self._with_tokens, self._skip, self._scores = tokens, errors == "skip", scores
        self._folder = str(self.folder)
        if scores is not None:
            columns.open_column(self.folder, scores).close()  # raises if there is none
        self._walk: Iterator[Episode] | None = None
        self._column: columns.ScoreColumn | None = None
        self._places: tuple[array[int], array[int]] | None = None

    def __iter__(self) -> Iterator[Episode]:
        self.line = self.skipped = 0
        self.unreadable = {}
        self._walk = self.walk(LinePart())
        return self._walk

    @property
    def crc(self) -> int:
        """The CRC-32 of the last line, without surrounding whitespace."""
        return zlib.crc32((self._content or b"").strip())

    def __next__(self) -> Episode:
        return next(self._walk or iter(self))

    def __len__(self) -> int:
        return len(self._find_places()[0])

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> list[Episode]: ...
    def __getitem__(self, index: int | slice) -> Episode | list[Episode]:
        numbers, places = self._find_places()
        if isinstance(index, slice):
            return [self._read_at(*place) for place in zip(numbers[index], places[index], strict=True)]
        try:
            return self._read_at(numbers[index], places[index])
        except IndexError:
            raise IndexError(f"episode {index}: there are {len(numbers)}") from None

    def to_pandas(self) -> "DataFrame":
        """Return a data frame with a row for each episode. What no episode has is no column, what one lacks is missing.

        line, task, environment, model, step, index, sample   where it is stored, and what was played
        end_reason, turns, tool_calls, tools, tokens   how it went; `tools` names those that succeeded, in a text
        total, reward.<component>                      its scores
        verdict, looks.<name>                          where it looked (docs/looking.md), if there is a target
        answer.<field>, reference.<field>              the answer and the right answer, flattened one level

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ConfigError("to_pandas: pandas is not installed; install it with: pip install pandas") from error
        return pandas.DataFrame(_list_rows(self))

    def skip(self, line: int, reason: str) -> None:
        """Count a line as one that cannot be used."""
        self.skipped += 1
        if len(self.unreadable) < MAX_UNREADABLE:
            self.unreadable[line] = reason

    def walk(self, part: LinePart, column: columns.ScoreColumn | None = None) -> Iterator[Episode]:
        """Yield the episodes of a part of the lines; their column of scores is read if it is not given."""
        with open_lines(self.folder) as file:
            if self._scores is not None and column is None:
                column = columns.ScoreColumn(self.folder, self._scores)
            file.seek(part.start)
            held = 0
            for number, line in enumerate(islice(read_lines(file), part.lines), part.first):
                if is_passed_over(line):
                    continue
                held += 1
                self.line, self._content = number, line
                scores = column.find(number, self.crc) if column else None
                try:
                    episode = self._parse_episode(line, scores)
                except StoreError as error:
                    if not self._skip:
                        raise StoreError(f"{self.folder / LINES}, line {number}: {error}") from error
                    self.skip(number, str(error))
                    continue
                yield episode
        if part == LinePart():
            self.check_whole(held)

    def check_whole(self, held: int) -> None:
        """Count what a run that ended has lost since: summary.json knows how many episodes it had. Raise `StoreError`
        unless such lines are skipped."""
        counted = count_finished(self.folder)
        if held < counted and held + 1 not in self.unreadable:
            reason = f"cut off: summary.json counts {counted:,} episodes, {held:,} are here"
            if not self._skip:
                raise StoreError(f"{self.folder / LINES}, line {held + 1}: {reason}")
            self.skip(held + 1, reason)
            self.skipped += counted - held - 1

    def _find_places(self) -> tuple["array[int]", "array[int]"]:
        """Return the number of the line of each episode, and the byte where it begins."""
        if self._places is None:
            numbers, places = array("q"), array("q")
            with open_lines(self.folder) as file:
                end = 0
                for number, line in enumerate(read_lines(file), 1):
                    start, end = end, file.tell()
                    if is_passed_over(line):
                        continue
                    with suppress(StoreError):
                        if self._skip:
                            self._parse_episode(line, None)
                        numbers.append(number)
                        places.append(start)
            self._places = numbers, places
        return self._places

    def _read_at(self, number: int, place: int) -> Episode:
        if self._scores is not None and self._column is None:
            self._column = columns.ScoreColumn(self.folder, self._scores)  # once, for any order of lines
        state, self.unreadable = (self.skipped, self.unreadable), {}
        try:
            for episode in self.walk(LinePart(place, 1, number), self._column):
                return episode
            reason = self.unreadable.get(number, "cannot be read any more")
        finally:
            self.skipped, self.unreadable = state
        raise StoreError(f"{self.folder / LINES}, line {number}: {reason}")

    def _parse_episode(self, line: bytes | None, scores: Scores | None) -> Episode:
        if line is None:
            raise StoreError(f"longer than {MAX_LINE:,} bytes")
        try:
            episode = decode_episode(line)
            if scores is not None:
                check_scores(scores, episode.num_turns)
        except ValueError as error:
            raise StoreError(f"not an episode: {error}") from error
        locate_images(self._folder, iter_images(episode))
        if self._with_tokens:
            force_setattr(episode, "tokens", self._read_tokens(line))
        force_setattr(episode, "system_prompt", sys.intern(episode.system_prompt))  # most lines hold the same
        if self._scores is not None:
            force_setattr(episode, "scores", scores)
        return episode

    def _read_tokens(self, line: bytes) -> EpisodeTokens | None:
        try:
            place = decode_place(line)
            if place is None:
                return None
            locate_images(self._folder, place.images)
            return decode_rows(read_rows(self.folder, place), place)
        except (OSError, ValueError, EOFError, MemoryError) as error:
            raise StoreError(f"its tokens cannot be read: {error}") from error


def load(
    path: str | Path, *, tokens: bool = False, errors: Literal["raise", "skip"] = "raise", scores: str | None = None
) -> EpisodeReader:
    """Return the episodes in `path`, in the order they were appended: a sequence that reads one line at a time.
    Images are references whose `uri` is the file in the folder: `ref.open()` reads the pixels. A partial last line,
    left by a killed process, is ignored, unless the run has a summary.json that counts more episodes.

    Args:
        path: a folder written by `EpisodeWriter`, or a run folder that has one in `episodes/`.
        tokens: also read each episode's `EpisodeTokens`, bit for bit (None if it was stored without).
        errors: "raise" stops at any other line that cannot be read; "skip" ignores it and counts it in `.skipped`.
        scores: the name of a column written by `viewbox score`. Episodes then have those scores, or None if the column
            has no line for them.

    Raises:
        StoreError: at once if the folder or the column does not exist; later for a line that cannot be read, with file
            and line number.

    >>> load("/nowhere")
    Traceback (most recent call last):
    viewbox.errors.StoreError: /nowhere: no episodes here; there is no such folder
    """
    return EpisodeReader(Path(path), tokens=tokens, errors=errors, scores=scores)


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
    scores, looks = episode.scores, read_looks(episode)
    return {
        "task": episode.task.id,
        "environment": episode.environment,
        **({"model": model} if (model := episode.run_config.model_name) else {}),
        **{name: episode.info[name] for name in ("step", "index", "sample") if name in episode.info},
        "end_reason": episode.end_reason,
        "turns": episode.num_turns,
        "tool_calls": episode.tool_call_count,
        "tools": ", ".join(sorted(episode.tools_used())),
        "tokens": episode.total_tokens,
        "total": scores.total if scores else None,
        **_flatten("reward", scores.components if scores else {}),
        **({"verdict": looks.verdict, **_flatten("looks", looks.list_values())} if looks.targets else {}),
        **_flatten("answer", episode.answer or {}),
        **_flatten("reference", episode.task.reference),
    }


def _flatten(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a mapping as columns; what is inside a field stays as plain lists and dicts."""
    return {f"{name}.{key}": thaw(value) for key, value in values.items()}
