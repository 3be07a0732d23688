"""Reads stored episodes one line at a time. The docstring of `layout.py` describes the folder.

Only the lines are read. Images stay references to their files, and token files are opened only on request. The folder
may be somebody else's: only regular files in it are read, what is forged costs its own line, and no link leads out.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Literal

from msgspec import Raw

from viewbox.errors import StoreError
from viewbox.files import open_regular
from viewbox.records import Episode, EpisodeTokens, Scores
from viewbox.rollouts.store import columns
from viewbox.rollouts.store.decode import EpisodeDecoder, UnusualError, read_place
from viewbox.rollouts.store.layout import (
    LINES,
    MAX_FILE,
    build_image_path,
    find_episodes_folder,
    iter_image_dicts,
    read_format,
)
from viewbox.rollouts.store.lines import MAX_LINE, check_episode, parse_line, read_lines
from viewbox.rollouts.store.tokens import TokenFiles, get_length

MAX_UNREADABLE = 100  # unreadable lines that are kept with their reason


class EpisodeReader(Iterator[Episode]):
    """An iterator over the episodes of a folder; see `load`.

    `line` is the line number of the last episode and `crc` the checksum of that line. `skipped` counts the lines that
    could not be read so far; `unreadable` gives the reason by line number, for the first 100 of them.
    """

    def __init__(
        self, path: Path, *, tokens: bool, errors: Literal["raise", "skip"], scores: str | None = None
    ) -> None:
        self.folder = find_episodes_folder(path)
        if errors not in ("raise", "skip"):
            raise StoreError(f"errors={errors!r}; allowed: 'raise', 'skip'")
        self.line = self.crc = self.skipped = 0
        self.unreadable: dict[int, str] = {}
        self._layout, self._prefix = read_format(self.folder), os.path.join(self.folder, "")
        self._decoder = EpisodeDecoder(str(self.folder), self._layout)
        self._tokens, self._skip = TokenFiles(self.folder) if tokens else None, errors == "skip"
        self._column = None if scores is None else columns.ScoreColumnReader(self.folder, scores)
        self._episodes = self._read()

    def __next__(self) -> Episode:
        return next(self._episodes)

    def skip(self, line: int, reason: str) -> None:
        """Count a line as one that cannot be used."""
        self.skipped += 1
        if len(self.unreadable) < MAX_UNREADABLE:
            self.unreadable[line] = reason

    def _read(self) -> Iterator[Episode]:
        with _open_lines(self.folder) as file, closing(self._tokens) if self._tokens else nullcontext():
            for self.line, line in enumerate(read_lines(file), 1):
                if line is not None and (not line.strip() or (not line.endswith(b"\n") and not is_json(line))):
                    continue  # blank, or the partial last line of a killed process
                self.crc = 0 if line is None else columns.compute_checksum(line)
                scores = self._column.get_scores(self.line, self.crc) if self._column else None
                try:
                    episode = self._parse_episode(line, scores)
                except StoreError as error:
                    if not self._skip:
                        raise StoreError(f"{self.folder / LINES}, line {self.line}: {error}") from error
                    self.skip(self.line, str(error))
                    continue
                yield episode

    def _parse_episode(self, line: bytes | None, scores: dict[str, Any] | None) -> Episode:
        if line is None:
            raise StoreError(f"longer than {MAX_LINE:,} bytes")
        try:
            episode, stored = self._decoder.decode(line)
            if self._column:
                new = None if scores is None else Scores.from_dict(scores)
                object.__setattr__(episode, "scores", new)  # nobody else has the episode yet
        except UnusualError:
            episode, stored = self._parse_carefully(line, scores)
        if self._tokens is not None:
            object.__setattr__(episode, "tokens", self._read_tokens(self._tokens, stored))
        return episode

    def _parse_carefully(self, line: bytes, scores: dict[str, Any] | None) -> tuple[Episode, Any]:
        """The episode of any line, and its `stored_tokens`; raises `StoreError` that says what is wrong."""
        try:
            data = parse_line(line)
            for ref in iter_image_dicts(data):
                self._locate_image(ref)
            stored = data.pop("stored_tokens", None)
            check_episode(data)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StoreError(f"not an episode: {type(error).__name__}: {error}") from error
        if self._column:
            data["scores"] = scores
        try:
            return Episode.from_dict(data), stored
        except (ValueError, OverflowError, RecursionError) as error:  # includes the records' own checks
            raise StoreError(str(error)) from error

    def _locate_image(self, ref: dict[str, Any]) -> None:
        """Point a reference at its file in the folder, whatever else the line says about it."""
        name = build_image_path(ref["hash"], ref["mode"], self._layout)
        ref["uri"], ref["folder"] = self._prefix + name, str(self.folder)
        ref.pop("pixels", None)

    def _read_tokens(self, files: TokenFiles, stored: Any) -> EpisodeTokens | None:
        try:
            place = read_place(stored)
            if place is None:
                return None
            rows = files.read_rows(place)
            return EpisodeTokens.from_rows(
                rows,
                get_length(place.prompt_length, len(rows)),
                self._decoder.make_refs(place.images),
                get_length(place.prompt_images, len(place.images)),
            )
        except (OSError, ValueError, EOFError, MemoryError, OverflowError, RecursionError) as error:
            given = bytes(stored) if isinstance(stored, Raw) else stored
            raise StoreError(f"its tokens cannot be read ({given!r:.60}…): {error}") from error


def _open_lines(folder: Path) -> BinaryIO:
    try:
        return open_regular(folder / LINES, limit=MAX_FILE, inside=folder)
    except OSError as error:
        raise StoreError(f"{folder / LINES}: cannot be read ({error.strerror})") from error


def load(
    path: str | Path,
    *,
    tokens: bool = False,
    errors: Literal["raise", "skip"] = "raise",
    scores: str | None = None,
) -> EpisodeReader:
    """Iterate over the episodes in `path`, in the order they were appended, reading one line at a time.

    Images are references whose `uri` is the file in the folder: `ref.open()` reads the pixels. A partial last line,
    left by a killed process, is ignored.

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
    viewbox.errors.StoreError: /nowhere: no episodes here; expected a folder with episodes.jsonl, as \
`EpisodeWriter` writes it, or a run with that folder in episodes/
    """
    return EpisodeReader(Path(path), tokens=tokens, errors=errors, scores=scores)


def is_json(line: bytes) -> bool:
    """Whether a line is complete JSON."""
    try:
        json.loads(line)
    except (ValueError, RecursionError, MemoryError):
        return False
    return True
