"""Conversations in the form of the OpenAI chat interface, one a line: `{"messages": [...], "tools": [...]}`.

A message has a role (system, developer, user, assistant or tool) and content: text, or parts of text and images. An
image is a data URL, or the path of a file beside the transcripts. `tools` may be left out.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
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


def read_transcripts(
    path: Path, *, max_pixels: int, multiple: int = 1, left_out: Counter[str] | None = None
) -> Iterator[Transcript]:
    """Yield the conversations of a file; each line that cannot be read is logged.

    Args:
        path: a JSONL file.
        max_pixels, multiple: images are shown as an environment with these settings shows them.
        left_out: counts the lines that cannot be read.

    Raises:
        StoreError: the file cannot be read.
    """

    def open_url(url: str) -> ImageRef:
        source = open_image(url, None if url.startswith("data:") else path.parent)
        return View.of(source, max_pixels=max_pixels, multiple=multiple).to_ref()

    try:
        file = open_regular(path, limit=MAX_FILE, inside=path.parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror or error})") from error
    with file:
        for number, line in enumerate(read_lines(file), 1):
            if line is not None and not line.strip():
                continue
            try:
                yield _parse(number, line, open_url)
            except (StoreError, ImageError, ValueError, RecursionError) as error:
                if left_out is not None:
                    left_out["could not be read; see the warnings above"] += 1
                log.warning("%s, line %d: left out: %.300s", path, number, error)


def _parse(number: int, line: bytes | None, open_url: Callable[[str], ImageRef]) -> Transcript:
    if line is None:
        raise StoreError("the line is too long")
    data = parse_line(line)
    given = data.get("messages") if isinstance(data, dict) else None
    if not isinstance(given, list) or not given:
        raise StoreError('allowed: an object with a list of "messages"')
    messages = tuple(read_message(message, open_url) for message in given)
    tools = data.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise StoreError('"tools": allowed: a list of function schemas')
    return Transcript(number, messages, tuple(FrozenDict(tool) for tool in tools))
