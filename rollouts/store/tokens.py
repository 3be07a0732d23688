"""Token arrays beside the lines of episodes: shards of rows."""

import os
import threading
import uuid
import zlib
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from ...images.ref import ImageRef
from ...records import EpisodeTokens
from ...utils.files import check_writable, open_regular
from ...utils.frozen import Record
from .layout import MAX_FILE, TOKENS
from .lines import parse_line

TOKEN = np.dtype([("id", "<i4"), ("mask", "i1"), ("logprob", "<f8")])  # a row
MAX_TOKENS = 2**28  # bytes of the rows of an episode: 20 million tokens
_Length = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS // TOKEN.itemsize)]


class TokenPlace(Record, frozen=True):
    """Where the tokens of an episode are, as its line says under `stored_tokens`: a shard, and the rows in it."""

    file: str
    offset: Annotated[int, msgspec.Meta(ge=0, le=MAX_FILE)]
    rows: _Length
    crc: int
    prompt_length: _Length
    prompt_images: _Length
    images: tuple[ImageRef, ...]
    replies: tuple[_Length, ...] = ()

    _sparse: ClassVar = frozenset({"replies"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in (("prompt_length", self.rows), ("prompt_images", len(self.images))):
            if getattr(self, name) > most:
                raise ValueError(f"{name} = {getattr(self, name)}; allowed: at most {most}")


class _Line(msgspec.Struct):
    stored_tokens: TokenPlace | None = None


_LINE = msgspec.json.Decoder(_Line)


def decode_place(line: bytes) -> TokenPlace | None:
    """Return where the tokens of the episode in a line are; None if it has none. Raise `ValueError`."""
    try:
        return _LINE.decode(line).stored_tokens
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # half a surrogate pair, which only Python reads
        return msgspec.convert(parse_line(line), _Line).stored_tokens


def encode_rows(tokens: EpisodeTokens) -> np.ndarray:
    """Return one row per token, prompt first, (P + C,)."""
    prompt = len(tokens.prompt_ids)
    rows = np.zeros(prompt + len(tokens.completion_ids), dtype=TOKEN)
    rows["id"] = tokens.prompt_ids + tokens.completion_ids
    rows["mask"][prompt:] = tokens.mask
    rows["logprob"][prompt:] = tokens.logprobs
    return rows


def decode_rows(rows: np.ndarray, place: TokenPlace) -> EpisodeTokens:
    """Return the tokens of rows, (P + C,), and what the line says about them."""
    prompt, completion = rows[: place.prompt_length], rows[place.prompt_length :]
    ids, mask, logprobs = (tuple(completion[name].tolist()) for name in ("id", "mask", "logprob"))
    prompt_ids = tuple(prompt["id"].tolist())
    return EpisodeTokens(prompt_ids, ids, mask, logprobs, place.images, place.prompt_images, place.replies)


class TokenShard:
    """The file to which one writer appends rows. It is created with the first of them.
    What was reserved and not written, because the process was killed, is never read: no line names it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._name, self._end, self._process, self._fd = "", 0, 0, -1

    def reserve(self, size: int) -> tuple[str, int]:
        """Return the name of the file and the place of the next `size` bytes in it."""
        with self._lock:
            if self._process != os.getpid():  # the first use, or a copy of the writer in a forked process
                self._name, self._end, self._process, self._fd = f"{uuid.uuid4().hex}.bin", 0, os.getpid(), -1
            self._end += size
            return self._name, self._end - size

    def write(self, rows: bytes, offset: int) -> None:
        """Write rows at a place that was reserved; raise `OSError` if they cannot be written whole."""
        with self._lock:
            if self._fd < 0:
                path = self._folder / TOKENS / self._name
                check_writable(path, self._folder)
                self._fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
            os.lseek(self._fd, offset, os.SEEK_SET)
            written = os.write(self._fd, rows)
            if written != len(rows):
                raise OSError(f"only {written} of {len(rows)} bytes of tokens could be written")

    def close(self) -> None:
        """Close the file. Rows that are reserved later go into a new one."""
        with self._lock:
            if self._fd >= 0 and self._process == os.getpid():
                os.close(self._fd)
            self._fd, self._process = -1, 0


def read_rows(folder: Path, place: TokenPlace) -> np.ndarray:
    """Return the rows that a line names, (P + C,); raise `OSError`, `ValueError` or `EOFError` if they are not
    there."""
    if place.rows == 0:  # such an episode needs no file
        return np.empty(0, TOKEN)
    name, offset, size = os.path.basename(place.file), place.offset, place.rows * TOKEN.itemsize
    with open_regular(folder / TOKENS / name, limit=MAX_FILE, inside=folder) as file:
        if offset + size > os.fstat(file.fileno()).st_size:  # nothing is allocated for rows that are not there
            raise ValueError(f"{name} ends before byte {offset + size:,}")
        file.seek(offset)
        content = file.read(size)
    if zlib.crc32(content) != place.crc:
        raise ValueError(f"{name}: the rows at byte {offset:,} are not those that were stored")
    return np.frombuffer(content, TOKEN)
