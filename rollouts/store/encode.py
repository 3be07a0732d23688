"""What is written of an episode: its line, and the files of its images."""

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from viewbox.errors import ImageError
from viewbox.images.ref import ImageRef
from viewbox.network import secrets
from viewbox.records import Episode, Task
from viewbox.rollouts.store.decode import EpisodeDecoder, UnusualError
from viewbox.rollouts.store.layout import PNG_MODES, iter_image_dicts
from viewbox.rollouts.store.lines import MAX_COUNT, MAX_LINE, check_episode, encode_line, parse_line

_DECODER = EpisodeDecoder("")  # reads what is about to be written
MAX_REASON = 1000  # characters kept of the reason why an episode cannot be stored


def iter_images(episode: Episode) -> Iterator[ImageRef]:
    """Every image of an episode, those of its tokens included; the same image may come several times."""
    yield from episode.task.images
    for turn in episode.turns:
        yield from turn.images
        yield from (result.image for result in turn.tool_results if result.image is not None)
    yield from episode.tokens.images if episode.tokens else ()


def encode_episode(episode: Episode, place: dict[str, Any]) -> bytes:
    """The line of an episode; raises if it cannot be written, or could not be read again.

    Args:
        episode: what is written.
        place: where its tokens are: the fields of `stored_tokens` that name the file and the rows in it.
    """
    data = episode.to_dict()
    for reference in iter_image_dicts(data):
        reference["uri"] = None
    tokens = episode.tokens
    if tokens is not None:
        data["stored_tokens"] = {
            **place,
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
    try:
        _DECODER.decode(line)
    except UnusualError:
        written = parse_line(line)
        written.pop("stored_tokens", None)
        check_episode(written)
        Episode.from_dict(written)
    return line


def build_stand_in(episode: Episode, reason: str) -> Episode:
    """What is stored of an episode that cannot be: its place in the run, and the reason."""
    places = {
        name: value
        for name in ("index", "sample", "number", "step")
        if isinstance(value := episode.info.get(name), int) and 0 <= value <= MAX_COUNT
    }
    return Episode(
        Task(describe_object(episode.task.id)),
        end_reason="error",
        truncated=True,
        environment=episode.environment,
        run_config=episode.run_config,
        info={**places, "error": reason},
    )


def describe_object(value: object) -> str:
    """A text of an author's object, which may have none."""
    try:
        return str(value)[:MAX_REASON]
    except Exception:
        return f"(a {type(value).__name__})"


def encode_image(image: Image.Image, digest: str) -> bytes:
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


def _to_plain_value(value: Any) -> Any:
    """Turn NumPy scalars and arrays into plain numbers and lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
