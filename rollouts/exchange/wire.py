"""Messages of the OpenAI chat interface, read from what somebody else wrote."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...core.messages import read_tool_calls
from ...errors import ImageError, StoreError, describe_unknown
from ...images.files import open_picture
from ...images.ref import ImageRef
from ...records import Message

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def read_message(given: Any, open_url: Callable[[str], ImageRef]) -> Message:
    """One message; raises `StoreError` if it has another form, and `ImageError` for an image that cannot be opened.

    >>> read_message({"role": "user", "content": [{"type": "text", "text": "What is it?"}]}, ImageRef.of).text
    'What is it?'
    """
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise StoreError(f"a message is {json.dumps(given, default=str):.80}; allowed: an object with a role")
    role: Any = ROLES.get(given["role"])
    if role is None:
        raise StoreError(describe_unknown("role", given["role"], ROLES))
    content = given.get("content")
    parts = [content] if isinstance(content, str) else _read_parts(content or [], open_url)
    call_id, name = given.get("tool_call_id"), given.get("name")
    return Message(
        role,
        tuple(parts),
        tool_call_id=call_id if isinstance(call_id, str) else None,
        name=name if role == "tool" and isinstance(name, str) else None,
        tool_calls=read_tool_calls(given) if role == "assistant" else (),
    )


def _read_parts(content: Any, open_url: Callable[[str], ImageRef]) -> Sequence[str | ImageRef]:
    if not isinstance(content, list):
        raise StoreError(f"content is a {type(content).__name__}; allowed: text or a list of parts")
    parts: list[str | ImageRef] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            parts.append(part["text"])
            continue
        url = part.get(kind) if kind in ("image_url", "image") else None
        url = url.get("url") if isinstance(url, dict) else url
        if not isinstance(url, str):
            raise StoreError(f"a part is {json.dumps(part, default=str):.80}; allowed: text, image_url, image")
        parts.append(open_url(url))
    return parts


def open_reference(url: str, folder: Path) -> ImageRef:
    """The image of a data URL or of a file in `folder`; raises `ImageError` for any other, and fetches nothing."""
    scheme = url.partition(":")[0].lower()
    if scheme != "data" and "://" in url:
        raise ImageError(f"image {url[:80]!r}: is not fetched; allowed: data URLs, and files beside this one")
    return ImageRef.of(open_picture(url, None if scheme == "data" else folder))
