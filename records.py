"""The records every room shares: frozen, deeply immutable, with an exact JSON round trip.

They are plain dataclasses, so a program builds them without ceremony; whatever comes back from disk is checked by
pydantic (`from_json`). Lists become tuples and dicts become `FrozenDict` on the way in, so a record can be shared
between tasks and threads without copying.
"""

import base64
import hashlib
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np
from PIL import Image

from viewbox.frozen import FrozenDict, Record
from viewbox.errors import ImageError

EndReason = Literal["answered", "max_turns", "max_tokens", "malformed", "timeout", "error", "cancelled"]


@dataclass(frozen=True)
class ImageRef(Record):
    """A picture by the hash of its decoded pixels; the pixels are in memory, in a store's folder, or at `uri`.

    `hash` is the SHA-256 of mode, size and raw bytes, so the same pixels have one name whatever file they came from.

    >>> ref = ImageRef.of(Image.new("L", (4, 2), 7))
    >>> ref.width, ref.height, ref.mode, ref.open().getpixel((0, 0))
    (4, 2, 'L', 7)
    """

    hash: str
    width: int
    height: int
    mode: str = "RGB"
    uri: str | None = None
    pixels: Any = field(default=None, repr=False, compare=False, metadata={"beside": True})  # array, or PIL once opened

    def __post_init__(self) -> None:
        """Nothing to freeze: none of its fields holds a container."""

    @classmethod
    def of(cls, image: Image.Image | np.ndarray, *, uri: str | None = None) -> "ImageRef":
        """The reference of an image in memory (PIL, or an array of shape (height, width[, channels]))."""
        if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.shape[2:] in ((), (3,)):
            return cls._of_bytes(image, uri)
        picture = image if isinstance(image, Image.Image) else Image.fromarray(np.ascontiguousarray(image))
        if picture.mode == "P":  # a palette is not in the bytes: two pictures would share a hash
            picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
        digest = hashlib.sha256(f"{picture.mode} {picture.width} {picture.height} ".encode())
        digest.update(picture.tobytes())
        return cls(digest.hexdigest(), picture.width, picture.height, picture.mode, uri, picture)

    @classmethod
    def _of_bytes(cls, pixels: np.ndarray, uri: str | None) -> "ImageRef":
        """Of uint8 (h, w) or (h, w, 3), kept as they are: most views are encoded and never seen as a PIL image.

        Of pixels that are in memory already it is the reference that is there.
        """
        flat = np.ascontiguousarray(pixels)
        (height, width), mode = flat.shape[:2], "L" if flat.ndim == 2 else "RGB"
        digest = hashlib.sha256(f"{mode} {width} {height} ".encode())
        digest.update(flat.reshape(-1).data)
        key = digest.hexdigest(), uri
        with _LOCK:
            there = _IN_MEMORY.get(key)
            if there is None:
                kept = flat.copy() if flat is pixels and flat.flags.writeable else flat
                kept.flags.writeable = False
                there = _IN_MEMORY[key] = cls(key[0], width, height, mode, uri, kept)
        return there

    def open(self) -> Image.Image:
        """The pixels; raises `ImageError` where they cannot be had."""
        if isinstance(self.pixels, np.ndarray):
            object.__setattr__(self, "pixels", Image.fromarray(self.pixels))
        if self.pixels is not None:
            return self.pixels
        if self.uri is None:
            raise ImageError(f"image {self.hash[:12]} has neither pixels nor a path")
        from viewbox.images.files import open_picture

        picture = open_picture(self.uri)
        object.__setattr__(self, "pixels", picture)
        return picture

    def png(self) -> bytes:
        """The pixels as a PNG file (lossless)."""
        picture = self.open() if self.pixels is None else self.pixels
        if isinstance(picture, np.ndarray) or picture.mode in ("L", "RGB"):
            return _png(np.asarray(picture))
        buffer = io.BytesIO()
        picture.save(buffer, format="PNG", compress_level=1)
        return buffer.getvalue()

    def data_url(self) -> str:
        """The pixels as a `data:image/png;base64,…` URL."""
        return "data:image/png;base64," + base64.b64encode(self.png()).decode()


# Equal pictures are held once: thousands of episodes look at the same few images, often in the same way.
_IN_MEMORY: WeakValueDictionary[tuple[str, str | None], ImageRef] = WeakValueDictionary()
_LOCK = Lock()


def _png(pixels: np.ndarray) -> bytes:
    """uint8 (h, w) or (h, w, 3) as PNG: one filter and runs only, two to three times as fast as Pillow, no larger."""
    import cv2

    how = [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
    stored = pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".png", stored, how)[1].tobytes()


@dataclass(frozen=True)
class Task(Record):
    """One thing to solve: what is shown, what is asked, and what the right answer is.

    `images` may be empty where the environment draws them from `metadata` (a seed); `reference` never reaches the
    model. Boxes in `reference` are (x1, y1, x2, y2) fractions of the original image.
    """

    id: str
    images: tuple[ImageRef, ...] = ()
    prompt: Mapping[str, Any] = field(default_factory=FrozenDict)
    reference: Mapping[str, Any] = field(default_factory=FrozenDict)
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict)


@dataclass(frozen=True)
class ToolCall(Record):
    """A call as the model made it; `arguments` is a mapping, or a string of JSON not yet parsed."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=FrozenDict)


@dataclass(frozen=True)
class ToolResult(Record):
    """What a tool gave back: words and numbers for the model, perhaps a picture; or the reason it could not.

    >>> ToolResult("zoom", "zoomed in", facts={"factor": 2.0}).text
    'zoomed in (factor: 2.0)'
    """

    tool_name: str
    description: str = ""
    error: str | None = None
    image: ImageRef | None = None
    mime_type: str | None = None
    facts: Mapping[str, Any] = field(default_factory=FrozenDict)
    formatted_results: str | None = None
    call_id: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image is not None and self.mime_type is None:
            object.__setattr__(self, "mime_type", "image/png")
        if self.image is None and self.mime_type is not None:
            raise ValueError("a ToolResult has an image and its MIME type, or neither")

    @property
    def success(self) -> bool:
        return self.error is None

    @property
    def text(self) -> str:
        """What the model reads."""
        if self.error is not None:
            return f"error: {self.error}"
        if self.formatted_results is not None:
            return self.formatted_results
        listed = ", ".join(f"{key}: {_short(value)}" for key, value in self.facts.items())
        return f"{self.description} ({listed})" if listed else self.description

    def data_url(self) -> str | None:
        return None if self.image is None else self.image.data_url()


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}" if value.is_integer() else f"{value:.4g}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_short(item) for item in value) + "]"
    return str(value)


@dataclass(frozen=True)
class Message(Record):
    """What goes over the wire to a model: parts in order, each a string or an image."""

    role: Literal["system", "user", "assistant", "tool"]
    content: tuple[str | ImageRef, ...]
    tool_call_id: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()  # of an assistant message that called natively, not in its text

    @property
    def text(self) -> str:
        return "".join(part for part in self.content if isinstance(part, str))

    @property
    def images(self) -> tuple[ImageRef, ...]:
        return tuple(part for part in self.content if isinstance(part, ImageRef))


@dataclass(frozen=True)
class Turn(Record):
    """One entry of the record of a play."""

    role: Literal["user", "assistant", "tool_result"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    images: tuple[ImageRef, ...] = ()


@dataclass(frozen=True)
class RunConfig(Record):
    """What produced an episode."""

    model_name: str = ""
    temperature: float = 1.0
    seed: int = 0
    max_tokens: int | None = None
    max_turns: int | None = None
    versions: Mapping[str, str] = field(default_factory=FrozenDict)


@dataclass(frozen=True)
class Scores(Record):
    """A reward taken apart: `total`, and each component by name (`None`: not applicable)."""

    total: float
    components: Mapping[str, float | None] = field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in {"total": self.total, **self.components}.items():
            if value is not None and not math.isfinite(value):
                raise ValueError(f"score {name!r} is {value}: scores are finite")


@dataclass(frozen=True)
class EpisodeTokens:
    """The token side of an episode, kept in a file beside the JSON line.

    `completion_ids` holds everything after the prompt, in order; `mask` is 1 on the tokens the policy sampled and 0 on
    what the environment said; `logprobs` (natural log at the sampling temperature, before any filtering) is 0 where
    `mask` is 0. `images` are the pictures whose placeholders stand in `prompt_ids + completion_ids`, in that order;
    the first `prompt_images` of them belong to the prompt.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    images: tuple[ImageRef, ...] = ()
    prompt_images: int = 0

    def __post_init__(self) -> None:
        if not len(self.completion_ids) == len(self.mask) == len(self.logprobs):
            raise ValueError(
                f"completion_ids ({len(self.completion_ids)}), mask ({len(self.mask)}) and logprobs "
                f"({len(self.logprobs)}) must have one length"
            )


@dataclass(frozen=True)
class Episode(Record):
    """One play, complete: what is stored, scored and trained on."""

    task: Task
    turns: tuple[Turn, ...] = ()
    answer: Mapping[str, Any] | None = None
    end_reason: EndReason = "answered"
    terminated: bool = False
    truncated: bool = False
    flags: frozenset[str] = frozenset()
    scores: Scores | None = None
    run_config: RunConfig = field(default_factory=RunConfig)
    confidence: float = 1.0
    total_tokens: int = 0
    environment: str = ""
    system_prompt: str = ""
    info: Mapping[str, Any] = field(default_factory=FrozenDict)
    tokens: EpisodeTokens | None = field(default=None, repr=False, compare=False, metadata={"beside": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.confidence <= 1.0:  # NaN fails too
            raise ValueError(f"confidence is {self.confidence}; allowed: a number in [0, 1]")

    @property
    def num_turns(self) -> int:
        """How many replies the policy gave."""
        return sum(turn.role == "assistant" for turn in self.turns)

    @property
    def tool_call_count(self) -> int:
        return sum(len(turn.tool_calls) for turn in self.turns)

    def tools_used(self) -> set[str]:
        """The names of the tools that were called with success."""
        return {result.tool_name for turn in self.turns for result in turn.tool_results if result.success}
