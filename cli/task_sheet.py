"""Tasks of an environment as fields to print, and as a sheet of pictures with the boxes of the reference."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from PIL import Image

from ..configs import schema
from ..configs.schema import Config
from ..core.base import BaseMultiTurnEnv
from ..core.tasks import to_sequence
from ..envs.data.env import DataEnv
from ..envs.from_config import build_envs
from ..errors import ConfigError, ViewboxError
from ..images.shown import ShownView
from ..images.source import Plane, Source, Volume
from ..images.task_images import name_image
from ..images.view import View
from ..records import Task
from ..rewards.marks import Mark, Views, find_marks, place_on
from ..utils.frozen import thaw
from ..utils.terminal import make_line
from ..viewer.contact_sheet import ACROSS, COLUMNS, Block, draw_blocks, fit_picture

if TYPE_CHECKING:
    from ..training.checks.preflight import LocalModel

TEXT_LINES = 7  # under a panel
MAX_PICTURES = 4  # of a task that are drawn


@dataclass(frozen=True)
class ShownPicture:
    """A picture of a task: an image, or a slice of it, with the corners of the boxes on it as fractions."""

    name: str
    image: Image.Image
    boxes: tuple[tuple[tuple[float, float], ...], ...]


@dataclass(frozen=True)
class ShownTask:
    """A task as it is shown. It has no picture if it has no image, or if `problem` says why none can be opened."""

    id: str
    fields: tuple[tuple[str, str], ...]
    reference: Mapping[str, Any]
    pictures: tuple[ShownPicture, ...]
    problem: str | None


def load_config(name: str, overrides: Sequence[str]) -> "tuple[Config, LocalModel | None]":
    """Return a config, which may lack the section `model`, and its model if it is on this machine."""
    from ..training.checks.preflight import find_model

    config = schema.load(name, overrides, needs_model=False)
    with schema.locate_errors(config):
        return config, find_model(config.model)


def open_envs(name: str, overrides: Sequence[str]) -> tuple[BaseMultiTurnEnv, BaseMultiTurnEnv, str]:
    """Return the training and the held-out environment of a config, and the conventions that they assume."""
    config, model = load_config(name, overrides)
    with schema.locate_errors(config):
        env, held_out = build_envs(config, model.view_settings if model else {})
    why = f"{config.model.name} is not on this machine" if config.model.name else "the config names no model"
    views = f"views of at most {env.max_pixels:,} pixels, sides in multiples of {env.pixel_multiple}"
    assumed = f"conventions: coordinates {env.coordinates}; {views}" + ("" if model else f" ({why})")
    if isinstance(env, DataEnv) and any(
        env.fields[name].kind in ("box", "boxes") for name in env.fields.keys() & env.data.columns.keys()
    ):
        assumed += f"\n{env.data.boxes.describe()}"
    return env, held_out, assumed


def list_shown(env: BaseMultiTurnEnv, first: int, count: int) -> tuple[int, list[ShownTask]]:
    """Return how many tasks there are, and `count` of them. Raise `ConfigError` if there is none with the number
    `first`."""
    total, tasks = pick_tasks(env, first, count)
    return total, [_open(env, task) for task in tasks]


def pick_tasks(env: BaseMultiTurnEnv, first: int, count: int) -> tuple[int, list[Task]]:
    """`list_shown`, of the tasks themselves."""
    tasks = to_sequence(env.tasks, env.name)
    if first >= len(tasks):
        raise ConfigError(f"--first = {first}; allowed: 0 to {len(tasks) - 1}, the tasks of {env.name}", key="first")
    return len(tasks), [tasks[number] for number in range(first, min(first + count, len(tasks)))]


def _open(env: BaseMultiTurnEnv, task: Task) -> ShownTask:
    fields = [(name, value) for part in (task.prompt, task.reference, task.metadata) for name, value in part.items()]
    pictures: tuple[ShownPicture, ...] = ()
    problem = None
    try:
        state = env.for_task(task).reset(task, seed=0)
        pictures = tuple(_list_pictures(env.for_task(task), task, list(state.images)[:MAX_PICTURES]))
    except ViewboxError as error:
        problem = str(error)
        fields.append(("problem", problem))
    else:
        if "question" not in task.prompt:
            fields.insert(0, ("question", env.for_task(task).user_message(task)))
        for source in list(state.images)[:1]:
            kind = f", {source.volume.voxels.shape} voxels" if source.volume is not None else ""
            text = f"{len(state.images)}; the first has {source.width}x{source.height} pixels{kind}"
            fields.insert(0, ("images", ". ".join([text, *source.notes])))
    shown = tuple((name, _to_text(value)) for name, value in fields)
    return ShownTask(task.id, shown, task.reference, pictures, problem)


def _list_pictures(env: BaseMultiTurnEnv, task: Task, images: Sequence[Source]) -> Iterator[ShownPicture]:
    """Yield the images of a task; of a volume those slices that have boxes, or the one that is shown first."""
    views = Views()
    for number, source in enumerate(images):
        views.add([ShownView.of(View.of(source), number)])
    marks = find_marks(task.reference, "gold", {str(part): name for part, name in env.place.items()}, views)
    for number, source in enumerate(images):
        here = [mark for mark in marks if mark.place.image == number]
        if source.volume is not None and here:
            places = dict.fromkeys(_find_slice(mark, source.volume) for mark in here)
            found = [source.volume.get_slice(index, plane) for plane, index in islice(places, MAX_PICTURES)]
        else:
            found = [source]
        for one in found:
            view = View.of(one, max_pixels=env.max_pixels)
            shown = ShownView.of(view, number)
            drawn = (place_on(mark, shown) for mark in here)
            boxes = tuple(mark.corners for mark in drawn if mark is not None)
            name = f", {name_image(number)}" if len(images) > 1 else ""
            name += "" if one.volume is None else f", {one.volume.plane} {one.volume.index}"
            yield ShownPicture(name, view.render(), boxes)


def _find_slice(mark: Mark, volume: Volume) -> tuple[Plane, int]:
    """Return the plane and the number of the slice, or of the middle one of several, on which a box lies."""
    if mark.depth is not None:
        return "axial", min(volume.count_slices() - 1, int((mark.depth[2] + mark.depth[5]) / 2 * volume.count_slices()))
    plane: Any = mark.place.plane or "axial"
    return plane, sum(mark.place.slices or (volume.index, volume.index)) // 2


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else str(_round(thaw(value)))


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _round(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_round(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def draw_sheet(tasks: Sequence[ShownTask]) -> Image.Image:
    """Return the pictures of the tasks, each with its question and reference below it and its boxes in green."""
    blocks = [_build_block(task, one) for task in tasks for one in task.pictures or (None,)]
    return draw_blocks(blocks, min(ACROSS, len(blocks)))


def _build_block(task: ShownTask, shown: ShownPicture | None) -> Block:
    lines = list(islice(_write_lines(task), TEXT_LINES))
    if shown is None:
        return Block(make_line(task.id, COLUMNS), None, (), lines)
    boxes = tuple(("gold", {"shape": "box", "corners": corners}) for corners in shown.boxes)
    title = make_line(task.id, COLUMNS - len(shown.name)) + shown.name
    return Block(title, fit_picture(shown.image), boxes, lines)


def _write_lines(task: ShownTask) -> Iterator[tuple[str, str]]:
    if task.problem is not None:
        yield from ((line, "red") for line in textwrap.wrap(make_line(task.problem, 1000), COLUMNS))
        return
    shown = {"question": "black", **dict.fromkeys(task.reference, "green")}
    for name, value in task.fields:
        if name in shown:
            text = value if name == "question" else f"{name}: {value}"
            yield from ((line, shown[name]) for line in textwrap.wrap(make_line(text, 300), COLUMNS, max_lines=4))
