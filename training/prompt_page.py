"""Prompts as a model reads them, as pages of HTML: for `--dry-run` and for `viewbox data preview`."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..configs.schema import Config
from ..core.base import BaseMultiTurnEnv
from ..core.contract import EpisodeState
from ..images.ref import ImageRef
from ..utils.files import fill_template, write_atomically
from .plan import LocalModel


class Prompt(NamedTuple):
    """The text and images of a prompt in order, and its tokens; None if the tokenizer is not on this machine."""

    parts: tuple[str | ImageRef, ...]
    tokens: int | None


def build_prompt(config: Config, env: BaseMultiTurnEnv, model: LocalModel | None, state: EpisodeState) -> Prompt:
    """Return the prompt of an episode that was just opened: as the model's chat template writes it, or as messages."""
    if model is None:  # a hub name or a new model: its chat template is not here
        parts = [part for message in state.messages for part in (f"\n[{message.role}]\n", *message.content)]
        return Prompt(tuple(parts), None)
    tokens, ids, images = model.encode_prompt(config, env, state)
    left, shown = tokens.tokenizer.decode(ids), list[str | ImageRef]()
    for image in images:
        text, _, left = left.partition(tokens.get_pixels(image).text)
        shown += [text, image]
    return Prompt((*shown, left), len(ids))


def write_page(path: Path, title: str, parts: Sequence[str | ImageRef]) -> None:
    shown = [
        html.escape(part)
        if isinstance(part, str)
        else f'<img alt="{part.width} x {part.height}" src="{part.to_data_url()}">'
        for part in parts
    ]
    page = fill_template(Path(__file__).with_name("prompt_page.j2"), title=html.escape(title), body="".join(shown))
    write_atomically(path, page.encode("utf-8", "replace"))
