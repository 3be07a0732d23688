"""Episodes on disk: one JSON line each, images stored by the hash of their pixels, tokens in shards.

`layout.py` describes the folder. Images and tokens are written before the line that refers to them, and the line is
appended with a single write. After a `kill -9`, every complete line can therefore be read. Several processes may
append to one folder. It holds no absolute path and can be moved. `reader.py` reads it.
"""

import io
import json
import logging
import os
import threading
import zlib
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec.structs import replace
from PIL import Image

from ...errors import ImageError, StoreError
from ...images.files.native import encode_native
from ...images.ref import NATIVE, ImageRef
from ...network.data_policy import RESTRICTED
from ...records import Episode, EpisodeTokens, RunConfig, Task
from ...utils import secrets
from ...utils.files import begin_line, check_writable, open_regular, replace_atomically, try_lock, write_atomically
from ...utils.terminal import make_line
from . import layout
from .layout import IMAGES, LINES, TOKENS
from .lines import MAX_COUNT, MAX_LINE, decode_episode, encode_line, is_json, read_lines
from .tokens import TOKEN, TokenPlace, TokenShard, encode_rows

log = logging.getLogger("viewbox.rollouts")


class UnstorableError(StoreError):
    """One episode that cannot be stored; the folder can be written."""


class EpisodeWriter(AbstractContextManager["EpisodeWriter"]):
    """Appends episodes to a folder. Threads may share one writer. `count` is the number of episodes in the folder,
    including those of earlier sessions. Raise `StoreError` if the folder cannot be written.

    Args:
        path: the folder; it is created if missing. Episodes already in it are kept.

    >>> import tempfile
    >>> from viewbox.records import Task
    >>> from viewbox.rollouts.store.reader import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with EpisodeWriter(folder) as writer:
    ...         writer.append(Episode(Task("t1"), answer={"label": 3}))
    ...     [episode.answer for episode in load(folder)]
    [{'label': 3}]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.count = 0
        self._lock = threading.Lock()
        self._stored: set[str] = set()  # images that are in the folder, and the folders that they are in
        self._shard = TokenShard(self.path)
        self._last: tuple[int, int] | None = None  # where the line that may be replaced begins and ends
        self._fd = -1
        try:
            for name in (IMAGES, TOKENS, LINES):
                check_writable(self.path / name, self.path)  # a link in somebody's folder may lead anywhere
            for name in (IMAGES, TOKENS):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            layout.start_format(self.path)
            self._fd = os.open(self.path / LINES, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            self._clean_up()
        except OSError as error:
            self.close()
            raise StoreError(f"{self.path}: cannot write episodes to this folder ({error})") from error

    def append(self, episode: Episode, *, replaces: bool = False) -> None:
        """Store one episode; once this returns, it can be loaded. If it raises `StoreError`, no line was added.
        With `replaces` it is a later state of the episode that was stored so before, and takes the place of its line.

        Raises:
            UnstorableError: this episode holds what no line can, or what could not be read again; others can be stored.
            StoreError: the folder cannot be written.
        """
        failure = f"{self.path}: the episode of task {describe_object(episode.task.id)!r} was not stored"
        try:
            images = self._encode_images(episode)
            rows, place = (b"", None) if episode.tokens is None else self._place_tokens(episode.tokens)
            line = encode_episode(episode, place)
        except Exception as error:  # whatever an author's objects raise when they are read
            raise UnstorableError(f"{failure}: {describe_object(error)}") from error
        try:
            for path, content in images.items():
                self._make_image_folder(path.parent)
                write_atomically(path, content)
            if rows and place is not None:
                self._shard.write(rows, place.offset)
            self._append_line(line, replaces)
        except (OSError, ValueError) as error:
            raise StoreError(f"{failure}: {error}") from error
        self._stored.update(map(str, images))

    def append_or_error(self, episode: Episode) -> Episode:
        """Store one episode, or in its place that it cannot be stored; return what was stored.
        A record may hold what no file can: a number that is not finite, or an object of a tool. Raise `StoreError` if
        nothing can be written."""
        try:
            self.append(episode)
            return episode
        except UnstorableError as error:
            log.warning(make_line(error, MAX_REASON))
            stored = build_stand_in(episode, make_line(error, MAX_REASON))
        try:
            self.append(stored)
        except UnstorableError:  # because of an author's object among the settings of the run
            stored = replace(stored, run_config=RunConfig(), environment=describe_object(episode.environment))
            self.append(stored)
        return stored

    def close(self) -> None:
        """Close the file. Closing twice is allowed."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
        self._shard.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _clean_up(self) -> None:
        """Count the lines; unless another process is writing here, also repair what a killed process left behind."""
        alone = try_lock(self._fd)
        end, last = 0, b""
        with open_regular(self.path / LINES, limit=layout.MAX_FILE) as file:
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
        for name in (TOKENS, IMAGES) if alone else ():
            for draft in (self.path / name).rglob("*.tmp"):  # begun, and not yet renamed
                draft.unlink(missing_ok=True)
        try_lock(self._fd, shared=True)  # held until the file is closed: tells other writers that this one is alive

    def _encode_images(self, episode: Episode) -> dict[Path, bytes]:
        """Return the files of the images that are not stored yet."""
        files: dict[Path, bytes] = {}
        for ref in layout.iter_images(episode):
            path = self.path / layout.build_image_path(ref.hash, ref.mode)
            if str(path) in self._stored or path in files:
                continue
            if path.exists():
                self._stored.add(str(path))
                continue
            if ref.mode == NATIVE:
                files[path] = encode_native(ref.load())
                continue
            image = ref.open()
            if ImageRef.of(image).hash != ref.hash:
                raise ImageError(f"image {ref.uri or ref.hash[:12]}: its pixels no longer match its hash")
            files[path] = encode_image(image, ref.hash)
        return files

    def _make_image_folder(self, folder: Path) -> None:
        if str(folder) not in self._stored:
            check_writable(folder, self.path)
            folder.mkdir(exist_ok=True)
            self._stored.add(str(folder))

    def _place_tokens(self, tokens: EpisodeTokens) -> tuple[bytes, TokenPlace]:
        """Return the rows of tokens, and what the line says about where they are."""
        rows = encode_rows(tokens).tobytes()
        name, offset = self._shard.reserve(len(rows))
        size, crc, prompt = len(rows) // TOKEN.itemsize, zlib.crc32(rows), len(tokens.prompt_ids)
        images = tuple(replace(ref, uri=None) for ref in tokens.images)
        return rows, TokenPlace(name, offset, size, crc, prompt, tokens.prompt_images, images, tokens.replies)

    def _append_line(self, line: bytes, replaces: bool) -> None:
        with self._lock:
            if self._fd < 0:
                raise ValueError("the writer is closed")
            if replaces and self._last is not None:
                self._write_over(line, *self._last)
                return
            size, line = len(line), begin_line(self._fd) + line
            written, end = os.write(self._fd, line), os.lseek(self._fd, 0, os.SEEK_CUR)
            self._last = (end - size, end) if replaces else None
            if written != len(line):  # the disk is full: remove the partial line, unless another stands behind it
                if os.fstat(self._fd).st_size == end:
                    os.ftruncate(self._fd, end - written)
                raise OSError(f"only {written} of {len(line)} bytes could be written")
            self.count += 1

    def _write_over(self, line: bytes, start: int, end: int) -> None:
        """Put a line in the place of the last one: in a copy of the file, which takes its place whole."""
        if os.lseek(self._fd, 0, os.SEEK_END) != end or not try_lock(self._fd):
            raise OSError("another process writes to the folder")
        with replace_atomically(self.path / LINES) as draft, open(self.path / LINES, "rb") as former:
            draft.write(former.read(start) + line)  # `os.pread` would stop at 2 GiB
        os.close(self._fd)
        self._fd = os.open(self.path / LINES, os.O_RDWR | os.O_APPEND)
        try_lock(self._fd, shared=True)
        self._last = start, start + len(line)


MAX_REASON = 1000  # characters kept of the reason why an episode cannot be stored


def encode_episode(episode: Episode, place: TokenPlace | None) -> bytes:
    """Return the line of an episode, whose tokens are in `place`; raise if it cannot be written, or not be read
    again."""
    data = episode.to_dict()
    for reference in layout.iter_image_dicts(data):
        reference["uri"] = None
    if place is not None:
        data["stored_tokens"] = place.to_dict()
    data = secrets.mask_values(data)
    line = encode_line(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    if len(line) > MAX_LINE:
        raise ValueError(f"its line has {len(line):,} bytes; allowed: {MAX_LINE:,}")
    decode_episode(line)
    return line


def build_stand_in(episode: Episode, reason: str) -> Episode:
    """Return what is stored of an episode that cannot be: its place in the run, and the reason."""
    places = {
        name: value
        for name in ("index", "sample", "number", "step")
        if isinstance(value := episode.info.get(name), int) and 0 <= value <= MAX_COUNT
    }
    said = {RESTRICTED: episode.info[RESTRICTED] is not False} if RESTRICTED in episode.info else {}
    return Episode(
        Task(describe_object(episode.task.id)),
        end_reason="error",
        truncated=True,
        environment=episode.environment,
        run_config=episode.run_config,
        info={**places, **said, "error": reason},
    )


def describe_object(value: object) -> str:
    """Return a text of an author's object, which may have none."""
    try:
        return str(value)[:MAX_REASON]
    except Exception:
        return f"(a {type(value).__name__})"


def encode_image(image: Image.Image, digest: str) -> bytes:
    """Return the pixels as a PNG or TIFF file, without the metadata of the original file."""
    bare = image.copy()
    bare.info = {key: value for key, value in image.info.items() if key == "transparency"}
    buffer = io.BytesIO()
    if bare.mode == "P" and bare.palette is not None:  # with a short palette, Pillow would store fewer bits per pixel
        kind = bare.palette.mode
        colors = bare.getpalette(kind) or []
        bare.putpalette(colors + [0] * (256 * len(kind) - len(colors)), kind)
    if bare.mode in layout.PNG_MODES:
        bare.save(buffer, format="PNG", compress_level=1)
    else:
        bare.save(buffer, format="TIFF")
    if bare.mode not in ("L", "RGB", "RGBA"):
        with Image.open(buffer) as decoded:
            if ImageRef.of(decoded).hash != digest:
                raise ImageError(f"image {digest[:12]}: mode {bare.mode!r} cannot be stored losslessly")
    return buffer.getvalue()
