"""Which images of a conversation a model is shown again: all of them, or the last few.

Only what is shown changes, never the record: `full` shows the messages as they are, so they only ever grow, which is
what training on sampled tokens needs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from viewbox.envs.rules import LastImages
from viewbox.images.ref import ImageRef
from viewbox.records import Message

History = Literal["full"] | LastImages


def shown(messages: Sequence[Message], history: History, dropped: Callable[[int], str]) -> list[Message]:
    """The messages as a model gets them; `dropped(n)` is what stands where the n-th image (from 0) was.

    The last `last_images` images stay. The first image of the conversation, where the last message shows it again, is
    not counted: it would push out what the model has just asked for.

    >>> import numpy as np
    >>> one, two = (ImageRef.of(np.full((2, 2), shade, np.uint8)) for shade in (1, 2))
    >>> said = [Message("user", (one, "What is it?")), Message("tool", ("zoomed in", two))]
    >>> [len(message.images) for message in shown(said, LastImages(last_images=1), "image {} is gone".format)]
    [0, 1]
    """
    if history == "full":
        return list(messages)
    left = history.last_images
    original = next((image.hash for message in messages for image in message.images), None)
    number = sum(len(message.images) for message in messages)
    found: list[Message] = []
    for place, message in zip(range(len(messages) - 1, -1, -1), reversed(messages), strict=True):
        parts: list[str | ImageRef] = []
        for part in reversed(message.content):
            if isinstance(part, ImageRef):
                number -= 1
                again = number > 0 and place == len(messages) - 1 and part.hash == original
                if not again and left <= 0:
                    part = dropped(number)
                elif not again:
                    left -= 1
            parts.append(part)
        same = not message.images
        found.append(message if same else replace(message, content=tuple(reversed(parts))))
    return found[::-1]
