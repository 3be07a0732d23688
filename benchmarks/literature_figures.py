"""The figures of the invented articles: films and slices that show what their article says. No caption tells it."""

from collections.abc import Iterator
from dataclasses import replace

import cv2
import numpy as np
from literature_world import Written, write_articles

from viewbox.envs.chest_xray import radiographs
from viewbox.envs.chest_xray.radiographs import draw_film
from viewbox.envs.literature_vqa.world import draw_finding
from viewbox.envs.phantom.anatomy import ORGAN_VALUES, draw_slice
from viewbox.tools.search.records import FoundImage

COUNT = 60
SIDE, QUALITY = 320, 82  # pixels of a picture; of JPEG
FIGURE_SEED = 2**32  # no task has it
CLEAR_WIDTH = 60  # HU: the window of a slice


def draw_figures() -> Iterator[tuple[FoundImage, bytes]]:
    """Yield the figures with their JPEG files: of all articles about signs, then of classifications."""
    asked = [written for written in write_articles() if written.fact is not None]
    signs = [written for written in asked if written.fact and written.fact.question == "shows"]
    classes = [written for written in asked if written.fact and written.fact.question == "class"]
    for number, written in enumerate((*signs, *classes)[:COUNT]):
        yield describe_figure(written), _encode(_draw(written, FIGURE_SEED + number))


def describe_figure(written: Written) -> FoundImage:
    """Return the record of an article's figure."""
    article, topic = written.article, written.topic
    assert topic is not None
    is_film = topic.kind == "disease"
    shown = f"Frontal chest film of a patient with {topic.name}." if is_film else f"A lesion in the {topic.name}."
    return FoundImage(
        uid=f"{article.pmid}-f1",
        caption=shown,
        source=f"{article.title}. {article.journal}, {article.year}",
        url=article.url,
        pmid=article.pmid,
        modality="x-ray" if is_film else "ct",
        body_part="chest" if is_film else "abdomen",
    )


def _draw(written: Written, seed: int) -> np.ndarray:
    """Return the picture of an article, uint8."""
    fact = written.fact
    assert fact is not None
    if fact.question == "shows":
        label, side = fact.right if written.role in ("right", "second") else fact.wrong
        film = draw_film(seed, (replace(draw_finding(seed, label, side), size=0.8),), difficulty=0.0, device=False)
        return _to_gray(film.pixels, *radiographs.DISPLAY)
    drawn = draw_slice(seed, 0.0, has_lesion=True)
    assert drawn.lesion is not None
    center = ORGAN_VALUES[drawn.lesion.organ]
    return _to_gray(drawn.pixels, center - CLEAR_WIDTH / 2, center + CLEAR_WIDTH / 2)


def _to_gray(values: np.ndarray, low: float, high: float) -> np.ndarray:
    gray = np.clip((values.astype(np.float32) - low) / (high - low) * 255, 0, 255)
    small: np.ndarray = cv2.resize(gray, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    return np.round(small).astype(np.uint8)


def _encode(pixels: np.ndarray) -> bytes:
    written: np.ndarray = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1]
    return written.tobytes()
