"""Stored episodes, read one line at a time: the other half of `store.py`, whose docstring describes the folder.

Only the lines are read. Pictures stay references to their files, and token files are opened only where asked for.
"""

import json
import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from viewbox.errors import StoreError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, EpisodeTokens
from viewbox.rollouts.store import columns

LINES, IMAGES, TOKENS = "episodes.jsonl", "images", "tokens"
PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
_HASH = re.compile(r"[0-9a-zA-Z]{1,128}")
_NAMED = 100  # unreadable lines that are kept by number


class Loaded(Iterator[Episode]):
    """The episodes of a folder, read one at a time.

    `line` is the number of the last one's line and `crc` the checksum of that line. `skipped` counts the lines that
    could not be read so far; `unreadable` says why, by line number (of the first 100).
    """

    def __init__(
        self, path: Path, *, tokens: bool, errors: Literal["raise", "skip"], scores: str | None = None
    ) -> None:
        self.folder = folder_of(path)
        if errors not in ("raise", "skip"):
            raise StoreError(f"errors={errors!r}; allowed: 'raise', 'skip'")
        self.line = self.crc = self.skipped = 0
        self.unreadable: dict[int, str] = {}
        self._images = os.path.join(self.folder, IMAGES, "")
        self._tokens, self._skip = tokens, errors == "skip"
        self._column = None if scores is None else columns.Reader(self.folder, scores)
        self._episodes = self._read()

    def __next__(self) -> Episode:
        return next(self._episodes)

    def _read(self) -> Iterator[Episode]:
        with open(self.folder / LINES, "rb") as file:
            for self.line, line in enumerate(file, 1):
                if not line.strip() or (not line.endswith(b"\n") and not is_json(line)):
                    continue  # blank, or the torn last line of a process that was killed
                self.crc = columns.checksum(line)
                later = self._column.scores(self.line, self.crc) if self._column else None
                try:
                    episode = self._episode(line, later)
                except StoreError as error:
                    if not self._skip:
                        raise StoreError(f"{self.folder / LINES}, line {self.line}: {error}") from error
                    self.skipped += 1
                    if len(self.unreadable) < _NAMED:
                        self.unreadable[self.line] = str(error)
                    continue
                yield episode

    def _episode(self, line: bytes, later: dict[str, Any] | None) -> Episode:
        try:
            data = json.loads(line)
            for ref in ref_dicts(data):
                ref["uri"] = self._images + image_name(ref["hash"], ref["mode"])
            stored = data.pop("stored_tokens", None)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(f"not an episode: {type(error).__name__}: {error}") from error
        if self._column:
            data["scores"] = later
        try:
            episode = Episode.from_dict(data)
        except ValueError as error:  # a record's own checks among them
            raise StoreError(str(error)) from error
        return replace(episode, tokens=self._unpack(stored)) if self._tokens and stored else episode

    def _unpack(self, stored: dict[str, Any]) -> EpisodeTokens:
        try:
            file = self.folder / TOKENS / Path(stored["file"]).name
            rows = np.load(file, allow_pickle=False)
            prompt, completion = np.split(rows, [stored["prompt_length"]])
            return EpisodeTokens(
                tuple(prompt["id"].tolist()),
                tuple(completion["id"].tolist()),
                tuple(completion["mask"].tolist()),
                tuple(completion["logprob"].tolist()),
                images=tuple(
                    ImageRef(**{**ref, "uri": self._images + image_name(ref["hash"], ref["mode"])})
                    for ref in stored["images"]
                ),
                prompt_images=stored["prompt_images"],
            )
        except (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise StoreError(f"its tokens cannot be read ({stored!r:.60}…): {error}") from error


def load(
    path: str | Path,
    *,
    tokens: bool = False,
    errors: Literal["raise", "skip"] = "raise",
    scores: str | None = None,
) -> Loaded:
    """An iterator over the episodes in `path`, in the order they were appended; reads a line at a time.

    `path` is a folder that `Writer` made, or a run folder with one in `episodes/`. The pictures are references whose
    `uri` is the file in the folder: `ref.open()` reads the pixels when they are wanted. With `tokens=True` each episode
    has its `EpisodeTokens` back, exactly (None where it had none). `scores` names a column that `viewbox score` wrote:
    the episodes then have those scores, or None where the column has none for them. A torn last line is passed over;
    any other line that cannot be read raises `StoreError` with file and line number, or is passed over and counted in
    `.skipped` with `errors="skip"`. Raises `StoreError` at once where there is no store, or no such column.

    >>> load("/nowhere")
    Traceback (most recent call last):
    viewbox.errors.StoreError: /nowhere: no episodes here; expected a folder with episodes.jsonl, as `Writer` makes, \
or a run with that folder in episodes/
    """
    return Loaded(Path(path), tokens=tokens, errors=errors, scores=scores)


def folder_of(path: str | Path) -> Path:
    """The folder of episodes at `path`, absolute: `path` itself or the `episodes/` of a run."""
    path = Path(path)
    for folder in (path, path / "episodes"):
        if (folder / LINES).is_file():
            return folder.absolute()
    raise StoreError(
        f"{path}: no episodes here; expected a folder with {LINES}, as `Writer` makes, or a run with that folder in "
        "episodes/"
    )


def ref_dicts(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every picture in what `Episode.to_dict` gives."""
    yield from data["task"].get("images", ())
    for turn in data.get("turns", ()):
        yield from turn.get("images", ())
        for result in turn.get("tool_results", ()):
            if result.get("image"):
                yield result["image"]


def image_name(digest: str, mode: str) -> str:
    """The name of a picture's file in `images/`."""
    if not _HASH.fullmatch(digest):
        raise ValueError(f"{digest[:80]!r} is not the hash of an image")
    return f"{digest}{'.png' if mode in PNG_MODES else '.tif'}"


def is_json(line: bytes) -> bool:
    """Whether a line is whole."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
