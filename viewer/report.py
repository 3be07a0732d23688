"""One HTML file with a run in it: rows, episodes, pictures. It needs no server and loads nothing."""

import base64
import os
from collections.abc import Sequence
from io import TextIOWrapper
from itertools import permutations
from pathlib import Path
from typing import IO

from ..errors import ConfigError, ImageError
from ..rollouts.scoring.filters import write_fields
from ..rollouts.store.reader import load
from ..utils.files import replace_atomically
from .page import build_data, build_end, build_head
from .pictures import encode_picture, list_pictures
from .sources import EpisodeSet, compare_sets

MAX_EPISODES = 2_000
MAX_BYTES = 200 * 2**20
BATCH = 50  # episodes in a block, which the browser reads when one of them is opened
MAX_COMPARED = 4  # sets of which every pair is compared


def write_report(sets: Sequence[EpisodeSet], out: Path) -> tuple[int, dict[str, str]]:
    """Write the page of these sets (read already) as one file; return its size in bytes, and its pictures.
    Of each picture, by its hash, it says why it is not on the page; "" if it is. The file appears whole or not at all.

    Raises:
        ConfigError: more than 2,000 episodes, or 200 MB.
        OSError: the file cannot be written.
    """
    count = sum(len(episode_set.index) for episode_set in sets)
    if count > MAX_EPISODES:
        raise ConfigError(f"{count} episodes are too many for one file (at most {MAX_EPISODES}); serve them: --serve")
    with replace_atomically(out) as draft, TextIOWrapper(draft, encoding="utf-8") as file:
        os.fchmod(draft.fileno(), 0o600)  # what is in it may be private
        written = _write(sets, file)
        return file.tell(), written


def _write(sets: Sequence[EpisodeSet], file: IO[str]) -> dict[str, str]:
    file.write(build_head(served=False))
    file.write(build_data("sets", [one.describe() for one in sets]))
    written: dict[str, str] = {}
    for number, one in enumerate(sets):
        file.write(build_data(f"rows-{number}", one.index.to_dict()))
        reader = load(one.index.folder, errors="skip")
        texts = dict((reader.line, write_fields(episode)) for episode in reader)  # noqa: C402
        file.write(build_data(f"fields-{number}", [texts.get(line, "{}") for line in one.index.columns["line"]]))
        every = one.index.columns["line"]
        for block, start in enumerate(range(0, len(every), BATCH)):
            lines = every[start : start + BATCH]
            file.write(build_data(f"episodes-{number}-{block}", {line: one.build_page(line) for line in lines}))
            for line in lines:
                _write_pictures(one, line, written, file)
            if file.tell() > MAX_BYTES:
                raise ConfigError(f"more than {MAX_BYTES // 2**20} MB are too much for one file; serve them: --serve")
    for a, b in permutations(range(min(len(sets), MAX_COMPARED)), 2):
        file.write(build_data(f"compare-{a}-{b}", compare_sets(sets[a], sets[b])))
    file.write(build_end())
    return written


def _write_pictures(one: EpisodeSet, line: int, written: dict[str, str], file: IO[str]) -> None:
    episode = one.index.read(line)
    for name, ref in list_pictures(episode).items() if episode is not None else ():
        if name in written:
            continue
        try:
            content = encode_picture(ref)
        except ImageError as error:
            written[name] = str(error)  # the page says that it cannot be opened
            continue
        file.write(build_data(f"image-{name}", base64.b64encode(content).decode()))
        written[name] = ""
