"""Reads stored episodes one line at a time. The docstring of `writer.py` describes the folder.

Only the lines are read. Images stay references to their files, and token files are opened only on request.
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
        self._images = os.path.join(self.folder, IMAGES, "")
        self._tokens, self._skip = tokens, errors == "skip"
        self._column = None if scores is None else columns.ScoreColumnReader(self.folder, scores)
        self._episodes = self._read()

    def __next__(self) -> Episode:
        return next(self._episodes)

    def _read(self) -> Iterator[Episode]:
        with open(self.folder / LINES, "rb") as file:
            for self.line, line in enumerate(file, 1):
                if not line.strip() or (not line.endswith(b"\n") and not is_json(line)):
                    continue  # blank, or the partial last line of a killed process
                self.crc = columns.compute_checksum(line)
                scores = self._column.get_scores(self.line, self.crc) if self._column else None
                try:
                    episode = self._parse_episode(line, scores)
                except StoreError as error:
                    if not self._skip:
                        raise StoreError(f"{self.folder / LINES}, line {self.line}: {error}") from error
                    self.skipped += 1
                    if len(self.unreadable) < MAX_UNREADABLE:
                        self.unreadable[self.line] = str(error)
                    continue
                yield episode

    def _parse_episode(self, line: bytes, scores: dict[str, Any] | None) -> Episode:
        try:
            data = json.loads(line)
            for ref in iter_image_dicts(data):
                ref["uri"] = self._images + build_image_name(ref["hash"], ref["mode"])
            stored = data.pop("stored_tokens", None)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(f"not an episode: {type(error).__name__}: {error}") from error
        if self._column:
            data["scores"] = scores
        try:
            episode = Episode.from_dict(data)
        except ValueError as error:  # includes the records' own checks
            raise StoreError(str(error)) from error
        return replace(episode, tokens=self._read_tokens(stored)) if self._tokens and stored else episode

    def _read_tokens(self, stored: dict[str, Any]) -> EpisodeTokens:
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
                    ImageRef(**{**ref, "uri": self._images + build_image_name(ref["hash"], ref["mode"])})
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


def find_episodes_folder(path: str | Path) -> Path:
    """The absolute folder of episodes at `path`: `path` itself or its subfolder `episodes/`."""
    path = Path(path)
    for folder in (path, path / "episodes"):
        if (folder / LINES).is_file():
            return folder.absolute()
    raise StoreError(
        f"{path}: no episodes here; expected a folder with {LINES}, as `EpisodeWriter` writes it, or a run with that "
        "folder in episodes/"
    )


def iter_image_dicts(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every image in the result of `Episode.to_dict`."""
    yield from data["task"].get("images", ())
    for turn in data.get("turns", ()):
        yield from turn.get("images", ())
        for result in turn.get("tool_results", ()):
            if result.get("image"):
                yield result["image"]


def build_image_name(digest: str, mode: str) -> str:
    """The file name of an image in `images/`."""
    if not _HASH.fullmatch(digest):
        raise ValueError(f"{digest[:80]!r} is not the hash of an image")
    return f"{digest}{'.png' if mode in PNG_MODES else '.tif'}"


def is_json(line: bytes) -> bool:
    """Whether a line is complete JSON."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
