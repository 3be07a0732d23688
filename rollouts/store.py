"""Episodes on disk: one JSON line each, pictures by the hash of their pixels, tokens in a file beside the line.

    <path>/episodes.jsonl            one episode a line; a picture is {hash, width, height, mode, uri: null}
    <path>/images/<hash>.png         its pixels, stored once (.tif for the modes PNG cannot hold, such as "F")
    <path>/tokens/<name>.npy         a row a token, the prompt's first: id (int32), mask (int8), logprob (float64)

Pictures and tokens are in place before the line that names them is appended with one write, so whatever a `kill -9`
leaves behind, every whole line can be read. The folder holds no absolute path and can be moved.
"""

import io
import json
import os
import re
import threading
import uuid
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from PIL import Image

from viewbox.envs.types import Episode, EpisodeTokens, ImageRef
from viewbox.errors import ImageError, StoreError

LINES, IMAGES, TOKENS = "episodes.jsonl", "images", "tokens"
_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
_ROW = np.dtype([("id", "<i4"), ("mask", "i1"), ("logprob", "<f8")])
_HASH = re.compile(r"[0-9a-zA-Z]{1,128}")


class Writer:
    """Appends episodes to the folder `path`, which is made where it does not exist; what is there already is kept.

    May be shared by threads. With `fsync=True` an appended episode also survives a loss of power. `count` is the
    number of episodes in the folder, those of earlier sessions included. Raises `StoreError`.

    >>> import tempfile
    >>> from viewbox.envs.types import Task
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Writer(folder) as writer:
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
            for folder in (IMAGES, TOKENS):
                (self.path / folder).mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path / LINES, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            self._tidy()
        except OSError as error:
            self.close()
            raise StoreError(f"{self.path}: cannot be written as a folder of episodes ({error})") from error

    def append(self, episode: Episode) -> None:
        """Stores one episode; on return it can be loaded. Raises `StoreError` where it cannot be, and adds no line."""
        tokens = episode.tokens
        try:
            for ref in (*_refs(episode), *(tokens.images if tokens else ())):
                self._store_image(ref)
            data = episode.to_dict()
            for reference in _ref_dicts(data):
                reference["uri"] = None
            if tokens is not None:
                name = f"{uuid.uuid4().hex}.npy"
                self._place(self.path / TOKENS / name, _pack(tokens))
                data["stored_tokens"] = {
                    "file": name,
                    "prompt_length": len(tokens.prompt_ids),
                    "prompt_images": tokens.prompt_images,
                    "images": [{**ref.to_dict(), "uri": None} for ref in tokens.images],
                }
            line = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_native)
            self._write(line.encode("utf-8", "surrogatepass") + b"\n")
        except (OSError, ImageError, TypeError, ValueError) as error:
            raise StoreError(f"{self.path}: the episode of task {episode.task.id!r} was not stored: {error}") from error

    def close(self) -> None:
        """Closes the file; closing twice is allowed."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tidy(self) -> None:
        """Counts the lines and, unless another process is writing here, clears up after one that was killed."""
        alone = self._flock("LOCK_EX")
        end, last = 0, b""
        with open(self.path / LINES, "rb") as file:
            for last in file:
                end += len(last)
                self.count += bool(last.strip())
        if alone and last and not last.endswith(b"\n"):
            if _is_json(last):  # only its newline is missing: a file edited by hand, say
                os.write(self._fd, b"\n")
            else:
                os.ftruncate(self._fd, end - len(last))
                self.count -= bool(last.strip())
        if alone:
            for folder in (IMAGES, TOKENS):
                for leftover in (self.path / folder).glob("*.tmp"):
                    leftover.unlink(missing_ok=True)
        self._flock("LOCK_SH")  # held until closed: tells the next writer that this one is alive

    def _flock(self, kind: str) -> bool:
        """Takes the lock; False where it would be alone and is not, True where there are no locks."""
        try:
            import fcntl  # not at the top: a store can be read where this module does not exist

            fcntl.flock(self._fd, getattr(fcntl, kind) | (fcntl.LOCK_NB if kind == "LOCK_EX" else 0))
        except BlockingIOError:
            return False
        except (ImportError, OSError):  # a file system without locks
            return True
        return True

    def _store_image(self, ref: ImageRef) -> None:
        if ref.hash in self._stored:
            return
        path = _image_path(self.path, ref.hash, ref.mode)
        if not path.exists():
            picture = ref.open()
            if ImageRef.of(picture).hash != ref.hash:
                raise ImageError(f"image {ref.uri or ref.hash[:12]}: its pixels are no longer those of its hash")
            self._place(path, _encode(picture, ref.hash))
        self._stored.add(ref.hash)

    def _place(self, path: Path, content: bytes) -> None:
        """A whole file or none."""
        draft = path.with_name(f"{uuid.uuid4().hex}.tmp")
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            if self.fsync:
                os.fsync(file.fileno())
        os.replace(draft, path)
        if self.fsync:
            folder = os.open(path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

    def _write(self, line: bytes) -> None:
        with self._lock:
            if self._fd < 0:
                raise ValueError("the writer is closed")
            written = os.write(self._fd, line)
            if written != len(line):  # the disk is full: leave no torn line for the next append
                os.ftruncate(self._fd, os.lseek(self._fd, 0, os.SEEK_CUR) - written)
                raise OSError(f"only {written} of {len(line)} bytes could be written")
            if self.fsync:
                os.fsync(self._fd)
            self.count += 1


class Loaded(Iterator[Episode]):
    """The episodes of a folder, read one at a time; `skipped` counts the lines that could not be read so far."""

    def __init__(self, path: Path, *, tokens: bool, errors: Literal["raise", "skip"]) -> None:
        if not (path / LINES).is_file():
            raise StoreError(f"{path}: no episodes here; expected a folder with {LINES}, as `Writer` makes")
        if errors not in ("raise", "skip"):
            raise StoreError(f"errors={errors!r}; allowed: 'raise', 'skip'")
        self.skipped = 0
        self._episodes = self._read(path.absolute(), tokens, errors == "skip")

    def __next__(self) -> Episode:
        return next(self._episodes)

    def _read(self, path: Path, tokens: bool, skip: bool) -> Iterator[Episode]:
        with open(path / LINES, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip() or (not line.endswith(b"\n") and not _is_json(line)):
                    continue  # blank, or the torn last line of a process that was killed
                try:
                    episode = _episode(path, line, tokens)
                except StoreError as error:
                    if not skip:
                        raise StoreError(f"{path / LINES}, line {number}: {error}") from error
                    self.skipped += 1
                    continue
                yield episode


def load(path: str | Path, *, tokens: bool = False, errors: Literal["raise", "skip"] = "raise") -> Loaded:
    """An iterator over the episodes in the folder `path`, in the order they were appended; reads a line at a time.

    The pictures are references whose `uri` is the file in the folder: `ref.open()` reads the pixels when they are
    wanted. With `tokens=True` each episode has its `EpisodeTokens` back, exactly (None where it had none). A torn last
    line is passed over; any other line that cannot be read raises `StoreError` with file and line number, or is
    passed over and counted in `.skipped` with `errors="skip"`. Raises `StoreError` at once where there is no store.

    >>> load("/nowhere")
    Traceback (most recent call last):
    viewbox.errors.StoreError: /nowhere: no episodes here; expected a folder with episodes.jsonl, as `Writer` makes
    """
    return Loaded(Path(path), tokens=tokens, errors=errors)


def _episode(path: Path, line: bytes, tokens: bool) -> Episode:
    try:
        data = json.loads(line)
        for ref in _ref_dicts(data):
            ref["uri"] = str(_image_path(path, ref["hash"], ref["mode"]))
        stored = data.pop("stored_tokens", None)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"not an episode: {type(error).__name__}: {error}") from error
    try:
        episode = Episode.from_dict(data)
    except ValueError as error:  # a record's own checks among them
        raise StoreError(str(error)) from error
    return replace(episode, tokens=_unpack(path, stored)) if tokens and stored else episode


def _refs(episode: Episode) -> Iterator[ImageRef]:
    yield from episode.task.images
    for turn in episode.turns:
        yield from turn.images
        yield from (result.image for result in turn.tool_results if result.image is not None)


def _ref_dicts(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same places in what `Episode.to_dict` gives."""
    yield from data["task"].get("images", ())
    for turn in data.get("turns", ()):
        yield from turn.get("images", ())
        yield from (result["image"] for result in turn.get("tool_results", ()) if result.get("image"))


def _image_path(path: Path, digest: str, mode: str) -> Path:
    if not _HASH.fullmatch(digest):
        raise ValueError(f"{digest[:80]!r} is not the hash of an image")
    return path / IMAGES / f"{digest}{'.png' if mode in _PNG_MODES else '.tif'}"


def _encode(picture: Image.Image, digest: str) -> bytes:
    """The pixels as a PNG or TIFF file, without the metadata of the file it came from."""
    bare = picture.copy()
    bare.info = {key: value for key, value in picture.info.items() if key == "transparency"}
    buffer = io.BytesIO()
    if bare.mode == "P" and bare.palette is not None:  # a short palette would make Pillow cut the pixels to fewer bits
        kind = bare.palette.mode
        colours = bare.getpalette(kind) or []
        bare.putpalette(colours + [0] * (256 * len(kind) - len(colours)), kind)
    if bare.mode in _PNG_MODES:
        bare.save(buffer, format="PNG", compress_level=1)
    else:
        bare.save(buffer, format="TIFF")
    if bare.mode not in ("L", "RGB", "RGBA"):
        with Image.open(buffer) as again:
            if ImageRef.of(again).hash != digest:
                raise ImageError(f"image {digest[:12]}: mode {bare.mode!r} cannot be stored without loss")
    return buffer.getvalue()


def _pack(tokens: EpisodeTokens) -> bytes:
    prompt = len(tokens.prompt_ids)
    rows = np.zeros(prompt + len(tokens.completion_ids), dtype=_ROW)
    rows["id"] = tokens.prompt_ids + tokens.completion_ids
    rows["mask"][prompt:] = tokens.mask
    rows["logprob"][prompt:] = tokens.logprobs
    buffer = io.BytesIO()
    np.save(buffer, rows, allow_pickle=False)
    return buffer.getvalue()


def _unpack(path: Path, stored: dict[str, Any]) -> EpisodeTokens:
    try:
        file = path / TOKENS / Path(stored["file"]).name
        rows = np.load(file, allow_pickle=False)
        prompt, completion = np.split(rows, [stored["prompt_length"]])
        return EpisodeTokens(
            tuple(prompt["id"].tolist()),
            tuple(completion["id"].tolist()),
            tuple(completion["mask"].tolist()),
            tuple(completion["logprob"].tolist()),
            images=tuple(
                ImageRef(**{**ref, "uri": str(_image_path(path, ref["hash"], ref["mode"]))}) for ref in stored["images"]
            ),
            prompt_images=stored["prompt_images"],
        )
    except (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise StoreError(f"its tokens cannot be read ({stored!r:.60}…): {error}") from error


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _native(value: Any) -> Any:
    """NumPy scalars and arrays as plain numbers and lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
