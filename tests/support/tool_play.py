"""An environment with tools and boxes, played a reply at a time; one answers in the view that it names."""

from typing import ClassVar

import numpy as np

from tests.support import loop_kit
from viewbox.images.ref import ImageRef
from viewbox.records import Task

GRAY = np.random.default_rng(0).integers(0, 256, (40, 80), dtype=np.uint8)
TASK = Task("t", (ImageRef.of(GRAY),), {"question": "Where?"}, {"label": "left"})
TWO = Task("two", (ImageRef.of(GRAY), ImageRef.of(np.full((30, 20), 7, np.uint8))), {"question": "Where?"})


class Finding(loop_kit.Finding):
    label: str = "left"


class Find(loop_kit.Find):
    answer: ClassVar = Finding
    max_turns = 10


class Seen(Finding):
    view: int = 0


class FindInView(Find):
    answer: ClassVar = Seen
    view_field = "view"


class Play(loop_kit.Play):
    """One play of `TASK`, a reply at a time."""

    def __init__(self, env, task=TASK):
        super().__init__(env, task)
