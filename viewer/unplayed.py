"""Tasks that nobody has played, as episodes without a reply: a page shows them as it shows those of a run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from ..core.base import BaseMultiTurnEnv
from ..core.contract import EpisodeState
from ..errors import ViewboxError
from ..images.shown import ShownView
from ..images.source import Plane, Source, Volume
from ..images.view import View
from ..network.data_policy import RESTRICTED
from ..records import Episode, Task, Turn
from ..rewards.marks import Mark, Views, find_marks, place_on

UNPLAYED = "unplayed"  # the key of `info` that says so
MAX_PICTURES = 4  # that are added to what the model is shown: images, or slices of a volume
ADDED = "Not in the prompt: the images and slices on which the boxes of the right answer lie."


def build_unplayed(
    env: BaseMultiTurnEnv, task: Task, describe: Callable[[EpisodeState], Mapping[str, Any]] = lambda state: {}
) -> Episode:
    """Return a task with what a model is shown before its first reply; `info` has the right answer, the offered tools
    and what `describe` says, or the error for which the task cannot be opened. Where the boxes of the reference lie on
    none of these pictures, a last message has those that they lie on."""
    env = env.for_task(task)
    try:
        state = env.reset(task, seed=0)
        turns = (*state.turns, *_add_pictures(env, state))
        info = {UNPLAYED: True, "images": describe_images(state.images), "tools": list(state.tools), **describe(state)}
    except ViewboxError as error:
        info = {UNPLAYED: True, "error": str(error), RESTRICTED: bool(env.restricted)}
        return Episode(task, environment=env.name, info=info)
    episode = env.build_episode(state, info=info | {"right_answer": _write_answer(env, task)})
    return replace(episode, turns=turns, end_reason="answered", truncated=False, scores=None)


def describe_images(images: Sequence[Source]) -> str:
    """Return how many images there are, with the size of the first and what its reader noted."""
    for first in images[:1]:
        kind = f", {first.volume.voxels.shape} voxels" if first.volume is not None else ""
        return ". ".join([f"{len(images)}; the first has {first.width}x{first.height} pixels{kind}", *first.notes])
    return "none"


def _write_answer(env: BaseMultiTurnEnv, task: Task) -> str:
    try:
        return env.write_answer(task) if env.answer is not None else str(dict(task.reference))
    except ViewboxError as error:
        return f"unknown ({error})"


def _add_pictures(env: BaseMultiTurnEnv, state: EpisodeState) -> Iterator[Turn]:
    views = Views()
    images = list(islice(state.images, MAX_PICTURES))
    for number, source in enumerate(images):
        views.add([ShownView.of(View.of(source), number)])
    shown = [view for turn in state.turns for view in turn.views]
    added: dict[ShownView, View] = {}
    for mark in find_marks(state.task.reference, "gold", {str(part): name for part, name in env.place.items()}, views):
        number = mark.place.image
        if number < len(images) and not any(place_on(mark, view) for view in (*shown, *added)):
            source = images[number]
            flat = source if source.volume is None else source.volume.get_slice(*_find_slice(mark, source.volume))
            view = View.of(flat, max_pixels=env.max_pixels)
            added[ShownView.of(view, number)] = view
            if len(added) == MAX_PICTURES:
                break
    if added:
        yield Turn("user", ADDED, images=tuple(view.to_ref() for view in added.values()), views=tuple(added))


def _find_slice(mark: Mark, volume: Volume) -> tuple[int, Plane]:
    """Return the slice, or the middle one of several, on which a box lies, and its plane."""
    if mark.depth is not None:
        return min(volume.count_slices() - 1, int((mark.depth[2] + mark.depth[5]) / 2 * volume.count_slices())), "axial"
    plane: Any = mark.place.plane or "axial"
    return sum(mark.place.slices or (volume.index, volume.index)) // 2, plane
