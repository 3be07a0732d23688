"""Conversations in the form of the OpenAI chat interface, one a line: `{"messages": [...], "tools": [...]}`.

A message has a role (system, developer, user, assistant or tool) and content: text, or parts of text and images. An
image is a data URL, or the path of a file beside the transcripts. `tools` may be left out.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ImageError, StoreError
from ...images.files import open_image
from ...images.ref import ImageRef
from ...images.view import View
from ...records import Message
from ...rollouts.exchange.conversation import read_message
from ...rollouts.store.lines import parse_line, read_lines
from ...utils.files import open_regular
from ...utils.frozen import FrozenDict

MAX_FILE = 2**40  # bytes of a file, which is read a line at a time

log = logging.getLogger("viewbox.train")


@dataclass(frozen=True)
class Transcript:
    """One conversation: its line number, messages and tool schemas."""

    line: int
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()


class TranscriptReader(Iterator[Transcript]):
    """Iterates over the conversations of a file; `skipped` counts the lines that could not be read, each is logged.

    Args:
        path: a JSONL file.
        max_pixels, multiple: images are shown as an environment with these settings shows them.

    Raises:
        StoreError: the file cannot be read.
    """

    def __init__(self, path: Path, *, max_pixels: int, multiple: int = 1) -> None:
        self.path, self.skipped = path, 0
        self._max_pixels, self._multiple = max_pixels, multiple
        try:
            self._file = open_regular(path, limit=MAX_FILE, inside=path.parent)
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror or error})") from error
        self._transcripts = self._read()

    def __next__(self) -> Transcript:
        return next(self._transcripts)

    def _read(self) -> Iterator[Transcript]:
        with self._file as file:
            for number, line in enumerate(read_lines(file), 1):
                if line is not None and not line.strip():
                    continue
                try:
                    yield self._parse(number, line)
                except (StoreError, ImageError, ValueError, RecursionError) as error:
                    self.skipped += 1
                    log.warning("%s, line %d: left out: %.300s", self.path, number, error)

    def _parse(self, number: int, line: bytes | None) -> Transcript:
        if line is None:
            raise StoreError("the line is too long")
        data = parse_line(line)
        given = data.get("messages") if isinstance(data, dict) else None
        if not isinstance(given, list) or not given:
            raise StoreError('allowed: an object with a list of "messages"')
        messages = tuple(read_message(message, self._open) for message in given)
        tools = data.get("tools") or []
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise StoreError('"tools": allowed: a list of function schemas')
        return Transcript(number, messages, tuple(FrozenDict(tool) for tool in tools))

    def _open(self, url: str) -> ImageRef:
        source = open_image(url, None if url.startswith("data:") else self.path.parent)
        return View.of(source, max_pixels=self._max_pixels, multiple=self._multiple).to_ref()
