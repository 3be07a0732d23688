"""Reads stored episodes one line at a time. The docstring of `writer.py` describes the folder.

Only the lines are read. Images stay references to their files, and token files are opened only on request. The folder
may be somebody else's: only regular files in it are read, what is forged costs its own line, and no link leads out.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, Literal

import numpy as np

from viewbox.errors import StoreError
from viewbox.files import check_inside, open_regular
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, EpisodeTokens
from viewbox.rollouts.store import columns
from viewbox.rollouts.store.lines import MAX_LINE, check_episode, parse_line, read_lines

LINES, IMAGES, TOKENS = "episodes.jsonl", "images", "tokens"
PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
TOKEN = np.dtype([("id", "<i4"), ("mask", "i1"), ("logprob", "<f8")])  # a row of a token file
MAX_FILE = 2**40  # bytes of episodes.jsonl, which is read a line at a time
MAX_TOKENS = 2**28  # bytes of a token file: 20 million tokens
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

    def skip(self, line: int, reason: str) -> None:
        """Count a line as one that cannot be used."""
        self.skipped += 1
        if len(self.unreadable) < MAX_UNREADABLE:
            self.unreadable[line] = reason

    def _read(self) -> Iterator[Episode]:
        with _open_lines(self.folder) as file:
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
            episode = Episode.from_dict(data)
        except (ValueError, OverflowError, RecursionError) as error:  # includes the records' own checks
            raise StoreError(str(error)) from error
        return replace(episode, tokens=self._read_tokens(stored)) if self._tokens and stored else episode

    def _locate_image(self, ref: dict[str, Any]) -> None:
        """Point a reference at its file in the folder, whatever else the line says about it."""
        name = build_image_name(ref["hash"], ref["mode"])
        ref["uri"], ref["folder"] = self._images + name, str(self.folder)
        ref.pop("pixels", None)

    def _read_tokens(self, stored: dict[str, Any]) -> EpisodeTokens:
        try:
            file = self.folder / TOKENS / Path(stored["file"]).name
            rows = _read_token_rows(file, self.folder)
            prompt, completion = np.split(rows, [_get_length(stored["prompt_length"], len(rows))])
            images = [{name: ref[name] for name in ("hash", "width", "height", "mode")} for ref in stored["images"]]
            for ref in images:
                self._locate_image(ref)
            return EpisodeTokens(
                tuple(prompt["id"].tolist()),
                tuple(completion["id"].tolist()),
                tuple(completion["mask"].tolist()),
                tuple(completion["logprob"].tolist()),
                images=tuple(ImageRef.from_dict(ref) for ref in images),
                prompt_images=_get_length(stored["prompt_images"], len(images)),
            )
        except (OSError, ValueError, LookupError, TypeError, EOFError, MemoryError, OverflowError) as error:
            raise StoreError(f"its tokens cannot be read ({stored!r:.60}…): {error}") from error


def _open_lines(folder: Path) -> BinaryIO:
    try:
        return open_regular(folder / LINES, limit=MAX_FILE, inside=folder)
    except OSError as error:
        raise StoreError(f"{folder / LINES}: cannot be read ({error.strerror})") from error


def _read_token_rows(path: Path, folder: Path) -> np.ndarray:
    """The rows of a token file; nothing is allocated for rows that its header promises and that are not there."""
    with open_regular(path, limit=MAX_TOKENS, inside=folder) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("not a file that viewbox writes")
        try:
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        except (SyntaxError, TokenError, RecursionError) as error:  # numpy reads the header as Python
            raise ValueError(f"its header cannot be read: {error}") from error
        content = file.read(MAX_TOKENS)
    if dtype != TOKEN or len(shape) != 1 or shape[0] * TOKEN.itemsize != len(content):
        raise ValueError(f"its header says {shape} of {dtype!r:.100}, its content has {len(content)} bytes")
    return np.frombuffer(content, TOKEN)


def _get_length(value: Any, most: int) -> int:
    if not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"{value!r:.80}; allowed: a whole number from 0 to {most}")
    return value


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
        if os.path.lexists(folder / LINES):
            _check_folder(folder, path)
            return folder.absolute()
    raise StoreError(
        f"{path}: no episodes here; expected a folder with {LINES}, as `EpisodeWriter` writes it, or a run with that "
        "folder in episodes/"
    )


def _check_folder(folder: Path, run: Path) -> None:
    """Raise `StoreError` if the episodes are not in the run itself, or not in a regular file."""
    try:
        check_inside(folder, run)
        with open_regular(folder / LINES, limit=MAX_FILE, inside=folder):
            return
    except OSError as error:
        text = f"{folder / LINES}: cannot be read ({error.strerror}); allowed: a regular file in the folder of the run"
        raise StoreError(text) from error


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
    except (ValueError, RecursionError, MemoryError):
        return False
    return True
