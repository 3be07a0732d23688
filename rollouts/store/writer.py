"""Episodes on disk: one JSON line each, images stored by the hash of their pixels, tokens in separate files.

    <path>/episodes.jsonl            one episode per line; an image is {hash, width, height, mode, uri: null}
    <path>/images/<hash>.png         its pixels, stored once (.tif for the modes PNG cannot hold, such as "F")
    <path>/tokens/<name>.npy         one row per token, prompt first: id (int32), mask (int8), logprob (float64)
    <path>/scores/<name>.jsonl       scores added later by `viewbox score` (`columns.py`)

Images and tokens are written before the line that refers to them, and the line is appended with a single write. After
a `kill -9`, every complete line can therefore be read. The folder holds no absolute path and can be moved. `reader.py`
reads it.
"""

import io
import json
import logging
import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from PIL import Image

from viewbox.errors import ImageError, StoreError
from viewbox.files import check_writable, open_regular, try_lock, write_atomically
from viewbox.images.ref import ImageRef
from viewbox.network import secrets
from viewbox.records import Episode, EpisodeTokens, RunConfig, Task
from viewbox.rollouts.store.lines import MAX_COUNT, MAX_LINE, check_episode, encode_line, parse_line, read_lines
from viewbox.rollouts.store.reader import (
    IMAGES,
    LINES,
    MAX_FILE,
    PNG_MODES,
    TOKEN,
    TOKENS,
    build_image_name,
    is_json,
    iter_image_dicts,
)
from viewbox.terminal import make_line

log = logging.getLogger("viewbox.rollouts")

MAX_REASON = 1000  # characters kept of the reason why an episode cannot be stored


class UnstorableError(StoreError):
    """One episode that cannot be stored; the folder can be written."""


class EpisodeWriter:
    """Appends episodes to a folder. Threads may share one writer.

    `count` is the number of episodes in the folder, including those of earlier sessions.

    Args:
        path: the folder; it is created if missing. Episodes already in it are kept.
        fsync: sync every episode to the disk, so that it survives a power failure too.

    Raises:
        StoreError: the folder cannot be written.

    >>> import tempfile
    >>> from viewbox.records import Task
    >>> from viewbox.rollouts.store.reader import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with EpisodeWriter(folder) as writer:
    ...         writer.append(Episode(Task("t1"), answer={"label": 3}))
    ...     [episode.answer for episode in load(folder)]
    [{'label': 3}]
    """

    def __init__(self, path: str | Path, *, fsync: bool = False) -> None:
        self.path = Path(path)
        self.fsync = fsync
        self.count = 0
        self._lock = threading.Lock()
        self._stored: set[str] = set()
        self._fd = -1
        try:
            for name in (IMAGES, TOKENS, LINES):
                check_writable(self.path / name, self.path)  # a link in somebody's folder may lead anywhere
            for name in (IMAGES, TOKENS):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path / LINES, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            self._clean_up()
        except OSError as error:
            self.close()
            raise StoreError(f"{self.path}: cannot write episodes to this folder ({error})") from error

    def append(self, episode: Episode) -> None:
        """Store one episode; once this returns, it can be loaded. If it raises `StoreError`, no line was added.

        Raises:
            UnstorableError: this episode holds what no line can, or what could not be read again; others can be stored.
            StoreError: the folder cannot be written.
        """
        try:
            images = self._encode_images(episode)
            tokens, name = episode.tokens, f"{uuid.uuid4().hex}.npy"
            rows = None if tokens is None else _encode_tokens(tokens)
            line = _encode_episode(episode, name)
        except Exception as error:  # whatever an author's objects raise when they are read
            reason = f"the episode of task {_describe(episode.task.id)!r} was not stored: {_describe(error)}"
            raise UnstorableError(f"{self.path}: {reason}") from error
        try:
            for path, content in images.items():
                write_atomically(path, content, sync=self.fsync)
            if rows is not None:
                write_atomically(self.path / TOKENS / name, rows, sync=self.fsync)
            self._append_line(line)
        except (OSError, ValueError) as error:
            reason = f"the episode of task {_describe(episode.task.id)!r} was not stored: {error}"
            raise StoreError(f"{self.path}: {reason}") from error
        self._stored.update(path.name for path in images)

    def append_or_error(self, episode: Episode) -> Episode:
        """Store one episode, or in its place that it cannot be stored; returns what was stored.

        A record may hold what no file can: a number that is not finite, or an object of a tool. Raises `StoreError` if
        nothing can be written.
        """
        try:
            self.append(episode)
            return episode
        except UnstorableError as error:
            log.warning(make_line(error, MAX_REASON))
            stored = _build_stand_in(episode, make_line(error, MAX_REASON))
        try:
            self.append(stored)
        except UnstorableError:  # because of an author's object among the settings of the run
            stored = replace(stored, run_config=RunConfig(), environment=_describe(episode.environment))
            self.append(stored)
        return stored

    def close(self) -> None:
        """Close the file. Closing twice is allowed."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _clean_up(self) -> None:
        """Count the lines; unless another process is writing here, also repair what a killed process left behind."""
        alone = try_lock(self._fd)
        end, last = 0, b""
        with open_regular(self.path / LINES, limit=MAX_FILE) as file:
            for line in read_lines(file):
                if line is None:
                    raise StoreError(f"{self.path / LINES}: has a line of more than {MAX_LINE:,} bytes")
                last = line
                end += len(last)
                self.count += bool(last.strip())
        if alone and last and not last.endswith(b"\n"):
            if is_json(last):  # only its newline is missing, for example after an edit by hand
                os.write(self._fd, b"\n")
            else:
                os.ftruncate(self._fd, end - len(last))
                self.count -= bool(last.strip())
        if alone:
            for folder in (IMAGES, TOKENS):
                for leftover in (self.path / folder).glob("*.tmp"):
                    leftover.unlink(missing_ok=True)
        try_lock(self._fd, shared=True)  # held until the file is closed: tells other writers that this one is alive

    def _encode_images(self, episode: Episode) -> dict[Path, bytes]:
        """The files of the images that are not stored yet."""
        files: dict[Path, bytes] = {}
        for ref in (*_iter_images(episode), *(episode.tokens.images if episode.tokens else ())):
            path = self.path / IMAGES / build_image_name(ref.hash, ref.mode)
            if path.name in self._stored or path in files:
                continue
            if path.exists():
                self._stored.add(path.name)
                continue
            image = ref.open()
            if ImageRef.of(image).hash != ref.hash:
                raise ImageError(f"image {ref.uri or ref.hash[:12]}: its pixels no longer match its hash")
            files[path] = _encode_image(image, ref.hash)
        return files

    def _append_line(self, line: bytes) -> None:
        with self._lock:
            if self._fd < 0:
                raise ValueError("the writer is closed")
            written = os.write(self._fd, line)
            if written != len(line):  # the disk is full: remove the partial line
                os.ftruncate(self._fd, os.lseek(self._fd, 0, os.SEEK_CUR) - written)
                raise OSError(f"only {written} of {len(line)} bytes could be written")
            if self.fsync:
                os.fsync(self._fd)
            self.count += 1


def _iter_images(episode: Episode) -> Iterator[ImageRef]:
    yield from episode.task.images
    for turn in episode.turns:
        yield from turn.images
        yield from (result.image for result in turn.tool_results if result.image is not None)


def _encode_episode(episode: Episode, tokens_name: str) -> bytes:
    """The line of an episode; raises if it cannot be written, or could not be read again."""
    data = episode.to_dict()
    for reference in iter_image_dicts(data):
        reference["uri"] = None
    tokens = episode.tokens
    if tokens is not None:
        data["stored_tokens"] = {
            "file": tokens_name,
            "prompt_length": len(tokens.prompt_ids),
            "prompt_images": tokens.prompt_images,
            "images": [{**ref.to_dict(), "uri": None} for ref in tokens.images],
        }
    data = secrets.mask_values(data)
    line = encode_line(
        json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_to_plain_value)
    )
    if len(line) > MAX_LINE:
        raise ValueError(f"its line has {len(line):,} bytes; allowed: {MAX_LINE:,}")
    written = parse_line(line)
    written.pop("stored_tokens", None)
    check_episode(written)
    Episode.from_dict(written)
    return line


def _build_stand_in(episode: Episode, reason: str) -> Episode:
    """What is stored of an episode that cannot be: its place in the run, and the reason."""
    places = {
        name: value
        for name in ("index", "sample", "number", "step")
        if isinstance(value := episode.info.get(name), int) and 0 <= value <= MAX_COUNT
    }
    return Episode(
        Task(_describe(episode.task.id)),
        end_reason="error",
        truncated=True,
        environment=episode.environment,
        run_config=episode.run_config,
        info={**places, "error": reason},
    )


def _describe(value: object) -> str:
    """A text of an author's object, which may have none."""
    try:
        return str(value)[:MAX_REASON]
    except Exception:
        return f"(a {type(value).__name__})"


def _encode_image(image: Image.Image, digest: str) -> bytes:
    """The pixels as a PNG or TIFF file, without the metadata of the original file."""
    bare = image.copy()
    bare.info = {key: value for key, value in image.info.items() if key == "transparency"}
    buffer = io.BytesIO()
    if bare.mode == "P" and bare.palette is not None:  # with a short palette, Pillow would store fewer bits per pixel
        kind = bare.palette.mode
        colors = bare.getpalette(kind) or []
        bare.putpalette(colors + [0] * (256 * len(kind) - len(colors)), kind)
    if bare.mode in PNG_MODES:
        bare.save(buffer, format="PNG", compress_level=1)
    else:
        bare.save(buffer, format="TIFF")
    if bare.mode not in ("L", "RGB", "RGBA"):
        with Image.open(buffer) as decoded:
            if ImageRef.of(decoded).hash != digest:
                raise ImageError(f"image {digest[:12]}: mode {bare.mode!r} cannot be stored losslessly")
    return buffer.getvalue()


def _encode_tokens(tokens: EpisodeTokens) -> bytes:
    prompt = len(tokens.prompt_ids)
    rows = np.zeros(prompt + len(tokens.completion_ids), dtype=TOKEN)
    rows["id"] = tokens.prompt_ids + tokens.completion_ids
    rows["mask"][prompt:] = tokens.mask
    rows["logprob"][prompt:] = tokens.logprobs
    buffer = io.BytesIO()
    np.save(buffer, rows, allow_pickle=False)
    return buffer.getvalue()


def _to_plain_value(value: Any) -> Any:
    """Turn NumPy scalars and arrays into plain numbers and lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
