"""The files of a folder of episodes, and the version of their layout.

<path>/format.json                    {"format": 2}
<path>/episodes.jsonl                 one episode per line; an image is {hash, width, height, mode, uri: null}
<path>/images/<ab>/<hash>.png         its pixels, stored once, in a folder of the hash's first two letters
                                      (.tif for the modes PNG cannot hold, such as "F"; .source for "native": deep
                                      values, units, stacks, see `images/files/native.py`)
<path>/tokens/<writer>.bin            one row per token, prompt first: id (int32), mask (int8), logprob (float64);
                                      a line says where its rows begin, how many there are, and their checksum
<path>/scores/<name>.jsonl            scores added later by `viewbox score` (`columns.py`)
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec.structs import force_setattr

from ...errors import StoreError
from ...images.ref import NATIVE, ImageRef
from ...records import Episode
from ...utils.files import check_inside, check_writable, open_regular, read_regular, write_atomically

LINES, IMAGES, TOKENS, FORMAT_FILE = "episodes.jsonl", "images", "tokens", "format.json"
FORMAT = 2  # the one that is written and read
PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
MAX_EPISODES = 2**31  # of a run
IMPORTED = "imported"  # the environment of an episode that another tool recorded
MAX_FILE = 2**40  # bytes of a file that is read a piece at a time
_MAX_FORMAT = 4096  # bytes of format.json
_HASH = re.compile(r"[0-9a-zA-Z]{1,128}")


def check_format(folder: Path) -> None:
    """Raise `StoreError` if the format of a folder of episodes is not `FORMAT`."""
    path = folder / FORMAT_FILE
    if not os.path.lexists(path):
        raise StoreError(f"{path}: is missing; this viewbox reads format {FORMAT}, which that file names")
    try:
        number = json.loads(read_regular(path, limit=_MAX_FORMAT, inside=folder)).get("format")
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if type(number) is not int or number != FORMAT:
        raise StoreError(f"{path}: format {number!r:.80}; this viewbox reads format {FORMAT}; another may read it")


def start_format(folder: Path) -> None:
    """Write the format of a folder that holds no episodes yet, and check that of another. Raise `OSError` if the folder
    cannot be written. Raise `StoreError` if its format is not `FORMAT`."""
    try:  # before the format is read: another process writes that first
        holds_episodes = (folder / LINES).stat().st_size > 0
    except FileNotFoundError:
        holds_episodes = False
    path = folder / FORMAT_FILE
    if not holds_episodes and not os.path.lexists(path):
        check_writable(path, folder)
        write_atomically(path, json.dumps({"format": FORMAT}) + "\n")
    check_format(folder)


def find_episodes_folder(path: str | Path) -> Path:
    """Return the absolute folder of episodes at `path`: `path` itself or its subfolder `episodes/`."""
    path = Path(path)
    for folder in (path, path / "episodes"):
        if os.path.lexists(folder / LINES):
            _check_folder(folder, path)
            return folder.absolute()
    if not os.path.lexists(path):
        raise StoreError(f"{path}: no episodes here; there is no such folder")
    raise StoreError(
        f"{path}: no episodes here; expected a folder with {LINES}, as `EpisodeWriter` writes it, or a run with that "
        "folder in episodes/"
    )


def _check_folder(folder: Path, run: Path) -> None:
    """Raise `StoreError` if the episodes are not in the run itself, or not in a regular file."""
    try:
        check_inside(folder, run)
        with open_regular(folder / LINES, limit=MAX_FILE, inside=folder):
            return
    except OSError as error:
        text = f"{folder / LINES}: cannot be read ({error.strerror}); allowed: a regular file in the folder of the run"
        raise StoreError(text) from error


def count_finished(folder: Path) -> int:
    """Return how many episodes a folder had when its run ended; 0 if it did not, or does not say."""
    path = folder.parent / "summary.json"
    try:
        counted = json.loads(read_regular(path, limit=2**24, inside=path.parent)).get("episodes")
    except (OSError, ValueError, AttributeError, RecursionError):
        return 0
    return counted if folder.name == "episodes" and type(counted) is int and counted < MAX_EPISODES else 0


def build_image_path(digest: str, mode: str) -> str:
    """Return the path of an image in a folder of episodes; raise `ValueError` if `digest` is not the hash of an image.

    >>> build_image_path("ab12", "L"), build_image_path("ab12", "F")
    ('images/ab/ab12.png', 'images/ab/ab12.tif')
    """
    if not _HASH.fullmatch(digest):
        raise ValueError(f"{digest[:80]!r} is not the hash of an image")
    suffix = ".source" if mode == NATIVE else ".png" if mode in PNG_MODES else ".tif"
    return f"{IMAGES}/{digest[:2]}/{digest}{suffix}"


def locate_images(folder: str, images: Iterable[ImageRef]) -> None:
    """Point references that nobody else has yet at their files in a folder of episodes, whatever else they say."""
    for ref in images:
        force_setattr(ref, "uri", _locate_image(folder, ref.hash, ref.mode))
        force_setattr(ref, "folder", folder)
        if ref.pixels is not None:
            force_setattr(ref, "pixels", None)


@lru_cache(maxsize=20_000)  # many lines name the same images, and their references share the text
def _locate_image(folder: str, digest: str, mode: str) -> str:
    return f"{folder}/{build_image_path(digest, mode)}"


def iter_images(episode: Episode) -> Iterator[ImageRef]:
    """Yield every image of an episode, those of its tokens included; the same image may come several times."""
    yield from episode.task.images
    for turn in episode.turns:
        yield from turn.images
        yield from (result.image for result in turn.tool_results if result.image is not None)
    yield from episode.tokens.images if episode.tokens else ()


def iter_image_dicts(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every image in the result of `Episode.to_dict`."""
    yield from data["task"].get("images", ())
    for turn in data.get("turns", ()):
        yield from turn.get("images", ())
        for result in turn.get("tool_results", ()):
            if result.get("image"):
                yield result["image"]
